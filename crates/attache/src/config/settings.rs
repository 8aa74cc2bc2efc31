//! The shape of the file: what can be set, under which keys.
//!
//! Everything is optional here. What is not set is settled by the environment, by flags, or by the defaults of the flags.

use std::path::PathBuf;

use attache::server::{AllowedHost, AllowedOrigin};
use attache_agents::AgentSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::Auth;
use super::secret::Secret;
use super::units::{Count, Filter, HttpPath, HttpUrl, Network, Said, Seconds, Size, StoreText, Time};

/// The settings of `attache serve`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[schemars(title = "attache.yml")]
pub(crate) struct Settings {
    /// Which agent to serve
    pub(crate) agent: Option<Kind>,
    /// The address to listen on
    pub(crate) listen: Option<String>,
    /// The URL that the card advertises, if clients reach the server under another one
    pub(crate) base_url: Option<Said<HttpUrl>>,
    /// Where tasks are kept
    pub(crate) store: Option<Said<StoreText>>,
    /// The file of the keys that the secrets of webhooks are encrypted with
    pub(crate) keyring: Option<PathBuf>,
    /// Refuse requests that do not say which protocol version they speak
    pub(crate) strict_version: Option<bool>,
    /// Give everyone the card of protocol 1.0 alone
    pub(crate) pure_card: Option<bool>,
    /// Show the card to callers who do not say who they are
    pub(crate) public_card: Option<bool>,
    /// Answer health checks of callers who do not say who they are
    pub(crate) public_health: Option<bool>,
    /// Let everyone in without credentials, also where other machines can reach the server
    pub(crate) insecure: Option<bool>,
    /// The host names that the server answers to beside its own, where callers are not authenticated
    pub(crate) allowed_hosts: Vec<Said<AllowedHost>>,
    /// Which web pages may call the server
    pub(crate) cors: Cors,
    /// What to log
    pub(crate) log: Option<Said<Filter>>,
    /// Who may call
    pub(crate) auth: Option<Auth>,
    /// What the card is signed with
    pub(crate) signing: Signing,
    /// Encrypted connections
    pub(crate) tls: Tls,
    /// How much callers may ask for
    pub(crate) limits: Limits,
    /// Where the bindings answer
    pub(crate) paths: Paths,
    /// Push notifications
    pub(crate) push: Push,
    /// How long tasks are kept
    pub(crate) keep: Keep,
    /// Which functions are skills
    pub(crate) functions: Functions,
    /// How the agent describes itself
    pub(crate) card: Card,
    /// Where workers join
    pub(crate) engine: Engine,
    /// Which agents tasks may be delegated to, and by whom
    pub(crate) delegation: Delegation,
}

/// The agents that come with the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// The functions that iii workers register, as skills
    Functions,
    /// Gives back what it gets
    Echo,
}

/// Which web pages may call the server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Cors {
    /// The origins of those pages
    origins: Vec<Said<AllowedOrigin>>,
}

/// What the card is signed with.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Signing {
    /// The file that `attache keys new` makes
    keys: Option<PathBuf>,
}

/// Encrypted connections.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Tls {
    /// The file of the server's certificate and those above it, as PEM
    certificate: Option<PathBuf>,
    /// The file of its private key, as PEM
    key: Option<PathBuf>,
    /// The file of the authorities that vouch for clients, as PEM
    client_ca: Option<PathBuf>,
    /// Whether clients show certificates
    client_certificates: Option<ClientCertificates>,
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

