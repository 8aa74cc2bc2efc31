//! Resolving names to addresses.

use std::io;
use std::net::IpAddr;

use futures::FutureExt;
use futures::future::BoxFuture;

/// Resolves names. The results are checked, so a resolver need not be trusted.
pub trait Resolver: Send + Sync + 'static {
    /// All addresses of a name. It is called once for each new connection, never for a literal address.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect()) }
            .boxed()
    }
}
