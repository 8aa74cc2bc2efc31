//! Every setting of `attache serve`, declared once: see [`declare`](super::declare) for how.
//!
//! Everything is optional in the file. The environment, the flags and their defaults decide what the file does not set.

use std::collections::BTreeMap;
use std::path::PathBuf;

use attache::server::{AllowedHost, AllowedOrigin};
use attache::store::StoreUrl;
use attache_agents::{AgentSettings, OAuthSettings};
use clap::ArgAction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::acp::AcpPermissions;
use super::agents::NamedAgent;
use super::auth::{Auth, StringList};
use super::budget::BudgetSettings;
use super::card::{CardGrpc, CardSchemes, CardSkill, ListTransports};
use super::conversation::{Compat, ContextBusy, ContextEndState};
use super::declare::settings;
use super::log::{LogFormat, LoggedRequests};
use super::model::{AnyValue, ModelTool};
use super::program::{CommandLine, ProgramProtocol};
use super::redis::RedisText;
use super::reports::{
    ExtensionUri, MaskSettings, MetadataNamespace, PermissionChoice, PermissionSetting, SafeMode,
    ThinkingExposure,
};
use super::router::RouterRule;
use super::secret::{Masked, Secret};
use super::units::{AgentUrl, Count, Filter, FromText, HttpPath, HttpUrl, Network, Seconds, Size, Time};
use crate::command::{AgentName, PreferredBinding};

