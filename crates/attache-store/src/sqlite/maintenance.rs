//! Looking after a store from beside it: checking, compacting, exporting, and what was not delivered.

use std::io::Write;
use std::path::{Path, PathBuf};

use attache_core::{DeadDelivery, DeliveryId};
use attache_protocol::Timestamp;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::backup::{self, BackupProgress};
use super::fault::Fault;
use super::forget::{self, ForgetOptions, ForgetReport};
use super::rows::{nanos_of, place};
use super::{OpenError, check, export, open, outbox_rows, schema};
use crate::Keyring;

/// Why looking after a store did not work.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It could not be read or written.
    #[error("{0}")]
    Store(String),
    /// What was exported could not be written.
    #[error("the export could not be written: {0}")]
    Export(#[from] std::io::Error),
    /// The backup could not be written.
    #[error("the backup `{}` could not be written: {error}", path.display())]
    Backup {
        /// Where it was to be written.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
}

/// A store that is looked after. A server may use it at the same time.
#[derive(Debug)]
pub struct Maintenance {
    path: PathBuf,
    db: Connection,
}

/// No server can use the store while this exists.
#[derive(Debug)]
#[must_use = "servers may use the store as soon as this is dropped"]
pub struct ExclusiveUse(#[expect(dead_code, reason = "it is held, not read")] open::FileLock);

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// How many tasks there are.
    pub tasks: u64,
    /// How many events their logs have.
    pub events: u64,
    /// How many values there are.
    pub values: u64,
    /// What is wrong, in words. Nothing if all is well.
    pub problems: Vec<String>,
}

/// What was exported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// How many tasks.
    pub tasks: u64,
    /// How many values.
    pub values: u64,
    /// What is damaged and was left out, in words. Nothing if all is well.
    pub problems: Vec<String>,
}

/// What is let go when a store is compacted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactOptions {
    /// The events of tasks that ended before this time. The tasks themselves are kept; whoever follows such a task from its
    /// middle gets it as a whole.
    pub drop_events_before: Option<Timestamp>,
}

/// What compacting a store did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactReport {
    /// How many bytes it had.
    pub before: u64,
    /// How many it has.
    pub after: u64,
    /// Of how many tasks the events were dropped.
    pub dropped: u64,
}

