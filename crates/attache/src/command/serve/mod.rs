//! `attache serve`: an agent on the network.

mod agents;
mod announcement;
mod artifacts;
mod demo;
mod functions;
mod kinds;
mod log;
mod named;
mod network;
mod private;
mod reload;
mod safe_mode;
mod stopping;
mod tools;

use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use attache::client::AddressBook;
use attache::core::{PushEvents, Retention, Store};
use attache::prelude::*;
use attache::server::auth::{AnonymousAccess, Reloadable};
use attache::server::{
    Cors, HttpService, Listening, PushOptions, PushQueue, RedisStreams, ServerError, ServerOptions,
    SigningKeys, SigningSecret, Tls, is_loopback_url,
};
use attache::store::StoreUrl;
use attache_iii::secrets;
use clap::Args;
use tokio::sync::Mutex;
use tracing_subscriber::EnvFilter;

pub(crate) use self::agents::AgentName;
use self::announcement::Announcement;
use self::artifacts::TemporaryPlace;
use self::functions::{FunctionArgs, Tokens};
pub(crate) use self::kinds::MODEL_KEY_VARIABLE;
use self::kinds::{AgentSection, BuildContext, CheckContext, CheckedAgent, KINDS, TurnTimes, named_agents};
use self::named::{RootAgent, RunningAgents};
use self::reload::{ReloadTargets, Reloader, Running, RunningServer};
use self::tools::ToolSources;
use super::store_location::SettingsFile;
use super::{Exit, Failure, keys};
use crate::config::{
    self, AccessArgs, AcpArgs, ArtifactArgs, ArtifactDirectoryArgs, Callers, CardArgs, CardOverrides, Compat,
    CompatArgs, ConversationSettings, CorsArgs, DisplayValue, HostArgs, KeepArgs, LimitArgs, LogArgs,
    McpArgs, ModelArgs, PathArgs, ProgramArgs, ProtocolArgs, PushArgs, RedisArgs, RemoteArgs,
    ResolvedSettings, ServerArgs, SigningArgs, Source, StoreArgs, TlsArgs, Unread,
};

/// The examples in `--help`.
pub(super) const EXAMPLES: &str = "Examples:\n  attache serve --demo                                  sample functions, to look around\n  attache serve --tier partner                          functions of iii workers for partners\n  attache serve --agent echo --listen 127.0.0.1:8080    the smallest agent\n  attache serve --agent echo --stdio                    for the process that starts it";

/// The arguments of `attache serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(super) file: SettingsFile,

    /// The source of each setting, and the settings without a flag.
    #[arg(skip)]
    pub(crate) settings: ResolvedSettings,

    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    protocol: ProtocolArgs,
    #[command(flatten)]
    signing: SigningArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    hosts: HostArgs,
    #[command(flatten)]
    cors: CorsArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    paths: PathArgs,
    #[command(flatten)]
    redis: RedisArgs,
    #[command(flatten)]
    push: PushArgs,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    artifact_directory: ArtifactDirectoryArgs,
    #[command(flatten)]
    artifacts: ArtifactArgs,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    acp: AcpArgs,
    #[command(flatten)]
    mcp: McpArgs,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    functions: FunctionArgs,
    #[command(flatten)]
    card: CardArgs,
    #[command(flatten)]
    compat: CompatArgs,
}

impl PushArgs {
    fn policy(&self, demo_here: bool) -> Policy {
        Policy::default()
            .allow_loopback(self.allow_loopback_webhooks || demo_here)
            .loopback_setting("--allow-loopback-webhooks")
            .allow(self.allow_webhook_network.iter().map(|network| network.0))
            .https_only(self.https_webhooks_only)
    }

    /// Refuses flags about push notifications together with `--no-push`. Such settings in the file are ignored.
    fn check(&self, settings: &ResolvedSettings) -> Result<(), Failure> {
        let useless =
            settings.resolved.iter().filter(|_| self.no_push).find_map(|setting| match &setting.source {
                Source::Flag(flag)
                    if setting.key.starts_with("push.") && setting.value != DisplayValue::Switch(false) =>
                {
                    Some(flag)
                }
                Source::Flag(_) | Source::Default | Source::File { .. } | Source::Environment(_) => None,
            });
        match useless {
            Some(flag) => {
                Err(Failure::usage(format!("`{flag}` is about push notifications, and there are none"))
                    .hint("leave it out, or `--no-push`"))
            }
            None => Ok(()),
        }
    }

