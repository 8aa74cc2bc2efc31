//! Finding tasks by the ids that their owners chose.

use attache_protocol::{Error, TaskId};
use sha2::{Digest, Sha256};

use super::{Service, internal};
use crate::{Caller, Owner, Snapshot};

/// The id under which a task is stored whose owner chose an id for it.
///
/// Callers without a name and a tenant are one owner, so their ids need no scope. One that looks as if it had one gets another: it
/// must not be the id of somebody else's task.
pub(super) fn stored(owner: &Owner, chosen: &TaskId) -> TaskId {
    if *owner == Owner::default() && !chosen.is_scoped() {
        return chosen.clone();
    }
    let mut digest = Sha256::new();
    for text in [owner.tenant.as_deref(), owner.principal.name()] {
        // With its length before it, so that where one ends and the next begins is told, too.
        digest.update(text.map_or(u64::MAX, |text| text.len() as u64).to_be_bytes());
        digest.update(text.unwrap_or_default());
    }
    let digest: [u8; 32] = digest.finalize().into();
    chosen.scoped(std::array::from_fn(|i| digest[i]))
}

impl Service {
    /// The task that a caller names, if there is one for this caller. An id that the caller chose becomes the one that the task is
    /// stored under.
    pub(super) async fn resolve(&self, caller: &Caller, id: &mut TaskId) -> Result<Snapshot, Error> {
        if let Some(found) = self.load(caller, id).await? {
            return Ok(found);
        }
        let stored = stored(&caller.owner, id);
        if stored != *id
            && let Some(found) = self.load(caller, &stored).await?
        {
            *id = stored;
            return Ok(found);
        }
        Err(Error::task_not_found(id))
    }

    /// The task that is stored under an id, if it is the caller's.
    pub(super) async fn load(&self, caller: &Caller, id: &TaskId) -> Result<Option<Snapshot>, Error> {
        self.0.store.load(&caller.owner, id).await.map_err(|error| internal(&error))
    }
}
