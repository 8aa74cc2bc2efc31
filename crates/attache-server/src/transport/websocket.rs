//! WebSocket: JSON-RPC requests in messages, and responses in messages of the form `{"id": …, "payload": …, "final": …}`.
//!
//! A connection begins as an HTTP request, which is checked as every request is. Each message is then authenticated and limited on its
//! own, so that a change of the settings applies to open connections too. Browsers cannot set headers: they give credentials in the
//! first message, or in the names of subprotocols.
//!
//! The server sends a ping at each heartbeat. A connection on which nothing arrives, not even a pong, is closed.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use attache_protocol::jsonrpc::Id;
use attache_protocol::{Error, ErrorKind};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::stream::{self, SplitSink};
use futures::{SinkExt, Stream, StreamExt};
use http::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::Frame as WsFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_util::io::InspectReader;

use super::exchange::{Channel, EstablishedCaller, Frame, FrameKind, own_headers};
use super::idle::Member;
use super::multiplex::{Received, answer_all, closing};
use super::outgoing::{Outgoing, Unwritten, outgoing};
use crate::http::body::Body;
use crate::http::response::json_response;
use crate::http::route::is_upgrade;
use crate::limits::Origin;
use crate::{HttpService, Peer};

/// The name of the transport in the logs.
pub(crate) const BINDING: &str = "JSONRPC-WEBSOCKET";

/// The subprotocol. A client that offers subprotocols must offer this one.
const SUBPROTOCOL: &str = "a2a";

/// A subprotocol with this prefix is a header of all requests: its name, a dot, and its value in base64url.
const HEADER_SUBPROTOCOL: &str = "a2a.header.";

/// How much is read from a connection at once. The library fills as much with zeros before each read.
const READ: usize = 16 * 1024;

/// How many bytes of a message may wait for the rest of it for longer than a body may take.
const PARTIAL: u64 = 64 * 1024;

/// The header of a control message of a client: its kind, its length, and the mask.
const CONTROL_HEADER: u64 = 6;

/// How many multiples of the time for an idle connection a client may say nothing while it waits for responses.
const SILENCE: u32 = 4;

/// The connection of this server that a request came over, where it can become a WebSocket connection.
#[derive(Clone)]
pub(crate) struct Upgradable(pub(crate) Arc<Member>);

/// What a WebSocket connection is made of.
pub(crate) struct Opening<'a> {
    pub(crate) http: &'a HttpService,
    pub(crate) head: &'a mut Parts,
    pub(crate) peer: &'a Peer,
    pub(crate) origin: Origin,
    pub(crate) caller: EstablishedCaller,
    pub(crate) is_local: bool,
}

/// Answers the request that opens a connection, and serves the connection in the background.
pub(crate) fn open(opening: Opening<'_>) -> Response<Body> {
    let Opening { http, head, peer, origin, caller, is_local } = opening;
    let key = match handshake(head) {
        Ok(key) => key,
        Err((status, text)) => return refused(status, text),
    };
    let Some(upgrade) = head.extensions.remove::<OnUpgrade>() else {
        let text = "this connection cannot become a WebSocket connection: use HTTP/1.1";
        return refused(StatusCode::UPGRADE_REQUIRED, text);
    };
    let (headers, subprotocol) = match connection_headers(&head.headers) {
        Ok(headers) => headers,
        Err(text) => return refused(StatusCode::BAD_REQUEST, &text),
    };
    let member = head.extensions.remove::<Upgradable>().map(|Upgradable(member)| member);
    let query = head.uri.query().map(str::to_owned);
    let (http, peer) = (http.clone(), peer.clone());
    let channel = Channel { http, binding: BINDING, peer, origin, headers, query, caller, is_local };
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => serve(upgraded, channel, member).await,
            Err(error) => tracing::debug!(%error, "a WebSocket connection was not opened"),
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if subprotocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    }
    response
}

