//! Two servers on one store: a task has one turn at a time, on whichever server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use attache_core::{Agent, MemoryStore, NewTask, Owner, Store, TaskEvent, Turn, agent_fn};
use attache_protocol::{
    ContextId, ErrorKind, SendMessageConfiguration, Task, TaskId, TaskPushNotificationConfig, TaskState,
    TaskStatus, Timestamp,
};

use crate::support::{
    CLOCK_START, Latch, Script, SlowStore, Step, history, host_on, say, settle_down, soon, status_text,
};

/// A working task whose lease lasts for so many milliseconds.
async fn task_with_lease(store: &dyn Store, millis: i64) -> Task {
    let task = Task {
        id: TaskId::from("t"),
        context_id: Some(ContextId::from("c")),
        status: TaskStatus { state: TaskState::Working, ..TaskStatus::default() },
        ..Task::default()
    };
    let new = NewTask {
        owner: Owner::default(),
        events: vec![TaskEvent::Created(Arc::new(task.clone()))],
        now: Timestamp::from_millis(CLOCK_START),
        followed: false,
        lease_until: Timestamp::from_millis(CLOCK_START + millis),
        idempotency: None,
        push: None,
    };
    store.create(new).await.unwrap();
    task
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_lease_has_expired_can_be_continued_by_another_server() {
    let host = host_on(Arc::new(MemoryStore::new()), Script(vec![]), |_, _| {});
    let task = task_with_lease(&*host.store, 30_000).await;
    host.clock_at(30_000);
    assert_eq!(host.client().send(say("go on").to(&task)).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_task_with_a_valid_lease_is_left_to_its_server() {
    let host = host_on(Arc::new(MemoryStore::new()), Script(vec![]), |_, _| {});
    let task = task_with_lease(&*host.store, 30_000).await;
    host.clock_at(29_999);
    let error = host.client().try_send(say("go on").to(&task)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(host.service.running_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_turn_keeps_its_lease() {
    let (latch, store) = (Latch::new(), Arc::new(MemoryStore::new()));
    let agent_latch = latch.clone();
    let agent = agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            latch.pass().await;
            turn.complete().await
        }
    });
    let (here, there) = (host_on(store.clone(), agent, |_, _| {}), host_on(store, Script(vec![]), |_, _| {}));
    let task = here.client().send(say("hi").at_once()).await;
    for step in 1..60 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        here.clock_at(step * 5_000);
        there.clock_at(step * 5_000);
        let error = there.client().try_send(say("me too").to(&task)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "after {} s", step * 5);
    }
    latch.open();
    here.idle().await;
    assert_eq!(there.client().get(&task.id).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_task_was_taken_over_writes_nothing_more() {
    let (latch, store) = (Latch::new(), Arc::new(MemoryStore::new()));
    let agent_latch = latch.clone();
    let agent = agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            turn.working("").await?;
            latch.pass().await;
            turn.artifact("late").text("x").await?;
            latch.pass().await;
            turn.fail("this must not be seen").await
        }
    });
    let asking = Script(vec![Step::Ask("which one?".into())]);
    let (here, there) = (host_on(store.clone(), agent, |_, _| {}), host_on(store, asking, |_, _| {}));
    let task = here.client().send(say("hi").at_once()).await;
    latch.reached().await;
    // The clock of the other server is past the end of the lease.
    there.clock_at(600_000);
    let asked = there.client().send(say("anyone?").to(&task)).await;
    for _ in 0..2 {
        latch.open();
    }
    here.idle().await;
    assert_eq!(status_text(&asked), "which one?");
    assert_eq!(here.client().get(&task.id).await, asked);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_on_one_server_ends_the_task_on_the_other() {
    let (latch, store) = (Latch::new(), Arc::new(MemoryStore::new()));
    let agent_latch = latch.clone();
    let agent = agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            turn.working("").await?;
            latch.pass().await;
            turn.artifact("late").text("x").await?;
            latch.pass().await;
            assert!(turn.working("").await.is_err_and(|error| error.is_over()));
            Ok(())
        }
    });
    let (here, there) = (host_on(store.clone(), agent, |_, _| {}), host_on(store, Script(vec![]), |_, _| {}));
    let sent = here.client().send_meanwhile(say("hi"));
    latch.reached().await;
    let task = there.client().list_all().await.remove(0);
    let canceled = there.client().cancel(&task.id).await.unwrap();
    latch.open();
    latch.reached().await;
    latch.open();
    assert_eq!(soon(sent).await.unwrap(), canceled);
    here.idle().await;
    assert_eq!(here.client().get(&task.id).await, canceled);
}

