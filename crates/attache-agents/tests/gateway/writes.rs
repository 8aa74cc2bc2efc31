//! What a gateway writes to the store, and that its turns do not wait for each other.

use std::sync::Arc;

use attache_client::{Client, Outgoing};
use attache_core::*;
use attache_protocol::{Json, TaskId, TaskState, Timestamp};
use futures::future::join_all;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::Barrier;

use crate::handmade::*;
use crate::support::*;

/// A store that remembers which values were changed, and that changes contexts of the gateway only together.
struct WatchedStore {
    store: MemoryStore,
    changed: Arc<Mutex<Vec<String>>>,
    together: Barrier,
}

impl WatchedStore {
    /// A store that changes this number of contexts at once.
    fn new(contexts: usize) -> (Arc<Self>, Arc<Mutex<Vec<String>>>) {
        let changed = Arc::<Mutex<Vec<String>>>::default();
        let together = Barrier::new(contexts);
        (Arc::new(Self { store: MemoryStore::new(), changed: changed.clone(), together }), changed)
    }
}

impl Values for WatchedStore {
    fn get<'a>(&'a self, scope: &'a str, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, StoreError>> {
        self.store.values().get(scope, key)
    }

    fn list<'a>(&'a self, scope: &'a str) -> BoxFuture<'a, Result<Vec<(String, Json)>, StoreError>> {
        self.store.values().list(scope)
    }

    fn scopes(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        self.store.values().scopes()
    }

    fn change<'a>(
        &'a self,
        scope: &'a str,
        key: &'a str,
        change: ValueChange,
    ) -> BoxFuture<'a, Result<ChangedValue, StoreError>> {
        Box::pin(async move {
            let kind = scope.split(':').next().unwrap_or_default();
            self.changed.lock().push(kind.to_owned());
            if kind == "a2a_gateway_contexts" {
                self.together.wait().await;
            }
            self.store.values().change(scope, key, change).await
        })
    }
}

impl Store for WatchedStore {
    fn tail(&self, task: &TaskId, after: Seq) -> BoxStream<'static, Result<TailItem, StoreError>> {
        self.store.tail(task, after)
    }

    fn create(&self, task: NewTask) -> BoxFuture<'_, Result<Created, StoreError>> {
        self.store.create(task)
    }

    fn append<'a>(
        &'a self,
        task: &'a TaskId,
        append: Append,
    ) -> BoxFuture<'a, Result<Appended, AppendError>> {
        self.store.append(task, append)
    }

    fn find_key<'a>(
        &'a self,
        owner: &'a Owner,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<UsedKey>, StoreError>> {
        self.store.find_key(owner, key)
    }

    fn load<'a>(
        &'a self,
        owner: &'a Owner,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<Option<Snapshot>, StoreError>> {
        self.store.load(owner, task)
    }

    fn list<'a>(
        &'a self,
        owner: &'a Owner,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<ListPage, StoreError>> {
        Store::list(&self.store, owner, query)
    }

    fn claim<'a>(
        &'a self,
        task: &'a TaskId,
        now: Timestamp,
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Option<Lease>, StoreError>> {
        self.store.claim(task, now, until)
    }

    fn renew<'a>(
        &'a self,
        leases: &'a [(TaskId, Lease)],
        until: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<(TaskId, RenewFailure)>, StoreError>> {
        self.store.renew(leases, until)
    }

    fn release<'a>(&'a self, task: &'a TaskId, lease: Lease) -> BoxFuture<'a, Result<(), StoreError>> {
        self.store.release(task, lease)
    }

    fn outbox(&self) -> &dyn Outbox {
        self.store.outbox()
    }

    fn values(&self) -> &dyn Values {
        self
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

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_different_tasks_do_not_wait_for_the_writes_of_each_other() {
    let (script, _reports) = Script::new();
    let remote = start_remote(script).await;
    let (store, _) = WatchedStore::new(8);
    let gateway = start_gateway(quick_options(&remote.url(), store)).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    let sent = (0..8).map(|number| send(&client, Outgoing::new("hi").context(format!("c{number}"))));
    for task in join_all(sent).await {
        assert_eq!(task.status.state, TaskState::Completed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_ends_at_once_needs_two_writes() {
    let remote = Remote::start(false, |_, _, id| result(&id, task("TASK_STATE_COMPLETED"))).await;
    let (store, changed) = WatchedStore::new(1);
    let gateway = start_gateway(quick_options(&remote.url, store)).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    for _ in 0..2 {
        changed.lock().clear();
        assert_eq!(send(&client, "hi").await.status.state, TaskState::Completed);
    }
    let mut changed = changed.lock().clone();
    changed.sort_unstable();
    assert_eq!(changed, ["a2a_gateway_contexts", "a2a_gateway_ended"]);
}
