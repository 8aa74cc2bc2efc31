//! One task in memory: its log while it lives, its final form afterwards.

use std::sync::Arc;

use attache_protocol::{ContextId, Task, TaskId, TaskState, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::id::Id;
use super::outbox::MemoryOutbox;
use crate::{
    AppendError, Ended, Entry, FoldError, Lease, NewWebhook, Owner, PutWebhook, RenewFailure, Seq, Snapshot,
    TailItem, TaskEvent, fold,
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
    /// Where the task is filed, and whether it waits to be filed anew.
    filed: Option<Filed>,
    waits: bool,
    /// Whether the task may have webhooks.
    hooked: bool,
}

/// The state and the time of it under which a task is filed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filed {
    pub(super) state: TaskState,
    pub(super) nanos: i64,
}

#[derive(Debug)]
enum Phase {
    Live(Box<Live>),
    Ended { seq: Seq, state: TaskState, nanos: i64, task: Arc<Ended>, log: Option<Box<[Arc<Entry>]>> },
}

#[derive(Debug)]
struct Live {
    task: Task,
    log: Vec<Arc<Entry>>,
    lease: Option<(Lease, Timestamp)>,
    grown: Arc<Notify>,
    /// Whether anyone has read the log, and may come back for the rest of it.
    followed: bool,
}

/// What an append changed.
pub(super) struct Change {
    pub(super) seq: Seq,
    /// The task has a new status and does not yet wait to be filed.
    pub(super) file: bool,
    /// The task has ended.
    pub(super) ended: bool,
    /// The task has ended, and its readers may still want its log.
    pub(super) log_kept: bool,
    /// The task, if it has settled.
    pub(super) settled: Option<Snapshot>,
}

fn nanos(task: &Task) -> i64 {
    nanos_of(task.status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH))
}

/// A point in time in nanoseconds since 1970, brought into the years that fit.
pub(super) fn nanos_of(time: Timestamp) -> i64 {
    time.as_nanos().clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Why events cannot follow each other on a task that has not ended, if they cannot.
pub(super) fn impossible(events: &[TaskEvent]) -> Option<FoldError> {
    let mut before_last = events.iter().rev().skip(1).filter_map(TaskEvent::state);
    if let Some(state) = before_last.find(|state| state.is_terminal()) {
        return Some(FoldError::Ended(state));
    }
    events.iter().any(|event| matches!(event, TaskEvent::Created(_))).then_some(FoldError::Exists)
}

impl Cell {
    /// A task whose log begins with `events`, the first of which creates it.
    pub(super) fn new(
        owner: u32,
        slot: u32,
        events: Vec<TaskEvent>,
        followed: bool,
        lease: (Lease, Timestamp),
        tell: Option<(&MemoryOutbox, Timestamp)>,
    ) -> Result<(Self, Change), FoldError> {
        let seq = Seq::START.plus(events.len());
        let ended = events.last().and_then(TaskEvent::state).is_some_and(TaskState::is_terminal);
        // The log of a task that comes into being ended is not kept if nobody reads it: then nothing is copied.
        let log: Vec<_> = if ended && !followed && tell.is_none() {
            Vec::new()
        } else {
            let place =
                |(i, event): (usize, &TaskEvent)| Arc::new(Entry::new(Seq::START.plus(i + 1), event.clone()));
            events.iter().enumerate().map(place).collect()
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
        if let Some((outbox, now)) = tell {
            outbox.tell(&task.id, &log, now);
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
        let change = Change { seq, file: true, ended, log_kept: ended && followed, settled };
        let inner = Mutex::new(Inner { phase, filed: None, waits: true, hooked: tell.is_some() });
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
        let hooked = inner.hooked || push.is_some();
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
        // All or none: what the fold would refuse halfway is refused before it begins.
        match impossible(&events) {
            Some(FoldError::Ended(state)) => return Err(AppendError::Ended(state)),
            Some(FoldError::Exists) => return Err(AppendError::Conflict(seq)),
            None => {}
        }
        if let Some((owner, new)) = push {
            match outbox.put(&live.task.id, owner, new) {
                PutWebhook::Kept => {}
                PutWebhook::LimitReached => return Err(AppendError::TooManyWebhooks),
            }
        }
        let mut restated = false;
        for event in events {
            restated |= event.state().is_some();
            let place = Seq::START.plus(live.log.len() + 1);
            live.log.push(Arc::new(Entry::new(place, event.clone())));
            match fold(&mut live.task, event) {
                Ok(()) => {}
                Err(FoldError::Ended(state)) => return Err(AppendError::Ended(state)),
                Err(FoldError::Exists) => return Err(AppendError::Conflict(seq)),
            }
        }
        if hooked {
            outbox.tell(&live.task.id, &live.log[after.0 as usize..], now);
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
        inner.hooked = hooked;
        let file = restated && !inner.waits;
        inner.waits |= restated;
        drop(inner);
        grown.notify_waiters();
        Ok(Change { seq, file, ended, log_kept: ended && followed, settled })
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.inner.lock().phase.snapshot()
    }

    /// The task, if it has ended.
    pub(super) fn ended(&self) -> Option<Snapshot> {
        let inner = self.inner.lock();
        matches!(inner.phase, Phase::Ended { .. }).then(|| inner.phase.snapshot())
    }

    /// Takes note that someone reads the log.
    pub(super) fn follow(&self) {
        if let Phase::Live(live) = &mut self.inner.lock().phase {
            live.followed = true;
        }
    }

    /// What comes after a position: events, or a wait for them, or nothing more.
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

    /// Lets go of the events of a task that has ended.
    pub(super) fn forget_log(&self) {
        if let Phase::Ended { log, .. } = &mut self.inner.lock().phase {
            *log = None;
        }
    }

    /// Where the task was filed, and where it belongs now.
    pub(super) fn refile(&self) -> (Option<Filed>, Filed) {
        let mut inner = self.inner.lock();
        let new = match &inner.phase {
            Phase::Live(live) => Filed { state: live.task.status.state, nanos: nanos(&live.task) },
            Phase::Ended { state, nanos, .. } => Filed { state: *state, nanos: *nanos },
        };
        inner.waits = false;
        (inner.filed.replace(new), new)
    }

    /// Where the task is filed.
    pub(super) fn filed(&self) -> Option<Filed> {
        self.inner.lock().filed
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

    /// Has a webhook kept, so that it is told of everything that is appended from now on.
    pub(super) fn hook(&self, put: impl FnOnce() -> PutWebhook) -> PutWebhook {
        let mut inner = self.inner.lock();
        inner.hooked = true;
        put()
    }

    /// Whether nobody who is believed to be alive works on the task, though somebody should.
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

pub(super) enum After {
    Items(TailItem),
    Wait(Arc<Notify>),
    End,
}

impl Phase {
    /// What a task becomes when it ends, and the task for who ends it.
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

    /// Stands in while a phase is turned into the next; never seen from outside the lock.
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
