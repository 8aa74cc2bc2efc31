//! Tasks that were left behind are taken care of, and those that are old are forgotten.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use attache_core::{
    Agent, MemoryStore, NewTask, NewWebhook, Owner, PushEvents, Recovered, Retention, Store, TaskEvent, Turn,
    Webhook, agent_fn, restartable,
};
use attache_protocol::{
    ContextId, ErrorKind, Message, Role, Task, TaskId, TaskPushNotificationConfig, TaskState, TaskStatus,
    Timestamp,
};

use tokio::time::Instant;

use crate::support::{
    Gate, Host, MORNING, Script, SlowStore, Step, history, host_on, host_with, say, settle_down, soon,
    states, status_text,
};

const LEASE: i64 = 30_000;

/// A task whose server is believed to be alive for half a minute from the morning on, and never speaks again.
async fn left_behind(store: &dyn Store, name: &str, state: TaskState) -> Task {
    left_behind_until(store, name, state, LEASE).await
}

async fn left_behind_until(store: &dyn Store, name: &str, state: TaskState, lease: i64) -> Task {
    let time = Timestamp::from_millis(MORNING);
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
        lease_until: Timestamp::from_millis(MORNING + lease),
        idempotency: None,
        push: None,
    };
    store.create(new).await.unwrap();
    task
}

/// A host of an agent that does nothing, in whose store something may be left behind.
fn idle() -> Host {
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

/// An agent that waits at a gate before it is done.
fn waiting(gate: &Gate) -> impl Agent {
    let gate = gate.clone();
    agent_fn(move |turn: Turn| {
        let gate = gate.clone();
        async move {
            turn.working("on it").await?;
            gate.pass().await;
            turn.complete().await
        }
    })
}

/// An agent whose turns may be run again, and how many were.
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
    let task = left_behind(&*host.store, "t", TaskState::Working).await;
    host.clock_at(LEASE - 1);
    assert_eq!(recover(&host).await, failed(0));
    host.clock_at(LEASE);
    assert_eq!(recover(&host).await, failed(1));
    let after = host.client().get(&task.id).await;
    let said = after.status.message.as_ref().unwrap();
    assert_eq!((after.status.state, said.role), (TaskState::Failed, Role::Agent));
    assert!(said.text().contains("stopped"), "{}", said.text());
    assert_eq!((said.task_id.as_ref(), said.context_id.as_ref()), (Some(&task.id), task.context_id.as_ref()));
    assert_eq!(after.status.timestamp, Some(Timestamp::from_millis(MORNING + LEASE)));
    assert_eq!(history(&after), ["one", "two", "three", "on it"], "what was said before is lost");
    assert_eq!(recover(&host).await, failed(0));
    assert_eq!(host.client().get(&task.id).await, after);
}

#[tokio::test(start_paused = true)]
async fn however_many_were_left_behind_none_is_forgotten() {
    let host = idle();
    for number in 0..600 {
        let state = [TaskState::Submitted, TaskState::Working][number % 2];
        left_behind(&*host.store, &number.to_string(), state).await;
    }
    host.clock_at(LEASE);
    assert_eq!(recover(&host).await, failed(600));
    assert_eq!(recover(&host).await, failed(0));
}

