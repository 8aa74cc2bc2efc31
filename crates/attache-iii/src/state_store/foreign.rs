//! Tasks that other processes have written: an earlier process, a concurrent one, or the older worker.

use std::sync::Arc;

use attache_core::{Append, Created, NewTask, Store, StoreError};
use attache_protocol::{TaskId, Timestamp};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Inner;
use super::document::{self, Document, lease_expiry};
use super::events;
use super::saving::{Slot, failed};

/// How many tasks are read concurrently.
const MAX_CONCURRENT: usize = 16;

impl Inner {
    /// Reads all tasks of the state, once.
    pub(super) async fn read_all(&self) -> Result<(), StoreError> {
        let all = async || {
            for value in self.state.list().await.map_err(|error| failed(&error))? {
                match document::read(value.get()) {
                    Ok(document) => self.import(document).await?,
                    Err(error) => tracing::warn!(error, "a value in the state is not a task"),
                }
            }
            Ok(())
        };
        self.all_read.get_or_try_init(all).await.copied()
    }

    /// Reads a task that is not in memory, if the state has it.
    pub(super) async fn load_foreign(&self, task: &TaskId) -> Result<(), StoreError> {
        if task.is_empty() || self.is_pending(task) {
            return Ok(());
        }
        let Some(value) = self.state.get(task).await.map_err(|error| failed(&error))? else { return Ok(()) };
        match read(task, &value) {
            Some(document) => self.import(document).await,
            None => Ok(()),
        }
    }

    /// Copies a task of another process into memory, unless it is there already.
    async fn import(&self, Document { task, meta }: Document) -> Result<(), StoreError> {
        let _one_at_a_time = self.importing.lock().await;
        let id = task.id.clone();
        if self.known.lock().has(&id) {
            return Ok(());
        }
        let ended = task.status.state.is_terminal();
        let new = NewTask {
            owner: meta.owner.clone(),
            now: task.status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH),
            followed: false,
            lease_until: lease_expiry(&task, meta.leased),
            idempotency: None,
            push: None,
            events: events::log(task, meta.seq),
        };
        let Created::New { seq, lease, .. } = self.memory.create(new).await? else { return Ok(()) };
        if !ended {
            self.foreign.lock().insert(id.clone(), lease);
        }
        let slot = Arc::new(Slot::new(meta.owner, seq, meta.leased));
        self.known.lock().slots.insert(id, slot);
        Ok(())
    }

    /// Reads the current version of another process's task, and updates memory.
    pub(super) async fn refresh(&self, task: &TaskId) -> Result<(), StoreError> {
        let Some(slot) = self.slot(task) else { return Ok(()) };
        let _saving = slot.saving.lock().await;
        let Some(lease) = self.foreign.lock().get(task).copied() else { return Ok(()) };
        // Events that are only in memory must not be lost.
        if self.is_pending(task) {
            return Ok(());
        }
        let Some(value) = self.state.get(task).await.map_err(|error| failed(&error))? else { return Ok(()) };
        let Some(Document { task: is, meta }) = read(task, &value) else { return Ok(()) };
        let Some(was) = self.memory.load(&slot.owner, task).await? else { return Ok(()) };
        let events = if was.state.is_terminal() { Vec::new() } else { events::changes(&was.task(), &is) };
        if !events.is_empty() {
            let now = is.status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
            let append = Append { after: was.seq, lease: None, idempotency: None, push: None, events, now };
            match self.memory.append(task, append).await {
                Ok(appended) => slot.saved.lock().seq = appended.seq,
                // An event was appended here and is being written. The next refresh reads the task again.
                Err(error) => {
                    tracing::debug!(%task, %error, "cannot refresh a task of another process");
                    return Ok(());
                }
            }
        }
        {
            let mut saved = slot.saved.lock();
            (saved.leased, saved.leased_in_state, saved.seen) = (meta.leased, meta.leased, Instant::now());
        }
        if is.status.state.is_terminal() {
            self.foreign.lock().remove(task);
        }
        // The lease stands for the other process. No turn runs here under it, so losing it has no effect.
        self.memory.renew(&[(task.clone(), lease)], lease_expiry(&is, meta.leased)).await?;
        Ok(())
    }

    /// Refreshes all tasks of other processes that have not ended.
    pub(super) async fn refresh_all(&self) -> Result<(), StoreError> {
        let foreign: Vec<TaskId> = self.foreign.lock().keys().cloned().collect();
        let refreshes = stream::iter(foreign).map(|task| async move { self.refresh(&task).await });
        refreshes.buffer_unordered(MAX_CONCURRENT).try_collect().await
    }

    /// Whether another process works on a task that has not ended.
    pub(super) fn is_foreign(&self, task: &TaskId) -> bool {
        self.foreign.lock().contains_key(task)
    }
}

/// Parses the value of a task, if it is one.
pub(super) fn read(task: &TaskId, value: &RawValue) -> Option<Document> {
    match document::read(value.get()) {
        Ok(document) if document.task.id == *task => return Some(document),
        Ok(document) => {
            tracing::warn!(%task, id = %document.task.id, "a task in the state has another id");
        }
        Err(error) => tracing::warn!(%task, error, "a value in the state is not a task"),
    }
    None
}
