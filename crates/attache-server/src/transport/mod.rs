//! Accepts connections, serves them, and stops without cutting off running requests.

pub(crate) mod descriptors;
pub(crate) mod exchange;
pub(crate) mod idle;
mod lines;
mod listener;
mod multiplex;
mod outgoing;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod socket;
pub(crate) mod stdio;
#[cfg(unix)]
mod unix;
pub(crate) mod websocket;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::Request;
use http::header::UPGRADE;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use self::descriptors::Budget;
use self::idle::{Busy, Connections, Member};
pub(crate) use self::listener::Listener;
pub use self::listener::LocalAddress;
use self::listener::{Connection, Listeners};
use self::socket::Socket;
use self::stdio::Pipe;
use self::websocket::Upgradable;
use crate::{ClientCertificate, HttpService, Peer, ServerOptions, Tls};

/// A server that has bound its addresses and is ready to run.
pub struct Listening {
    pub(crate) listeners: Vec<Listener>,
    /// A client that is connected already, and that the server ends with.
    pub(crate) pipe: Option<Pipe>,
    pub(crate) http: HttpService,
    pub(crate) tls: Option<Tls>,
    #[cfg(feature = "redis")]
    pub(crate) redis: Option<redis::Running>,
}

impl Listening {
    /// The first address that the server listens on.
    pub fn local_address(&self) -> io::Result<LocalAddress> {
        self.local_addresses()?
            .into_iter()
            .next()
            .ok_or_else(|| io::Error::new(ErrorKind::AddrNotAvailable, "the server listens on no address"))
    }

    /// All addresses that the server listens on, in the order in which they were bound.
    pub fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        self.listeners.iter().map(Listener::local_address).collect()
    }

    /// The first TCP address that the server listens on. A server that listens on Unix sockets alone has none.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let addresses = self.local_addresses()?.into_iter().filter_map(|address| match address {
            LocalAddress::Tcp(address) => Some(address),
            LocalAddress::Unix(_) => None,
        });
        addresses.into_iter().next().ok_or_else(|| {
            io::Error::new(ErrorKind::AddrNotAvailable, "the server listens on no TCP address")
        })
    }

    /// The HTTP service, for requests that arrive in another way.
    pub fn http_service(&self) -> HttpService {
        self.http.clone()
    }

    /// Serves until the process receives a signal to stop (interrupt or termination).
    pub async fn run(self) -> io::Result<()> {
        self.run_until(stop_signal()).await
    }

    /// Serves until `stop` completes, or until the client on standard input and output has ended, where there is one. Then it lets
    /// running turns and open streams finish.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        #[cfg(feature = "redis")]
        let redis = self.redis;
        let Self { listeners, pipe, http, tls, .. } = self;
        let has_pipe = pipe.is_some();
        let options: ServerOptions = http.options().clone();
        let builder = builder(&options);
        let budget = Budget::now(options.max_connections);
        budget.log();
        let connections = Connections::new(budget.connections, options.header_timeout);
        let mut accepting = Accepting {
            listeners: Listeners::new(listeners),
            connections: connections.clone(),
            warned: None,
        };
        let mut ticks = tokio::time::interval(connections.tick());
        let mut stop = pin!(stop);
        let mut pipe = pin!(async {
            match pipe {
                // Spawned, so that its requests do not wait for connections that are accepted.
                Some(pipe) => drop(
                    AbortOnDropHandle::new(tokio::spawn(pipe.serve(http.clone(), connections.clone()))).await,
                ),
                None => std::future::pending().await,
            }
        });
        let mut pipe_is_open = true;
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                () = &mut pipe => {
                    pipe_is_open = false;
                    break;
                }
                _ = ticks.tick() => {
                    connections.sweep();
                    continue;
                }
                accepted = accepting.accept() => accepted,
            };
            let server = (builder.clone(), http.clone());
            match accepted {
                None => {}
                Some(Connection::Tcp(socket, address)) => {
                    let Ok(member) = connections.join(http.connection_limit(address.ip())) else {
                        http.deny_connection(address.ip());
                        continue;
                    };
                    let peer = Peer { address: Some(address), ..Peer::default() };
                    tokio::spawn(serve_tcp(tls.clone(), socket, peer, server, member));
                }
                #[cfg(unix)]
                Some(Connection::Unix(socket)) => {
                    let Ok(member) = connections.join(None) else { continue };
                    tokio::spawn(unix::serve(socket, server, member));
                }
            }
        }
        drop(accepting);
        #[cfg(feature = "redis")]
        if let Some(redis) = &redis {
            redis.stop_reading();
        }
        http.shutdown().await;
        #[cfg(feature = "redis")]
        if let Some(redis) = redis {
            redis.finish(options.drain).await;
        }
        connections.close();
        let gone = async {
            connections.gone().await;
            if pipe_is_open && has_pipe {
                pipe.await;
            }
        };
        if tokio::time::timeout(options.drain, gone).await.is_err() {
            tracing::warn!("some connections did not close in time");
        }
        Ok(())
    }
}

