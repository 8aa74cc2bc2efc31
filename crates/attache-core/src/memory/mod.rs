//! The store in memory: for tests, for embedding, and for tasks that need not survive the process.

mod cell;
mod id;
mod index;
mod outbox;
mod ranked;
mod values;

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use attache_protocol::{TaskId, Timestamp};
use foldhash::fast::RandomState;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::{Mutex, RwLock};

use self::cell::{After, Cell, Change};
use self::id::Uuid;
use self::index::{Index, IndexPage};
use self::outbox::MemoryOutbox;
use self::ranked::{Position, RankedMap};
use self::values::MemoryValues;
use crate::{
    Abandoned, Append, AppendError, Appended, BoxFuture, Created, FoldError, Idempotency, Lease, ListPage,
    ListQuery, NewTask, NewWebhook, Outbox, Owner, RenewFailure, Retention, Seq, Snapshot, Store, StoreError,
    TailItem, TaskEvent, UsedKey, Values,
};

/// The number of shards. Each has its own lock, so that many tasks can be created and read at once.
const SHARDS: usize = 64;

/// How many tasks are collected before they are indexed for listings.
const INDEX_BATCH: usize = 128;

/// How many ended tasks keep their events, so that a stream can be resumed exactly. Only tasks that a stream has read count.
const RECENT_LOGS: usize = 1024;

/// Stores tasks in memory.
///
/// The cost of listing, filtering and counting depends on the page, not on the number of tasks. A task that has ended is kept as JSON.
/// The last 1,024 ended tasks that were streamed also keep their events. A stream of an older task that is resumed gets the whole
/// task instead.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Vec<RwLock<Shard>>,
    owners: RwLock<Owners>,
    keys: Mutex<Keys>,
    unindexed: Mutex<Vec<Arc<Cell>>>,
    index: Mutex<Index>,
    recent: Mutex<VecDeque<Arc<Cell>>>,
    /// The tasks that have not ended.
    live: Mutex<HashSet<TaskId, RandomState>>,
    outbox: MemoryOutbox,
    values: MemoryValues,
    slots: AtomicU32,
    leases: AtomicU64,
}

/// A part of the tasks, by id.
#[derive(Debug, Default)]
struct Shard {
    uuids: RankedMap<Uuid, Arc<Cell>>,
    others: HashMap<TaskId, Arc<Cell>, RandomState>,
}

/// The position of a new task in a shard.
enum InsertPosition {
    Uuid(Uuid, Position),
    Other(TaskId),
}

impl Shard {
    fn get(&self, task: &TaskId) -> Option<&Arc<Cell>> {
        match id::uuid(task.as_str()) {
            Some(uuid) => self.uuids.get(&uuid),
            None => self.others.get(task),
        }
    }

    /// The position for a new task. `None` if the shard has the task.
    fn insert_position(&self, task: &TaskId) -> Option<InsertPosition> {
        match id::uuid(task.as_str()) {
            Some(uuid) => Some(InsertPosition::Uuid(uuid, self.uuids.insert_position(&uuid)?)),
            None => (!self.others.contains_key(task)).then(|| InsertPosition::Other(task.clone())),
        }
    }

    fn insert(&mut self, position: InsertPosition, cell: Arc<Cell>) {
        match position {
            InsertPosition::Uuid(uuid, position) => self.uuids.insert_at(position, uuid, cell),
            InsertPosition::Other(task) => {
                self.others.insert(task, cell);
            }
        }
    }

    fn remove(&mut self, task: &TaskId) {
        match id::uuid(task.as_str()) {
            Some(uuid) => self.uuids.remove(&uuid),
            None => {
                self.others.remove(task);
            }
        }
    }
}

/// The owners and their numbers.
#[derive(Debug, Default)]
struct Owners {
    numbers: HashMap<Owner, u32, RandomState>,
    by_number: Vec<Owner>,
}

