//! Keys under which something is done only once.
//!
//! Whoever wants to use a key reserves it first and then looks whether it was used. Two who come with the same key at the same
//! time are thereby told one after the other, and the second learns of what the first has written, not of what it may write.

use std::collections::HashSet;
use std::sync::Arc;

use attache_core::{Idempotency, Owner, StoreError, UsedKey};
use attache_protocol::TaskId;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Notify;

use super::fault::Fault;
use super::rows::Id;
use super::{Inner, writer::Batch};

/// The keys that someone is about to use.
#[derive(Default)]
pub(super) struct Keys {
    reserved: Mutex<HashSet<(Owner, String), RandomState>>,
    released: Notify,
}

/// The right to use a key, until it is dropped.
pub(super) struct Reservation {
    keys: Arc<Keys>,
    place: (Owner, String),
    fingerprint: [u8; 32],
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.keys.reserved.lock().remove(&self.place);
        self.keys.released.notify_waiters();
    }
}

impl Reservation {
    /// Notes what the key was used for.
    pub(super) fn write(&self, batch: &mut Batch<'_>, task: i64) -> Result<(), Fault> {
        let owner = batch.owner(&self.place.0)?;
        batch
            .db
            .prepare_cached("INSERT INTO keys (owner, key, task, fingerprint) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![owner, self.place.1, task, self.fingerprint])?;
        Ok(())
    }
}

impl Inner {
    /// Reserves a key, or says what it was used for.
    pub(super) async fn reserve(
        &self,
        owner: &Owner,
        idempotency: Idempotency,
    ) -> Result<Result<Reservation, UsedKey>, StoreError> {
        let Idempotency { key, fingerprint } = idempotency;
        let place = (owner.clone(), key);
        loop {
            let mut released = std::pin::pin!(self.keys.released.notified());
            released.as_mut().enable();
            if self.keys.reserved.lock().insert(place.clone()) {
                break;
            }
            released.await;
        }
        let reservation = Reservation { keys: self.keys.clone(), place, fingerprint };
        Ok(match self.find_key(owner, &reservation.place.1)? {
            Some(known) => Err(known),
            None => Ok(reservation),
        })
    }

    pub(super) fn find_key(&self, owner: &Owner, key: &str) -> Result<Option<UsedKey>, StoreError> {
        self.read(|db| match self.owners.find(db, owner)? {
            Some(owner) => find(db, owner, key),
            None => Ok(None),
        })
    }
}

fn find(db: &Connection, owner: i64, key: &str) -> Result<Option<UsedKey>, Fault> {
    let mut find = db.prepare_cached(
        "SELECT tasks.task_id, keys.fingerprint FROM keys JOIN tasks ON tasks.id = keys.task
         WHERE keys.owner = ?1 AND keys.key = ?2",
    )?;
    let known = find.query_row(params![owner, key], |row| {
        Ok(UsedKey { task: TaskId::from(Id::read(row.get_ref(0)?)?), fingerprint: row.get(1)? })
    });
    Ok(known.optional()?)
}
