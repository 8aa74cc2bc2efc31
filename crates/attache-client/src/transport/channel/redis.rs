//! Redis Streams: a request is an entry of the agent's stream, its responses are entries of a stream of this client.
//!
//! The reply stream has a random name below the prefix of the agent. It is made when the first request is sent and deleted with the
//! channel; if the process ends without that, it expires. One task reads it and passes each response to its request. What was read is
//! removed from the stream. If the connection breaks, the task connects again and goes on where it was, so no response is lost.
//!
//! Requests have their service parameters and credentials as fields. The credentials for Redis itself come from the
//! [options](crate::ClientOptions::redis). They are used only for the host and port that they are given for, and only if the user gave the
//! address or trusts it: a card must not decide where they are used.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use attache_redis::redis::{self, RedisError, Value, cmd};
use attache_redis::{
    AddressCheck, Backoff, Connection, Entry, Outage, RedisUrl, StreamsAddress, connect, entries, field,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use reqwest::Url;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use super::stdio::Running;
use super::{Channel, RequestFrame, ResponseCount, ResponseFrame, ResponseSource, Responses};
use crate::connect_failure::ConnectFailure;
use crate::{ClientError, ClientOptions};

/// How long the reply stream is kept without this client, and how often that is renewed.
const EXPIRE: Duration = Duration::from_secs(5 * 60);
const RENEW: Duration = Duration::from_secs(60);

/// How long Redis waits for a response before it says that there is none, and how many responses it returns at once at most.
const BLOCK: Duration = Duration::from_secs(5);
const MAX_READ: usize = 64;

/// How large a response is expected to be before one has arrived.
const EXPECTED: usize = 16 * 1024;

/// How long Redis may take to answer a command.
const ANSWER: Duration = Duration::from_secs(15);

/// How long deleting the reply stream may take.
const DELETE: Duration = Duration::from_secs(1);

/// How many responses to one request may wait to be taken, and how many bytes; one response may be larger. A stream that is read more slowly
/// is resumed where it was.
const MAX_WAITING: usize = 1024;
const MAX_UNREAD: usize = 4 * 1024 * 1024;

/// Carries requests to an agent over Redis.
pub(super) struct RedisChannel {
    address: StreamsAddress,
    /// The Redis server with credentials for it, if the options have some.
    server: RedisUrl,
    /// Why credentials for this server were not used, if the options have some.
    withheld: Option<ClientError>,
    check: Option<AddressCheck>,
    options: Limits,
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
}

#[derive(Clone, Copy)]
struct Limits {
    connect: Duration,
    idle: Duration,
    max_event: usize,
}

impl RedisChannel {
    /// A channel to this address, which a card at `card_url` names. If the user gave the address, both are the same.
    pub(super) fn new(url: &Url, card_url: &Url, options: &ClientOptions) -> Result<Self, ClientError> {
        let address: StreamsAddress =
            url.as_str().parse().map_err(|error| ClientError::Invalid(format!("`{url}`: {error}")))?;
        let known = options.redis.iter().find(|known| known.is_for(&address.server));
        let withheld = known.and_then(|_| options.trusted_origins.check_credentials(card_url, url).err());
        let server = match known.filter(|_| withheld.is_none()).cloned() {
            Some(known) => known,
            None => {
                let scheme = if address.server.tls { "rediss" } else { "redis" };
                let text = format!("{scheme}://{}", address.server.authority());
                text.parse().map_err(|error| ClientError::Invalid(format!("`{url}`: {error}")))?
            }
        };
        // The certificate of a private authority is trusted instead of those of the system.
        let roots: Vec<u8> = options.roots.iter().flat_map(|roots| [roots.pem(), b"\n"].concat()).collect();
        let server = if roots.is_empty() { server } else { server.trust(roots) };
        let check = options.policy.clone().map(|policy| {
            AddressCheck::new(move |address| {
                policy.check_address(address).map_err(|refused| policy.explain(&refused))
            })
        });
        let max_event = options.max_event.max(options.max_body);
        Ok(Self {
            server: server.database(address.server.db),
            address,
            withheld,
            check,
            options: Limits { connect: options.connect_timeout, idle: options.idle_timeout, max_event },
            link: tokio::sync::Mutex::default(),
        })
    }

    /// The link to Redis; a new one if there is none or it has failed.
    async fn link(&self) -> Result<Arc<Link>, ClientError> {
        let mut current = self.link.lock().await;
        if let Some(link) = current.as_ref().filter(|link| link.replies.lost().is_none()) {
            return Ok(link.clone());
        }
        let link = Arc::new(self.open().await.map_err(|error| self.connect_error(&error))?);
        *current = Some(link.clone());
        Ok(link)
    }

    async fn connect(&self) -> Result<Connection, RedisError> {
        connect(&self.server, self.options.connect, ANSWER, self.check.clone()).await
    }

    /// Connects, makes the reply stream and begins to read it.
    async fn open(&self) -> Result<Link, RedisError> {
        let mut connection = self.connect().await?;
        let reading = self.connect().await?;
        let stream = format!("{}{}", self.address.prefix(), Uuid::new_v4().simple());
        // The first entry only makes the stream. Responses come after it.
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.cmd("XADD").arg(&stream).arg("*").arg("client").arg(env!("CARGO_PKG_NAME"));
        pipe.cmd("PEXPIRE").arg(&stream).arg(millis(EXPIRE)).ignore();
        let (first,): (String,) = pipe.query_async(&mut connection).await?;
        let replies = Arc::new(Replies::default());
        let sending = Arc::new(Sending {
            server: self.server.clone(),
            check: self.check.clone(),
            connect: self.options.connect,
            connection: tokio::sync::Mutex::new(connection),
            is_stale: AtomicBool::new(false),
        });
        let (end, ended) = watch::channel(());
        let reader = Reader {
            server: self.server.clone(),
            check: self.check.clone(),
            limits: self.options,
            stream: stream.clone(),
            last: first,
            replies: replies.clone(),
            sending: sending.clone(),
            ended,
        };
        let _reader = tokio::spawn(reader.run(reading));
        Ok(Link { sending, stream, replies, _end: end, _reader })
    }

    fn connect_error(&self, error: &RedisError) -> ClientError {
        if let Some(ClientError::Withheld { given_for, leads_to, can_be_trusted }) = &self.withheld
            && error.to_string().contains("NOAUTH")
        {
            let (given_for, leads_to) = (given_for.clone(), leads_to.clone());
            return ClientError::Withheld { given_for, leads_to, can_be_trusted: *can_be_trusted };
        }
        let url = self.address.to_string();
        let why = match error.is_timeout() {
            true => ConnectFailure::Timeout,
            false if error.is_connection_refusal() => ConnectFailure::Refused,
            false => ConnectFailure::Other(error.to_string()),
        };
        ClientError::Connect { url, why }
    }

    async fn send(&self, request: RequestFrame) -> Result<Responses, ClientError> {
        let link = self.link().await?;
        let correlation = Uuid::new_v4().simple().to_string();
        // Registered before the request is sent, so that no response is missed.
        let arrived = request.id.is_some().then(|| link.replies.register(&correlation));
        let mut add = cmd("XADD");
        // A stream that does not exist has no server.
        add.arg(&self.address.request_stream).arg("NOMKSTREAM").arg("*");
        add.arg(field::CORRELATION_ID).arg(&correlation).arg(field::REPLY_STREAM).arg(&link.stream);
        add.arg(field::PAYLOAD).arg(request.json).arg(field::HEARTBEAT).arg("true");
        for (name, value) in request.headers.iter().chain(&request.auth) {
            add.arg(name.as_str()).arg(value.as_bytes());
        }
        if let Some(agent) = &self.address.agent {
            add.arg(field::AGENT).arg(agent);
        }
        let waiting = Waiting { link: link.clone(), correlation };
        let mut connection = link.sending.connection().await.map_err(|error| self.connect_error(&error))?;
        let added: Value = add.query_async(&mut connection).await.map_err(|error| {
            link.sending.is_stale.store(error.is_io_error(), Ordering::Relaxed);
            ClientError::Broken(format!("Redis did not take the request: {error}"))
        })?;
        if added == Value::Nil {
            let why = format!("no server reads `{}`: the stream does not exist", self.address.request_stream);
            return Err(ClientError::Connect {
                url: self.address.to_string(),
                why: ConnectFailure::Other(why),
            });
        }
        let Some(arrived) = arrived else { return Ok(Responses::none()) };
        Ok(Responses::new(RedisResponses {
            arrived,
            waiting,
            responses: request.responses,
            idle: self.options.idle,
            max_event: self.options.max_event,
            progress: Progress::default(),
        }))
    }
}

impl Channel for RedisChannel {
    fn exchange(&self, request: RequestFrame) -> BoxFuture<'_, Result<Responses, ClientError>> {
        Box::pin(self.send(request))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The connection that requests are sent over.
struct Sending {
    server: RedisUrl,
    check: Option<AddressCheck>,
    connect: Duration,
    connection: tokio::sync::Mutex<Connection>,
    /// Whether the connection is broken.
    is_stale: AtomicBool,
}

impl Sending {
    /// The connection; a new one if the last one is known to be broken.
    async fn connection(&self) -> Result<Connection, RedisError> {
        let mut connection = self.connection.lock().await;
        if self.is_stale.load(Ordering::Relaxed) {
            *connection = connect(&self.server, self.connect, ANSWER, self.check.clone()).await?;
            self.is_stale.store(false, Ordering::Relaxed);
        }
        Ok(connection.clone())
    }
}

/// The connection that requests are sent over, and the stream that their responses arrive in.
struct Link {
    sending: Arc<Sending>,
    stream: String,
    replies: Arc<Replies>,
    /// Ends the reader, which deletes the stream.
    _end: watch::Sender<()>,
    _reader: JoinHandle<()>,
}

/// The requests that wait for responses.
#[derive(Default)]
struct Replies(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: HashMap<String, Arriving>,
    /// Why no more responses will arrive.
    lost: Option<String>,
}

/// Where the responses to a request go.
struct Arriving {
    sender: mpsc::Sender<Arrived>,
    /// The bytes of responses that were not taken yet.
    unread: Arc<AtomicUsize>,
}

impl Arriving {
    /// Passes something on, unless too much is waiting already.
    fn pass(&self, arrived: Arrived) -> bool {
        let size = arrived.size();
        let unread = self.unread.load(Ordering::Acquire);
        if unread > 0 && unread + size > MAX_UNREAD {
            return false;
        }
        self.unread.fetch_add(size, Ordering::AcqRel);
        self.sender.try_send(arrived).is_ok()
    }
}

/// Where the responses to a request are taken.
struct Arrivals {
    receiver: mpsc::Receiver<Arrived>,
    unread: Arc<AtomicUsize>,
}

impl Arrivals {
    async fn recv(&mut self) -> Option<Arrived> {
        let arrived = self.receiver.recv().await?;
        self.unread.fetch_sub(arrived.size(), Ordering::AcqRel);
        Some(arrived)
    }

    fn try_recv(&mut self) -> Result<Arrived, mpsc::error::TryRecvError> {
        let arrived = self.receiver.try_recv()?;
        self.unread.fetch_sub(arrived.size(), Ordering::AcqRel);
        Ok(arrived)
    }
}

/// What has arrived for a request.
enum Arrived {
    Response(Reply),
    /// The server is there.
    Heartbeat,
}

impl Arrived {
    fn size(&self) -> usize {
        match self {
            Self::Response(reply) => reply.json.len(),
            Self::Heartbeat => 0,
        }
    }
}

#[derive(Debug)]
struct Reply {
    json: Vec<u8>,
    is_final: bool,
    event: Option<u64>,
    index: Option<u64>,
}

impl Replies {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, correlation: &str) -> Arrivals {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let unread = Arc::new(AtomicUsize::new(0));
        self.state().waiting.insert(correlation.to_owned(), Arriving { sender, unread: unread.clone() });
        Arrivals { receiver, unread }
    }

    /// Why no more responses will arrive, if so.
    fn lost(&self) -> Option<String> {
        self.state().lost.clone()
    }

    /// Ends all requests: no more responses will arrive.
    fn lose(&self, why: String) {
        let mut state = self.state();
        state.waiting.clear();
        state.lost = Some(why);
    }

    /// Passes a response to its request. Entries for requests that do not wait any more are ignored, and so are malformed ones.
    fn pass(&self, entry: Entry) {
        let Some(correlation) = entry.get(field::CORRELATION_ID).and_then(|id| std::str::from_utf8(id).ok())
        else {
            return;
        };
        let mut state = self.state();
        let Some(arriving) = state.waiting.get(correlation) else { return };
        let number = |name| std::str::from_utf8(entry.get(name)?).ok()?.parse().ok();
        let arrived = match entry.get(field::PAYLOAD) {
            Some(payload) => Arrived::Response(Reply {
                json: payload.to_vec(),
                is_final: entry.get(field::FINAL) == Some(b"true"),
                event: number(field::EVENT),
                index: number(field::INDEX),
            }),
            None => Arrived::Heartbeat,
        };
        // A reader that is too slow gets an error after what has arrived so far, and resumes the stream.
        if !arriving.pass(arrived) {
            let correlation = correlation.to_owned();
            state.waiting.remove(&correlation);
        }
    }
}

/// Reads the reply stream.
struct Reader {
    server: RedisUrl,
    check: Option<AddressCheck>,
    limits: Limits,
    stream: String,
    /// The id of the last entry that was read.
    last: String,
    replies: Arc<Replies>,
    sending: Arc<Sending>,
    ended: watch::Receiver<()>,
}

impl Reader {
    /// Reads until the link is dropped or lost, and deletes the stream.
    async fn run(mut self, mut connection: Connection) {
        let _running = Running::new();
        let mut ended = self.ended.clone();
        let outage = Outage::new("read responses");
        let mut backoff = Backoff::default();
        let mut failing_since = None;
        loop {
            let error = tokio::select! {
                error = self.read(&mut connection, &outage, &mut backoff) => error,
                _ = ended.changed() => break,
            };
            let since = *failing_since.get_or_insert_with(Instant::now);
            if since.elapsed() > self.limits.idle {
                self.replies.lose(format!("Redis does not answer: {error}"));
                return;
            }
            outage.failed(&error);
            // Both connections lead to the same server.
            self.sending.is_stale.store(true, Ordering::Relaxed);
            tokio::select! {
                () = tokio::time::sleep(backoff.wait()) => {}
                _ = ended.changed() => break,
            }
            match connect(&self.server, self.limits.connect, ANSWER, self.check.clone()).await {
                Ok(mut again) => match self.exists(&mut again).await {
                    Ok(true) => {
                        connection = again;
                        failing_since = None;
                    }
                    // Redis has lost its data, or this client was away for too long.
                    Ok(false) => {
                        self.replies
                            .lose("the reply stream of this client does not exist any more".to_owned());
                        return;
                    }
                    Err(error) => {
                        outage.failed(&error);
                    }
                },
                Err(error) => {
                    outage.failed(&error);
                }
            }
        }
        // The connection that reads may be waiting for responses.
        let delete = async {
            let mut connection = self.sending.connection().await?;
            cmd("UNLINK").arg(&self.stream).exec_async(&mut connection).await
        };
        match tokio::time::timeout(DELETE, delete).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "the reply stream could not be deleted and will expire")
            }
            Err(_) => tracing::debug!("the reply stream could not be deleted in time and will expire"),
        }
    }

    async fn exists(&self, connection: &mut Connection) -> Result<bool, RedisError> {
        cmd("PEXPIRE").arg(&self.stream).arg(millis(EXPIRE)).query_async(connection).await
    }

    /// Reads until that fails.
    async fn read(
        &mut self,
        connection: &mut Connection,
        outage: &Outage,
        backoff: &mut Backoff,
    ) -> RedisError {
        let mut renewed = Instant::now();
        // As large as the largest response that was read lately.
        let mut expected = EXPECTED;
        loop {
            let count = (MAX_UNREAD / expected).clamp(1, MAX_READ);
            let mut pipe = redis::pipe();
            // Removes what was read before. The last entry stays, so that the stream does not become empty.
            pipe.cmd("XTRIM").arg(&self.stream).arg("MINID").arg(&self.last).ignore();
            if renewed.elapsed() >= RENEW {
                renewed = Instant::now();
                pipe.cmd("PEXPIRE").arg(&self.stream).arg(millis(EXPIRE)).ignore();
            }
            pipe.cmd("XREAD").arg("COUNT").arg(count).arg("BLOCK").arg(millis(BLOCK));
            pipe.arg("STREAMS").arg(&self.stream).arg(&self.last);
            let reply: Result<(Value,), RedisError> = pipe.query_async(connection).await;
            let found = match reply.and_then(|(reply,)| entries(reply)) {
                Ok(found) => found,
                Err(error) => return error,
            };
            outage.ended();
            backoff.reset();
            if let Some(largest) = found.iter().map(Entry::size).max() {
                expected = largest.max(expected / 2).max(1);
            }
            for entry in found {
                self.last.clone_from(&entry.id);
                match entry.size() > self.limits.max_event.saturating_add(4096) {
                    false => self.replies.pass(entry),
                    true => self.replies.pass(too_large(&entry)),
                }
            }
        }
    }
}

