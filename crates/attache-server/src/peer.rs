//! Who is at the other end of a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::ConnectInfo;
use http::Extensions;

use crate::tls::ClientCertificate;

/// The other end of a connection. Authenticators get to see it, and an application's own paths find it among the extensions of their
/// requests.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// Where it is.
    pub address: Option<SocketAddr>,
    /// The certificate that it showed, if the server asks for one.
    pub certificate: Option<Arc<ClientCertificate>>,
}

impl Peer {
    /// The other end of the connection that a request came over, as its extensions tell.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        // As axum has it, in an application that asked for it.
        let told = || extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
        extensions.get().cloned().unwrap_or_else(|| Self { address: told(), certificate: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_of_axums_may_say_it_in_its_own_way() {
        let mut extensions = Extensions::new();
        assert_eq!(Peer::of(&extensions).address, None);
        let [axums, ours] = ["203.0.113.9:4711", "203.0.113.10:4711"].map(|text| text.parse().unwrap());
        extensions.insert(ConnectInfo::<SocketAddr>(axums));
        assert_eq!(Peer::of(&extensions).address, Some(axums));
        extensions.insert(Peer { address: Some(ours), certificate: None });
        assert_eq!(Peer::of(&extensions).address, Some(ours));
    }
}
