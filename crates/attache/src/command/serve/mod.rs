//! `attache serve`: an agent on the network.

mod announcement;
mod demo;
mod functions;
mod network;
mod reload;

use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use attache::client::AddressBook;
use attache::core::{News, Retention, Store};
use attache::prelude::*;
use attache::server::auth::{Authenticator, Everyone, Exchangeable};
use attache::server::{
    AllowedOrigin, Cors, FallbackAccess, Listening, PushOptions, ServerOptions, SigningKeys, SigningSecret,
    Tls, is_loopback_url,
};
use attache_iii::delegation::{Access, Api};
use attache_iii::engine::{HttpRoute, PublicOnly};
use attache_iii::secrets;
use clap::Args;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use self::announcement::{Announcement, Hosted};
use self::functions::{FunctionArgs, Started, Tokens};
use self::reload::{Exchanged, Refilter, Reloading, Running};
use super::place::SettingsFile;
use super::{Failure, keys};
use crate::config::{
    self, AccessArgs, Callers, CorsArgs, HostArgs, KeepArgs, Kind, LimitArgs, LogArgs, PathArgs,
    ProtocolArgs, PushArgs, ServerArgs, Settled, Shown, SigningArgs, Source, StoreArgs, TlsArgs, Unread,
};

/// What to try.
pub(super) const EXAMPLES: &str = "Examples:\n  attache serve --demo                                  sample functions, to look around\n  attache serve --tier partner                          functions of iii workers for partners\n  attache serve --agent echo --listen 127.0.0.1:8080    the smallest agent";

/// Which agent to serve, and where.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(super) file: SettingsFile,

    /// Where the settings come from, and those that have no flag.
    #[arg(skip)]
    pub(crate) settled: Settled,

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
    push: PushArgs,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    functions: FunctionArgs,
}

impl PushArgs {
    fn policy(&self) -> Policy {
        Policy::default()
            .allow_loopback(self.allow_loopback_webhooks)
            .allow(self.allow_webhook_network.iter().map(|network| network.0))
            .https_only(self.https_webhooks_only)
    }

