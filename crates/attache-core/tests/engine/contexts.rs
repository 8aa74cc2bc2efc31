//! Contexts: one turn at a time, kept and put away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use attache_core::{
    Agent, AgentResult, BoxAgent, Busy, ContextRecords, Conversation, EndState, MemoryStore, PeerRules,
    Quota, Turn, agent_fn, conversational,
};
use attache_protocol::{ErrorKind, TaskState};

use crate::support::{Host, Latch, Say, history, host, host_on, say, settle_down, status_text};

/// An agent that says how many messages of the context it has got in this life of the context, and in all. At `wait` it waits.
fn counter(latch: &Latch, change: impl FnOnce(&mut Conversation)) -> BoxAgent {
    let latch = latch.clone();
    let agent = agent_fn(move |turn: Turn| {
        let latch = latch.clone();
        async move { count(&turn, &latch).await }
    });
    conversational(agent, Conversation::default().with(change)).boxed()
}

async fn count(turn: &Turn, latch: &Latch) -> AgentResult {
    let context = turn.context();
    let seen = context.runtime::<AtomicU32>("counter").unwrap_or_default();
    context.keep("counter", seen.clone());
    let live = seen.fetch_add(1, Ordering::Relaxed) + 1;
    let all = context.state::<u32>("counter").await?.unwrap_or_default() + 1;
    context.set_state("counter", &all).await?;
    if turn.text() == "wait" {
        latch.pass().await;
    }
    if turn.text() == "ask" {
        return turn.ask("what?").await;
    }
    turn.artifact("count").text(format!("{}: {live} of {all}", turn.text())).await?;
    turn.complete().await
}

fn answer(task: &attache_protocol::Task) -> String {
    task.artifacts.iter().map(|artifact| artifact.text()).collect()
}

fn counting(change: impl FnOnce(&mut Conversation)) -> (Host, Latch) {
    let latch = Latch::new();
    (host(counter(&latch, change)), latch)
}