/// Serves a TCP connection, with TLS if the server has a certificate. A client that takes longer for the handshake than it may take
/// for headers is disconnected.
async fn serve_tcp(
    tls: Option<Tls>,
    socket: TcpStream,
    peer: Peer,
    server: (auto::Builder<TokioExecutor>, HttpService),
    member: Member,
) {
    if !has_first_byte(&socket, server.1.first_byte_timeout(), &member).await {
        return;
    }
    let socket = Socket::new(socket, member.activity());
    let Some(tls) = tls else { return serve_http(socket, peer, server, member).await };
    let handshake = tokio::select! {
        handshake = tls.accept(socket) => handshake,
        () = member.closing() => return,
    };
    match handshake {
        Ok(stream) => {
            let presented = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let certificate = presented.and_then(|der| ClientCertificate::read(der)).map(Arc::new);
            serve_http(stream, Peer { certificate, ..peer }, server, member).await;
        }
        Err(error) => tracing::debug!(%error, "TLS handshake failed"),
    }
}

/// Serves HTTP on one connection until it ends, is idle for too long, or the server stops.
async fn serve_http<S>(
    socket: S,
    peer: Peer,
    (builder, http): (auto::Builder<TokioExecutor>, HttpService),
    member: Member,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let member = Arc::new(member);
    let (activity, upgradable) = (member.activity(), Upgradable(member.clone()));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (http, peer, busy) = (http.clone(), peer.clone(), Busy::new(&activity));
        let activity = activity.clone();
        // A WebSocket connection counts as a connection until it ends.
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(upgradable.clone());
        }
        // A spare connection is for one request.
        if activity.is_spare() {
            activity.close();
        }
        async move {
            // Boxed, so that an idle connection does not keep the memory of a request.
            let response = Box::pin(http.handle_from(peer, activity, request)).await;
            if response.body().is_whole() {
                yield_once().await;
            }
            Ok::<_, Infallible>(response.map(|body| body.until_written(busy)))
        }
    });
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(socket), service));
    let mut shutting_down = false;
    let ended = loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => break ended,
            // A connection with an incomplete head is not idle for hyper. It is closed when it is asked for the second time.
            () = member.closing() => match std::mem::replace(&mut shutting_down, true) {
                _ if member.is_evicted() => break Ok(()),
                true if member.is_idle() => break Ok(()),
                true => {}
                false => connection.as_mut().graceful_shutdown(),
            },
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
    // If it has become a WebSocket connection, that has to close too.
    if shutting_down {
        member.activity().close();
    }
}

