//! A turn has a defined end whatever the agent does, and every waiting caller is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use attache_core::{AgentError, Turn, agent_fn};
use attache_protocol::{Role, TaskState};

use crate::support::{Latch, Script, Step, history, host, host_with, say, soon, states, status_text};

const SECRET: &str = "the password is `swordfish`";

#[tokio::test(start_paused = true)]
async fn an_agent_that_completes_gives_a_completed_task_with_its_artifacts() {
    let host = host(agent_fn(|turn: Turn| async move {
        turn.working("on it").await?;
        turn.artifact("answer").text(turn.text().to_uppercase()).await?;
        turn.complete_with("done").await
    }));
    let task = host.client().send(say("hi")).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(status_text(&task), "done");
    assert_eq!(task.artifact("answer").unwrap().text(), "HI");
    assert_eq!(history(&task), ["hi", "on it"]);
    assert_eq!(host.client().get(&task.id).await, task);
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_returns_without_an_event_has_completed_its_task() {
    let host = host(Script(vec![]));
    let task = host.client().send(say("hi")).await;
    assert_eq!(task.status.state, TaskState::Completed);
    assert!(task.artifacts.is_empty());
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_adds_an_artifact_and_returns_has_completed_its_task() {
    let host =
        host(Script(vec![Step::Yield, Step::Artifact { name: "a".into(), text: "x".into() }, Step::Yield]));
    let task = host.client().send(say("hi")).await;
    assert_eq!((task.status.state, task.artifacts.len()), (TaskState::Completed, 1));
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn the_text_of_an_internal_error_never_reaches_the_client() {
    for patient in [false, true] {
        let host = host(agent_fn(move |turn: Turn| async move {
            if patient {
                turn.working("").await?;
                tokio::task::yield_now().await;
            }
            Err(std::io::Error::other(SECRET).into())
        }));
        let client = host.client();
        let task = client.send(say("hi")).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert!(status_text(&task).contains("error id"), "{task:?}");
        assert!(!format!("{:?}", client.get(&task.id).await).contains("swordfish"));
        host.idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_public_error_reaches_the_client() {
    let host = host(agent_fn(|_: Turn| async { Err(AgentError::public("the printer is out of paper")) }));
    let task = host.client().send(say("print")).await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert_eq!(status_text(&task), "the printer is out of paper");
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_at_once_fails_its_task() {
    let host = host(agent_fn(|_: Turn| -> std::future::Ready<_> { panic!("{SECRET}") }));
    let task = host.client().send(say("hi")).await;
    assert_eq!(task.status.state, TaskState::Failed);
    assert!(status_text(&task).contains("error id"));
    assert!(!format!("{task:?}").contains("swordfish"));
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_later_fails_its_task() {
    let host = host(agent_fn(|turn: Turn| async move {
        turn.artifact("half").text("x").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        panic!("{SECRET}")
    }));
    let task = host.client().send(say("hi")).await;
    assert_eq!((task.status.state, task.artifacts.len()), (TaskState::Failed, 1));
    assert!(!format!("{task:?}").contains("swordfish"));
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_the_stream_with_the_failure() {
    let host = host(agent_fn(|turn: Turn| async move {
        turn.working("").await?;
        tokio::task::yield_now().await;
        panic!("{SECRET}")
    }));
    let events = host.client().stream(say("hi")).await.rest().await;
    assert_eq!(states(&events), [TaskState::Submitted, TaskState::Working, TaskState::Failed]);
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_takes_too_long_fails_its_task() {
    for talkative in [false, true] {
        let host = host_with(
            agent_fn(move |turn: Turn| async move {
                if talkative {
                    turn.working("").await?;
                }
                std::future::pending().await
            }),
            |_, options| options.turn_timeout = Duration::from_secs(20),
        );
        let begun = tokio::time::Instant::now();
        let task = host.client().send(say("hi")).await;
        assert_eq!(task.status.state, TaskState::Failed);
        assert!(status_text(&task).contains("20 s"), "{}", status_text(&task));
        assert_eq!(begun.elapsed().as_secs(), 20);
        host.idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn events_after_the_end_are_refused_and_change_nothing() {
    let (latch, refused) = (Latch::new(), Arc::new(AtomicBool::new(false)));
    let (agent_latch, agent_refused) = (latch.clone(), refused.clone());
    let host = host(agent_fn(move |turn: Turn| {
        let (latch, refused) = (agent_latch.clone(), agent_refused.clone());
        async move {
            turn.complete().await?;
            let all = [
                turn.working("more").await,
                turn.artifact("late").text("x").await,
                turn.ask("?").await,
                turn.fail("no").await,
                turn.reply("hi").await,
            ];
            refused.store(
                all.iter().all(|said| said.as_ref().is_err_and(AgentError::is_over)),
                Ordering::SeqCst,
            );
            latch.pass().await;
            turn.working("still here").await
        }
    }));
    let client = host.client();
    let task = client.send(say("hi")).await;
    latch.reached().await;
    assert!(refused.load(Ordering::SeqCst));
    latch.open();
    host.idle().await;
    assert_eq!(client.get(&task.id).await, task);
    assert_eq!(task.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_outlives_its_agent_writes_nothing_more() {
    let host = host(agent_fn(|turn: Turn| async move {
        turn.working("").await?;
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let said = turn.artifact("late").text("x").await;
            assert!(said.is_err_and(|error| error.is_over()));
        });
        Ok(())
    }));
    let task = host.client().send(say("hi")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(host.client().get(&task.id).await, task);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_rejects_gives_a_rejected_task() {
    let host = host(Script(vec![Step::Reject("not my job".into())]));
    let task = host.client().send(say("hi")).await;
    assert_eq!((task.status.state, status_text(&task).as_str()), (TaskState::Rejected, "not my job"));
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_fails_says_why() {
    let host = host(Script(vec![Step::Yield, Step::Fail("out of paper".into())]));
    let task = host.client().send(say("hi")).await;
    assert_eq!((task.status.state, status_text(&task).as_str()), (TaskState::Failed, "out of paper"));
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_requires_credentials_can_go_on_in_the_same_turn() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            turn.require_auth("log in at example.com").await?;
            latch.pass().await;
            turn.artifact("mail").text("3 new").await?;
            turn.complete().await
        }
    }));
    let client = host.client();
    let task = client.send(say("read my mail")).await;
    assert_eq!(task.status.state, TaskState::AuthRequired);
    let mut events = client.subscribe(&task.id).await;
    latch.open();
    events.until(TaskState::Completed).await;
    host.idle().await;
    let task = client.get(&task.id).await;
    assert_eq!(task.artifact("mail").unwrap().text(), "3 new");
    assert_eq!(history(&task), ["read my mail", "log in at example.com"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_waits_for_the_client_leaves_the_task_waiting() {
    for (asks, state) in [
        (Step::Ask("which?".into()), TaskState::InputRequired),
        (Step::RequireAuth("who?".into()), TaskState::AuthRequired),
    ] {
        let host = host(Script(vec![asks]));
        let task = host.client().send(say("hi")).await;
        host.idle().await;
        assert_eq!(host.client().get(&task.id).await.status.state, state);
    }
}

#[tokio::test(start_paused = true)]
async fn a_direct_reply_leaves_no_task() {
    for slow in [vec![], vec![Step::Yield]] {
        let host = host(Script([slow, vec![Step::Reply("hello".into())]].concat()));
        let client = host.client();
        let message = client.try_send(say("hi").in_context("c")).await.unwrap().message();
        assert_eq!((message.role, message.text().as_str()), (Role::Agent, "hello"));
        assert_eq!(message.context_id.as_ref().unwrap().as_str(), "c");
        assert_eq!(message.task_id, None);
        assert!(!message.message_id.is_empty());
        host.idle().await;
        assert!(client.list_all().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_follows_a_direct_reply() {
    let host = host(agent_fn(|turn: Turn| async move {
        turn.reply("hello").await?;
        assert!(turn.working("").await.is_err_and(|error| error.is_over()));
        assert!(turn.reply("again").await.is_err_and(|error| error.is_over()));
        Err(AgentError::public("too late to fail"))
    }));
    let client = host.client();
    assert_eq!(client.try_send(say("hi")).await.unwrap().message().text(), "hello");
    host.idle().await;
    assert!(client.list_all().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reply_to_an_existing_task_completes_it_with_the_message() {
    let host = host(Script(vec![Step::Working("hm".into()), Step::Reply("hello".into())]));
    let task = host.client().send(say("hi")).await;
    assert_eq!((task.status.state, status_text(&task).as_str()), (TaskState::Completed, "hello"));
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn an_artifact_without_parts_fails_the_task() {
    let host = host(agent_fn(|turn: Turn| async move { turn.artifact("void").await }));
    let task = host.client().send(say("hi")).await;
    assert_eq!((task.status.state, task.artifacts.len()), (TaskState::Failed, 0));
    host.idle().await;
}

#[tokio::test(start_paused = true)]
async fn status_times_do_not_go_back_when_the_clock_does() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            turn.working("").await?;
            latch.pass().await;
            turn.complete().await
        }
    }));
    host.clock_at(5_000);
    let sent = host.client().send_meanwhile(say("hi"));
    latch.reached().await;
    let begun = host.client().list_all().await[0].status.timestamp;
    host.clock_at(1_000);
    latch.open();
    assert_eq!(soon(sent).await.unwrap().status.timestamp, begun);
}
