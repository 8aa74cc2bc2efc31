//! The places of processes: how many run at once, and which of those that wait for an answer make room for others.
//!
//! A process that asked a question keeps its place until the answer comes. If a turn waits for a place, one of these processes is stopped: its
//! answer then starts a new one. The process is the oldest one of the caller with the most, so that a caller with many questions does not
//! end the work of others.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_core::Owner;
use attache_protocol::TaskId;
use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::process::Process;

/// The places of the processes of a program, and the processes that wait for an answer.
#[derive(Clone)]
pub(super) struct Sessions {
    places: Arc<Semaphore>,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<TaskId, Entry>,
    /// How many turns of each caller wait for a place.
    starting: HashMap<Owner, usize>,
    /// How many processes are being stopped for turns that wait for a place.
    stopping: usize,
    /// Tells a process from a later one for the same task.
    next: u64,
}

struct Entry {
    owner: Owner,
    number: u64,
    process: Process,
}

/// Counts a turn that waits for a place.
struct Starting<'a> {
    table: &'a Mutex<Table>,
    owner: &'a Owner,
}

impl Sessions {
    /// At most so many processes run at once.
    pub(super) fn new(max_processes: usize) -> Self {
        let max = max_processes.min(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(max)), table: Arc::default() }
    }

    /// Waits for a place for another process.
    pub(super) async fn place(&self, owner: &Owner) -> Result<OwnedSemaphorePermit, AcquireError> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        let _starting = Starting::new(&self.table, owner);
        self.make_room();
        self.places.clone().acquire_owned().await
    }

    /// Keeps a process for the answer, until it ends by itself. With a limit, it is stopped after that time.
    pub(super) fn put(&self, task: TaskId, owner: Owner, process: Process, limit: Option<Duration>) {
        let ended = process.when_ended();
        let (number, replaced) = {
            let mut table = self.table.lock();
            table.next += 1;
            let number = table.next;
            (number, table.waiting.insert(task.clone(), Entry { owner, number, process }))
        };
        drop(replaced);
        let table = Arc::downgrade(&self.table);
        tokio::spawn(async move {
            let has_ended = tokio::select! {
                () = async {
                    match limit {
                        Some(limit) => tokio::time::sleep(limit).await,
                        None => std::future::pending().await,
                    }
                } => false,
                () = ended => true,
            };
            let Some(table) = table.upgrade() else { return };
            let expired = {
                let mut table = table.lock();
                let is_same = table.waiting.get(&task).is_some_and(|entry| entry.number == number);
                if is_same { table.waiting.remove(&task) } else { None }
            };
            // Without the process, the context is free for other tasks. The answer starts a new one.
            let Some(entry) = expired.filter(|_| !has_ended) else { return };
            entry.process.stop().await;
        });
        // Turns can have waited for a place since before this process asked.
        self.make_room();
    }

    /// The process that waits for the answer to its question, unless it has ended.
    pub(super) fn take(&self, task: &TaskId) -> Option<Process> {
        let entry = self.table.lock().waiting.remove(task)?;
        entry.process.is_running().then_some(entry.process)
    }

    /// Stops one waiting process for each turn that waits for a place.
    fn make_room(&self) {
        while let Some(process) = self.next_to_stop() {
            let sessions = self.clone();
            tokio::spawn(async move {
                process.stop().await;
                sessions.table.lock().stopping -= 1;
                // The process may have ended by itself before, so that its place was given away already.
                sessions.make_room();
            });
        }
    }

    fn next_to_stop(&self) -> Option<Process> {
        let mut table = self.table.lock();
        if table.starting.values().sum::<usize>() <= table.stopping {
            return None;
        }
        let running = table.waiting.iter().filter(|(_, entry)| entry.process.is_running());
        let task = chosen(running.map(|(task, entry)| (task, &entry.owner, entry.number)), &table.starting)?;
        let entry = table.waiting.remove(&task)?;
        table.stopping += 1;
        Some(entry.process)
    }
}

/// Which of the waiting processes is stopped: the oldest one of the caller that would have the most processes.
fn chosen<'a, K: Clone + 'a>(
    waiting: impl Iterator<Item = (&'a K, &'a Owner, u64)> + Clone,
    starting: &HashMap<Owner, usize>,
) -> Option<K> {
    let mut counts: HashMap<&Owner, usize> = starting.iter().map(|(owner, count)| (owner, *count)).collect();
    for (_, owner, _) in waiting.clone() {
        *counts.entry(owner).or_default() += 1;
    }
    let most = waiting.max_by_key(|(_, owner, number)| (counts.get(owner).copied(), Reverse(*number)));
    most.map(|(key, _, _)| key.clone())
}

impl<'a> Starting<'a> {
    fn new(table: &'a Mutex<Table>, owner: &'a Owner) -> Self {
        *table.lock().starting.entry(owner.clone()).or_default() += 1;
        Self { table, owner }
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        if let Some(count) = table.starting.get_mut(self.owner) {
            *count -= 1;
            if *count == 0 {
                table.starting.remove(self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_core::Principal;

    use super::*;

    fn owner(name: &str) -> Owner {
        Owner { principal: Principal::named(name), ..Owner::default() }
    }

    #[test]
    fn a_caller_with_many_questions_does_not_end_the_work_of_others() {
        let all = ["alice", "bob", "bob", "carol"].map(owner);
        let chosen = |waiting: &[usize], starting: &str| {
            let starting = HashMap::from([(owner(starting), 1)]);
            chosen(waiting.iter().map(|number| (number, &all[*number], *number as u64)), &starting)
        };
        assert_eq!(chosen(&[0, 1, 2, 3], "dave"), Some(1), "the oldest one of the caller with the most");
        assert_eq!(chosen(&[0, 2, 3], "dave"), Some(0), "the oldest one of all");
        assert_eq!(chosen(&[0, 2, 3], "carol"), Some(3), "a caller makes room for itself");
        assert_eq!(chosen(&[3], "dave"), Some(3), "one caller does not keep all places");
        assert_eq!(chosen(&[], "dave"), None);
    }
}
