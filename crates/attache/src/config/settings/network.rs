//! The settings of connections and requests: TLS, web pages, limits, paths and Redis Streams.

use std::path::PathBuf;

use attache::server::AllowedOrigin;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::declare::settings;
use super::super::redis::RedisText;
use super::super::secret::Masked;
use super::super::units::{Count, FromText, HttpPath, Network, Size, Time};

settings! {
    /// Which web pages may call the server.
    Cors in "cors.";

    flags CorsArgs under "Web pages" {
        /// The origins of those pages
        #[flag(cors_origin, value_name = "ORIGIN")]
        #[help = "An origin whose pages may call the server, such as `https://app.example.com`; may be repeated, and `*` is \
            every origin, without cookies"]
        origins: Vec<AllowedOrigin>,
    }
}

settings! {
    /// Encrypted connections.
    Tls in "tls.";

    flags TlsArgs under "TLS" {
        /// The file of the server's certificate and those above it, as PEM
        #[flag(tls_certificate, value_name = "PATH")]
        certificate: Option<PathBuf>,
        /// The file of its private key, as PEM
        #[flag(tls_key, value_name = "PATH")]
        key: Option<PathBuf>,
        /// The file of the authorities that vouch for clients, as PEM
        #[flag(tls_client_ca, value_name = "PATH")]
        #[help = "The file of the authorities that vouch for the certificates of clients, as PEM"]
        client_ca: Option<PathBuf>,
        /// Whether clients show certificates
        #[flag(tls_client_certificates, value_enum, value_name = "WHETHER", default_value = "off")]
        client_certificates: ClientCertificates,
    }
}

/// Whether clients show certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClientCertificates {
    /// They are not asked for any
    #[default]
    Off,
    /// They may
    Optional,
    /// They must
    Required,
}

settings! {
    /// How much callers may ask for.
    Limits in "limits.";

    flags LimitArgs under "Limits" {
        /// How many requests a caller may make in a second
        #[flag(limit_requests_per_second, value_name = "COUNT", default_value = "500")]
        #[mark(reload)] requests_per_second: Count,
        /// How many requests a caller may make at once after a pause
        #[flag(limit_burst, value_name = "COUNT")]
        #[help = "How many requests a caller may make at once after a pause; twice as many as in a second, if this is not given"]
        #[mark(reload)] burst: Option<Count>,
        /// How many requests in a second may come from one address
        #[flag(limit_requests_per_second_per_address, value_name = "COUNT", default_value = "1000")]
        #[mark(reload)] requests_per_second_per_address: Count,
        /// How many requests may come at once from one address after a pause
        #[flag(limit_burst_per_address, value_name = "COUNT")]
        #[help = "How many requests may come at once from one address after a pause; twice as many as in a second, if this is \
            not given"]
        #[mark(reload)] burst_per_address: Option<Count>,
        /// How many requests of one caller are worked on at once
        #[flag(limit_requests_per_caller, value_name = "COUNT", default_value = "256")]
        #[mark(reload)] requests_per_caller: Count,
        /// How many streams one caller may have open
        #[flag(limit_streams_per_caller, value_name = "COUNT", default_value = "256")]
        #[mark(reload)] streams_per_caller: Count,
        /// How many turns of one caller run at once
        #[flag(limit_turns_per_caller, value_name = "COUNT", default_value = "256")]
        #[mark(reload)] turns_per_caller: Count,
        /// How long a request may wait while its caller is at a limit
        #[flag(limit_queue_timeout, value_name = "TIME", default_value = "2s")]
        #[mark(reload)] queue_timeout: Time,
        /// The largest body
        #[flag(limit_body, value_name = "SIZE", default_value = "8MiB")]
        body: Size,
        /// The largest set of request headers
        #[flag(limit_headers, value_name = "SIZE", default_value = "64KiB")]
        headers: Size,
        /// How deep JSON may nest
        #[flag(limit_depth, value_name = "COUNT", default_value = "100")]
        depth: Count,
        /// How many parts a message may have
        #[flag(limit_parts, value_name = "COUNT", default_value = "1000")]
        parts: Count,
        /// How many webhooks a task may have
        #[flag(limit_push_configs_per_task, value_name = "COUNT", default_value = "32")]
        push_configs_per_task: Count,
        /// How many requests are worked on at once
        #[flag(limit_requests, value_name = "COUNT", default_value = "10000")]
        #[help = "How many requests are worked on at once; more are refused, but health checks never are"]
        requests: Count,
        /// How many connections may be open at once
        #[flag(limit_connections, value_name = "COUNT", default_value = "20000")]
        #[help = "How many connections may be open at once; for one more, the one that has waited longest for its client is \
            closed"]
        #[more_help = "The limit on open files (`ulimit -n`) allows fewer, if need be. It is raised as far as possible at start."]
        connections: Count,
        /// How many connections may come from one address
        #[flag(limit_connections_per_address, value_name = "COUNT", default_value = "1024")]
        #[help = "How many connections may come from one address; more are closed at once"]
        #[mark(reload)] connections_per_address: Count,
        /// How many requests may be open at once on one connection of HTTP/2
        #[flag(limit_streams_per_connection, value_name = "COUNT", default_value = "256")]
        #[help = "How many requests may be open at once on one connection of HTTP/2, at most half of `--limit-requests`"]
        streams_per_connection: Count,
        /// How long a client may take to send the headers of a request, and a connection may stay idle
        #[flag(limit_header_timeout, value_name = "TIME", default_value = "30s")]
        header_timeout: Time,
        /// How long a client may take to send a body
        #[flag(limit_body_timeout, value_name = "TIME", default_value = "30s")]
        body_timeout: Time,
        /// How long a client may take to send anything after it has connected
        #[flag(limit_first_byte_timeout, value_name = "TIME", default_value = "10s")]
        #[mark(reload)] first_byte_timeout: Time,
        /// The proxies whose word on where a request comes from is taken
        #[flag(limit_trusted_proxy, value_name = "NETWORK")]
        #[help = "A proxy whose word on where a request comes from (`X-Forwarded-For`) is taken, or a network of them; may be \
            repeated"]
        #[mark(reload)] trusted_proxies: Vec<Network> as Option<Vec<FromText<Network>>>,
        /// Whether those on this machine who do not say who they are, and connections from it, are limited too
        #[flag(limit_loopback)]
        #[help = "Limit those on this machine too who do not say who they are, and connections from it"]
        #[more_help = "A proxy on this machine that is not named with `--limit-trusted-proxy` is then limited for everyone \
            behind it."]
        #[mark(reload)] loopback: bool,
    }
}

