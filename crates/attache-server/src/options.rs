//! What can be set about the server.

use std::time::Duration;

#[cfg(feature = "grpc")]
use crate::binding::grpc;
use crate::{AllowedHost, Cors, Limits, card};

/// Where the bindings answer.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The paths of the JSON-RPC binding. The first one is advertised.
    pub jsonrpc: Vec<String>,
    /// Further paths of the JSON-RPC binding, where a request that could be in the oldest dialect (protocol 0.1) is.
    pub oldest: Vec<String>,
    /// What the paths of the HTTP+JSON binding begin with; empty or `/` for the root. `None` switches the binding off.
    pub http_json: Option<String>,
    /// Whether the gRPC binding answers. Its paths are in its specification.
    pub grpc: bool,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            jsonrpc: ["/a2a", "/", "/v1/rpc"].map(str::to_owned).to_vec(),
            oldest: vec!["/a2a/rpc".to_owned()],
            http_json: Some("/v1".to_owned()),
            grpc: true,
        }
    }
}

impl Paths {
    /// All paths that are answered: exact ones, and those below which everything is.
    pub fn answered(&self) -> (Vec<String>, Vec<String>) {
        let mut exact = [card::PATH, card::OLDEST_PATH, "/health", "/ready"].map(str::to_owned).to_vec();
        for path in self.jsonrpc.iter().chain(&self.oldest) {
            exact.push(path.clone());
            if !path.ends_with('/') {
                exact.push(format!("{path}/"));
            }
        }
        let mut prefixes: Vec<String> = self.http_json_prefix().into_iter().map(str::to_owned).collect();
        #[cfg(feature = "grpc")]
        if self.grpc {
            prefixes.extend(grpc::Package::ALL.into_iter().map(|package| package.service().to_owned()));
        }
        (exact, prefixes)
    }

    /// What the paths of the HTTP+JSON binding begin with, without a slash at the end.
    pub(crate) fn http_json_prefix(&self) -> Option<&str> {
        self.http_json.as_deref().map(|path| path.trim_end_matches('/'))
    }
}

/// Settings of a [`Server`](crate::Server): paths, limits and timeouts. The defaults suit most.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where the bindings answer.
    pub paths: Paths,
    /// Whether a request without `A2A-Version` is refused, as the letter of the specification has it for a server that does not
    /// speak 0.3. Otherwise the shape of the request decides.
    pub strict_version: bool,
    /// Whether everyone gets the card of 1.0 alone. Otherwise those who do not ask with `A2A-Version: 1.0` get it with the
    /// members that 0.3 reads beside it. It is implied by [`strict_version`](Self::strict_version).
    pub pure_card: bool,
    /// Whether the card is there for everyone, where callers are asked who they are.
    pub public_card: bool,
    /// Whether the health check is there for everyone, where callers are asked who they are.
    pub public_health: bool,
    /// The host names that the server answers to beside its own, where callers are not authenticated. Its own are `localhost` and
    /// the loopback addresses, the address that it listens on, and the host of its base URL. Requests that name another host are
    /// refused, since a web page can let any name of its own lead here.
    pub allowed_hosts: Vec<AllowedHost>,
    /// The origins whose pages may call the server. Requests of pages of other origins are refused.
    pub cors: Cors,
    /// The largest body, in bytes.
    pub max_body: usize,
    /// The largest set of request headers, in bytes.
    pub max_headers: usize,
    /// How deep JSON may nest.
    pub max_depth: usize,
    /// How many requests may be worked on at once; more are refused. As many again may wait for their bodies. Health checks are
    /// always answered.
    pub max_requests: usize,
    /// How many connections may be open at once. For one more, the connection is closed that has waited longest for its client; where
    /// none waits, nothing but health checks is answered on it.
    ///
    /// The limit on open files of the process allows fewer, if need be: a quarter of them, from 64 to 1,024, is kept for
    /// everything else, and at most half. [`raise_file_limit`](crate::raise_file_limit) raises it.
    pub max_connections: usize,
    /// How many requests may be open at once on one connection of HTTP/2, at most half of [`max_requests`](Self::max_requests). Clients
    /// wait before they send more.
    pub max_streams_per_connection: usize,
    /// How long a client may take to send the headers of a request, and how long a connection may stay idle.
    pub header_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long a stream stays silent at most.
    pub heartbeat: Duration,
    /// What a caller may do at once and how fast.
    pub limits: Limits,
    /// How long running turns and open connections may go on after the server is told to stop.
    pub drain: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            paths: Paths::default(),
            strict_version: false,
            pure_card: false,
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
            drain: Duration::from_secs(10),
        }
    }
}

impl ServerOptions {
    /// How many requests may be open on one connection, so that no connection alone makes the server full.
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
