//! Redis Streams: each request is an entry of one stream, each response an entry of the stream that its request names.
//!
//! - Several server processes share a consumer group. Each request goes to one of them.
//! - A request is acknowledged in the same transaction that writes its last response. Until then it stays in Redis.
//! - A process refreshes its claim on the requests that it works on. If it ends, another process takes them over. A send that was taken
//!   over has the same idempotency key, so its task is not run twice.
//! - If the processes have a store each, a request is answered by the one that has its task, and a send that was taken over by the one that
//!   has begun it.
//! - A process reads only as many requests as it can process and has memory for. The others stay in Redis.
//! - An entry that is no request goes to the dead stream with the reason. So does one whose reply stream is not allowed.
//! - While Redis does not answer or is full, responses wait in memory, as many as there are requests in flight. They use the memory of requests,
//!   and no requests are read.
//!
//! `reader` reads entries and takes them over, `request` parses them, `answer` answers them, and `writer` writes the responses. `subject` reads
//! what a request is about, `route` decides which process answers it, `members` has the state of that in Redis, and `inbox` reads what other
//! processes leave to this one.

mod answer;
mod flaw;
mod inbox;
mod members;
mod options;
mod reader;
mod request;
mod route;
mod subject;
mod writer;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use attache_core::Quota;
use attache_redis::redis::RedisError;
use attache_redis::{Connection, Consumer, Outage, connect};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::flaw::OptionFlaw;
use self::members::Members;
pub use self::members::parse_left;
pub use self::options::RedisStreams;
pub use self::request::{ParsedEntry, parse_entry};
use self::writer::Writer;
use super::exchange::Channel;
use crate::limits::Origin;
use crate::{HttpService, Peer};

/// How long a connection may take, and how long Redis may take to answer a command. Redis can be paused for some seconds.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(15);

/// The name of the transport in the logs.
const BINDING: &str = "redis";

/// Beyond `in_flight`, one request for so many is read. Sends may not use these places, so that a task can be canceled while as many sends as
/// possible wait for their tasks.
const RESERVED_SHARE: usize = 8;

/// How many requests a process reads, and as many that others have left to it.
fn places(in_flight: usize) -> usize {
    in_flight.saturating_add(in_flight.div_ceil(RESERVED_SHARE))
}

/// The id of an entry.
type EntryId = Arc<str>;

/// What the parts of the transport share.
struct Shared {
    options: RedisStreams,
    /// The options with their defaults.
    prefix: String,
    dead: String,
    consumer: String,
    max_entry: usize,
    /// What all requests have in common. Redis does not tell where one comes from.
    channel: Channel,
    writer: Writer,
    reading: Outage,
    /// The entries that this process has read and not answered.
    running: Mutex<HashMap<EntryId, Progress>>,
    /// Requests that may be in progress, and how many of them may send messages.
    requests: Arc<Semaphore>,
    sends: Arc<Semaphore>,
    /// Requests that other processes have left to this one and that may be in progress.
    left: Arc<Semaphore>,
    /// The processes that share the requests. `None` if all of them answer alike, because they forward requests.
    members: Option<Members>,
    /// KiB of entries and responses that may be in progress.
    memory: Arc<Semaphore>,
    memory_size: usize,
    /// How many streams may be open.
    streams: Quota,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// How far an entry has come.
enum Progress {
    /// It waits for memory.
    Waiting,
    /// It is being processed.
    Running(AbortHandle),
    /// Another process has taken it over while it waited.
    Lost,
}

impl Shared {
    /// This process in the group.
    fn consumer(&self) -> Consumer<'_> {
        self.options.consumer_named(&self.consumer)
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        connect(&self.options.url, CONNECT, ANSWER, None).await
    }
}

/// A transport that runs.
pub(crate) struct Running {
    shared: Arc<Shared>,
    reader: tokio::task::JoinHandle<()>,
    claims: tokio::task::JoinHandle<()>,
    inbox: tokio::task::JoinHandle<()>,
    shown: tokio::task::JoinHandle<()>,
    writer: tokio::task::JoinHandle<()>,
}

