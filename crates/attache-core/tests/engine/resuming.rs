//! A resumed stream continues exactly after the last event, and folding a stream gives the task.

use attache_core::{Turn, agent_fn};
use attache_protocol::{ErrorKind, StreamResponse, Task, TaskState};
use proptest::prelude::*;

use crate::support::{
    Event, Host, Latch, Script, Step, host, host_with, in_virtual_time, model, say, scripts, settle_down,
    soon,
};

/// The task that a reader folds from the events of a stream.
fn folded(events: &[Event]) -> Task {
    let mut task = events[0].task().clone();
    for event in &events[1..] {
        match &event.what {
            StreamResponse::Task(whole) => task = whole.clone(),
            StreamResponse::StatusUpdate(update) => model::status(&mut task, update),
            StreamResponse::ArtifactUpdate(update) => model::artifact(&mut task, update),
            StreamResponse::Message(message) => panic!("a message in the stream of a task: {message:?}"),
        }
    }
    task
}

fn patient(script: Script) -> Host {
    host_with(script, |_, options| options.close_stream_on_input_required = false)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_read_task_equals_the_fold_of_its_stream(script in scripts()) {
        in_virtual_time(async {
            let host = host(script);
            let client = host.client();
            let mut events = client.stream(say("hi")).await;
            host.idle().await;
            let task = folded(&events.so_far().await);
            prop_assert_eq!(client.get(&task.id).await, task);
            Ok(())
        })?;
    }

    #[test]
    fn a_subscriber_that_joins_at_any_moment_has_neither_gap_nor_repeat(script in scripts(), patience in 0usize..40) {
        in_virtual_time(async {
            let host = host(script);
            let client = host.client();
            let task = client.send(say("hi").at_once()).await;
            for _ in 0..patience {
                tokio::task::yield_now().await;
            }
            let Ok(mut events) = client.try_subscribe(&task.id, None).await else { return Ok(()) };
            let mut seen = vec![events.next().await.unwrap()];
            host.idle().await;
            seen.extend(events.so_far().await);
            let seqs: Vec<_> = seen.iter().filter_map(|event| event.seq).collect();
            prop_assert!(seqs.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{:?}", seqs);
            prop_assert_eq!(client.get(&task.id).await, folded(&seen));
            Ok(())
        })?;
    }

    #[test]
    fn a_stream_resumed_after_any_event_gives_exactly_the_rest(script in scripts(), cut in any::<prop::sample::Index>()) {
        in_virtual_time(async {
            let host = patient(script);
            let client = host.client();
            let mut events = client.stream(say("hi")).await;
            let id = events.next().await.unwrap().task().id.clone();
            host.idle().await;
            let ended = client.get(&id).await.status.state.is_terminal();
            if !ended {
                client.cancel(&id).await.unwrap();
            }
            let rest = events.rest().await;
            let at = cut.index(rest.len() + 1);
            let seen = if at == 0 { Some(1) } else { rest[at - 1].seq };
            let resumed = client.try_subscribe(&id, seen).await.unwrap().rest().await;
            prop_assert_eq!(&resumed, &rest[at..]);
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_stream_of_a_working_task_can_be_resumed() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            turn.working("").await?;
            for name in ["a", "b"] {
                latch.pass().await;
                turn.artifact(name).text("x").await?;
            }
            turn.complete().await
        }
    }));
    let client = host.client();
    let mut events = client.stream(say("hi")).await;
    let id = events.next().await.unwrap().task().id.clone();
    let seen = events.next().await.unwrap().seq;
    drop(events);
    latch.open();
    latch.reached().await;
    latch.reached().await;
    let resumed = client.try_subscribe(&id, seen).await.unwrap();
    latch.open();
    let resumed = resumed.rest().await;
    assert_eq!(resumed.iter().filter_map(|event| event.seq).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(resumed.last().unwrap().state(), Some(TaskState::Completed));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_has_seen_the_end_gets_nothing_more() {
    let host = host(Script(vec![Step::Complete]));
    let client = host.client();
    let events = client.stream(say("hi")).await.rest().await;
    let id = &events[0].task().id;
    let rest = client.try_subscribe(id, events.last().unwrap().seq).await.unwrap().rest().await;
    assert_eq!(rest, []);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_ahead_of_the_task_is_refused() {
    let host = host(Script(vec![Step::Ask("?".into())]));
    let client = host.client();
    let task = client.send(say("hi")).await;
    let error = client.try_subscribe(&task.id, Some(99)).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidParams);
    assert_eq!(error.field_violations()[0].field, "Last-Event-ID");
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_a_task_that_was_never_streamed_gets_the_whole_task() {
    let host = host(Script(vec![Step::Working("".into()), Step::Complete]));
    let client = host.client();
    let task = client.send(say("hi")).await;
    let seen = client.try_subscribe(&task.id, Some(1)).await.unwrap().rest().await;
    let last = seen.last().unwrap();
    assert_eq!((last.seq, last.state()), (Some(3), Some(TaskState::Completed)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_resumed_a_thousand_tasks_later_gets_the_whole_task() {
    let host = host(Script(vec![
        Step::Working("".into()),
        Step::Artifact { name: "a".into(), text: "x".into() },
        Step::Complete,
    ]));
    let client = host.client();
    let events = client.stream(say("hi")).await.rest().await;
    let task = client.get(&events[0].task().id).await;
    for _ in 0..1_100 {
        client.stream(say("another")).await.rest().await;
    }
    let resumed = client.try_subscribe(&task.id, events[1].seq).await.unwrap().rest().await;
    assert_eq!(
        resumed,
        [Event { seq: events.last().unwrap().seq, what: StreamResponse::Task(task.clone()) }]
    );
    let nothing = client.try_subscribe(&task.id, events.last().unwrap().seq).await.unwrap().rest().await;
    assert_eq!(nothing, []);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_polled_a_thousand_tasks_later_gets_the_whole_task() {
    let latch = Latch::new();
    let agent_latch = latch.clone();
    let host = host(agent_fn(move |turn: Turn| {
        let latch = agent_latch.clone();
        async move {
            if turn.text() == "slow" {
                turn.working("").await?;
                latch.pass().await;
                turn.artifact("a").text("x").await?;
            }
            turn.complete().await
        }
    }));
    let client = host.client();
    let task = client.send(say("slow").at_once()).await;
    latch.reached().await;
    let mut lazy = client.subscribe(&task.id).await;
    assert_eq!(lazy.next().await.unwrap().state(), Some(TaskState::Working));
    latch.open();
    host.idle().await;
    for _ in 0..1_100 {
        client.stream(say("quick")).await.rest().await;
    }
    let rest = soon(lazy.rest()).await;
    assert_eq!(rest.len(), 1);
    assert_eq!(*rest[0].task(), client.get(&task.id).await);
    settle_down().await;
}
