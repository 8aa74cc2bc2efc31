//! A store that keeps tasks in the state of an engine. The older iii-a2a worker keeps its tasks there too.
//!
//! A [`MemoryStore`] holds the tasks. Each change is written with `state::set` before the call returns. The scope is `a2a:tasks`,
//! the key is the task's id, and the format is that of the older worker plus one member, which the older worker ignores. The
//! member holds the owner, the generation, the lease, and data that the older format would lose.
//!
//! - **Writes of one task are never reordered.** There is one write at a time, of the latest version. Callers that wait for it
//!   share the next write. Different tasks do not wait for each other.
//! - **A task that cannot be written is not created.** The client gets an error, and the task does not exist.
//! - **An append that cannot be written is not lost.** It is in memory, and readers of the task see it. The append waits ten
//!   seconds for the engine. After that, or at once if the engine rejects the value, it returns an error. The write is retried in
//!   the background as long as the store lives. If the process dies before that, the task is as it was last written.
//! - **Tasks of other processes are refreshed.** All tasks are read once, at the first listing or sweep. A task that is not in
//!   memory is read when a client requests it. A task that another process works on is read again with each request, subscription
//!   and sweep. A task that another process creates later is listed after the first request for its id.
//! - **A cancel by another process ends the turn** with its next event, or within 30 seconds. Its result is dropped.
//! - **The turn of another process counts as dead only after two minutes** without a new status or a renewed lease. The lease is
//!   written every 30 seconds while a turn runs. So the tasks of a dead process are taken over after two to three minutes. The
//!   state has no compare-and-set: if two processes change one task within a second, the last write wins.
//! - **Values in the scope that are no tasks are ignored.** The store does not change them.
//!
//! Push configurations, idempotency keys and values are in memory only. Use another store if they must survive the process.

mod document;
mod ended;
mod events;
mod foreign;
mod saving;
mod state;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{
    Abandoned, Append, AppendError, Appended, BoxFuture, Created, Lease, ListPage, ListQuery, MemoryStore,
    NewTask, Outbox, Owner, RenewFailure, Retention, Seq, Snapshot, Store, StoreError, TailItem, TaskEvent,
    UsedKey, Values, fold,
};
use attache_protocol::{Task, TaskId, TaskState, Timestamp};
use futures::future::join_all;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{Notify, OnceCell};
use uuid::Uuid;

use self::document::TaskMeta;
use self::saving::{PendingWrite, PendingWrites, Slot, failed, is_unreachable};
use self::state::State;
use crate::{CallError, Functions};

/// Parses a task in the state, and writes it again. For fuzzing.
pub(crate) fn read_document(json: &str) -> Result<(Task, Result<Box<RawValue>, CallError>), String> {
    let document::Document { task, meta } = document::read(json)?;
    let written = document::write(&task, &meta);
    Ok((task, written))
}

/// A lease is written again when it has grown by this much.
const LEASE_STEP: Duration = Duration::from_secs(30);

/// How often a task of another process is read while a client is subscribed to it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A store that keeps tasks in the state of an engine.
///
/// ```no_run
/// use attache_iii::StateStore;
/// use attache_iii::worker::{Worker, WorkerOptions};
///
/// # fn example() -> Result<(), attache_iii::worker::WorkerError> {
/// let worker = Worker::connect(WorkerOptions::new("ws://localhost:49134"))?;
/// let store = StateStore::new(worker.clone());
/// # Ok(())
/// # }
/// ```
pub struct StateStore(Arc<Inner>);

struct Inner {
    state: State,
    memory: MemoryStore,
    /// The name of this store in the tasks that it writes.
    writer: String,
    known: Mutex<KnownTasks>,
    /// The tasks that other processes work on, with the lease that stands for the other process.
    foreign: Mutex<HashMap<TaskId, Lease>>,
    importing: tokio::sync::Mutex<()>,
    all_read: OnceCell<()>,
    pending: Mutex<PendingWrites>,
    flushed: Notify,
}

#[derive(Default)]
struct KnownTasks {
    slots: HashMap<TaskId, Arc<Slot>>,
    /// Ids of tasks that are being created.
    reserved: HashSet<TaskId>,
}

impl KnownTasks {
    fn has(&self, task: &TaskId) -> bool {
        self.slots.contains_key(task) || self.reserved.contains(task)
    }
}

/// The reservation of a task id during its creation. Dropping it ends the reservation.
struct Reservation<'a>(&'a Inner, TaskId);

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.0.known.lock().reserved.remove(&self.1);
    }
}

impl StateStore {
    /// Creates a store in the state of this engine.
    pub fn new(functions: impl Functions) -> Self {
        Self(Arc::new(Inner {
            state: State(Arc::new(functions)),
            memory: MemoryStore::new(),
            writer: Uuid::new_v4().to_string(),
            known: Mutex::default(),
            foreign: Mutex::default(),
            importing: tokio::sync::Mutex::default(),
            all_read: OnceCell::new(),
            pending: Mutex::default(),
            flushed: Notify::new(),
        }))
    }
}

