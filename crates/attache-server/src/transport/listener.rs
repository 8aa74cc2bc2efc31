//! What a server listens on: TCP addresses and Unix sockets, several at the same time.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::task::{Context, Poll, ready};

use tokio::net::{TcpListener, TcpStream};

#[cfg(unix)]
use super::unix;

/// An address that a server listens on.
pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(unix::UnixSocket),
}

/// A new connection, and the address that it comes from.
pub(super) enum Connection {
    Tcp(TcpStream, SocketAddr),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

/// An address that a server listens on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Listener {
    /// Binds `HOST:PORT` or `unix:PATH`.
    pub(crate) async fn bind(address: &str) -> io::Result<Self> {
        match address.strip_prefix("unix:") {
            None => TcpListener::bind(address).await.map(Self::Tcp),
            #[cfg(unix)]
            Some(path) => unix::UnixSocket::bind(path.as_ref()).map(Self::Unix),
            #[cfg(not(unix))]
            Some(_) => Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets")),
        }
    }

    pub(crate) fn local_address(&self) -> io::Result<LocalAddress> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(LocalAddress::Tcp),
            #[cfg(unix)]
            Self::Unix(socket) => Ok(LocalAddress::Unix(socket.path().to_owned())),
        }
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        match self {
            Self::Tcp(listener) => {
                let (socket, address) = ready!(listener.poll_accept(cx))?;
                // Events are small and must not wait for each other.
                if let Err(error) = socket.set_nodelay(true) {
                    tracing::debug!(%error, "a client disconnected before its connection was used");
                }
                Poll::Ready(Ok(Connection::Tcp(socket, address)))
            }
            #[cfg(unix)]
            Self::Unix(listener) => listener.poll_accept(cx).map_ok(Connection::Unix),
        }
    }
}

/// All listeners of a server.
pub(super) struct Listeners {
    all: Vec<Listener>,
    /// The listener that is asked first, so that many connections on one do not hold up those on another.
    first: usize,
}

impl Listeners {
    pub(super) fn new(all: Vec<Listener>) -> Self {
        Self { all, first: 0 }
    }

    /// The next connection on any of them. Waits forever if there are none.
    pub(super) async fn accept(&mut self) -> io::Result<Connection> {
        poll_fn(|cx| {
            let count = self.all.len();
            for offset in 0..count {
                let at = (self.first + offset) % count;
                if let Poll::Ready(accepted) = self.all[at].poll_accept(cx) {
                    self.first = at + 1;
                    return Poll::Ready(accepted);
                }
            }
            Poll::Pending
        })
        .await
    }
}
