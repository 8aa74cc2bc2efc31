//! Adding events to a log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use attache_core::{
    Append as Request, AppendError, Appended, EndedTask, FoldError, Lease, Seq, Snapshot, StoreError,
    StoredEndedTask, TaskEvent, fold,
};
use attache_protocol::{TaskId, TaskState, Timestamp};
use rusqlite::params;
use tokio::sync::OwnedSemaphorePermit;

use super::create::{EndedColumns, write_log};
use super::fault::Fault;
use super::keys::Reservation;
use super::live::{Live, Phase};
use super::outbox_rows::{self, Kept};
use super::rows::{self, MAX_SEQ, nanos_of};
use super::writer::{Batch, Command, closed};
use super::{Answer, Inner, Place};

/// State and status time.
type Filed = (TaskState, i64);

struct Append {
    inner: Arc<Inner>,
    live: Arc<Live>,
    events: Vec<TaskEvent>,
    log: Vec<u8>,
    after: Seq,
    /// Where the task was filed and where it belongs now, if it has a new status.
    moved: Option<(Filed, Filed)>,
    ended: Option<(StoredEndedTask, Snapshot)>,
    /// The task before these events, if it is time to save it.
    snapshot: Option<Vec<u8>>,
    key: Option<Reservation>,
    /// The webhook that comes with the events, and how many the task may have.
    webhook: Option<(Kept, usize)>,
    /// The task has too many webhooks, so nothing was written.
    refused: bool,
    now: i64,
    grown: bool,
    answer: Answer<Option<Appended>>,
    /// Held until the events can be seen.
    turn: OwnedSemaphorePermit,
}

impl Inner {
    pub(super) async fn append(
        self: &Arc<Self>,
        task: &TaskId,
        request: Request,
    ) -> Result<Appended, AppendError> {
        let Request { after, lease, idempotency, push, events, now } = request;
        let found = self.locate(task).await?;
        if let Place::Nowhere = found {
            return Err(AppendError::NotFound);
        }
        let key = match idempotency {
            None => None,
            Some((owner, idempotency)) => match self.reserve(&owner, idempotency).await? {
                Ok(reservation) => Some(reservation),
                Err(known) => return Err(AppendError::KeyUsed(known)),
            },
        };
        let live = match found {
            Place::Live(live) => live,
            Place::Ended(found) => return Err(AppendError::Ended(found.state)),
            Place::Nowhere => return Err(AppendError::NotFound),
        };
        // What is checked next stays true until this append is done.
        let turn = live.turn.clone().acquire_owned().await.map_err(|_| closed())?;
        let end = check(&live, after, lease, &events)?;
        let webhook =
            push.map(|new| Kept::seal(&self.keyring, task, &new.webhook).map(|kept| (kept, new.limit)));
        let webhook = webhook.transpose().map_err(|fault| self.explain(&fault))?;
        let log = if events.is_empty() { Vec::new() } else { rows::write_events(&events) };
        let (filed, unfinished, snapshot) = {
            let inner = live.lock();
            let unfinished = end.is_some().then(|| inner.task.clone());
            let snapshot = if end.is_none() { inner.overdue_snapshot() } else { None };
            (inner.filed(), unfinished, snapshot)
        };
        let moved = events.iter().rev().find_map(status).map(|new| (filed, new));
        let ended = match unfinished {
            None => None,
            Some(mut task) => {
                for event in &events {
                    fold(&mut task, event.clone()).map_err(|error| match error {
                        FoldError::Ended(state) => AppendError::Ended(state),
                        FoldError::Exists => AppendError::Conflict(after),
                    })?;
                }
                let (state, ended) = (task.status.state, Arc::new(EndedTask::new(task)));
                let seq = after.plus(events.len());
                Some((ended.to_stored(), Snapshot::ended(seq, state, ended)))
            }
        };
        let written = self.write(|answer| {
            Box::new(Append {
                inner: self.clone(),
                live,
                events,
                log,
                after,
                moved,
                ended,
                snapshot,
                key,
                webhook,
                refused: false,
                now: nanos_of(now),
                grown: false,
                answer,
                turn,
            })
        });
        written.await?.ok_or(AppendError::TooManyWebhooks)
    }
}

/// The state and time that an event sets.
fn status(event: &TaskEvent) -> Option<Filed> {
    let status = match event {
        TaskEvent::Created(task) => &task.status,
        TaskEvent::Status(update) => &update.status,
        TaskEvent::Message(_) | TaskEvent::Artifact(_) => return None,
    };
    Some((status.state, nanos_of(status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH))))
}