/// An entry without its payload, so that it is not kept.
fn too_large(entry: &Entry) -> Entry {
    let kept = |name: &str| Some((name.as_bytes().to_vec(), entry.get(name)?.to_vec()));
    let mut fields: Vec<_> = [field::CORRELATION_ID, field::FINAL].into_iter().filter_map(kept).collect();
    fields.push((field::PAYLOAD.as_bytes().to_vec(), TOO_LARGE.to_vec()));
    Entry { id: entry.id.clone(), fields: Some(fields) }
}

/// Stands for a response that is too large. It is no JSON, so no server can send it by chance.
const TOO_LARGE: &[u8] = b"\0too large";

/// A request that waits for responses, until dropped.
struct Waiting {
    link: Arc<Link>,
    correlation: String,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.link.replies.state().waiting.remove(&self.correlation);
    }
}

/// The responses to one request.
struct RedisResponses {
    arrived: Arrivals,
    waiting: Waiting,
    responses: ResponseCount,
    idle: Duration,
    max_event: usize,
    progress: Progress,
}

impl RedisResponses {
    async fn receive(&mut self) -> Result<Option<ResponseFrame>, ClientError> {
        loop {
            if self.progress.has_ended {
                return Ok(None);
            }
            let arrived = match self.progress.has_heartbeats && self.responses == ResponseCount::Stream {
                true => tokio::time::timeout(self.idle, self.arrived.recv())
                    .await
                    .map_err(|_| ClientError::Broken("the server sends nothing any more".to_owned()))?,
                // Servers of other projects send nothing while nothing happens.
                false => self.arrived.recv().await,
            };
            let reply = match arrived {
                Some(Arrived::Response(reply)) => reply,
                Some(Arrived::Heartbeat) => {
                    self.progress.has_heartbeats = true;
                    continue;
                }
                None => {
                    let lost = self.waiting.link.replies.lost();
                    let why = lost.unwrap_or_else(|| "the responses were read too slowly".to_owned());
                    return Err(ClientError::Broken(why));
                }
            };
            if reply.json == TOO_LARGE {
                return Err(ClientError::TooLarge { limit: self.max_event });
            }
            match self.progress.next(&reply)? {
                Step::Skip => {}
                Step::End => return Ok(None),
                Step::Response => {
                    let event = reply.event.map(|number| number.to_string().into());
                    return Ok(Some(ResponseFrame { json: Bytes::from(reply.json), event }));
                }
            }
        }
    }
}

