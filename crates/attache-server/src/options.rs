//! Options of the server.

use std::time::Duration;

#[cfg(feature = "grpc")]
use crate::binding::grpc;
use crate::forward::Forwarder;
use crate::{AllowedHost, Cors, Limits, RequestLog, SchemeNames, card};

/// The paths of the bindings.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Paths {
    /// The paths of the JSON-RPC binding. The first one is advertised.
    pub jsonrpc: Vec<String>,
    /// Further paths of the JSON-RPC binding. A request there that could be in the oldest dialect (protocol 0.1) is taken as such.
    pub oldest: Vec<String>,
    /// The prefix of the HTTP+JSON binding; empty or `/` for the root. `None` switches the binding off.
    pub http_json: Option<String>,
    /// The prefix of the HTTP+JSON binding for clients of 0.3, which add `/v1` themselves. `None` mounts and advertises none.
    pub http_json_v0_3: Option<String>,
    /// Whether the gRPC binding is on. Its paths are fixed by the specification.
    pub grpc: bool,
    /// Whether JSON-RPC over gRPC is on. Its paths are fixed by the peers that have it.
    pub envelope: bool,
    /// The path of WebSocket connections. The paths of the JSON-RPC binding accept them too. `None` switches WebSocket off.
    pub websocket: Option<String>,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            jsonrpc: ["/a2a", "/", "/v1/rpc"].map(str::to_owned).to_vec(),
            oldest: vec!["/a2a/rpc".to_owned()],
            http_json: Some("/v1".to_owned()),
            http_json_v0_3: Some("/0.3".to_owned()),
            grpc: true,
            envelope: true,
            websocket: Some("/ws".to_owned()),
        }
    }
}

impl Paths {
    /// Changes some of the fields.
    ///
    /// ```
    /// use attache_server::Paths;
    ///
    /// let paths = Paths::default().with(|paths| paths.grpc = false);
    /// ```
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// All paths that the server answers: exact paths, and prefixes.
    pub fn answered(&self) -> (Vec<String>, Vec<String>) {
        let mut exact = [card::PATH, card::OLDEST_PATH, "/health", "/ready"].map(str::to_owned).to_vec();
        for path in self.jsonrpc.iter().chain(&self.oldest).chain(&self.websocket) {
            exact.push(path.clone());
            if !path.ends_with('/') {
                exact.push(format!("{path}/"));
            }
        }
        let older = self.http_json_v0_3_prefix().map(|prefix| format!("{prefix}{V0_3_SUFFIX}"));
        let http_json = self.http_json_prefix().into_iter().map(str::to_owned).chain(older);
        #[cfg(feature = "grpc")]
        let grpc = grpc::Package::ALL
            .into_iter()
            .filter(|_| self.grpc)
            .map(grpc::Package::service)
            .chain([grpc::envelope::SERVICE].into_iter().filter(|_| self.envelope))
            .flat_map(|service| ["", GRPC_PREFIX].map(|prefix| format!("{prefix}{service}")));
        #[cfg(not(feature = "grpc"))]
        let grpc = std::iter::empty();
        (exact, http_json.chain(grpc).collect())
    }

    /// The prefix of the HTTP+JSON binding for 0.3, without a slash at the end. Clients add `/v1`.
    pub(crate) fn http_json_v0_3_prefix(&self) -> Option<&str> {
        let prefix = self.http_json_v0_3.as_deref().filter(|_| self.http_json.is_some());
        prefix.map(|path| path.trim_end_matches('/'))
    }

    /// The rest of a path of the HTTP+JSON binding for 0.3, such as `/message:send`.
    ///
    /// Where the binding is at the root, `/v1` belongs to 0.3 too: servers of 0.3 have it there, and clients know the path without a card.
    pub(crate) fn below_http_json_v0_3<'a>(&self, path: &'a str) -> Option<&'a str> {
        let own = self.http_json_v0_3_prefix()?;
        let root = self.http_json_prefix().filter(|prefix| prefix.is_empty());
        [own].into_iter().chain(root).find_map(|prefix| {
            let below = path.strip_prefix(prefix)?.strip_prefix(V0_3_SUFFIX)?;
            below.starts_with('/').then_some(below)
        })
    }

    /// The prefix of the HTTP+JSON binding, without a slash at the end.
    pub(crate) fn http_json_prefix(&self) -> Option<&str> {
        self.http_json.as_deref().map(|path| path.trim_end_matches('/'))
    }
}

/// The path of the gRPC interface in the card. Some clients add the paths of calls to it, others ignore it: both find the calls. The base
/// URL alone would be taken for the interface that a client should use (AG2 does so).
pub(crate) const GRPC_PREFIX: &str = "/grpc";

/// What clients of 0.3 add to the URL of the HTTP+JSON binding.
const V0_3_SUFFIX: &str = "/v1";

/// How the card names the gRPC interface.
///
/// No form suits all clients. Google ADK rejects a card in which any interface is not a URL of the card's own origin. The gRPC
/// libraries of the official SDKs take `host:port` only. Cards for 0.3 always have `host:port`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GrpcAddress {
    /// By its URL, such as `https://agents.example.com/grpc`.
    #[default]
    Url,
    /// By host and port, such as `agents.example.com:443`.
    HostPort,
    /// Not at all. The binding answers all the same.
    Hidden,
}

