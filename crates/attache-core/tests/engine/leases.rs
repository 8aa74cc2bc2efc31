//! Two servers on one store: a task has one turn at a time, wherever it runs.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{MemoryStore, NewTask, Owner, Store, TaskEvent, Turn, agent_fn};
use attache_protocol::{ContextId, ErrorKind, Task, TaskId, TaskState, TaskStatus, Timestamp};

use crate::support::{Gate, MORNING, Script, Step, host_on, say, soon, status_text};

/// A task at work whose server is believed to be alive for so many milliseconds more.
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
        now: Timestamp::from_millis(MORNING),
        followed: false,
        lease_until: Timestamp::from_millis(MORNING + millis),
        idempotency: None,
        push: None,
    };
    store.create(new).await.unwrap();
    task
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_server_is_gone_can_be_continued_elsewhere() {
    let host = host_on(Arc::new(MemoryStore::new()), Script(vec![]), |_, _| {});
    let task = task_with_lease(&*host.store, 30_000).await;
    host.clock_at(30_000);
    assert_eq!(host.client().send(say("go on").to(&task)).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_server_is_alive_is_left_to_it() {
    let host = host_on(Arc::new(MemoryStore::new()), Script(vec![]), |_, _| {});
    let task = task_with_lease(&*host.store, 30_000).await;
    host.clock_at(29_999);
    let error = host.client().try_send(say("go on").to(&task)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(host.service.running_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_takes_long_keeps_its_task_to_itself() {
    let (gate, store) = (Gate::new(), Arc::new(MemoryStore::new()));
    let agent_gate = gate.clone();
    let agent = agent_fn(move |turn: Turn| {
        let gate = agent_gate.clone();
        async move {
            gate.pass().await;
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
    gate.open();
    here.idle().await;
    assert_eq!(there.client().get(&task.id).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_taken_over_elsewhere_says_nothing_more() {
    let (gate, store) = (Gate::new(), Arc::new(MemoryStore::new()));
    let agent_gate = gate.clone();
    let agent = agent_fn(move |turn: Turn| {
        let gate = agent_gate.clone();
        async move {
            turn.working("").await?;
            gate.pass().await;
            turn.artifact("late").text("x").await?;
            gate.pass().await;
            turn.fail("this must not be seen").await
        }
    });
    let asking = Script(vec![Step::Ask("which one?".into())]);
    let (here, there) = (host_on(store.clone(), agent, |_, _| {}), host_on(store, asking, |_, _| {}));
    let task = here.client().send(say("hi").at_once()).await;
    gate.reached().await;
    // There it is much later, and here nobody has given a sign of life since.
    there.clock_at(600_000);
    let asked = there.client().send(say("anyone?").to(&task)).await;
    for _ in 0..2 {
        gate.open();
    }
    here.idle().await;
    assert_eq!(status_text(&asked), "which one?");
    assert_eq!(here.client().get(&task.id).await, asked);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_on_one_server_ends_the_task_on_the_other() {
    let (gate, store) = (Gate::new(), Arc::new(MemoryStore::new()));
    let agent_gate = gate.clone();
    let agent = agent_fn(move |turn: Turn| {
        let gate = agent_gate.clone();
        async move {
            turn.working("").await?;
            gate.pass().await;
            turn.artifact("late").text("x").await?;
            gate.pass().await;
            assert!(turn.working("").await.is_err_and(|error| error.is_over()));
            Ok(())
        }
    });
    let (here, there) = (host_on(store.clone(), agent, |_, _| {}), host_on(store, Script(vec![]), |_, _| {}));
    let sent = here.client().send_meanwhile(say("hi"));
    gate.reached().await;
    let task = there.client().list_all().await.remove(0);
    let canceled = there.client().cancel(&task.id).await.unwrap();
    gate.open();
    gate.reached().await;
    gate.open();
    assert_eq!(soon(sent).await.unwrap(), canceled);
    here.idle().await;
    assert_eq!(here.client().get(&task.id).await, canceled);
}
