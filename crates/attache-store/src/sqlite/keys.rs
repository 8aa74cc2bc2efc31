//! Idempotency keys: a key creates one task or makes one append.
//!
//! A call reserves its key first, and then reads whether the key was used. So two calls with the same key run one after the other,
//! and the second one finds what the first one has written.

use std::collections::HashSet;
use std::sync::Arc;

use attache_core::{Idempotency, Owner, StoreError, UsedKey};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Notify;

use super::fault::Fault;
use super::rows;
use super::{Inner, writer::Batch};

/// The keys that are reserved by running calls.
#[derive(Default)]
pub(super) struct KeyReservations {
    reserved: Mutex<HashSet<(Owner, String), RandomState>>,
    released: Notify,
}

/// The right to use a key, until it is dropped.
pub(super) struct Reservation {
    keys: Arc<KeyReservations>,
    owner_and_key: (Owner, String),
    fingerprint: [u8; 32],
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.keys.reserved.lock().remove(&self.owner_and_key);
        self.keys.released.notify_waiters();
    }
}

impl Reservation {
    /// Records that the key was used for this task.
    pub(super) fn write(&self, batch: &mut Batch<'_>, task: i64) -> Result<(), Fault> {
        let owner = batch.owner(&self.owner_and_key.0)?;
        batch
            .db
            .prepare_cached("INSERT INTO keys (owner, key, task, fingerprint) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![owner, self.owner_and_key.1, task, self.fingerprint])?;
        Ok(())
    }
}

impl Inner {
    /// Reserves a key. The inner error is the earlier use of the key.
    pub(super) async fn reserve(
        &self,
        owner: &Owner,
        idempotency: Idempotency,
    ) -> Result<Result<Reservation, UsedKey>, StoreError> {
        let Idempotency { key, fingerprint } = idempotency;
        let owner_and_key = (owner.clone(), key);
        loop {
            let mut released = std::pin::pin!(self.keys.released.notified());
            released.as_mut().enable();
            if self.keys.reserved.lock().insert(owner_and_key.clone()) {
                break;
            }
            released.await;
        }
        let reservation = Reservation { keys: self.keys.clone(), owner_and_key, fingerprint };
        Ok(match self.find_key(owner, &reservation.owner_and_key.1)? {
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
        Ok(UsedKey { task: rows::task_id(row, 0)?, fingerprint: row.get(1)? })
    });
    Ok(known.optional()?)
}
