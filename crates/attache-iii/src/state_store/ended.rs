//! Tasks of this process that another process has ended, for example by a cancel.
//!
//! The state tells no process about the writes of others, but each write returns the value before it. So this process notices the
//! end with its next write: an event of the turn, or the lease. A result never replaces such an end, because the task is read again before a
//! turn ends it.

use std::time::Duration;

use attache_core::{Append, Store, StoreError};
use attache_protocol::{TaskId, Timestamp};
use serde_json::value::RawValue;

use super::Inner;
use super::events;
use super::foreign::read;
use super::saving::Slot;

/// A task that was written or read less than this long ago is not read again before its end.
const FRESH: Duration = Duration::from_secs(1);

impl Inner {
    /// Reads a task from the state, unless that was done a moment ago, and ends it in memory if another process has ended it.
    pub(super) async fn check_end(&self, task: &TaskId, slot: &Slot) -> Result<(), StoreError> {
        let _saving = slot.saving.lock().await;
        // The state may have an older version, and is not reachable.
        if self.is_pending(task) || slot.saved.lock().seen.elapsed() < FRESH {
            return Ok(());
        }
        match self.state.get(task).await {
            Ok(Some(in_state)) => self.adopt_end(task, slot, &in_state).await.map(drop),
            Ok(None) => Ok(()),
            // The result must not be lost in an outage.
            Err(error) => {
                tracing::debug!(%task, %error, "cannot read a task before its end");
                Ok(())
            }
        }
    }

    /// Ends a task in memory if another process has ended it in the state. Returns whether it did. The caller holds `slot.saving`.
    pub(super) async fn adopt_end(
        &self,
        task: &TaskId,
        slot: &Slot,
        in_state: &RawValue,
    ) -> Result<bool, StoreError> {
        let Some(document) = read(task, in_state) else { return Ok(false) };
        let is = document.task;
        if document.meta.writer == self.writer || !is.status.state.is_terminal() {
            return Ok(false);
        }
        let Some(was) = self.memory.load(&slot.owner, task).await? else { return Ok(false) };
        if was.state.is_terminal() {
            return Ok(false);
        }
        let now = is.status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
        let events = events::changes(&was.task(), &is);
        let append = Append { after: was.seq, lease: None, idempotency: None, push: None, events, now };
        match self.memory.append(task, append).await {
            Ok(_) => {
                tracing::info!(%task, state = ?is.status.state, "another process has ended the task");
                Ok(true)
            }
            // The turn has just appended an event. The write of that event finds the end again.
            Err(error) => {
                tracing::debug!(%task, %error, "cannot end a task as another process did");
                Ok(false)
            }
        }
    }
}
