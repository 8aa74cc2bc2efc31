//! Idempotency keys in the store: a task that is found by its key can be read.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use attache_core::{Created, Idempotency, MemoryStore, NewTask, Owner, Store, TaskEvent, UsedKey};
use attache_protocol::{Message, Task, TaskId, TaskState, TaskStatus, Timestamp};
use futures::FutureExt;

/// A task that has ended and has a long text, so that storing it takes a while.
fn long_task(id: &str, key: &str) -> NewTask {
    let task = Task {
        id: TaskId::from(id),
        status: TaskStatus { state: TaskState::Completed, ..TaskStatus::default() },
        history: vec![Message::user("m", "x".repeat(300_000))],
        ..Task::default()
    };
    NewTask {
        owner: Owner::default(),
        events: vec![TaskEvent::Created(Arc::new(task))],
        now: Timestamp::UNIX_EPOCH,
        followed: false,
        lease_until: Timestamp::UNIX_EPOCH,
        idempotency: Some(Idempotency { key: key.to_owned(), fingerprint: [0; 32] }),
        push: None,
    }
}

/// The store in memory never waits.
fn at_once<T, E: std::fmt::Debug>(future: impl Future<Output = Result<T, E>>) -> T {
    future.now_or_never().expect("an answer at once").expect("success")
}

#[test]
fn a_key_is_found_only_when_its_task_is() {
    let store = MemoryStore::new();
    for number in 0..30 {
        let (begun, key) = (AtomicBool::new(false), number.to_string());
        thread::scope(|threads| {
            threads.spawn(|| {
                let task = long_task(&format!("first-{number}"), &key);
                begun.store(true, Ordering::SeqCst);
                at_once(store.create(task));
            });
            let task = long_task(&format!("second-{number}"), &key);
            while !begun.load(Ordering::SeqCst) {
                spin_loop();
            }
            (0..number * 200).for_each(|_| spin_loop());
            if let Created::KeyUsed(UsedKey { task: known, .. }) = at_once(store.create(task)) {
                assert!(at_once(store.load(&Owner::default(), &known)).is_some());
            }
        });
    }
}
