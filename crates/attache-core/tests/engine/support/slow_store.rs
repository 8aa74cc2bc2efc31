//! A store in memory that behaves like a database: every operation takes time, and some fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use attache_core::{
    Abandoned, Append, AppendError, Appended, BoxFuture, Created, Lease, ListPage, ListQuery, MemoryStore,
    NewTask, Outbox, Owner, RenewFailure, Retention, Seq, Snapshot, Store, StoreError, TailItem, UsedKey,
    Values,
};
use attache_protocol::{TaskId, Timestamp};
use futures::stream::BoxStream;

/// Yields or sleeps before and after every operation.
#[derive(Debug, Default)]
pub(crate) struct SlowStore {
    store: MemoryStore,
    latency: Duration,
    jitter: AtomicU64,
    writes_until_failure: AtomicUsize,
    is_shared: bool,
}

impl SlowStore {
    pub(crate) fn shared() -> Arc<Self> {
        Arc::default()
    }

    /// A store that servers on other machines use too.
    pub(crate) fn of_several_servers() -> Arc<Self> {
        Arc::new(Self { is_shared: true, ..Self::default() })
    }

    /// A store that sleeps for `latency` before and after every operation.
    pub(crate) fn with_latency(latency: Duration) -> Arc<Self> {
        Arc::new(Self { latency, ..Self::default() })
    }

    /// A store with random latencies of up to 20 ms, which depend on the seed only.
    pub(crate) fn with_jitter(seed: u64) -> Arc<Self> {
        Arc::new(Self { jitter: AtomicU64::new(2 * seed + 1), ..Self::default() })
    }

    /// A store whose write of this number fails, counted from 1. The writes after it succeed.
    pub(crate) fn failing_at_write(number: usize) -> Arc<Self> {
        Arc::new(Self { writes_until_failure: AtomicUsize::new(number), ..Self::default() })
    }

    fn next_latency(&self) -> Duration {
        let step = |state: u64| Some(state.wrapping_mul(6_364_136_223_846_793_005));
        let random = self.jitter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step).unwrap_or_default();
        self.latency + Duration::from_millis((random >> 33) % 20)
    }

    async fn pause(&self) {
        match self.next_latency() {
            Duration::ZERO => tokio::task::yield_now().await,
            latency => tokio::time::sleep(latency).await,
        }
    }

    async fn slowly<T>(&self, act: impl Future<Output = T>) -> T {
        self.pause().await;
        let result = act.await;
        self.pause().await;
        result
    }

    fn write(&self) -> Result<(), StoreError> {
        let count = |left: usize| left.checked_sub(1);
        match self.writes_until_failure.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) {
            Ok(1) => Err(StoreError("the disk is full".to_owned())),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

impl Store for SlowStore {
    fn create(&self, task: NewTask) -> BoxFuture<'_, Result<Created, StoreError>> {
        Box::pin(self.slowly(async {
            self.write()?;
            self.store.create(task).await
        }))
    }

    fn append<'a>(
        &'a self,
        task: &'a TaskId,
        append: Append,
    ) -> BoxFuture<'a, Result<Appended, AppendError>> {
        Box::pin(self.slowly(async move {
            self.write()?;
            self.store.append(task, append).await
        }))
    }

    fn find_key<'a>(
        &'a self,
        owner: &'a Owner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<UsedKey>, StoreError>> {
        Box::pin(self.slowly(async move { self.store.find_key(owner, key).await }))
    }

    fn load<'a>(
        &'a self,
        owner: &'a Owner,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(self.slowly(async move { self.store.load(owner, task).await }))
    }

    fn list<'a>(
        &'a self,
        owner: &'a Owner,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        Box::pin(self.slowly(async move { self.store.list(owner, query).await }))
    }

    fn tail(&self, task: &TaskId, after: Seq) -> BoxStream<'static, Result<TailItem, StoreError>> {
        self.store.tail(task, after)
    }

    fn claim<'a>(
        &'a self,
        task: &'a TaskId,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(self.slowly(async move { self.store.claim(task, now, until).await }))
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(TaskId, Lease)],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<(TaskId, RenewFailure)>, StoreError>> {
        Box::pin(self.slowly(async move { self.store.renew(leases, until).await }))
    }

    fn release<'a>(&'a self, task: &'a TaskId, lease: Lease) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(self.slowly(async move { self.store.release(task, lease).await }))
    }

    fn outbox(&self) -> &dyn Outbox {
        self.store.outbox()
    }

    fn is_shared(&self) -> bool {
        self.is_shared
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
        Box::pin(self.slowly(async move { self.store.abandoned(agent, now, limit).await }))
    }

    fn prune<'a>(
        &'a self,
        retention: &'a Retention,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(self.slowly(async move { self.store.prune(retention, now, limit).await }))
    }
}
