//! Pruning: tasks that have ended are deleted by age or number, with everything that belongs to them.

use std::time::Duration;

use attache_core::{AppendError, Created, ListQuery, Outcome, Owner, PushEvents, Retention};
use attache_protocol::TaskState;

use crate::support::{TestStore, at, id, ids, message, more, status, task, webhook};

fn by_age(millis: u64) -> Retention {
    Retention::default().max_age(Duration::from_millis(millis))
}

fn by_number(count: usize) -> Retention {
    Retention::default().max_tasks(count)
}

async fn prune(store: &TestStore, retention: Retention, now: i64) -> usize {
    store.prune(&retention, at(now), 1_000).await.unwrap()
}

/// The remaining tasks. Checks that the totals match.
async fn left(store: &TestStore) -> Vec<String> {
    let query = ListQuery { limit: 1_000, ..ListQuery::default() };
    let (tasks, _, total) = store.page(&Owner::default(), &query).await;
    assert_eq!(tasks.len(), total);
    let mut by_state = 0;
    for state in TaskState::ALL {
        by_state +=
            store.page(&Owner::default(), &ListQuery { state: Some(*state), ..query.clone() }).await.2;
    }
    assert_eq!(by_state, total);
    ids(&tasks)
}

/// Creates tasks that ended at these times, in different states.
async fn ended_at(store: &TestStore, times: impl IntoIterator<Item = i64>) {
    let states: Vec<_> = TaskState::ALL.iter().copied().filter(|state| state.is_terminal()).collect();
    for (number, millis) in times.into_iter().enumerate() {
        let name = millis.to_string();
        store.make(task(&name).then(message("x"))).await;
        store.add(&name, more(2, [status(&name, states[number % states.len()], millis)])).await.unwrap();
    }
}

pub async fn nothing_is_pruned_without_a_limit(store: TestStore) {
    ended_at(&store, 0..5).await;
    assert_eq!(prune(&store, Retention::default(), 1_000_000_000).await, 0);
    assert_eq!(left(&store).await.len(), 5);
}

pub async fn tasks_older_than_the_limit_are_pruned(store: TestStore) {
    ended_at(&store, [10, 40, 20, 50, 30]).await;
    assert_eq!(prune(&store, by_age(100), 110).await, 0, "a task was pruned at exactly its maximum age");
    assert_eq!(prune(&store, by_age(100), 111).await, 1);
    assert_eq!(left(&store).await, ["50", "40", "30", "20"]);
    let owner = Owner::default();
    assert!(store.contains(&owner, &id("20")).await.unwrap());
    assert!(!store.contains(&owner, &id("10")).await.unwrap());
    assert_eq!(prune(&store, by_age(100), 145).await, 3);
    assert_eq!(left(&store).await, ["50"]);
    assert_eq!(prune(&store, by_age(u64::MAX / 2), 145).await, 0);
    assert_eq!(prune(&store, by_age(0), 145).await, 1);
    assert!(left(&store).await.is_empty());
}

pub async fn the_oldest_tasks_beyond_the_limit_are_pruned(store: TestStore) {
    ended_at(&store, [10, 40, 20, 50, 30]).await;
    assert_eq!(prune(&store, by_number(5), 100).await, 0);
    assert_eq!(prune(&store, by_number(3), 100).await, 2);
    assert_eq!(left(&store).await, ["50", "40", "30"]);
    assert_eq!(prune(&store, by_number(3), 100).await, 0);
    assert_eq!(prune(&store, by_number(0), 100).await, 3);
    assert!(left(&store).await.is_empty());
}

pub async fn both_limits_apply_together(store: TestStore) {
    ended_at(&store, [10, 40, 20, 50, 30]).await;
    let both = |millis, count| Retention::default().max_age(Duration::from_millis(millis)).max_tasks(count);
    assert_eq!(prune(&store, both(100, 4), 125).await, 2, "both by age");
    assert_eq!(left(&store).await, ["50", "40", "30"]);
    assert_eq!(prune(&store, both(100, 1), 125).await, 2, "both by number");
    assert_eq!(left(&store).await, ["50"]);
}

pub async fn tasks_that_have_not_ended_are_never_pruned(store: TestStore) {
    let live: Vec<_> = TaskState::ALL.iter().filter(|state| !state.is_terminal()).collect();
    for state in &live {
        store.make(task(state.as_str()).state(**state).since(-1_000)).await;
    }
    ended_at(&store, [10, 20]).await;
    let all = Retention::default().max_age(Duration::ZERO).max_tasks(0);
    assert_eq!(prune(&store, all, 1_000_000).await, 2);
    assert_eq!(left(&store).await.len(), live.len());
    assert_eq!(prune(&store, by_number(1), 1_000_000).await, 0, "a live task counted towards the limit");
}