fn c(text: &str) -> Say {
    say(text).in_context("c")
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_context_run_in_order_and_each_caller_gets_its_own_result() {
    let (host, latch) = counting(|_| {});
    let client = host.client();
    let first = client.send_meanwhile(c("wait"));
    latch.reached().await;
    let second = client.send_meanwhile(c("second"));
    settle_down().await;
    // The waiting message has a task that can be read.
    let waiting = client.list_all().await.into_iter().find(|task| history(task) == ["second"]);
    assert_eq!(waiting.map(|task| task.status.state), Some(TaskState::Submitted));
    let third = client.send_meanwhile(c("third"));
    // Another context does not wait.
    assert_eq!(answer(&client.send(say("other").in_context("d")).await), "other: 1 of 1");
    assert!(!second.is_finished() && !third.is_finished());
    latch.open();
    assert_eq!(answer(&first.await.unwrap()), "wait: 1 of 1");
    assert_eq!(answer(&second.await.unwrap()), "second: 2 of 2");
    assert_eq!(answer(&third.await.unwrap()), "third: 3 of 3");
}

#[tokio::test(start_paused = true)]
async fn a_busy_context_refuses_and_the_running_turn_goes_on() {
    let (host, latch) = counting(|rules| rules.contexts.busy = Busy::Reject);
    let client = host.client();
    let first = client.send_meanwhile(c("wait"));
    latch.reached().await;
    let error = client.try_send(c("second")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    assert!(error.message().starts_with("Task is already working."), "{error:?}");
    let tasks = client.list_all().await;
    assert_eq!(tasks.len(), 0, "the first turn has written nothing yet, and the second one has no task");
    latch.open();
    assert_eq!(answer(&first.await.unwrap()), "wait: 1 of 1");
}

#[tokio::test(start_paused = true)]
async fn a_busy_task_refuses_further_messages_and_is_not_changed() {
    let (host, latch) = counting(|rules| rules.contexts.busy = Busy::Reject);
    let client = host.client();
    let asked = client.send(c("ask")).await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let answering = client.send_meanwhile(say("wait").to(&asked));
    latch.reached().await;
    let before = client.get(&asked.id).await;
    assert!(client.try_send(say("again").to(&asked)).await.is_err());
    assert_eq!(client.get(&asked.id).await, before);
    latch.open();
    assert_eq!(answering.await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn the_next_message_may_follow_a_result_at_once() {
    let (host, _) = counting(|rules| rules.contexts.busy = Busy::Reject);
    for number in 1..=100 {
        assert_eq!(answer(&host.client().send(c("x")).await), format!("x: {number} of {number}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_full_refuses() {
    let (host, latch) = counting(|rules| rules.contexts.queue_limit = 1);
    let client = host.client();
    let first = client.send_meanwhile(c("wait"));
    latch.reached().await;
    let second = client.send_meanwhile(c("second"));
    settle_down().await;
    let error = client.try_send(c("third")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert!(error.retry_after().is_some());
    latch.open();
    assert_eq!(answer(&first.await.unwrap()), "wait: 1 of 1");
    assert_eq!(answer(&second.await.unwrap()), "second: 2 of 2");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_canceled_in_the_queue_never_runs() {
    let (host, latch) = counting(|_| {});
    let client = host.client();
    let first = client.send_meanwhile(c("wait"));
    latch.reached().await;
    let second = client.send(c("second").at_once()).await;
    assert_eq!(client.cancel(&second.id).await.unwrap().status.state, TaskState::Canceled);
    latch.open();
    first.await.unwrap();
    assert_eq!(answer(&client.send(c("third")).await), "third: 2 of 2");
}

#[tokio::test(start_paused = true)]
async fn the_time_in_a_queue_does_not_count_as_the_time_of_a_turn() {
    let latch = Latch::new();
    let host = crate::support::host_with(counter(&latch, |_| {}), |_, options| {
        options.turn_timeout = Duration::from_secs(60);
    });
    let client = host.client();
    let first = client.send_meanwhile(c("wait"));
    latch.reached().await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    let second = client.send_meanwhile(c("wait"));
    settle_down().await;
    // The first turn takes too long. Then the second one has its own time.
    assert_eq!(first.await.unwrap().status.state, TaskState::Failed);
    latch.reached().await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    latch.open();
    assert_eq!(second.await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_idle_context_is_put_away_and_comes_back_with_its_state() {
    let (host, _) = counting(|rules| rules.contexts.idle = Duration::from_secs(60));
    let client = host.client();
    assert_eq!(answer(&client.send(c("a")).await), "a: 1 of 1");
    tokio::time::sleep(Duration::from_millis(59_999)).await;
    assert_eq!(answer(&client.send(c("b")).await), "b: 2 of 2");
    tokio::time::sleep(Duration::from_millis(60_001)).await;
    assert_eq!(answer(&client.send(c("c")).await), "c: 1 of 3");
}

#[tokio::test(start_paused = true)]
async fn a_restart_loses_no_conversation() {
    let (store, latch) = (Arc::new(MemoryStore::new()), Latch::new());
    let before = host_on(store.clone(), counter(&latch, |_| {}), |_, _| {});
    before.client().send(c("a")).await;
    drop(before);
    let after = host_on(store, counter(&latch, |_| {}), |_, _| {});
    assert_eq!(answer(&after.client().send(c("b")).await), "b: 1 of 2");
}

#[tokio::test(start_paused = true)]
async fn a_context_belongs_to_its_caller_and_tenant() {
    let (host, _) = counting(|_| {});
    let (alice, bob) = (host.user("alice"), host.user("bob"));
    assert_eq!(answer(&alice.send(c("a")).await), "a: 1 of 1");
    assert_eq!(answer(&bob.send(c("a")).await), "a: 1 of 1");
    assert_eq!(answer(&alice.clone().in_tenant("t").send(c("a")).await), "a: 1 of 1");
    assert_eq!(answer(&alice.send(c("b")).await), "b: 2 of 2");
    let mut records = ContextRecords::new(host.store.clone()).list().await.unwrap();
    records.sort_by_key(|record| (record.caller.clone(), record.tenant.clone()));
    let shown: Vec<_> = records
        .iter()
        .map(|record| (record.caller.as_deref(), record.tenant.as_deref(), record.turns))
        .collect();
    assert_eq!(shown, [(Some("alice"), None, 2), (Some("alice"), Some("t"), 1), (Some("bob"), None, 1)]);
}

#[tokio::test(start_paused = true)]
async fn the_longest_idle_context_makes_room_and_if_all_are_in_use_there_is_an_error() {
    let (host, latch) = counting(|rules| rules.contexts.max = 2);
    let client = host.client();
    client.send(say("x").in_context("a")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.send(say("x").in_context("b")).await;
    client.send(say("x").in_context("c")).await;
    assert_eq!(answer(&client.send(say("x").in_context("b")).await), "x: 2 of 2");
    assert_eq!(answer(&client.send(say("x").in_context("a")).await), "x: 1 of 2");
    let one = client.send_meanwhile(say("wait").in_context("d"));
    latch.reached().await;
    let two = client.send_meanwhile(say("wait").in_context("e"));
    latch.reached().await;
    let error = client.try_send(say("x").in_context("f")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("all 2 contexts"), "{error:?}");
    latch.open();
    latch.open();
    one.await.unwrap();
    two.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_refused_puts_no_context_away() {
    let (host, _) = counting(|rules| {
        rules.contexts.max = 1;
        rules.input.max_text = 10;
    });
    let (alice, mallory) = (host.user("alice"), host.user("mallory"));
    assert_eq!(answer(&alice.send(c("a")).await), "a: 1 of 1");
    let file = attache_protocol::Part::raw("x".repeat(11)).media_type("text/plain");
    let mut refused = crate::support::say_part(file);
    assert!(mallory.try_send(refused.clone()).await.is_err());
    refused = say("x");
    let metadata = serde_json::json!({"attache": {"workspace": "/etc"}});
    refused.0.message.metadata = Some(attache_protocol::JsonObject::new(&metadata).unwrap());
    assert!(mallory.try_send(refused).await.is_err());
    assert_eq!(answer(&alice.send(c("b")).await), "b: 2 of 2");
    assert_eq!(answer(&mallory.send(say("x")).await), "x: 1 of 1");
    assert_eq!(answer(&alice.send(c("c")).await), "c: 1 of 3");
}

#[tokio::test(start_paused = true)]
async fn a_caller_whose_questions_hold_half_of_the_contexts_begins_no_other() {
    let agent = agent_fn(|turn: Turn| async move {
        let context = turn.context();
        context.keep("held", Arc::new(Held::new(context.hold())));
        turn.ask("go on?").await
    });
    let rules = Conversation::default().with(|rules| rules.contexts.max = 4);
    let host = host(conversational(agent, rules));
    let (alice, bob) = (host.user("alice"), host.user("bob"));
    let first = alice.send(say("x")).await;
    alice.send(say("x")).await;
    let error = alice.try_send(say("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert!(error.message().starts_with("2 of your tasks wait for an answer"), "{error:?}");
    assert!(error.retry_after().is_some());
    // Its own contexts go on, and others have the rest.
    assert!(alice.try_send(say("y").with_id("m2").to(&first)).await.is_ok());
    assert!(bob.try_send(say("x")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_turn_can_end_with_a_task_that_waits_for_the_follow_up() {
    let (host, _) = counting(|rules| rules.contexts.end_state = EndState::InputRequired);
    let client = host.client();
    let first = client.send(c("a")).await;
    assert_eq!((first.status.state, answer(&first)), (TaskState::InputRequired, "a: 1 of 1".to_owned()));
    let second = client.send(say("b").to(&first)).await;
    assert_eq!((second.id, second.status.state), (first.id, TaskState::InputRequired));
}

type Held = parking_lot::Mutex<Option<attache_core::ContextHold>>;

/// An agent that asks at `begin`, and holds its context until the answer.
fn asking() -> impl Agent {
    let agent = agent_fn(|turn: Turn| async move {
        let context = turn.context();
        if turn.text() == "begin" {
            context.keep("held", Arc::new(Held::new(context.hold())));
            return turn.ask("go on?").await;
        }
        let held = context.runtime::<Held>("held").and_then(|held| held.lock().take());
        turn.artifact("a").text(format!("{} {}", turn.text(), held.is_some())).await
    });
    conversational(agent, Conversation::default())
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_task_needs_no_permit_of_turns_that_wait_for_it() {
    let host = host(asking());
    let mut client = host.user("alice");
    let quota = Quota { limiter: Arc::default(), limit: 1, max_wait: Duration::from_secs(3) };
    client.caller.turns = Some(quota);
    let begun = client.send(c("begin")).await;
    let other = client.send(c("other").at_once()).await;
    assert_eq!(answer(&client.send(say("answer").to(&begun)).await), "answer true");
    host.idle().await;
    assert_eq!(answer(&client.get(&other.id).await), "other false");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_holds_its_context_goes_before_others() {
    let host = host(asking());
    let client = host.client();
    let begun = client.send(c("begin")).await;
    let other = client.send_meanwhile(c("other"));
    settle_down().await;
    assert!(!other.is_finished());
    assert_eq!(answer(&client.send(say("answer").to(&begun)).await), "answer true");
    assert_eq!(answer(&other.await.unwrap()), "other false");
}

#[tokio::test(start_paused = true)]
async fn a_closed_context_takes_no_more_messages() {
    let (host, _) = counting(|_| {});
    let client = host.user("alice");
    client.send(c("a")).await;
    let records = ContextRecords::new(host.store.clone());
    let [record] = &records.list().await.unwrap()[..] else { panic!("there is one context") };
    let now = attache_protocol::Timestamp::from_millis(0);
    assert!(records.close(&record.owner(), &record.context_id, now).await.unwrap().is_some());
    assert!(records.close(&record.owner(), &record.context_id, now).await.unwrap().is_none());
    let error = client.try_send(c("b")).await.unwrap_err();
    assert!(error.message().contains("was closed"), "{error:?}");
    assert_eq!(answer(&client.send(say("b").in_context("new")).await), "b: 1 of 1");
}

#[tokio::test(start_paused = true)]
async fn an_empty_message_fails_with_a_clear_text() {
    let (host, _) = counting(|_| {});
    let failed = host.client().send(c(" ")).await;
    assert_eq!(failed.status.state, TaskState::Failed);
    assert!(status_text(&failed).starts_with("the message is empty"), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_says_that_the_task_waits_for_input() {
    let (host, _) = counting(|_| {});
    let client = host.client();
    let asked = client.send(c("ask")).await;
    let mut stream = client.subscribe(&asked.id).await;
    let first = stream.next().await.unwrap();
    assert_eq!(first.state(), Some(TaskState::InputRequired));
    assert_eq!(status_text(first.task()), "what?");
    // A reader that has seen everything is told so too, instead of nothing.
    let mut resumed = client.try_subscribe(&asked.id, first.seq).await.unwrap();
    assert_eq!(resumed.next().await.unwrap().state(), Some(TaskState::InputRequired));
    client.send(say("b").to(&asked)).await;
    assert_eq!(resumed.rest().await.last().unwrap().state(), Some(TaskState::Completed));
}

/// An agent that says what it knows of the conversation. At `wait` it waits.
fn historian(latch: &Latch) -> BoxAgent {
    let latch = latch.clone();
    let agent = agent_fn(move |turn: Turn| {
        let latch = latch.clone();
        async move {
            if turn.text() == "wait" {
                turn.working("").await?;
                latch.pass().await;
            }
            let earlier = turn.earlier_tasks(2).await?;
            let said: Vec<_> = earlier.iter().flat_map(history).collect();
            turn.artifact("known").text(said.join(" ")).await
        }
    });
    let rules = Conversation::default().with(|rules| rules.contexts.busy = Busy::Reject);
    conversational(agent, rules).boxed()
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_refused_is_not_part_of_the_conversation() {
    let (latch, store) = (Latch::new(), Arc::new(MemoryStore::new()));
    let server = || host_on(store.clone(), historian(&latch), |_, options| options.peer = PeerRules::IacCode);
    let host = server();
    let client = host.client();
    assert_eq!(answer(&client.send(c("first")).await), "");
    let running = client.send_meanwhile(c("wait"));
    latch.reached().await;
    for number in 0..8 {
        // Also if the task is created before its turn begins.
        let client =
            if number % 2 == 0 { client.clone() } else { client.clone().with_key(&number.to_string()) };
        let refused = client.send(c("refused")).await;
        assert_eq!(status_text(&refused), "Task is already working.");
        assert_eq!(refused.status.state, TaskState::Failed);
    }
    latch.open();
    running.await.unwrap();
    assert_eq!(client.send(c(" ")).await.status.state, TaskState::Failed);
    assert_eq!(answer(&client.send(c("next")).await), "first wait");
    assert_eq!(answer(&server().client().send(c("later")).await), "wait next");
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_permit_puts_no_context_away_and_a_busy_context_refuses_at_once() {
    let (host, latch) = counting(|rules| {
        rules.contexts.max = 2;
        rules.contexts.busy = Busy::Reject;
    });
    let (alice, mut mallory) = (host.user("alice"), host.user("mallory"));
    let quota = Quota { limiter: Arc::default(), limit: 1, max_wait: Duration::from_secs(1) };
    mallory.caller.turns = Some(quota);
    assert_eq!(answer(&alice.send(c("a")).await), "a: 1 of 1");
    let running = mallory.send_meanwhile(say("wait").in_context("m"));
    latch.reached().await;
    let began = tokio::time::Instant::now();
    let error = mallory.try_send(say("x").in_context("m")).await.unwrap_err();
    assert!(error.message().starts_with("Task is already working."), "{error:?}");
    assert_eq!(began.elapsed(), Duration::ZERO);
    let error = mallory.try_send(say("x")).await.unwrap_err();
    assert!(error.message().contains("turns at once"), "{error:?}");
    assert_eq!(answer(&alice.send(c("b")).await), "b: 2 of 2", "the context still lives");
    latch.open();
    running.await.unwrap();
}
