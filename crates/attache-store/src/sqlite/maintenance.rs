//! Maintenance of a store file: check, backup, compact, export, and dead deliveries.

use std::io::Write;
use std::path::{Path, PathBuf};

use attache_core::{ChangedValue, ContentId, DeadDelivery, DeliveryId, PendingDelivery};
use attache_protocol::{Json, TaskId, Timestamp};
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::backup::{self, BackupProgress};
use super::fault::Fault;
use super::forget::{self, ForgetOptions, ForgetReport};
use super::header::inspect;
use super::lock::{self, FileLock};
use super::rows::{log_range, nanos_of};
use super::{SqliteOpenError, check, content, export, open, outbox_rows, read, schema, values, webhook_rows};
use crate::Keyring;

/// Why maintenance failed.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] SqliteOpenError),
    /// The store could not be read or written.
    #[error("{0}")]
    Store(String),
    /// The export could not be written.
    #[error("the export could not be written: {0}")]
    Export(#[from] std::io::Error),
    /// The private directory of a context could not be removed.
    #[error("the directory `{}` could not be removed: {error}", path.display())]
    Directory {
        /// The path of the directory.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The backup could not be written.
    #[error("the backup `{}` could not be written: {error}", path.display())]
    Backup {
        /// The path of the backup.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
}

/// A store file that is open for maintenance. A server can use the file at the same time.
#[derive(Debug)]
pub struct Maintenance {
    path: PathBuf,
    db: Connection,
}

/// Exclusive use of a store: no server can open it until this is dropped.
#[derive(Debug)]
#[must_use = "servers can open the store as soon as this is dropped"]
pub struct ExclusiveUse(#[expect(dead_code, reason = "it is held, not read")] FileLock);

/// The result of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The number of tasks.
    pub tasks: u64,
    /// The number of events in their logs.
    pub events: u64,
    /// The number of values.
    pub values: u64,
    /// A sentence for each problem. Empty if the store is sound.
    pub problems: Vec<String>,
}

/// The result of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportReport {
    /// The number of tasks.
    pub tasks: u64,
    /// The number of values.
    pub values: u64,
    /// A sentence for each damaged row that was left out. Empty if the store is sound.
    pub problems: Vec<String>,
}

/// The options of compacting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactOptions {
    /// Deletes the events of tasks that ended before this time. The tasks themselves stay. A client that resumes the stream of such a
    /// task gets the whole task instead.
    pub drop_events_before: Option<Timestamp>,
}

impl CompactOptions {
    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// The result of compacting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactReport {
    /// The size in bytes before.
    pub before: u64,
    /// The size in bytes after.
    pub after: u64,
    /// The number of tasks whose events were deleted.
    pub dropped: u64,
}

