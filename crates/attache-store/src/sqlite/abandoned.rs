//! Finding abandoned tasks.

use std::sync::Arc;

use attache_core::{Abandoned, Snapshot, StoreError};
use attache_protocol::Timestamp;

use super::fault::Fault;
use super::{Inner, read, rows};

impl Inner {
    /// The tasks that are submitted or working and have no valid lease.
    pub(super) async fn abandoned(
        self: &Arc<Self>,
        agent: Option<&str>,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Abandoned>, StoreError> {
        let agent = agent.map(str::to_owned);
        self.read_blocking(move |inner, db| {
            let db = db.unchecked_transaction()?;
            let mut read = db.prepare_cached(
                "SELECT id, task_id, owner FROM tasks INDEXED BY tasks_at_work
                 WHERE state IN (1, 2) AND owner IN (SELECT id FROM owners WHERE agent IS ?1) ORDER BY id",
            )?;
            let mut rows = read.query((agent,))?;
            let mut abandoned = Vec::new();
            while abandoned.len() < limit
                && let Some(row) = rows.next()?
            {
                let id = rows::task_id(row, 1)?;
                let task = match inner.live.get(&id) {
                    Some(live) if live.is_abandoned(now) => live.snapshot(),
                    Some(_) => None,
                    None => match read::replay(&db, row.get(0)?, &id) {
                        Ok(replayed) => Some(Snapshot::live(replayed.seq, replayed.task)),
                        // A damaged task must not prevent the recovery of the others.
                        Err(fault @ Fault::Unreadable { .. }) => {
                            tracing::error!(error = %inner.explain(&fault), "a task cannot be recovered");
                            None
                        }
                        Err(fault) => return Err(fault),
                    },
                };
                if let Some(task) = task {
                    abandoned.push(Abandoned { owner: read::owner(&db, row.get(2)?)?, task });
                }
            }
            Ok(abandoned)
        })
        .await
    }
}