/// Which cards list the transports that are not part of the specification: WebSocket, the JSON-RPC envelope over gRPC, and in cards that
/// are served on this machine Unix sockets and standard input and output.
///
/// Google ADK rejects a card in which any interface is not a URL of the card's own origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CardTransports {
    /// Cards for clients that state the extension for transports ([`TRANSPORTS_EXTENSION`](attache_protocol::TRANSPORTS_EXTENSION)), and
    /// cards that are fetched over one of these transports.
    #[default]
    Stated,
    /// All cards.
    All,
    /// No card. The transports answer all the same.
    Hidden,
}

/// Options of a [`Server`](crate::Server): paths, limits and timeouts. The defaults suit most servers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The paths of the bindings.
    pub paths: Paths,
    /// Whether a request without `A2A-Version` is rejected. The specification requires that of a server without 0.3. By default the shape of
    /// the request decides.
    pub strict_version: bool,
    /// Whether every client gets the card of 1.0 alone. By default a client that does not send `A2A-Version: 1.0` gets the card with the members
    /// of 0.3 added. [`strict_version`](Self::strict_version) implies it.
    pub pure_card: bool,
    /// How the card names the gRPC interface.
    pub grpc_address: GrpcAddress,
    /// Which cards list the transports that are not part of the specification.
    pub card_transports: CardTransports,
    /// What the card calls the security schemes.
    pub scheme_names: SchemeNames,
    /// Whether the card needs no credentials, where the server authenticates callers.
    pub public_card: bool,
    /// Whether the health check needs no credentials, where the server authenticates callers.
    pub public_health: bool,
    /// Further host names that the server answers to, where it does not authenticate callers. Its own names are `localhost`, the loopback
    /// addresses, the address that it listens on, and the host of its base URL. Requests with another host are rejected, because a web page
    /// can let a name of its own resolve to this machine.
    pub allowed_hosts: Vec<AllowedHost>,
    /// The origins whose pages may call the server. Requests from pages of other origins are rejected.
    pub cors: Cors,
    /// The largest body, in bytes.
    pub max_body: usize,
    /// The largest set of request headers, in bytes.
    pub max_headers: usize,
    /// How deep JSON may nest.
    pub max_depth: usize,
    /// How many requests are processed at once; more are rejected. As many again may wait for their bodies. Health checks are always answered.
    pub max_requests: usize,
    /// How many connections may be open at once. For one more, the server closes the connection that has waited longest for its client. If
    /// none waits, it answers only health checks on the new one.
    ///
    /// The limit on open files of the process can lower this number: a quarter of them, between 64 and 1,024 and at most half, is reserved for
    /// everything else. [`raise_file_limit`](crate::raise_file_limit) raises the limit.
    pub max_connections: usize,
    /// How many requests may be open at once on one HTTP/2 connection, at most half of [`max_requests`](Self::max_requests). Clients wait before
    /// they send more.
    pub max_streams_per_connection: usize,
    /// How long a client may take to send the headers of a request, and how long a connection may stay idle.
    pub header_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// The interval of heartbeats on silent streams.
    pub heartbeat: Duration,
    /// Limits for each caller.
    pub limits: Limits,
    /// Which requests are logged. [`HttpService::set_request_log`](crate::HttpService::set_request_log) changes it at run time.
    pub request_log: RequestLog,
    /// How long running turns and open connections may continue after the server receives a signal to stop.
    pub drain: Duration,
    /// What answers JSON-RPC requests in place of the agent.
    pub(crate) forwarder: Option<Forwarder>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            paths: Paths::default(),
            strict_version: false,
            pure_card: false,
            grpc_address: GrpcAddress::Url,
            card_transports: CardTransports::Stated,
            scheme_names: SchemeNames::default(),
            public_card: true,
            public_health: true,
            allowed_hosts: Vec::new(),
            cors: Cors::default(),
            max_body: 8 * 1024 * 1024,
            max_headers: 64 * 1024,
            max_depth: 100,
            max_requests: 10_000,
            max_connections: 20_000,
            max_streams_per_connection: 256,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            limits: Limits::default(),
            request_log: RequestLog::All,
            drain: Duration::from_secs(10),
            forwarder: None,
        }
    }
}

impl ServerOptions {
    /// Changes some of the fields.
    ///
    /// ```
    /// use attache_server::ServerOptions;
    ///
    /// let options = ServerOptions::default().with(|options| options.max_body = 1024 * 1024);
    /// ```
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// How many requests may be open on one connection, so that one connection cannot fill the server.
    pub(crate) fn streams_per_connection(&self) -> u32 {
        let most = self.max_streams_per_connection.min(self.max_requests / 2).max(1);
        u32::try_from(most).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_connection_alone_makes_the_server_full() {
        let streams = |max_requests, max_streams_per_connection| {
            ServerOptions { max_requests, max_streams_per_connection, ..ServerOptions::default() }
                .streams_per_connection()
        };
        assert_eq!(ServerOptions::default().streams_per_connection(), 256);
        assert_eq!(
            (streams(512, 256), streams(511, 256), streams(100, 1000), streams(1, 1)),
            (256, 255, 50, 1)
        );
    }
}
