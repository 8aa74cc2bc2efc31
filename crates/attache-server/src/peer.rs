//! The other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use http::Extensions;

use crate::tls::ClientCertificate;

/// The other end of a connection. Authenticators see it, and the paths of an application find it in the extensions of their requests.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// Its network address. A Unix socket has none.
    pub address: Option<SocketAddr>,
    /// The certificate that it presented, if the server asks for one.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// The process, for connections over a Unix socket.
    pub process: Option<PeerProcess>,
}

/// The process at the other end of a Unix socket, as the operating system reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerProcess {
    /// The user that it ran as when it connected.
    pub uid: u32,
    /// Its process id, where the system reports it.
    pub pid: Option<i32>,
}

impl Peer {
    /// The peer of a request, from the extensions of the request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        // Set by axum, if the application enabled it.
        let by_axum = || extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        extensions.get().cloned().unwrap_or_else(|| Self { address: by_axum(), ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_taken_from_axums_extension_unless_there_is_a_peer() {
        let mut extensions = Extensions::new();
        assert_eq!(Peer::of(&extensions).address, None);
        let [axums, ours] = ["203.0.113.9:4711", "203.0.113.10:4711"].map(|text| text.parse().unwrap());
        extensions.insert(ConnectInfo::<SocketAddr>(axums));
        assert_eq!(Peer::of(&extensions).address, Some(axums));
        extensions.insert(Peer { address: Some(ours), ..Peer::default() });
        assert_eq!(Peer::of(&extensions).address, Some(ours));
    }
}
