//! The store that keeps everything in this process: for tests, for embedding, and where nothing has to outlive the process.

mod cell;
mod index;
mod ranked;

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use attache_protocol::{TaskId, TaskPushNotificationConfig, Timestamp};
use foldhash::fast::RandomState;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::{Mutex, RwLock};

use self::cell::{After, Cell, Change};
use self::index::Index;
use crate::{
    Append, AppendError, Appended, BoxFuture, Created, Idempotency, Known, Lease, ListPage, ListQuery,
    NewTask, Owner, Seq, Snapshot, Store, StoreError, TailItem, TaskEvent,
};

const SHARDS: usize = 64;

/// How many tasks wait at most before they are filed for listings.
const FILING_BATCH: usize = 128;

/// How many tasks that were followed keep their events one by one after the end, so that a reader who was cut off can go on
/// exactly.
const RECENT_LOGS: usize = 1024;

/// Keeps tasks in memory.
///
/// Listing, filtering and counting cost the page and not the collection. A task that has ended is kept as its JSON. The last
/// 1,024 that were followed as they went also keep their events; a reader who comes back later than that gets the whole task
/// instead.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Vec<RwLock<HashMap<TaskId, Arc<Cell>, RandomState>>>,
    owners: RwLock<HashMap<Owner, u32, RandomState>>,
    keys: Mutex<Keys>,
    unfiled: Mutex<Vec<Arc<Cell>>>,
    index: Mutex<Index>,
    recent: Mutex<VecDeque<Arc<Cell>>>,
    slots: AtomicU32,
    leases: AtomicU64,
}

