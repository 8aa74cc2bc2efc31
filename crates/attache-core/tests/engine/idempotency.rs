//! A send that is repeated with the same key is executed once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_core::{Options, Turn, agent_fn};
use attache_protocol::{ErrorKind, IDEMPOTENCY_EXTENSION, Task, TaskState};

use crate::support::{
    Client, Host, Latch, SlowStore, host_on, host_with, say, settle_down, soon, states, status_text,
};

/// An agent that counts its turns, and waits at the latch in each turn if there is one.
fn counting(latch: Option<&Latch>, change: impl FnOnce(&mut Options)) -> (Host, Arc<AtomicUsize>) {
    let (turns, latch) = (Arc::new(AtomicUsize::new(0)), latch.cloned());
    let counter = turns.clone();
    let agent = agent_fn(move |turn: Turn| {
        let (number, latch) = (counter.fetch_add(1, Ordering::SeqCst) + 1, latch.clone());
        async move {
            turn.working("").await?;
            if let Some(latch) = latch {
                latch.pass().await;
            }
            turn.artifact("answer").text(turn.text()).await?;
            turn.complete_with(format!("turn {number}")).await
        }
    });
    (host_with(agent, |_, options| change(options)), turns)
}

async fn refusal(client: &Client, say: crate::support::Say) -> ErrorKind {
    client.try_send(say).await.unwrap_err().kind()
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_returns_the_task_of_the_first() {
    let (host, turns) = counting(None, |_| {});
    let client = host.client().with_key("k");
    let first = client.send(say("hi")).await;
    assert_eq!(client.send(say("hi")).await, first);
    assert_eq!(client.send(say("hi")).await, first);
    assert_eq!(turns.load(Ordering::SeqCst), 1);
    assert_eq!(client.list_all().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_send_repeated_while_the_first_runs_waits_for_its_result() {
    let latch = Latch::new();
    let (host, turns) = counting(Some(&latch), |_| {});
    let client = host.client().with_key("k");
    let all: Vec<_> = (0..5).map(|_| client.send_meanwhile(say("hi"))).collect();
    latch.reached().await;
    settle_down().await;
    assert!(all.iter().all(|sent| !sent.is_finished()));
    latch.open();
    for sent in all {
        assert_eq!(status_text(&soon(sent).await.unwrap()), "turn 1");
    }
    assert_eq!(turns.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_does_not_wait_returns_the_task_as_it_is() {
    let latch = Latch::new();
    let (host, turns) = counting(Some(&latch), |_| {});
    let client = host.client().with_key("k");
    let first = client.send(say("hi").at_once()).await;
    latch.reached().await;
    let again = client.send(say("hi").at_once()).await;
    assert_eq!((again.id, again.status.state), (first.id, TaskState::Working));
    latch.open();
    host.idle().await;
    assert_eq!(turns.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_stream_replays_the_whole_stream() {
    let latch = Latch::new();
    let (host, turns) = counting(Some(&latch), |_| {});
    let client = host.client().with_key("k");
    let first = client.stream(say("hi")).await;
    latch.reached().await;
    let meanwhile = client.stream(say("hi")).await;
    latch.open();
    let seen = first.rest().await;
    assert_eq!(states(&seen), [TaskState::Submitted, TaskState::Working, TaskState::Completed]);
    assert_eq!(meanwhile.rest().await, seen);
    assert_eq!(client.stream(say("hi")).await.rest().await, seen);
    assert_eq!(turns.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_waited_can_be_repeated_as_a_stream() {
    let (host, turns) = counting(None, |_| {});
    let client = host.client().with_key("k");
    let task = client.send(say("hi")).await;
    let events = client.stream(say("hi")).await.rest().await;
    assert_eq!(events[0].task().id, task.id);
    assert_eq!(states(&events).last(), Some(&TaskState::Completed));
    assert_eq!(turns.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_used_for_another_message_is_refused() {
    let (host, turns) = counting(None, |_| {});
    let client = host.client().with_key("k");
    client.send(say("hi")).await;
    for other in [say("ho"), say("hi").with_id("other"), say("hi").in_context("c"), say("hi").at_once()] {
        assert_eq!(refusal(&client, other.clone()).await, ErrorKind::InvalidParams);
        assert_eq!(client.try_stream(other).await.err().unwrap().kind(), ErrorKind::InvalidParams);
    }
    assert_eq!(turns.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn each_caller_has_its_own_keys() {
    let (host, turns) = counting(None, |_| {});
    let callers = [host.client(), host.user("ann"), host.user("bob"), host.user("ann").in_tenant("t")]
        .map(|c| c.with_key("k"));
    let mut tasks: Vec<Task> = Vec::new();
    for client in &callers {
        tasks.push(client.send(say("hi")).await);
    }
    assert_eq!(turns.load(Ordering::SeqCst), 4);
    for (client, task) in callers.iter().zip(&tasks) {
        assert_eq!(client.send(say("hi")).await, *task);
    }
    assert_eq!(turns.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_key_is_refused() {
    let (host, turns) = counting(None, |_| {});
    for bad in ["", "\n", "a\tb", "ключ", "\u{7f}", &"k".repeat(256)] {
        let client = host.client().with_key(bad);
        let error = client.try_send(say("hi")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{bad:?}");
        assert_eq!(error.field_violations()[0].field, "Idempotency-Key");
    }
    for good in ["k", " ", "~!@#$%^&*()", &"k".repeat(255)] {
        host.client().with_key(good).send(say("hi")).await;
    }
    assert_eq!(turns.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn a_key_may_be_in_the_metadata() {
    let (host, turns) = counting(None, |_| {});
    let client = host.client();
    let keyed = say("hi").with_metadata(IDEMPOTENCY_EXTENSION, "k");
    let first = client.send(keyed.clone()).await;
    assert_eq!(client.send(keyed.clone()).await, first);
    assert_eq!(turns.load(Ordering::SeqCst), 1);

    let mut in_message = say("hi");
    in_message.0.message.metadata = keyed.0.metadata;
    assert_eq!(refusal(&client, in_message).await, ErrorKind::InvalidParams, "the same key, another message");
    assert_eq!(
        refusal(&client, say("hi").with_metadata(IDEMPOTENCY_EXTENSION, 7)).await,
        ErrorKind::InvalidParams
    );
    assert_eq!(
        refusal(&client, say("hi").with_metadata(IDEMPOTENCY_EXTENSION, "")).await,
        ErrorKind::InvalidParams
    );
}

#[tokio::test(start_paused = true)]
async fn the_key_in_the_header_takes_precedence_over_the_metadata() {
    let (host, turns) = counting(None, |_| {});
    let message = say("hi").with_metadata(IDEMPOTENCY_EXTENSION, "inner");
    let first = host.client().with_key("outer").send(message.clone()).await;
    assert_ne!(host.client().send(message.clone()).await.id, first.id);
    assert_eq!(host.client().with_key("outer").send(message).await, first);
    assert_eq!(turns.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn message_ids_are_not_keys_by_default() {
    let (host, turns) = counting(None, |_| {});
    let client = host.client();
    let (one, two) = (client.send(say("hi")).await, client.send(say("hi")).await);
    assert_ne!(one.id, two.id);
    assert_eq!(turns.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn message_ids_are_keys_if_the_options_say_so() {
    let (host, turns) = counting(None, |options| options.message_id_is_idempotency_key = true);
    let client = host.client();
    let first = client.send(say("hi").with_id("m1")).await;
    assert_eq!(client.send(say("hi").with_id("m1")).await, first);
    assert_ne!(client.send(say("hi").with_id("m2")).await.id, first.id);
    assert_eq!(turns.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn concurrent_repeats_on_a_slow_store_run_the_agent_once() {
    let turns = Arc::new(AtomicUsize::new(0));
    let counter = turns.clone();
    let agent = agent_fn(move |turn: Turn| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move { turn.complete().await }
    });
    let host = host_on(SlowStore::shared(), agent, |_, _| {});
    let client = host.client().with_key("k");
    let all: Vec<_> = (0..8).map(|_| client.send_meanwhile(say("hi"))).collect();
    for sent in all {
        assert_eq!(soon(sent).await.unwrap().status.state, TaskState::Completed);
    }
    assert_eq!(turns.load(Ordering::SeqCst), 1);
}

/// A repeat on another thread must never see the key without the task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_on_other_threads_find_the_task_of_the_key() {
    let (host, turns) = counting(None, |_| {});
    for number in 0..2_000 {
        let client = host.client().with_key(&number.to_string());
        let (one, two) = (client.send_meanwhile(say("hi")), client.send_meanwhile(say("hi")));
        assert_eq!(one.await.unwrap().id, two.await.unwrap().id);
    }
    assert_eq!(turns.load(Ordering::SeqCst), 2_000);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_answer_is_added_once() {
    let turns = Arc::new(AtomicUsize::new(0));
    let counter = turns.clone();
    let agent = agent_fn(move |turn: Turn| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            match turn.text().as_str() {
                "a cake" => turn.ask("which one?").await,
                text => turn.complete_with(format!("took {text}")).await,
            }
        }
    });
    let host = host_with(agent, |_, _| {});
    let task = host.client().send(say("a cake")).await;
    let client = host.client().with_key("answer");
    let answer = || say("the big one").to(&task);
    let first = client.send(answer()).await;
    assert_eq!(status_text(&first), "took the big one");
    // The task has ended by now and would reject any other message.
    assert_eq!(client.send(answer()).await, first);
    assert_eq!(turns.load(Ordering::SeqCst), 2);
    assert_eq!(refusal(&client, say("the small one").to(&task)).await, ErrorKind::InvalidParams);
}

#[tokio::test(start_paused = true)]
async fn a_concurrently_repeated_answer_is_added_once() {
    let turns = Arc::new(AtomicUsize::new(0));
    let counter = turns.clone();
    let agent = agent_fn(move |turn: Turn| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            match turn.task() {
                None => turn.ask("which one?").await,
                Some(_) => turn.complete().await,
            }
        }
    });
    let host = host_on(SlowStore::shared(), agent, |_, _| {});
    let task = host.client().send(say("a cake")).await;
    let client = host.client().with_key("answer");
    let all: Vec<_> = (0..5).map(|_| client.send_meanwhile(say("the big one").to(&task))).collect();
    for sent in all {
        assert_eq!(soon(sent).await.unwrap().status.state, TaskState::Completed);
    }
    assert_eq!(turns.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_delivered_again_runs_once() {
    let latch = Latch::new();
    let (host, turns) = counting(Some(&latch), |_| {});
    let client = host.client().with_delivery_key("k");
    let first = client.send_meanwhile(say("hi"));
    latch.reached().await;
    let again = client.send_meanwhile(say("hi"));
    settle_down().await;
    latch.open();
    let first = soon(first).await.unwrap();
    assert_eq!(soon(again).await.unwrap(), first);
    assert_eq!(client.send(say("hi")).await, first, "also when it has ended");
    assert_eq!(turns.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_delivered_again_runs_once_also_before_its_first_event() {
    let (turns, latch) = (Arc::new(AtomicUsize::new(0)), Latch::new());
    let (counter, held) = (turns.clone(), latch.clone());
    let agent = agent_fn(move |turn: Turn| {
        let latch = held.clone();
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            latch.pass().await;
            turn.reply("done").await
        }
    });
    let host = host_with(agent, |_, _| {});
    let client = host.client().with_delivery_key("k");
    let first = client.send_meanwhile(say("hi"));
    latch.reached().await;
    let again = client.send_meanwhile(say("hi"));
    settle_down().await;
    latch.open();
    let first = soon(first).await.unwrap();
    assert_eq!((status_text(&first).as_str(), turns.load(Ordering::SeqCst)), ("done", 1));
    assert_eq!(soon(again).await.unwrap(), first);
}
