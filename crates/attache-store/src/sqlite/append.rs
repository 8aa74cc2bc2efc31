//! Appending events to the log of a task.

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
use super::live::{LiveTask, Phase};
use super::outbox_rows;
use super::rows::{self, MAX_SEQ, nanos_of};
use super::webhook_rows::WebhookRow;
use super::writer::{Batch, Command, closed};
use super::{Inner, Location, ResultSender};

/// The state and the status time of a task, under which the indexes list it.
type IndexKey = (TaskState, i64);

struct Append {
    inner: Arc<Inner>,
    live: Arc<LiveTask>,
    events: Vec<TaskEvent>,
    log: Vec<u8>,
    after: Seq,
    /// The old and the new index key, if the events set a new status.
    moved: Option<(IndexKey, IndexKey)>,
    ended: Option<(StoredEndedTask, Snapshot)>,
    /// The task before these events as JSON, if a new snapshot is due.
    snapshot: Option<Vec<u8>>,
    key: Option<Reservation>,
    /// The webhook that is registered with the events, and the limit of webhooks per task.
    webhook: Option<(WebhookRow, usize)>,
    /// The task has too many webhooks, so nothing was written.
    refused: bool,
    now: i64,
    grown: bool,
    sender: ResultSender<Option<Appended>>,
    /// Held until readers can see the events.
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
        if let Location::Missing = found {
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
            Location::Live(live) => live,
            Location::Ended(found) => return Err(AppendError::Ended(found.state)),
            Location::Missing => return Err(AppendError::NotFound),
        };
        // One append at a time: the result of the next check stays true until this append is done.
        let turn = live.turn.clone().acquire_owned().await.map_err(|_| closed())?;
        let end = check(&live, after, lease, &events)?;
        let webhook =
            push.map(|new| WebhookRow::seal(&self.keyring, task, &new.webhook).map(|row| (row, new.limit)));
        let webhook = webhook.transpose().map_err(|fault| self.explain(&fault))?;
        let log = if events.is_empty() { Vec::new() } else { rows::write_events(&events) };
        let (filed, unfinished, snapshot) = {
            let inner = live.lock();
            let unfinished = end.is_some().then(|| inner.task.clone());
            let snapshot = if end.is_none() { inner.overdue_snapshot() } else { None };
            (inner.index_key(), unfinished, snapshot)
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
        let written = self.write(|sender| {
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
                sender,
                turn,
            })
        });
        written.await?.ok_or(AppendError::TooManyWebhooks)
    }
}

/// The index key that an event sets.
fn status(event: &TaskEvent) -> Option<IndexKey> {
    let status = match event {
        TaskEvent::Created(task) => &task.status,
        TaskEvent::Status(update) => &update.status,
        TaskEvent::Message(_) | TaskEvent::Artifact(_) => return None,
    };
    Some((status.state, nanos_of(status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH))))
}

/// Checks that all events can be appended. The result is the final state, if they end the task.
fn check(
    live: &LiveTask,
    after: Seq,
    lease: Option<Lease>,
    events: &[TaskEvent],
) -> Result<Option<TaskState>, AppendError> {
    let inner = live.lock();
    match inner.phase {
        Phase::Live => {}
        Phase::Creating => return Err(AppendError::NotFound),
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
            // If the transaction fails, this stays set and costs only a useless query.
            self.live.may_have_webhooks.store(true, Ordering::Relaxed);
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
        if self.live.may_have_webhooks.load(Ordering::Relaxed) {
            self.grown = outbox_rows::enqueue_all(db, row, self.after, &self.events, self.now)?;
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
            sender,
            turn,
            ..
        } = *self;
        if refused || written.is_err() {
            let _ = sender.send(written.map(|()| None));
            return;
        }
        let seq = after.plus(events.len());
        let mut task = live.lock();
        if let Some(body) = &snapshot {
            (task.unsaved, task.saved) = (0, Some(body.len()));
        }
        task.add_to_window(&events, log.len());
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
        let _ = sender.send(Ok(Some(Appended { seq, settled })));
    }
}