impl fmt::Debug for StateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateStore").field("writer", &self.0.writer).finish_non_exhaustive()
    }
}

impl Inner {
    fn slot(&self, task: &TaskId) -> Option<Arc<Slot>> {
        self.known.lock().slots.get(task).cloned()
    }

    fn reserve(&self, task: &TaskId) -> Option<Reservation<'_>> {
        let mut known = self.known.lock();
        let free = !known.slots.contains_key(task) && known.reserved.insert(task.clone());
        free.then(|| Reservation(self, task.clone()))
    }

    /// Creates a task. It is written to the state first. If that fails, the task does not exist.
    async fn create(self: &Arc<Self>, new: NewTask) -> Result<Created, StoreError> {
        let task = folded(&new.events)?;
        if let Some(idempotency) = &new.idempotency
            && let Some(known) = self.memory.find_key(&new.owner, &idempotency.key).await?
        {
            return Ok(Created::KeyUsed(known));
        }
        let Some(reservation) = self.reserve(&task.id) else { return Ok(Created::Taken) };
        if self.is_pending(&task.id) {
            return Err(StoreError("an earlier task with this id is still in the engine's state".to_owned()));
        }
        let (id, owner, leased) = (&task.id, new.owner.clone(), Some(new.lease_until));
        let seq = Seq::START.plus(new.events.len());
        let meta = TaskMeta { owner: owner.clone(), seq, writer: self.writer.clone(), leased };
        let json = document::write(&task, &meta).map_err(|error| failed(&error))?;
        match self.state.set(id, &json).await {
            Ok(Some(before)) if !self.is_own(&before) => {
                // Another process created the task first, and this store has not read it yet.
                self.state.set(id, &before).await.map_err(|error| failed(&error))?;
                return Ok(Created::Taken);
            }
            Ok(_) => {}
            Err(error) => {
                if is_unreachable(&error) {
                    // The write may have succeeded.
                    self.retry_later(id, PendingWrite::Withdraw, &error);
                }
                return Err(failed(&error));
            }
        }
        let created = self.memory.create(new).await?;
        match &created {
            Created::New { seq, .. } => {
                let slot = Arc::new(Slot::new(owner, *seq, leased));
                self.known.lock().slots.insert(id.clone(), slot);
                drop(reservation);
            }
            // The key was used a moment ago.
            Created::KeyUsed(_) | Created::Taken => self.delete(id, PendingWrite::Withdraw).await,
        }
        Ok(created)
    }

    async fn append(self: &Arc<Self>, task: &TaskId, append: Append) -> Result<Appended, AppendError> {
        let slot = self.slot(task).ok_or(AppendError::NotFound)?;
        let now = append.now;
        let ends = append.events.iter().filter_map(TaskEvent::state).any(TaskState::is_terminal);
        if ends && !self.is_foreign(task) {
            self.check_end(task, &slot).await?;
        }
        let appended = self.memory.append(task, append).await?;
        let ended = appended.settled.as_ref().is_some_and(|settled| settled.state.is_terminal());
        // If no other process holds the lease, this process continues the task.
        if self.is_foreign(task) && (ended || self.memory.claim(task, now, now).await?.is_some()) {
            self.foreign.lock().remove(task);
        }
        self.save(task, &slot, appended.seq).await?;
        Ok(appended)
    }

    async fn load(&self, owner: &Owner, task: &TaskId) -> Result<Option<Snapshot>, StoreError> {
        if self.slot(task).is_none() {
            self.load_foreign(task).await?;
        } else if self.is_foreign(task)
            && let Err(error) = self.refresh(task).await
        {
            tracing::debug!(%task, %error, "cannot refresh a task of another process; returning the last known version");
        }
        self.memory.load(owner, task).await
    }

    async fn claim(
        self: &Arc<Self>,
        task: &TaskId,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<Lease>, StoreError> {
        let Some(slot) = self.slot(task) else { return Ok(None) };
        let was_foreign = self.is_foreign(task);
        if was_foreign {
            self.refresh(task).await?;
        }
        let Some(lease) = self.memory.claim(task, now, until).await? else { return Ok(None) };
        let before = slot.saved.lock().leased.replace(until);
        // The other processes must see the lease before the turn starts.
        if was_foreign && let Err(error) = self.save_lease(task, &slot).await {
            slot.saved.lock().leased = before;
            self.memory.release(task, lease).await?;
            return Err(failed(&error));
        }
        self.foreign.lock().remove(task);
        Ok(Some(lease))
    }

    async fn renew(
        self: &Arc<Self>,
        leases: &[(TaskId, Lease)],
        until: Timestamp,
    ) -> Result<Vec<(TaskId, RenewFailure)>, StoreError> {
        let failed = self.memory.renew(leases, until).await?;
        let step = LEASE_STEP.as_nanos() as i128;
        let is_renewed = |task: &TaskId| failed.iter().all(|(other, _)| other != task);
        let due = leases.iter().filter(|(task, _)| is_renewed(task)).filter_map(|(task, _)| {
            let slot = self.slot(task)?;
            let mut saved = slot.saved.lock();
            saved.leased = Some(until);
            let is_due =
                saved.leased_in_state.is_none_or(|in_state| until.as_nanos() - in_state.as_nanos() >= step);
            drop(saved);
            is_due.then_some((task, slot))
        });
        let written = due.map(|(task, slot)| async move {
            if let Err(error) = self.save_lease(task, &slot).await {
                // The next renewal comes soon.
                tracing::debug!(%task, %error, "cannot write a lease");
            }
        });
        join_all(written).await;
        Ok(failed)
    }

    async fn prune(
        self: &Arc<Self>,
        retention: &Retention,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.read_all().await?;
        let pruned = self.memory.prune(retention, now, limit).await?;
        if pruned > 0 {
            let all: Vec<_> =
                self.known.lock().slots.iter().map(|(task, slot)| (task.clone(), slot.clone())).collect();
            for (task, slot) in all {
                if self.memory.load(&slot.owner, &task).await?.is_none() {
                    self.known.lock().slots.remove(&task);
                    self.delete(&task, PendingWrite::Delete).await;
                }
            }
        }
        Ok(pruned)
    }

    /// Deletes a task from the state, now or later.
    async fn delete(self: &Arc<Self>, task: &TaskId, otherwise: PendingWrite) {
        if let Err(error) = self.state.delete(task).await {
            self.retry_later(task, otherwise, &error);
        }
    }
}

