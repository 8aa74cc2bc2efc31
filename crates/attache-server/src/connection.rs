//! Accepting connections, serving them, and stopping without cutting anyone off.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::descriptors::{self, Budget};
use crate::idle::{Busy, Connections, Member};
use crate::socket::Socket;
use crate::{ClientCertificate, Peer, ServerOptions, Surface, Tls};

/// A server that has its port and waits to be run.
pub struct Listening {
    pub(crate) listener: TcpListener,
    pub(crate) surface: Surface,
    pub(crate) tls: Option<Tls>,
}

impl Listening {
    /// The address that it listens on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What it answers with, for those who have requests that come another way.
    pub fn surface(&self) -> Surface {
        self.surface.clone()
    }

    /// Serves until the process is told to stop (interrupt or termination signal).
    pub async fn run(self) -> std::io::Result<()> {
        self.run_until(stop_signal()).await
    }

    /// Serves until `stop` is done, then lets running turns and open streams finish.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> std::io::Result<()> {
        let Self { listener, surface, tls } = self;
        let options: ServerOptions = surface.options().clone();
        let builder = builder(&options);
        let budget = Budget::now(options.max_connections);
        budget.log();
        let connections = Connections::new(budget.connections, options.header_timeout);
        let mut accepting = Accepting { listener, connections: connections.clone(), warned: None };
        let mut ticks = tokio::time::interval(connections.tick());
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                _ = ticks.tick() => {
                    connections.sweep();
                    continue;
                }
                accepted = accepting.accept() => accepted,
            };
            let Some((socket, address)) = accepted else { continue };
            let Ok(member) = connections.join(surface.connection_limit(address.ip())) else {
                surface.deny_connection(address.ip());
                continue;
            };
            let peer = Peer { address: Some(address), certificate: None };
            let server = (builder.clone(), surface.clone());
            tokio::spawn(begin(tls.clone(), socket, peer, server, member));
        }
        drop(accepting);
        surface.shutdown().await;
        connections.close();
        if tokio::time::timeout(options.drain, connections.gone()).await.is_err() {
            tracing::warn!("some connections did not close in time");
        }
        Ok(())
    }
}

/// Begins a connection, with TLS if there is to be, and serves it then. Whoever takes as long about TLS as they may take to send
/// headers is hung up on.
async fn begin(
    tls: Option<Tls>,
    socket: TcpStream,
    peer: Peer,
    server: (auto::Builder<TokioExecutor>, Surface),
    member: Member,
) {
    if !begins(&socket, server.1.first_byte_timeout(), &member).await {
        return;
    }
    let socket = Socket::new(socket, member.activity());
    let Some(tls) = tls else { return serve(socket, peer, server, member).await };
    let begun = tokio::select! {
        begun = tls.accept(socket) => begun,
        () = member.closing() => return,
    };
    match begun {
        Ok(stream) => {
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let certificate = shown.and_then(|shown| ClientCertificate::read(shown)).map(Arc::new);
            serve(stream, Peer { certificate, ..peer }, server, member).await;
        }
        Err(error) => tracing::debug!(%error, "a connection did not come to TLS"),
    }
}

/// Serves one connection until it ends, is idle for too long, or the server stops.
async fn serve<S>(
    socket: S,
    peer: Peer,
    (builder, surface): (auto::Builder<TokioExecutor>, Surface),
    member: Member,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let activity = member.activity();
    let service = service_fn(move |request: Request<Incoming>| {
        let (surface, peer, busy) = (surface.clone(), peer.clone(), Busy::new(&activity));
        let activity = activity.clone();
        // A spare connection is for one request.
        if activity.is_spare() {
            activity.close();
        }
        async move {
            // Boxed, so that an idle connection does not keep the memory of a request.
            let response = Box::pin(surface.handle_from(peer, activity, request)).await;
            if response.body().is_whole() {
                yield_once().await;
            }
            Ok::<_, Infallible>(response.map(|body| body.until_written(busy)))
        }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service));
    let mut asked = false;
    let ended = loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => break ended,
            // Half a head is not idle to hyper: whoever has not closed when asked again is hung up on.
            () = member.closing() => match std::mem::replace(&mut asked, true) {
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

/// Waits for the first byte of a connection; false if it does not come in time.
async fn begins(socket: &TcpStream, timeout: Duration, member: &Member) -> bool {
    // Most come with their connection: no timer is set up for those.
    let late = async { tokio::time::sleep(timeout).await };
    let mut first = [0];
    tokio::select! {
        biased;
        // A look at the byte itself: that a socket can be read from is said without one, too.
        peeked = socket.peek(&mut first) => peeked.is_ok_and(|count| count > 0),
        () = late => false,
        () = member.closing() => false,
    }
}

/// Accepts connections. It never waits for clients: where there are too many connections, others are closed.
struct Accepting {
    listener: TcpListener,
    connections: Connections,
    /// When it was last logged that accepting failed.
    warned: Option<Instant>,
}

/// How long accepting waits after it has failed, at most, so that it does not spin.
const PAUSE: Duration = Duration::from_millis(50);

/// How often it is logged that accepting fails.
const WARN_EVERY: Duration = Duration::from_secs(10);

impl Accepting {
    /// The next connection. Nothing when accepting failed, which passes.
    async fn accept(&mut self) -> Option<(TcpStream, SocketAddr)> {
        self.connections.accepting().await;
        match self.listener.accept().await {
            Ok((socket, address)) => {
                // Events are small and must not wait for each other.
                if let Err(error) = socket.set_nodelay(true) {
                    tracing::debug!(%error, "a socket vanished before it was used");
                }
                Some((socket, address))
            }
            // The client has gone before it was accepted.
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
                // Something else in the process has used the reserve: the store, or what an agent has opened.
                match descriptors::are_used_up(&error) {
                    // Either there is a descriptor now, or it is tried again without one.
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
    // HTTP/1 gets no timer: one per request would cost more than the request, and idle connections are closed by `idle`.
    // Nor does it gather the answers to requests sent ahead: a stream would wait for the next request's end, and a refusal of one
    // that is not read to its end would never leave.
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

/// Waits until the process is told to stop (interrupt or termination signal).
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

    use super::*;

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
