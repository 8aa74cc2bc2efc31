//! The push queue: server processes share deliveries over Redis Streams.
//!
//! - The outbox of the store has a delivery until Redis has its job. While Redis does not answer, deliveries stay in the outbox.
//! - Every process takes jobs from the stream, as a consumer of one group, and makes the deliveries.
//! - A job that was delivered is acknowledged and deleted. One that failed waits in the sorted set of retries, or goes to the dead stream.
//! - A process renews its lease on the jobs that it works on. If it ends, another process takes them over. So a job is delivered at least
//!   once.
//! - Jobs of one webhook are delivered one after another.
//!
//! `handover` adds jobs, `worker` takes them, `deliver` delivers them, `leases` keeps them. `job` is their format, and `scripts` is what happens to
//! them in Redis.

mod dead;
mod deliver;
mod handover;
mod job;
mod leases;
mod link;
mod options;
mod parsing;
mod pending;
mod scripts;
mod worker;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{Service, StoreError};
use attache_protocol::Json;
use attache_redis::redis::RedisError;
use attache_redis::{Connection, Consumer, Outage, connect};
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

pub use self::dead::{DeadJob, JobDetails};
use self::link::Link;
pub use self::options::PushQueue;
pub use self::parsing::{ParsedJob, parse_job, seal_job};
pub use self::pending::{PendingJob, PendingState};
use super::PushDispatcher;

/// How long a connection may take, and how long Redis may take to answer a command. Redis can be paused for some seconds.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(15);

/// Where a store keeps its id.
const SCOPE: &str = "push-queue";
const STORE_ID: &str = "store";

/// The queue as one process uses it.
pub(super) struct Queue {
    options: PushQueue,
    consumer: String,
    /// For everything but reading entries.
    link: Link,
    reading: Outage,
    /// The id of the store of this process.
    store: OnceCell<String>,
    /// The entries that this process works on.
    running: Mutex<HashSet<EntryId>>,
    /// Notified when the work on an entry has ended.
    freed: Notify,
    /// The server stops.
    draining: CancellationToken,
    /// All deliveries of the outbox are in the queue, after the server began to stop.
    handed_over: CancellationToken,
    /// Nothing is left to do, after the server began to stop.
    ended: CancellationToken,
}

/// The id of an entry.
type EntryId = Arc<str>;

impl Queue {
    /// This process in the group.
    fn consumer(&self) -> Consumer<'_> {
        let PushQueue { stream, group, .. } = &self.options;
        Consumer { stream, group, name: &self.consumer }
    }

    pub(super) fn new(options: PushQueue) -> Self {
        let draining = CancellationToken::new();
        Self {
            consumer: options.consumer_name(),
            link: Link::new(options.url.clone(), draining.clone()),
            reading: Outage::new("read push jobs"),
            store: OnceCell::new(),
            running: Mutex::default(),
            freed: Notify::new(),
            draining,
            handed_over: CancellationToken::new(),
            ended: CancellationToken::new(),
            options,
        }
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        connect(&self.options.url, CONNECT, ANSWER, None).await
    }

    /// The id of the store. Jobs name it, so that a process knows whether it has their webhooks.
    async fn store_id(&self, service: &Service) -> Result<&str, StoreError> {
        let unreadable = |error: serde_json::Error| StoreError(format!("the id of the store: {error}"));
        let make = async || {
            let new = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
            let new = Json::new(&new).map_err(unreadable)?;
            let change = move |old: Option<&Json>| old.or(Some(&new)).cloned();
            let changed = service.store().values().change(SCOPE, STORE_ID, Box::new(change)).await?;
            let id = changed.new.map(|id| id.read::<String>()).transpose().map_err(unreadable)?;
            Ok::<_, StoreError>(id.unwrap_or_default())
        };
        self.store.get_or_try_init(make).await.map(String::as_str)
    }

    /// Adds all deliveries that are due to the queue, and finishes those jobs that this process can get. What is left is for other
    /// processes, or for the next start.
    pub(super) async fn drain(&self) {
        self.draining.cancel();
        self.ended.cancelled().await;
    }
}

/// Adds deliveries to the queue and makes those that are in it, until the server stops.
pub(super) async fn run(dispatcher: &PushDispatcher, queue: &Arc<Queue>) {
    let PushQueue { url, stream, group, .. } = &queue.options;
    tracing::info!(redis = %url, stream, group, consumer = queue.consumer, "push notifications are shared over Redis");
    let work = async {
        tokio::join!(handover::run(dispatcher, queue), worker::run(dispatcher, queue));
        queue.ended.cancel();
    };
    tokio::select! {
        () = work => {}
        // It never ends by itself.
        () = leases::keep(queue) => {}
    }
}
