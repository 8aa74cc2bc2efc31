//! Many requests over one connection, told apart by their ids.
//!
//! - Responses are delivered as they arrive, in any order of the requests.
//! - A stream whose reader is too slow is cut off, and only that one: its reader gets what has arrived and then an error, after which it
//!   can resume. So no reader delays another one, and the memory is bounded.
//! - A stream that is dropped or cut off is no longer read. If nothing else is in progress, the connection is closed, so that the server stops as
//!   well. Otherwise a server that numbers its events is asked to end the stream. Servers that do not may answer the question with an error that
//!   names no request, so they are not asked.
//! - If the connection breaks, all requests on it fail. The next request connects again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::header::{HeaderName, HeaderValue};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::duplex::{Dial, Duplex, FrameSink, Incoming, IncomingFrame, Loss, Traits};
use super::{Channel, RequestFrame, ResponseCount, ResponseFrame, ResponseSource, Responses};
use crate::http::with_timeout;
use crate::{ClientError, ClientOptions};

/// How many requests one connection has at most. Servers process a limited number at once, and a cancel must not wait for streams.
const MAX_REQUESTS: usize = 32;

/// How many bytes of a stream may wait for their reader. One event may be larger.
const MAX_UNREAD: usize = 4 * 1024 * 1024;

/// How many requests may wait to be written.
const MAX_UNWRITTEN: usize = 16;

/// How long a connection without requests is kept. Servers close theirs later, so that none is closed while a request is on its way.
const IDLE: Duration = Duration::from_secs(4);

/// How often a connection is checked.
const TICK: Duration = Duration::from_secs(1);

/// The client closed the connection.
fn closed() -> Loss {
    Loss::Broken("the connection was closed".to_owned())
}

/// A channel over connections that each carry many requests.
pub(super) struct Multiplexer<D> {
    dial: D,
    connect_timeout: Duration,
    /// How long a peer may be silent while requests wait for it, if it must answer pings.
    silence: Duration,
    omits_headers: AtomicBool,
    links: tokio::sync::Mutex<Vec<Arc<Link>>>,
}

/// A connection, as its requests see it. It is closed when the last of them and the multiplexer have dropped it.
struct Link {
    auth: Vec<(HeaderName, HeaderValue)>,
    shared: Arc<Shared>,
    outgoing: mpsc::Sender<Vec<u8>>,
}

/// What the requests and the task of a connection share.
struct Shared {
    table: Mutex<Table>,
    /// Wakes the task when a request was dropped.
    dropped: Notify,
}

struct Table {
    waiting: HashMap<u64, Waiting>,
    /// Requests that were dropped or cut off and whose responses may still arrive.
    abandoned: HashMap<u64, ResponseCount>,
    /// Those of them that the server has not been asked to end.
    unwanted: Vec<u64>,
    /// Why the connection carries no requests any more.
    loss: Option<Loss>,
    /// The last error that names no request.
    complaint: Option<String>,
    last_used: Instant,
    last_heard: Instant,
}

struct Waiting {
    responses: ResponseCount,
    /// Whether the server has numbered an event.
    is_numbered: bool,
    sender: mpsc::UnboundedSender<Result<ResponseFrame, Loss>>,
    unread: Arc<AtomicUsize>,
}

