//! Keeping a new task.
//!
//! Everything but the writing itself is done by whoever asks: the fold, the JSON of the events and that of a task that has
//! already ended. Such a task, which is the most frequent, never comes into memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use attache_core::{
    Created, EndedTask, Lease, NewTask, Owner, Seq, Snapshot, StoreError, StoredEndedTask, TaskEvent, fold,
};
use attache_protocol::{ContextId, TaskId, TaskState};
use rusqlite::{Connection, ErrorCode, params};

use super::fault::Fault;
use super::keys::Reservation;
use super::live::{Live, Phase};
use super::outbox_rows::{self, Kept};
use super::rows::{self, Id, MAX_SEQ, nanos_of, place};
use super::writer::{Batch, Command};
use super::{Answer, Inner};

struct Create {
    inner: Arc<Inner>,
    owner: Owner,
    id: TaskId,
    row: i64,
    context: ContextId,
    state: TaskState,
    nanos: i64,
    seq: Seq,
    log: Vec<u8>,
    body: Body,
    lease: Lease,
    settled: Option<Snapshot>,
    key: Option<Reservation>,
    webhook: Option<(Kept, Vec<Seq>, i64)>,
    exists: bool,
    answer: Answer<Created>,
}

enum Body {
    Ended(StoredEndedTask),
    Live(Arc<Live>),
}

impl Inner {
    pub(super) async fn create(self: &Arc<Self>, new: NewTask) -> Result<Created, StoreError> {
        let NewTask { owner, events, now, followed: _, lease_until, idempotency, push } = new;
        let Some(TaskEvent::Created(first)) = events.first() else {
            return Err(StoreError("a log must begin with the event that creates the task".to_owned()));
        };
        let id = first.id.clone();
        let key = match idempotency {
            None => None,
            Some(idempotency) => match self.reserve(&owner, idempotency).await? {
                Ok(reservation) => Some(reservation),
                Err(known) => return Ok(Created::KeyUsed(known)),
            },
        };
        if events.len() as u64 > MAX_SEQ {
            return Err(StoreError(format!("a task has at most {MAX_SEQ} events")));
        }
        let webhook = match push {
            None => None,
            Some(webhook) => {
                let told = events.iter().enumerate().filter(|(_, event)| webhook.events.includes(event));
                let told = told.map(|(i, _)| Seq::START.plus(i + 1)).collect();
                let kept = Kept::seal(&self.keyring, &id, &webhook);
                Some((kept.map_err(|fault| self.explain(&fault))?, told, nanos_of(now)))
            }
        };
        let log = rows::write_events(&events);
        let seq = Seq::START.plus(events.len());
        let ended = events.last().and_then(TaskEvent::state).is_some_and(TaskState::is_terminal);
        let window = if ended { Vec::new() } else { events.clone() };
        let impossible = |error| StoreError(format!("a log that cannot be: {error}"));
        let mut events = events.into_iter();
        let mut task = match events.next() {
            Some(TaskEvent::Created(task)) => Arc::unwrap_or_clone(task),
            Some(TaskEvent::Message(_) | TaskEvent::Status(_) | TaskEvent::Artifact(_)) | None => {
                return Err(StoreError("a log must begin with the event that creates the task".to_owned()));
            }
        };
        for event in events {
            fold(&mut task, event).map_err(impossible)?;
        }
        let (row, lease) = (self.next_row(), self.next_lease());
        let (state, nanos) = (task.status.state, rows::status_nanos(&task));
        let context = task.context_id.clone().unwrap_or_default();
        let (body, settled) = if ended {
            let ended = Arc::new(EndedTask::new(task));
            (Body::Ended(ended.to_stored()), Some(Snapshot::ended(seq, state, ended)))
        } else {
            let settled = state.is_settled().then(|| Snapshot::live(seq, task.clone()));
            let live = Live::new(id.clone(), row, owner.clone(), Phase::Unborn, Seq::START, task);
            live.hooked.store(webhook.is_some(), Ordering::Relaxed);
            let mut inner = live.lock();
            inner.lease = Some((lease, lease_until));
            inner.remember(&window, log.len());
            drop(inner);
            (Body::Live(Arc::new(live)), settled)
        };
        self.write(|answer| {
            Box::new(Create {
                inner: self.clone(),
                owner,
                id,
                row,
                context,
                state,
                nanos,
                seq,
                log,
                body,
                lease,
                settled,
                key,
                webhook,
                exists: false,
                answer,
            })
        })
        .await
    }
}

