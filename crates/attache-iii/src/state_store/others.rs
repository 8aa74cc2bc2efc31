//! Tasks that others have written: a process before this one, another one beside it, the older worker.

use std::sync::Arc;

use attache_core::{Append, Created, NewTask, Store, StoreError};
use attache_protocol::{TaskId, Timestamp};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::value::RawValue;

use super::Inner;
use super::document::{self, Document, believed_until};
use super::events;
use super::saving::{Slot, failed};

/// How many tasks are read at once.
const AT_ONCE: usize = 16;

impl Inner {
    /// Reads all tasks of the state, once.
    pub(super) async fn read_all(&self) -> Result<(), StoreError> {
        let all = async || {
            for value in self.state.list().await.map_err(|error| failed(&error))? {
                match document::read(value.get()) {
                    Ok(document) => self.admit(document).await?,
                    Err(error) => tracing::warn!(error, "something in the state is not a task"),
                }
            }
            Ok(())
        };
        self.all_read.get_or_try_init(all).await.copied()
    }

    /// Reads a task that memory does not know, if there is one.
    pub(super) async fn look_up(&self, task: &TaskId) -> Result<(), StoreError> {
        if task.is_empty() || self.is_behind(task) {
            return Ok(());
        }
        let Some(value) = self.state.get(task).await.map_err(|error| failed(&error))? else { return Ok(()) };
        match read(task, &value) {
            Some(document) => self.admit(document).await,
            None => Ok(()),
        }
    }

    /// Takes a task of someone else's into memory, unless it is there.
    async fn admit(&self, Document { task, beside }: Document) -> Result<(), StoreError> {
        let _one_at_a_time = self.admitting.lock().await;
        let id = task.id.clone();
        if self.known.lock().has(&id) {
            return Ok(());
        }
        let ended = task.status.state.is_terminal();
        let new = NewTask {
            owner: beside.owner.clone(),
            now: task.status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH),
            followed: false,
            lease_until: believed_until(&task, beside.leased),
            idempotency: None,
            push: None,
            events: events::log(task, beside.seq),
        };
        let Created::New { seq, lease, .. } = self.memory.create(new).await? else { return Ok(()) };
        if !ended {
            self.theirs.lock().insert(id.clone(), lease);
        }
        let slot = Arc::new(Slot::new(beside.owner, seq, beside.leased));
        self.known.lock().slots.insert(id, slot);
        Ok(())
    }

    /// Looks what has become of a task of someone else's, and has memory follow.
    pub(super) async fn follow(&self, task: &TaskId) -> Result<(), StoreError> {
        let Some(slot) = self.slot(task) else { return Ok(()) };
        let _saving = slot.saving.lock().await;
        let Some(lease) = self.theirs.lock().get(task).copied() else { return Ok(()) };
        // What is in memory only is not undone.
        if self.is_behind(task) {
            return Ok(());
        }
        let Some(value) = self.state.get(task).await.map_err(|error| failed(&error))? else { return Ok(()) };
        let Some(Document { task: is, beside }) = read(task, &value) else { return Ok(()) };
        let Some(was) = self.memory.load(&slot.owner, task).await? else { return Ok(()) };
        let events = if was.state.is_terminal() { Vec::new() } else { events::changes(&was.task(), &is) };
        if !events.is_empty() {
            let now = is.status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
            let append = Append { after: was.seq, lease: None, idempotency: None, push: None, events, now };
            match self.memory.append(task, append).await {
                Ok(appended) => slot.saved.lock().seq = appended.seq,
                // Something happened to it here, which is being written. It is looked at again next time.
                Err(error) => {
                    tracing::debug!(%task, %error, "a task could not be followed");
                    return Ok(());
                }
            }
        }
        {
            let mut saved = slot.saved.lock();
            (saved.leased, saved.leased_there) = (beside.leased, beside.leased);
        }
        if is.status.state.is_terminal() {
            self.theirs.lock().remove(task);
        }
        // The lease stands for the other worker's. Nothing here runs under it, so nothing is lost with it.
        self.memory.renew(&[(task.clone(), lease)], believed_until(&is, beside.leased)).await?;
        Ok(())
    }

    /// Looks what has become of the tasks of others that have not ended.
    pub(super) async fn follow_all(&self) -> Result<(), StoreError> {
        let theirs: Vec<TaskId> = self.theirs.lock().keys().cloned().collect();
        let looks = stream::iter(theirs).map(|task| async move { self.follow(&task).await });
        looks.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Whether a task is someone else's and has not ended.
    pub(super) fn is_theirs(&self, task: &TaskId) -> bool {
        self.theirs.lock().contains_key(task)
    }
}

/// Reads what is kept for a task, if it is one.
fn read(task: &TaskId, value: &RawValue) -> Option<Document> {
    match document::read(value.get()) {
        Ok(document) if document.task.id == *task => return Some(document),
        Ok(document) => {
            tracing::warn!(%task, id = %document.task.id, "a task in the state has another id");
        }
        Err(error) => tracing::warn!(%task, error, "something in the state is not a task"),
    }
    None
}