impl Maintenance {
    /// Opens an existing store. Migrates a store of an older version, unless a server uses it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SqliteOpenError> {
        let path = path.as_ref();
        let failed = |error| SqliteOpenError::sqlite(path, error);
        if inspect(path)? {
            return Err(SqliteOpenError::NotAStore { path: path.to_owned(), what: "empty" });
        }
        let db = open::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let found = schema::version(&db).map_err(failed)?;
        if found > schema::VERSION {
            return Err(SqliteOpenError::Newer { path: path.to_owned(), found, known: schema::VERSION });
        }
        if found < schema::VERSION {
            let _lock = lock::lock(path)?;
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

    /// Checks the whole store for damage and contradictions.
    pub fn check(&self) -> Result<CheckReport, MaintenanceError> {
        check::check(&self.db).map_err(|fault| self.explain(&fault))
    }

    /// Calls a function for each reference to stored content in a task: the task, the id of the content, and the name of the file.
    pub fn for_each_content(
        &self,
        mut each: impl FnMut(&TaskId, &ContentId, Option<&str>),
    ) -> Result<(), MaintenanceError> {
        content::for_each(&self.db, &mut each).map_err(|fault| self.explain(&fault))
    }

    /// Whether a task exists.
    pub fn contains(&self, task: &TaskId) -> Result<bool, MaintenanceError> {
        let found = read::find(&self.db, task).map_err(|fault| self.explain(&fault))?;
        Ok(found.is_some())
    }

    /// Writes every task with its owner, its events and its webhooks as one line of JSON each, then every value with its scope
    /// and key. Leaves out the secrets of webhooks.
    pub fn export(&self, out: &mut dyn Write) -> Result<ExportReport, MaintenanceError> {
        export::export(&self.db, out, |fault| self.explain(&fault))
    }

    /// Copies the store into a new file and returns its size in bytes. The file must not exist. A server can write meanwhile: the copy
    /// has everything that was acknowledged before the backup began. It does not contain the keyring.
    pub fn backup(
        &self,
        to: impl AsRef<Path>,
        mut progress: impl FnMut(BackupProgress),
    ) -> Result<u64, MaintenanceError> {
        backup::backup(&self.db, to.as_ref(), &mut progress, |fault| self.explain(&fault))
    }

    /// Prevents servers from opening the store while the result exists. An error if a server uses the store.
    pub fn exclusive(&self) -> Result<ExclusiveUse, SqliteOpenError> {
        lock::lock(&self.path).map(ExclusiveUse)
    }

    /// Seals all secrets that are under an old key again, under the current key. Returns their number.
    pub fn reseal(&mut self, keyring: &Keyring) -> Result<usize, MaintenanceError> {
        let (mut count, mut from) = (0, Some(0));
        while let Some(at) = from {
            let (resealed, next) = self.write(|db| webhook_rows::reseal(db, keyring, at))?;
            (count, from) = (count + resealed, next);
        }
        Ok(count)
    }

    /// The pending deliveries, oldest first.
    pub fn list_pending(&self, limit: usize) -> Result<Vec<PendingDelivery>, MaintenanceError> {
        outbox_rows::list_pending(&self.db, limit).map_err(|fault| self.explain(&fault))
    }

    /// The dead deliveries after `after`, oldest first.
    pub fn list_dead(
        &self,
        after: Option<&DeliveryId>,
        limit: usize,
    ) -> Result<Vec<DeadDelivery>, MaintenanceError> {
        outbox_rows::list_dead(&self.db, after, limit).map_err(|fault| self.explain(&fault))
    }

    /// Queues one dead delivery again, or all. Returns their number.
    pub fn retry_dead(
        &mut self,
        delivery: Option<&DeliveryId>,
        now: Timestamp,
    ) -> Result<usize, MaintenanceError> {
        self.write(|db| outbox_rows::retry_dead(db, delivery, now))
    }

    /// Deletes one dead delivery, or all. Returns their number.
    pub fn purge_dead(&mut self, delivery: Option<&DeliveryId>) -> Result<usize, MaintenanceError> {
        self.write(|db| outbox_rows::purge_dead(db, delivery))
    }

    /// The values of a scope, in the order in which their keys got a value.
    pub fn values(&self, scope: &str) -> Result<Vec<(String, Json)>, MaintenanceError> {
        values::list(&self.db, scope).map_err(|fault| self.explain(&fault))
    }

    /// Changes a value. A server that uses the store sees the change at once.
    pub fn change_value(
        &mut self,
        scope: &str,
        key: &str,
        change: impl FnOnce(Option<&Json>) -> Option<Json>,
    ) -> Result<ChangedValue, MaintenanceError> {
        self.write(|db| values::change(db, scope, key, change))
    }

    /// Removes everything that belongs to a caller: tasks with their messages and artifacts, events, webhooks, deliveries and
    /// idempotency keys, its contexts with their private directories, and the values that belong to it (see [`ValueSubject`](attache_core::ValueSubject)). Needs
    /// exclusive use of the store.
    ///
    /// The content is overwritten in the file. Other values, such as the state of workers, belong to no caller and stay.
    pub fn forget(path: impl AsRef<Path>, options: &ForgetOptions) -> Result<ForgetReport, MaintenanceError> {
        let (mut store, _lock) = Self::open_exclusively(path.as_ref())?;
        let failed =
            |error: rusqlite::Error| MaintenanceError::Store(Fault::from(error).explain(path.as_ref()).0);
        store.db.pragma_update(None, "secure_delete", true).map_err(failed)?;
        if options.dry_run {
            let change = store.db.transaction().map_err(failed)?;
            // The transaction is rolled back when it is dropped.
            return forget::forget(&change, options)
                .map_err(|fault| MaintenanceError::Store(fault.explain(path.as_ref()).0));
        }
        // Before their records: if the command is interrupted, the next run finds them again.
        let directories =
            forget::private_directories(&store.db, options).map_err(|fault| store.explain(&fault))?;
        for directory in directories {
            directory
                .remove()
                .map_err(|error| MaintenanceError::Directory { path: directory.path().to_owned(), error })?;
        }
        let report = store.write(|db| forget::forget(db, options))?;
        // The write-ahead log still has the removed content.
        store.db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).map_err(failed)?;
        Ok(report)
    }

    /// Opens a store for exclusive use.
    fn open_exclusively(path: &Path) -> Result<(Self, FileLock), MaintenanceError> {
        if inspect(path)? {
            return Err(SqliteOpenError::NotAStore { path: path.to_owned(), what: "empty" }.into());
        }
        let lock = lock::lock(path)?;
        Ok((Self { path: path.to_owned(), db: open::writer(path)? }, lock))
    }

    /// Makes the file as small as possible. Needs exclusive use of the store, and disk space for a second copy.
    pub fn compact(
        path: impl AsRef<Path>,
        options: CompactOptions,
    ) -> Result<CompactReport, MaintenanceError> {
        let path = path.as_ref();
        let (mut store, _lock) = Self::open_exclusively(path)?;
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
    length(path) + length(&lock::sibling(path, "-wal"))
}

/// Deletes the events of tasks that ended before a time. Keeps those of tasks with pending or dead deliveries. Returns the number of
/// tasks.
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
        dropped += u64::from(drop.execute(log_range(row))? > 0);
    }
    Ok(dropped)
}