pub async fn pruned_tasks_are_limited_in_number(store: TestStore) {
    ended_at(&store, 0..10).await;
    assert_eq!(store.prune(&by_number(2), at(99), 0).await.unwrap(), 0);
    assert_eq!(store.prune(&by_number(2), at(99), 5).await.unwrap(), 5);
    assert_eq!(left(&store).await, ["9", "8", "7", "6", "5"]);
    assert_eq!(store.prune(&by_number(2), at(99), 5).await.unwrap(), 3);
    assert_eq!(left(&store).await, ["9", "8"]);
    assert_eq!(store.prune(&by_age(1), at(99), 1).await.unwrap(), 1);
    assert_eq!(left(&store).await, ["9"]);
}

pub async fn a_task_with_pending_deliveries_is_not_pruned(store: TestStore) {
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::States))).await;
    store.add("t", more(1, [status("t", TaskState::Completed, 1)])).await.unwrap();
    ended_at(&store, [10]).await;
    assert_eq!(prune(&store, by_number(0), 99).await, 1);
    assert_eq!(left(&store).await, ["t"]);
    for seq in [1, 2] {
        let taken = store.take("one", 99).await;
        assert_eq!((taken.len(), taken[0].id.seq.0), (1, seq));
        assert_eq!(prune(&store, by_age(0), 99).await, 0, "a task was pruned during its delivery");
        store.settle(&taken[0].id, Outcome::Delivered).await;
    }
    assert_eq!(prune(&store, by_age(0), 99).await, 1);
    assert!(left(&store).await.is_empty());
}

pub async fn dead_deliveries_do_not_prevent_pruning(store: TestStore) {
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::States))).await;
    store.add("t", more(1, [status("t", TaskState::Completed, 1)])).await.unwrap();
    for _ in 0..2 {
        let taken = store.take("one", 9).await.remove(0);
        store.settle(&taken.id, Outcome::GivenUp { at: at(9), error: "no".into() }).await;
    }
    assert_eq!(store.dead().await.len(), 2);
    assert_eq!(prune(&store, by_number(0), 99).await, 1);
    assert!(store.dead().await.is_empty());
    assert_eq!(store.outbox().retry_dead(None, at(99)).await.unwrap(), 0);
}

pub async fn a_pruned_task_leaves_nothing_behind(store: TestStore) {
    let me = Owner::default();
    let made = store
        .make(task("t").key("of the task", 1).webhook(webhook("t", "w", "one", PushEvents::States)))
        .await;
    store.make(task("other").key("of another", 2)).await;
    store.add("t", more(1, [message("x")]).key(&me, "of a message", 1)).await.unwrap();
    store.add("other", more(1, [message("x")]).key(&me, "of another message", 2)).await.unwrap();
    store.add("t", more(2, [status("t", TaskState::Completed, 1)])).await.unwrap();
    store.deliver_all("one", 1).await;
    assert_eq!(prune(&store, by_number(0), 99).await, 1);

    assert!(store.find("t").await.is_none());
    assert_eq!(left(&store).await, ["other"]);
    assert!(store.hooks("t").await.is_empty());
    let refused = store.add("t", more(3, [message("x")]).by(made.lease)).await.unwrap_err();
    assert!(matches!(refused, AppendError::NotFound), "{refused}");
    assert_eq!(store.can_claim("t", 1_000_000, 2_000_000).await, None);
    for key in ["of the task", "of a message"] {
        assert!(store.find_key(&me, key).await.unwrap().is_none());
    }
    for key in ["of another", "of another message"] {
        assert_eq!(store.find_key(&me, key).await.unwrap().unwrap().task, id("other"));
    }
    let created = store.create(task("new").key("of the task", 3).0).await.unwrap();
    assert!(matches!(created, Created::New { .. }));
}

pub async fn the_id_of_a_pruned_task_can_be_used_again(store: TestStore) {
    ended_at(&store, [1]).await;
    assert_eq!(prune(&store, by_number(0), 99).await, 1);
    let made = store.make(task("1").then(message("new"))).await;
    assert_eq!(made.seq.0, 2);
    assert_eq!(store.read("1", 0, 2).await[1].event, message("new"));
    assert!(store.take("one", 99).await.is_empty());
    assert_eq!(store.get("1").await.task().history.len(), 2);
}
