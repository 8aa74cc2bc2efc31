//! Recovery of tasks whose turn died with its process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use attache_core::{
    Agent, MemoryStore, NewTask, NewWebhook, Owner, PushEvents, Recovered, Store, TaskEvent, Turn, Webhook,
    agent_fn, restartable,
};
use attache_protocol::{
    ContextId, ErrorKind, Message, Role, Task, TaskId, TaskPushNotificationConfig, TaskState, TaskStatus,
    Timestamp,
};

use tokio::time::Instant;

use crate::support::{
    CLOCK_START, Host, Latch, Script, SlowStore, Step, history, host_on, host_with, say, settle_down, soon,
    states, status_text,
};

const LEASE: i64 = 30_000;

/// A task whose lease lasts for 30 seconds, and whose server is gone.
pub(crate) async fn abandoned_task(store: &dyn Store, name: &str, state: TaskState) -> Task {
    abandoned_task_until(store, name, state, LEASE).await
}

async fn abandoned_task_until(store: &dyn Store, name: &str, state: TaskState, lease: i64) -> Task {
    let time = Timestamp::from_millis(CLOCK_START);
    let task = Task {
        id: TaskId::from(name),
        context_id: Some(ContextId::from("c")),
        status: TaskStatus {
            state,
            message: Some(Box::new(Message::agent("s", "on it"))),
            timestamp: Some(time),
        },
        history: vec![Message::user("1", "one"), Message::agent("2", "two"), Message::user("3", "three")],
        ..Task::default()
    };
    let new = NewTask {
        owner: Owner::default(),
        events: vec![TaskEvent::Created(Arc::new(task.clone()))],
        now: time,
        followed: false,
        lease_until: Timestamp::from_millis(CLOCK_START + lease),
        idempotency: None,
        push: None,
    };
    store.create(new).await.unwrap();
    task
}

/// Hosts an agent that completes at once.
pub(crate) fn idle() -> Host {
    host_with(Script(vec![]), |_, _| {})
}

fn failed(failed: usize) -> Recovered {
    Recovered { failed, rerun: 0 }
}

fn rerun(rerun: usize) -> Recovered {
    Recovered { failed: 0, rerun }
}

async fn recover(host: &Host) -> Recovered {
    soon(host.service.recover()).await.unwrap()
}

/// An agent that waits at a latch before it completes.
fn waiting(latch: &Latch) -> impl Agent {
    let latch = latch.clone();
    agent_fn(move |turn: Turn| {
        let latch = latch.clone();
        async move {
            turn.working("on it").await?;
            latch.pass().await;
            turn.complete().await
        }
    })
}

