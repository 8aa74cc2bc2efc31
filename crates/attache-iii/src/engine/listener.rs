//! The port that workers connect to: authentication, and the WebSocket upgrade.

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

/// How long the upgrade of a connection may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the other side may take to close a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a worker may take to close a channel that it writes to.
const CHANNEL_CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// After this silence, TCP keep-alive probes check whether the other machine is still there.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// The largest message of a channel, in bytes. SDKs write pieces of 64 KiB.
const MAX_CHANNEL_MESSAGE: usize = 4 * 1024 * 1024;

pub(super) type Socket = WebSocketStream<TcpStream>;

/// An engine that has bound its port.
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
        let bind_error = |error| EngineError::Taken { address: address.clone(), error };
        let listener = TcpListener::bind(&*resolved).await.map_err(bind_error)?;
        let address = listener.local_addr().map_err(bind_error)?;
        Ok(Self { listener, engine, address })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves workers until `stop` completes. Then their calls fail, and all connections are closed.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let Self { listener, engine, address: _ } = self;
        let shared = engine.shared();
        let permits = Arc::new(Semaphore::new(shared.options.limits.connections));
        let mut stop = std::pin::pin!(stop);
        // Dropping this future also stops the engine.
        let _stopping = shared.stopping.clone().drop_guard();
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = accept(&listener, &permits) => {
                    if let Some((socket, address, permit)) = accepted {
                        shared.tasks.spawn(serve(shared.clone(), socket, address, permit));
                    }
                }
            }
        }
        drop(listener);
        shared.stopping.cancel();
        shared.tasks.close();
        if tokio::time::timeout(Duration::from_secs(5), shared.tasks.wait()).await.is_err() {
            tracing::warn!("some workers did not close their connection in time");
        }
    }
}

/// Accepts the next connection, as soon as there is a permit for it. Returns `None` if accepting failed; the caller retries.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((socket, address)) => {
            // Calls are small and must not be delayed. A machine that vanished must not keep its functions.
            let probing = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(3);
            let set = socket.set_nodelay(true);
            if let Err(error) = set.and_then(|()| SockRef::from(&socket).set_tcp_keepalive(&probing)) {
                tracing::debug!(%error, "cannot set the options of a socket");
            }
            Some((socket, address, permit))
        }
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            // The process is probably out of file descriptors. Wait until other connections close.
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

/// What a connection is for.
enum Purpose {
    Worker,
    Telemetry,
    Channel(Joined),
}

async fn serve(shared: Arc<Shared>, socket: TcpStream, address: SocketAddr, permit: OwnedSemaphorePermit) {
    let accepted_upgrade: Mutex<Option<(Purpose, OnUpgrade)>> = Mutex::new(None);
    let service = service_fn(|mut request| {
        let response = match accept_upgrade(&shared, &request) {
            Ok((purpose, response)) => {
                *accepted_upgrade.lock() = Some((purpose, hyper::upgrade::on(&mut request)));
                response
            }
            Err(rejection) => *rejection,
        };
        async move { Ok::<_, Infallible>(response) }
    });
    let handshake = http1::Builder::new()
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    tokio::select! {
        () = shared.stopping.cancelled() => return,
        done = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake) => if !matches!(done, Ok(Ok(()))) {
            return;
        },
    }
    let Some((purpose, upgrade)) = accepted_upgrade.lock().take() else { return };
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
    drop(permit);
}

type HttpResponse = Response<Full<Bytes>>;

/// Authenticates a request and returns the upgrade for its purpose, or the rejection.
fn accept_upgrade<B>(
    shared: &Shared,
    request: &Request<B>,
) -> Result<(Purpose, HttpResponse), Box<HttpResponse>> {
    let path = request.uri().path();
    let query = |name: &str| {
        let pairs = url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
        pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let headers = request.headers();
    let channel = path.strip_prefix("/ws/channels/");
    // The key of a channel is enough to use it. SDKs send nothing else there.
    if channel.is_none() {
        match &shared.options.token {
            Some(token) => {
                let token_sent = bearer(headers).or_else(|| query("token"));
                if !token_sent.is_some_and(|token_sent| token.matches(&token_sent)) {
                    let mut rejection = reject(StatusCode::UNAUTHORIZED, "a token is required to connect");
                    rejection.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                    return Err(rejection);
                }
            }
            None if !is_local_origin(headers) => {
                return Err(reject(
                    StatusCode::FORBIDDEN,
                    "web pages of other origins cannot connect without a token",
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
            Purpose::Channel(joined.ok_or_else(|| reject(StatusCode::NOT_FOUND, "Channel not found"))?)
        }
        (_, None) => return Err(reject(StatusCode::NOT_FOUND, "Not Found")),
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

/// The `Sec-WebSocket-Accept` value for an upgrade request.
fn is_upgrade(headers: &HeaderMap) -> Result<HeaderValue, Box<HttpResponse>> {
    let wanted =
        headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| wanted);
    let accept = key.and_then(|key| HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok());
    accept.ok_or_else(|| {
        let mut rejection =
            reject(StatusCode::UPGRADE_REQUIRED, "expected a WebSocket upgrade: workers connect here");
        rejection.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        rejection
    })
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

/// Whether the request comes from a program, or from a web page of this machine. Browsers let every page connect to this machine,
/// and send its origin.
fn is_local_origin(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let host = origin.to_str().ok().and_then(|origin| url::Url::parse(origin).ok());
    host.is_some_and(|url| match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(url::Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    })
}

fn reject(status: StatusCode, text: &'static str) -> Box<HttpResponse> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Box::new(response)
}

/// Reads telemetry and drops it.
async fn discard(shared: &Shared, mut socket: Socket) {
    loop {
        tokio::select! {
            () = shared.stopping.cancelled() => break,
            message = socket.next() => if !matches!(message, Some(Ok(_))) {
                break;
            },
        }
    }
    close(socket).await;
}

/// Closes a socket, and waits a short time until the other side closes it too.
pub(super) async fn close(socket: Socket) {
    close_with(socket, None, CLOSE_TIMEOUT).await;
}

/// Closes the socket of a channel. A writer that is still writing gets more time to notice it: if the connection breaks while it
/// writes, workers of the SDK for Node crash.
pub(super) async fn close_channel(socket: Socket) {
    close_with(socket, None, CHANNEL_CLOSE_TIMEOUT).await;
}

/// Closes the socket of a worker so that the worker reconnects. After a normal close some SDKs never connect again.
pub(super) async fn close_for_restart(socket: Socket) {
    let why =
        CloseFrame { code: CloseCode::Restart, reason: Utf8Bytes::from_static("the engine is stopping") };
    close_with(socket, Some(why), CLOSE_TIMEOUT).await;
}

async fn close_with(mut socket: Socket, why: Option<CloseFrame>, limit: Duration) {
    let closing = async {
        if socket.close(why).await.is_ok() {
            while let Some(Ok(_)) = socket.next().await {}
        }
    };
    let _ = tokio::time::timeout(limit, closing).await;
}
