//! The transports of iac-code. A process of iac-code has one of them; here HTTP answers too, except with standard input and output or a
//! Unix socket, which need no port.

use std::net::IpAddr;

use attache::server::{RedisUrl, is_loopback_url};

use super::{Position, Translation, Value, list, text};

/// The port of that server.
const PORT: &str = "41242";

/// The paths of JSON-RPC. The first one is advertised.
const JSONRPC: [&str; 2] = ["/", "/a2a"];

/// The path of WebSocket connections there.
const WEBSOCKET: &str = "/a2a";

/// The names of that system in Redis, and our settings for them.
const STREAMS: [(&str, &str, &str); 3] = [
    ("request-stream", "redis.request-stream", "iac-code:a2a:requests"),
    ("response-stream", "redis.response-stream", "iac-code:a2a:responses"),
    ("consumer-group", "redis.consumer-group", "iac-code"),
];

/// A transport of iac-code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Http,
    Stdio,
    Unix,
    WebSocket,
    /// The official binding and JSON-RPC in an envelope answer on the same port here.
    Grpc,
    Redis,
}

impl Transport {
    /// A transport by its name or another name of it.
    fn named(name: &str) -> Option<Self> {
        match name {
            "http" | "jsonrpc" | "json-rpc" | "http+jsonrpc" | "http-jsonrpc" | "https" => Some(Self::Http),
            "stdio" => Some(Self::Stdio),
            "unix" => Some(Self::Unix),
            "websocket" | "ws" | "wss" => Some(Self::WebSocket),
            "grpc" | "grpcs" | "grpc-jsonrpc" | "grpc+jsonrpc" => Some(Self::Grpc),
            "redis-streams" | "redis" | "redis-stream" => Some(Self::Redis),
            _ => None,
        }
    }
}

/// Whether a host to listen on is reached from this machine only.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Translation<'_, '_> {
    /// Whether only this machine can reach the server where it listens, under its base URL and over Redis, as far as the file says.
    pub(super) fn is_local(&self) -> bool {
        let redis = self.ours.iter().find_map(|entry| entry.node.at("redis.url")).map(|node| &node.value);
        let has_remote_redis = match redis {
            Some(Value::Text { text, .. }) => !text.parse().is_ok_and(|url: RedisUrl| url.is_local()),
            Some(Value::Nothing | Value::List(_) | Value::Map(_)) | None => false,
        };
        if has_remote_redis {
            return false;
        }
        let base = self.ours.iter().find(|entry| entry.key == "base-url").map(|entry| &entry.node.value);
        if matches!(base, Some(Value::Text { text, .. }) if !is_loopback_url(text)) {
            return false;
        }
        let is_local = |address: &Value| match address {
            Value::Text { text, .. } => {
                text.starts_with("unix:")
                    || is_loopback(text.rsplit_once(':').map_or(text.as_str(), |(host, _)| host))
            }
            Value::Nothing | Value::List(_) | Value::Map(_) => false,
        };
        match self.ours.iter().find(|entry| entry.key == "listen").map(|entry| &entry.node.value) {
            // Nothing is listened on but standard input.
            None => true,
            Some(Value::List(addresses)) => addresses.iter().all(|address| is_local(&address.value)),
            Some(address) => is_local(address),
        }
    }

    /// Where the server listens.
    pub(super) fn listen(&mut self) {
        let mut host = self.take("host").map_or_else(|| "127.0.0.1".to_owned(), |(host, _)| host);
        let mut port = self.take("port").map_or_else(|| PORT.to_owned(), |(port, _)| port);
        let (name, position) =
            self.take("transport").unwrap_or_else(|| ("http".to_owned(), Position { line: 1, column: 1 }));
        let mut websocket = WEBSOCKET.to_owned();
        let transport = Transport::named(&name.to_ascii_lowercase()).unwrap_or_else(|| {
            let known =
                "it is `http`, `stdio`, `unix`, `websocket`, `grpc`, `grpc-jsonrpc` or `redis-streams`";
            self.refuse(position, format!("iac-code has no transport `{name}`"), known);
            Transport::Http
        });
        let mut address = None;
        match transport {
            Transport::Http => {}
            Transport::Stdio => self.set("stdio", text("true")),
            Transport::Unix => match self.take("socket-path") {
                Some((path, _)) => address = Some(format!("unix:{path}")),
                None => self.refuse(position, "`transport: unix` needs a `socket-path`", ""),
            },
            Transport::WebSocket => {
                if let Some((path, _)) = self.take("ws-path") {
                    websocket = path;
                }
            }
            Transport::Grpc => {
                host = self.take("grpc-host").map_or(host, |(host, _)| host);
                port = self.take("grpc-port").map_or(port, |(port, _)| port);
            }
            Transport::Redis => self.redis(position),
        }
        // With standard input and output alone, nothing is listened on.
        if transport != Transport::Stdio {
            let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
            self.set("listen", text(&address.unwrap_or_else(|| format!("{host}:{port}"))));
        }
        self.set("paths.jsonrpc", list(&JSONRPC));
        self.set("paths.http-json", text("/"));
        self.set("paths.websocket", text(&websocket));
    }

    /// Requests over Redis Streams. Clients of iac-code read the shared stream of responses, which every client may name.
    fn redis(&mut self, position: Position) {
        match self.take("redis-url") {
            Some((url, _)) => self.set("redis.url", text(&url)),
            None => self.refuse(position, "`transport: redis-streams` needs a `redis-url`", ""),
        }
        for (theirs, ours, usual) in STREAMS {
            let name = self.take(theirs).map_or_else(|| usual.to_owned(), |(name, _)| name);
            self.set(ours, text(&name));
        }
    }
}
