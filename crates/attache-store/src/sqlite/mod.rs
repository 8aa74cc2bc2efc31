//! The store on SQLite.
//!
//! - One thread [writes](writer); it commits whatever waits, at once.
//! - Tasks that have not ended are also [in memory](live), where those who follow them are woken.
//! - Everything else is [read] from the file, at the cost of what is asked for.
//!
//! Exactly one process serves a file, which a lock sees to. Therefore the rights to run turns need not be written: after a
//! restart nobody has any.

mod append;
mod backup;
mod check;
mod checkpoint;
mod counts;
mod create;
mod export;
mod fault;
mod files;
mod forget;
mod keys;
mod list;
mod live;
mod maintenance;
mod open;
mod outbox;
mod outbox_rows;
mod owners;
mod prune;
mod read;
mod rows;
mod schema;
mod tail;
#[cfg(test)]
mod tests;
mod values;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use attache_core::{
    Abandoned, Append, AppendError, Appended, BoxFuture, Created, Lease, ListPage, ListQuery, NewTask,
    Outbox, Owner, RenewFailure, Retention, Seq, Snapshot, Store, StoreError, TailItem, UsedKey, Values,
};
use attache_protocol::{TaskId, Timestamp};
use futures::stream::BoxStream;
use rusqlite::Connection;

pub use self::backup::BackupProgress;
use self::checkpoint::Checkpoints;
use self::fault::Fault;
pub use self::forget::{ForgetOptions, ForgetReport};
use self::keys::Keys;
use self::live::{Live, LiveTasks, Phase};
pub use self::maintenance::{
    CheckReport, CompactOptions, CompactReport, ExclusiveUse, ExportReport, Maintenance, MaintenanceError,
};
pub use self::open::OpenError;
use self::outbox::OutboxState;
use self::owners::Owners;
use self::read::{Found, Loaded, Readers};
use self::writer::{Command, Queue, Relay, Writer, closed};
use crate::Keyring;

/// How a store is to be opened.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The keys under which the secrets of webhooks are sealed.
    pub keyring: Keyring,
    /// How many connections read.
    pub readers: usize,
    /// How many tasks that have not ended are kept in memory, if nobody works on them or follows them.
    pub live_tasks: usize,
}

impl SqliteOptions {
    /// The usual options with these keys.
    pub fn new(keyring: Keyring) -> Self {
        Self { keyring, readers: 4, live_tasks: 16 * 1024 }
    }
}

/// Keeps tasks in a SQLite file.
///
/// What was answered has been written and survives the process and the machine. Reading, listing, filtering and counting cost
/// what is asked for and not what is kept. Events are kept one by one for as long as their task, so a reader who was cut off
/// can always go on exactly.
pub struct SqliteStore {
    // First, so that everything is written before the rest goes.
    _writer: Writer,
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    queue: Arc<Queue>,
    readers: Readers,
    live: LiveTasks,
    owners: Arc<Owners>,
    keys: Arc<Keys>,
    keyring: Keyring,
    outbox: OutboxState,
    rows: AtomicI64,
    leases: AtomicU64,
    /// The owner whose old tasks were forgotten last. With many owners, each round goes on where the last one ended.
    pruned: AtomicI64,
}

/// Where a task is.
enum Place {
    Nowhere,
    Live(Arc<Live>),
    Ended(Found),
}

impl SqliteStore {
    /// Opens a store, making the file and the directories above it if there are none.
    ///
    /// A file that is not a store, was written by a newer version, is damaged or in use is left as it is.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let lock = open::lock_for_server(path)?;
        let db = open::writer(path)?;
        let failed = |error| OpenError::sqlite(path, error);
        let last =
            db.query_row("SELECT ifnull(max(id), 0) FROM tasks", (), |row| row.get(0)).map_err(failed)?;
        let readers = (0..options.readers.max(1)).map(|_| open::reader(path)).collect::<Result<_, _>>()?;
        let threads = |error| OpenError::Io { path: path.to_owned(), doing: "given a thread", error };
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

    /// Where the store is.
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