/// How much callers may ask for.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Limits {
    /// How many requests a caller may make in a second
    requests_per_second: Option<Said<Count>>,
    /// How many requests a caller may make at once after a pause
    burst: Option<Said<Count>>,
    /// How many requests in a second may come from one address
    requests_per_second_per_address: Option<Said<Count>>,
    /// How many requests may come at once from one address after a pause
    burst_per_address: Option<Said<Count>>,
    /// How many requests of one caller are worked on at once
    requests_per_caller: Option<Said<Count>>,
    /// How many streams one caller may have open
    streams_per_caller: Option<Said<Count>>,
    /// How many turns of one caller run at once
    turns_per_caller: Option<Said<Count>>,
    /// How long a request may wait while its caller is at a limit
    queue_timeout: Option<Said<Time>>,
    /// The largest body
    body: Option<Said<Size>>,
    /// The largest set of request headers
    headers: Option<Said<Size>>,
    /// How deep JSON may nest
    depth: Option<Said<Count>>,
    /// How many parts a message may have
    parts: Option<Said<Count>>,
    /// How many webhooks a task may have
    push_configs_per_task: Option<Said<Count>>,
    /// How many requests are worked on at once
    requests: Option<Said<Count>>,
    /// How many connections may be open at once
    connections: Option<Said<Count>>,
    /// How many connections may come from one address
    connections_per_address: Option<Said<Count>>,
    /// How many requests may be open at once on one connection of HTTP/2
    streams_per_connection: Option<Said<Count>>,
    /// How long a client may take to send the headers of a request, and a connection may stay idle
    header_timeout: Option<Said<Time>>,
    /// How long a client may take to send a body
    body_timeout: Option<Said<Time>>,
    /// How long a client may take to send anything after it has connected
    first_byte_timeout: Option<Said<Time>>,
    /// The proxies whose word on where a request comes from is taken
    trusted_proxies: Option<Vec<Said<Network>>>,
    /// Whether those on this machine who do not say who they are, and connections from it, are limited too
    loopback: Option<bool>,
}

/// Where the bindings answer.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Paths {
    /// The paths of the JSON-RPC binding; the first one is advertised
    jsonrpc: Vec<Said<HttpPath>>,
    /// Further paths of the JSON-RPC binding, for clients of protocol 0.1
    oldest: Vec<Said<HttpPath>>,
    /// What the paths of the HTTP+JSON binding begin with
    http_json: Option<Said<HttpPath>>,
    /// Whether the gRPC binding answers
    grpc: Option<bool>,
}

/// Push notifications.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Push {
    /// Whether they are offered
    offered: Option<bool>,
    /// Tell webhooks of every event, not only of every new status
    every_event: Option<bool>,
    /// Sign what webhooks are told with this secret
    pub(crate) secret: Option<Secret>,
    /// Sign what webhooks are told with the secret in this file
    pub(crate) secret_file: Option<PathBuf>,
    /// Let webhooks be on this machine, for development
    allow_loopback: Option<bool>,
    /// Let webhooks be in these networks although they are not public
    allow_networks: Vec<Said<Network>>,
    /// Refuse webhooks that are not `https`
    https_only: Option<bool>,
}

/// How long tasks are kept.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Keep {
    /// Forget tasks that ended longer ago than this
    r#for: Option<Said<Time>>,
    /// Forget tasks that have ended beyond this many of each caller
    tasks: Option<u32>,
}

/// Which functions are skills.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Functions {
    /// Add a few sample functions to try
    demo: Option<bool>,
    /// Expose functions whether or not their metadata says so, for development
    expose_all: Option<bool>,
    /// Show only functions whose metadata has this `a2a.tier`
    tier: Option<String>,
    /// The function that gets messages which name none
    default: Option<String>,
    /// How long a function may take whose metadata has no `a2a.timeoutMs`
    call_timeout: Option<Said<Seconds>>,
    /// Whether streams are offered
    streaming: Option<bool>,
}

/// How the agent describes itself.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Card {
    /// The agent's name
    name: Option<String>,
    /// What it is
    description: Option<String>,
    /// Who runs it
    provider: Option<String>,
    /// Where to find out about whoever runs it
    provider_url: Option<String>,
    /// Where to read about the agent
    docs_url: Option<String>,
}

/// Where workers join.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Engine {
    /// The address that iii workers connect to
    listen: Option<String>,
    /// Let in only workers that show this token
    pub(crate) token: Option<Secret>,
    /// Let in only workers that show the token in this file
    pub(crate) token_file: Option<PathBuf>,
    /// Register the skills of these remote agents as functions of the engine
    connect: Vec<Said<HttpUrl>>,
}

/// Which agents tasks may be delegated to, and by whom.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Delegation {
    /// Whether it is offered
    offered: Option<bool>,
    /// Let tasks be delegated to agents on this machine, for development
    allow_loopback: Option<bool>,
    /// Let tasks be delegated to agents in these networks although they are not public
    allow_networks: Vec<Said<Network>>,
    /// How many delegated tasks are remembered
    max_tasks: Option<Said<Count>>,
    /// Let in whoever shows this token to `/api/a2a`
    pub(crate) api_token: Option<Secret>,
    /// Let in whoever shows the token in this file to `/api/a2a`
    pub(crate) api_token_file: Option<PathBuf>,
    /// What other agents are shown, for delegated tasks and for `engine.connect`
    pub(crate) agents: Vec<AgentSettings>,
}