impl Maintenance {
    /// Opens a store that exists. One of an older version is brought up to date, unless a server uses it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let failed = |error| OpenError::sqlite(path, error);
        if open::inspect(path)? {
            return Err(OpenError::NotAStore { path: path.to_owned(), what: "empty" });
        }
        let db = open::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let found = schema::version(&db).map_err(failed)?;
        if found > schema::VERSION {
            return Err(OpenError::Newer { path: path.to_owned(), found, known: schema::VERSION });
        }
        if found < schema::VERSION {
            let _lock = open::lock(path)?;
            open::writer(path)?;
        }
        db.pragma_update(None, "synchronous", "full").map_err(failed)?;
        Ok(Self { path: path.to_owned(), db })
    }

    fn explain(&self, fault: &Fault) -> MaintenanceError {
        MaintenanceError::Store(fault.explain(&self.path).0)
    }

    fn write<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, MaintenanceError> {
        let path = &self.path;
        let failed = |fault: Fault| MaintenanceError::Store(fault.explain(path).0);
        let change = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|e| failed(e.into()))?;
        let result = work(&change).map_err(failed)?;
        change.commit().map_err(|e| failed(e.into()))?;
        Ok(result)
    }

    /// Looks whether everything in the store is as it should be. Reads all of it.
    pub fn check(&self) -> Result<CheckReport, MaintenanceError> {
        check::check(&self.db).map_err(|fault| self.explain(&fault))
    }

    /// Writes every task with its owner, its events and its webhooks as one line of JSON each, then every value with its scope
    /// and key. The secrets of webhooks stay where they are.
    pub fn export(&self, out: &mut dyn Write) -> Result<ExportReport, MaintenanceError> {
        export::export(&self.db, out, |fault| self.explain(&fault))
    }

    /// Copies the store into a new file, which must not exist. How many bytes it has. A server may go on writing meanwhile; the copy
    /// has everything that was acknowledged before. The keyring is not part of it.
    pub fn backup(
        &self,
        to: impl AsRef<Path>,
        mut progress: impl FnMut(BackupProgress),
    ) -> Result<u64, MaintenanceError> {
        backup::backup(&self.db, to.as_ref(), &mut progress, |fault| self.explain(&fault))
    }

    /// Keeps servers from using the store for as long as what comes back is held. An error if one uses it already.
    pub fn exclusive(&self) -> Result<ExclusiveUse, OpenError> {
        open::lock(&self.path).map(ExclusiveUse)
    }

    /// Seals all secrets under the keyring's first key that are sealed under another. How many they were.
    pub fn reseal(&mut self, keyring: &Keyring) -> Result<usize, MaintenanceError> {
        let (mut count, mut from) = (0, Some(0));
        while let Some(at) = from {
            let (resealed, next) = self.write(|db| outbox_rows::reseal(db, keyring, at))?;
            (count, from) = (count + resealed, next);
        }
        Ok(count)
    }

    /// Deliveries that were given up, oldest first, those after `after` only.
    pub fn list_dead(
        &self,
        after: Option<&DeliveryId>,
        limit: usize,
    ) -> Result<Vec<DeadDelivery>, MaintenanceError> {
        outbox_rows::list_dead(&self.db, after, limit).map_err(|fault| self.explain(&fault))
    }

    /// Has deliveries that were given up tried anew, this one or all. How many they were.
    pub fn retry_dead(
        &mut self,
        delivery: Option<&DeliveryId>,
        now: Timestamp,
    ) -> Result<usize, MaintenanceError> {
        self.write(|db| outbox_rows::retry_dead(db, delivery, now))
    }

    /// Forgets deliveries that were given up, this one or all. How many they were.
    pub fn purge_dead(&mut self, delivery: Option<&DeliveryId>) -> Result<usize, MaintenanceError> {
        self.write(|db| outbox_rows::purge_dead(db, delivery))
    }

    /// Removes everything that belongs to a caller: tasks with their messages and artifacts, events, webhooks, deliveries and
    /// idempotency keys. Needs the store for itself.
    ///
    /// The content is overwritten in the file. Values belong to no caller and stay.
    pub fn forget(path: impl AsRef<Path>, options: &ForgetOptions) -> Result<ForgetReport, MaintenanceError> {
        let (mut store, _lock) = Self::open_alone(path.as_ref())?;
        let failed =
            |error: rusqlite::Error| MaintenanceError::Store(Fault::from(error).explain(path.as_ref()).0);
        store.db.pragma_update(None, "secure_delete", true).map_err(failed)?;
        if options.dry_run {
            let change = store.db.transaction().map_err(failed)?;
            // Rolled back when it is dropped.
            return forget::forget(&change, options)
                .map_err(|fault| MaintenanceError::Store(fault.explain(path.as_ref()).0));
        }
        let report = store.write(|db| forget::forget(db, options))?;
        // The write-ahead log still has what was overwritten in the file.
        store.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).map_err(failed)?;
        Ok(report)
    }

    /// Opens a store that no server uses, and keeps servers away.
    fn open_alone(path: &Path) -> Result<(Self, open::FileLock), MaintenanceError> {
        if open::inspect(path)? {
            return Err(OpenError::NotAStore { path: path.to_owned(), what: "empty" }.into());
        }
        let lock = open::lock(path)?;
        Ok((Self { path: path.to_owned(), db: open::writer(path)? }, lock))
    }

    /// Makes the file as small as it can be. Needs the store for itself, and room for a second copy while it works.
    pub fn compact(
        path: impl AsRef<Path>,
        options: CompactOptions,
    ) -> Result<CompactReport, MaintenanceError> {
        let path = path.as_ref();
        let (mut store, _lock) = Self::open_alone(path)?;
        let before = size(path);
        let dropped = match options.drop_events_before {
            None => 0,
            Some(before) => store.write(|db| drop_events(db, nanos_of(before)))?,
        };
        let failed = |error: rusqlite::Error| store.explain(&error.into());
        store.db.execute_batch("VACUUM").map_err(failed)?;
        store.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).map_err(failed)?;
        Ok(CompactReport { before, after: size(path), dropped })
    }
}

fn size(path: &Path) -> u64 {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    length(path) + length(&open::beside(path, "-wal"))
}

/// Drops the events of tasks that ended before a time, except what webhooks may still be told. Of how many tasks.
fn drop_events(db: &Connection, before: i64) -> Result<u64, Fault> {
    let mut read = db.prepare(
        "SELECT id FROM tasks WHERE seq IS NOT NULL AND nanos < ?1 AND NOT EXISTS (
            SELECT 1 FROM webhooks WHERE webhooks.task = tasks.id AND (
                EXISTS (SELECT 1 FROM outbox WHERE outbox.webhook = webhooks.id)
                OR EXISTS (SELECT 1 FROM dead WHERE dead.webhook = webhooks.id)))",
    )?;
    let mut drop = db.prepare("DELETE FROM log WHERE id >= ?1 AND id < ?2")?;
    let mut rows = read.query(params![before])?;
    let mut dropped = 0;
    while let Some(row) = rows.next()? {
        let row: i64 = row.get(0)?;
        dropped += u64::from(drop.execute(params![place(row, 0), place(row + 1, 0)])? > 0);
    }
    Ok(dropped)
}
