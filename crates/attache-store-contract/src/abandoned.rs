//! Abandoned tasks: submitted or working, and without a valid lease.

use std::collections::BTreeSet;

use attache_core::Owner;
use attache_protocol::TaskState;

use crate::support::{TestStore, assert_same, at, id, message, more, named, status, task};

async fn left(store: &TestStore, now: i64) -> BTreeSet<String> {
    let left = store.abandoned(None, at(now), 100).await.unwrap();
    left.iter().map(|left| left.task.task().id.as_str().to_owned()).collect()
}

pub async fn a_task_is_abandoned_when_its_lease_has_expired(store: TestStore) {
    let made = store.make(task("t").lease(1_000)).await;
    assert!(left(&store, 999).await.is_empty());
    assert_eq!(left(&store, 1_000).await, ["t".to_owned()].into());
    store.renew(&[(id("t"), made.lease)], at(5_000)).await.unwrap();
    assert!(left(&store, 4_999).await.is_empty());
    assert_eq!(left(&store, 5_000).await, ["t".to_owned()].into());
}

pub async fn a_working_task_whose_lease_was_released_is_abandoned(store: TestStore) {
    let made = store.make(task("t")).await;
    assert!(left(&store, 0).await.is_empty());
    store.release(&id("t"), made.lease).await.unwrap();
    assert_eq!(left(&store, 0).await, ["t".to_owned()].into());
}

pub async fn only_submitted_and_working_tasks_are_abandoned(store: TestStore) {
    for state in TaskState::ALL.iter().copied() {
        store.make(task(&format!("born {state}")).state(state).lease(0)).await;
        let name = format!("grown {state}");
        store.make(task(&name).lease(0)).await;
        store.add(&name, more(1, [status(&name, state, 1)])).await.unwrap();
    }
    let expected = [TaskState::Submitted, TaskState::Working];
    let expected = expected.iter().flat_map(|state| [format!("born {state}"), format!("grown {state}")]);
    assert_eq!(left(&store, 9).await, expected.collect());
}

pub async fn a_task_that_resumes_without_a_lease_is_abandoned_again(store: TestStore) {
    let made = store.make(task("t")).await;
    store.add("t", more(1, [status("t", TaskState::InputRequired, 1)]).by(made.lease)).await.unwrap();
    store.release(&id("t"), made.lease).await.unwrap();
    assert!(left(&store, 9).await.is_empty());
    store.add("t", more(2, [status("t", TaskState::Working, 2), message("!")])).await.unwrap();
    assert_eq!(left(&store, 9).await, ["t".to_owned()].into());
    store.add("t", more(4, [status("t", TaskState::Canceled, 3)])).await.unwrap();
    assert!(left(&store, 9).await.is_empty());
}

pub async fn a_claimed_task_is_no_longer_abandoned(store: TestStore) {
    store.make(task("one").lease(0)).await;
    store.make(task("two").lease(0)).await;
    assert_eq!(left(&store, 0).await.len(), 2);
    store.can_claim("one", 0, 1_000).await.unwrap();
    assert_eq!(left(&store, 0).await, ["two".to_owned()].into());
    assert_eq!(left(&store, 1_000).await.len(), 2);
}

pub async fn an_abandoned_task_has_its_owner_and_its_last_state(store: TestStore) {
    for (name, owner) in [("one", Owner::default()), ("two", named("ann"))] {
        store.make(task(name).of(&owner).lease(0).then(message("more"))).await;
        store.add(name, more(2, [message("and more")])).await.unwrap();
    }
    for found in store.abandoned(None, at(0), 9).await.unwrap() {
        let expected = if found.task.task().id == id("one") { Owner::default() } else { named("ann") };
        assert_eq!(found.owner, expected);
        let now = store.load(&found.owner, &found.task.task().id).await.unwrap().unwrap();
        assert_same(&found.task, &now);
    }
}

pub async fn abandoned_tasks_are_limited_in_number(store: TestStore) {
    for number in 0..10 {
        // Tasks with a lease do not count towards the limit.
        store.make(task(&format!("held {number}"))).await;
        store.make(task(&number.to_string()).lease(0)).await;
    }
    for (limit, count) in [(0, 0), (1, 1), (7, 7), (10, 10), (99, 10)] {
        assert_eq!(store.abandoned(None, at(0), limit).await.unwrap().len(), count);
    }
    let mut seen = BTreeSet::new();
    for _ in 0..10 {
        let name = store.abandoned(None, at(0), 1).await.unwrap()[0].task.task().id.as_str().to_owned();
        store.can_claim(&name, 0, 1_000).await.unwrap();
        seen.insert(name);
    }
    assert_eq!(seen.len(), 10);
    assert!(store.abandoned(None, at(0), 1).await.unwrap().is_empty());
}
