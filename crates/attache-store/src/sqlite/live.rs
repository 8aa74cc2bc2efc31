//! Live tasks in memory: their current state, their latest events and their lease.
//!
//! Everything here is also in the file. A task is added when it is created or first read. It is removed when it ends, or when it
//! is idle and there are too many others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use attache_core::{Entry, Lease, Owner, RenewFailure, Seq, Snapshot, TaskEvent, fold};
use attache_protocol::{Task, TaskId, TaskState, Timestamp};
use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};

use super::rows;

/// The maximum number of a task's latest events in memory, and their maximum size. Readers of the log get them without a query.
const WINDOW: usize = 1024;
const WINDOW_BYTES: usize = 1 << 20;

/// After how many bytes of events a snapshot is written, so that loading a task does not read its whole log.
const SNAPSHOT_FROM: usize = 64 * 1024;

/// A task that has not ended, or has just ended.
pub(super) struct LiveTask {
    pub(super) id: TaskId,
    pub(super) row: i64,
    pub(super) owner: Owner,
    /// Allows one append at a time: each append is checked against the result of the one before.
    pub(super) turn: Arc<Semaphore>,
    /// Whether the task may have webhooks.
    pub(super) may_have_webhooks: AtomicBool,
    used: AtomicU64,
    inner: Mutex<Inner>,
    pub(super) grown: Notify,
}

pub(super) struct Inner {
    pub(super) phase: Phase,
    pub(super) seq: Seq,
    pub(super) task: Task,
    pub(super) lease: Option<(Lease, Timestamp)>,
    window: VecDeque<(Arc<Entry>, usize)>,
    window_bytes: usize,
    /// The bytes of events since the latest snapshot, and the size of that snapshot, if there is one.
    pub(super) unsaved: usize,
    pub(super) saved: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The writer is creating it. For readers it does not exist yet.
    Creating,
    Live,
    Ended(TaskState),
}

/// The events after a position of the log, as far as they are in memory.
pub(super) enum After {
    Entries(Vec<Arc<Entry>>),
    /// The next event is no longer in memory.
    NotInMemory,
    /// There is no next event yet.
    Wait,
    End,
}

impl LiveTask {
    pub(super) fn new(id: TaskId, row: i64, owner: Owner, phase: Phase, seq: Seq, task: Task) -> Self {
        let inner = Inner {
            phase,
            seq,
            task,
            lease: None,
            window: VecDeque::new(),
            window_bytes: 0,
            unsaved: 0,
            saved: None,
        };
        Self {
            id,
            row,
            owner,
            turn: Arc::new(Semaphore::new(1)),
            may_have_webhooks: AtomicBool::new(false),
            used: AtomicU64::new(0),
            inner: Mutex::new(inner),
            grown: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// The current task. `None` if it has ended or does not exist yet.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        let inner = self.inner.lock();
        (inner.phase == Phase::Live).then(|| Snapshot::live(inner.seq, inner.task.clone()))
    }

    pub(super) fn after(&self, seq: Seq) -> After {
        let inner = self.inner.lock();
        if seq < inner.seq {
            let first = inner.window.front().map_or(Seq(u64::MAX), |(entry, _)| entry.seq);
            return match (seq.0 + 1).checked_sub(first.0) {
                Some(skip) => {
                    let rest = inner.window.range(skip as usize..);
                    After::Entries(rest.map(|(entry, _)| entry.clone()).collect())
                }
                None => After::NotInMemory,
            };
        }
        match inner.phase {
            Phase::Ended(_) => After::End,
            Phase::Creating | Phase::Live => After::Wait,
        }
    }

    pub(super) fn claim(&self, lease: Lease, now: Timestamp, until: Timestamp) -> bool {
        let mut inner = self.inner.lock();
        let free = inner.phase == Phase::Live && inner.lease.is_none_or(|(_, ends)| ends <= now);
        if free {
            inner.lease = Some((lease, until));
        }
        free
    }

    /// Changes when a lease ends, or removes it, if the task is held under it.
    pub(super) fn set_lease(&self, lease: Lease, until: Option<Timestamp>) -> Result<(), RenewFailure> {
        let mut inner = self.inner.lock();
        if let Phase::Ended(state) = inner.phase {
            return Err(RenewFailure::Ended(state));
        }
        if inner.lease.is_none_or(|(held, _)| held != lease) {
            return Err(RenewFailure::LeaseLost);
        }
        inner.lease = until.map(|until| (lease, until));
        Ok(())
    }

    /// Whether the task is submitted or working and has no valid lease.
    pub(super) fn is_abandoned(&self, now: Timestamp) -> bool {
        let inner = self.inner.lock();
        let due = matches!(inner.task.status.state, TaskState::Submitted | TaskState::Working);
        inner.phase == Phase::Live && due && inner.lease.is_none_or(|(_, ends)| ends <= now)
    }
}

impl Inner {
    /// The state and status time under which the indexes list the task.
    pub(super) fn index_key(&self) -> (TaskState, i64) {
        (self.task.status.state, rows::status_nanos(&self.task))
    }

