//! One task in memory: its log until it ends, then its final form.

use std::sync::Arc;

use attache_protocol::{ContextId, Task, TaskId, TaskState, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::id::Id;
use super::outbox::MemoryOutbox;
use crate::{
    AppendError, EndedTask, Entry, FoldError, Lease, NewWebhook, Owner, PutWebhook, RenewFailure, Seq,
    Snapshot, TailItem, TaskEvent, fold,
};

#[derive(Debug)]
pub(super) struct Cell {
    pub(super) owner: u32,
    pub(super) slot: u32,
    pub(super) context: Id,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    /// The entry of the task in the index.
    indexed: Option<IndexEntry>,
    /// Whether the task is in the batch that is indexed next.
    index_pending: bool,
    /// Whether the task may have webhooks.
    has_webhooks: bool,
}

/// The state and status time under which a task is indexed.
#[derive(Debug, Clone, Copy)]
pub(super) struct IndexEntry {
    pub(super) state: TaskState,
    pub(super) nanos: i64,
}

#[derive(Debug)]
enum Phase {
    Live(Box<Live>),
    Ended { seq: Seq, state: TaskState, nanos: i64, task: Arc<EndedTask>, log: Option<Box<[Arc<Entry>]>> },
}

#[derive(Debug)]
struct Live {
    task: Task,
    log: Vec<Arc<Entry>>,
    lease: Option<(Lease, Timestamp)>,
    grown: Arc<Notify>,
    /// Whether a stream has read the log, and may be resumed later.
    followed: bool,
}

/// The result of an append.
pub(super) struct Change {
    pub(super) seq: Seq,
    /// The task has a new status and must be added to the next batch of the index.
    pub(super) index: bool,
    /// The task has ended.
    pub(super) ended: bool,
    /// The task has ended, and its log is kept for streams that are resumed.
    pub(super) log_kept: bool,
    /// The task, if it has settled.
    pub(super) settled: Option<Snapshot>,
}

fn nanos(task: &Task) -> i64 {
    nanos_of(task.status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH))
}

