//! Who is at the other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::tls::ClientCertificate;

/// The other end of a connection. It is among the extensions of the requests that authenticators and an application's own paths
/// get to see.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// Where it is.
    pub address: Option<SocketAddr>,
    /// The certificate that it showed, if the server asks for one.
    pub certificate: Option<Arc<ClientCertificate>>,
}