    /// Finds out whether something was asked for that there is then no use for. What the file says may wait for its time.
    fn check(&self, settled: &Settled) -> Result<(), Failure> {
        let useless =
            settled.resolved.iter().filter(|_| self.no_push).find_map(|setting| match &setting.source {
                Source::Flag(flag)
                    if setting.key.starts_with("push.") && setting.value != Shown::Switch(false) =>
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

    fn secret(&self, settled: &Settled) -> Result<Option<SigningSecret>, Failure> {
        let in_file = secret_in(self.push_secret_file.as_deref(), "--push-secret-file")?;
        let written = settled.secret("push.secret", |settings| {
            (settings.push.secret.as_ref(), settings.push.secret_file.as_ref())
        })?;
        Ok(in_file.or(written.map(|secret| secret.reveal().into())).map(SigningSecret::new))
    }
}

/// The secret in a file that a flag names.
pub(super) fn secret_in(file: Option<&Path>, flag: &str) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = file else { return Ok(None) };
    let secret = std::fs::read(path)
        .map_err(|error| Failure::usage(format!("`{flag} {}` cannot be read: {error}", path.display())))?;
    let secret = secret.trim_ascii();
    // What is no text is a key that others do not type.
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

/// What the settings come to, once it is certain that they are in order.
pub(super) struct Prepared {
    filter: EnvFilter,
    /// What notifications are signed with.
    push: Option<SigningSecret>,
    /// What the card is signed with.
    keys: Option<SigningKeys>,
    /// Who may call; nobody is asked if there is nothing here.
    pub(super) callers: Option<Callers>,
    tokens: Tokens,
    /// What other agents are shown.
    agents: AddressBook,
}

/// What the server is made of.
struct Parts {
    options: ServerOptions,
    /// What finds out who calls, if there is a file that may say so.
    callers: Option<Exchangeable>,
    tls: Option<Tls>,
    /// What can be changed of the server, once it has its port.
    running: Running,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let prepared = self.prepare()?;
        let parts = self.parts(&prepared)?;
        // A log that nobody reads any more must not stop the server.
        let log = tracing_subscriber::fmt().with_writer(anstream::stderr).log_internal_errors(false);
        let log = log.with_env_filter(prepared.filter.clone()).with_filter_reloading();
        let handle = log.reload_handle();
        let refilter: Refilter = Box::new(move |filter| handle.reload(filter).map_err(Failure::new));
        log.init();
        // Before the store is opened: each connection needs a file as well.
        if let Err(error) = attache::server::raise_file_limit() {
            tracing::warn!(%error, "the limit on open files could not be raised");
        }
        for Unread { name, meant } in self.settled.unread() {
            tracing::warn!(variable = name, meant, "nothing reads this variable of the environment");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
        runtime.block_on(async {
            if let Some(callers) = &parts.callers {
                let exchanged = Exchanged {
                    authenticator: callers.clone(),
                    agents: prepared.agents.clone(),
                    refilter,
                    running: parts.running.clone(),
                };
                Reloading::new(&self, &prepared, exchanged).start()?;
            }
            match self.server.agent {
                Kind::Echo => self.serve_echo(prepared, parts).await,
                Kind::Functions => self.serve_functions(prepared, parts).await,
            }
        })
    }

    /// Looks at everything that can be wrong with the settings, before any port is taken.
    pub(super) fn prepare(&self) -> Result<Prepared, Failure> {
        let filter = EnvFilter::try_new(&self.log.log).map_err(|error| {
            Failure::usage(format!("`--log {}` is not a filter: {error}", self.log.log))
                .hint("try `--log info`")
        })?;
        if let Some(url) = self.server.base_url.as_ref().filter(|url| !is_http(url)) {
            return Err(Failure::usage(format!("`--base-url {url}` is not an `http` or `https` URL"))
                .hint("try `--base-url https://agents.example.com`"));
        }
        let callers = self.settled.callers()?;
        self.guard(&self.server.listen, callers.as_ref())?;
        self.tls.check(callers.as_ref())?;
        self.paths.check()?;
        self.push.check(&self.settled)?;
        let tokens = match self.server.agent {
            Kind::Echo if self.functions.demo.demo => {
                return Err(Failure::usage(
                    "`--demo` adds sample functions, which `--agent echo` does not have",
                )
                .hint("leave `--agent` out"));
            }
            Kind::Echo => Tokens::default(),
            Kind::Functions => self.functions.check(&self.settled)?,
        };
        let tiers = callers.as_ref().is_some_and(Callers::have_tiers);
        if tiers && matches!(self.server.agent, Kind::Functions) && !self.functions.has_tier() {
            return Err(Failure::usage(
                "some callers have a tier, and it is not said which one the others are in",
            )
            .hint("say so with `functions.tier` or `--tier`, such as `--tier public`"));
        }
        Ok(Prepared {
            filter,
            push: self.push.secret(&self.settled)?,
            keys: keys::for_serving(self.signing.signing_keys.as_ref())?,
            callers,
            tokens,
            agents: self.settled.agents()?,
        })
    }

    /// Where tasks are kept.
    pub(super) fn store(&self) -> Result<String, Failure> {
        self.store.url().map(|url| url.to_string())
    }

    /// Refuses to let everyone in from everywhere, unless that is what is wanted.
    fn guard(&self, listen: &str, callers: Option<&Callers>) -> Result<(), Failure> {
        if callers.is_some() {
            return Ok(());
        }
        match (is_here(listen), self.server.base_url.as_deref()) {
            (true, Some(url)) if !self.access.insecure && !is_loopback_url(url) => Err(Failure::usage(format!(
                "`base-url` says that others reach the server at `{url}`, and callers would not be asked who they are"
            ))
            .hint("list who may call below `auth` in the configuration file, or let everyone in with `--insecure`")),
            (true, _) => network::check_pages(&self.hosts, &self.cors, self.access.insecure),
            (false, _) if !self.access.insecure => Err(Failure::usage(format!(
                "on `{listen}` other machines can connect, and callers would not be asked who they are"
            ))
            .hint(
                "list who may call below `auth` in the configuration file, listen on `127.0.0.1`, or let everyone in with `--insecure`",
            )),
            (false, _) if self.hosts.allowed_host.is_empty() => Err(Failure::usage(format!(
                "on `{listen}` everyone is let in, and it is not said which host names are the server's"
            ))
            .hint(
                "list them in `allowed-hosts`, such as `--allowed-host agents.example.com`; `--allowed-host '*'` lets every web page in",
            )),
            (false, _) => Ok(()),
        }
    }

    /// What the server is made of. What it cannot do is refused here.
    fn parts(&self, prepared: &Prepared) -> Result<Parts, Failure> {
        let mut options = ServerOptions {
            paths: self.paths.paths(),
            strict_version: self.protocol.strict_version,
            pure_card: self.protocol.pure_card,
            public_card: self.protocol.public_card,
            public_health: self.protocol.public_health,
            allowed_hosts: self.hosts.allowed_host.clone(),
            cors: Cors { origins: self.cors.cors_origin.clone() },
            ..ServerOptions::default()
        };
        config::limits(&self.limits, &mut options);
        let callers = match (&self.settled.file, &prepared.callers) {
            // Nobody is asked, and there is no file that could change that.
            (None, _) => None,
            (Some(_), None) => Some(Exchangeable::new(Everyone)),
            (Some(_), Some(callers)) => Some(Exchangeable::new(config::authenticator(callers)?)),
        };
        let tls = config::tls(&self.tls);
        if let Some(tls) = &tls {
            tls.reload().map_err(|error| Failure::usage(format!("`tls`: {error}")))?;
        }
        Ok(Parts { options, callers, tls, running: Running::default() })
    }

    fn announcement(&self, prepared: &Prepared) -> Result<Announcement, Failure> {
        Ok(Announcement {
            kept: self.store()?,
            paths: self.paths.paths(),
            config: self.settled.file.as_ref().map(|file| file.path.display().to_string()),
            callers: prepared.callers.clone(),
            encrypted: self.tls.is_asked_for(),
        })
    }

    async fn serve_echo(self, prepared: Prepared, parts: Parts) -> Result<(), Failure> {
        let store = self.store.open()?;
        let announcement = self.announcement(&prepared)?;
        let listening = self.listen(Server::echo(), store, prepared, parts).await?;
        announcement.say(listening.address().map_err(Failure::new)?, None);
        listening.run().await.map_err(|error| Failure::new(format!("the server stopped: {error}")))
    }

    async fn serve_functions(self, mut prepared: Prepared, parts: Parts) -> Result<(), Failure> {
        let store = self.store.open()?;
        let announcement = self.announcement(&prepared)?;
        let scheme = if parts.tls.is_some() { "https" } else { "http" };
        let own_url =
            self.server.base_url.clone().unwrap_or_else(|| format!("{scheme}://{}", self.server.listen));
        let tokens = std::mem::take(&mut prepared.tokens);
        let Started { engine, listening: workers, gateway, delegation, api_token } =
            self.functions.start(store.clone(), own_url, tokens, prepared.agents.clone()).await?;
        let (mut exact, below) = self.paths.paths().answered();
        exact.extend(prepared.keys.iter().map(|_| "/.well-known/jwks.json".to_owned()));
        engine.reserve_paths(exact.iter().map(String::as_str), below.iter().map(String::as_str));
        engine.reserve_paths(Api::paths(), []);
        // Who may use the API depends on the address that is listened on.
        let api: Arc<OnceLock<Api>> = Arc::default();
        let (triggers, delegating, origins) = (engine.clone(), api.clone(), engine.clone());
        let (callers, routes) = (parts.callers.clone(), engine.clone());
        let mut server = Server::new(gateway.clone())
            .card(gateway.card())
            .card_updates(gateway.cards())
            .fallback_access(move |head| match routes.http_route(&head.method, head.uri.path()) {
                _ if Api::answers(head.uri.path()) => FallbackAccess::Own,
                HttpRoute::None | HttpRoute::Public => FallbackAccess::Everyone,
                HttpRoute::Callers => FallbackAccess::Callers,
            })
            .fallback(move |mut request| {
                let (engine, api) = (triggers.clone(), delegating.clone());
                let authenticated = callers.as_ref().is_some_and(|callers| !callers.admits_everyone());
                async move {
                    match request.extensions().get::<FallbackAccess>() {
                        Some(FallbackAccess::Own | FallbackAccess::Everyone) => {
                            request.extensions_mut().insert(PublicOnly);
                        }
                        Some(FallbackAccess::Callers) | None => {}
                    }
                    match api.get().filter(|_| Api::answers(request.uri().path())) {
                        // Whoever sets `auth` does not take programs on this machine for trusted: one of them may be a proxy.
                        Some(api) if authenticated => api.for_authenticated().handle(request).await,
                        Some(api) => api.handle(request).await,
                        None => engine.handle_http(request).await,
                    }
                }
            })
            .fallback_cors(move |method, path| cors_of(&origins.http_origins(method, path), path));
        if prepared.callers.is_some() {
            let gateway = gateway.clone();
            server = server.card_for(move |rights| gateway.card_for(rights));
        }
        let listening = self.listen(server, store, prepared, parts).await?;
        let address = listening.address().map_err(Failure::new)?;
        let mut _offers = Vec::new();
        if let Some(delegation) = delegation {
            let hosts = self.hosts.allowed_host.iter().map(|host| format!("http://{host}"));
            let access =
                Access::new(api_token, address.ip(), self.server.base_url.iter().cloned().chain(hosts));
            let public = self.server.base_url.clone().unwrap_or_else(|| format!("{scheme}://{address}"));
            delegation.at_home(gateway, public);
            _offers = delegation.offer(&engine, listening.surface().for_known(Identity::default()));
            let _ = api.set(Api::new(delegation, access));
        }
        let engine_url = format!("ws://{}", workers.address());
        let hosted = Hosted { engine: &engine_url, demo: self.functions.demo.demo };
        announcement.say(address, Some(hosted));
        let stop = CancellationToken::new();
        let workers = tokio::spawn(workers.run_until(stop.clone().cancelled_owned()));
        // Turns that are under way need their workers until they are done.
        let served = listening.run().await;
        stop.cancel();
        let _ = workers.await;
        served.map_err(|error| Failure::new(format!("the server stopped: {error}")))
    }

    /// Takes the port for a server.
    async fn listen<A: Agent>(
        &self,
        server: Server<A>,
        store: Arc<dyn Store>,
        prepared: Prepared,
        parts: Parts,
    ) -> Result<Listening, Failure> {
        let policy = self.push.policy();
        let mut server = server
            .bind(&self.server.listen)
            .shared_store(store)
            .push(!self.push.no_push)
            .push_options(|push: &mut PushOptions| (push.policy, push.secret) = (policy, prepared.push))
            .options(|options| *options = parts.options)
            .service_options(|options| {
                options.retention = Retention {
                    max_age: self.keep.keep_for.map(|age| age.0),
                    max_tasks: self.keep.keep_tasks.and_then(|count| usize::try_from(count).ok()),
                };
                config::service_limits(&self.limits, options);
                if self.push.push_every_event {
                    options.push_news = News::Everything;
                }
            });
        if let Some(url) = &self.server.base_url {
            server = server.base_url(url);
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
        let listening = server.listen().await.map_err(|error| {
            Failure::new(error).hint("choose another address with `--listen`, such as `--listen 127.0.0.1:0`")
        })?;
        let _ = parts.running.set((listening.surface(), parts.tls));
        Ok(listening)
    }
}

/// The origins that the author of a function allows at the path of its HTTP trigger.
fn cors_of(origins: &[String], path: &str) -> Cors {
    let read = |text: &String| match text.parse::<AllowedOrigin>() {
        Ok(origin) => Some(origin),
        Err(error) => {
            tracing::warn!(path, origin = text, "`a2a.origins` of a function: {error}");
            None
        }
    };
    Cors { origins: origins.iter().filter_map(read).collect() }
}

fn is_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// Whether only this machine can connect to an address. One that cannot be listened on is found out elsewhere.
fn is_here(listen: &str) -> bool {
    listen
        .to_socket_addrs()
        .map_or(true, |mut addresses| addresses.all(|address| address.ip().to_canonical().is_loopback()))
}