settings! {
    /// Where the bindings answer.
    Paths in "paths.";

    flags PathArgs under "Paths" {
        /// The paths of the JSON-RPC binding; the first one is advertised
        #[flag(path_jsonrpc, value_name = "PATH", default_values = ["/a2a", "/", "/v1/rpc"])]
        #[help = "A path of the JSON-RPC binding; may be repeated, and the first one is advertised"]
        jsonrpc: Vec<HttpPath>,
        /// Further paths of the JSON-RPC binding, for clients of protocol 0.1
        #[flag(path_oldest, value_name = "PATH", default_values = ["/a2a/rpc"])]
        #[help = "A further path of the JSON-RPC binding, for clients of protocol 0.1; may be repeated"]
        oldest: Vec<HttpPath>,
        /// What the paths of the HTTP+JSON binding begin with
        #[flag(path_http_json, value_name = "PATH", default_value = "/v1")]
        http_json: HttpPath,
        /// Whether the gRPC binding answers
        #[flag(no_grpc)]
        #[help = "Offer no gRPC"]
        grpc: bool,
        /// The path of WebSocket connections; those of the JSON-RPC binding accept them too
        #[flag(path_websocket, value_name = "PATH", default_value = "/ws")]
        websocket: HttpPath,
    }
}

settings! {
    /// Requests over Redis Streams.
    Redis in "redis.";

    flags RedisArgs under "Redis Streams" {
        /// The Redis server whose streams carry requests and responses
        #[flag(redis, value_name = "URL", hide_env_values = true)]
        #[help = "Answer requests from Redis Streams too: the Redis server, such as `redis://127.0.0.1:6379`"]
        #[more_help = "`rediss://` uses TLS, and `unix:///PATH` a Unix socket. The section `redis` of the configuration file has the \
            names of the streams, limits and a password."]
        url: Option<String> as Option<FromText<RedisText>>,
    }

    {
        /// The password of Redis, instead of one in the URL
        password: Option<Masked>,
        /// The file with the password of Redis
        password_file: Option<PathBuf>,
        /// Certificates (PEM) that are trusted for `rediss://` instead of those of the system
        ca_file: Option<PathBuf>,
        /// The stream of requests; `attache:a2a:requests` if this is not set
        request_stream: Option<String>,
        /// The stream of responses for clients without one of their own; `attache:a2a:responses` if this is not set
        response_stream: Option<String>,
        /// The consumer group of all processes that answer the same requests; `attache` if this is not set
        consumer_group: Option<String>,
        /// The name of this process in the group; a random one if this is not set
        consumer_name: Option<String>,
        /// What the names of reply streams begin with; the response stream and a colon if this is not set
        reply_prefix: Option<String>,
        /// The stream of refused entries; the request stream and `:dead` if this is not set
        dead_stream: Option<String>,
        /// How many requests are processed at once; 256 if this is not set
        in_flight: Option<FromText<Count>>,
        /// How many streams of events may be open at once; 256 if this is not set
        streams: Option<FromText<Count>>,
        /// The largest entry; `limits.body` and 64 KiB if this is not set
        max_entry_size: Option<FromText<Size>>,
        /// About how many responses a stream of responses keeps; 10000 if this is not set
        keep: Option<FromText<Count>>,
        /// How long a stream of responses is kept after its last one; 1 hour if this is not set
        expire: Option<FromText<Time>>,
        /// About how many refused entries are kept; 1000 if this is not set
        keep_dead: Option<FromText<Count>>,
        /// When the requests of a process that has ended are taken over; after 60 seconds if this is not set
        claim_after: Option<FromText<Time>>,
        /// How often a request is delivered before it is refused; 5 times if this is not set
        max_deliveries: Option<FromText<Count>>,
        /// Whether the card lists the transport; yes if this is not set
        in_card: Option<bool>,
        /// `HOST:PORT` of Redis in the card, if clients reach it under another one than this server
        card_host: Option<String>,
    }
}
