//! Forgetting: what has ended and is old, or too much, goes with everything that belongs to it, and nothing else does.

use std::time::Duration;

use attache_core::{AppendError, Created, ListQuery, Outcome, Owner, PushEvents, Retention};
use attache_protocol::TaskState;

use crate::support::{Kept, at, id, ids, message, more, status, task, webhook};

promises!(
    nothing_is_forgotten_unless_something_is_set,
    tasks_that_ended_too_long_ago_are_forgotten,
    of_too_many_tasks_the_oldest_are_forgotten,
    a_task_is_forgotten_for_its_age_or_its_number,
    tasks_that_have_not_ended_are_never_forgotten,
    no_more_are_forgotten_at_a_time_than_asked_for,
    a_task_with_undelivered_news_waits_for_its_delivery,
    news_that_were_given_up_do_not_keep_a_task,
    a_forgotten_task_leaves_nothing_behind,
    the_id_of_a_forgotten_task_is_free,
);

fn by_age(millis: u64) -> Retention {
    Retention::default().max_age(Duration::from_millis(millis))
}

fn by_number(count: usize) -> Retention {
    Retention::default().max_tasks(count)
}

async fn prune(store: &Kept, retention: Retention, now: i64) -> usize {
    store.prune(&retention, at(now), 1_000).await.unwrap()
}

/// The tasks that are left, whose number must be the one that is given.
async fn left(store: &Kept) -> Vec<String> {
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

/// Tasks that ended at these times, in different ways.
async fn ended_at(store: &Kept, times: impl IntoIterator<Item = i64>) {
    let states: Vec<_> = TaskState::ALL.iter().copied().filter(|state| state.is_terminal()).collect();
    for (number, millis) in times.into_iter().enumerate() {
        let name = millis.to_string();
        store.make(task(&name).then(message("x"))).await;
        store.add(&name, more(2, [status(&name, states[number % states.len()], millis)])).await.unwrap();
    }
}

async fn nothing_is_forgotten_unless_something_is_set(store: Kept) {
    ended_at(&store, 0..5).await;
    assert_eq!(prune(&store, Retention::default(), 1_000_000_000).await, 0);
    assert_eq!(left(&store).await.len(), 5);
}

async fn tasks_that_ended_too_long_ago_are_forgotten(store: Kept) {
    ended_at(&store, [10, 40, 20, 50, 30]).await;
    assert_eq!(prune(&store, by_age(100), 110).await, 0, "a task was forgotten on its last moment");
    assert_eq!(prune(&store, by_age(100), 111).await, 1);
    assert_eq!(left(&store).await, ["50", "40", "30", "20"]);
    assert_eq!(prune(&store, by_age(100), 145).await, 3);
    assert_eq!(left(&store).await, ["50"]);
    assert_eq!(prune(&store, by_age(u64::MAX / 2), 145).await, 0);
    assert_eq!(prune(&store, by_age(0), 145).await, 1);
    assert!(left(&store).await.is_empty());
}

async fn of_too_many_tasks_the_oldest_are_forgotten(store: Kept) {
    ended_at(&store, [10, 40, 20, 50, 30]).await;
    assert_eq!(prune(&store, by_number(5), 100).await, 0);
    assert_eq!(prune(&store, by_number(3), 100).await, 2);
    assert_eq!(left(&store).await, ["50", "40", "30"]);
    assert_eq!(prune(&store, by_number(3), 100).await, 0);
    assert_eq!(prune(&store, by_number(0), 100).await, 3);
    assert!(left(&store).await.is_empty());
}

async fn a_task_is_forgotten_for_its_age_or_its_number(store: Kept) {
    ended_at(&store, [10, 40, 20, 50, 30]).await;
    let both = |millis, count| Retention::default().max_age(Duration::from_millis(millis)).max_tasks(count);
    assert_eq!(prune(&store, both(100, 4), 125).await, 2, "both by age");
    assert_eq!(left(&store).await, ["50", "40", "30"]);
    assert_eq!(prune(&store, both(100, 1), 125).await, 2, "both by number");
    assert_eq!(left(&store).await, ["50"]);
}

async fn tasks_that_have_not_ended_are_never_forgotten(store: Kept) {
    let live: Vec<_> = TaskState::ALL.iter().filter(|state| !state.is_terminal()).collect();
    for state in &live {
        store.make(task(state.as_str()).state(**state).since(-1_000)).await;
    }
    ended_at(&store, [10, 20]).await;
    let all = Retention::default().max_age(Duration::ZERO).max_tasks(0);
    assert_eq!(prune(&store, all, 1_000_000).await, 2);
    assert_eq!(left(&store).await.len(), live.len());
    assert_eq!(prune(&store, by_number(1), 1_000_000).await, 0, "a task that lives counted as one too many");
}

async fn no_more_are_forgotten_at_a_time_than_asked_for(store: Kept) {
    ended_at(&store, 0..10).await;
    assert_eq!(store.prune(&by_number(2), at(99), 0).await.unwrap(), 0);
    assert_eq!(store.prune(&by_number(2), at(99), 5).await.unwrap(), 5);
    assert_eq!(left(&store).await, ["9", "8", "7", "6", "5"]);
    assert_eq!(store.prune(&by_number(2), at(99), 5).await.unwrap(), 3);
    assert_eq!(left(&store).await, ["9", "8"]);
    assert_eq!(store.prune(&by_age(1), at(99), 1).await.unwrap(), 1);
    assert_eq!(left(&store).await, ["9"]);
}

async fn a_task_with_undelivered_news_waits_for_its_delivery(store: Kept) {
    store.make(task("t").webhook(webhook("t", "w", "one", PushEvents::States))).await;
    store.add("t", more(1, [status("t", TaskState::Completed, 1)])).await.unwrap();
    ended_at(&store, [10]).await;
    assert_eq!(prune(&store, by_number(0), 99).await, 1);
    assert_eq!(left(&store).await, ["t"]);
    for seq in [1, 2] {
        let taken = store.take("one", 99).await;
        assert_eq!((taken.len(), taken[0].id.seq.0), (1, seq));
        assert_eq!(prune(&store, by_age(0), 99).await, 0, "a task went while it was told of");
        store.settle(&taken[0].id, Outcome::Delivered).await;
    }
    assert_eq!(prune(&store, by_age(0), 99).await, 1);
    assert!(left(&store).await.is_empty());
}

async fn news_that_were_given_up_do_not_keep_a_task(store: Kept) {
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

async fn a_forgotten_task_leaves_nothing_behind(store: Kept) {
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

async fn the_id_of_a_forgotten_task_is_free(store: Kept) {
    ended_at(&store, [1]).await;
    assert_eq!(prune(&store, by_number(0), 99).await, 1);
    let made = store.make(task("1").then(message("new"))).await;
    assert_eq!(made.seq.0, 2);
    assert_eq!(store.read("1", 0, 2).await[1].event, message("new"));
    assert!(store.take("one", 99).await.is_empty());
    assert_eq!(store.get("1").await.task().history.len(), 2);
}
