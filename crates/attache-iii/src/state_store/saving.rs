//! Writes tasks to the state: one write per task at a time, always the latest version. Failed writes are retried.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use attache_core::{Owner, Seq, Store, StoreError};
use attache_protocol::{TaskId, Timestamp};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Inner;
use super::document::{self, TaskMeta};
use crate::CallError;

/// How long an append waits for an engine that is not reachable.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The first and the longest back-off between retries.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// A task that is in memory.
pub(super) struct Slot {
    pub(super) owner: Owner,
    /// Held while the task is written, or read because another process works on it.
    pub(super) saving: tokio::sync::Mutex<()>,
    pub(super) saved: Mutex<Saved>,
}

/// What the state has of a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Saved {
    /// The last event that the state has.
    pub(super) seq: Seq,
    /// Until when the turn has its lease, and what the state has of that.
    pub(super) leased: Option<Timestamp>,
    pub(super) leased_in_state: Option<Timestamp>,
    /// When the task was last written or read.
    pub(super) seen: Instant,
}

impl Slot {
    pub(super) fn new(owner: Owner, seq: Seq, leased: Option<Timestamp>) -> Self {
        let saved = Mutex::new(Saved { seq, leased, leased_in_state: leased, seen: Instant::now() });
        Self { owner, saving: tokio::sync::Mutex::default(), saved }
    }
}

/// Writes that failed and are to be retried.
#[derive(Default)]
pub(super) struct PendingWrites {
    tasks: HashMap<TaskId, PendingWrite>,
    /// Whether the background task that retries is running.
    running: bool,
}

/// What is to be written for a task.
#[derive(Debug, Clone, Copy)]
pub(super) enum PendingWrite {
    /// Write the current version.
    Write,
    /// Delete it.
    Delete,
    /// The creation of the task failed, but the state may have it: delete it if this store wrote it.
    Withdraw,
}

pub(super) fn failed(error: &CallError) -> StoreError {
    StoreError(format!("the engine's state failed: {error}"))
}

impl Inner {
    /// Writes a task with all events up to `seq`. Concurrent callers share a write.
    ///
    /// If the engine is not reachable, this waits up to ten seconds. If this fails, the task in memory is still written later.
    pub(super) async fn save(
        self: &Arc<Self>,
        task: &TaskId,
        slot: &Slot,
        seq: Seq,
    ) -> Result<(), StoreError> {
        let mut deadline = None;
        loop {
            let mut why = CallError::Disconnected;
            {
                let _saving = slot.saving.lock().await;
                if slot.saved.lock().seq >= seq {
                    return Ok(());
                }
                if !self.is_pending(task) {
                    let Err(error) = self.write_task(task, slot).await else { return Ok(()) };
                    self.retry_later(task, PendingWrite::Write, &error);
                    if !is_unreachable(&error) {
                        return Err(failed(&error));
                    }
                    why = error;
                }
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + MAX_WAIT);
            if tokio::time::timeout_at(deadline, self.wait_until_written(task)).await.is_err() {
                return Err(failed(&why));
            }
        }
    }

    /// Writes the lease of a task, if the state has an older one. Does not wait for an engine that is not reachable.
    pub(super) async fn save_lease(self: &Arc<Self>, task: &TaskId, slot: &Slot) -> Result<(), CallError> {
        let _saving = slot.saving.lock().await;
        let Saved { leased, leased_in_state, .. } = *slot.saved.lock();
        if leased <= leased_in_state {
            return Ok(());
        }
        if self.is_pending(task) {
            return Err(CallError::Disconnected);
        }
        self.write_task(task, slot).await
    }

