//! The store in a SQLite file.
//!
//! - One thread [writes](writer). It commits all waiting commands in one transaction.
//! - Tasks that have not ended are also [in memory](live), where an append wakes the readers of their log.
//! - Everything else is [read] from the file. A read costs what it returns, not what the file holds.
//!
//! A lock ensures that exactly one process serves a file. Therefore leases are only in memory: after a restart no task has one.

mod abandoned;
mod append;
mod backup;
mod check;
mod checkpoint;
mod content;
mod counts;
mod create;
mod export;
mod fault;
mod files;
mod forget;
mod header;
mod keys;
mod list;
mod live;
mod lock;
mod maintenance;
mod open;
mod open_error;
mod outbox;
mod outbox_rows;
mod owners;
mod prune;
mod read;
mod rows;
mod schema;
mod store;
mod tail;
#[cfg(test)]
mod tests;
mod values;
mod webhook_rows;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use attache_core::{Lease, Owner, Snapshot, StoreError};
use attache_protocol::TaskId;
use rusqlite::Connection;

pub use self::backup::BackupProgress;
use self::checkpoint::Checkpoints;
use self::fault::Fault;
pub use self::forget::{ForgetOptions, ForgetReport};
use self::keys::KeyReservations;
use self::live::{LiveTask, LiveTasks, Phase};
pub use self::maintenance::{
    CheckReport, CompactOptions, CompactReport, ExclusiveUse, ExportReport, Maintenance, MaintenanceError,
};
pub use self::open_error::SqliteOpenError;
use self::outbox::OutboxState;
use self::owners::Owners;
use self::read::{Found, Loaded, Readers};
use self::writer::{Command, Queue, Relay, Writer, closed};
use crate::Keyring;

/// The options of a SQLite store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The keys that encrypt the secrets of webhooks.
    pub keyring: Keyring,
    /// The number of connections that read.
    pub readers: usize,
    /// How many live tasks stay in memory while no turn runs and no reader follows them.
    pub live_tasks: usize,
}

