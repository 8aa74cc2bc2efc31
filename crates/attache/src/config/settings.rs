//! Every setting of `attache serve`, declared once: see [`declare`](super::declare) for how.
//!
//! Everything is optional in the file. The environment, the flags and their defaults decide what the file does not set.

mod agents;
mod data;
mod network;

use std::collections::BTreeMap;
use std::path::PathBuf;

use attache::server::AllowedHost;
use attache::store::StoreUrl;
use attache_agents::AgentSettings;
use clap::ArgAction;

pub(crate) use self::agents::{
    Acp, AcpArgs, Mcp, McpArgs, Model, ModelArgs, Program, ProgramArgs, Remote, RemoteArgs, Router,
};
use self::agents::{Contexts, Input};
pub(crate) use self::data::{
    ArtifactArgs, ArtifactDirectoryArgs, ArtifactUrlKind, KeepArgs, Push, PushArgs, PushQueueKind, PushRedis,
};
use self::data::{Artifacts, Keep};
pub(crate) use self::network::{
    ClientCertificates, CorsArgs, LimitArgs, Limits, PathArgs, Redis, RedisArgs, TlsArgs,
};
use self::network::{Cors, Paths, Tls};
use super::agents::NamedAgent;
use super::auth::{Auth, StringList};
use super::card::{CardGrpc, CardSchemes, CardSkill, ListTransports};
use super::conversation::Compat;
use super::declare::settings;
use super::log::{LogFormat, LoggedRequests};
use super::reports::{
    ExtensionUri, MaskSettings, MetadataNamespace, PermissionChoice, PermissionSetting, SafeMode,
    ThinkingExposure,
};
use super::secret::Secret;
use super::units::{Count, Filter, FromText, HttpUrl, Network, Seconds, Time};
use crate::command::AgentName;

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