/// The task that results from a log.
fn folded(events: &[TaskEvent]) -> Result<Task, StoreError> {
    let Some((TaskEvent::Created(task), rest)) = events.split_first() else {
        return Err(StoreError("a log must begin with the event that creates the task".to_owned()));
    };
    let mut task = Task::clone(task);
    for event in rest {
        let added = fold(&mut task, event.clone());
        added.map_err(|error| StoreError(format!("invalid event log: {error}")))?;
    }
    Ok(task)
}

impl Store for StateStore {
    fn create(&self, task: NewTask) -> BoxFuture<'_, Result<Created, StoreError>> {
        Box::pin(self.0.create(task))
    }

    fn append<'a>(
        &'a self,
        task: &'a TaskId,
        append: Append,
    ) -> BoxFuture<'a, Result<Appended, AppendError>> {
        Box::pin(self.0.append(task, append))
    }

    fn load<'a>(
        &'a self,
        owner: &'a Owner,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(self.0.load(owner, task))
    }

    fn find_key<'a>(
        &'a self,
        owner: &'a Owner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<UsedKey>, StoreError>> {
        self.0.memory.find_key(owner, key)
    }

    fn list<'a>(
        &'a self,
        owner: &'a Owner,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        Box::pin(async {
            self.0.read_all().await?;
            self.0.memory.list(owner, query).await
        })
    }

    fn tail(&self, task: &TaskId, after: Seq) -> BoxStream<'static, Result<TailItem, StoreError>> {
        let tail = self.0.memory.tail(task, after);
        if !self.0.is_foreign(task) {
            return tail;
        }
        stream::unfold((self.0.clone(), task.clone(), tail), async |(inner, task, mut tail)| {
            loop {
                tokio::select! {
                    biased;
                    item = tail.next() => return item.map(|item| (item, (inner, task, tail))),
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                }
                if let Err(error) = inner.refresh(&task).await {
                    tracing::debug!(%task, %error, "cannot refresh a task of another process");
                }
            }
        })
        .boxed()
    }

    fn claim<'a>(
        &'a self,
        task: &'a TaskId,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(self.0.claim(task, now, until))
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(TaskId, Lease)],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<(TaskId, RenewFailure)>, StoreError>> {
        Box::pin(self.0.renew(leases, until))
    }

    fn release<'a>(&'a self, task: &'a TaskId, lease: Lease) -> BoxFuture<'a, Result<(), StoreError>> {
        self.0.memory.release(task, lease)
    }

    fn outbox(&self) -> &dyn Outbox {
        self.0.memory.outbox()
    }

    fn values(&self) -> &dyn Values {
        self.0.memory.values()
    }

    fn abandoned<'a>(
        &'a self,
        agent: Option<&'a str>,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Abandoned>, StoreError>> {
        Box::pin(async move {
            self.0.read_all().await?;
            self.0.refresh_all().await?;
            self.0.memory.abandoned(agent, now, limit).await
        })
    }

    fn prune<'a>(
        &'a self,
        retention: &'a Retention,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(self.0.prune(retention, now, limit))
    }
}