impl ResponseSource for RedisResponses {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ResponseFrame>, ClientError>> {
        Box::pin(self.receive())
    }
}

/// How far the responses to a request have come.
#[derive(Debug, Default)]
struct Progress {
    /// The position of the next event.
    next_index: u64,
    last_event: Option<u64>,
    /// Whether another server process has begun again, so that events come a second time.
    repeats: bool,
    has_heartbeats: bool,
    has_ended: bool,
}

/// What to do with a response.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Response,
    /// It came before.
    Skip,
    /// It has nothing but the end of the stream.
    End,
}

impl Progress {
    fn next(&mut self, reply: &Reply) -> Result<Step, ClientError> {
        if let Some(index) = reply.index {
            self.has_heartbeats = true;
            if index > self.next_index {
                // The reply stream keeps a limited number of entries.
                let why = "responses were removed before they were read".to_owned();
                return Err(ClientError::Broken(why));
            }
            self.repeats |= index < self.next_index;
            self.next_index = index + 1;
        }
        if self.repeats && reply.event.is_some_and(|event| Some(event) <= self.last_event) {
            return Ok(Step::Skip);
        }
        self.last_event = reply.event.or(self.last_event);
        if reply.is_final {
            self.has_ended = true;
            if is_end(&reply.json) {
                return Ok(Step::End);
            }
        }
        Ok(Step::Response)
    }
}