/// Yields to the runtime once, so that other ready tasks run first.
///
/// Under load, requests are then processed one after the other, and all their responses are written after that. Each request finds
/// the code that it needs in the processor's caches, and a client that was woken by one response need not be woken for the next.
/// See decision 22 for the measurements.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        // `tokio::task::yield_now` polls all sockets before it comes back.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for the first byte of a connection. Returns false if it does not arrive in time.
async fn has_first_byte(socket: &TcpStream, timeout: Duration, member: &Member) -> bool {
    // Created lazily: the first byte of most connections is there at once, and a timer costs more than that.
    let late = async { tokio::time::sleep(timeout).await };
    let mut first = [0];
    tokio::select! {
        biased;
        // Peeked, because a socket can be readable without a byte.
        peeked = socket.peek(&mut first) => peeked.is_ok_and(|count| count > 0),
        () = late => false,
        () = member.closing() => false,
    }
}

/// Accepts connections. It never waits for clients: when there are too many connections, it closes others.
struct Accepting {
    listeners: Listeners,
    connections: Connections,
    /// When it was last logged that accepting failed.
    warned: Option<Instant>,
}

/// The longest pause after a failed accept, so that the loop does not spin.
const PAUSE: Duration = Duration::from_millis(50);

/// How often a failed accept is logged.
const WARN_EVERY: Duration = Duration::from_secs(10);

impl Accepting {
    /// The next connection. `None` after a failure that is temporary.
    async fn accept(&mut self) -> Option<Connection> {
        self.connections.accepting().await;
        match self.listeners.accept().await {
            Ok(connection) => Some(connection),
            // The client disconnected before it was accepted.
            Err(error)
                if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) =>
            {
                None
            }
            Err(error) => {
                if self.warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
                    self.warned = Some(Instant::now());
                    tracing::warn!(%error, "a connection could not be accepted");
                }
                // Another part of the process has used the reserve: the store, or an agent.
                match descriptors::are_used_up(&error) {
                    // If no descriptor was released, the next attempt fails again.
                    true => drop(tokio::time::timeout(PAUSE, self.connections.give_way()).await),
                    false => tokio::time::sleep(PAUSE).await,
                }
                None
            }
        }
    }
}

fn builder(options: &ServerOptions) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // HTTP/1 gets no timer: one per request would cost more than the request. The module `idle` closes idle connections.
    // Pipelined responses are not aggregated: a stream would wait for the end of the next request, and an error response to a
    // request that is not read to its end would never be sent.
    builder.http1().max_buf_size(options.max_headers.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(options.max_headers).unwrap_or(u32::MAX))
        .max_concurrent_streams(options.streams_per_connection())
        .keep_alive_interval(options.header_timeout)
        .keep_alive_timeout(options.header_timeout);
    builder
}

/// Waits for a signal to stop: interrupt or termination. Systems without signals have the interrupt only.
pub async fn stop_signal() {
    let interrupt = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    let terminate = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<()>();
    tokio::select! {
        () = interrupt => {}
        () = terminate => {}
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::Limits;

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_until_its_timeout_for_its_first_byte() {
        let timeout = Limits::default().first_byte_timeout;
        let connections = Connections::new(10, Duration::from_secs(60));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut client, (socket, _)) = (client.unwrap(), accepted.unwrap());
        let member = connections.join(None).unwrap();
        let began = Instant::now();
        assert!(!has_first_byte(&socket, timeout, &member).await);
        assert_eq!(began.elapsed().as_millis(), timeout.as_millis());
        let late = async {
            tokio::time::sleep(timeout - Duration::from_millis(1)).await;
            client.write_all(b"x").await.unwrap();
        };
        let (in_time, ()) = tokio::join!(has_first_byte(&socket, timeout, &member), late);
        assert!(in_time);
    }

    #[tokio::test]
    async fn responses_are_written_after_all_ready_requests_were_processed() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let requests = ["first", "second", "third"].map(|name| {
            let order = order.clone();
            tokio::spawn(async move {
                order.lock().push(format!("{name} processed"));
                yield_once().await;
                order.lock().push(format!("{name} written"));
            })
        });
        for request in requests {
            request.await.unwrap();
        }
        let processed = ["first processed", "second processed", "third processed"];
        let written = ["first written", "second written", "third written"];
        assert_eq!(*order.lock(), [processed, written].concat());
    }
}
