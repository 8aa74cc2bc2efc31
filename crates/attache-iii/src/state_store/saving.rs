//! Getting tasks into the state: one write of a task at a time, always of the latest, and again for as long as it fails.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use attache_core::{Owner, Seq, Store, StoreError};
use attache_protocol::{TaskId, Timestamp};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Inner;
use super::document::{self, Beside};
use crate::CallError;

/// How long an append waits for an engine that is away.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait before a write is tried again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A task that memory has.
pub(super) struct Slot {
    pub(super) owner: Owner,
    /// Held while the task is written, or read because it is someone else's.
    pub(super) saving: tokio::sync::Mutex<()>,
    pub(super) saved: Mutex<Saved>,
}

/// What of a task is in the state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Saved {
    /// The last event that is.
    pub(super) seq: Seq,
    /// Until when its turn is believed to be alive, and what of that is in the state.
    pub(super) leased: Option<Timestamp>,
    pub(super) leased_there: Option<Timestamp>,
}

impl Slot {
    pub(super) fn new(owner: Owner, seq: Seq, leased: Option<Timestamp>) -> Self {
        let saved = Mutex::new(Saved { seq, leased, leased_there: leased });
        Self { owner, saving: tokio::sync::Mutex::default(), saved }
    }
}

/// What the state does not have yet.
#[derive(Default)]
pub(super) struct Behind {
    tasks: HashMap<TaskId, Owed>,
    /// Whether someone is at it.
    kept_at: bool,
}

/// What is to be done about a task.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owed {
    /// It is to be written as it is now.
    Write,
    /// It is to be deleted.
    Delete,
    /// It may be there though it never came about: it is to be deleted if it is ours.
    Withdraw,
}

pub(super) fn failed(error: &CallError) -> StoreError {
    StoreError(format!("the engine's state does not answer: {error}"))
}

impl Inner {
    /// Has a task in the state with all events up to `seq`. Several who want that share a write.
    ///
    /// If the engine is away, this waits a while for it. What is in memory gets there in the end, also if this gives up.
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
                if !self.is_behind(task) {
                    let Err(error) = self.write(task, slot).await else { return Ok(()) };
                    self.fall_behind(task, Owed::Write, &error);
                    if !is_away(&error) {
                        return Err(failed(&error));
                    }
                    why = error;
                }
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
            if tokio::time::timeout_at(deadline, self.no_longer_behind(task)).await.is_err() {
                return Err(failed(&why));
            }
        }
    }

    /// Writes that a task's turn is alive, where the state shows less. Nobody waits for an engine that is away.
    pub(super) async fn save_lease(self: &Arc<Self>, task: &TaskId, slot: &Slot) -> Result<(), CallError> {
        let _saving = slot.saving.lock().await;
        let Saved { leased, leased_there, .. } = *slot.saved.lock();
        if leased <= leased_there {
            return Ok(());
        }
        if self.is_behind(task) {
            return Err(CallError::Disconnected);
        }
        self.write(task, slot).await
    }

    /// Writes a task as it is now. The caller holds the right to.
    async fn write(&self, task: &TaskId, slot: &Slot) -> Result<(), CallError> {
        let Ok(Some(snapshot)) = self.memory.load(&slot.owner, task).await else { return Ok(()) };
        let leased = slot.saved.lock().leased;
        let (owner, seq) = (slot.owner.clone(), snapshot.seq);
        let beside = Beside { owner, seq, writer: self.writer.clone(), leased };
        let json = document::write(&snapshot.task(), &beside)?;
        self.state.set(task, &json).await?;
        let mut saved = slot.saved.lock();
        (saved.seq, saved.leased_there) = (seq, leased);
        Ok(())
    }

    /// Has the keeper see to it that the state gets what it is owed.
    pub(super) fn fall_behind(self: &Arc<Self>, task: &TaskId, owed: Owed, error: &CallError) {
        let mut behind = self.behind.lock();
        if behind.tasks.is_empty() {
            tracing::warn!(%task, %error, "the engine's state cannot be written, it is tried again until it can");
        } else {
            tracing::debug!(%task, ?owed, %error, "the engine's state cannot be written");
        }
        behind.tasks.insert(task.clone(), owed);
        if !std::mem::replace(&mut behind.kept_at, true) {
            tokio::spawn(keep_at_it(Arc::downgrade(self)));
        }
    }

    pub(super) fn is_behind(&self, task: &TaskId) -> bool {
        self.behind.lock().tasks.contains_key(task)
    }

    async fn no_longer_behind(&self, task: &TaskId) {
        loop {
            let mut wake = std::pin::pin!(self.caught_up.notified());
            wake.as_mut().enable();
            if !self.is_behind(task) {
                return;
            }
            wake.await;
        }
    }

    /// Tries to give the state what it is owed. Whether that is done.
    async fn catch_up(&self) -> bool {
        let all: Vec<_> = self.behind.lock().tasks.iter().map(|(task, owed)| (task.clone(), *owed)).collect();
        for (task, owed) in all {
            match self.give(&task, owed).await {
                Ok(()) => {
                    self.behind.lock().tasks.remove(&task);
                    self.caught_up.notify_waiters();
                }
                Err(error) if is_away(&error) => break,
                // What is wrong with this task is not wrong with the others.
                Err(error) => tracing::debug!(%task, ?owed, %error, "the engine does not take a task"),
            }
        }
        let mut behind = self.behind.lock();
        behind.kept_at = !behind.tasks.is_empty();
        if !behind.kept_at {
            tracing::info!("the engine's state has all tasks again");
        }
        !behind.kept_at
    }

    async fn give(&self, task: &TaskId, owed: Owed) -> Result<(), CallError> {
        match owed {
            Owed::Write => {
                let Some(slot) = self.slot(task) else { return Ok(()) };
                let _saving = slot.saving.lock().await;
                self.write(task, &slot).await
            }
            Owed::Delete => self.state.delete(task).await,
            Owed::Withdraw => match self.state.get(task).await? {
                Some(there) if self.is_ours(&there) => self.state.delete(task).await,
                Some(_) | None => Ok(()),
            },
        }
    }

    /// Whether something in the state was written by this store.
    pub(super) fn is_ours(&self, there: &RawValue) -> bool {
        document::read(there.get()).is_ok_and(|document| document.beside.writer == self.writer)
    }
}

/// Goes on until the state has everything, or nobody needs the store any more.
async fn keep_at_it(store: Weak<Inner>) {
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(store) = store.upgrade() else { return };
        if store.catch_up().await {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether it was the engine that did not answer, and not the answer that was no.
pub(super) fn is_away(error: &CallError) -> bool {
    match error {
        CallError::Disconnected | CallError::TimedOut => true,
        CallError::Remote { .. } => false,
    }
}