settings! {
    /// The settings of `attache serve`.
    #[schemars(title = "attache.yml")]
    Settings in "";

    flags ServerArgs {
        /// Which agent to serve
        #[flag(agent, value_parser = AgentName::parser(), default_value = "functions")]
        agent: AgentName,
        /// The addresses to listen on, each `HOST:PORT` or `unix:PATH` for a Unix socket: one or a list
        #[flag(listen, value_name = "ADDR", default_value = "127.0.0.1:3111")]
        #[help = "An address to listen on, or `unix:PATH` for a Unix socket; may be repeated"]
        listen: Vec<String> as Option<StringList>,
        /// Answer on standard input and output, for the process that starts the server
        #[flag(stdio)]
        #[help = "Answer on standard input and output, for the process that starts the server; without `--listen`, nowhere else"]
        #[more_help = "Without `--listen`, `--redis` and `--store`, tasks are kept in memory: several such servers run at once, and one \
            file of tasks is for one process."]
        stdio: bool,
        /// The URL that the card advertises, if clients reach the server under another one
        #[flag(base_url, value_name = "URL")]
        base_url: Option<String> as Option<FromText<HttpUrl>>,
        /// Stop when nothing was asked of the server for this long; never if this is not set
        #[flag(idle_shutdown, value_name = "TIME")]
        #[help = "Stop when nothing was asked of the server for this long, such as `10m`"]
        idle_shutdown: Option<Time> as Option<FromText<Time>>,
    }

    flags StoreArgs {
        /// Where tasks are kept
        #[flag(store, value_name = "STORE", hide_env_values = true)]
        #[help = "Where tasks are kept: `sqlite:PATH`, or `memory:` for as long as the process runs"]
        #[more_help = "Without it they are kept in `attache/attache.db` below the user's data directory."]
        store: Option<StoreUrl>,
        /// The file of the keys that the secrets of webhooks are encrypted with
        #[variable("ATTACHE_KEYRING_FILE")]
        #[flag(keyring, value_name = "PATH")]
        #[help = "The file of the keys that the secrets of webhooks are encrypted with"]
        #[more_help = "It is made if there is none. Without this option it is `attache/keyring.json` below the user's \
            configuration directory. Where the environment variable `ATTACHE_KEYRING` holds a keyring as JSON, that is used \
            instead."]
        keyring: Option<PathBuf>,
    }

    flags AccessArgs {
        /// Let everyone in without credentials, also where other machines can reach the server
        #[flag(insecure)]
        insecure: bool,
    }

    flags HostArgs under "Web pages" {
        /// The host names that the server answers to beside its own, where callers are not authenticated
        #[flag(allowed_host, value_name = "HOST")]
        #[help = "A host name that the server answers to beside its own, where callers are not authenticated; may be repeated, \
            and `*` is every name"]
        allowed_hosts: Vec<AllowedHost>,
        /// Which web pages may call the server
        #[mark(section)] cors: Cors,
    }

    flags ProtocolArgs {
        /// Refuse requests that do not say which protocol version they speak
        #[flag(strict_version)]
        strict_version: bool,
        /// Give everyone the card of protocol 1.0 alone
        #[flag(pure_card)]
        #[help = "Give everyone the card of protocol 1.0 alone, without the members that 0.3 clients read"]
        pure_card: bool,
        /// Show the card to callers who do not say who they are
        #[flag(public_card, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
        #[help = "Whether the card is shown to those who do not say who they are"]
        public_card: bool,
        /// Answer health checks of callers who do not say who they are
        #[flag(public_health, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
        #[help = "Whether health checks are answered for those who do not say who they are"]
        public_health: bool,
    }

    flags CompatArgs under "Conversations" {
        /// Take over the settings, the environment variables and the behaviour of another system
        #[flag(compat, value_enum, value_name = "SYSTEM")]
        compat: Option<Compat>,
    }

    {
        /// What to log, and how
        #[mark(section)] log: Log,
    }

    {
        /// Who may call
        #[mark(reload)] auth: Option<Auth>,
        /// What the card is signed with
        #[mark(section)] signing: Signing,
        /// Encrypted connections
        #[mark(section)] tls: Tls,
        /// How much callers may ask for
        #[mark(section)] limits: Limits,
        /// Where the bindings answer
        #[mark(section)] paths: Paths,
        /// Requests over Redis Streams
        #[mark(section)] redis: Redis,
        /// Push notifications
        #[mark(section)] push: Push,
        /// How long tasks are kept
        #[mark(section)] keep: Keep,
        /// Where large content of artifacts is stored
        #[mark(section)] artifacts: Artifacts,
        /// Which functions are skills
        #[mark(section)] functions: Functions,
        /// The program to serve
        #[mark(section)] program: Program,
        /// The language model to serve
        #[mark(section)] model: Model,
        /// The coding agent to serve
        #[mark(section)] acp: Acp,
        /// The MCP server to serve
        #[mark(section)] mcp: Mcp,
        /// The remote agent to serve
        #[mark(section)] remote: Remote,
        /// The agents that a router passes messages to, and when
        #[mark(section)] router: Router,
        /// The namespace of the metadata about an agent at work; `attache` if this is not set
        metadata_namespace: Option<MetadataNamespace>,
        /// What callers see of an agent at work; `tool-trace` if this is not set
        thinking_exposure: Option<ThinkingExposure>,
        /// What agents may do; the first rule that matches counts
        permissions: Vec<PermissionSetting>,
        /// What happens if no rule matches; what the agent does by itself, if this is not set
        permission_default: Option<PermissionChoice>,
        /// How long the caller has to answer a request for permission; 10 minutes if this is not set
        permission_timeout: Option<FromText<Time>>,
        /// The extensions that every request has to activate
        required_extensions: Vec<FromText<ExtensionUri>>,
        /// Whether paths of this machine and secrets are hidden; `remote` if this is not set
        safe_mode: Option<SafeMode>,
        /// What is masked beside the secrets of the settings
        mask: MaskSettings,
        /// Which contexts of agents that hold conversations live, and how their turns follow each other
        #[mark(section)] contexts: Contexts,
        /// The directories that callers may work in, with everything below them; none, if this is not set
        workspaces: Vec<PathBuf>,
        /// What messages to agents that hold conversations may contain
        #[mark(section)] input: Input,
        /// Further agents by their names, each below `/agents/NAME`
        #[mark(reload)] agents: BTreeMap<String, NamedAgent>,
        /// How the agent describes itself
        #[mark(section)] card: Card,
        /// Where workers join
        #[mark(section)] engine: Engine,
        /// Which agents tasks may be delegated to, and by whom
        #[mark(section)] delegation: Delegation,
    }
}