/// Checks the request that opens a connection. Returns its key.
fn handshake(head: &Parts) -> Result<HeaderValue, (StatusCode, &'static str)> {
    if !is_upgrade(head) {
        let text =
            "this path speaks WebSocket: send `GET` with `Connection: Upgrade` and `Upgrade: websocket`";
        return Err((StatusCode::UPGRADE_REQUIRED, text));
    }
    if head.headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version.as_bytes() != b"13") {
        return Err((StatusCode::UPGRADE_REQUIRED, "expected the header `Sec-WebSocket-Version: 13`"));
    }
    let key = head.headers.get(SEC_WEBSOCKET_KEY).cloned();
    key.ok_or((StatusCode::BAD_REQUEST, "expected the header `Sec-WebSocket-Key`"))
}

fn refused(status: StatusCode, text: &str) -> Response<Body> {
    let body = serde_json::json!({"error": text}).to_string().into_bytes();
    let mut response = json_response(status, "application/json", body);
    if status == StatusCode::UPGRADE_REQUIRED {
        let headers = response.headers_mut();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    }
    response
}

/// The headers that the requests of a connection have, and whether the client offers our subprotocol.
pub(crate) fn connection_headers(opening: &HeaderMap) -> Result<(HeaderMap, bool), String> {
    let is_of_opening = |name: &HeaderName| {
        name.as_str().starts_with("sec-websocket-")
            || [CONNECTION, UPGRADE].contains(name)
            || is_of_one_request(name)
    };
    let mut headers = HeaderMap::with_capacity(opening.len());
    for (name, value) in opening.iter().filter(|(name, _)| !is_of_opening(name)) {
        headers.append(name, value.clone());
    }
    let offered = opening.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut is_offered = false;
    for name in offered.flat_map(|list| list.split(',')).map(str::trim) {
        is_offered |= name == SUBPROTOCOL;
        let Some(rest) = name.strip_prefix(HEADER_SUBPROTOCOL) else { continue };
        let (name, value) = header_of(rest).ok_or_else(|| {
            format!("a subprotocol that begins with `{HEADER_SUBPROTOCOL}` goes on with the name of a header, a dot, and its value in base64url")
        })?;
        if !is_of_one_request(&name) {
            headers.insert(name, value);
        }
    }
    Ok((headers, is_offered))
}

/// Whether a header has a meaning for one request only, so that a connection cannot have it for all.
fn is_of_one_request(name: &HeaderName) -> bool {
    ["last-event-id", "idempotency-key"].contains(&name.as_str())
}

/// The header in the name of a subprotocol.
fn header_of(text: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = text.rsplit_once('.')?;
    let value = URL_SAFE_NO_PAD.decode(value).ok()?;
    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(&value).ok()?))
}

/// Serves one connection until the client closes it or the server stops.
async fn serve(upgraded: Upgraded, channel: Channel, member: Option<Arc<Member>>) {
    let limit = channel.http.options().max_body;
    let config = WebSocketConfig::default()
        .read_buffer_size(READ)
        .max_message_size(Some(limit))
        .max_frame_size(Some(limit));
    let arrived = Arc::new(Arrivals::new());
    let count = arrived.clone();
    let counted = InspectReader::new(TokioIo::new(upgraded), move |read: &[u8]| {
        count.bytes.fetch_add(read.len() as u64, Ordering::Relaxed);
    });
    let socket = WebSocketStream::from_raw_socket(counted, Role::Server, Some(config)).await;
    run(socket, channel, member.as_deref(), &arrived).await;
}

async fn run<S>(socket: WebSocketStream<S>, mut channel: Channel, member: Option<&Member>, arrived: &Arrivals)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let options = channel.http.options().clone();
    let dispatcher = channel.http.dispatcher().clone();
    let (sink, messages) = socket.split();
    let activity = member.map(Member::activity);
    let mut received = messages.map(|message| {
        let control = message.as_ref().ok().filter(|message| !message.is_text() && !message.is_binary());
        arrived.message(control.map(Message::len));
        if let (Some(activity), true) = (&activity, message.is_ok()) {
            activity.alive();
        }
        read(message)
    });
    let (frames, unwritten) = outgoing(encode);
    let pings = frames.others();
    let watching = async {
        let mut ticks = tokio::time::interval(options.heartbeat);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let is_silent = arrived.silence() > options.header_timeout.max(options.heartbeat) * SILENCE;
            let is_orphan = member.is_none() && dispatcher.is_stopping();
            if is_silent || is_orphan || arrived.is_slow(options.body_timeout) {
                return;
            }
            pings.try_send(Message::Ping(Bytes::new()));
        }
    };
    let answering = async {
        if let Some(first) = authenticate(&mut channel, &mut received, member, &frames).await {
            let received = stream::iter(first).chain(received);
            answer_all(&channel, member, received, std::future::pending(), frames).await;
        }
    };
    let mut writing = pin!(write(sink, unwritten));
    tokio::select! {
        biased;
        () = answering => {}
        // The client does not read any more, or is silent. Its requests and streams end. Tasks go on.
        () = &mut writing => return,
        () = watching => return,
    }
    if !member.is_some_and(Member::is_evicted) {
        tokio::select! {
            () = writing => {}
            () = closing(member) => {}
            () = tokio::time::sleep(options.header_timeout) => {}
        }
    }
}

