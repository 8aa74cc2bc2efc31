//! Connections to Redis, and which of its errors pass by themselves.

#![expect(clippy::wildcard_enum_match_arm, reason = "the enums of the library are not exhaustive")]

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::AsyncDNSResolver;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisFuture, ServerErrorKind, TlsCertificates,
};

use crate::RedisUrl;

/// A connection that several tasks can use at once.
pub type Connection = MultiplexedConnection;

/// Decides whether an address may be connected to. The error says why not.
#[derive(Clone)]
pub struct AddressCheck(Arc<dyn Fn(IpAddr) -> Result<(), String> + Send + Sync>);

impl AddressCheck {
    /// A check by a function.
    pub fn new(check: impl Fn(IpAddr) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl fmt::Debug for AddressCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressCheck")
    }
}

/// Resolves names, and refuses addresses that must not be connected to. A name cannot have another address afterwards.
struct Checked(AddressCheck);

impl AsyncDNSResolver for Checked {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let found: Vec<_> =
                tokio::net::lookup_host((host, port)).await.map_err(RedisError::from)?.collect();
            for address in &found {
                (self.0.0)(address.ip())
                    .map_err(|why| RedisError::from((ErrorKind::InvalidClientConfig, "not allowed", why)))?;
            }
            Ok(Box::new(found.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

/// Connects and authenticates. A command may take as long as `answer`.
///
/// It also checks that the user may use transactions: a transaction that is refused as a whole is not reported well by the library.
pub async fn connect(
    url: &RedisUrl,
    connect: Duration,
    answer: Duration,
    check: Option<AddressCheck>,
) -> Result<Connection, RedisError> {
    // Commands are small and must not wait for each other.
    let info = url.info().clone().set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = match &url.roots {
        Some(roots) if url.server().is_some_and(|server| server.tls) => {
            let certificates = TlsCertificates { client_tls: None, root_cert: Some(roots.clone()) };
            Client::build_with_tls(info, certificates)?
        }
        Some(_) | None => Client::open(info)?,
    };
    let mut config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(connect)).set_response_timeout(Some(answer));
    if let Some(check) = check {
        config = config.set_dns_resolver(Checked(check));
    }
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    redis::pipe().cmd("MULTI").ignore().cmd("DISCARD").ignore().exec_async(&mut connection).await?;
    Ok(connection)
}

/// The codes of errors that pass when Redis has memory again, is loaded, or is the primary again.
const TRANSIENT: [&str; 12] = [
    "OOM",
    "LOADING",
    "BUSY",
    "MASTERDOWN",
    "READONLY",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MISCONF",
    "NOREPLICAS",
    "UNBLOCKED",
    "STALE",
    "BUSYKEY",
];

/// Whether the same command may succeed later: the connection broke, or Redis cannot serve it at the moment.
pub fn is_transient(error: &RedisError) -> bool {
    let is_code = |code: &str| TRANSIENT.contains(&code);
    match error.kind() {
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => true,
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::BusyLoading
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly => true,
            // A transaction is aborted because of one of its commands. Its error is among the others.
            _ => error.to_string().split(|c: char| !c.is_ascii_uppercase()).any(is_code),
        },
        _ => error.code().is_some_and(is_code) || error.is_connection_dropped() || mentions_transient(error),
    }
}

/// Whether one of the errors of a pipeline is transient.
fn mentions_transient(error: &RedisError) -> bool {
    let errors = error.clone().into_server_errors();
    errors.iter().flat_map(|errors| errors.iter()).any(|(_, error)| TRANSIENT.contains(&error.code()))
}

/// Whether the group or its stream does not exist, for example after Redis lost its data.
pub fn is_missing_group(error: &RedisError) -> bool {
    // A read that waits for entries is ended with the second one.
    matches!(error.code(), Some("NOGROUP" | "UNBLOCKED"))
}