impl SqliteOptions {
    /// The default options with these keys.
    pub fn new(keyring: Keyring) -> Self {
        Self { keyring, readers: 4, live_tasks: 16 * 1024 }
    }

    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Stores tasks in a SQLite file.
///
/// A call returns after its write is on the disk, so the write survives a crash of the process and of the machine. The cost of
/// reading, listing, filtering and counting depends on the size of the result, not on the size of the file. Events are stored one
/// by one for as long as their task, so a reader that was disconnected can resume exactly.
pub struct SqliteStore {
    // The first field: it is dropped first and writes all waiting commands.
    _writer: Writer,
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    queue: Arc<Queue>,
    readers: Readers,
    live: LiveTasks,
    owners: Arc<Owners>,
    keys: Arc<KeyReservations>,
    keyring: Keyring,
    outbox: OutboxState,
    rows: AtomicI64,
    leases: AtomicU64,
    /// The owner whose old tasks were pruned last. The next round continues there, so that with many owners all get their turn.
    pruned: AtomicI64,
}

/// Where a task is stored.
enum Location {
    Missing,
    Live(Arc<LiveTask>),
    Ended(Found),
}

impl SqliteStore {
    /// Opens a store. Creates the file and its directories if they do not exist.
    ///
    /// A file that is not a store, was written by a newer version, is damaged or in use is an error. It is not changed.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, SqliteOpenError> {
        let path = path.as_ref();
        let lock = lock::lock_for_server(path)?;
        let db = open::writer(path)?;
        let failed = |error| SqliteOpenError::sqlite(path, error);
        let last =
            db.query_row("SELECT ifnull(max(id), 0) FROM tasks", (), |row| row.get(0)).map_err(failed)?;
        let readers = (0..options.readers.max(1)).map(|_| open::reader(path)).collect::<Result<_, _>>()?;
        let threads = |error| SqliteOpenError::Io { path: path.to_owned(), doing: "given a thread", error };
        let checkpoints = Checkpoints::start(open::writer(path)?).map_err(threads)?;
        let (queue, owners) = (Arc::<Queue>::default(), Arc::<Owners>::default());
        let inner = Inner {
            path: path.to_owned(),
            queue: queue.clone(),
            readers: Readers::new(readers),
            live: LiveTasks::new(options.live_tasks),
            owners: owners.clone(),
            keys: Arc::default(),
            keyring: options.keyring,
            outbox: OutboxState::default(),
            rows: AtomicI64::new(last),
            leases: AtomicU64::new(1),
            pruned: AtomicI64::new(0),
        };
        let writer = Writer::start(path.to_owned(), db, checkpoints, queue, owners, lock).map_err(threads)?;
        Ok(Self { _writer: writer, inner: Arc::new(inner) })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Inner {
    fn next_lease(&self) -> Lease {
        Lease(self.leases.fetch_add(1, Ordering::Relaxed))
    }

    fn next_row(&self) -> i64 {
        self.rows.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn explain(&self, fault: &Fault) -> StoreError {
        fault.explain(&self.path)
    }

    /// Reads a few rows on the calling thread.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, StoreError> {
        work(&self.readers.get()).map_err(|fault| self.explain(&fault))
    }

    /// Reads many rows on a thread that may block.
    async fn read_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self, &Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = self.readers.heavy.clone().acquire_owned().await.map_err(|_| closed())?;
        let inner = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let read = work(&inner, &inner.readers.get()).map_err(|fault| inner.explain(&fault));
            drop(permit);
            read
        });
        reading
            .await
            .map_err(|error| StoreError(format!("reading from the store was interrupted: {error}")))?
    }

    /// Sends a command to the writer, and waits for its result.
    async fn write<T: Send + 'static>(
        &self,
        command: impl FnOnce(ResultSender<T>) -> Box<dyn Command>,
    ) -> Result<T, StoreError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.queue.push(command(sender));
        let relay = Relay(&self.queue);
        let result = receiver.await;
        drop(relay);
        result.map_err(|_| closed())?
    }

    /// Finds a task, and loads it into memory if it has not ended.
    async fn locate(self: &Arc<Self>, task: &TaskId) -> Result<Location, StoreError> {
        loop {
            if let Some(live) = self.live.get(task) {
                let phase = live.lock().phase;
                match phase {
                    Phase::Creating => return Ok(Location::Missing),
                    Phase::Live => return Ok(Location::Live(live)),
                    Phase::Ended(_) => {}
                }
            }
            let removals = self.live.removals(task);
            match self.read(|db| read::find(db, task))? {
                None => return Ok(Location::Missing),
                Some(found) if found.end.is_some() => return Ok(Location::Ended(found)),
                Some(_) => {}
            }
            let id = task.clone();
            let live = self.read_blocking(move |_, db| read::live(db, &id)).await?;
            if let Some(live) = live.and_then(|live| self.live.add_if_unchanged(live, removals)) {
                let phase = live.lock().phase;
                if phase == Phase::Live {
                    return Ok(Location::Live(live));
                }
            }
        }
    }

    async fn load(self: &Arc<Self>, owner: &Owner, task: &TaskId) -> Result<Option<Snapshot>, StoreError> {
        loop {
            if let Some(live) = self.live.get(task) {
                if live.owner != *owner {
                    return Ok(None);
                }
                if let Some(snapshot) = live.snapshot() {
                    return Ok(Some(snapshot));
                }
                if live.lock().phase == Phase::Creating {
                    return Ok(None);
                }
            }
            let loaded = self.read(|db| match self.owners.find(db, owner)? {
                Some(owner) => read::load(db, owner, task),
                None => Ok(Loaded::Nothing),
            })?;
            match loaded {
                Loaded::Nothing => return Ok(None),
                Loaded::Ended(snapshot) => return Ok(Some(snapshot)),
                Loaded::Live => {
                    self.locate(task).await?;
                }
            }
        }
    }
}

/// Sends the result of a command to the waiting caller.
type ResultSender<T> = tokio::sync::oneshot::Sender<Result<T, StoreError>>;
