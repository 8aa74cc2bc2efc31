//! What can be set about the server.

use std::time::Duration;

/// Where the bindings answer.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The paths of the JSON-RPC binding. The first one is advertised.
    pub jsonrpc: Vec<String>,
    /// Further paths of the JSON-RPC binding, where a request that could be in the oldest dialect (protocol 0.1) is.
    pub oldest: Vec<String>,
    /// What the paths of the HTTP+JSON binding begin with; empty for the root.
    pub http_json: String,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            jsonrpc: ["/a2a", "/", "/v1/rpc"].map(str::to_owned).to_vec(),
            oldest: vec!["/a2a/rpc".to_owned()],
            http_json: "/v1".to_owned(),
        }
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
    /// The largest body, in bytes.
    pub max_body: usize,
    /// The largest set of request headers, in bytes.
    pub max_headers: usize,
    /// How deep JSON may nest.
    pub max_depth: usize,
    /// How many requests may be worked on at once; more are refused.
    pub max_requests: usize,
    /// How many connections may be open at once; more wait.
    pub max_connections: usize,
    /// How long a client may take to send the headers of a request, and how long a connection may stay idle.
    pub header_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long a stream stays silent at most.
    pub heartbeat: Duration,
    /// How long running turns and open connections may go on after the server is told to stop.
    pub drain: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            paths: Paths::default(),
            strict_version: false,
            max_body: 8 * 1024 * 1024,
            max_headers: 64 * 1024,
            max_depth: 100,
            max_requests: 10_000,
            max_connections: 20_000,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            drain: Duration::from_secs(10),
        }
    }
}
