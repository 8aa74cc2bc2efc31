//! The port that workers connect to: who is let in, and to what.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{
    AUTHORIZATION, CONNECTION, HeaderName, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::channels::Joined;
use super::{Engine, EngineError, Shared, channel_socket, connection};
use crate::wire::{self, Direction};

/// How long a connection may take to become a WebSocket.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long the other side may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// How long a connection is silent before it is asked whether the other machine is still there.
const PROBE: Duration = Duration::from_secs(20);

/// The largest message of a channel. SDKs cut what they write into pieces of 64 KiB.
const MAX_CHANNEL_MESSAGE: usize = 4 * 1024 * 1024;

pub(super) type Socket = WebSocketStream<TcpStream>;

/// An engine that has its port and waits to be run.
pub struct EngineListening {
    listener: TcpListener,
    engine: Engine,
    address: SocketAddr,
}

impl EngineListening {
    pub(super) async fn bind(engine: Engine) -> Result<Self, EngineError> {
        let options = &engine.shared().options;
        let address = options.listen.clone();
        let resolved: Vec<SocketAddr> = tokio::net::lookup_host(&address)
            .await
            .map_err(|_| EngineError::Address(address.clone()))?
            .collect();
        if options.token.is_none() && resolved.iter().any(|address| !address.ip().is_loopback()) {
            return Err(EngineError::Open(address));
        }
        let taken = |error| EngineError::Taken { address: address.clone(), error };
        let listener = TcpListener::bind(&*resolved).await.map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        Ok(Self { listener, engine, address })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets workers in until `stop` is done, then fails what they were working on and hangs up.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let Self { listener, engine, address: _ } = self;
        let shared = engine.shared();
        let places = Arc::new(Semaphore::new(shared.options.limits.connections));
        let mut stop = std::pin::pin!(stop);
        // Whoever gives up waiting for this stops it as well.
        let _stopping = shared.stopping.clone().drop_guard();
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = accept(&listener, &places) => {
                    if let Some((socket, address, place)) = accepted {
                        shared.tasks.spawn(serve(shared.clone(), socket, address, place));
                    }
                }
            }
        }
        drop(listener);
        shared.stopping.cancel();
        shared.tasks.close();
        if tokio::time::timeout(Duration::from_secs(5), shared.tasks.wait()).await.is_err() {
            tracing::warn!("some workers did not hang up in time");
        }
    }
}

/// The next connection, as soon as there is a place for it. Nothing when accepting failed, which passes.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((socket, address)) => {
            // Calls are small and must not wait for each other. A machine that is gone without a word must not keep its functions.
            let probing = TcpKeepalive::new().with_time(PROBE).with_interval(PROBE).with_retries(3);
            let set = socket.set_nodelay(true);
            if let Err(error) = set.and_then(|()| SockRef::from(&socket).set_tcp_keepalive(&probing)) {
                tracing::debug!(%error, "a socket vanished before it was used");
            }
            Some((socket, address, place))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            // Out of file descriptors, most likely: give others the time to close theirs.
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

/// What a connection came for.
enum Purpose {
    Worker,
    Telemetry,
    Channel(Joined),
}