/// What a message means.
fn read(message: Result<Message, WsError>) -> Received {
    match message {
        Ok(Message::Text(text)) => Received::Request(text.into()),
        Ok(Message::Binary(bytes)) => Received::Request(bytes),
        Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => Received::Nothing,
        Err(WsError::Capacity(CapacityError::MessageTooLong { max_size, .. })) => {
            let text = format!("the message is longer than {max_size} bytes");
            Received::Broken(Error::new(ErrorKind::PayloadTooLarge, text).with("limit", max_size))
        }
        Err(WsError::Utf8(_) | WsError::Protocol(_)) => {
            Received::Broken(Error::new(ErrorKind::InvalidRequest, "this is not WebSocket"))
        }
        Ok(Message::Close(_)) | Err(_) => Received::Closed,
    }
}

/// Lets the first message give the headers of all requests. Returns what was received instead, if it is something else; `None` if the
/// connection ends.
async fn authenticate(
    channel: &mut Channel,
    received: &mut (impl Stream<Item = Received> + Unpin),
    member: Option<&Member>,
    frames: &Outgoing<Message>,
) -> Option<Option<Received>> {
    let first = loop {
        let next = tokio::select! {
            next = received.next() => next?,
            () = closing(member) => return None,
        };
        match next {
            Received::Nothing => {}
            Received::Request(_) | Received::Broken(_) | Received::Closed => break next,
        }
    };
    let Received::Request(request) = &first else { return Some(Some(first)) };
    let limit = channel.http.options().max_headers;
    let Ok(Some(headers)) = opening_headers(request, limit) else { return Some(Some(first)) };
    for (name, value) in headers {
        if let Some(name) = name.filter(|name| !is_of_one_request(name)) {
            // The connection has few headers of its own, so there is room for these.
            let _ = channel.headers.try_insert(name, value);
        }
    }
    let checked = channel.check().await;
    let payload = match &checked {
        Ok(()) => br#"{"jsonrpc":"2.0","id":null,"result":{}}"#.to_vec(),
        Err(error) => attache_protocol::jsonrpc::error_response(&Id::NULL, error),
    };
    frames.send(Frame::new(payload, FrameKind::Response)).await.ok()?;
    checked.ok().map(|()| None)
}

/// The headers in a message that has nothing else: it is no request, but says who the caller is.
fn opening_headers(message: &[u8], limit: usize) -> Result<Option<HeaderMap>, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Only {
        #[serde(rename = "headers")]
        _headers: IgnoredAny,
    }
    match serde_json::from_slice::<Only>(message) {
        Ok(_) => own_headers(message, limit),
        Err(_) => Ok(None),
    }
}

/// A frame as a message.
fn encode(frame: Frame) -> Message {
    let is_last = frame.is_last();
    let mut text = Vec::with_capacity(frame.payload.len() + 64);
    for piece in [br#"{"id":"#, &*frame.id(), br#","payload":"#, &frame.payload, br#","final":"#] {
        text.extend_from_slice(piece);
    }
    text.extend_from_slice(if is_last { b"true}" } else { b"false}" });
    // A payload is JSON, which is UTF-8. A text message would be checked for that again.
    Message::Frame(WsFrame::message(text, OpCode::Data(Data::Text), true))
}

