//! The store that keeps tasks in the state of an engine, where the older iii-a2a worker kept them and finds them.
//!
//! A [`MemoryStore`] does the work. What it has is written with `state::set` before a call answers, under the scope `a2a:tasks`
//! and the task's id, in the older worker's form with one member more, which that one passes over: whom the task belongs to, its
//! generation, who works on it, and what the older form would lose.
//!
//! - **Writes of one task never overtake each other.** There is one at a time, it is of the latest, and those who wait for it
//!   share the next one. Different tasks do not wait for each other.
//! - **A task that cannot be written is not created.** The client is told, and nothing of it stays.
//! - **An append that cannot be written is not lost.** It is in memory, and those who read the task see it. The append waits ten
//!   seconds for the engine to come back; then, or at once if the engine refuses the value, it answers an error, and the write is
//!   tried again in the background for as long as the store lives. Should the process die before, the task is as it was written
//!   last.
//! - **Tasks of others are followed.** All tasks are read once, when they are first listed or looked after, and one that is not
//!   known when it is asked for. One that has not ended and is worked on by someone else is read again whenever it is asked for,
//!   subscribed to or looked after. Tasks that others create later are listed once they have been asked for by their id.
//! - **Someone else's turn is not taken for dead** before two minutes without a sign of life: a new status, or the lease in the
//!   task, which is written every half a minute for as long as a turn takes. So a process that died has its tasks taken care of
//!   two to three minutes later. The state knows no compare-and-set: of two processes that do something to one task in the same
//!   moment, the last one has written.
//! - **What is not a task is left alone**, in the scope and in the store.
//!
//! Webhooks, idempotency keys and values are in memory only. Where they have to outlive the process, use a store of its own.

mod document;
mod events;
mod others;
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
use attache_protocol::{Task, TaskId, Timestamp};
use futures::future::join_all;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell};
use uuid::Uuid;

use self::document::Beside;
use self::saving::{Behind, Owed, Slot, failed, is_away};
use self::state::State;
use crate::Functions;

/// By how much a lease grows before that is written.
const LEASE_STEP: Duration = Duration::from_secs(30);

/// How often a task of someone else's is looked at for those who are subscribed to it.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps tasks in the state of an engine.
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
    /// What this store calls itself in the tasks it writes.
    writer: String,
    known: Mutex<KnownTasks>,
    /// The tasks of others that have not ended, with the lease that stands for whoever works on them.
    theirs: Mutex<HashMap<TaskId, Lease>>,
    admitting: tokio::sync::Mutex<()>,
    all_read: OnceCell<()>,
    behind: Mutex<Behind>,
    caught_up: Notify,
}

#[derive(Default)]
struct KnownTasks {
    slots: HashMap<TaskId, Arc<Slot>>,
    /// Those that are about to be created.
    coming: HashSet<TaskId>,
}

impl KnownTasks {
    fn has(&self, task: &TaskId) -> bool {
        self.slots.contains_key(task) || self.coming.contains(task)
    }
}

/// The right to create a task, given back when dropped.
struct Coming<'a>(&'a Inner, TaskId);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.known.lock().coming.remove(&self.1);
    }
}