/// A time in nanoseconds since 1970, limited to the range of the type.
pub(super) fn nanos_of(time: Timestamp) -> i64 {
    time.as_nanos().clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Checks whether events can be appended to a task that has not ended. Returns the error of the fold if not.
pub(super) fn fold_error(events: &[TaskEvent]) -> Option<FoldError> {
    let mut before_last = events.iter().rev().skip(1).filter_map(TaskEvent::state);
    if let Some(state) = before_last.find(|state| state.is_terminal()) {
        return Some(FoldError::Ended(state));
    }
    events.iter().any(|event| matches!(event, TaskEvent::Created(_))).then_some(FoldError::Exists)
}

impl Cell {
    /// A task whose log begins with `events`. The first event creates the task.
    pub(super) fn new(
        owner: u32,
        slot: u32,
        events: Vec<TaskEvent>,
        followed: bool,
        lease: (Lease, Timestamp),
        push: Option<(&MemoryOutbox, Timestamp)>,
    ) -> Result<(Self, Change), FoldError> {
        let seq = Seq::START.plus(events.len());
        let ended = events.last().and_then(TaskEvent::state).is_some_and(TaskState::is_terminal);
        // If the task has ended already and no stream reads it, its log is not kept and no event is copied.
        let log: Vec<_> = if ended && !followed && push.is_none() {
            Vec::new()
        } else {
            let entry =
                |(i, event): (usize, &TaskEvent)| Arc::new(Entry::new(Seq::START.plus(i + 1), event.clone()));
            events.iter().enumerate().map(entry).collect()
        };
        let mut events = events.into_iter();
        let mut task = match events.next() {
            Some(TaskEvent::Created(task)) => Arc::unwrap_or_clone(task),
            Some(TaskEvent::Message(_) | TaskEvent::Status(_) | TaskEvent::Artifact(_)) | None => {
                Task::default()
            }
        };
        for event in events {
            fold(&mut task, event)?;
        }
        if let Some((outbox, now)) = push {
            outbox.enqueue(&task.id, &log, now);
        }
        let context = Id::read(task.context_id.as_ref().map_or("", ContextId::as_str));
        let (phase, settled) = if ended {
            let (phase, task) = Phase::ended(seq, task, followed.then_some(log));
            (phase, Some(task))
        } else {
            let live = Live { task, log, lease: Some(lease), grown: Arc::default(), followed };
            let phase = Phase::Live(Box::new(live));
            let settled = phase.settled();
            (phase, settled)
        };
        let change = Change { seq, index: true, ended, log_kept: ended && followed, settled };
        let inner =
            Mutex::new(Inner { phase, indexed: None, index_pending: true, has_webhooks: push.is_some() });
        Ok((Self { owner, slot, context, inner }, change))
    }

    pub(super) fn append(
        &self,
        lease: Option<Lease>,
        after: Seq,
        events: Vec<TaskEvent>,
        push: Option<(Owner, NewWebhook)>,
        (outbox, now): (&MemoryOutbox, Timestamp),
    ) -> Result<Change, AppendError> {
        let mut inner = self.inner.lock();
        let has_webhooks = inner.has_webhooks || push.is_some();
        let live = match &mut inner.phase {
            Phase::Live(live) => live,
            Phase::Ended { state, .. } => return Err(AppendError::Ended(*state)),
        };
        if lease.is_some() && live.lease.map(|(held, _)| held) != lease {
            return Err(AppendError::LeaseLost);
        }
        let seq = Seq::START.plus(live.log.len());
        if seq != after {
            return Err(AppendError::Conflict(seq));
        }
        // All events or none: an event that the fold would reject is found before the first one is applied.
        match fold_error(&events) {
            Some(FoldError::Ended(state)) => return Err(AppendError::Ended(state)),
            Some(FoldError::Exists) => return Err(AppendError::Conflict(seq)),
            None => {}
        }
        if let Some((owner, new)) = push {
            match outbox.put(&live.task.id, owner, new) {
                PutWebhook::Stored => {}
                PutWebhook::LimitReached => return Err(AppendError::TooManyWebhooks),
            }
        }
        let mut restated = false;
        for event in events {
            restated |= event.state().is_some();
            let position = Seq::START.plus(live.log.len() + 1);
            live.log.push(Arc::new(Entry::new(position, event.clone())));
            match fold(&mut live.task, event) {
                Ok(()) => {}
                Err(FoldError::Ended(state)) => return Err(AppendError::Ended(state)),
                Err(FoldError::Exists) => return Err(AppendError::Conflict(seq)),
            }
        }
        if has_webhooks {
            outbox.enqueue(&live.task.id, &live.log[after.0 as usize..], now);
        }
        let seq = Seq::START.plus(live.log.len());
        let (grown, followed) = (live.grown.clone(), live.followed);
        let ended = live.task.status.state.is_terminal();
        let mut settled = None;
        if ended {
            let live = std::mem::replace(&mut inner.phase, Phase::placeholder());
            if let Phase::Live(live) = live {
                let Live { task, log, followed, .. } = *live;
                let (phase, task) = Phase::ended(seq, task, followed.then_some(log));
                (inner.phase, settled) = (phase, Some(task));
            }
        } else if restated {
            settled = inner.phase.settled();
        }
        inner.has_webhooks = has_webhooks;
        let index = restated && !inner.index_pending;
        inner.index_pending |= restated;
        drop(inner);
        grown.notify_waiters();
        Ok(Change { seq, index, ended, log_kept: ended && followed, settled })
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.inner.lock().phase.snapshot()
    }

    /// The task, if it has ended.
    pub(super) fn ended(&self) -> Option<Snapshot> {
        let inner = self.inner.lock();
        matches!(inner.phase, Phase::Ended { .. }).then(|| inner.phase.snapshot())
    }

    /// Marks that a stream reads the log.
    pub(super) fn follow(&self) {
        if let Phase::Live(live) = &mut self.inner.lock().phase {
            live.followed = true;
        }
    }

    /// The events after a position.
    pub(super) fn after(&self, seq: Seq) -> After {
        let skip = |log: &[Arc<Entry>]| log.get(seq.0 as usize..).unwrap_or_default().to_vec();
        match &self.inner.lock().phase {
            Phase::Live(live) => match skip(&live.log) {
                none if none.is_empty() => After::Wait(live.grown.clone()),
                entries => After::Items(TailItem::Entries(entries)),
            },
            Phase::Ended { seq: end, .. } if seq >= *end => After::End,
            Phase::Ended { log: Some(log), .. } => After::Items(TailItem::Entries(skip(log))),
            Phase::Ended { seq, state, task, log: None, .. } => {
                After::Items(TailItem::Reset(Snapshot::ended(*seq, *state, task.clone())))
            }
        }
    }

    /// Drops the events of a task that has ended.
    pub(super) fn forget_log(&self) {
        if let Phase::Ended { log, .. } = &mut self.inner.lock().phase {
            *log = None;
        }
    }

    /// Sets the new index entry. Returns the old and the new one.
    pub(super) fn reindex(&self) -> (Option<IndexEntry>, IndexEntry) {
        let mut inner = self.inner.lock();
        let new = match &inner.phase {
            Phase::Live(live) => IndexEntry { state: live.task.status.state, nanos: nanos(&live.task) },
            Phase::Ended { state, nanos, .. } => IndexEntry { state: *state, nanos: *nanos },
        };
        inner.index_pending = false;
        (inner.indexed.replace(new), new)
    }

    /// The entry of the task in the index.
    pub(super) fn indexed(&self) -> Option<IndexEntry> {
        self.inner.lock().indexed
    }

    pub(super) fn claim(&self, lease: Lease, now: Timestamp, until: Timestamp) -> bool {
        match &mut self.inner.lock().phase {
            Phase::Live(live) if live.lease.is_none_or(|(_, ends)| ends <= now) => {
                live.lease = Some((lease, until));
                true
            }
            Phase::Live(_) | Phase::Ended { .. } => false,
        }
    }

    pub(super) fn renew(&self, lease: Lease, until: Timestamp) -> Result<(), RenewFailure> {
        match &mut self.inner.lock().phase {
            Phase::Live(live) if live.lease.is_some_and(|(held, _)| held == lease) => {
                live.lease = Some((lease, until));
                Ok(())
            }
            Phase::Live(_) => Err(RenewFailure::LeaseLost),
            Phase::Ended { state, .. } => Err(RenewFailure::Ended(*state)),
        }
    }

    pub(super) fn release(&self, lease: Lease) {
        if let Phase::Live(live) = &mut self.inner.lock().phase
            && live.lease.is_some_and(|(held, _)| held == lease)
        {
            live.lease = None;
        }
    }

    /// Stores a webhook by `put` under the lock of the task, so that it receives all later events.
    pub(super) fn put_webhook(&self, put: impl FnOnce() -> PutWebhook) -> PutWebhook {
        let mut inner = self.inner.lock();
        inner.has_webhooks = true;
        put()
    }

    /// Whether the task is submitted or working, and has no lease or one that has expired.
    pub(super) fn is_abandoned(&self, now: Timestamp) -> bool {
        match &self.inner.lock().phase {
            Phase::Live(live) => {
                let due = matches!(live.task.status.state, TaskState::Submitted | TaskState::Working);
                due && live.lease.is_none_or(|(_, ends)| ends <= now)
            }
            Phase::Ended { .. } => false,
        }
    }

    /// Whether the task has not ended.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.inner.lock().phase, Phase::Live(_))
    }
}