/// Writes messages until there are no more, or the client does not accept them. Messages that wait together are written together.
async fn write<S>(
    mut sink: SplitSink<WebSocketStream<S>, Message>,
    mut unwritten: mpsc::Receiver<Unwritten<Message>>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Unwritten { frame: message, .. }) = unwritten.recv().await {
        if sink.feed(message).await.is_err() {
            return;
        }
        while let Ok(Unwritten { frame: message, .. }) = unwritten.try_recv() {
            if sink.feed(message).await.is_err() {
                return;
            }
        }
        if sink.flush().await.is_err() {
            return;
        }
    }
    let _ = sink.close().await;
}

/// What has arrived on a connection.
struct Arrivals {
    began: Instant,
    /// All bytes, and those of complete messages.
    bytes: AtomicU64,
    complete: AtomicU64,
    /// When a message was last complete, in milliseconds since `began`.
    last: AtomicU64,
    /// Since when much of a message is incomplete; 0 if that is not so.
    partial_since: AtomicU64,
}

impl Arrivals {
    fn new() -> Self {
        let [bytes, complete, last, partial_since] = [const { AtomicU64::new(0) }; 4];
        Self { began: Instant::now(), bytes, complete, last, partial_since }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records that a message is complete. `control` is the length of a control message, which can stand between parts of another one.
    fn message(&self, control: Option<usize>) {
        self.last.store(self.now(), Ordering::Relaxed);
        match control {
            Some(length) => {
                self.complete.fetch_add(CONTROL_HEADER + length as u64, Ordering::Relaxed);
            }
            None => self.complete.store(self.bytes.load(Ordering::Relaxed), Ordering::Relaxed),
        }
    }

    /// How long nothing was complete.
    fn silence(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.last.load(Ordering::Relaxed)))
    }

    /// Whether much of a message has waited for the rest for longer than `timeout`. Must be called again and again.
    fn is_slow(&self, timeout: Duration) -> bool {
        let waiting =
            self.bytes.load(Ordering::Relaxed).saturating_sub(self.complete.load(Ordering::Relaxed));
        let since = self.partial_since.load(Ordering::Relaxed);
        if waiting <= PARTIAL {
            self.partial_since.store(0, Ordering::Relaxed);
        } else if since == 0 {
            self.partial_since.store(self.now().max(1), Ordering::Relaxed);
        } else {
            return self.now().saturating_sub(since) > u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offering(protocols: &'static str) -> Result<(HeaderMap, bool), String> {
        let mut opening = HeaderMap::new();
        for (name, value) in [
            ("sec-websocket-protocol", protocols),
            ("sec-websocket-key", "x"),
            ("connection", "upgrade"),
            ("last-event-id", "7"),
            ("a2a-version", "1.0"),
        ] {
            opening.insert(name, HeaderValue::from_static(value));
        }
        connection_headers(&opening)
    }

    #[test]
    fn a_browser_gives_headers_in_the_names_of_subprotocols() {
        let offered = "a2a, a2a.header.authorization.QmVhcmVyIHQwa2Vu, a2a.header.idempotency-key.aw";
        let (headers, offered) = offering(offered).unwrap();
        assert!(offered);
        assert_eq!(headers["authorization"], "Bearer t0ken");
        assert_eq!(
            headers.len(),
            2,
            "headers about the connection or one request are not those of all: {headers:?}"
        );
        assert!(!offering("other").unwrap().1);
        for wrong in ["a2a.header.x", "a2a.header.a b.QQ", "a2a.header.x.!!", "a2a.header.x.Cg"] {
            assert!(offering(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_message_with_headers_alone_is_no_request() {
        assert!(opening_headers(br#"{"headers": {"a": "b"}}"#, 100).unwrap().is_some());
        assert!(opening_headers(br#"{"headers": {"a": "b"}, "method": "c"}"#, 100).unwrap().is_none());
        assert!(opening_headers(b"{}", 100).unwrap().is_none());
        assert!(opening_headers(b"[", 100).unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_never_complete_is_noticed_also_if_pongs_arrive() {
        let (arrived, second) = (Arrivals::new(), Duration::from_secs(1));
        arrived.bytes.fetch_add(PARTIAL + 1, Ordering::Relaxed);
        assert!(!arrived.is_slow(second));
        tokio::time::advance(2 * second).await;
        arrived.bytes.fetch_add(CONTROL_HEADER, Ordering::Relaxed);
        arrived.message(Some(0));
        assert!(arrived.is_slow(second));
        arrived.message(None);
        assert!(!arrived.is_slow(second));
    }
}