    /// Adds events that were written to the window of latest events. `bytes` is their size.
    pub(super) fn add_to_window(&mut self, events: &[TaskEvent], bytes: usize) {
        let each = bytes / events.len().max(1);
        for event in events {
            self.seq = self.seq.plus(1);
            self.window.push_back((Arc::new(Entry::new(self.seq, event.clone())), each));
            self.window_bytes += each;
        }
        while self.window.len() > WINDOW || self.window_bytes > WINDOW_BYTES && self.window.len() > 1 {
            let Some((_, size)) = self.window.pop_front() else { break };
            self.window_bytes -= size;
        }
        self.unsaved += bytes;
    }

    /// Applies events that were written.
    pub(super) fn apply(&mut self, events: Vec<TaskEvent>) {
        for event in events {
            if let Err(error) = fold(&mut self.task, event) {
                tracing::error!(task = %self.task.id, %error, "an event that was written does not fit the task");
            }
        }
    }

    /// Marks the task as ended, and frees its content.
    pub(super) fn end(&mut self, state: TaskState) {
        self.phase = Phase::Ended(state);
        self.task = Task::default();
        self.lease = None;
    }

    /// The task as JSON, if a new snapshot is due. A snapshot is due when the log has grown by the size of the last one, so that the
    /// cost of all snapshots stays in proportion to the log.
    pub(super) fn overdue_snapshot(&self) -> Option<Vec<u8>> {
        if self.unsaved < SNAPSHOT_FROM.max(self.saved.unwrap_or(0)) {
            return None;
        }
        let mut body = Vec::with_capacity(self.saved.unwrap_or(0) + self.unsaved);
        match attache_protocol::json::write(&mut body, &self.task) {
            Ok(()) => Some(body),
            Err(error) => {
                tracing::error!(task = %self.task.id, %error, "a task could not be written as JSON");
                None
            }
        }
    }
}

const SHARDS: usize = 64;

/// All live tasks in memory.
pub(super) struct LiveTasks {
    shards: Vec<Mutex<Shard>>,
    /// The number of tasks in a shard from which on idle tasks are evicted.
    capacity: usize,
    clock: AtomicU64,
}

#[derive(Default)]
struct Shard {
    tasks: HashMap<TaskId, Arc<LiveTask>, RandomState>,
    /// The number of removals. A reader that loads a task from the file compares it before and after: a removed task can be newer than
    /// the copy that was read.
    removals: u64,
}

impl LiveTasks {
    pub(super) fn new(capacity: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, capacity: capacity.div_ceil(SHARDS), clock: AtomicU64::new(0) }
    }

    /// The last characters of an id are random, which spreads the tasks over the shards.
    fn shard(&self, task: &TaskId) -> &Mutex<Shard> {
        let last = task.as_str().bytes().rev().take(4);
        let mix = last.fold(0usize, |mix, byte| mix.wrapping_mul(31) + usize::from(byte));
        &self.shards[mix % SHARDS]
    }

    fn touch(&self, live: &LiveTask) {
        live.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(super) fn get(&self, task: &TaskId) -> Option<Arc<LiveTask>> {
        let live = self.shard(task).lock().tasks.get(task).cloned()?;
        self.touch(&live);
        Some(live)
    }

    /// The number of removals, for [`add_if_unchanged`](Self::add_if_unchanged).
    pub(super) fn removals(&self, task: &TaskId) -> u64 {
        self.shard(task).lock().removals
    }

    /// Adds a task that was read from the file. Returns the task in memory if another reader was faster, and `None` if the copy may be
    /// outdated.
    pub(super) fn add_if_unchanged(&self, live: LiveTask, removals: u64) -> Option<Arc<LiveTask>> {
        let mut shard = self.shard(&live.id).lock();
        if let Some(known) = shard.tasks.get(&live.id) {
            return Some(known.clone());
        }
        if shard.removals != removals {
            return None;
        }
        let live = Arc::new(live);
        self.touch(&live);
        shard.tasks.insert(live.id.clone(), live.clone());
        self.evict_idle(&mut shard);
        Some(live)
    }

    pub(super) fn add(&self, live: &Arc<LiveTask>) {
        self.touch(live);
        let mut shard = self.shard(&live.id).lock();
        shard.tasks.insert(live.id.clone(), live.clone());
        self.evict_idle(&mut shard);
    }

    pub(super) fn remove(&self, live: &LiveTask) {
        let mut shard = self.shard(&live.id).lock();
        shard.tasks.remove(&live.id);
        shard.removals += 1;
    }

    /// Evicts the least recently used tasks that have no lease, no reader and no running append.
    fn evict_idle(&self, shard: &mut Shard) {
        if shard.tasks.len() <= self.capacity {
            return;
        }
        let idle = shard.tasks.values().filter(|live| {
            // A new reference is only made under the lock of the shard, which is held here. So a count of 1 stays 1.
            Arc::strong_count(live) == 1 && live.turn.available_permits() == 1 && {
                let inner = live.lock();
                inner.phase == Phase::Live && inner.lease.is_none()
            }
        });
        let mut idle: Vec<_> =
            idle.map(|live| (live.used.load(Ordering::Relaxed), live.id.clone())).collect();
        idle.sort_unstable_by_key(|(used, _)| *used);
        let surplus = shard.tasks.len() - self.capacity + self.capacity / 4;
        for (_, id) in idle.into_iter().take(surplus) {
            shard.tasks.remove(&id);
            shard.removals += 1;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().tasks.len()).sum()
    }
}