    fn secret(&self, settings: &ResolvedSettings) -> Result<Option<SigningSecret>, Failure> {
        let in_file = secret_in(self.push_secret_file.as_deref(), "--push-secret-file")?;
        let written = settings.secret("push.secret", |settings| {
            (settings.push.secret.as_ref(), settings.push.secret_file.as_ref())
        })?;
        Ok(in_file.or(written.map(|secret| secret.reveal().into())).map(SigningSecret::new))
    }
}

/// Reads the secret in a file that a flag names.
pub(super) fn secret_in(file: Option<&Path>, flag: &str) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = file else { return Ok(None) };
    let secret = std::fs::read(path)
        .map_err(|error| Failure::usage(format!("`{flag} {}` cannot be read: {error}", path.display())))?;
    let secret = secret.trim_ascii();
    // A secret that is not text is a random key. Only its length is checked.
    let flaw = match std::str::from_utf8(secret) {
        Ok(text) => secrets::flaw(text),
        Err(_) => {
            (secret.len() < secrets::SHORTEST).then(|| format!("is shorter than {} bytes", secrets::SHORTEST))
        }
    };
    match flaw {
        Some(flaw) => Err(Failure::usage(format!("the secret in `{}` {flaw}", path.display()))
            .hint("make one with `openssl rand -hex 32`")),
        None => Ok(Some(secret.to_vec())),
    }
}

/// The settings after all checks.
pub(super) struct Prepared {
    filter: EnvFilter,
    /// The secret that signs notifications.
    push: Option<SigningSecret>,
    /// The keys that sign the card.
    keys: Option<SigningKeys>,
    /// The callers. Without any, no authentication is configured.
    pub(super) callers: Option<Callers>,
    tokens: Tokens,
    /// The credentials for other agents.
    agents: AddressBook,
    /// What the operator says about the agent.
    card: CardOverrides,
    /// The agents with names.
    named: BTreeMap<String, CheckedAgent>,
    /// The agent at the root, unless it is functions or a named one.
    root: Option<AgentSection>,
    /// The rules for conversations.
    conversation: ConversationSettings,
    /// The transport over Redis Streams.
    redis: Option<RedisStreams>,
    /// The push queue in Redis.
    queue: Option<PushQueue>,
    /// How long turns at the root may take.
    root_times: TurnTimes,
}

/// The parts of the server.
struct Parts {
    options: ServerOptions,
    /// The authenticator. Without a file there is none, since only the file can list callers.
    callers: Option<Reloadable>,
    tls: Option<Tls>,
    /// The running server, once it listens. A reload changes it.
    running: Running,
    /// The same for the tools of models.
    server: Arc<OnceLock<HttpService>>,
    /// The folder for artifacts with a store in memory.
    temporary: TemporaryPlace,
}