/// An agent that works and emits nothing until it is canceled.
fn silent(latch: &Latch, canceled: &Arc<AtomicBool>) -> impl Agent {
    let (latch, canceled) = (latch.clone(), canceled.clone());
    agent_fn(move |turn: Turn| {
        let (latch, canceled) = (latch.clone(), canceled.clone());
        async move {
            turn.working("").await?;
            latch.pass().await;
            turn.cancelled().await;
            canceled.store(true, Ordering::Relaxed);
            Ok(())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_cancel_on_one_server_reaches_a_silent_agent_on_the_other_at_its_next_renewal() {
    let (latch, store) = (Latch::new(), Arc::new(MemoryStore::new()));
    let canceled = Arc::new(AtomicBool::new(false));
    let here = host_on(store.clone(), silent(&latch, &canceled), |_, _| {});
    let there = host_on(store, Script(vec![]), |_, _| {});
    let sent = here.client().send_meanwhile(say("hi"));
    latch.reached().await;
    latch.open();
    let task = there.client().list_all().await.remove(0);
    let waiting = here.client().send_meanwhile(say("and this").to(&task));
    settle_down().await;
    let ended = there.client().cancel(&task.id).await.unwrap();
    settle_down().await;
    assert!(!canceled.load(Ordering::Relaxed), "the other server cannot know before it asks the store");
    let began = tokio::time::Instant::now();
    here.idle().await;
    // A lease lasts 30 seconds and is renewed three times in that time.
    assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
    assert!(canceled.load(Ordering::Relaxed));
    for answered in [sent, waiting] {
        assert_eq!(soon(answered).await.unwrap(), ended);
    }
    assert_eq!(here.client().get(&task.id).await, ended);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_ignores_a_cancel_on_another_server_is_dropped_after_the_grace_time() {
    let store = Arc::new(MemoryStore::new());
    let agent = agent_fn(|turn: Turn| async move {
        turn.working("").await?;
        std::future::pending().await
    });
    let (here, there) = (host_on(store.clone(), agent, |_, _| {}), host_on(store, Script(vec![]), |_, _| {}));
    let task = here.client().send(say("hi").at_once()).await;
    there.client().cancel(&task.id).await.unwrap();
    let began = tokio::time::Instant::now();
    here.idle().await;
    assert!(began.elapsed() <= Duration::from_secs(16), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_has_ended_its_task_may_go_on_and_is_not_canceled() {
    let finished = Arc::new(AtomicBool::new(false));
    let agent_finished = finished.clone();
    let agent = agent_fn(move |turn: Turn| {
        let finished = agent_finished.clone();
        async move {
            turn.working("").await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            turn.complete().await?;
            tokio::time::sleep(Duration::from_secs(300)).await;
            finished.store(!turn.is_cancelled(), Ordering::Relaxed);
            Ok(())
        }
    });
    let here = host_on(Arc::new(MemoryStore::new()), agent, |_, _| {});
    assert_eq!(here.client().send(say("hi")).await.status.state, TaskState::Completed);
    here.idle().await;
    assert!(finished.load(Ordering::Relaxed));
}

/// Adds a webhook to a message.
fn with_webhook(configuration: &mut SendMessageConfiguration) {
    let webhook =
        TaskPushNotificationConfig { url: "https://example.com/hook".to_owned(), ..Default::default() };
    configuration.task_push_notification_config = Some(Box::new(webhook));
}

/// An agent that works until the latch is opened, and then asks for input.
fn asks_after(latch: &Latch) -> impl Agent {
    let latch = latch.clone();
    agent_fn(move |turn: Turn| {
        let latch = latch.clone();
        async move {
            turn.working("").await?;
            latch.pass().await;
            turn.ask("more?").await
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_message_that_another_server_rejects_leaves_nothing_and_can_be_sent_again() {
    let (latch, store) = (Latch::new(), Arc::new(MemoryStore::new()));
    let here = host_on(store.clone(), asks_after(&latch), |_, _| {});
    let there = host_on(store.clone(), Script(vec![Step::Ask("and now?".into())]), |_, _| {});
    let task = here.client().send(say("hi").at_once()).await;
    latch.reached().await;
    let message = || say("me too").with_id("m").to(&task).configured(with_webhook);
    for client in [there.client(), there.client().with_key("k")] {
        let error = client.try_send(message()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert_eq!(history(&there.client().get(&task.id).await), ["hi"]);
    assert!(store.outbox().webhooks(&task.id).await.unwrap().is_empty());
    assert_eq!(there.service.running_turns(), 0);
    latch.open();
    here.idle().await;
    for _ in 0..2 {
        let answered = there.client().with_key("k").send(message()).await;
        assert_eq!(history(&answered), ["hi", "more?", "me too"]);
        assert_eq!(status_text(&answered), "and now?");
    }
    assert_eq!(store.outbox().webhooks(&task.id).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_for_its_turn_gets_it_before_any_other_server() {
    let (latch, store) = (Latch::new(), SlowStore::with_latency(Duration::from_millis(10)));
    let here = host_on(store.clone(), asks_after(&latch), |_, _| {});
    let there = host_on(store, Script(vec![]), |_, _| {});
    let task = here.client().send(say("one").at_once()).await;
    latch.reached().await;
    let waiting: Vec<_> =
        ["two", "three"].map(|text| here.client().send_meanwhile(say(text).to(&task))).into_iter().collect();
    settle_down().await;
    let intruder = there.client();
    for _ in 0..2 {
        latch.open();
        let mut next = std::pin::pin!(latch.reached());
        // Between two turns the other server can never claim the task.
        loop {
            tokio::select! {
                biased;
                () = &mut next => break,
                answer = intruder.try_send(say("intruder").to(&task)) => assert!(answer.is_err()),
            }
        }
    }
    latch.open();
    for waiting in waiting {
        soon(waiting).await.unwrap();
    }
    here.idle().await;
    let said = history(&here.client().get(&task.id).await);
    let users: Vec<_> = said.iter().filter(|text| *text != "more?").collect();
    assert_eq!(users, ["one", "two", "three"]);
    // After the last turn it can.
    assert_eq!(there.client().send(say("end").to(&task)).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_lease_is_lost_is_stopped_and_its_messages_go_to_the_other_server() {
    let (latch, store) = (Latch::new(), Arc::new(MemoryStore::new()));
    let canceled = Arc::new(AtomicBool::new(false));
    let (agent_latch, agent_canceled) = (latch.clone(), canceled.clone());
    let agent = agent_fn(move |turn: Turn| {
        let (latch, canceled) = (agent_latch.clone(), agent_canceled.clone());
        async move {
            turn.working("").await?;
            latch.pass().await;
            turn.cancelled().await;
            canceled.store(true, Ordering::Relaxed);
            Ok(())
        }
    });
    let here = host_on(store.clone(), agent, |_, _| {});
    let there = host_on(store, Script(vec![Step::Ask("which one?".into())]), |_, _| {});
    let task = here.client().send(say("hi").at_once()).await;
    latch.reached().await;
    latch.open();
    let waiting = here.client().send_meanwhile(say("and this").to(&task));
    settle_down().await;
    there.clock_at(600_000);
    let asked = there.client().send(say("anyone?").to(&task)).await;
    assert_eq!(history(&asked), ["hi", "and this", "anyone?"]);
    assert_eq!(status_text(&asked), "which one?");
    // The next renewal reports the lost lease, and the turn is canceled.
    here.idle().await;
    assert!(canceled.load(Ordering::Relaxed));
    assert_eq!(soon(waiting).await.unwrap(), asked, "the message is in the log, and answered there");
    assert_eq!(here.client().get(&task.id).await, asked);
}
