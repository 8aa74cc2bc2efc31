//! A store in memory whose every answer takes a moment, as that of a database would.

use std::sync::Arc;

use attache_core::{
    AppendError, BoxFuture, Created, Lease, ListPage, ListQuery, MemoryStore, NewTask, Owner, Seq, Snapshot, Store,
    StoreError, TailItem, TaskEvent,
};
use attache_protocol::{TaskId, TaskPushNotificationConfig, Timestamp};
use futures::stream::BoxStream;

/// Lets others run before and after everything it does.
#[derive(Debug, Default)]
pub(crate) struct SlowStore(MemoryStore);

impl SlowStore {
    pub(crate) fn shared() -> Arc<Self> {
        Arc::default()
    }
}

async fn slowly<T>(act: impl Future<Output = T>) -> T {
    tokio::task::yield_now().await;
    let result = act.await;
    tokio::task::yield_now().await;
    result
}

impl Store for SlowStore {
    fn create(&self, task: NewTask) -> BoxFuture<'_, Result<Created, StoreError>> {
        Box::pin(slowly(async { self.0.create(task).await }))
    }

    fn append<'a>(
        &'a self,
        task: &'a TaskId,
        lease: Option<Lease>,
        after: Seq,
        events: Vec<TaskEvent>,
    ) -> BoxFuture<'a, Result<Seq, AppendError>> {
        Box::pin(slowly(async move { self.0.append(task, lease, after, events).await }))
    }

    fn load<'a>(
        &'a self,
        owner: &'a Owner,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        Box::pin(slowly(async move { self.0.load(owner, task).await }))
    }

    fn list<'a>(&'a self, owner: &'a Owner, query: &'a ListQuery) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        Box::pin(slowly(async move { self.0.list(owner, query).await }))
    }

    fn tail(&self, task: &TaskId, after: Seq) -> BoxStream<'static, Result<TailItem, StoreError>> {
        self.0.tail(task, after)
    }

    fn claim<'a>(
        &'a self,
        task: &'a TaskId,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(slowly(async move { self.0.claim(task, now, until).await }))
    }

    fn renew<'a>(&'a self, leases: &'a [(TaskId, Lease)], until: Timestamp) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(slowly(async move { self.0.renew(leases, until).await }))
    }

    fn release<'a>(&'a self, task: &'a TaskId, lease: Lease) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(slowly(async move { self.0.release(task, lease).await }))
    }

    fn put_push<'a>(
        &'a self,
        task: &'a TaskId,
        config: TaskPushNotificationConfig,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(slowly(async move { self.0.put_push(task, config).await }))
    }

    fn list_push<'a>(
        &'a self,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Vec<TaskPushNotificationConfig>, StoreError>> {
        Box::pin(slowly(async move { self.0.list_push(task).await }))
    }

    fn delete_push<'a>(&'a self, task: &'a TaskId, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(slowly(async move { self.0.delete_push(task, id).await }))
    }
}
