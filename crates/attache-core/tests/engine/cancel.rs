//! A cancel is immediate and final, and a task ends exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use attache_core::{AgentError, Turn, agent_fn};
use attache_protocol::{ErrorKind, TaskState};
use tokio::time::Instant;

use crate::support::{
    Host, Latch, Script, SlowStore, Step, history, host, host_on, say, settle_down, soon, states, status_text,
};

/// An agent that works until it is canceled, and then sets the flag.
fn until_canceled() -> (Host, Arc<AtomicBool>) {
    let noticed = Arc::new(AtomicBool::new(false));
    let flag = noticed.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let flag = flag.clone();
        async move {
            turn.working("").await?;
            turn.cancelled().await;
            flag.store(turn.is_cancelled(), Ordering::SeqCst);
            Ok(())
        }
    }));
    (host, noticed)
}

/// An agent that ignores cancels and never returns.
fn ignoring_cancels() -> Host {
    host(agent_fn(|turn: Turn| async move {
        turn.working("").await?;
        std::future::pending().await
    }))
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_notified_of_a_cancel() {
    let (host, noticed) = until_canceled();
    let client = host.client();
    let task = client.send(say("hi").at_once()).await;
    settle_down().await;
    assert_eq!(client.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
    host.idle().await;
    assert!(noticed.load(Ordering::SeqCst));
    assert_eq!(client.get(&task.id).await.status.state, TaskState::Canceled);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_releases_blocked_senders_and_streams_at_once() {
    let host = ignoring_cancels();
    let client = host.client();
    let first = client.send_meanwhile(say("one"));
    settle_down().await;
    let task = client.list_all().await.remove(0);
    let second = client.send_meanwhile(say("two").to(&task));
    let streaming = client.stream(say("three").to(&task)).await;
    let following = client.subscribe(&task.id).await;
    settle_down().await;
    let begun = Instant::now();
    client.cancel(&task.id).await.unwrap();
    for sent in [first, second] {
        assert_eq!(soon(sent).await.unwrap().status.state, TaskState::Canceled);
    }
    for events in [streaming, following] {
        assert_eq!(states(&events.rest().await).last(), Some(&TaskState::Canceled));
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_wins_over_a_result_that_arrives_later() {
    let (latch, refused) = (Latch::new(), Arc::new(AtomicBool::new(false)));
    let (agent_latch, agent_refused) = (latch.clone(), refused.clone());
    let host = host(agent_fn(move |turn: Turn| {
        let (latch, refused) = (agent_latch.clone(), agent_refused.clone());
        async move {
            turn.working("").await?;
            latch.pass().await;
            let said = turn.artifact("result").text("42").await;
            refused.store(said.is_err_and(|error| error.is_over()), Ordering::SeqCst);
            turn.complete().await
        }
    }));
    let client = host.client();
    let sent = client.send_meanwhile(say("hi"));
    latch.reached().await;
    let task = client.list_all().await.remove(0);
    let canceled = client.cancel(&task.id).await.unwrap();
    latch.open();
    host.idle().await;
    assert!(refused.load(Ordering::SeqCst));
    assert_eq!(client.get(&task.id).await, canceled);
    assert_eq!(soon(sent).await.unwrap(), canceled);
    assert_eq!((canceled.status.state, canceled.artifacts.len()), (TaskState::Canceled, 0));
}

#[tokio::test(start_paused = true)]
async fn a_canceled_task_can_be_canceled_again() {
    let (host, _) = until_canceled();
    let client = host.client();
    let task = client.send(say("hi").at_once()).await;
    let once = client.cancel(&task.id).await.unwrap();
    host.clock_at(60_000);
    assert_eq!(client.cancel(&task.id).await.unwrap(), once);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_otherwise_cannot_be_canceled() {
    for end in [Step::Complete, Step::Fail("no".into()), Step::Reject("no".into())] {
        let host = host(Script(vec![end]));
        let client = host.client();
        let task = client.send(say("hi")).await;
        assert_eq!(client.cancel(&task.id).await.unwrap_err().kind(), ErrorKind::TaskNotCancelable);
        assert_eq!(client.get(&task.id).await, task);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_its_client_can_be_canceled() {
    for asks in [Step::Ask("which?".into()), Step::RequireAuth("who?".into())] {
        let host = host(Script(vec![asks.clone()]));
        let client = host.client();
        let task = client.send(say("hi")).await;
        let canceled = client.cancel(&task.id).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled);
        assert_eq!(history(&canceled), ["hi", &status_text(&task)]);
        let error = client.try_send(say("this").to(&task)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_ignores_a_cancel_is_dropped_after_the_grace_time() {
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = dropped.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let flag = Flag(flag.clone());
        async move {
            turn.working("").await?;
            let _flag = flag;
            std::future::pending().await
        }
    }));
    let client = host.client();
    let task = client.send(say("hi").at_once()).await;
    settle_down().await;
    client.cancel(&task.id).await.unwrap();
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    assert!(!dropped.load(Ordering::SeqCst), "the agent had no time to clean up");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(host.service.running_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waited_for_a_canceled_turn_is_not_given_to_the_agent() {
    let turns = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let notes = turns.clone();
    let host = host(agent_fn(move |turn: Turn| {
        notes.lock().push(turn.text());
        async move {
            turn.cancelled().await;
            Ok(())
        }
    }));
    let client = host.client();
    let task = client.send(say("one").at_once()).await;
    let second = client.send_meanwhile(say("two").to(&task));
    settle_down().await;
    client.cancel(&task.id).await.unwrap();
    assert_eq!(soon(second).await.unwrap().status.state, TaskState::Canceled);
    host.idle().await;
    assert_eq!(*turns.lock(), ["one"]);
}

/// Cancels a task at every step of a short turn, with a store that yields in between.
#[tokio::test(start_paused = true)]
async fn a_cancel_that_races_completion_leaves_exactly_one_end() {
    let mut wins = [0, 0];
    for patience in 0..60 {
        let artifact = Step::Artifact { name: "a".into(), text: "x".into() };
        let agent = Script([vec![Step::Yield; 30], vec![artifact; 3], vec![Step::Complete]].concat());
        let host = host_on(SlowStore::shared(), agent, |_, _| {});
        let client = host.client();
        let task = client.send(say("hi").at_once()).await;
        let events = client.try_subscribe(&task.id, Some(0)).await.unwrap();
        for _ in 0..patience {
            tokio::task::yield_now().await;
        }
        let canceled = client.cancel(&task.id).await;
        host.idle().await;
        let after = client.get(&task.id).await;
        let told = states(&events.rest().await);
        let ends: Vec<_> = told.iter().filter(|state| state.is_terminal()).collect();
        assert_eq!(
            (ends.as_slice(), told.last()),
            ([&after.status.state].as_slice(), Some(&after.status.state))
        );
        match canceled {
            Ok(canceled) => {
                assert_eq!(canceled, after);
                assert_eq!(after.status.state, TaskState::Canceled);
                wins[0] += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TaskNotCancelable);
                assert_eq!(after.status.state, TaskState::Completed);
                wins[1] += 1;
            }
        }
    }
    assert!(wins[0] > 0 && wins[1] > 0, "both sides must get to win for this to say anything: {wins:?}");
}

/// The same with real threads, many times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_races_completion_on_another_thread_leaves_exactly_one_end() {
    let host = host(Script(vec![Step::Working("".into()), Step::Yield, Step::Yield]));
    let client = host.client();
    for _ in 0..300 {
        let task = client.send(say("hi").at_once()).await;
        let canceled = client.cancel(&task.id).await;
        let told = states(&client.try_subscribe(&task.id, Some(0)).await.unwrap().rest().await);
        assert_eq!(told.iter().filter(|state| state.is_terminal()).count(), 1, "{told:?}");
        let expected = if canceled.is_ok() { TaskState::Canceled } else { TaskState::Completed };
        assert_eq!(client.get(&task.id).await.status.state, expected);
    }
}

/// Cancels at every step between the arrival of a message and its turn.
#[tokio::test(start_paused = true)]
async fn a_message_that_races_a_cancel_gets_the_canceled_task_or_is_refused() {
    for patience in 0..40 {
        let agent = agent_fn(|turn: Turn| async move {
            match turn.text().as_str() {
                "one" => turn.ask("which?").await,
                _ => {
                    turn.cancelled().await;
                    Err(AgentError::public("canceled"))
                }
            }
        });
        let host = host_on(SlowStore::shared(), agent, |_, _| {});
        let client = host.client();
        let task = client.send(say("one")).await;
        host.idle().await;
        let (sender, task_to_continue) = (client.clone(), task.clone());
        let sent = tokio::spawn(async move { sender.try_send(say("two").to(&task_to_continue)).await });
        for _ in 0..patience {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.cancel(&task.id).await.unwrap().status.state, TaskState::Canceled);
        match soon(sent).await.unwrap() {
            Ok(answer) => assert_eq!(answer.task().status.state, TaskState::Canceled, "after {patience}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnsupportedOperation, "after {patience}: {error}")
            }
        }
        host.idle().await;
    }
}