async fn serve(shared: Arc<Shared>, socket: TcpStream, address: SocketAddr, place: OwnedSemaphorePermit) {
    let admitted: Mutex<Option<(Purpose, OnUpgrade)>> = Mutex::new(None);
    let service = service_fn(|mut request| {
        let response = match admit(&shared, &request) {
            Ok((purpose, response)) => {
                *admitted.lock() = Some((purpose, hyper::upgrade::on(&mut request)));
                response
            }
            Err(refusal) => *refusal,
        };
        async move { Ok::<_, Infallible>(response) }
    });
    let handshake = http1::Builder::new()
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    tokio::select! {
        () = shared.stopping.cancelled() => return,
        done = tokio::time::timeout(HANDSHAKE, handshake) => if !matches!(done, Ok(Ok(()))) {
            return;
        },
    }
    let Some((purpose, upgrade)) = admitted.lock().take() else { return };
    let Ok(upgraded) = upgrade.await else { return };
    let Ok(parts) = upgraded.downcast::<TokioIo<TcpStream>>() else { return };
    let max = match purpose {
        Purpose::Worker | Purpose::Telemetry => wire::MAX_MESSAGE,
        Purpose::Channel(_) => MAX_CHANNEL_MESSAGE,
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(32 * 1024)
        .write_buffer_size(64 * 1024)
        .max_message_size(Some(max))
        .max_frame_size(Some(max));
    let read = parts.read_buf.to_vec();
    let socket = Socket::from_partially_read(parts.io.into_inner(), read, Role::Server, Some(config)).await;
    match purpose {
        Purpose::Worker => connection::serve(shared, socket, address).await,
        Purpose::Telemetry => discard(&shared, socket).await,
        Purpose::Channel(joined) => {
            tokio::select! {
                () = channel_socket::serve(socket, joined) => {}
                () = shared.stopping.cancelled() => {}
            }
        }
    }
    drop(place);
}

type Answer = Response<Full<Bytes>>;

/// Decides what a request gets: an upgrade for its purpose, or a refusal.
fn admit<B>(shared: &Shared, request: &Request<B>) -> Result<(Purpose, Answer), Box<Answer>> {
    let path = request.uri().path();
    let query = |name: &str| {
        let pairs = url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
        pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let headers = request.headers();
    let channel = path.strip_prefix("/ws/channels/");
    // Who knows the key of a channel may use it: SDKs show nothing else there.
    if channel.is_none() {
        match &shared.options.token {
            Some(token) => {
                let shown = bearer(headers).or_else(|| query("token"));
                if !shown.is_some_and(|shown| token.matches(&shown)) {
                    let mut refusal = refuse(StatusCode::UNAUTHORIZED, "a token is needed to connect");
                    refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                    return Err(refusal);
                }
            }
            None if !is_from_here(headers) => {
                return Err(refuse(
                    StatusCode::FORBIDDEN,
                    "pages of other sites cannot connect without a token",
                ));
            }
            None => {}
        }
    }
    let purpose = match (path, channel) {
        ("/", _) => Purpose::Worker,
        ("/otel", _) => Purpose::Telemetry,
        (_, Some(id)) => {
            is_upgrade(headers)?;
            let direction = match query("dir").as_deref() {
                Some("read") => Some(Direction::Read),
                Some("write") => Some(Direction::Write),
                Some(_) | None => None,
            };
            let key = query("key").unwrap_or_default();
            let joined = direction.and_then(|direction| shared.channels.join(id, &key, direction));
            Purpose::Channel(joined.ok_or_else(|| refuse(StatusCode::NOT_FOUND, "Channel not found"))?)
        }
        (_, None) => return Err(refuse(StatusCode::NOT_FOUND, "Not Found")),
    };
    let accept = is_upgrade(headers)?;
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    headers.insert(HeaderName::from_static("x-iii-capabilities"), HeaderValue::from_static("tcp-nodelay"));
    Ok((purpose, response))
}

/// The proof that a request for a WebSocket was understood.
fn is_upgrade(headers: &HeaderMap) -> Result<HeaderValue, Box<Answer>> {
    let wanted =
        headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| wanted);
    let accept = key.and_then(|key| HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok());
    accept.ok_or_else(|| {
        let mut refusal = refuse(StatusCode::UPGRADE_REQUIRED, "workers connect here, with a WebSocket");
        refusal.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        refusal
    })
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

/// Whether a request is no page's, or a page's of this machine: browsers let every page connect to this machine, and say so.
fn is_from_here(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let host = origin.to_str().ok().and_then(|origin| url::Url::parse(origin).ok());
    host.is_some_and(|url| match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(url::Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    })
}

fn refuse(status: StatusCode, text: &'static str) -> Box<Answer> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Box::new(response)
}

/// Takes telemetry and does nothing with it.
async fn discard(shared: &Shared, mut socket: Socket) {
    loop {
        tokio::select! {
            () = shared.stopping.cancelled() => break,
            message = socket.next() => if !matches!(message, Some(Ok(_))) {
                break;
            },
        }
    }
    hang_up(socket).await;
}

/// Closes a socket: says goodbye, and waits a little for the other side to say it too.
pub(super) async fn hang_up(socket: Socket) {
    close(socket, None).await;
}

/// Closes the socket of a worker so that it comes back. Some SDKs take a connection that was closed without complaint for one that
/// is no longer wanted, and never connect again.
pub(super) async fn interrupt(socket: Socket) {
    let why = CloseFrame { code: CloseCode::Restart, reason: Utf8Bytes::from_static("the engine goes away") };
    close(socket, Some(why)).await;
}

async fn close(mut socket: Socket, why: Option<CloseFrame>) {
    let goodbye = async {
        if socket.close(why).await.is_ok() {
            while let Some(Ok(_)) = socket.next().await {}
        }
    };
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
}
