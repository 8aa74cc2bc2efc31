//! Leases: a task has one turn at a time, and the lease of a crashed process expires.

use attache_core::{AppendError, Lease, RenewFailure};
use attache_protocol::{TaskId, TaskState};

use crate::support::{TestStore, at, id, message, more, status, task};

fn lost(name: &str) -> (TaskId, RenewFailure) {
    (id(name), RenewFailure::LeaseLost)
}

pub async fn a_new_task_cannot_be_claimed_until_its_lease_expires(store: TestStore) {
    store.make(task("t").lease(1_000)).await;
    assert_eq!(store.can_claim("t", 0, 2_000).await, None);
    assert_eq!(store.can_claim("t", 999, 2_000).await, None);
    assert!(store.can_claim("t", 1_000, 2_000).await.is_some());
    assert_eq!(store.can_claim("t", 1_999, 3_000).await, None);
    assert!(store.can_claim("t", 2_000, 3_000).await.is_some());
}

pub async fn a_released_task_can_be_claimed_at_once(store: TestStore) {
    let made = store.make(task("t")).await;
    store.release(&id("t"), made.lease).await.unwrap();
    let lease = store.can_claim("t", 0, 60_000).await.unwrap();
    assert_ne!(lease, made.lease);
    store.add("t", more(1, [message("x")]).by(lease)).await.unwrap();
}

pub async fn a_newer_lease_invalidates_the_older(store: TestStore) {
    let old = store.make(task("t").lease(0)).await.lease;
    let new = store.can_claim("t", 0, 1_000).await.unwrap();
    assert_ne!(old, new);
    let refused = store.add("t", more(1, [message("x")]).by(old)).await.unwrap_err();
    assert!(matches!(refused, AppendError::LeaseLost), "{refused}");
    // The older lease cannot change the newer one.
    store.release(&id("t"), old).await.unwrap();
    assert_eq!(store.can_claim("t", 999, 2_000).await, None);
    assert_eq!(store.renew(&[(id("t"), old)], at(9_000)).await.unwrap(), [lost("t")]);
    store.add("t", more(1, [message("x")]).by(new)).await.unwrap();
    assert!(store.can_claim("t", 1_000, 2_000).await.is_some());
}

pub async fn an_expired_lease_is_valid_until_the_task_is_claimed(store: TestStore) {
    let made = store.make(task("t").lease(0)).await;
    store.add("t", more(1, [message("x")]).by(made.lease).now(500)).await.unwrap();
    assert_eq!(store.renew(&[(id("t"), made.lease)], at(1_000)).await.unwrap(), []);
    assert_eq!(store.can_claim("t", 999, 2_000).await, None);
}

pub async fn a_released_lease_is_invalid(store: TestStore) {
    let made = store.make(task("t")).await;
    for _ in 0..2 {
        store.release(&id("t"), made.lease).await.unwrap();
    }
    let refused = store.add("t", more(1, [message("x")]).by(made.lease)).await.unwrap_err();
    assert!(matches!(refused, AppendError::LeaseLost), "{refused}");
    assert_eq!(store.renew(&[(id("t"), made.lease)], at(9_000)).await.unwrap(), [lost("t")]);
    assert!(store.can_claim("t", 0, 1_000).await.is_some());
}

pub async fn renewing_extends_a_lease(store: TestStore) {
    let (one, two) = (store.make(task("one").lease(1_000)).await, store.make(task("two").lease(1_000)).await);
    let leases = [(id("gone"), Lease(7)), (id("one"), one.lease), (id("two"), Lease(two.lease.0 + 1_000))];
    assert_eq!(store.renew(&leases, at(5_000)).await.unwrap(), [lost("gone"), lost("two")]);
    assert_eq!(store.can_claim("one", 4_999, 9_000).await, None);
    assert!(store.can_claim("one", 5_000, 9_000).await.is_some());
    assert!(store.can_claim("two", 1_000, 9_000).await.is_some(), "held by a lease that it never had");
}

pub async fn one_of_many_concurrent_claims_succeeds(store: TestStore) {
    store.make(task("t").lease(0)).await;
    let claims = (0..32).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.can_claim("t", 0, 1_000).await })
    });
    let mut given = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        given.extend(claim.await.unwrap());
    }
    assert_eq!(given.len(), 1);
    store.add("t", more(1, [message("x")]).by(given[0])).await.unwrap();
}

pub async fn a_task_that_has_ended_cannot_be_claimed(store: TestStore) {
    for (name, draft, state) in [
        ("born", task("born").state(TaskState::Completed).lease(0), TaskState::Completed),
        ("grown", task("grown").lease(0), TaskState::Completed),
        (
            "unseen",
            task("unseen").lease(0).unfollowed().then(status("unseen", TaskState::Failed, 1)),
            TaskState::Failed,
        ),
    ] {
        let made = store.make(draft).await;
        if name == "grown" {
            let end = [status(name, TaskState::Completed, 1)];
            store.add(name, more(1, end).by(made.lease)).await.unwrap();
        }
        let failures = store.renew(&[(id(name), made.lease)], at(9_000)).await.unwrap();
        assert_eq!(failures, [(id(name), RenewFailure::Ended(state))]);
        store.release(&id(name), made.lease).await.unwrap();
        assert_eq!(store.can_claim(name, 99_000, 100_000).await, None);
    }
}

pub async fn the_holder_of_a_lease_learns_that_the_task_was_ended_without_it(store: TestStore) {
    let (one, two) = (store.make(task("one")).await, store.make(task("two")).await);
    let leases = [(id("one"), one.lease), (id("two"), two.lease)];
    assert_eq!(store.renew(&leases, at(61_000)).await.unwrap(), []);
    store.add("one", more(1, [status("one", TaskState::Canceled, 1)])).await.unwrap();
    let canceled = [(id("one"), RenewFailure::Ended(TaskState::Canceled))];
    for _ in 0..2 {
        assert_eq!(store.renew(&leases, at(62_000)).await.unwrap(), canceled);
    }
    // The result is the same for a lease that never held the task.
    let other = [(id("one"), Lease(one.lease.0 + 1_000))];
    assert_eq!(store.renew(&other, at(63_000)).await.unwrap(), canceled);
    assert_eq!(store.can_claim("two", 61_999, 70_000).await, None, "the other lease was renewed");
}

pub async fn a_missing_task_cannot_be_claimed(store: TestStore) {
    assert_eq!(store.can_claim("t", 0, 1_000).await, None);
    assert_eq!(store.renew(&[(id("t"), Lease(1))], at(1_000)).await.unwrap(), [lost("t")]);
    store.release(&id("t"), Lease(1)).await.unwrap();
    assert!(store.find("t").await.is_none());
}

pub async fn an_append_without_a_lease_works_beside_a_lease(store: TestStore) {
    let made = store.make(task("t")).await;
    store.add("t", more(1, [message("x")])).await.unwrap();
    store.add("t", more(2, [message("y")]).by(made.lease)).await.unwrap();
    store.add("t", more(3, [status("t", TaskState::Canceled, 1)])).await.unwrap();
    let refused = store.add("t", more(4, [message("z")]).by(made.lease)).await.unwrap_err();
    assert!(matches!(refused, AppendError::Ended(TaskState::Canceled)), "{refused}");
}
