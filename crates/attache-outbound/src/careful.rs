//! HTTP clients that go nowhere unchecked.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Client, ClientBuilder, redirect, retry};

use crate::{Policy, Resolver, SetupError};

/// What every client of ours begins with. Everything that could lead elsewhere than to the checked address, send a request twice, or
/// make more of an answer than was sent, is off: also what is off by default only as long as no other crate turns on a feature.
pub fn careful_client() -> ClientBuilder {
    Client::builder()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_proxy()
        .referer(false)
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
}

/// Builds a client that checks certificates against the system's roots or, where it has none, as in an empty container, against
/// Mozilla's.
pub fn build_client(builder: impl Fn() -> ClientBuilder) -> Result<Client, SetupError> {
    let client = builder().build().or_else(|_| {
        let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|root| Certificate::from_der(root));
        builder().tls_certs_only(roots.collect::<Result<Vec<_>, _>>()?).build()
    });
    client.map_err(SetupError)
}

/// Stands between a client and the resolver: what it lets through is all that a new connection may go to.
pub struct Guard {
    policy: Arc<Policy>,
    resolver: Arc<dyn Resolver>,
}

impl Guard {
    /// Lets through what the policy does.
    pub fn new(policy: Arc<Policy>, resolver: Arc<dyn Resolver>) -> Self {
        Self { policy, resolver }
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, resolver) = (self.policy.clone(), self.resolver.clone());
        Box::pin(async move {
            let addresses = resolver.resolve(name.as_str()).await?;
            if addresses.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
            }
            addresses.iter().try_for_each(|address| policy.check_address(*address))?;
            // The client puts the URL's port in place of 0.
            Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// What led to an error, from the outside in. The error's own text is left out: that of a client has the URL in it.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}
