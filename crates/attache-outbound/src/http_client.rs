//! HTTP clients that connect only to checked addresses.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Certificate, Client, ClientBuilder, redirect, retry};

use crate::{Policy, Resolver, SetupError, SystemResolver};

/// The settings that every HTTP client of this project starts from. They turn off everything that could connect to an address
/// that was not checked, send a request twice, or make a response larger than what was sent. Some of it is off by default, but
/// a feature that another crate enables could turn it on.
pub fn restricted_client() -> ClientBuilder {
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

/// Builds a client that checks certificates against the system's roots. If the system has none, as in an empty container, the
/// client uses Mozilla's roots.
pub fn build_client(builder: impl Fn() -> ClientBuilder) -> Result<Client, SetupError> {
    let client = builder().build().or_else(|_| {
        let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|root| Certificate::from_der(root));
        builder().tls_certs_only(roots.collect::<Result<Vec<_>, _>>()?).build()
    });
    client.map_err(SetupError)
}

/// Builds a client that connects only to addresses that a policy allows. `configure` changes the settings that every client starts
/// from.
pub fn guarded_client(
    policy: Arc<Policy>,
    configure: impl Fn(ClientBuilder) -> ClientBuilder,
) -> Result<Client, SetupError> {
    let guard = Arc::new(PolicyResolver::new(policy, Arc::new(SystemResolver)));
    build_client(|| configure(restricted_client()).dns_resolver(guard.clone()))
}

/// A DNS resolver that applies a policy. A new connection can only go to the addresses that it returns.
pub struct PolicyResolver {
    policy: Arc<Policy>,
    resolver: Arc<dyn Resolver>,
}

impl PolicyResolver {
    /// A resolver that returns only addresses that the policy allows.
    pub fn new(policy: Arc<Policy>, resolver: Arc<dyn Resolver>) -> Self {
        Self { policy, resolver }
    }
}

impl Resolve for PolicyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, resolver) = (self.policy.clone(), self.resolver.clone());
        Box::pin(async move {
            let addresses = resolver.resolve(name.as_str()).await?;
            if addresses.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
            }
            addresses.iter().try_for_each(|address| policy.check_address(*address))?;
            // The client replaces port 0 with the port of the URL.
            Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// The causes of an error, outermost first. The error itself is left out: the text of a client error contains the URL.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}
