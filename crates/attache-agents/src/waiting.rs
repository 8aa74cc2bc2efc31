//! Work that waits for an answer of the caller, by its task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_protocol::TaskId;
use parking_lot::Mutex;

/// The waiting work. Cheap to clone: all clones are one table.
pub(crate) struct Waiting<T>(Arc<Mutex<Table<T>>>);

struct Table<T> {
    by_task: HashMap<TaskId, (u64, T)>,
    /// Tells work from later work of the same task.
    next: u64,
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
    /// Keeps work for the answer. After the time limit it is given to `expire` instead. When it is `gone`, because what it needs has
    /// ended, it is dropped: the answer cannot continue it.
    pub(crate) fn put(
        &self,
        task: TaskId,
        work: T,
        limit: Duration,
        gone: impl Future<Output = ()> + Send + 'static,
        expire: impl FnOnce(T) + Send + 'static,
    ) {
        let number = {
            let mut table = self.0.lock();
            table.next += 1;
            let number = table.next;
            table.by_task.insert(task.clone(), (number, work));
            number
        };
        let table = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let is_gone = tokio::select! {
                () = tokio::time::sleep(limit) => false,
                () = gone => true,
            };
            let Some(table) = table.upgrade() else { return };
            let expired = {
                let mut table = table.lock();
                let is_same = table.by_task.get(&task).is_some_and(|(other, _)| *other == number);
                if is_same { table.by_task.remove(&task) } else { None }
            };
            match expired {
                Some((_, work)) if !is_gone => expire(work),
                Some(_) | None => {}
            }
        });
    }

    /// The work that waits for this answer.
    pub(crate) fn take(&self, task: &TaskId) -> Option<T> {
        self.0.lock().by_task.remove(task).map(|(_, work)| work)
    }
}