    /// Writes the current version of a task. If another process has ended the task, writes the end again. The caller holds
    /// `slot.saving`.
    async fn write_task(&self, task: &TaskId, slot: &Slot) -> Result<(), CallError> {
        loop {
            let Ok(Some(snapshot)) = self.memory.load(&slot.owner, task).await else { return Ok(()) };
            let leased = slot.saved.lock().leased;
            let (owner, seq) = (slot.owner.clone(), snapshot.seq);
            let meta = TaskMeta { owner, seq, writer: self.writer.clone(), leased };
            let json = document::write(&snapshot.task(), &meta)?;
            let before = self.state.set(task, &json).await?;
            {
                let mut saved = slot.saved.lock();
                (saved.seq, saved.leased_in_state, saved.seen) = (seq, leased, Instant::now());
            }
            let Some(before) = before else { return Ok(()) };
            if !matches!(self.adopt_end(task, slot, &before).await, Ok(true)) {
                return Ok(());
            }
        }
    }

    /// Records a failed write, and starts the background task that retries it.
    pub(super) fn retry_later(self: &Arc<Self>, task: &TaskId, write: PendingWrite, error: &CallError) {
        let mut pending = self.pending.lock();
        if pending.tasks.is_empty() {
            tracing::warn!(%task, %error, "cannot write to the engine's state; retrying");
        } else {
            tracing::debug!(%task, ?write, %error, "cannot write to the engine's state");
        }
        pending.tasks.insert(task.clone(), write);
        if !std::mem::replace(&mut pending.running, true) {
            tokio::spawn(run_retries(Arc::downgrade(self)));
        }
    }

    pub(super) fn is_pending(&self, task: &TaskId) -> bool {
        self.pending.lock().tasks.contains_key(task)
    }

    async fn wait_until_written(&self, task: &TaskId) {
        loop {
            let mut wake = std::pin::pin!(self.flushed.notified());
            wake.as_mut().enable();
            if !self.is_pending(task) {
                return;
            }
            wake.await;
        }
    }

    /// Retries all failed writes. Returns whether everything is written.
    async fn flush_pending(&self) -> bool {
        let all: Vec<_> =
            self.pending.lock().tasks.iter().map(|(task, write)| (task.clone(), *write)).collect();
        for (task, write) in all {
            match self.apply(&task, write).await {
                Ok(()) => {
                    self.pending.lock().tasks.remove(&task);
                    self.flushed.notify_waiters();
                }
                Err(error) if is_unreachable(&error) => break,
                // An error of one task must not block the others.
                Err(error) => tracing::debug!(%task, ?write, %error, "the engine rejected a task"),
            }
        }
        let mut pending = self.pending.lock();
        pending.running = !pending.tasks.is_empty();
        if !pending.running {
            tracing::info!("all tasks are written to the engine's state again");
        }
        !pending.running
    }

    async fn apply(&self, task: &TaskId, write: PendingWrite) -> Result<(), CallError> {
        match write {
            PendingWrite::Write => {
                let Some(slot) = self.slot(task) else { return Ok(()) };
                let _saving = slot.saving.lock().await;
                self.write_task(task, &slot).await
            }
            PendingWrite::Delete => self.state.delete(task).await,
            PendingWrite::Withdraw => match self.state.get(task).await? {
                Some(in_state) if self.is_own(&in_state) => self.state.delete(task).await,
                Some(_) | None => Ok(()),
            },
        }
    }

    /// Whether this store wrote a value in the state.
    pub(super) fn is_own(&self, in_state: &RawValue) -> bool {
        document::read(in_state.get()).is_ok_and(|document| document.meta.writer == self.writer)
    }
}

/// Retries until everything is written, or the store is dropped.
async fn run_retries(store: Weak<Inner>) {
    let mut delay = MIN_BACKOFF;
    loop {
        tokio::time::sleep(delay).await;
        let Some(store) = store.upgrade() else { return };
        if store.flush_pending().await {
            return;
        }
        delay = (delay * 2).min(MAX_BACKOFF);
    }
}

/// Whether the engine did not respond, as opposed to responding with an error.
pub(super) fn is_unreachable(error: &CallError) -> bool {
    match error {
        CallError::Disconnected | CallError::TimedOut => true,
        CallError::Remote { .. } => false,
    }
}