/// A restartable agent, and the number of its turns.
fn counting() -> (impl Agent, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let runs = count.clone();
    let agent = restartable(agent_fn(move |turn: Turn| {
        runs.fetch_add(1, Ordering::SeqCst);
        async move { turn.complete().await }
    }));
    (agent, count)
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_turn_died_fails_and_says_why() {
    let host = idle();
    let task = abandoned_task(&*host.store, "t", TaskState::Working).await;
    host.clock_at(LEASE - 1);
    assert_eq!(recover(&host).await, failed(0));
    host.clock_at(LEASE);
    assert_eq!(recover(&host).await, failed(1));
    let after = host.client().get(&task.id).await;
    let said = after.status.message.as_ref().unwrap();
    assert_eq!((after.status.state, said.role), (TaskState::Failed, Role::Agent));
    assert!(said.text().contains("stopped"), "{}", said.text());
    assert_eq!((said.task_id.as_ref(), said.context_id.as_ref()), (Some(&task.id), task.context_id.as_ref()));
    assert_eq!(after.status.timestamp, Some(Timestamp::from_millis(CLOCK_START + LEASE)));
    assert_eq!(history(&after), ["one", "two", "three", "on it"], "what was said before is lost");
    assert_eq!(recover(&host).await, failed(0));
    assert_eq!(host.client().get(&task.id).await, after);
}

#[tokio::test(start_paused = true)]
async fn all_abandoned_tasks_are_recovered_however_many() {
    let host = idle();
    for number in 0..600 {
        let state = [TaskState::Submitted, TaskState::Working][number % 2];
        abandoned_task(&*host.store, &number.to_string(), state).await;
    }
    host.clock_at(LEASE);
    assert_eq!(recover(&host).await, failed(600));
    assert_eq!(recover(&host).await, failed(0));
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_of_an_abandoned_task_sees_its_end() {
    let host = idle();
    let task = abandoned_task(&*host.store, "t", TaskState::Working).await;
    let (first, second) = (host.client().subscribe(&task.id).await, host.client().subscribe(&task.id).await);
    let (first, second) = (tokio::spawn(first.rest()), tokio::spawn(second.rest()));
    settle_down().await;
    host.clock_at(LEASE);
    recover(&host).await;
    for events in [first, second] {
        assert_eq!(states(&soon(events).await.unwrap()), [TaskState::Working, TaskState::Failed]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_webhooks_of_an_abandoned_task_receive_its_end() {
    let host = idle();
    let task = abandoned_task(&*host.store, "t", TaskState::Working).await;
    let config = TaskPushNotificationConfig {
        id: Some("w".to_owned()),
        url: "https://example.com".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    let outbox = host.store.outbox();
    let webhook = Webhook { config, events: PushEvents::States, dialect: None, trace_parent: None };
    outbox.put_webhook(&task.id, NewWebhook { webhook, limit: 32 }).await.unwrap();
    host.clock_at(LEASE);
    recover(&host).await;
    let now = Timestamp::from_millis(CLOCK_START + LEASE);
    let told = outbox.take_due("example.com", now, now, 9).await.unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].entry.event.state(), Some(TaskState::Failed));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_task_can_be_listed_and_canceled() {
    let host = idle();
    let (one, two) = (
        abandoned_task(&*host.store, "one", TaskState::Working).await,
        abandoned_task(&*host.store, "two", TaskState::Submitted).await,
    );
    let client = host.client();
    assert_eq!(client.list_all().await.len(), 2);
    assert_eq!(client.get(&two.id).await, two);
    assert_eq!(client.cancel(&one.id).await.unwrap().status.state, TaskState::Canceled);
    host.clock_at(LEASE);
    assert_eq!(recover(&host).await, failed(1));
    assert_eq!(client.get(&one.id).await.status.state, TaskState::Canceled);
    let error = client.cancel(&two.id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TaskNotCancelable);
}

#[tokio::test(start_paused = true)]
async fn tasks_that_wait_for_input_are_not_recovered() {
    for again in [false, true] {
        let store = Arc::new(MemoryStore::new());
        let (agent, count) = counting();
        let host = match again {
            true => host_on(store, agent, |_, _| {}),
            false => host_on(store, Script(vec![]), |_, _| {}),
        };
        let mut tasks = Vec::new();
        for state in [TaskState::InputRequired, TaskState::AuthRequired, TaskState::Completed] {
            tasks.push(abandoned_task(&*host.store, state.as_str(), state).await);
        }
        host.clock_at(100 * LEASE);
        assert_eq!(recover(&host).await, Recovered::default());
        for task in tasks {
            assert_eq!(host.client().get(&task.id).await, task);
        }
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restartable_agent_runs_the_turn_again() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let turns = seen.clone();
    let agent = restartable(agent_fn(move |turn: Turn| {
        let before = turn.task().map(|task| (status_text(&task), task.history.len()));
        turns.lock().unwrap().push((turn.is_rerun(), turn.text(), turn.task_id().clone(), before));
        async move {
            turn.artifact("answer").text("done").await?;
            turn.complete().await
        }
    }));
    let host = host_on(Arc::new(MemoryStore::new()), agent, |_, _| {});
    let task = abandoned_task(&*host.store, "t", TaskState::Working).await;
    let follows = tokio::spawn(host.client().subscribe(&task.id).await.rest());
    host.clock_at(LEASE);
    assert_eq!(recover(&host).await, rerun(1));
    host.idle().await;
    let after = host.client().get(&task.id).await;
    assert_eq!(after.status.state, TaskState::Completed);
    assert_eq!(after.artifact("answer").unwrap().text(), "done");
    let before = Some(("on it".to_owned(), 3));
    assert_eq!(*seen.lock().unwrap(), [(true, "three".to_owned(), task.id.clone(), before)]);
    assert_eq!(states(&soon(follows).await.unwrap()), [TaskState::Working, TaskState::Completed]);
    assert_eq!(recover(&host).await, rerun(0));

    host.client().send(say("new")).await;
    assert!(!seen.lock().unwrap().last().unwrap().0, "a turn for a new message was taken for an old one");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_runs_again_keeps_its_lease() {
    let (latch, store) = (Latch::new(), Arc::new(MemoryStore::new()));
    let here = host_on(store.clone(), restartable(waiting(&latch)), |_, _| {});
    let there = host_on(store, Script(vec![]), |_, _| {});
    let task = abandoned_task(&*here.store, "t", TaskState::Working).await;
    here.clock_at(LEASE);
    assert_eq!(recover(&here).await, rerun(1));
    latch.reached().await;
    for step in 1..30 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        here.clock_at(LEASE + step * 10_000);
        there.clock_at(LEASE + step * 10_000);
        assert_eq!(recover(&there).await, failed(0), "after {} s", step * 10);
    }
    latch.open();
    here.idle().await;
    assert_eq!(there.client().get(&task.id).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_runs_again_can_be_canceled() {
    let latch = Latch::new();
    let host = host_on(Arc::new(MemoryStore::new()), restartable(waiting(&latch)), |_, _| {});
    let task = abandoned_task(&*host.store, "t", TaskState::Working).await;
    host.clock_at(LEASE);
    recover(&host).await;
    latch.reached().await;
    let canceled = host.client().cancel(&task.id).await.unwrap();
    latch.open();
    host.idle().await;
    assert_eq!(host.client().get(&task.id).await, canceled);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_alive_on_another_server_is_not_recovered() {
    for again in [false, true] {
        let (latch, store) = (Latch::new(), Arc::new(MemoryStore::new()));
        let (agent, count) = counting();
        let here = host_on(store.clone(), waiting(&latch), |_, _| {});
        let there = match again {
            true => host_on(store, agent, |_, _| {}),
            false => host_on(store, Script(vec![]), |_, _| {}),
        };
        let task = here.client().send(say("hi").at_once()).await;
        for step in 1..30 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            here.clock_at(step * 10_000);
            there.clock_at(step * 10_000);
            assert_eq!(recover(&there).await, Recovered::default(), "after {} s", step * 10);
        }
        latch.open();
        here.idle().await;
        assert_eq!(here.client().get(&task.id).await.status.state, TaskState::Completed);
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_this_process_is_not_recovered_even_if_its_lease_has_expired() {
    let latch = Latch::new();
    let host = host_on(Arc::new(MemoryStore::new()), waiting(&latch), |_, _| {});
    let task = host.client().send(say("hi").at_once()).await;
    latch.reached().await;
    // The machine was suspended, so no lease was renewed.
    host.clock_at(100 * LEASE);
    assert_eq!(recover(&host).await, failed(0));
    latch.open();
    host.idle().await;
    assert_eq!(host.client().get(&task.id).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn of_many_servers_one_runs_a_turn_again() {
    for seed in 0..20 {
        let store = SlowStore::with_jitter(seed);
        let (mut hosts, mut counts) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let (agent, count) = counting();
            hosts.push(host_on(store.clone(), agent, |_, _| {}));
            counts.push(count);
        }
        let mut tasks = Vec::new();
        for number in 0..5 {
            tasks.push(abandoned_task(&*store, &number.to_string(), TaskState::Working).await);
        }
        hosts.iter().for_each(|host| host.clock_at(LEASE));
        let recovered = futures::future::join_all(hosts.iter().map(recover)).await;
        for host in &hosts {
            host.idle().await;
        }
        let runs: usize = counts.iter().map(|count| count.load(Ordering::SeqCst)).sum();
        assert_eq!((recovered.iter().map(|recovered| recovered.rerun).sum::<usize>(), runs), (5, 5));
        for task in tasks {
            assert_eq!(hosts[0].client().get(&task.id).await.status.state, TaskState::Completed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_servers_one_fails_a_task() {
    for seed in 0..20 {
        let store = SlowStore::with_jitter(seed);
        let hosts: Vec<_> = (0..4).map(|_| host_on(store.clone(), Script(vec![]), |_, _| {})).collect();
        let task = abandoned_task(&*store, "t", TaskState::Working).await;
        let follows = tokio::spawn(hosts[0].client().subscribe(&task.id).await.rest());
        hosts.iter().for_each(|host| host.clock_at(LEASE));
        let recovered = futures::future::join_all(hosts.iter().map(recover)).await;
        assert_eq!(recovered.iter().map(|recovered| recovered.failed).sum::<usize>(), 1);
        assert_eq!(states(&soon(follows).await.unwrap()), [TaskState::Working, TaskState::Failed]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_turn_is_about_to_start_is_not_recovered() {
    for patience in [1, 5, 30, 70, 110] {
        let store = SlowStore::with_latency(Duration::from_millis(20));
        let agent = agent_fn(|turn: Turn| async move {
            if turn.task().is_some() { turn.complete().await } else { turn.ask("which one?").await }
        });
        let host = host_on(store, agent, |_, _| {});
        // The recovery of one task has no effect on the other.
        abandoned_task_until(&*host.store, "t", TaskState::Working, 0).await;
        host.clock_at(5_000);
        let asked = host.client().send(say("hi")).await;
        let answered = host.client().send_meanwhile(say("this one").to(&asked));
        tokio::time::sleep(Duration::from_millis(patience)).await;
        assert_eq!(recover(&host).await, failed(1), "after {patience} ms");
        assert_eq!(soon(answered).await.unwrap().status.state, TaskState::Completed, "after {patience} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_just_abandoned_is_recovered_after_a_second() {
    let host = idle();
    let task = abandoned_task_until(&*host.store, "t", TaskState::Working, 0).await;
    let begun = Instant::now();
    assert_eq!(recover(&host).await, failed(1));
    assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(host.client().get(&task.id).await.status.state, TaskState::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_does_not_make_a_task_end_before_it_began() {
    let host = idle();
    let task = abandoned_task(&*host.store, "t", TaskState::Working).await;
    host.clock_at(LEASE);
    let ahead = host_on(
        host.store.clone(),
        Script(vec![Step::Working("ahead".into()), Step::Ask("?".into())]),
        |_, _| {},
    );
    ahead.clock_at(100 * LEASE);
    ahead.client().send(say("go on").to(&task)).await;
    let resumed = ahead.client().get(&task.id).await.status.timestamp;
    // The client answers, and the server dies with the answer.
    let status = TaskStatus { state: TaskState::Working, message: None, timestamp: resumed };
    let update =
        attache_protocol::TaskStatusUpdateEvent { task_id: task.id.clone(), status, ..Default::default() };
    let after = host.store.load(&Owner::default(), &task.id).await.unwrap().unwrap().seq;
    let append = attache_core::Append {
        after,
        lease: None,
        idempotency: None,
        push: None,
        events: vec![TaskEvent::Status(Arc::new(update))],
        now: Timestamp::from_millis(CLOCK_START),
    };
    host.store.append(&task.id, append).await.unwrap();
    assert_eq!(recover(&host).await, failed(1));
    assert_eq!(host.client().get(&task.id).await.status.timestamp, resumed);
}

#[tokio::test(start_paused = true)]
async fn a_restartable_agent_leaves_its_task_to_the_next_server_on_shutdown() {
    let (latch, store) = (Latch::new(), Arc::new(MemoryStore::new()));
    let old = host_on(store.clone(), restartable(waiting(&latch)), |_, _| {});
    let sent = old.client().send_meanwhile(say("hi"));
    latch.reached().await;
    assert_eq!(old.service.shutdown(Duration::from_secs(1)).await, 1);
    let left = soon(sent).await.unwrap();
    assert_eq!((left.status.state, status_text(&left).as_str()), (TaskState::Working, "on it"));
    old.idle().await;
    assert_eq!(recover(&old).await, Recovered::default(), "a server that stops begins what it has left");
    assert_eq!(old.client().get(&left.id).await, left);

    let (agent, count) = counting();
    let new = host_on(store, agent, |_, _| {});
    assert_eq!(recover(&new).await, rerun(1), "the task was not free at once");
    new.idle().await;
    assert_eq!(new.client().get(&left.id).await.status.state, TaskState::Completed);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    // Later events of the first turn are not written.
    latch.open();
    settle_down().await;
    assert_eq!(new.client().list_all().await.len(), 1);
}
