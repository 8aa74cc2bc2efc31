//! The number of concurrent turns of a caller is limited. A message beyond the limit waits, and is rejected after a while without
//! leaving anything behind.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{Agent, Quota, Turn, agent_fn};
use attache_protocol::{ErrorKind, TaskState};

use crate::support::{Client, Host, Latch, history, host, say, settle_down};

const MAX_WAIT: Duration = Duration::from_secs(3);

/// A caller with at most `limit` concurrent turns.
fn limited(host: &Host, name: &str, limit: usize) -> Client {
    let mut client = host.user(name);
    client.caller.turns = Some(Quota { limiter: Arc::default(), limit, max_wait: MAX_WAIT });
    client
}

/// An agent that asks or fails as the message says, and otherwise works until the latch opens.
fn worker(latch: &Latch) -> impl Agent {
    let latch = latch.clone();
    agent_fn(move |turn: Turn| {
        let latch = latch.clone();
        async move {
            match turn.text().as_str() {
                "ask" => return turn.ask("what exactly?").await,
                "panic" => panic!("as it was told"),
                "fail" => return Err(std::io::Error::other("no").into()),
                _ => {}
            }
            turn.working("").await?;
            latch.pass().await;
            turn.complete().await
        }
    })
}

fn is_free(client: &Client) -> bool {
    client.caller.turns.as_ref().is_some_and(|quota| quota.limiter.is_idle())
}

#[tokio::test(start_paused = true)]
async fn one_turn_too_many_is_refused_after_a_while_and_leaves_no_task() {
    let latch = Latch::new();
    let host = host(worker(&latch));
    let alice = limited(&host, "alice", 1);
    let first = alice.send(say("work").at_once()).await;
    let began = tokio::time::Instant::now();
    for refused in [
        alice.try_send(say("work")).await,
        alice.try_send(say("work").at_once()).await,
        alice.clone().with_key("k").try_send(say("work")).await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.retry_after().is_some()), (ErrorKind::ResourceExhausted, true));
    }
    let streamed = alice.try_stream(say("work")).await;
    assert_eq!(streamed.err().unwrap().kind(), ErrorKind::ResourceExhausted);
    assert_eq!(began.elapsed(), 4 * MAX_WAIT);
    assert_eq!(alice.list_all().await.len(), 1);

    latch.open();
    host.idle().await;
    assert_eq!(alice.get(&first.id).await.status.state, TaskState::Completed);
    assert!(is_free(&alice));
    latch.open();
    let retried = alice.clone().with_key("k").send(say("work")).await;
    assert_eq!(retried.status.state, TaskState::Completed, "a refused key was not used up");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_message_gets_the_permit_that_is_released() {
    let latch = Latch::new();
    let host = host(worker(&latch));
    let alice = limited(&host, "alice", 1);
    alice.send(say("work").at_once()).await;
    let waiting = alice.send_meanwhile(say("work"));
    settle_down().await;
    assert_eq!(host.service.running_turns(), 1);
    latch.open();
    latch.open();
    assert_eq!(waiting.await.unwrap().status.state, TaskState::Completed);
    assert!(is_free(&alice));
}

#[tokio::test(start_paused = true)]
async fn a_caller_at_its_limit_does_not_delay_another() {
    let latch = Latch::new();
    let host = host(worker(&latch));
    let (alice, bob) = (limited(&host, "alice", 1), limited(&host, "bob", 1));
    alice.send(say("work").at_once()).await;
    let waiting = alice.send_meanwhile(say("work"));
    settle_down().await;
    let began = tokio::time::Instant::now();
    assert_eq!(bob.send(say("ask")).await.status.state, TaskState::InputRequired);
    assert_eq!(began.elapsed(), Duration::ZERO);
    latch.open();
    latch.open();
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_to_a_working_task_needs_no_second_permit() {
    let latch = Latch::new();
    let host = host(worker(&latch));
    let alice = limited(&host, "alice", 1);
    let task = alice.send(say("work").at_once()).await;
    let more = alice.send_meanwhile(say("more").to(&task));
    settle_down().await;
    assert_eq!(history(&alice.get(&task.id).await), ["work", "more"]);
    latch.open();
    more.await.unwrap();
    host.idle().await;
    assert!(is_free(&alice));
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_permit_is_not_added() {
    let latch = Latch::new();
    let host = host(worker(&latch));
    let alice = limited(&host, "alice", 1);
    let asking = alice.send(say("ask")).await;
    assert!(is_free(&alice), "a question needs no place while it waits for its answer");
    alice.send(say("work").at_once()).await;
    let refused = alice.try_send(say("this").to(&asking)).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ResourceExhausted);
    let now = alice.get(&asking.id).await;
    assert_eq!((now.status.state, history(&now)), (TaskState::InputRequired, vec!["ask".to_owned()]));
    latch.open();
    latch.open();
    host.idle().await;
    assert_eq!(alice.send(say("this").to(&asking)).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_turn_releases_its_permit_however_it_ends() {
    let latch = Latch::new();
    let host = host(worker(&latch));
    let alice = limited(&host, "alice", 1);
    for text in ["fail", "panic", "ask"] {
        alice.send(say(text)).await;
        host.idle().await;
        assert!(is_free(&alice), "{text}");
    }
    let task = alice.send(say("work").at_once()).await;
    alice.cancel(&task.id).await.unwrap();
    host.idle().await;
    assert!(is_free(&alice), "canceled");
}