impl StateStore {
    /// A store in the state of this engine.
    pub fn new(functions: impl Functions) -> Self {
        Self(Arc::new(Inner {
            state: State(Arc::new(functions)),
            memory: MemoryStore::new(),
            writer: Uuid::new_v4().to_string(),
            known: Mutex::default(),
            theirs: Mutex::default(),
            admitting: tokio::sync::Mutex::default(),
            all_read: OnceCell::new(),
            behind: Mutex::default(),
            caught_up: Notify::new(),
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

    fn reserve(&self, task: &TaskId) -> Option<Coming<'_>> {
        let mut known = self.known.lock();
        let free = !known.slots.contains_key(task) && known.coming.insert(task.clone());
        free.then(|| Coming(self, task.clone()))
    }

    /// Keeps a new task: in the state first, so that one that cannot be kept leaves nothing behind.
    async fn create(self: &Arc<Self>, new: NewTask) -> Result<Created, StoreError> {
        let task = folded(&new.events)?;
        if let Some(idempotency) = &new.idempotency
            && let Some(known) = self.memory.find_key(&new.owner, &idempotency.key).await?
        {
            return Ok(Created::KeyUsed(known));
        }
        let Some(coming) = self.reserve(&task.id) else { return Ok(Created::Taken) };
        if self.is_behind(&task.id) {
            return Err(StoreError("an earlier task with this id is still in the engine's state".to_owned()));
        }
        let (id, owner, leased) = (&task.id, new.owner.clone(), Some(new.lease_until));
        let seq = Seq::START.plus(new.events.len());
        let beside = Beside { owner: owner.clone(), seq, writer: self.writer.clone(), leased };
        let json = document::write(&task, &beside).map_err(|error| failed(&error))?;
        match self.state.set(id, &json).await {
            Ok(Some(before)) if !self.is_ours(&before) => {
                // Someone was quicker, and nobody here has seen it.
                self.state.set(id, &before).await.map_err(|error| failed(&error))?;
                return Ok(Created::Taken);
            }
            Ok(_) => {}
            Err(error) => {
                if is_away(&error) {
                    // It may have got there.
                    self.fall_behind(id, Owed::Withdraw, &error);
                }
                return Err(failed(&error));
            }
        }
        let created = self.memory.create(new).await?;
        match &created {
            Created::New { seq, .. } => {
                let slot = Arc::new(Slot::new(owner, *seq, leased));
                self.known.lock().slots.insert(id.clone(), slot);
                drop(coming);
            }
            // The key was used a moment ago.
            Created::KeyUsed(_) | Created::Taken => self.delete(id, Owed::Withdraw).await,
        }
        Ok(created)
    }

    async fn append(self: &Arc<Self>, task: &TaskId, append: Append) -> Result<Appended, AppendError> {
        let slot = self.slot(task).ok_or(AppendError::NotFound)?;
        let now = append.now;
        let appended = self.memory.append(task, append).await?;
        let ended = appended.settled.as_ref().is_some_and(|settled| settled.state.is_terminal());
        // Where nobody else is at work, what happens next happens here.
        if self.is_theirs(task) && (ended || self.memory.claim(task, now, now).await?.is_some()) {
            self.theirs.lock().remove(task);
        }
        self.save(task, &slot, appended.seq).await?;
        Ok(appended)
    }

    async fn load(&self, owner: &Owner, task: &TaskId) -> Result<Option<Snapshot>, StoreError> {
        if self.slot(task).is_none() {
            self.look_up(task).await?;
        } else if self.is_theirs(task)
            && let Err(error) = self.follow(task).await
        {
            tracing::debug!(%task, %error, "a task of someone else's is shown as it was last seen");
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
        let was_theirs = self.is_theirs(task);
        if was_theirs {
            self.follow(task).await?;
        }
        let Some(lease) = self.memory.claim(task, now, until).await? else { return Ok(None) };
        let before = slot.saved.lock().leased.replace(until);
        // The others are to know before anything is done.
        if was_theirs && let Err(error) = self.save_lease(task, &slot).await {
            slot.saved.lock().leased = before;
            self.memory.release(task, lease).await?;
            return Err(failed(&error));
        }
        self.theirs.lock().remove(task);
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
            let is_due = saved.leased_there.is_none_or(|there| until.as_nanos() - there.as_nanos() >= step);
            drop(saved);
            is_due.then_some((task, slot))
        });
        let written = due.map(|(task, slot)| async move {
            if let Err(error) = self.save_lease(task, &slot).await {
                // Half a minute's sign of life may be missing, and the next one comes soon.
                tracing::debug!(%task, %error, "a sign of life could not be written");
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
                    self.delete(&task, Owed::Delete).await;
                }
            }
        }
        Ok(pruned)
    }

    /// Deletes a task from the state, now or as soon as that can be done.
    async fn delete(self: &Arc<Self>, task: &TaskId, otherwise: Owed) {
        if let Err(error) = self.state.delete(task).await {
            self.fall_behind(task, otherwise, &error);
        }
    }
}

/// The task that a log makes.
fn folded(events: &[TaskEvent]) -> Result<Task, StoreError> {
    let Some((TaskEvent::Created(task), rest)) = events.split_first() else {
        return Err(StoreError("a log must begin with the event that creates the task".to_owned()));
    };
    let mut task = Task::clone(task);
    for event in rest {
        let added = fold(&mut task, event.clone());
        added.map_err(|error| StoreError(format!("a log that cannot be: {error}")))?;
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
        if !self.0.is_theirs(task) {
            return tail;
        }
        stream::unfold((self.0.clone(), task.clone(), tail), async |(inner, task, mut tail)| {
            loop {
                tokio::select! {
                    biased;
                    item = tail.next() => return item.map(|item| (item, (inner, task, tail))),
                    () = tokio::time::sleep(LOOK) => {}
                }
                if let Err(error) = inner.follow(&task).await {
                    tracing::debug!(%task, %error, "a task of someone else's could not be looked at");
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

    fn abandoned(&self, now: Timestamp, limit: usize) -> BoxFuture<'_, Result<Vec<Abandoned>, StoreError>> {
        Box::pin(async move {
            self.0.read_all().await?;
            self.0.follow_all().await?;
            self.0.memory.abandoned(now, limit).await
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