impl Shared {
    fn new() -> Self {
        let now = Instant::now();
        let table = Table {
            waiting: HashMap::new(),
            abandoned: HashMap::new(),
            unwanted: Vec::new(),
            loss: None,
            complaint: None,
            last_used: now,
            last_heard: now,
        };
        Self { table: Mutex::new(table), dropped: Notify::new() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Delivers a frame.
    fn route(&mut self, frame: IncomingFrame) {
        self.last_heard = Instant::now();
        self.last_used = self.last_heard;
        let id = match frame.id {
            Some(id) => id,
            // A server that could not parse a request does not know its id.
            None if frame.has_error && self.waiting.len() == 1 => {
                self.waiting.keys().copied().next().unwrap_or_default()
            }
            None => {
                if frame.has_error {
                    let text = String::from_utf8_lossy(&frame.json);
                    self.complaint = Some(text.chars().take(300).collect());
                }
                return;
            }
        };
        let Some(waiting) = self.waiting.get_mut(&id) else {
            let is_stream = self.abandoned.get(&id) == Some(&ResponseCount::Stream);
            if frame.is_final || frame.has_error || !is_stream {
                self.abandoned.remove(&id);
            }
            return;
        };
        waiting.is_numbered |= frame.event.is_some();
        let is_stream = waiting.responses == ResponseCount::Stream;
        let is_last = frame.is_final || frame.has_error || !is_stream;
        let is_end_only = is_stream && frame.is_final && !frame.has_result && !frame.has_error;
        let length = frame.json.len();
        let unread = waiting.unread.load(Ordering::Acquire);
        if !is_end_only && unread > 0 && unread + length > MAX_UNREAD {
            let _ =
                waiting.sender.send(Err(Loss::Broken("events arrive faster than they are read".to_owned())));
            match is_last {
                true => drop(self.waiting.remove(&id)),
                false => self.abandon(id),
            }
            return;
        }
        if !is_end_only {
            waiting.unread.fetch_add(length, Ordering::AcqRel);
            let _ = waiting.sender.send(Ok(ResponseFrame { json: frame.json, event: frame.event }));
        }
        if is_last {
            self.waiting.remove(&id);
        }
    }

    /// Gives up a request whose responses are not read any more.
    fn abandon(&mut self, id: u64) {
        let Some(Waiting { responses, is_numbered, .. }) = self.waiting.remove(&id) else { return };
        self.abandoned.insert(id, responses);
        if is_numbered && responses == ResponseCount::Stream {
            self.unwanted.push(id);
        }
    }

    /// Fails all requests.
    fn fail(&mut self, loss: Loss) {
        let loss = match (loss, self.complaint.take()) {
            (Loss::Broken(why), Some(complaint)) => {
                Loss::Broken(format!("{why}; the agent said: {complaint}"))
            }
            (loss, _) => loss,
        };
        for (_, waiting) in self.waiting.drain() {
            let _ = waiting.sender.send(Err(loss.clone()));
        }
        self.abandoned.clear();
        self.loss.get_or_insert(loss);
    }

    /// Whether the connection is of no use to any request. Then it takes no further ones.
    fn close_if_unused(&mut self, traits: Traits) -> bool {
        let is_unused = traits.is_replaceable
            && self.waiting.is_empty()
            && (!self.abandoned.is_empty() || self.last_used.elapsed() >= IDLE);
        if is_unused {
            self.loss.get_or_insert_with(closed);
        }
        is_unused
    }
}

impl Link {
    /// Whether the connection can take another request.
    fn has_room(&self, traits: Traits) -> bool {
        let table = self.shared.table();
        table.loss.is_none()
            && (!traits.is_replaceable || table.waiting.len() + table.abandoned.len() < MAX_REQUESTS)
    }

    fn is_open(&self) -> bool {
        self.shared.table().loss.is_none()
    }
}

impl<D: Dial> Multiplexer<D> {
    pub(super) fn new(dial: D, options: &ClientOptions) -> Self {
        Self {
            dial,
            connect_timeout: options.connect_timeout,
            silence: options.idle_timeout,
            omits_headers: AtomicBool::new(false),
            links: tokio::sync::Mutex::default(),
        }
    }

    /// A connection for a request with these credentials.
    async fn link(&self, auth: &[(HeaderName, HeaderValue)]) -> Result<Arc<Link>, ClientError> {
        let auth = if D::TRAITS.auth_per_connection { auth } else { &[] };
        let mut links = self.links.lock().await;
        links.retain(|link| link.is_open());
        if let Some(link) = links.iter().find(|link| link.auth == auth && link.has_room(D::TRAITS)) {
            return Ok(link.clone());
        }
        let duplex = with_timeout(self.connect_timeout, self.dial.dial(auth)).await?;
        let shared = Arc::new(Shared::new());
        let (outgoing, unwritten) = mpsc::channel(MAX_UNWRITTEN);
        tokio::spawn(drive(duplex, shared.clone(), unwritten, D::TRAITS, self.silence));
        let link = Arc::new(Link { auth: auth.to_vec(), shared, outgoing });
        links.push(link.clone());
        Ok(link)
    }

    async fn send(&self, request: RequestFrame) -> Result<Responses, ClientError> {
        let omits_headers = self.omits_headers.load(Ordering::Relaxed);
        let json = encode(&request, omits_headers, !D::TRAITS.auth_per_connection)?;
        loop {
            let link = self.link(&request.auth).await?;
            let Some(id) = request.id else {
                if link.outgoing.send(json.clone()).await.is_ok() {
                    return Ok(Responses::none());
                }
                continue;
            };
            let (sender, receiver) = mpsc::unbounded_channel();
            let unread = Arc::new(AtomicUsize::new(0));
            {
                let mut table = link.shared.table();
                // It was closed in the meantime. Nothing was sent.
                if table.loss.is_some() {
                    continue;
                }
                table.last_used = Instant::now();
                if table.waiting.is_empty() {
                    table.last_heard = table.last_used;
                }
                let (responses, unread) = (request.responses, unread.clone());
                let waiting = Waiting { responses, is_numbered: false, sender, unread };
                table.waiting.insert(id, waiting);
            }
            let responses = LinkResponses { id, receiver, unread, link };
            // If the task of the connection has ended, it has put the reason into the receiver.
            let _ = responses.link.outgoing.send(json).await;
            return Ok(Responses::new(responses));
        }
    }
}

impl<D: Dial> Channel for Multiplexer<D> {
    fn exchange(&self, request: RequestFrame) -> BoxFuture<'_, Result<Responses, ClientError>> {
        Box::pin(self.send(request))
    }

    fn omit_headers(&self, omit: bool) -> bool {
        self.omits_headers.store(omit, Ordering::Relaxed);
        true
    }
}

/// The JSON of a request with its service parameters in the member `headers`, and its credentials if the connection does not have them.
fn encode(request: &RequestFrame, omits_headers: bool, with_auth: bool) -> Result<Vec<u8>, ClientError> {
    let headers: &[_] = if omits_headers { &[] } else { &request.headers };
    let auth: &[_] = if with_auth { &request.auth } else { &[] };
    if headers.is_empty() && auth.is_empty() {
        return Ok(request.json.clone());
    }
    let mut members = serde_json::Map::new();
    for (name, value) in headers.iter().chain(auth) {
        let value = value.to_str().map_err(|_| {
            ClientError::Invalid(format!("the header `{name}` must consist of printable ASCII characters"))
        })?;
        members.insert(name.as_str().to_owned(), value.into());
    }
    let Some(object) = request.json.trim_ascii_end().strip_suffix(b"}") else {
        return Err(ClientError::Invalid("a request must be a JSON object".to_owned()));
    };
    let mut json = Vec::with_capacity(object.len() + 256);
    json.extend_from_slice(object);
    json.extend_from_slice(b",\"headers\":");
    json.extend_from_slice(serde_json::Value::Object(members).to_string().as_bytes());
    json.push(b'}');
    Ok(json)
}

/// The responses to one request on a connection.
struct LinkResponses {
    id: u64,
    receiver: mpsc::UnboundedReceiver<Result<ResponseFrame, Loss>>,
    unread: Arc<AtomicUsize>,
    /// Keeps the connection open.
    link: Arc<Link>,
}

impl ResponseSource for LinkResponses {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ResponseFrame>, ClientError>> {
        Box::pin(async move {
            match self.receiver.recv().await {
                Some(Ok(frame)) => {
                    self.unread.fetch_sub(frame.json.len(), Ordering::AcqRel);
                    Ok(Some(frame))
                }
                Some(Err(loss)) => Err(loss.into_error()),
                None => Ok(None),
            }
        })
    }
}

impl Drop for LinkResponses {
    fn drop(&mut self) {
        let mut table = self.link.shared.table();
        if table.waiting.contains_key(&self.id) {
            table.abandon(self.id);
            drop(table);
            self.link.shared.dropped.notify_one();
        }
    }
}

/// Why a connection is not written to any more.
enum WriteEnd {
    /// It is not needed any more, or the agent does not answer.
    Closed(Loss),
    Failed(Loss),
}

/// Sends a frame, and gives up if the agent does not read it.
async fn send(sink: &mut dyn FrameSink, json: Vec<u8>, silence: Duration) -> Result<(), WriteEnd> {
    match tokio::time::timeout(silence, sink.send(json)).await {
        Ok(sent) => sent.map_err(WriteEnd::Failed),
        Err(_) => {
            let why = format!("the agent read nothing within {} s", silence.as_secs_f64());
            Err(WriteEnd::Closed(Loss::Broken(why)))
        }
    }
}

/// Asks the server to end streams.
async fn cancel_requests(sink: &mut dyn FrameSink, ids: Vec<u64>, silence: Duration) -> Result<(), WriteEnd> {
    for id in ids {
        let json = format!(r#"{{"jsonrpc":"2.0","method":"$/cancelRequest","params":{{"id":{id}}}}}"#);
        send(sink, json.into_bytes(), silence).await?;
    }
    Ok(())
}

/// Runs a connection until it breaks or is not needed any more.
async fn drive(
    Duplex { mut source, mut sink }: Duplex,
    shared: Arc<Shared>,
    mut unwritten: mpsc::Receiver<Vec<u8>>,
    traits: Traits,
    silence: Duration,
) {
    let mut reading = std::pin::pin!(async {
        loop {
            match source.next().await {
                Ok(Incoming::Frame(frame)) => {
                    let mut table = shared.table();
                    table.route(frame);
                    if !table.unwanted.is_empty() {
                        shared.dropped.notify_one();
                    }
                }
                Ok(Incoming::Alive) => shared.table().last_heard = Instant::now(),
                Err(loss) => break loss,
            }
        }
    });
    let writing = async {
        let mut pinged = false;
        loop {
            tokio::select! {
                json = unwritten.recv() => match json {
                    Some(json) => {
                        if let Err(end) = send(&mut *sink, json, silence).await {
                            break end;
                        }
                    }
                    None => break WriteEnd::Closed(closed()),
                },
                () = shared.dropped.notified() => {}
                () = tokio::time::sleep(TICK) => {}
            }
            if shared.table().close_if_unused(traits) {
                break WriteEnd::Closed(closed());
            }
            let unwanted = std::mem::take(&mut shared.table().unwanted);
            if let Err(end) = cancel_requests(&mut *sink, unwanted, silence).await {
                break end;
            }
            if !traits.has_pings {
                continue;
            }
            let (quiet, is_needed) = {
                let table = shared.table();
                (table.last_heard.elapsed(), !table.waiting.is_empty())
            };
            if !is_needed || quiet < silence / 2 {
                pinged = false;
            } else if quiet >= silence {
                let why = format!("the agent sent nothing within {} s", silence.as_secs_f64());
                break WriteEnd::Closed(Loss::Broken(why));
            } else if !pinged {
                pinged = true;
                if let Err(loss) = sink.ping().await {
                    break WriteEnd::Failed(loss);
                }
            }
        }
    };
    let loss = tokio::select! {
        loss = &mut reading => loss,
        end = writing => match end {
            WriteEnd::Closed(loss) => loss,
            // What the agent said before it closed the connection, and how it ended, says more than that writing failed.
            WriteEnd::Failed(loss) => tokio::time::timeout(TICK, reading).await.unwrap_or(loss),
        },
    };
    // Requests that were not written yet are in the table as well.
    unwritten.close();
    shared.table().fail(loss);
    // A peer that does not read must not keep this task.
    let _ = tokio::time::timeout(TICK, sink.close()).await;
}

#[cfg(test)]
#[path = "multiplexer_tests.rs"]
mod tests;
