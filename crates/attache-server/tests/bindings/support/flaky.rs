//! A store that breaks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attache_core::*;
use attache_protocol::{TaskId, Timestamp};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

/// What a store says when it breaks.
pub(crate) const BROKEN: &str = "SELECT secret FROM tasks: /var/lib/attache/tasks.db is gone";

/// Stores everything, but readers of a task lose it after a number of events, and every operation fails once it is broken.
pub(crate) struct Flaky {
    store: MemoryStore,
    after: usize,
    broken: Arc<AtomicBool>,
    is_shared: bool,
}

impl Flaky {
    pub(crate) fn after(events: usize) -> Self {
        Self { store: MemoryStore::new(), after: events, broken: Arc::default(), is_shared: false }
    }

    /// One that works, and that says that several servers share it.
    pub(crate) fn shared() -> Self {
        Self { is_shared: true, ..Self::after(usize::MAX) }
    }

    /// One that works until the switch is thrown.
    pub(crate) fn with_switch() -> (Self, Arc<AtomicBool>) {
        let store = Self::after(usize::MAX);
        let switch = store.broken.clone();
        (store, switch)
    }

    fn unless_broken<'a, T: Send + 'a, E: From<StoreError> + Send + 'a>(
        &self,
        done: BoxFuture<'a, Result<T, E>>,
    ) -> BoxFuture<'a, Result<T, E>> {
        match self.broken.load(Ordering::Relaxed) {
            true => Box::pin(async { Err(StoreError(BROKEN.to_owned()).into()) }),
            false => done,
        }
    }
}

impl Store for Flaky {
    fn tail(&self, task: &TaskId, after: Seq) -> BoxStream<'static, Result<TailItem, StoreError>> {
        let single = |item: Result<TailItem, StoreError>| match item {
            Ok(TailItem::Entries(entries)) => {
                entries.into_iter().map(|entry| Ok(TailItem::Entries(vec![entry]))).collect::<Vec<_>>()
            }
            other => vec![other],
        };
        let broken = stream::once(async { Err(StoreError("the disk is gone".to_owned())) });
        let events = self.store.tail(task, after).flat_map(move |item| stream::iter(single(item)));
        events.take(self.after).chain(broken).boxed()
    }

    fn create(&self, task: NewTask) -> BoxFuture<'_, Result<Created, StoreError>> {
        self.unless_broken(self.store.create(task))
    }

    fn append<'a>(
        &'a self,
        task: &'a TaskId,
        append: Append,
    ) -> BoxFuture<'a, Result<Appended, AppendError>> {
        self.unless_broken(self.store.append(task, append))
    }

    fn find_key<'a>(
        &'a self,
        owner: &'a Owner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<UsedKey>, StoreError>> {
        self.unless_broken(self.store.find_key(owner, key))
    }

    fn load<'a>(
        &'a self,
        owner: &'a Owner,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        self.unless_broken(self.store.load(owner, task))
    }

    fn list<'a>(
        &'a self,
        owner: &'a Owner,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        self.unless_broken(self.store.list(owner, query))
    }

    fn claim<'a>(
        &'a self,
        task: &'a TaskId,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>> {
        self.unless_broken(self.store.claim(task, now, until))
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(TaskId, Lease)],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<(TaskId, RenewFailure)>, StoreError>> {
        self.store.renew(leases, until)
    }

    fn release<'a>(&'a self, task: &'a TaskId, lease: Lease) -> BoxFuture<'a, Result<(), StoreError>> {
        self.unless_broken(self.store.release(task, lease))
    }

    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn outbox(&self) -> &dyn Outbox {
        self.store.outbox()
    }

    fn values(&self) -> &dyn Values {
        self.store.values()
    }

    fn abandoned<'a>(
        &'a self,
        agent: Option<&'a str>,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Abandoned>, StoreError>> {
        self.store.abandoned(agent, now, limit)
    }

    fn prune<'a>(
        &'a self,
        retention: &'a Retention,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        self.store.prune(retention, now, limit)
    }
}