/// Whether a response has neither a result nor an error.
fn is_end(json: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        result: Option<IgnoredAny>,
        #[serde(default)]
        error: Option<IgnoredAny>,
        #[serde(default)]
        jsonrpc: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Head>(json)
        .is_ok_and(|head| head.jsonrpc.is_some() && head.result.is_none() && head.error.is_none())
}

/// The responses that a client takes from entries of its reply stream, and whether it could go on after the last one. For fuzzing.
pub fn read_replies(
    entries: impl IntoIterator<Item = Entry>,
    correlation: &str,
    max_event: usize,
) -> (Vec<Vec<u8>>, bool) {
    let replies = Replies::default();
    let mut arrived = replies.register(correlation);
    for entry in entries {
        replies.pass(if entry.size() > max_event { too_large(&entry) } else { entry });
    }
    let (mut progress, mut responses) = (Progress::default(), Vec::new());
    while let Ok(arrived) = arrived.try_recv() {
        let Arrived::Response(reply) = arrived else { continue };
        if progress.has_ended {
            break;
        }
        if reply.json == TOO_LARGE {
            return (responses, false);
        }
        match progress.next(&reply) {
            Ok(Step::Skip) => {}
            Ok(Step::End) => break,
            Ok(Step::Response) => responses.push(reply.json),
            Err(_) => return (responses, false),
        }
    }
    (responses, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TrustedOrigins;

    fn reply(index: Option<u64>, event: Option<u64>, is_final: bool) -> Reply {
        let json = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_vec();
        Reply { json, is_final, event, index }
    }

    #[test]
    fn events_that_come_a_second_time_are_skipped() {
        let mut progress = Progress::default();
        for (index, event) in [(0, 1), (1, 2)] {
            assert_eq!(progress.next(&reply(Some(index), Some(event), false)).unwrap(), Step::Response);
        }
        // Another process begins again.
        for (index, event, step) in [(0, 1, Step::Skip), (1, 2, Step::Skip), (2, 3, Step::Response)] {
            assert_eq!(progress.next(&reply(Some(index), Some(event), false)).unwrap(), step, "{event}");
        }
        let end = Reply { json: br#"{"jsonrpc":"2.0","id":1}"#.to_vec(), ..reply(None, None, true) };
        assert_eq!(progress.next(&end).unwrap(), Step::End);
        assert!(progress.has_ended);
    }

    #[test]
    fn a_gap_breaks_the_stream_so_that_it_is_resumed() {
        let mut progress = Progress::default();
        progress.next(&reply(Some(0), Some(1), false)).unwrap();
        let error = progress.next(&reply(Some(2), Some(3), false)).unwrap_err();
        assert!(matches!(error, ClientError::Broken(_)) && error.is_transient());
    }

    #[test]
    fn responses_of_servers_without_numbers_are_taken_as_they_are() {
        let mut progress = Progress::default();
        for _ in 0..2 {
            assert_eq!(progress.next(&reply(None, None, false)).unwrap(), Step::Response);
        }
        assert_eq!(progress.next(&reply(None, None, true)).unwrap(), Step::Response);
        assert!(progress.has_ended && !progress.has_heartbeats);
    }

    #[test]
    fn a_slow_reader_loses_its_place_and_holds_up_no_other() {
        let replies = Replies::default();
        let (slow, mut other) = (replies.register("slow"), replies.register("other"));
        for _ in 0..MAX_WAITING + 10 {
            replies.pass(entry("slow", "{}"));
        }
        replies.pass(entry("other", "{}"));
        replies.pass(entry("unknown", "{}"));
        assert_eq!((slow.receiver.len(), slow.receiver.is_closed()), (MAX_WAITING, true));
        assert!(other.try_recv().is_ok());
    }

    fn entry(correlation: &str, payload: &str) -> Entry {
        let fields = [("correlation_id", correlation), ("payload", payload), ("final", "false")];
        let fields = fields.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        Entry { id: "1-0".to_owned(), fields: Some(fields.into()) }
    }

    #[tokio::test]
    async fn responses_that_wait_for_a_slow_reader_have_a_limit_in_bytes() {
        let replies = Replies::default();
        let (mut slow, mut quick) = (replies.register("slow"), replies.register("quick"));
        let large = "x".repeat(MAX_UNREAD + 1);
        replies.pass(entry("slow", &large));
        replies.pass(entry("slow", "{}"));
        replies.pass(entry("slow", "{}"));
        for _ in 0..10 {
            replies.pass(entry("quick", &large));
            assert!(quick.recv().await.is_some(), "one response may be larger");
        }
        assert!(slow.recv().await.is_some());
        assert!(slow.recv().await.is_none(), "the others were not kept");
    }

    fn options(known: &str, trusted: TrustedOrigins) -> ClientOptions {
        ClientOptions::default().redis(vec![known.parse().unwrap()]).trusted_origins(trusted)
    }

    #[test]
    fn credentials_for_redis_are_used_only_where_the_user_wants_them() {
        let streams = "redis-streams://redis.example:6379/0/q/r/g";
        let withheld = |card: &str, trusted: TrustedOrigins| {
            let options = options("redis://:s3cret@redis.example:6379", trusted);
            let (url, card) = (streams.parse().unwrap(), card.parse().unwrap());
            RedisChannel::new(&url, &card, &options).unwrap().withheld.is_some()
        };
        assert!(!withheld(streams, TrustedOrigins::new()), "the user gave the address");
        assert!(!withheld("redis-streams://redis.example:6379/0/a/b/c", TrustedOrigins::new()));
        assert!(withheld("http://agent.example/card.json", TrustedOrigins::new()));
        let trusted = TrustedOrigins::new().trust("redis-streams://redis.example:6379").unwrap();
        assert!(!withheld("http://agent.example/card.json", trusted.clone()));
        assert!(withheld("https://agent.example/card.json", trusted), "they are not sent without encryption");
    }
}
