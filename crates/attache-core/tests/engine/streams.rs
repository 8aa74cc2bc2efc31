//! Streams: the task first, then all events in order, and nothing after the end.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{Turn, agent_fn};
use attache_protocol::{ErrorKind, Part, StreamResponse, TaskState};
use parking_lot::Mutex;

use crate::support::{
    Event, Host, Latch, Script, Step, history, host, host_with, say, settle_down, soon, states, status_text,
};

/// An agent that asks, and completes when it is answered.
fn asking() -> Host {
    host(agent_fn(|turn: Turn| async move {
        match turn.task() {
            None => turn.ask("which one?").await,
            Some(_) => {
                turn.artifact("cake").text(turn.text()).await?;
                turn.complete().await
            }
        }
    }))
}

/// An agent that sends as many chunks as the message says, when the latch opens.
fn chunks(latch: &Latch) -> Host {
    let latch = latch.clone();
    host(agent_fn(move |turn: Turn| {
        let latch = latch.clone();
        async move {
            turn.working("").await?;
            latch.pass().await;
            let mut stream = turn.artifact("numbers").stream();
            for number in 0..turn.text().parse()? {
                stream.chunk(format!("{number} ")).await?;
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            stream.last("end").await?;
            turn.complete().await
        }
    }))
}

#[tokio::test(start_paused = true)]
async fn a_stream_begins_with_the_task_and_ends_with_its_end() {
    let host = host(Script(vec![
        Step::Working("on it".into()),
        Step::Artifact { name: "a".into(), text: "x".into() },
        Step::Complete,
    ]));
    let events = host.client().stream(say("hi")).await.rest().await;
    assert_eq!(history(events[0].task()), ["hi"]);
    assert_eq!(states(&events), [TaskState::Submitted, TaskState::Working, TaskState::Completed]);
    assert!(matches!(events[2].what, StreamResponse::ArtifactUpdate(_)));
    assert_eq!(
        events.iter().map(|event| event.seq).collect::<Vec<_>>(),
        [Some(1), Some(2), Some(3), Some(4)]
    );
    let task = events[0].task();
    assert!(events.iter().all(|event| match &event.what {
        StreamResponse::Task(other) => other.id == task.id,
        StreamResponse::StatusUpdate(update) =>
            update.task_id == task.id && Some(&update.context_id) == task.context_id.as_ref(),
        StreamResponse::ArtifactUpdate(update) =>
            update.task_id == task.id && Some(&update.context_id) == task.context_id.as_ref(),
        StreamResponse::Message(_) => false,
    }));
}

#[tokio::test(start_paused = true)]
async fn a_direct_reply_is_the_only_event_of_its_stream() {
    let host = host(Script(vec![Step::Yield, Step::Reply("hello".into())]));
    let events = host.client().stream(say("hi")).await.rest().await;
    let [Event { seq: None, what: StreamResponse::Message(message) }] = events.as_slice() else {
        panic!("expected one message, got {events:?}");
    };
    assert_eq!(message.text(), "hello");
    assert!(host.client().list_all().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_comes_after_the_terminal_event() {
    let host = host(agent_fn(|turn: Turn| async move {
        turn.reject("no").await?;
        let _ = turn.artifact("late").text("x").await;
        let _ = turn.complete().await;
        Ok(())
    }));
    let events = host.client().stream(say("hi")).await.rest().await;
    assert_eq!(states(&events), [TaskState::Submitted, TaskState::Rejected]);
    assert_eq!(events.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_an_answer_begins_with_the_task_at_work() {
    let host = asking();
    let client = host.client();
    let task = client.send(say("a cake")).await;
    let events = client.stream(say("the big one").to(&task)).await.rest().await;
    assert_eq!(states(&events), [TaskState::Working, TaskState::Completed]);
    assert_eq!(history(events[0].task()), ["a cake", "which one?", "the big one"]);
    assert_eq!(events.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_begins_with_the_task_as_it_is() {
    let latch = Latch::new();
    let host = chunks(&latch);
    let client = host.client();
    let task = client.send(say("3").at_once()).await;
    latch.reached().await;
    let mut events = client.subscribe(&task.id).await;
    let first = events.next().await.unwrap();
    assert_eq!(*first.task(), client.get(&task.id).await);
    latch.open();
    let rest = events.rest().await;
    assert_eq!(rest[0].seq, first.seq.map(|seq| seq + 1));
    assert_eq!(states(&rest), [TaskState::Completed]);
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_send_ends_when_the_agent_asks() {
    let host = asking();
    let events = host.client().stream(say("a cake")).await.rest().await;
    assert_eq!(states(&events), [TaskState::Submitted, TaskState::InputRequired]);
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_send_stays_open_when_the_agent_asks_if_the_options_say_so() {
    let agent = Script(vec![Step::Ask("which one?".into())]);
    let host = host_with(agent, |_, options| options.close_stream_on_input_required = false);
    let client = host.client();
    let mut events = client.stream(say("a cake")).await;
    let task = events.next().await.unwrap().task().clone();
    events.until(TaskState::InputRequired).await;
    assert_eq!(events.so_far().await, []);
    client.cancel(&task.id).await.unwrap();
    assert_eq!(states(&events.rest().await), [TaskState::Canceled]);
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_send_stays_open_when_the_agent_requires_credentials() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            turn.require_auth("who?").await?;
            latch.pass().await;
            turn.complete().await
        }
    }));
    let mut events = host.client().stream(say("hi")).await;
    events.until(TaskState::AuthRequired).await;
    assert_eq!(events.so_far().await, []);
    latch.open();
    assert_eq!(states(&events.rest().await), [TaskState::Completed]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_stays_open_across_turns() {
    let host = asking();
    let client = host.client();
    let task = client.send(say("a cake")).await;
    let mut events = client.subscribe(&task.id).await;
    assert_eq!(status_text(events.next().await.unwrap().task()), "which one?");
    assert_eq!(events.so_far().await, []);
    client.send(say("the big one").to(&task)).await;
    assert_eq!(states(&events.rest().await), [TaskState::Working, TaskState::Completed]);
}

#[tokio::test(start_paused = true)]
async fn the_stream_of_a_queued_message_does_not_end_with_an_earlier_question() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            latch.pass().await;
            turn.ask(format!("re: {}", turn.text())).await
        }
    }));
    let client = host.client();
    let task = client.send(say("one").at_once()).await;
    latch.reached().await;
    let events = client.stream(say("two").to(&task)).await;
    latch.open();
    latch.reached().await;
    latch.open();
    let events = events.rest().await;
    let Some(StreamResponse::StatusUpdate(last)) = events.last().map(|event| &event.what) else {
        panic!("expected a question last, got {events:?}");
    };
    assert_eq!(last.status.message.as_ref().unwrap().text(), "re: two");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_has_ended_cannot_be_subscribed_to() {
    for end in [Step::Complete, Step::Fail("no".into()), Step::Reject("no".into())] {
        let host = host(Script(vec![end]));
        let client = host.client();
        let task = client.send(say("hi")).await;
        let error = client.try_subscribe(&task.id, None).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    }
}

#[tokio::test(start_paused = true)]
async fn all_readers_see_the_same_events_in_the_same_order() {
    let latch = Latch::new();
    let host = chunks(&latch);
    let client = host.client();
    let mut own = client.stream(say("50")).await;
    let task = own.next().await.unwrap().task().clone();
    own.until(TaskState::Working).await;
    let mut readers = Vec::new();
    for _ in 0..100 {
        let mut events = client.subscribe(&task.id).await;
        assert_eq!(events.next().await.unwrap().state(), Some(TaskState::Working));
        readers.push(tokio::spawn(events.rest()));
    }
    // A reader that disconnects has no effect on the others.
    readers.pop().unwrap().abort();
    latch.open();
    let seen = own.rest().await;
    assert_eq!(seen.len(), 52);
    for reader in readers {
        assert_eq!(soon(reader).await.unwrap(), seen);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_reading_slows_no_other_reader_and_misses_nothing() {
    let latch = Latch::new();
    let host = chunks(&latch);
    let client = host.client();
    let task = client.send(say("2000").at_once()).await;
    latch.reached().await;
    let (lazy, eager) = (client.subscribe(&task.id).await, client.subscribe(&task.id).await);
    latch.open();
    let begun = tokio::time::Instant::now();
    let seen = eager.rest().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    host.idle().await;
    assert_eq!(seen.len(), 2003);
    assert_eq!(lazy.rest().await, seen);
}

#[tokio::test(start_paused = true)]
async fn the_task_finishes_when_all_readers_are_gone() {
    let latch = Latch::new();
    let host = chunks(&latch);
    let client = host.client();
    let mut events = client.stream(say("5")).await;
    let task = events.next().await.unwrap().task().clone();
    drop((events, client.subscribe(&task.id).await));
    latch.open();
    host.idle().await;
    assert_eq!(client.get(&task.id).await.artifact("numbers").unwrap().text(), "0 1 2 3 4 end");
}

#[tokio::test(start_paused = true)]
async fn readers_see_events_as_they_are_emitted() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            for number in 0..3 {
                turn.working(format!("step {number}")).await?;
                latch.pass().await;
            }
            Ok(())
        }
    }));
    let mut events = host.client().stream(say("hi")).await;
    for number in 0..3 {
        latch.reached().await;
        let said = events.until(TaskState::Working).await;
        let StreamResponse::StatusUpdate(said) = said.what else { panic!("expected a status, got {said:?}") };
        assert_eq!(said.status.message.unwrap().text(), format!("step {number}"));
        latch.open();
    }
    assert_eq!(states(&events.rest().await), [TaskState::Completed]);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_an_agent_that_never_pauses_are_in_order() {
    let said = Arc::new(Mutex::new(0));
    let counter = said.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let counter = counter.clone();
        async move {
            let mut stream = turn.artifact("flood").stream();
            for number in 0..1_000 {
                stream.chunk(Part::text(format!("{number},"))).await?;
                *counter.lock() += 1;
            }
            Ok(())
        }
    }));
    let client = host.client();
    let mut events = client.stream(say("hi")).await;
    let task = events.next().await.unwrap().task().clone();
    events.next().await.unwrap();
    let rest = events.rest().await;
    assert_eq!(rest.len(), 1_000);
    settle_down().await;
    let text: String = (0..1_000).map(|number| format!("{number},")).collect();
    assert_eq!(client.get(&task.id).await.artifact("flood").unwrap().text(), text);
}
