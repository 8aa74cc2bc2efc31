//! The implementation of the `Store` trait.

use attache_core::{
    Abandoned, Append, AppendError, Appended, BoxFuture, Created, Lease, ListPage, ListQuery, NewTask,
    Outbox, Owner, RenewFailure, Retention, Seq, Snapshot, Store, StoreError, TailItem, UsedKey, Values,
};
use attache_protocol::{TaskId, Timestamp};
use futures::stream::BoxStream;

use super::{Location, SqliteStore, read, tail};

impl Store for SqliteStore {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

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

    fn contains<'a>(
        &'a self,
        _owner: &'a Owner,
        task: &'a TaskId,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        // Ids are unique among all owners.
        let found = self.inner.read(|db| read::find(db, task));
        Box::pin(std::future::ready(found.map(|found| found.is_some())))
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
                Location::Live(live) => live.claim(lease, now, until).then_some(lease),
                Location::Ended(_) | Location::Missing => None,
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

    fn abandoned<'a>(
        &'a self,
        agent: Option<&'a str>,
        now: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Abandoned>, StoreError>> {
        Box::pin(self.inner.abandoned(agent, now, limit))
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
