//! The events of an agent are written in order and without a gap, whichever task emits them and whatever the store does.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{AgentError, AgentResult, Turn, agent_fn};
use attache_protocol::{ErrorKind, StreamResponse, TaskPushNotificationConfig, TaskState};

use crate::support::{Latch, SendResult, SlowStore, host, host_on, say, states, status_text};

#[tokio::test(start_paused = true)]
async fn an_agent_that_completes_and_then_fails_has_completed() {
    async fn goes_wrong(how: &str) -> AgentResult {
        match how {
            "error" => Err(AgentError::public("too late")),
            "late error" => {
                tokio::task::yield_now().await;
                Err("too late".into())
            }
            "panic" => panic!("too late"),
            _ => std::future::pending().await,
        }
    }
    for how in ["error", "late error", "panic", "hang"] {
        let host = host(agent_fn(|turn: Turn| async move {
            turn.artifact("answer").text("42").await?;
            turn.complete().await?;
            goes_wrong(&turn.text()).await
        }));
        let task = host.client().send(say(how)).await;
        assert_eq!((task.status.state, task.artifacts.len()), (TaskState::Completed, 1), "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_a_task_that_the_agent_spawned_are_seen_as_they_are_emitted() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            let turn = Arc::new(turn);
            let (speaker, helper) = (turn.clone(), latch.clone());
            let work = tokio::spawn(async move {
                for number in 0..3 {
                    helper.pass().await;
                    speaker.working(format!("step {number}")).await?;
                }
                helper.pass().await;
                Ok::<_, AgentError>(())
            });
            work.await?
        }
    }));
    let client = host.client();
    latch.open();
    let mut events = client.stream(say("hi")).await;
    for number in 0..3 {
        let said = events.until(TaskState::Working).await;
        let StreamResponse::StatusUpdate(said) = said.what else { panic!("expected a status, got {said:?}") };
        assert_eq!(said.status.message.unwrap().text(), format!("step {number}"));
        latch.open();
    }
    assert_eq!(states(&events.rest().await), [TaskState::Completed]);
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_task_that_the_agent_spawned_reaches_the_sender() {
    let host = host(agent_fn(|turn: Turn| async move {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            turn.ask("which one?").await?;
            std::future::pending::<AgentResult>().await
        })
        .await?
    }));
    let task = host.client().send(say("hi")).await;
    assert_eq!(status_text(&task), "which one?");
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_events_cannot_be_written_fails_its_task() {
    let mut failed = 0;
    for number in 1..=6 {
        let agent = agent_fn(|turn: Turn| async move {
            let mut poem = turn.artifact("poem").stream();
            for word in ["roses ", "are ", "red"] {
                poem.chunk(word).await?;
                tokio::task::yield_now().await;
            }
            turn.complete().await
        });
        let host = host_on(SlowStore::failing_at_write(number), agent, |_, _| {});
        let client = host.client();
        let task = client.send(say("hi")).await;
        host.idle().await;
        assert_eq!(client.get(&task.id).await, task);
        if task.status.state == TaskState::Completed {
            assert_eq!(task.artifact("poem").unwrap().text(), "roses are red", "write {number} failed");
        } else {
            assert_eq!(task.status.state, TaskState::Failed, "write {number} failed");
            assert!(!status_text(&task).contains("disk"), "{}", status_text(&task));
            failed += 1;
        }
    }
    assert!(failed > 0, "no write failed");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_of_the_message_is_stored_even_if_the_first_write_failed() {
    let agent = agent_fn(|turn: Turn| async move { turn.complete().await });
    let host = host_on(SlowStore::failing_at_write(1), agent, |_, _| {});
    let webhook = TaskPushNotificationConfig { url: "https://example.com".to_owned(), ..Default::default() };
    let message = say("hi").configured(|c| c.task_push_notification_config = Some(Box::new(webhook)));
    let task = host.client().send(message).await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(host.store.outbox().webhooks(&task.id).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_write_at_all_is_an_internal_error_without_details() {
    let agent = agent_fn(|turn: Turn| async move { turn.complete().await });
    let host = host_on(SlowStore::failing_at_write(1), agent, |_, _| {});
    let error = host.client().with_key("k").try_send(say("hi")).await.unwrap_err();
    let [("errorId", id)] = error.metadata() else { panic!("{error:?}") };
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Internal, &*format!("something went wrong here: error {id}"))
    );
    assert!(error.metadata().iter().any(|(key, _)| *key == "errorId"));
    assert_eq!(host.service.running_turns(), 0);
}

/// A turn times out at every step, with a store whose operations take 100 ms each.
#[tokio::test(start_paused = true)]
async fn a_turn_that_times_out_during_a_write_fails_its_task() {
    for timeout in (0..1_500).step_by(50) {
        let agent = agent_fn(|turn: Turn| async move {
            for number in 0..3 {
                turn.working(format!("step {number}")).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            turn.complete().await
        });
        let store = SlowStore::with_latency(Duration::from_millis(100));
        let host = host_on(store, agent, |_, options| options.turn_timeout = Duration::from_millis(timeout));
        let client = host.client();
        let SendResult::Task(task) = client.try_send(say("hi")).await.unwrap() else { panic!("no task") };
        assert!(task.status.state.is_terminal(), "after {timeout} ms: {:?}", task.status.state);
        host.idle().await;
        assert_eq!(client.get(&task.id).await, task);
        let listed = client.list_all().await;
        assert_eq!((listed.len(), listed[0].status.state), (1, task.status.state), "after {timeout} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_store_gets_the_events_of_a_write_time_in_one_write() {
    let latency = Duration::from_millis(10);
    let agent = agent_fn(|turn: Turn| async move {
        let mut chunks = turn.artifact("story").stream();
        for number in 0..100 {
            chunks.chunk(format!("{number} ")).await?;
            tokio::task::yield_now().await;
        }
        chunks.last("end").await
    });
    let host = host_on(SlowStore::with_latency(latency), agent, |_, _| {});
    let begun = tokio::time::Instant::now();
    let task = host.client().send(say("go on")).await;
    assert_eq!((task.status.state, task.artifacts[0].parts.len()), (TaskState::Completed, 101));
    // One write for the first event, and one for all events that were emitted meanwhile. Each takes the latency twice.
    assert!(begun.elapsed() <= 6 * latency, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_agent_cannot_run_far_ahead_of_a_slow_store() {
    let said = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = said.clone();
    let agent = agent_fn(move |turn: Turn| {
        let said = counter.clone();
        async move {
            let mut chunks = turn.artifact("story").stream();
            for _ in 0..2_000 {
                chunks.chunk("word ").await?;
                said.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            chunks.last("end").await
        }
    });
    let host = host_on(SlowStore::with_latency(Duration::from_millis(100)), agent, |_, _| {});
    let client = host.client();
    let sending = tokio::spawn(async move { client.send(say("go on")).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(said.load(std::sync::atomic::Ordering::Relaxed) < 1_000);
    let task = sending.await.unwrap();
    assert_eq!((task.status.state, task.artifacts[0].parts.len()), (TaskState::Completed, 2_001));
}
