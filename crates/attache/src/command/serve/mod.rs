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
mod prepare;
mod private;
mod reload;
mod safe_mode;
mod stopping;
mod tools;

use std::net::ToSocketAddrs;
use std::sync::{Arc, OnceLock};

use attache::core::{PushEvents, Retention, Store};
use attache::prelude::*;
use attache::server::auth::{AnonymousAccess, Reloadable};
use attache::server::{Cors, HttpService, Listening, PushOptions, ServerError, ServerOptions, Tls};
use attache::store::StoreUrl;
use clap::Args;
use tokio::sync::Mutex;

pub(crate) use self::agents::AgentName;
use self::announcement::Announcement;
use self::artifacts::TemporaryPlace;
use self::functions::FunctionArgs;
use self::kinds::BuildContext;
pub(crate) use self::kinds::MODEL_KEY_VARIABLE;
use self::named::{RootAgent, RunningAgents};
use self::prepare::Prepared;
pub(super) use self::prepare::secret_in;
use self::reload::{ReloadTargets, Reloader, Running, RunningServer};
use self::tools::ToolSources;
use super::store_location::SettingsFile;
use super::{Exit, Failure};
use crate::config::{
    self, AccessArgs, AcpArgs, ArtifactArgs, ArtifactDirectoryArgs, CardArgs, Compat, CompatArgs, CorsArgs,
    HostArgs, KeepArgs, LimitArgs, LogArgs, McpArgs, ModelArgs, PathArgs, ProgramArgs, ProtocolArgs,
    PushArgs, RedisArgs, RemoteArgs, ResolvedSettings, ServerArgs, SigningArgs, Source, StoreArgs, TlsArgs,
    Unread,
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

    /// Whether there may be named agents: the file has a section for them.
    fn has_named_agents(&self) -> bool {
        self.settings.file.as_ref().is_some_and(|file| file.has("agents"))
    }

    /// The URL of the store.
    pub(super) fn store(&self) -> Result<String, Failure> {
        self.store.url().map(|url| url.to_string())
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
        let artifacts = self.open_artifacts(&*store, &parts.temporary)?;
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