/// The idempotency keys that each owner has used.
type Keys = HashMap<(u32, String), UsedKey>;

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            owners: RwLock::default(),
            keys: Mutex::default(),
            unindexed: Mutex::default(),
            index: Mutex::default(),
            recent: Mutex::default(),
            live: Mutex::default(),
            outbox: MemoryOutbox::default(),
            values: MemoryValues::default(),
            slots: AtomicU32::new(0),
            leases: AtomicU64::new(1),
        }
    }

    /// The shard of a task. Most ids end in random characters, so the last ones spread tasks well.
    fn shard(&self, task: &TaskId) -> &RwLock<Shard> {
        let mix = task
            .as_str()
            .bytes()
            .rev()
            .take(4)
            .fold(0usize, |mix, byte| mix.wrapping_mul(31) + usize::from(byte));
        &self.shards[mix % SHARDS]
    }

    fn cell(&self, task: &TaskId) -> Option<Arc<Cell>> {
        self.shard(task).read().get(task).cloned()
    }

    fn owner(&self, owner: &Owner) -> Option<u32> {
        self.owners.read().numbers.get(owner).copied()
    }

    /// The number of an owner, which gets one if it has none.
    fn intern(&self, owner: &Owner) -> u32 {
        if let Some(number) = self.owner(owner) {
            return number;
        }
        let Owners { numbers, by_number } = &mut *self.owners.write();
        *numbers.entry(owner.clone()).or_insert_with(|| {
            by_number.push(owner.clone());
            by_number.len() as u32 - 1
        })
    }

    fn next_lease(&self) -> Lease {
        Lease(self.leases.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds a changed task to the next batch of the index, and limits the number of logs of ended tasks.
    fn after_change(&self, cell: &Arc<Cell>, appended: &Change) {
        if appended.index {
            let mut unindexed = self.unindexed.lock();
            unindexed.push(cell.clone());
            if unindexed.len() >= INDEX_BATCH {
                drop(unindexed);
                // The index is locked first, so that no listing can miss the tasks of this batch.
                let mut index = self.index.lock();
                let batch = std::mem::take(&mut *self.unindexed.lock());
                self.update_index(&mut index, batch);
            }
        }
        if appended.log_kept {
            let mut recent = self.recent.lock();
            recent.push_back(cell.clone());
            let oldest = if recent.len() > RECENT_LOGS { recent.pop_front() } else { None };
            drop(recent);
            if let Some(oldest) = oldest {
                oldest.forget_log();
            }
        }
    }

    fn update_index(&self, index: &mut Index, batch: Vec<Arc<Cell>>) {
        for cell in batch {
            index.update(&cell);
        }
    }

    fn create_now(&self, new: NewTask) -> Result<Created, StoreError> {
        let NewTask { owner, events, now, followed, lease_until, idempotency, push } = new;
        let Some(TaskEvent::Created(task)) = events.first() else {
            return Err(StoreError("a log must begin with the event that creates the task".to_owned()));
        };
        let id = task.id.clone();
        let number = self.intern(&owner);
        // The lock is held until the task can be found, so that no other call finds the key before the task.
        let (mut keys, mut unused) = (None, None);
        if let Some(Idempotency { key, fingerprint }) = idempotency {
            match keys.insert(self.keys.lock()).entry((number, key)) {
                MapEntry::Occupied(used) => return Ok(Created::KeyUsed(used.get().clone())),
                MapEntry::Vacant(vacant) => unused = Some((vacant, fingerprint)),
            }
        }
        // The events are checked before anything is stored, so that an invalid log leaves nothing behind.
        let ended = task.status.state.is_terminal() && events.len() > 1;
        let ended = ended.then_some(FoldError::Ended(task.status.state));
        if let Some(error) = ended.or_else(|| cell::fold_error(&events[1..])) {
            return Err(StoreError(format!("invalid event log: {error}")));
        }
        // The lock is held until the task is inserted, so that only one of two tasks with the same id is created.
        let mut shard = self.shard(&id).write();
        let Some(position) = shard.insert_position(&id) else { return Ok(Created::Taken) };
        if let Some((vacant, fingerprint)) = unused {
            vacant.insert(UsedKey { task: id.clone(), fingerprint });
        }
        let slot = self.slots.fetch_add(1, Ordering::Relaxed);
        let lease = self.next_lease();
        let push = push.map(|webhook| {
            // This is the first webhook of the task. The service has checked that a task may have one.
            self.outbox.put(&id, owner, NewWebhook { webhook, limit: usize::MAX });
            (&self.outbox, now)
        });
        let (cell, appended) = Cell::new(number, slot, events, followed, (lease, lease_until), push)
            .map_err(|error| StoreError(format!("invalid event log: {error}")))?;
        let cell = Arc::new(cell);
        if !appended.ended {
            self.live.lock().insert(id);
        }
        shard.insert(position, cell.clone());
        drop((shard, keys));
        self.after_change(&cell, &appended);
        Ok(Created::New { seq: appended.seq, lease, settled: appended.settled })
    }

    fn append_now(&self, task: &TaskId, append: Append) -> Result<Appended, AppendError> {
        let Append { after, lease, idempotency, push, events, now } = append;
        let cell = self.cell(task).ok_or(AppendError::NotFound)?;
        let push = push.and_then(|new| Some((self.owner_of(&cell)?, new)));
        let change = match idempotency {
            None => cell.append(lease, after, events, push, (&self.outbox, now))?,
            Some((owner, Idempotency { key, fingerprint })) => {
                let mut keys = self.keys.lock();
                match keys.entry((self.intern(&owner), key)) {
                    MapEntry::Occupied(used) => return Err(AppendError::KeyUsed(used.get().clone())),
                    MapEntry::Vacant(vacant) => {
                        let change = cell.append(lease, after, events, push, (&self.outbox, now))?;
                        vacant.insert(UsedKey { task: task.clone(), fingerprint });
                        change
                    }
                }
            }
        };
        if change.ended {
            self.live.lock().remove(task);
        }
        self.after_change(&cell, &change);
        Ok(Appended { seq: change.seq, settled: change.settled })
    }

    fn list_now(&self, owner: &Owner, query: &ListQuery) -> ListPage {
        let Some(owner) = self.owner(owner) else {
            return ListPage { tasks: Vec::new(), next: None, total: 0 };
        };
        let mut index = self.index.lock();
        let unindexed = std::mem::take(&mut *self.unindexed.lock());
        self.update_index(&mut index, unindexed);
        let IndexPage { tasks, next, total } = index.page(owner, query);
        drop(index);
        let tasks = tasks.into_iter().map(|task| task.unwrap_or_else(|cell| cell.snapshot())).collect();
        ListPage { tasks, next, total }
    }
}

impl Store for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn is_volatile(&self) -> bool {
        true
    }

    fn create(&self, task: NewTask) -> BoxFuture<'_, Result<Created, StoreError>> {
        ready(self.create_now(task))
    }

    fn append<'a>(
        &'a self,
        task: &'a TaskId,
        append: Append,
    ) -> BoxFuture<'a, Result<Appended, AppendError>> {
        ready(self.append_now(task, append))
    }

    fn find_key<'a>(
        &'a self,
        owner: &'a Owner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<UsedKey>, StoreError>> {
        let used =
            self.owner(owner).and_then(|owner| self.keys.lock().get(&(owner, key.to_owned())).cloned());
        ready(Ok(used))
    }

    fn load<'a>(
        &'a self,
        owner: &'a Owner,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        let owner = self.owner(owner);
        let cell = self.cell(task).filter(|cell| Some(cell.owner) == owner);
        ready(Ok(cell.map(|cell| cell.snapshot())))
    }

    fn list<'a>(
        &'a self,
        owner: &'a Owner,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        ready(Ok(self.list_now(owner, query)))
    }

    fn tail(&self, task: &TaskId, after: Seq) -> BoxStream<'static, Result<TailItem, StoreError>> {
        let Some(cell) = self.cell(task) else { return stream::empty().boxed() };
        cell.follow();
        stream::unfold((cell, after), async |(cell, after)| {
            loop {
                let grown = match cell.after(after) {
                    After::Items(item) => return Some((Ok(item.clone()), (cell, end_of(&item, after)))),
                    After::End => return None,
                    After::Wait(grown) => grown,
                };
                // Registers first and checks again before it waits, so that no append in between is missed.
                let mut wake = std::pin::pin!(grown.notified());
                wake.as_mut().enable();
                if matches!(cell.after(after), After::Wait(_)) {
                    wake.await;
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
        let lease = self.next_lease();
        ready(Ok(self.cell(task).filter(|cell| cell.claim(lease, now, until)).map(|_| lease)))
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(TaskId, Lease)],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<(TaskId, RenewFailure)>, StoreError>> {
        let failures = leases.iter().filter_map(|(task, lease)| {
            let cell = self.cell(task).ok_or(RenewFailure::LeaseLost);
            let failure = cell.and_then(|cell| cell.renew(*lease, until)).err()?;
            Some((task.clone(), failure))
        });
        ready(Ok(failures.collect()))
    }

    fn release<'a>(&'a self, task: &'a TaskId, lease: Lease) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(cell) = self.cell(task) {
            cell.release(lease);
        }
        ready(Ok(()))
    }

    fn outbox(&self) -> &dyn Outbox {
        self
    }

    fn values(&self) -> &dyn Values {
        &self.values
    }

    fn abandoned<'a>(
        &'a self,
        agent: Option<&'a str>,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Abandoned>, StoreError>> {
        let live: Vec<TaskId> = self.live.lock().iter().cloned().collect();
        let cells = live.iter().filter_map(|task| self.cell(task)).filter(|cell| cell.is_abandoned(now));
        let abandoned = cells
            .filter_map(|cell| Some(Abandoned { owner: self.owner_of(&cell)?, task: cell.snapshot() }))
            .filter(|abandoned| abandoned.owner.agent.as_deref() == agent)
            .take(limit)
            .collect();
        ready(Ok(abandoned))
    }

    fn prune<'a>(
        &'a self,
        retention: &'a Retention,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        ready(Ok(self.prune_now(retention, now, limit)))
    }
}

