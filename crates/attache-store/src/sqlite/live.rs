//! Tasks that have not ended, in memory: what they have become, their latest events, and who may run their turn.
//!
//! What is here has been written. A task comes here when it is created or first asked for, and goes when it ends, or when
//! nobody has any use for it and there are many others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use attache_core::{Entry, Lease, Owner, RenewFailure, Seq, Snapshot, TaskEvent, fold};
use attache_protocol::{Task, TaskId, TaskState, Timestamp};
use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};

use super::rows;

/// How many events, and about how many bytes of them, are kept at hand for those who follow a task.
const WINDOW: usize = 1024;
const WINDOW_BYTES: usize = 1 << 20;

/// From how many bytes of events on a snapshot is written, so that opening the task is not a replay of its life.
const SNAPSHOT_FROM: usize = 64 * 1024;

/// A task that has not ended, or has just done so.
pub(super) struct Live {
    pub(super) id: TaskId,
    pub(super) row: i64,
    pub(super) owner: Owner,
    /// Appends happen one at a time: each is checked against what the one before left behind.
    pub(super) turn: Arc<Semaphore>,
    /// Whether the task may have webhooks.
    pub(super) hooked: AtomicBool,
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
    /// How many bytes of events the latest snapshot lacks, and how large it is; nothing if there is none.
    pub(super) unsaved: usize,
    pub(super) saved: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Being created; for everyone else it does not exist yet.
    Unborn,
    Live,
    Ended(TaskState),
}

/// What comes after a position in a log.
pub(super) enum After {
    Entries(Vec<Arc<Entry>>),
    /// What was asked for is not at hand any more.
    Behind,
    /// Nothing yet.
    Wait,
    End,
}

impl Live {
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
            hooked: AtomicBool::new(false),
            used: AtomicU64::new(0),
            inner: Mutex::new(inner),
            grown: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// The task as it is; nothing if it has ended or does not exist yet.
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
                None => After::Behind,
            };
        }
        match inner.phase {
            Phase::Ended(_) => After::End,
            Phase::Unborn | Phase::Live => After::Wait,
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

    /// Whether nobody who is believed to be alive works on the task, though somebody should.
    pub(super) fn is_abandoned(&self, now: Timestamp) -> bool {
        let inner = self.inner.lock();
        let due = matches!(inner.task.status.state, TaskState::Submitted | TaskState::Working);
        inner.phase == Phase::Live && due && inner.lease.is_none_or(|(_, ends)| ends <= now)
    }
}

impl Inner {
    /// State and status time, under which the task is filed.
    pub(super) fn filed(&self) -> (TaskState, i64) {
        (self.task.status.state, rows::status_nanos(&self.task))
    }

    /// Adds events that were written, `bytes` of them, to what is at hand.
    pub(super) fn remember(&mut self, events: &[TaskEvent], bytes: usize) {
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
                tracing::error!(task = %self.task.id, %error, "an event that was written cannot have happened");
            }
        }
    }

    /// Lets go of what a task that has ended needs no more.
    pub(super) fn end(&mut self, state: TaskState) {
        self.phase = Phase::Ended(state);
        self.task = Task::default();
        self.lease = None;
    }

    /// The task, if it has grown so much since the last snapshot that it is worth another: the cost of all snapshots together
    /// stays in proportion to what was appended.
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

/// The tasks that are here.
pub(super) struct LiveTasks {
    shards: Vec<Mutex<Shard>>,
    /// How many a shard has before those that nobody needs are let go.
    roomy: usize,
    clock: AtomicU64,
}

#[derive(Default)]
struct Shard {
    tasks: HashMap<TaskId, Arc<Live>, RandomState>,
    /// How many have gone. Whoever reads a task from the file makes sure that none has gone meanwhile: it may have been this
    /// one, further on than what was read.
    gone: u64,
}

impl LiveTasks {
    pub(super) fn new(roomy: usize) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self { shards, roomy: roomy.div_ceil(SHARDS), clock: AtomicU64::new(0) }
    }

    /// Ids end in random characters, which are spread well enough for choosing a shard.
    fn shard(&self, task: &TaskId) -> &Mutex<Shard> {
        let last = task.as_str().bytes().rev().take(4);
        let mix = last.fold(0usize, |mix, byte| mix.wrapping_mul(31) + usize::from(byte));
        &self.shards[mix % SHARDS]
    }

    fn touch(&self, live: &Live) {
        live.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(super) fn get(&self, task: &TaskId) -> Option<Arc<Live>> {
        let live = self.shard(task).lock().tasks.get(task).cloned()?;
        self.touch(&live);
        Some(live)
    }

    /// Where a shard stands, for [`add_if_unchanged`](Self::add_if_unchanged).
    pub(super) fn mark(&self, task: &TaskId) -> u64 {
        self.shard(task).lock().gone
    }

    /// Adds a task that was read from the file, unless it has come here meanwhile: then that one comes back. Nothing if what
    /// was read may be outdated.
    pub(super) fn add_if_unchanged(&self, live: Live, mark: u64) -> Option<Arc<Live>> {
        let mut shard = self.shard(&live.id).lock();
        if let Some(known) = shard.tasks.get(&live.id) {
            return Some(known.clone());
        }
        if shard.gone != mark {
            return None;
        }
        let live = Arc::new(live);
        self.touch(&live);
        shard.tasks.insert(live.id.clone(), live.clone());
        self.make_room(&mut shard);
        Some(live)
    }

    pub(super) fn add(&self, live: &Arc<Live>) {
        self.touch(live);
        let mut shard = self.shard(&live.id).lock();
        shard.tasks.insert(live.id.clone(), live.clone());
        self.make_room(&mut shard);
    }

    pub(super) fn remove(&self, live: &Live) {
        let mut shard = self.shard(&live.id).lock();
        shard.tasks.remove(&live.id);
        shard.gone += 1;
    }

    /// Lets go of those that were not used for longest, which nobody holds and whose turn nobody runs.
    fn make_room(&self, shard: &mut Shard) {
        if shard.tasks.len() <= self.roomy {
            return;
        }
        let idle = shard.tasks.values().filter(|live| {
            // Whoever holds it got it under the lock that is held now.
            Arc::strong_count(live) == 1 && live.turn.available_permits() == 1 && {
                let inner = live.lock();
                inner.phase == Phase::Live && inner.lease.is_none()
            }
        });
        let mut idle: Vec<_> =
            idle.map(|live| (live.used.load(Ordering::Relaxed), live.id.clone())).collect();
        idle.sort_unstable_by_key(|(used, _)| *used);
        let surplus = shard.tasks.len() - self.roomy + self.roomy / 4;
        for (_, id) in idle.into_iter().take(surplus) {
            shard.tasks.remove(&id);
            shard.gone += 1;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().tasks.len()).sum()
    }
}