/// Connects and begins to answer requests. Fails if the options are wrong or Redis cannot be used.
pub(crate) async fn start(options: RedisStreams, http: HttpService) -> io::Result<Running> {
    if let Some(flaw) = options.flaw() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, flaw));
    }
    let mut connection = connect(&options.url, CONNECT, ANSWER, None).await.map_err(io::Error::other)?;
    let name = options.consumer_name();
    let consumer = options.consumer_named(&name);
    consumer.create_group(&mut connection).await.map_err(io::Error::other)?;
    let members = match http.options().forwarder {
        None => Some(Members::join(&options, http.dispatcher().service().store()).await?),
        Some(_) => None,
    };
    let max_entry = options.max_entry.unwrap_or(http.options().max_body.saturating_add(64 * 1024));
    let memory_size =
        (options.memory / 1024).saturating_add(max_entry / 1024 + 1).min(Semaphore::MAX_PERMITS);
    let memory = Arc::new(Semaphore::new(memory_size));
    let (writer, jobs) = writer::channel(memory.clone());
    let is_local = options.is_for_this_machine();
    let origin = if is_local { Origin::Local } else { Origin::Others };
    let channel = Channel { origin, is_local, ..Channel::local(http, BINDING, Peer::default()) };
    let places = places(options.in_flight);
    let shared = Arc::new(Shared {
        prefix: options.prefix(),
        dead: options.dead(),
        consumer: name,
        max_entry,
        channel,
        writer,
        reading: Outage::new("read requests"),
        running: Mutex::default(),
        requests: semaphore(places),
        sends: semaphore(options.in_flight),
        left: semaphore(places),
        members,
        memory,
        memory_size,
        streams: Quota { limiter: Arc::default(), limit: options.streams, max_wait: Duration::ZERO },
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
        options,
    });
    tracing::info!(
        redis = %shared.options.url,
        requests = shared.options.request_stream,
        group = shared.options.group,
        consumer = shared.consumer,
        "answering requests from Redis"
    );
    let writer = tokio::spawn(writer::run(writer::Target::of(&shared), jobs));
    let reader = tokio::spawn(reader::run(shared.clone()));
    let claims = tokio::spawn(reader::keep_claims(shared.clone()));
    let inbox = tokio::spawn(inbox::run(shared.clone()));
    let shown = tokio::spawn(inbox::show(shared.clone()));
    Ok(Running { shared, reader, claims, inbox, shown, writer })
}

fn semaphore(permits: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)))
}

/// How long giving requests back may take when the server stops.
const GIVE_BACK: Duration = Duration::from_secs(2);

impl Running {
    /// Reads no more requests.
    pub(crate) fn stop_reading(&self) {
        self.shared.stop.cancel();
    }

    /// Lets requests finish for some time, and gives the others back for another process.
    pub(crate) async fn finish(self, drain: Duration) {
        let Self { shared, mut reader, claims, inbox, shown, writer } = self;
        shared.stop.cancel();
        if tokio::time::timeout(GIVE_BACK, &mut reader).await.is_err() {
            reader.abort();
        }
        shared.tasks.close();
        if tokio::time::timeout(drain, shared.tasks.wait()).await.is_err() {
            let left = shared.running.lock().len();
            tracing::warn!(
                requests = left,
                "requests from Redis were not answered in time and are given back"
            );
        }
        for progress in shared.running.lock().values() {
            match progress {
                Progress::Running(task) => task.abort(),
                Progress::Waiting | Progress::Lost => {}
            }
        }
        for background in [claims, inbox, shown, writer] {
            background.abort();
        }
        match tokio::time::timeout(GIVE_BACK, shared.give_back()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "requests could not be given back to Redis"),
            Err(_) => tracing::warn!("requests could not be given back to Redis in time"),
        }
    }
}

impl Shared {
    /// Lets other processes take over what this one has not finished, without waiting. Removes this process from the group if there is
    /// nothing left: with it, Redis would forget its entries.
    async fn give_back(&self) -> Result<(), RedisError> {
        if let Some(members) = &self.members
            && let Err(error) = members.leave().await
        {
            tracing::debug!(%error, "the other servers of the group could not be told that this one stops");
        }
        let (mut connection, consumer) = (self.connect().await?, self.consumer());
        let own = consumer.own(&mut connection, MAX_PENDING).await?;
        if own.is_empty() {
            return consumer.leave(&mut connection).await;
        }
        let ids = own.iter().map(|(id, _)| id.as_str());
        consumer.give_back(&mut connection, self.options.claim_after, ids).await
    }
}

/// How many pending entries of a process are looked at.
const MAX_PENDING: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_more_requests_are_read_than_sends_may_be_in_flight() {
        assert_eq!([1, 7, 8, 9, 256].map(places), [2, 8, 9, 11, 288]);
    }
}