impl MemoryStore {
    fn owner_of(&self, cell: &Cell) -> Option<Owner> {
        self.owners.read().by_number.get(cell.owner as usize).cloned()
    }

    fn prune_now(&self, retention: &Retention, now: Timestamp, limit: usize) -> usize {
        let since = retention.max_age.map(|age| {
            let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
            cell::nanos_of(now).saturating_sub(age)
        });
        let mut index = self.index.lock();
        let unindexed = std::mem::take(&mut *self.unindexed.lock());
        self.update_index(&mut index, unindexed);
        let owners = 0..self.owners.read().by_number.len() as u32;
        let mut pruned = HashSet::new();
        for owner in owners {
            for cell in index.expired(owner, since, retention.max_tasks) {
                let id = cell.snapshot().task().id.clone();
                if pruned.len() < limit && !cell.is_live() && !self.outbox.has_deliveries(&id) {
                    index.remove(&cell);
                    self.shard(&id).write().remove(&id);
                    self.outbox.delete_task(&id);
                    pruned.insert(id);
                }
            }
        }
        if !pruned.is_empty() {
            self.keys.lock().retain(|_, used| !pruned.contains(&used.task));
        }
        pruned.len()
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

fn end_of(item: &TailItem, after: Seq) -> Seq {
    match item {
        TailItem::Entries(entries) => entries.last().map_or(after, |entry| entry.seq),
        TailItem::Reset(snapshot) => snapshot.seq,
    }
}