/// What follows a position of the log.
pub(super) enum After {
    Items(TailItem),
    /// No event yet. The next one notifies this.
    Wait(Arc<Notify>),
    /// The task has ended.
    End,
}

impl Phase {
    /// The final form of a task, and its snapshot.
    fn ended(seq: Seq, task: Task, log: Option<Vec<Arc<Entry>>>) -> (Self, Snapshot) {
        let (state, nanos) = (task.status.state, nanos(&task));
        let (snapshot, task) = Snapshot::ending(seq, task);
        (Self::Ended { seq, state, nanos, task, log: log.map(Into::into) }, snapshot)
    }

    fn snapshot(&self) -> Snapshot {
        match self {
            Self::Live(live) => Snapshot::live(Seq::START.plus(live.log.len()), live.task.clone()),
            Self::Ended { seq, state, task, .. } => Snapshot::ended(*seq, *state, task.clone()),
        }
    }

    fn settled(&self) -> Option<Snapshot> {
        match self {
            Self::Live(live) if !live.task.status.state.is_settled() => None,
            Self::Live(_) | Self::Ended { .. } => Some(self.snapshot()),
        }
    }

    /// Replaces a phase while it is converted into the next one. It is never visible outside of the lock.
    fn placeholder() -> Self {
        let live = Live {
            task: Task { id: TaskId::default(), ..Task::default() },
            log: Vec::new(),
            lease: None,
            grown: Arc::default(),
            followed: false,
        };
        Self::Live(Box::new(live))
    }
}