#[tokio::test(start_paused = true)]
async fn whoever_follows_a_task_that_was_left_behind_learns_how_it_ends() {
    let host = idle();
    let task = left_behind(&*host.store, "t", TaskState::Working).await;
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
async fn the_webhooks_of_a_task_that_was_left_behind_are_told_how_it_ends() {
    let host = idle();
    let task = left_behind(&*host.store, "t", TaskState::Working).await;
    let config = TaskPushNotificationConfig {
        id: Some("w".to_owned()),
        url: "https://example.com".to_owned(),
        ..TaskPushNotificationConfig::default()
    };
    let outbox = host.store.outbox();
    let webhook = Webhook { config, events: PushEvents::States, dialect: None };
    outbox.put_webhook(&task.id, NewWebhook { webhook, limit: 32 }).await.unwrap();
    host.clock_at(LEASE);
    recover(&host).await;
    let now = Timestamp::from_millis(MORNING + LEASE);
    let told = outbox.take_due("example.com", now, now, 9).await.unwrap();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].entry.event.state(), Some(TaskState::Failed));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_left_behind_can_be_listed_and_canceled_meanwhile() {
    let host = idle();
    let (one, two) = (
        left_behind(&*host.store, "one", TaskState::Working).await,
        left_behind(&*host.store, "two", TaskState::Submitted).await,
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
async fn tasks_that_wait_for_their_client_are_left_alone() {
    for again in [false, true] {
        let store = Arc::new(MemoryStore::new());
        let (agent, count) = counting();
        let host = match again {
            true => host_on(store, agent, |_, _| {}),
            false => host_on(store, Script(vec![]), |_, _| {}),
        };
        let mut tasks = Vec::new();
        for state in [TaskState::InputRequired, TaskState::AuthRequired, TaskState::Completed] {
            tasks.push(left_behind(&*host.store, state.as_str(), state).await);
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
async fn an_agent_that_can_start_anew_runs_the_turn_again() {
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
    let task = left_behind(&*host.store, "t", TaskState::Working).await;
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
async fn a_turn_that_runs_again_keeps_its_task_to_itself() {
    let (gate, store) = (Gate::new(), Arc::new(MemoryStore::new()));
    let here = host_on(store.clone(), restartable(waiting(&gate)), |_, _| {});
    let there = host_on(store, Script(vec![]), |_, _| {});
    let task = left_behind(&*here.store, "t", TaskState::Working).await;
    here.clock_at(LEASE);
    assert_eq!(recover(&here).await, rerun(1));
    gate.reached().await;
    for step in 1..30 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        here.clock_at(LEASE + step * 10_000);
        there.clock_at(LEASE + step * 10_000);
        assert_eq!(recover(&there).await, failed(0), "after {} s", step * 10);
    }
    gate.open();
    here.idle().await;
    assert_eq!(there.client().get(&task.id).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_runs_again_can_be_canceled() {
    let gate = Gate::new();
    let host = host_on(Arc::new(MemoryStore::new()), restartable(waiting(&gate)), |_, _| {});
    let task = left_behind(&*host.store, "t", TaskState::Working).await;
    host.clock_at(LEASE);
    recover(&host).await;
    gate.reached().await;
    let canceled = host.client().cancel(&task.id).await.unwrap();
    gate.open();
    host.idle().await;
    assert_eq!(host.client().get(&task.id).await, canceled);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_lives_on_another_server_is_left_to_it() {
    for again in [false, true] {
        let (gate, store) = (Gate::new(), Arc::new(MemoryStore::new()));
        let (agent, count) = counting();
        let here = host_on(store.clone(), waiting(&gate), |_, _| {});
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
        gate.open();
        here.idle().await;
        assert_eq!(here.client().get(&task.id).await.status.state, TaskState::Completed);
        assert_eq!(count.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_of_ones_own_is_alive_whatever_the_clock_says() {
    let gate = Gate::new();
    let host = host_on(Arc::new(MemoryStore::new()), waiting(&gate), |_, _| {});
    let task = host.client().send(say("hi").at_once()).await;
    gate.reached().await;
    // The machine was asleep: no sign of life was given, and none was needed.
    host.clock_at(100 * LEASE);
    assert_eq!(recover(&host).await, failed(0));
    gate.open();
    host.idle().await;
    assert_eq!(host.client().get(&task.id).await.status.state, TaskState::Completed);
}

#[tokio::test(start_paused = true)]
async fn of_many_servers_one_takes_a_task_over() {
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
            tasks.push(left_behind(&*store, &number.to_string(), TaskState::Working).await);
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
        let task = left_behind(&*store, "t", TaskState::Working).await;
        let follows = tokio::spawn(hosts[0].client().subscribe(&task.id).await.rest());
        hosts.iter().for_each(|host| host.clock_at(LEASE));
        let recovered = futures::future::join_all(hosts.iter().map(recover)).await;
        assert_eq!(recovered.iter().map(|recovered| recovered.failed).sum::<usize>(), 1);
        assert_eq!(states(&soon(follows).await.unwrap()), [TaskState::Working, TaskState::Failed]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_about_to_get_its_turn_is_not_taken_for_left_behind() {
    for patience in [1, 5, 30, 70, 110] {
        let store = SlowStore::with_latency(Duration::from_millis(20));
        let agent = agent_fn(|turn: Turn| async move {
            if turn.task().is_some() { turn.complete().await } else { turn.ask("which one?").await }
        });
        let host = host_on(store, agent, |_, _| {});
        // One that is really left behind does not make the other one so.
        left_behind_until(&*host.store, "t", TaskState::Working, 0).await;
        host.clock_at(5_000);
        let asked = host.client().send(say("hi")).await;
        let answered = host.client().send_meanwhile(say("this one").to(&asked));
        tokio::time::sleep(Duration::from_millis(patience)).await;
        assert_eq!(recover(&host).await, failed(1), "after {patience} ms");
        assert_eq!(soon(answered).await.unwrap().status.state, TaskState::Completed, "after {patience} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_left_behind_just_now_is_taken_care_of_after_a_moment() {
    let host = idle();
    let task = left_behind_until(&*host.store, "t", TaskState::Working, 0).await;
    let begun = Instant::now();
    assert_eq!(recover(&host).await, failed(1));
    assert!(begun.elapsed() <= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(host.client().get(&task.id).await.status.state, TaskState::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_does_not_make_a_task_end_before_it_began() {
    let host = idle();
    let task = left_behind(&*host.store, "t", TaskState::Working).await;
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
        now: Timestamp::from_millis(MORNING),
    };
    host.store.append(&task.id, append).await.unwrap();
    assert_eq!(recover(&host).await, failed(1));
    assert_eq!(host.client().get(&task.id).await.status.timestamp, resumed);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_can_start_anew_leaves_its_task_to_the_next_server_when_it_stops() {
    let (gate, store) = (Gate::new(), Arc::new(MemoryStore::new()));
    let old = host_on(store.clone(), restartable(waiting(&gate)), |_, _| {});
    let sent = old.client().send_meanwhile(say("hi"));
    gate.reached().await;
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
    // What the first turn still had to say is not heard.
    gate.open();
    settle_down().await;
    assert_eq!(new.client().list_all().await.len(), 1);
}

/// Tasks that ended so many milliseconds after the morning, and one that has not.
async fn ended(host: &Host, times: impl IntoIterator<Item = i64>) -> Task {
    for millis in times {
        host.clock_at(millis);
        let task = host.client().send(say("hi")).await;
        assert_eq!(task.status.state, TaskState::Completed);
    }
    host.clock_at(0);
    left_behind(&*host.store, "unfinished", TaskState::InputRequired).await
}

async fn ages(host: &Host) -> Vec<i64> {
    let tasks = host.client().list_all().await;
    tasks.iter().map(|task| task.status.timestamp.unwrap().to_millis() - MORNING).collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_forgotten_unless_the_options_say_so() {
    let host = idle();
    ended(&host, [1, 2, 3]).await;
    host.clock_at(i64::MAX / 4);
    assert_eq!(host.service.prune().await.unwrap(), 0);
    assert_eq!(host.client().list_all().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_or_too_much_is_forgotten() {
    let (day, hour) = (24 * 60 * 60 * 1_000, 60 * 60 * 1_000);
    let age = Some(Duration::from_millis(day as u64));
    for (retention, kept) in [
        (Retention::default().max_age(age), vec![3 * hour, 2 * hour, 0]),
        (Retention::default().max_tasks(1), vec![3 * hour, 0]),
        (Retention::default().max_age(age).max_tasks(9), vec![3 * hour, 2 * hour, 0]),
        (Retention::default().max_tasks(0), vec![0]),
    ] {
        let host = host_with(Script(vec![]), |_, options| options.retention = retention);
        let unfinished = ended(&host, [hour, 2 * hour, 3 * hour]).await;
        host.clock_at(day + 2 * hour);
        assert_eq!(host.service.prune().await.unwrap(), 4 - kept.len(), "{retention:?}");
        assert_eq!(ages(&host).await, kept, "{retention:?}");
        assert_eq!(host.client().get(&unfinished.id).await, unfinished);
        assert_eq!(host.service.prune().await.unwrap(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn however_many_are_too_old_all_are_forgotten() {
    let retention = Retention::default().max_tasks(5);
    let host = host_with(Script(vec![]), |_, options| options.retention = retention);
    ended(&host, 1..=700).await;
    assert_eq!(host.service.prune().await.unwrap(), 695);
    assert_eq!(ages(&host).await, [700, 699, 698, 697, 696, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_house_that_is_kept_needs_no_reminder() {
    let retention = Retention::default().max_age(Duration::from_secs(3_600));
    let host = host_with(Script(vec![]), |_, options| options.retention = retention);
    let working = left_behind(&*host.store, "working", TaskState::Working).await;
    let follows = tokio::spawn(host.client().subscribe(&working.id).await.rest());
    let keeping = tokio::spawn(host.service.clone().run_maintenance());
    let mut now = 0;
    let mut pass = async |seconds: i64| {
        for _ in 0..seconds / 10 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            now += 10_000;
            host.clock_at(now);
        }
        settle_down().await;
    };
    pass(20).await;
    assert_eq!(host.client().get(&working.id).await.status.state, TaskState::Working);
    // Found within a lease after the lease has run out.
    pass(50).await;
    assert_eq!(host.client().get(&working.id).await.status.state, TaskState::Failed);
    assert_eq!(states(&soon(follows).await.unwrap()), [TaskState::Working, TaskState::Failed]);
    pass(3_000).await;
    assert_eq!(host.client().list_all().await.len(), 1);
    pass(700).await;
    assert!(host.client().list_all().await.is_empty());
    keeping.abort();
}