settings! {
    /// What to log, and how.
    Log in "log.";

    flags LogArgs under "Log" {
        /// What to log, such as `info` or `attache_server=debug`
        #[flag(log, value_name = "FILTER", default_value = "info")]
        #[mark(reload)] filter: String as Option<FromText<Filter>>,
        /// How lines are written
        #[flag(log_format, value_enum, value_name = "FORMAT", default_value = "text")]
        format: LogFormat,
        /// The file that the log is appended to, instead of standard error
        #[flag(log_file, value_name = "PATH")]
        file: Option<PathBuf>,
        /// Which requests are logged: `true`, `false`, or `slower-than 1s`
        #[flag(log_requests, value_name = "WHICH", default_value = "true")]
        #[mark(reload)] requests: LoggedRequests,
    }
}

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
    /// What the card is signed with.
    Signing in "signing.";

    flags SigningArgs {
        /// The file that `attache keys new` makes
        #[flag(signing_keys, value_name = "PATH")]
        #[help = "Sign the card with the keys in this file, which `attache keys new` makes"]
        keys: Option<PathBuf>,
    }

    {
        /// A secret of at least 32 bytes that is shared with the clients, instead of keys: HS256 with the id `default`
        secret: Option<Secret>,
        /// The file with that secret
        secret_file: Option<PathBuf>,
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
    /// Push notifications.
    Push in "push.";

    flags PushArgs under "Push notifications" {
        /// Whether they are offered
        #[flag(no_push)]
        #[help = "Offer no push notifications"]
        offered: bool,
        /// Tell webhooks of every event, not only of every new status
        #[flag(push_every_event)]
        every_event: bool,
        /// Sign what webhooks are told with this secret
        secret: Option<Secret>,
        /// Sign what webhooks are told with the secret in this file
        #[flag(push_secret_file, value_name = "PATH")]
        secret_file: Option<PathBuf>,
        /// Let webhooks be on this machine, for development
        #[flag(allow_loopback_webhooks)]
        allow_loopback: bool,
        /// Let webhooks be in these networks although they are not public
        #[flag(allow_webhook_network, value_name = "NETWORK")]
        #[help = "Let webhooks be in this network although it is not public, such as `10.1.0.0/16`; may be repeated"]
        allow_networks: Vec<Network>,
        /// Refuse webhooks that are not `https`
        #[flag(https_webhooks_only)]
        https_only: bool,
    }

    {
        /// Where deliveries wait: in the store of this process, or in Redis, where several processes share them; `store` if this is not set
        queue: Option<PushQueueKind>,
        /// The Redis server of `queue: redis`
        #[mark(section)] redis: PushRedis,
    }
}

/// Where deliveries wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PushQueueKind {
    /// In the store of this process
    #[default]
    Store,
    /// In Redis, where several processes share them
    Redis,
}