    /// Reads a little, here and now.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, StoreError> {
        work(&self.readers.get()).map_err(|fault| self.explain(&fault))
    }

    /// Reads much, on a thread that may wait.
    async fn read_much<T: Send + 'static>(
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
        reading.await.map_err(|error| StoreError(format!("reading from the store was cut off: {error}")))?
    }

    /// Has something written.
    async fn write<T: Send + 'static>(
        &self,
        command: impl FnOnce(Answer<T>) -> Box<dyn Command>,
    ) -> Result<T, StoreError> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        self.queue.push(command(answer));
        let relay = Relay(&self.queue);
        let answer = answered.await;
        drop(relay);
        answer.map_err(|_| closed())?
    }

    /// Finds a task, and brings it into memory if it has not ended.
    async fn locate(self: &Arc<Self>, task: &TaskId) -> Result<Place, StoreError> {
        loop {
            if let Some(live) = self.live.get(task) {
                let phase = live.lock().phase;
                match phase {
                    Phase::Unborn => return Ok(Place::Nowhere),
                    Phase::Live => return Ok(Place::Live(live)),
                    Phase::Ended(_) => {}
                }
            }
            let mark = self.live.mark(task);
            match self.read(|db| read::find(db, task))? {
                None => return Ok(Place::Nowhere),
                Some(found) if found.end.is_some() => return Ok(Place::Ended(found)),
                Some(_) => {}
            }
            let id = task.clone();
            let live = self.read_much(move |_, db| read::live(db, &id)).await?;
            if let Some(live) = live.and_then(|live| self.live.add_if_unchanged(live, mark)) {
                let phase = live.lock().phase;
                if phase == Phase::Live {
                    return Ok(Place::Live(live));
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
                if live.lock().phase == Phase::Unborn {
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

    async fn abandoned(self: &Arc<Self>, now: Timestamp, limit: usize) -> Result<Vec<Abandoned>, StoreError> {
        self.read_much(move |inner, db| {
            let db = db.unchecked_transaction()?;
            let mut read = db.prepare_cached(
                "SELECT id, task_id, owner FROM tasks INDEXED BY tasks_at_work WHERE state IN (1, 2) ORDER BY id",
            )?;
            let mut rows = read.query(())?;
            let mut abandoned = Vec::new();
            while abandoned.len() < limit
                && let Some(row) = rows.next()?
            {
                let id = TaskId::from(rows::Id::read(row.get_ref(1)?).map_err(rusqlite::Error::from)?);
                let task = match inner.live.get(&id) {
                    Some(live) if live.is_abandoned(now) => live.snapshot(),
                    Some(_) => None,
                    None => match read::unfold(&db, row.get(0)?, &id) {
                        Ok(unfolded) => Some(Snapshot::live(unfolded.seq, unfolded.task)),
                        // One damaged task does not keep all others from being recovered.
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

/// Where an answer goes.
type Answer<T> = tokio::sync::oneshot::Sender<Result<T, StoreError>>;

impl Store for SqliteStore {
    fn create(&self, task: NewTask) -> BoxFuture<'_, Result<Created, StoreError>> {
        Box::pin(self.inner.create(task))
    }

    fn append<'a>(
        &'a self,
        task: &'a TaskId,
        append: Append,
    ) -> BoxFuture<'a, Result<Appended, AppendError>> {
        Box::pin(self.inner.append(task, append))
    }

    fn load<'a>(
        &'a self,
        owner: &'a Owner,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(self.inner.load(owner, task))
    }

    fn find_key<'a>(
        &'a self,
        owner: &'a Owner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<UsedKey>, StoreError>> {
        Box::pin(async move { self.inner.find_key(owner, key) })
    }

    fn list<'a>(
        &'a self,
        owner: &'a Owner,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        Box::pin(self.inner.list(owner, query))
    }

    fn tail(&self, task: &TaskId, after: Seq) -> BoxStream<'static, Result<TailItem, StoreError>> {
        tail::tail(self.inner.clone(), task.clone(), after)
    }

    fn claim<'a>(
        &'a self,
        task: &'a TaskId,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(async move {
            let lease = self.inner.next_lease();
            Ok(match self.inner.locate(task).await? {
                Place::Live(live) => live.claim(lease, now, until).then_some(lease),
                Place::Ended(_) | Place::Nowhere => None,
            })
        })
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(TaskId, Lease)],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<(TaskId, RenewFailure)>, StoreError>> {
        let renew = |task: &TaskId, lease: Lease| match self.inner.live.get(task) {
            Some(live) => Ok(live.set_lease(lease, Some(until))),
            // A task with a lease is in memory, so this one has ended, or is gone, or has no lease.
            None => Ok(match self.inner.read(|db| read::find(db, task))? {
                Some(found) if found.end.is_some() => Err(RenewFailure::Ended(found.state)),
                Some(_) | None => Err(RenewFailure::LeaseLost),
            }),
        };
        let failures = leases.iter().filter_map(|(task, lease)| match renew(task, *lease) {
            Ok(renewed) => renewed.err().map(|failure| Ok((task.clone(), failure))),
            Err(error) => Some(Err(error)),
        });
        Box::pin(std::future::ready(failures.collect()))
    }

    fn release<'a>(&'a self, task: &'a TaskId, lease: Lease) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(live) = self.inner.live.get(task) {
            let _ = live.set_lease(lease, None);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn outbox(&self) -> &dyn Outbox {
        self
    }

    fn values(&self) -> &dyn Values {
        self
    }

    fn abandoned(&self, now: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Abandoned>, StoreError>> {
        Box::pin(self.inner.abandoned(now, limit))
    }

    fn prune<'a>(
        &'a self,
        retention: &'a Retention,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(self.inner.prune(*retention, now, limit))
    }
}
