//! Work that waits for an answer of the caller, by its task.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use attache_protocol::TaskId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The waiting work. Cheap to clone: all clones are one table.
pub(crate) struct Waiting<T>(Arc<Mutex<Table<T>>>);

struct Table<T> {
    by_task: HashMap<TaskId, Entry<T>>,
    /// Tells work from later work of the same task.
    next: u64,
}

struct Entry<T> {
    number: u64,
    work: T,
    /// Ends the background task that waits until the work is gone.
    _watch: Option<oneshot::Sender<()>>,
}

impl<T> Clone for Waiting<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Table { by_task: HashMap::new(), next: 0 })))
    }
}

impl<T: Send + 'static> Waiting<T> {
    /// Keeps work for the answer.
    pub(crate) fn put(&self, task: TaskId, work: T) {
        self.insert(task, work, None);
    }

    /// Keeps work for the answer. When it is `gone`, because what it needs has ended, it is dropped: the answer cannot continue it.
    pub(crate) fn put_until(&self, task: TaskId, work: T, gone: impl Future<Output = ()> + Send + 'static) {
        let (watch, taken) = oneshot::channel();
        let number = self.insert(task.clone(), work, Some(watch));
        let table = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::select! {
                () = gone => {}
                _ = taken => return,
            }
            let Some(table) = table.upgrade() else { return };
            let ended = {
                let mut table = table.lock();
                let is_same = table.by_task.get(&task).is_some_and(|entry| entry.number == number);
                if is_same { table.by_task.remove(&task) } else { None }
            };
            // Outside of the lock.
            drop(ended);
        });
    }

    fn insert(&self, task: TaskId, work: T, watch: Option<oneshot::Sender<()>>) -> u64 {
        let mut table = self.0.lock();
        table.next += 1;
        let number = table.next;
        let replaced = table.by_task.insert(task, Entry { number, work, _watch: watch });
        drop(table);
        drop(replaced);
        number
    }

    /// Takes out work until at most `max` is left: of the caller with the most waiting work, that which has waited longest. So a caller
    /// with much work takes the place of its own, and not of others.
    pub(crate) fn take_beyond<C: Eq + Hash>(&self, max: usize, caller: impl Fn(&T) -> &C) -> Vec<T> {
        let mut table = self.0.lock();
        let mut taken = Vec::new();
        while table.by_task.len() > max {
            let mut counts = HashMap::new();
            for entry in table.by_task.values() {
                *counts.entry(caller(&entry.work)).or_insert(0_usize) += 1;
            }
            let order = |entry: &Entry<T>| (Reverse(counts.get(caller(&entry.work)).copied()), entry.number);
            let next = table.by_task.iter().min_by_key(|(_, entry)| order(entry));
            let Some(task) = next.map(|(task, _)| task.clone()) else { break };
            taken.extend(table.by_task.remove(&task).map(|entry| entry.work));
        }
        taken
    }

    /// The work that waits for this answer.
    pub(crate) fn take(&self, task: &TaskId) -> Option<T> {
        self.0.lock().by_task.remove(task).map(|entry| entry.work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_with_much_work_takes_the_place_of_its_own() {
        let waiting = Waiting::default();
        waiting.put("b1".into(), ("bob", 1));
        for number in 1..=5 {
            waiting.put(format!("a{number}").into(), ("alice", number));
        }
        waiting.put("c1".into(), ("carol", 1));
        let taken = waiting.take_beyond(4, |(caller, _)| caller);
        assert_eq!(taken, [("alice", 1), ("alice", 2), ("alice", 3)]);
        assert_eq!(waiting.take_beyond(1, |(caller, _)| caller), [("alice", 4), ("bob", 1), ("alice", 5)]);
        assert_eq!(waiting.take(&"c1".into()), Some(("carol", 1)));
    }
}