impl Serve {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        let is_temporary = self.is_for_one_process();
        if is_temporary {
            self.store.store = Some(StoreUrl::memory());
        }
        let prepared = self.prepare()?;
        let parts = self.parts(&prepared)?;
        let set_log_filter = self.log.start(prepared.filter.clone())?;
        if is_temporary {
            tracing::info!(
                "tasks are kept in memory until the server ends: `--store sqlite:PATH` keeps them in a file"
            );
        }
        // Before the store is opened, which needs file descriptors as each connection does.
        if let Err(error) = attache::server::raise_file_limit() {
            tracing::warn!(%error, "the limit on open files could not be raised");
        }
        for Unread { name, meant } in self.settings.unread() {
            tracing::warn!(variable = name, meant, "nothing reads this variable of the environment");
        }
        self.warn_about_iac_code()?;
        // Removed at the end, when nothing uses it any more.
        let temporary = parts.temporary.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
        let result = runtime.block_on(async {
            if let Some(callers) = &parts.callers {
                let targets = ReloadTargets {
                    authenticator: callers.clone(),
                    agents: prepared.agents.clone(),
                    set_log_filter,
                    running: parts.running.clone(),
                };
                Reloader::new(&self, &prepared, targets).start()?;
            }
            match self.agent()? {
                AgentName::Functions => functions::serve(self, prepared, parts).await,
                name @ (AgentName::Kind(_) | AgentName::Named(_)) => {
                    self.serve_agent(&name, prepared, parts).await
                }
            }
        });
        if result.as_ref().is_err_and(|failure| failure.exit == Exit::Interrupted) {
            // Nothing is waited for any more.
            runtime.shutdown_background();
        } else {
            drop(runtime);
        }
        drop(temporary);
        result
    }

    /// Checks all settings, before the server takes a port.
    pub(super) fn prepare(&self) -> Result<Prepared, Failure> {
        let mut failures = Vec::new();
        match self.prepare_all(&mut failures) {
            Some(prepared) if failures.is_empty() => Ok(prepared),
            Some(_) | None => Err(Failure::all(failures)),
        }
    }

    /// Checks all settings, and adds all failures. What depends on a setting that is wrong is not checked.
    pub(super) fn prepare_all(&self, failures: &mut Vec<Failure>) -> Option<Prepared> {
        let is_sound = |sections: &[&str]| !self.settings.is_wrong(sections);
        let filter = log::filter(&self.log.log).map_err(|error| {
            Failure::usage(format!("`--log {}` is not a filter: {error}", self.log.log))
                .hint("try `--log info`")
        });
        let filter = sound(filter, failures);
        if let Some(url) = self.server.base_url.as_ref().filter(|url| !is_http(url)) {
            let failure = Failure::usage(format!("`--base-url {url}` is not an `http` or `https` URL"));
            failures.push(failure.hint("try `--base-url https://agents.example.com`"));
        }
        let callers = sound(self.settings.callers(), failures);
        if let Some(callers) = &callers
            && self.server.base_url.as_deref().is_none_or(is_http)
            && is_sound(&["listen", "base-url", "insecure", "allowed-hosts", "cors"])
        {
            let addresses = self.addresses();
            let checked = network::check_addresses(&addresses)
                .map_err(|failure| self.settings.locate("listen", failure))
                .and_then(|()| self.guard(&addresses, callers.as_ref()));
            failures.extend(checked.err());
        }
        let known = callers.as_ref().and_then(Option::as_ref);
        if is_sound(&["tls"]) {
            failures.extend(self.tls.check(known).err());
        }
        if is_sound(&["paths"]) {
            failures.extend(self.paths.check(!self.artifacts.no_artifacts).err());
        }
        let redis = match is_sound(&["redis", "insecure"]) {
            true => sound(self.redis_streams(known.is_some()), failures),
            false => None,
        };
        failures.extend(self.push.check(&self.settings).err());
        let queue = match is_sound(&["push"]) {
            true => sound(self.push_queue(), failures),
            false => None,
        };
        let sections = ["agent", "functions", "engine", "delegation"].into_iter();
        let sections: Vec<_> = sections.chain(KINDS.iter().map(|kind| kind.name)).collect();
        let is_known = is_sound(&sections);
        let root = match is_known {
            true => sound(self.check_root(known), failures),
            false => None,
        };
        let has_functions = self.agent().is_ok_and(|name| name == AgentName::Functions);
        let named = sound(named_agents(&self.settings, has_functions), failures).map(|mut named| {
            let CardArgs { card_grpc, card_transports } = self.card;
            named.values_mut().for_each(|agent| agent.card.follow_server(card_grpc, card_transports));
            named
        });
        let push = sound(self.push.secret(&self.settings), failures);
        let keys = sound(self.signing_keys(), failures);
        let agents = sound(self.settings.agents(), failures);
        let card = sound(self.settings.card(), failures);
        let conversation =
            match is_sound(&["compat", "contexts", "workspaces", "input", "metadata-namespace"]) {
                true => sound(self.conversation(), failures),
                false => None,
            };
        let root = root?;
        Some(Prepared {
            filter: filter?,
            push: push?,
            keys: keys?,
            callers: callers?,
            agents: agents?,
            card: card?,
            named: named?,
            redis: redis?,
            queue: queue?,
            root_times: TurnTimes::default(),
            tokens: root.0,
            root: root.1,
            conversation: conversation?,
        })
    }

    /// The keys that sign the card.
    fn signing_keys(&self) -> Result<Option<SigningKeys>, Failure> {
        let written = self.settings.secret("signing.secret", |settings| {
            (settings.signing.secret.as_ref(), settings.signing.secret_file.as_ref())
        })?;
        let file = self.settings.file.as_ref().and_then(|file| file.settings.signing.secret_file.as_deref());
        let in_file = secret_in(file, "signing.secret-file")?;
        let secret = in_file.or(written.map(|secret| secret.reveal().into()));
        keys::for_serving(self.signing.signing_keys.as_ref(), secret)
    }

    /// The system whose behaviour the server takes over.
    pub(crate) fn compat(&self) -> Option<Compat> {
        self.compat.compat
    }

    /// Says which settings of iac-code have another effect here.
    fn warn_about_iac_code(&self) -> Result<(), Failure> {
        if self.compat() == Some(Compat::IacCode) {
            let file = self.settings.file.as_ref();
            let names_workspaces = file.is_some_and(|file| !file.settings.workspaces.is_empty());
            let url = self.store.url()?;
            let environment = |name: &str| std::env::var(name).ok();
            for warning in config::iac_code_warnings(&environment, names_workspaces, url.sqlite_path()) {
                tracing::warn!("{warning}");
            }
        }
        Ok(())
    }

    /// The rules for conversations.
    fn conversation(&self) -> Result<ConversationSettings, Failure> {
        let default = config::Settings::default();
        let settings = self.settings.file.as_ref().map_or(&default, |file| &file.settings);
        let mut conversation = settings.conversation(self.compat())?;
        let workspaces = self.keep_private(conversation.rules().workspaces)?;
        conversation.set_workspaces(workspaces);
        Ok(conversation)
    }

    /// Checks the settings of the agent at the root.
    fn check_root(&self, callers: Option<&Callers>) -> Result<(Tokens, Option<AgentSection>), Failure> {
        let name = self.agent()?;
        if name == AgentName::Functions {
            return Ok((self.functions.check(&self.settings, callers)?, None));
        }
        if self.functions.demo.demo {
            return Err(Failure::usage(format!(
                "`--demo` adds sample functions, which the agent `{name}` does not have"
            ))
            .hint("leave out one of them"));
        }
        let default = config::Settings::default();
        let file = self.settings.file.as_ref().map_or(&default, |file| &file.settings);
        let place = CheckContext { named: &file.agents, is_root: true, has_functions: false };
        let section = match &name {
            AgentName::Kind(kind) => Some(kind.at_root(self, file)?),
            AgentName::Named(name) if !file.agents.contains_key(name) => {
                return Err(self.settings.locate("agent", place.no_agent(name)));
            }
            AgentName::Named(_) | AgentName::Functions => None,
        };
        if let Some(section) = &section {
            section.check(&place)?;
        }
        Ok((Tokens::default(), section))
    }

    /// Serves an agent that needs no engine, until the process is stopped.
    async fn serve_agent(
        self,
        name: &AgentName,
        mut prepared: Prepared,
        parts: Parts,
    ) -> Result<(), Failure> {
        let idle = self.server.idle_shutdown.map(|time| time.0);
        let store = self.store.open().await?;
        let announcement = self.announcement(&prepared)?;
        let context = self.build_context(&store, &prepared, &parts);
        let named = std::mem::take(&mut prepared.named);
        let mut agents = RunningAgents::start(context, parts.callers.clone(), named).await?;
        let limits = config::caller_limits(&self.limits);
        let root = agents.root(name, prepared.root.take(), &prepared.card, &limits).await?;
        let RootAgent { built, authenticator, limits, times } = root;
        let mut server =
            Server::new(built.agent.clone()).card(built.current_card()).card_updates(built.cards());
        if let Some(authenticator) = authenticator {
            server = server.authenticate_root(authenticator);
        }
        if let Some(limits) = limits {
            server = server.limit_root(limits);
        }
        prepared.root_times = times;
        let listening = self.listen(server, store, prepared, parts, agents).await?;
        announcement.say(&listening.local_addresses().map_err(Failure::new)?, None);
        stopping::run(listening, idle).await
    }

    /// What agents get from the server that they run in.
    fn build_context(&self, store: &Arc<dyn Store>, prepared: &Prepared, parts: &Parts) -> BuildContext {
        BuildContext {
            kinds: kinds::kinds(),
            store: store.clone(),
            agents: prepared.agents.clone(),
            own_url: Some(self.own_url()).filter(|url| !url.ends_with(":0")),
            tools: ToolSources { server: parts.server.clone(), ..ToolSources::default() },
            conversation: prepared.conversation.clone(),
        }
    }

    /// The URL of the server, as far as it is known before the server listens.
    fn own_url(&self) -> String {
        let scheme = if self.tls.is_asked_for() { "https" } else { "http" };
        let addresses = self.addresses();
        let host = addresses.iter().find(|address| !address.starts_with(UNIX_PREFIX));
        let host = host.map_or("localhost", String::as_str);
        self.server.base_url.clone().unwrap_or_else(|| format!("{scheme}://{host}"))
    }

    /// The addresses to listen on. On standard input and output, the default is none.
    pub(super) fn addresses(&self) -> Vec<String> {
        let setting = self.settings.resolved.iter().find(|setting| setting.key == "listen");
        let is_default = setting.is_none_or(|setting| setting.source == Source::Default);
        match self.server.stdio && is_default {
            true => Vec::new(),
            false => self.server.listen.clone(),
        }
    }

    /// Whether only the process that starts the server can use it, and the store is not set. Several such servers can run at once, so none
    /// of them opens the file that is the store by default: one process at a time can use it.
    fn is_for_one_process(&self) -> bool {
        self.server.stdio
            && self.addresses().is_empty()
            && self.redis.redis.is_none()
            && self.store.store.is_none()
    }

    /// Whether the server uses TLS.
    pub(super) fn is_encrypted(&self) -> bool {
        self.tls.is_asked_for()
    }

    /// The agent to serve. The flag of a kind, such as `--program`, names it too.
    fn agent(&self) -> Result<AgentName, Failure> {
        let named = self.settings.resolved.iter().find(|setting| setting.key == "agent");
        let is_named = named.is_some_and(|setting| setting.source != Source::Default);
        let mut wanted = Vec::new();
        wanted.extend(is_named.then(|| ("agent", self.server.agent.clone())));
        let asked_for = KINDS.iter().filter(|kind| (kind.is_asked_for)(self));
        wanted.extend(asked_for.map(|kind| (kind.name, AgentName::Kind(kind))));
        match wanted.as_slice() {
            [] => Ok(self.server.agent.clone()),
            [(_, first), others @ ..] if others.iter().all(|(_, other)| other == first) => Ok(first.clone()),
            [(one, _), others @ ..] => {
                let other = others.last().map_or(*one, |(other, _)| *other);
                Err(Failure::usage(format!(
                    "`{one}` and `{other}` name different agents, and a server has one"
                ))
                .hint("leave out all but one"))
            }
        }
    }

    /// Whether there may be named agents: the file has a section for them.
    fn has_named_agents(&self) -> bool {
        self.settings.file.as_ref().is_some_and(|file| file.has("agents"))
    }

    /// The URL of the store.
    pub(super) fn store(&self) -> Result<String, Failure> {
        self.store.url().map(|url| url.to_string())
    }

    /// Refuses to serve other machines without authentication, unless `--insecure` is given.
    fn guard(&self, addresses: &[String], callers: Option<&Callers>) -> Result<(), Failure> {
        if callers.is_some() {
            return Ok(());
        }
        // The address that most machines can reach decides.
        let wide = addresses.iter().find(|listen| !is_here(std::slice::from_ref(*listen)));
        let listen = wide.or(addresses.first()).map_or("standard input", String::as_str);
        let located = |failure: Failure| Err(self.settings.locate("listen", failure));
        match (wide.is_none(), self.server.base_url.as_deref()) {
            (true, Some(url)) if !self.access.insecure && !is_loopback_url(url) => Err(Failure::usage(format!(
                "`base-url` says that others reach the server at `{url}`, and no authentication is configured"
            ))
            .hint("list who may call below `auth` in the configuration file, or let everyone in with `--insecure`")),
            (true, _) => network::check_pages(&self.hosts, &self.cors, self.access.insecure),
            (false, _) if !self.access.insecure => located(Failure::usage(format!(
                "on `{listen}` other machines can connect, and no authentication is configured"
            ))
            .hint(
                "list who may call below `auth` in the configuration file, listen on `127.0.0.1`, or let everyone in with `--insecure`",
            )),
            (false, _) if self.hosts.allowed_host.is_empty() => located(Failure::usage(format!(
                "on `{listen}` everyone is let in, and the host names of the server are not set"
            ))
            .hint(
                "list them in `allowed-hosts`, such as `--allowed-host agents.example.com`; `--allowed-host '*'` lets every web page in",
            )),
            (false, _) => Ok(()),
        }
    }

    /// The transport over Redis Streams. Refuses a Redis server that other machines can reach if callers are not authenticated, unless
    /// `--insecure` is given.
    fn redis_streams(&self, authenticates: bool) -> Result<Option<RedisStreams>, Failure> {
        let file = self.settings.file.as_ref().map(|file| &file.settings.redis);
        let Some(redis) = config::redis_streams(self.redis.redis.as_deref(), file)? else { return Ok(None) };
        if !redis.is_for_this_machine() && !authenticates && !self.access.insecure {
            let reached = redis.card_host.clone().filter(|_| redis.url.is_local());
            return Err(Failure::usage(format!(
                "other machines can reach Redis at `{}`, and no authentication is configured",
                reached.unwrap_or_else(|| redis.url.to_string())
            ))
            .hint("list who may call below `auth` in the configuration file, or let everyone in with `--insecure`"));
        }
        Ok(Some(redis))
    }

    /// The push queue in Redis. Without push notifications there is none.
    fn push_queue(&self) -> Result<Option<PushQueue>, Failure> {
        let Some(file) = &self.settings.file else { return Ok(None) };
        Ok(config::push_queue(&file.settings.push)?.filter(|_| !self.push.no_push))
    }

    /// Makes the parts of the server. Fails if a certificate or an issuer cannot be used.
    fn parts(&self, prepared: &Prepared) -> Result<Parts, Failure> {
        let root_name = match self.agent()? {
            AgentName::Named(name) => Some(name),
            AgentName::Functions | AgentName::Kind(_) => None,
        };
        let mut options = ServerOptions::default().with(|options| {
            options.paths = self.paths.paths();
            options.strict_version = self.protocol.strict_version;
            options.pure_card = self.protocol.pure_card;
            options.public_card = self.protocol.public_card;
            options.public_health = self.protocol.public_health;
            options.allowed_hosts = self.hosts.allowed_host.clone();
            options.cors = Cors { origins: self.cors.cors_origin.clone() };
            options.request_log = self.log.log_requests.0;
            options.grpc_address = self.card.card_grpc.into();
            options.card_transports = self.card.card_transports.into();
            // A named agent has the same card at the root and at its own address.
            let named = root_name.as_ref().and_then(|name| prepared.named.get(name));
            let card = named.map_or(&prepared.card, |agent| &agent.card);
            card.presentation().apply_to_server(options);
        });
        config::limits(&self.limits, &mut options);
        let callers = match (&self.settings.file, &prepared.callers) {
            // Without a file there are no callers, and a reload cannot add any.
            (None, _) => None,
            (Some(_), None) => Some(Reloadable::new(AnonymousAccess)),
            (Some(_), Some(callers)) => Some(Reloadable::new(config::authenticator(callers)?)),
        };
        let tls = config::tls(&self.tls);
        if let Some(tls) = &tls {
            tls.reload().map_err(|error| Failure::usage(format!("`tls`: {error}")))?;
        }
        let (running, server, temporary) = (Running::default(), Arc::default(), TemporaryPlace::default());
        Ok(Parts { options, callers, tls, running, server, temporary })
    }

    fn announcement(&self, prepared: &Prepared) -> Result<Announcement, Failure> {
        let root = match self.agent()? {
            AgentName::Named(name) => prepared.named.get(&name),
            AgentName::Functions | AgentName::Kind(_) => None,
        };
        let root_callers = root.and_then(|agent| agent.callers.as_ref());
        Ok(Announcement {
            kept: self.store()?,
            paths: self.paths.paths(),
            config: self.settings.file.as_ref().map(|file| file.path.display().to_string()),
            callers: root_callers.or(prepared.callers.as_ref()).cloned(),
            encrypted: self.tls.is_asked_for(),
            agents: prepared.named.keys().cloned().collect(),
        })
    }

    /// Lets a server listen.
    async fn listen<A: Agent>(
        &self,
        server: Server<A>,
        store: Arc<dyn Store>,
        prepared: Prepared,
        parts: Parts,
        agents: RunningAgents,
    ) -> Result<Listening, Failure> {
        let artifacts = self.open_artifacts(&*store, &parts.temporary, prepared.redis.as_ref())?;
        let mut queue = prepared.queue;
        if let Some(queue) = &mut queue {
            // Jobs are encrypted as the secrets in the store are.
            queue.seal = Arc::new(self.store.keyring()?);
        }
        // With sample functions, a newcomer can try webhooks on one machine.
        let policy = self.push.policy(self.functions.demo.demo && is_here(&self.server.listen));
        // The card of iac-code always offers an extended one; where callers are not asked who they are, everyone gets it.
        let offers_extended = self.compat() == Some(Compat::IacCode);
        let admits_everyone = prepared.callers.is_none();
        let mut server = self
            .addresses()
            .into_iter()
            .fold(server, Server::bind)
            .shared_store(store)
            .push(!self.push.no_push)
            .push_options(|push: &mut PushOptions| {
                (push.policy, push.secret, push.queue) = (policy, prepared.push, queue);
            })
            .options(|options| *options = parts.options)
            .change_cards(move |card| {
                prepared.card.apply(card);
                if offers_extended {
                    card.capabilities.extended_agent_card = Some(true);
                }
            })
            .service_options(|options| {
                options.retention = Retention::default()
                    .max_age(self.keep.keep_for.map(|age| age.0))
                    .max_tasks(self.keep.keep_tasks.and_then(|count| usize::try_from(count).ok()));
                config::service_limits(&self.limits, options);
                if let Some(file) = &self.settings.file {
                    file.settings.work_options(options);
                }
                prepared.root_times.apply(options);
                options.redaction = self.redaction(prepared.redis.as_ref());
                options.peer = prepared.conversation.peer();
                options.extended_card_for_anyone |= offers_extended && admits_everyone;
                if self.push.push_every_event {
                    options.push_events = PushEvents::Everything;
                }
            });
        if self.server.stdio {
            server = server.stdio();
        }
        if let Some(url) = &self.server.base_url {
            server = server.base_url(url);
        }
        if let Some(artifacts) = artifacts {
            server = server.artifacts(artifacts);
        }
        if let Some(keys) = prepared.keys {
            server = server.signing(keys);
        }
        if let Some(callers) = parts.callers {
            server = server.authenticate(callers);
        }
        if let Some(tls) = parts.tls.clone() {
            server = server.tls(tls);
        }
        if let Some(redis) = prepared.redis {
            server = server.redis(redis);
        }
        // A reload can add the first one. A section that is empty reserves the path too.
        if self.has_named_agents() {
            server = server.named_agents();
        }
        let listening = server.listen().await.map_err(|error| {
            let hint = if matches!(error, ServerError::Redis { .. }) {
                "start Redis 6.2 or later there, or leave out `--redis`"
            } else {
                "choose another address with `--listen`, such as `--listen 127.0.0.1:0` or `--listen unix:PATH`"
            };
            Failure::new(error).hint(hint)
        })?;
        let http = listening.http_service();
        let _ = parts.server.set(http.clone());
        if let Some(server) = http.agents() {
            agents.publish(server, &config::caller_limits(&self.limits))?;
        }
        let _ = parts.running.set(RunningServer { http, tls: parts.tls, agents: Mutex::new(agents) });
        Ok(listening)
    }
}

/// The value, or else one failure more.
fn sound<T>(result: Result<T, Failure>, failures: &mut Vec<Failure>) -> Option<T> {
    result.map_err(|failure| failures.push(failure)).ok()
}

fn is_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// What the address of a Unix socket begins with.
pub(super) const UNIX_PREFIX: &str = "unix:";

/// Whether only this machine can connect to all of the addresses. An invalid address is reported when the server listens.
fn is_here(addresses: &[String]) -> bool {
    let is_loopback = |listen: &String| {
        listen
            .to_socket_addrs()
            .map_or(true, |mut addresses| addresses.all(|address| address.ip().to_canonical().is_loopback()))
    };
    addresses.iter().all(|listen| listen.starts_with(UNIX_PREFIX) || is_loopback(listen))
}