/// The columns of a task that are known once it has ended.
pub(super) struct EndedColumns<'a> {
    pub(super) head: &'a [u8],
    pub(super) messages: Vec<u8>,
    pub(super) history: Option<&'a [u8]>,
    pub(super) artifacts: Option<&'a [u8]>,
}

impl<'a> From<&'a StoredEndedTask> for EndedColumns<'a> {
    fn from(pieces: &'a StoredEndedTask) -> Self {
        let some = |piece: &'a Vec<u8>| (!piece.is_empty()).then_some(piece.as_slice());
        Self {
            head: &pieces.head,
            messages: rows::write_marks(&pieces.messages),
            history: some(&pieces.history),
            artifacts: some(&pieces.artifacts),
        }
    }
}

impl Create {
    fn insert(&self, db: &Connection, owner: i64) -> rusqlite::Result<()> {
        let (id, context) = (Id(self.id.as_str()), Id(self.context.as_str()));
        let state = self.state as u8;
        match &self.body {
            Body::Live(_) => db
                .prepare_cached(
                    "INSERT INTO tasks (id, task_id, owner, context, state, nanos) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![self.row, id, owner, context, state, self.nanos])?,
            Body::Ended(pieces) => {
                let EndedColumns { head, messages, history, artifacts } = pieces.into();
                db.prepare_cached(
                    "INSERT INTO tasks
                        (id, task_id, owner, context, state, nanos, seq, head, messages, history, artifacts)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                )?
                .execute(params![
                    self.row,
                    id,
                    owner,
                    context,
                    state,
                    self.nanos,
                    self.seq.0 as i64,
                    head,
                    messages,
                    history,
                    artifacts
                ])?
            }
        };
        Ok(())
    }
}

impl Command for Create {
    fn execute(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault> {
        let owner = batch.owner(&self.owner)?;
        self.exists = match self.insert(batch.db, owner) {
            Ok(()) => false,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => true,
            Err(error) => return Err(error.into()),
        };
        if self.exists {
            return Ok(());
        }
        write_log(batch.db, self.row, Seq(1), &self.log)?;
        batch.counts.add(owner, self.state, self.nanos);
        if let Some(key) = &self.key {
            key.write(batch, self.row)?;
        }
        if let Some((kept, told, now)) = &mut self.webhook {
            let webhook = kept.put(batch.db, &self.inner.keyring, self.row)?;
            outbox_rows::tell(batch.db, webhook, &kept.receiver, told, *now)?;
        }
        if let Body::Live(live) = &self.body {
            // Before it can be seen in the file, so that nobody makes a second one of it.
            self.inner.live.add(live);
        }
        Ok(())
    }

    fn undo(&mut self) {
        if let Body::Live(live) = &self.body
            && !self.exists
        {
            self.inner.live.remove(live);
        }
    }

    fn finish(self: Box<Self>, written: Result<(), StoreError>) {
        let Self { inner, seq, body, lease, settled, key, webhook, exists, answer, .. } = *self;
        let created = match written {
            Ok(()) if exists => Ok(Created::Taken),
            Ok(()) => {
                if let Body::Live(live) = body {
                    live.lock().phase = Phase::Live;
                }
                Ok(Created::New { seq, lease, settled })
            }
            Err(error) => Err(error),
        };
        drop(key);
        if webhook.is_some_and(|(_, told, _)| !told.is_empty()) {
            inner.outbox.grown.notify_waiters();
        }
        let _ = answer.send(created);
    }
}

/// Adds a row to the log of a task.
pub(super) fn write_log(db: &Connection, row: i64, first: Seq, events: &[u8]) -> Result<(), Fault> {
    db.prepare_cached("INSERT INTO log (id, events) VALUES (?1, ?2)")?
        .execute(params![place(row, first.0), events])?;
    Ok(())
}