/// The keys of each owner, with the task that was created under each and the digest of what was sent.
type Keys = HashMap<(u32, String), Known>;

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
            unfiled: Mutex::default(),
            index: Mutex::new(Index::new()),
            recent: Mutex::default(),
            slots: AtomicU32::new(0),
            leases: AtomicU64::new(1),
        }
    }

    /// Ids end in random characters, which are spread well enough for choosing a shard.
    fn shard(&self, task: &TaskId) -> &RwLock<HashMap<TaskId, Arc<Cell>, RandomState>> {
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
        self.owners.read().get(owner).copied()
    }

    fn intern(&self, owner: &Owner) -> u32 {
        if let Some(known) = self.owner(owner) {
            return known;
        }
        let mut owners = self.owners.write();
        let next = owners.len() as u32;
        *owners.entry(owner.clone()).or_insert(next)
    }

    fn next_lease(&self) -> Lease {
        Lease(self.leases.fetch_add(1, Ordering::Relaxed))
    }

    fn settle(&self, cell: &Arc<Cell>, appended: &Change) {
        if appended.file {
            let mut unfiled = self.unfiled.lock();
            unfiled.push(cell.clone());
            if unfiled.len() >= FILING_BATCH {
                drop(unfiled);
                // The index first: what is taken from the unfiled is in it before anyone can list.
                let mut index = self.index.lock();
                let batch = std::mem::take(&mut *self.unfiled.lock());
                self.file(&mut index, batch);
            }
        }
        if appended.ended {
            let mut recent = self.recent.lock();
            recent.push_back(cell.clone());
            let oldest = if recent.len() > RECENT_LOGS { recent.pop_front() } else { None };
            drop(recent);
            if let Some(oldest) = oldest {
                oldest.forget_log();
            }
        }
    }

    fn file(&self, index: &mut Index, batch: Vec<Arc<Cell>>) {
        for cell in batch {
            index.file(&cell);
        }
    }

    fn create_now(&self, new: NewTask) -> Result<Created, StoreError> {
        let NewTask { owner, events, followed, lease_until, idempotency, push } = new;
        let Some(TaskEvent::Created(task)) = events.first() else {
            return Err(StoreError("a log must begin with the event that creates the task".to_owned()));
        };
        let id = task.id.clone();
        let owner = self.intern(&owner);
        // Kept until the task can be found, so that nobody gets to know of it through its key before.
        let mut keys = None;
        if let Some(Idempotency { key, fingerprint }) = idempotency {
            match keys.insert(self.keys.lock()).entry((owner, key)) {
                MapEntry::Occupied(known) => return Ok(Created::Known(known.get().clone())),
                MapEntry::Vacant(vacant) => {
                    vacant.insert(Known { task: id.clone(), fingerprint });
                }
            }
        }
        let slot = self.slots.fetch_add(1, Ordering::Relaxed);
        let lease = self.next_lease();
        let (cell, appended) = Cell::new(owner, slot, events, followed, (lease, lease_until), push)
            .map_err(|error| StoreError(format!("a log that cannot be: {error}")))?;
        let cell = Arc::new(cell);
        if self.shard(&id).write().insert(id, cell.clone()).is_some() {
            return Err(StoreError("a task with this id exists already".to_owned()));
        }
        drop(keys);
        self.settle(&cell, &appended);
        Ok(Created::New { seq: appended.seq, lease, settled: appended.settled })
    }

    fn append_now(&self, task: &TaskId, append: Append) -> Result<Appended, AppendError> {
        let Append { after, lease, idempotency, events } = append;
        let cell = self.cell(task).ok_or(AppendError::NotFound)?;
        let change = match idempotency {
            None => cell.append(lease, after, events)?,
            Some((owner, Idempotency { key, fingerprint })) => {
                let mut keys = self.keys.lock();
                match keys.entry((self.intern(&owner), key)) {
                    MapEntry::Occupied(known) => return Err(AppendError::Known(known.get().clone())),
                    MapEntry::Vacant(vacant) => {
                        let change = cell.append(lease, after, events)?;
                        vacant.insert(Known { task: task.clone(), fingerprint });
                        change
                    }
                }
            }
        };
        self.settle(&cell, &change);
        Ok(Appended { seq: change.seq, settled: change.settled })
    }

    fn list_now(&self, owner: &Owner, query: &ListQuery) -> ListPage {
        let Some(owner) = self.owner(owner) else {
            return ListPage { tasks: Vec::new(), next: None, total: 0 };
        };
        let mut index = self.index.lock();
        let unfiled = std::mem::take(&mut *self.unfiled.lock());
        self.file(&mut index, unfiled);
        let (page, more, total) = index.page(owner, query);
        drop(index);
        let next = page.last().filter(|_| more).map(|(_, cursor)| *cursor);
        ListPage { tasks: page.iter().map(|(cell, _)| cell.snapshot()).collect(), next, total }
    }
}

impl Store for MemoryStore {
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
    ) -> BoxFuture<'a, Result<Option<Known>, StoreError>> {
        let known =
            self.owner(owner).and_then(|owner| self.keys.lock().get(&(owner, key.to_owned())).cloned());
        ready(Ok(known))
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
                // Register first, look again, then sleep: an append in between is not missed.
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
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        for (task, lease) in leases {
            if let Some(cell) = self.cell(task) {
                cell.renew(*lease, until);
            }
        }
        ready(Ok(()))
    }

    fn release<'a>(&'a self, task: &'a TaskId, lease: Lease) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(cell) = self.cell(task) {
            cell.release(lease);
        }
        ready(Ok(()))
    }

    fn put_push<'a>(
        &'a self,
        task: &'a TaskId,
        config: TaskPushNotificationConfig,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(cell) = self.cell(task) {
            cell.with_push(|configs| match configs.iter_mut().find(|known| known.id == config.id) {
                Some(known) => *known = config,
                None => configs.push(config),
            });
        }
        ready(Ok(()))
    }

    fn list_push<'a>(
        &'a self,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Vec<TaskPushNotificationConfig>, StoreError>> {
        ready(Ok(self.cell(task).map(|cell| cell.with_push(|configs| configs.clone())).unwrap_or_default()))
    }

    fn delete_push<'a>(&'a self, task: &'a TaskId, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        if let Some(cell) = self.cell(task) {
            cell.with_push(|configs| configs.retain(|known| known.id.as_deref() != Some(id)));
        }
        ready(Ok(()))
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