/// Whether events can be added: all of them, or none. If they end the task, how.
fn check(
    live: &Live,
    after: Seq,
    lease: Option<Lease>,
    events: &[TaskEvent],
) -> Result<Option<TaskState>, AppendError> {
    let inner = live.lock();
    match inner.phase {
        Phase::Live => {}
        Phase::Unborn => return Err(AppendError::NotFound),
        Phase::Ended(state) => return Err(AppendError::Ended(state)),
    }
    if lease.is_some() && inner.lease.map(|(held, _)| held) != lease {
        return Err(AppendError::LeaseLost);
    }
    if inner.seq != after {
        return Err(AppendError::Conflict(inner.seq));
    }
    let mut before_last = events.iter().rev().skip(1).filter_map(TaskEvent::state);
    if let Some(state) = before_last.find(|state| state.is_terminal()) {
        return Err(AppendError::Ended(state));
    }
    if events.iter().any(|event| matches!(event, TaskEvent::Created(_))) {
        return Err(AppendError::Conflict(inner.seq));
    }
    if after.plus(events.len()).0 > MAX_SEQ {
        return Err(StoreError(format!("a task has at most {MAX_SEQ} events")).into());
    }
    Ok(events.last().and_then(TaskEvent::state).filter(|state| state.is_terminal()))
}

impl Command for Append {
    fn execute(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault> {
        let (db, row) = (batch.db, self.live.row);
        if let Some((webhook, limit)) = &mut self.webhook {
            self.refused = !webhook.fits(db, row, *limit)?;
            if self.refused {
                return Ok(());
            }
            webhook.put(db, &self.inner.keyring, row)?;
            // Should this not be written, looking for webhooks in vain does no harm.
            self.live.hooked.store(true, Ordering::Relaxed);
        }
        if !self.events.is_empty() {
            write_log(db, row, self.after.plus(1), &self.log)?;
        }
        if let Some(((old_state, old_nanos), (state, nanos))) = self.moved {
            let owner = batch.owner(&self.live.owner)?;
            batch.counts.remove(owner, old_state, old_nanos);
            batch.counts.add(owner, state, nanos);
            match &self.ended {
                None => {
                    db.prepare_cached("UPDATE tasks SET state = ?2, nanos = ?3 WHERE id = ?1")?
                        .execute(params![row, state as u8, nanos])?;
                }
                Some((pieces, snapshot)) => {
                    let EndedColumns { head, messages, history, artifacts } = pieces.into();
                    db.prepare_cached(
                        "UPDATE tasks SET state = ?2, nanos = ?3, seq = ?4, head = ?5, messages = ?6, history = ?7,
                            artifacts = ?8 WHERE id = ?1",
                    )?
                    .execute(params![
                        row,
                        state as u8,
                        nanos,
                        snapshot.seq.0 as i64,
                        head,
                        messages,
                        history,
                        artifacts
                    ])?;
                    if self.live.lock().saved.is_some() {
                        db.prepare_cached("DELETE FROM snapshots WHERE task = ?1")?.execute(params![row])?;
                    }
                }
            }
        }
        if let Some(body) = &self.snapshot {
            db.prepare_cached(
                "INSERT INTO snapshots (task, seq, body) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET seq = excluded.seq, body = excluded.body",
            )?
            .execute(params![row, self.after.0 as i64, body])?;
        }
        if let Some(key) = &self.key {
            key.write(batch, row)?;
        }
        if self.live.hooked.load(Ordering::Relaxed) {
            self.grown = outbox_rows::tell_all(db, row, self.after, &self.events, self.now)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>, written: Result<(), StoreError>) {
        let Self {
            inner,
            live,
            events,
            log,
            after,
            moved,
            ended,
            snapshot,
            key,
            refused,
            grown,
            answer,
            turn,
            ..
        } = *self;
        if refused || written.is_err() {
            let _ = answer.send(written.map(|()| None));
            return;
        }
        let seq = after.plus(events.len());
        let mut task = live.lock();
        if let Some(body) = &snapshot {
            (task.unsaved, task.saved) = (0, Some(body.len()));
        }
        task.remember(&events, log.len());
        let ended = ended.map(|(_, snapshot)| snapshot);
        match &ended {
            Some(snapshot) => task.end(snapshot.state),
            None => task.apply(events),
        }
        let settled = match ended {
            None if moved.is_some() && task.task.status.state.is_settled() => {
                Some(Snapshot::live(seq, task.task.clone()))
            }
            ended => ended,
        };
        let over = task.phase != Phase::Live;
        drop(task);
        if over {
            inner.live.remove(&live);
        }
        live.grown.notify_waiters();
        if grown {
            inner.outbox.grown.notify_waiters();
        }
        drop((key, turn));
        let _ = answer.send(Ok(Some(Appended { seq, settled })));
    }
}