settings! {
    /// The Redis server of the push queue.
    PushRedis in "push.redis.";

    {
        /// The Redis server
        url: Option<FromText<RedisText>>,
        /// The password of Redis, instead of one in the URL
        password: Option<Masked>,
        /// The file with the password of Redis
        password_file: Option<PathBuf>,
        /// Certificates (PEM) that are trusted for `rediss://` instead of those of the system
        ca_file: Option<PathBuf>,
        /// The stream of deliveries; `attache:a2a:push` if this is not set
        stream: Option<String>,
        /// The sorted set of deliveries that wait for their next attempt; `attache:a2a:push:retry` if this is not set
        retry_key: Option<String>,
        /// The stream of deliveries that were given up; `attache:a2a:push:dead` if this is not set
        dead_stream: Option<String>,
        /// The consumer group of all processes that share the deliveries; `attache-push` if this is not set
        consumer_group: Option<String>,
        /// The name of this process in the group; a random one if this is not set
        consumer_name: Option<String>,
        /// When the deliveries of a process that has ended are taken over; after 5 minutes if this is not set
        lease: Option<FromText<Time>>,
        /// How many deliveries that were given up are kept; 1000 if this is not set
        keep_dead: Option<FromText<Count>>,
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

settings! {
    /// How long tasks are kept.
    Keep in "keep.";

    flags KeepArgs under "Retention" {
        /// Forget tasks that ended longer ago than this
        #[flag(keep_for, value_name = "AGE")]
        #[help = "Forget tasks that ended longer ago than this, such as `12h` or `30d`; they are kept for good if this is not \
            given"]
        r#for: Option<Time>,
        /// Forget tasks that have ended beyond this many of each caller
        #[flag(keep_tasks, value_name = "COUNT")]
        #[help = "Forget tasks that have ended beyond this many of each caller, oldest first"]
        tasks: Option<u32>,
    }
}

settings! {
    /// Where large content of artifacts is stored.
    Artifacts in "artifacts.";

    flags ArtifactDirectoryArgs under "Artifacts" {
        /// The directory of the content
        #[flag(artifacts, value_name = "PATH")]
        #[help = "The directory for the content of artifacts"]
        #[more_help = "Without it, it is next to the file of the store: its path with `-artifacts` at the end. With a store in \
            memory it is a temporary folder."]
        directory: Option<PathBuf>,
    }

    flags ArtifactArgs under "Artifacts" {
        /// Whether large content is stored apart from the tasks
        #[flag(no_artifacts)]
        #[help = "Keep all content of artifacts in the tasks, and serve none of it apart"]
        stored: bool,
        /// The largest content that stays in a task
        #[flag(artifacts_inline_limit, value_name = "SIZE", default_value = "1MiB")]
        #[help = "The largest content that stays in a task; larger content gets a URL"]
        inline_limit: Size,
        /// The largest content
        #[flag(artifacts_max_size, value_name = "SIZE", default_value = "1GiB")]
        #[help = "The largest content of one file; a turn that produces more fails"]
        max_size: Size,
        /// The largest size of all content together
        #[flag(artifacts_max_total, value_name = "SIZE", default_value = "10GiB")]
        #[help = "The largest size of all stored content together; a turn that would exceed it fails"]
        max_total: Size,
        /// How long content is kept after its task has got its last content
        #[flag(artifacts_keep, value_name = "AGE")]
        #[help = "Remove the content of a task this long after its last content was stored, such as `7d`; as long as the task is \
            kept, if this is not given"]
        keep: Option<Time>,
        /// Which URLs clients get: `http`, or `file` for clients of the same user on this machine
        #[flag(artifacts_urls, value_enum, value_name = "KIND", default_value = "http")]
        urls: ArtifactUrlKind,
        /// Whether the servers of a shared store share the directory
        #[flag(artifacts_shared)]
        #[help = "The directory is shared by all servers that use the store"]
        shared: bool,
    }
}

/// Which URLs of stored content clients get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ArtifactUrlKind {
    /// URLs of this server
    #[default]
    Http,
    /// URLs of files, for clients of the same user on this machine
    File,
}

settings! {
    /// Which functions are skills.
    Functions in "functions.";

    flags DemoArgs {
        /// Add a few sample functions to try
        #[flag(demo)]
        demo: bool,
        /// Expose all functions, also those without `a2a.expose` in their metadata, for development
        #[flag_in_iii(expose_all)]
        expose_all: bool,
        /// The tier of callers whose credential has none: they see only functions whose metadata has this `a2a.tier`
        #[flag_in_iii(tier)]
        tier: String,
        /// The order of the tiers, lowest first: callers also see the functions of lower tiers, and those without a tier
        #[flag_in_iii(tiers)]
        tiers: Vec<String> as Vec<String>,
        /// The function that gets messages which name none
        #[flag_in_iii(default_function)]
        default: String,
        /// How long a function may take whose metadata has no `a2a.timeoutMs`
        #[flag_in_iii(call_timeout)]
        call_timeout: Seconds,
        /// Whether streams are offered
        #[flag_in_iii(no_streaming)]
        streaming: bool,
    }
}

settings! {
    /// A program on this machine as the agent.
    Program in "program.";

    flags ProgramArgs under "Program" {
        /// The program and its arguments
        #[flag(program, value_name = "COMMAND")]
        #[help = "Serve this program as the agent: it reads a message from its standard input and writes the answer"]
        #[more_help = "The text is split as a shell does. For other options, and to talk in JSON, use `program` in the \
            configuration file."]
        command: Option<CommandLine>,
        /// How the program and the server talk
        protocol: Option<ProgramProtocol>,
        /// The working directory of the program; with `protocol: json` the directory of its conversation, if this is not set
        directory: Option<PathBuf>,
        /// The directory that all conversations of a program with `protocol: json` work in; each has a private one, if this is not set
        workspace: Option<PathBuf>,
        /// Where the private directories of conversations are; below the user's data directory, if this is not set
        data_directory: Option<PathBuf>,
        /// Environment variables for the program
        environment: BTreeMap<String, Masked>,
        /// Environment variables of the server that the program gets as well
        pass_environment: Vec<String>,
        /// How long a message may take; 10 minutes if this is not set
        timeout: Option<FromText<Time>>,
        /// How long the program has to end after SIGTERM; 2 seconds if this is not set
        grace: Option<FromText<Time>>,
        /// How long a program that asked a question waits for the answer; 30 minutes if this is not set
        idle: Option<FromText<Time>>,
        /// How much the program may write for a message; 16 MiB if this is not set
        max_output: Option<FromText<Size>>,
        /// How many processes run at once; 16 if this is not set
        processes: Option<FromText<Count>>,
        /// Let callers see what a failed program wrote to its standard error
        show_errors: bool,
        /// How much time each caller may use; without a limit, if this is not set
        budget: Option<BudgetSettings>,
    }
}

settings! {
    /// A language model as the agent.
    Model in "model.";

    flags ModelArgs under "Model" {
        /// The URL of a chat completion API like that of OpenAI
        #[flag(model, value_name = "URL")]
        #[help = "Serve a language model as the agent: the URL of a chat completion API, such as \
            `https://api.openai.com/v1`"]
        #[more_help = "The key of the API is in `ATTACHE_MODEL_KEY`, in the file of `--model-key-file`, or in the \
            configuration file."]
        url: Option<String> as Option<FromText<HttpUrl>>,
        /// The name of the model
        #[flag(model_name, value_name = "NAME")]
        name: Option<String>,
        /// The key of the API
        key: Option<Masked>,
        /// The file that the key of the API is in
        #[flag(model_key_file, value_name = "PATH")]
        key_file: Option<PathBuf>,
        /// The system prompt, at the beginning of every conversation
        system: Option<String>,
        /// Further members of each request, such as `temperature`
        parameters: BTreeMap<String, AnyValue>,
        /// What the model can call: `mcp:NAME` and `agent:NAME` for named agents, and `functions`
        tools: Vec<FromText<ModelTool>>,
        /// Accept images, for models that can see
        images: bool,
        /// The media types of files that the model gets as they are, such as `application/pdf` and `audio/wav`
        files: Vec<String>,
        /// How much of a conversation the model gets; without the oldest turns and results of tools, if it would be more; 256 KiB if this is not set
        max_context: Option<FromText<Size>>,
        /// How long a tool may take; 1 minute if this is not set
        tool_timeout: Option<FromText<Time>>,
        /// How many times in a row the model may call tools before it replies; 16 if this is not set
        max_rounds: Option<FromText<Count>>,
        /// How often a request is repeated if the endpoint is overloaded; 3 times if this is not set
        retries: Option<u32>,
        /// How long the endpoint may add nothing to a reply; 2 minutes if this is not set
        silence: Option<FromText<Time>>,
        /// How many tokens and how much time each caller may use; without a limit, if this is not set
        budget: Option<BudgetSettings>,
    }
}

settings! {
    /// A coding agent as the agent.
    Acp in "acp.";

    flags AcpArgs under "Coding agent" {
        /// The program and its arguments
        #[flag(acp, value_name = "COMMAND")]
        #[help = "Serve a coding agent as the agent: a program that speaks the Agent Client Protocol (ACP)"]
        #[more_help = "The text is split as a shell does, such as `npx @google/gemini-cli --acp`. For other options use `acp` in \
            the configuration file."]
        command: Option<CommandLine>,
        /// The directory that all conversations work in; each has a private one, if this is not set
        #[flag(workspace, value_name = "PATH")]
        #[help = "The directory that all conversations of a coding agent work in, or of a program with `protocol: json`; \
            each has a private one, if this is not set"]
        workspace: Option<PathBuf>,
        /// Where the private directories of conversations are; below the user's data directory, if this is not set
        data_directory: Option<PathBuf>,
        /// The name in the card, and of the records in the store
        name: Option<String>,
        /// The description in the card
        description: Option<String>,
        /// Environment variables for the program
        environment: BTreeMap<String, Masked>,
        /// Environment variables of the server that the program gets as well
        #[flag(pass_env, value_name = "NAME")]
        #[help = "An environment variable of the server that the coding agent, the program or the MCP server gets as well, such as \
            the one with its key; may be repeated"]
        pass_environment: Vec<String> as Vec<String>,
        /// The method of authentication that the program is told to use
        auth_method: Option<String>,
        /// Who decides when the program asks for permission; the caller, if this is not set
        permissions: Option<AcpPermissions>,
        /// How long the caller has to answer a request for permission; 10 minutes if this is not set
        permission_timeout: Option<FromText<Time>>,
        /// Let the program run commands through the server
        terminal: bool,
        /// Let callers see the thoughts of the agent
        show_thoughts: bool,
        /// How long an unused session is kept; as `contexts.idle` says, if this is not set
        idle: Option<FromText<Time>>,
        /// How many sessions there are at once; as `contexts.max` says, if this is not set
        max_sessions: Option<FromText<Count>>,
        /// How long the program may take to start; 2 minutes if this is not set
        start_timeout: Option<FromText<Time>>,
        /// How long a message may take; 1 hour if this is not set
        timeout: Option<FromText<Time>>,
        /// How long the program has to end a canceled prompt, and to end after SIGTERM; 2 seconds if this is not set
        grace: Option<FromText<Time>>,
        /// How much the program may write for a message; 16 MiB if this is not set
        max_output: Option<FromText<Size>>,
        /// The longest line that the program may write; 16 MiB if this is not set
        max_line: Option<FromText<Size>>,
        /// The largest text file that the program may read or write through the server; 1 MiB if this is not set
        max_file: Option<FromText<Size>>,
        /// How much of the earlier conversation a new session gets; 256 KiB if this is not set
        max_context: Option<FromText<Size>>,
    }
}

settings! {
    /// Which contexts of agents that hold conversations live, and how their turns follow each other.
    Contexts in "contexts.";

    {
        /// What happens to a message for a context whose turn runs; it waits, if this is not set
        busy: Option<ContextBusy>,
        /// How many messages may wait for one context; 16 if this is not set
        queue_limit: Option<FromText<Count>>,
        /// How long a context may be idle before it is put away; 30 minutes if this is not set
        idle: Option<FromText<Time>>,
        /// How many contexts of an agent live at once; 1,024 if this is not set
        max: Option<FromText<Count>>,
        /// The state of a task after a turn that was successful; completed, if this is not set
        end_state: Option<ContextEndState>,
    }
}

settings! {
    /// What messages to agents that hold conversations may contain.
    Input in "input.";

    {
        /// Further media types that are text
        text_types: Vec<String>,
        /// The media types of other content that are accepted; those that the agent takes, if this is not set
        media_types: Vec<String>,
        /// The largest text of a part, inline or in a file; 1 MiB if this is not set
        max_text: Option<FromText<Size>>,
        /// The largest data of a part, as compact JSON; 1 MiB if this is not set
        max_data: Option<FromText<Size>>,
        /// The largest inline media of a part; 5 MiB if this is not set
        max_media: Option<FromText<Size>>,
        /// The largest file of a workspace that is no text; 25 MiB if this is not set
        max_file: Option<FromText<Size>>,
        /// The largest content of a message in all; 64 MiB if this is not set
        max_total: Option<FromText<Size>>,
        /// Read the content of remote URLs; they are refused, if this is not set
        fetch_urls: bool,
        /// Networks that URLs may lead to although they are not public
        fetch_networks: Vec<FromText<Network>>,
    }
}

settings! {
    /// The tools of an MCP server as the agent.
    Mcp in "mcp.";

    flags McpArgs under "MCP" {
        /// The program of the MCP server and its arguments
        #[flag(mcp, value_name = "COMMAND")]
        #[help = "Serve the tools of an MCP server as the agent: its program with arguments, or its URL"]
        #[more_help = "The text is split as a shell does, such as `npx -y @modelcontextprotocol/server-everything`. For other \
            options use `mcp` in the configuration file."]
        command: Option<CommandLine>,
        /// The URL of an MCP server with streamable HTTP, instead of a program
        url: Option<FromText<HttpUrl>>,
        /// The name in the card; what the server says about itself, if this is not set
        name: Option<String>,
        /// The description in the card; what the server says about itself, if this is not set
        description: Option<String>,
        /// The tools that are skills; all of them, if this is not set
        tools: Vec<String>,
        /// The working directory of the program
        directory: Option<PathBuf>,
        /// Environment variables for the program
        environment: BTreeMap<String, Masked>,
        /// Environment variables of the server that the program gets as well
        pass_environment: Vec<String>,
        /// How long the program has to end after SIGTERM; 2 seconds if this is not set
        grace: Option<FromText<Time>>,
        /// Give every call a process for itself
        exclusive: bool,
        /// The token for a URL
        token: Option<Masked>,
        /// The file that the token for a URL is in
        token_file: Option<PathBuf>,
        /// Headers for a URL
        headers: BTreeMap<String, Masked>,
        /// The OAuth client for a URL
        oauth: Option<OAuthSettings>,
        /// Directories that the server is told about
        roots: Vec<PathBuf>,
        /// The model that answers requests of the server to sample one; they are refused, if this is not set
        sampling: Option<Model>,
        /// How long the server may take to start; 1 minute if this is not set
        start_timeout: Option<FromText<Time>>,
        /// How long a call may take; 10 minutes if this is not set
        timeout: Option<FromText<Time>>,
        /// How long a call waits for the answer to a question; 10 minutes if this is not set
        question_timeout: Option<FromText<Time>>,
        /// How large the result of a call may be; 16 MiB if this is not set
        max_output: Option<FromText<Size>>,
        /// How many calls run at once; 64 if this is not set
        calls: Option<FromText<Count>>,
    }
}

settings! {
    /// A remote A2A agent as the agent.
    Remote in "remote.";

    flags RemoteArgs under "Remote agent" {
        /// The address of the agent, or the URL of its card
        #[flag(remote, value_name = "URL")]
        #[help = "Serve a remote A2A agent as if it were this server's own: its address, or the URL of its card"]
        #[more_help = "The address can also name a transport: `unix:PATH`, `stdio:COMMAND`, `ws://…`, `grpc-jsonrpc://…` or \
            `redis-streams://…`. Credentials for the agent are in `delegation.agents` of the configuration file."]
        url: Option<String> as Option<FromText<AgentUrl>>,
        /// Which of its interfaces to use, the best one first; the first one that can be used if this is not set
        prefer: Vec<PreferredBinding>,
        /// The Redis server with its credentials, for a `redis-streams://` address
        redis: Option<Masked>,
        /// How often its card is read; every 5 minutes if this is not set
        refresh: Option<FromText<Time>>,
        /// Wait at the start until the agent can be reached
        wait: bool,
        /// How long a message may take; 1 hour if this is not set
        timeout: Option<FromText<Time>>,
        /// How large an answer may be; 64 MiB if this is not set
        max_bytes: Option<FromText<Size>>,
        /// Show callers the ids of the remote tasks
        show_ids: bool,
        /// How many contexts and tasks are remembered, each; 10000 if this is not set
        max_links: Option<FromText<Count>>,
    }
}

settings! {
    /// A router as the agent.
    Router in "router.";

    {
        /// The agent for messages that name none and match no rule
        #[mark(reload)] default: Option<String>,
        /// Which messages go to which agent; the first rule that matches counts
        #[mark(reload)] rules: Vec<RouterRule>,
    }
}

settings! {
    /// How the agent describes itself.
    Card in "card.";

    {
        /// The agent's name
        #[flag_in_iii(agent_name)]
        name: String,
        /// What it is
        #[flag_in_iii(agent_description)]
        description: String,
        /// Who runs it
        #[flag_in_iii(provider_org)]
        provider: String,
        /// The website of its provider
        #[flag_in_iii(provider_url)]
        provider_url: String,
        /// Where to read about the agent
        #[flag_in_iii(docs_url)]
        docs_url: String,
        /// The agent's own version
        version: Option<String>,
        /// Where its icon is
        icon_url: Option<FromText<HttpUrl>>,
        /// The media types that it takes, unless a skill has its own
        input_modes: Vec<String>,
        /// The media types that it produces, unless a skill has its own
        output_modes: Vec<String>,
        /// Its skills, beside those that it has by itself
        skills: Vec<CardSkill>,
        /// What the security schemes are called
        schemes: CardSchemes,
    }

    flags CardArgs under "Card" {
        /// How the card names the gRPC interface
        #[flag(card_grpc, value_enum, value_name = "HOW", default_value = "url")]
        grpc: CardGrpc,
        /// Which cards list the transports that are not part of the specification, such as WebSocket
        #[flag(card_transports, value_enum, value_name = "WHICH", default_value = "stated")]
        transports: ListTransports,
    }
}

settings! {
    /// Where workers join.
    Engine in "engine.";

    flags EngineArgs under "Engine" {
        /// The address that iii workers connect to
        #[flag(engine_listen, value_name = "ADDR", default_value = "127.0.0.1:49134")]
        listen: String,
        /// Let in only workers that show this token
        token: Option<Secret>,
        /// Let in only workers that show the token in this file
        #[flag(engine_token_file, value_name = "PATH")]
        #[help = "Let in only workers that show the token in this file; needed to listen on anything but this machine"]
        token_file: Option<PathBuf>,
        /// Register the skills of these remote agents as functions of the engine
        #[flag(connect, value_name = "URL")]
        #[help = "Register the skills of this remote agent as functions of the engine, named `a2a.<agent>::<skill>`; may be \
            repeated"]
        connect: Vec<String> as Vec<FromText<HttpUrl>>,
    }
}

settings! {
    /// Which agents tasks may be delegated to, and by whom.
    Delegation in "delegation.";

    {
        /// Whether it is offered
        #[flag_in_iii(no_delegation)]
        offered: bool,
        /// Let tasks be delegated to agents on this machine, for development
        #[flag_in_iii(allow_loopback_agents)]
        allow_loopback: bool,
        /// Let tasks be delegated to agents in these networks although they are not public
        #[flag_in_iii(allow_agent_network)]
        allow_networks: Vec<Network>,
        /// Files with keys that sign the cards of agents: a card that has signatures must have a valid one of them
        #[flag_in_iii(agent_keys)]
        card_keys: Vec<PathBuf> as Vec<PathBuf>,
        /// How many delegated tasks are remembered
        #[flag_in_iii(max_delegated_tasks)]
        max_tasks: Count,
        /// Require this token for `/api/a2a`
        api_token: Option<Secret>,
        /// Require the token in this file for `/api/a2a`
        #[flag_in_iii(api_token_file)]
        api_token_file: PathBuf,
        /// What other agents are shown, for delegated tasks and for `engine.connect`
        #[mark(reload)] agents: Vec<AgentSettings>,
    }
}
