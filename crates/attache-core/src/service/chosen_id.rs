//! Tasks whose ids were chosen by their owners.

use attache_protocol::{Error, TaskId};
use sha2::{Digest, Sha256};

use super::{Service, internal};
use crate::{Caller, Owner, Snapshot};

/// The id under which the store keeps a task whose owner chose its id.
///
/// The stored id contains a scope for the owner, so that owners can choose the same id. Anonymous callers without a tenant are one
/// owner, and their ids need no scope. If such an id looks scoped, it is scoped again, so that it cannot name the task of another
/// owner.
pub(super) fn stored(owner: &Owner, chosen: &TaskId) -> TaskId {
    if *owner == Owner::default() && !chosen.is_scoped() {
        return chosen.clone();
    }
    let mut digest = Sha256::new();
    let mut add = |text: Option<&str>| {
        // The length comes first, so that different texts cannot add up to the same bytes.
        digest.update(text.map_or(u64::MAX, |text| text.len() as u64).to_be_bytes());
        digest.update(text.unwrap_or_default());
    };
    add(owner.tenant.as_deref());
    add(owner.principal.name());
    // Ids of a server with one agent stay as they are stored.
    if let Some(agent) = owner.agent.as_deref() {
        add(Some(agent));
    }
    let digest: [u8; 32] = digest.finalize().into();
    chosen.scoped(std::array::from_fn(|i| digest[i]))
}

impl Service {
    /// Finds the task that a caller names. Replaces an id that the caller chose by the stored id.
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

    /// The task with this stored id, if it belongs to the caller.
    pub(super) async fn load(&self, caller: &Caller, id: &TaskId) -> Result<Option<Snapshot>, Error> {
        self.0.store.load(&caller.owner, id).await.map_err(|error| internal(&error))
    }
}
