//! The rules of iac-code where they differ from the specification.

use std::collections::HashMap;

use attache_core::{
    Agent, AgentResult, BoxAgent, Busy, ContextHold, Conversation, EndState, PeerRules, Turn, agent_fn,
    conversational,
};
use attache_protocol::{ErrorKind, TaskId, TaskState};
use parking_lot::Mutex;

use crate::support::{Host, Latch, host_with, say, settle_down, status_text};

/// An agent that waits at `wait`.
fn agent(latch: &Latch) -> BoxAgent {
    let latch = latch.clone();
    let agent = agent_fn(move |turn: Turn| {
        let latch = latch.clone();
        async move {
            if turn.text() == "wait" {
                turn.working("on it").await?;
                latch.pass().await;
            }
            turn.complete().await
        }
    });
    let rules = Conversation::default().with(|rules| {
        (rules.contexts.busy, rules.contexts.end_state) = (Busy::Reject, EndState::InputRequired);
    });
    conversational(agent, rules).boxed()
}

fn compatible() -> (Host, Latch) {
    let latch = Latch::new();
    let host = host_with(agent(&latch), |_, options| options.peer = PeerRules::IacCode);
    (host, latch)
}

#[tokio::test(start_paused = true)]
async fn a_concurrent_message_fails_its_own_task_only() {
    let (host, latch) = compatible();
    let client = host.client();
    let running = client.send_meanwhile(say("wait").in_context("c"));
    latch.reached().await;
    let failed = client.send(say("second").in_context("c")).await;
    assert_eq!(failed.status.state, TaskState::Failed);
    assert_eq!(status_text(&failed), "Task is already working.");
    settle_down().await;
    latch.open();
    assert_eq!(running.await.unwrap().status.state, TaskState::InputRequired);
}

#[tokio::test(start_paused = true)]
async fn an_empty_message_fails_with_the_documented_words() {
    let (host, _) = compatible();
    let failed = host.client().send(say("")).await;
    assert_eq!(failed.status.state, TaskState::Failed);
    assert_eq!(status_text(&failed), "A2A server currently accepts text input only.");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_run_is_neither_canceled_nor_followed() {
    let (host, latch) = compatible();
    let client = host.client();
    let done = client.send(say("hello").in_context("c")).await;
    assert_eq!(done.status.state, TaskState::InputRequired);
    assert_eq!(client.cancel(&done.id).await.unwrap_err().kind(), ErrorKind::TaskNotCancelable);
    let refused = client.try_subscribe(&done.id, None).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::TaskNotFound);
    assert_eq!(refused.message(), format!("Task {} is not active", done.id));
    // While it runs, both work, and the stream ends with the turn.
    let running = client.send(say("wait").in_context("d").at_once()).await;
    latch.reached().await;
    let stream = client.subscribe(&running.id).await;
    latch.open();
    assert_eq!(stream.rest().await.last().unwrap().state(), Some(TaskState::InputRequired));
    let running = client.send(say("wait").in_context("d").at_once()).await;
    latch.reached().await;
    assert_eq!(client.cancel(&running.id).await.unwrap().status.state, TaskState::Canceled);
    assert_eq!(client.cancel(&running.id).await.unwrap_err().kind(), ErrorKind::TaskNotCancelable);
}

/// An agent that asks in the middle of its work, and keeps the work for the answer.
#[derive(Default)]
struct Asking(Mutex<HashMap<TaskId, Option<ContextHold>>>);

impl Agent for Asking {
    async fn run(&self, turn: Turn) -> AgentResult {
        if turn.text() == "ask" {
            self.0.lock().insert(turn.task_id().clone(), turn.context().hold());
            return turn.ask("may I?").await;
        }
        turn.complete().await
    }

    fn task_ended(&self, task: &TaskId) {
        let ended = self.0.lock().remove(task);
        drop(ended);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_asks_in_the_middle_of_its_work_can_be_canceled() {
    let rules = Conversation::default().with(|rules| rules.contexts.busy = Busy::Reject);
    let host = host_with(conversational(Asking::default(), rules), |_, options| {
        options.peer = PeerRules::IacCode;
    });
    let client = host.client();
    let asked = client.send(say("ask").in_context("c")).await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let other = client.send(say("hello").in_context("c")).await;
    assert_eq!(status_text(&other), "Task is already working.");
    assert_eq!(client.cancel(&asked.id).await.unwrap().status.state, TaskState::Canceled);
    let other = client.send(say("hello").in_context("c")).await;
    assert_eq!(other.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn ids_have_the_documented_form() {
    let (host, _) = compatible();
    let client = host.client();
    let long = "x".repeat(128);
    assert!(client.try_send(say("a").in_context("Az09_.:-")).await.is_ok());
    assert!(client.try_send(say("a").in_context(&long)).await.is_ok());
    for bad in ["a b", "ä", "a/b", "", &format!("{long}x")] {
        let error = client.try_send(say("a").in_context(bad)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{bad}");
    }
    assert_eq!(client.cancel(&"a b".into()).await.unwrap_err().kind(), ErrorKind::InvalidParams);
}
