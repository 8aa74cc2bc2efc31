//! `attache serve`: an agent on the network.

mod agents;
mod announcement;
mod demo;
mod functions;
mod network;
mod reload;

use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::Arc;

use attache::client::AddressBook;
use attache::core::{PushEvents, Retention, Store};
use attache::prelude::*;
use attache::server::auth::{AnonymousAccess, Reloadable};
use attache::server::{
    Cors, Listening, PushOptions, ServerOptions, SigningKeys, SigningSecret, Tls, is_loopback_url,
};
use attache_iii::secrets;
use clap::Args;
use tracing_subscriber::EnvFilter;

pub(crate) use self::agents::AgentName;
use self::announcement::Announcement;
use self::functions::{FunctionArgs, Tokens};
use self::reload::{ReloadTargets, Reloader, Running, SetLogFilter};
use super::store_location::SettingsFile;
use super::{Failure, keys};
use crate::config::{
    self, AccessArgs, Callers, CorsArgs, DisplayValue, HostArgs, KeepArgs, LimitArgs, LogArgs, PathArgs,
    ProtocolArgs, PushArgs, ResolvedSettings, ServerArgs, SigningArgs, Source, StoreArgs, TlsArgs, Unread,
};

/// The examples in `--help`.
pub(super) const EXAMPLES: &str = "Examples:\n  attache serve --demo                                  sample functions, to look around\n  attache serve --tier partner                          functions of iii workers for partners\n  attache serve --agent echo --listen 127.0.0.1:8080    the smallest agent";

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
}

/// The parts of the server.
struct Parts {
    options: ServerOptions,
    /// The authenticator. Without a file there is none, since only the file can list callers.
    callers: Option<Reloadable>,
    tls: Option<Tls>,
    /// The running server, once it listens. A reload changes it.
    running: Running,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let prepared = self.prepare()?;
        let parts = self.parts(&prepared)?;
        // The server goes on if its log cannot be written.
        let log = tracing_subscriber::fmt().with_writer(anstream::stderr).log_internal_errors(false);
        let log = log.with_env_filter(prepared.filter.clone()).with_filter_reloading();
        let handle = log.reload_handle();
        let set_log_filter: SetLogFilter =
            Box::new(move |filter| handle.reload(filter).map_err(Failure::new));
        log.init();
        // Before the store is opened, which needs file descriptors as each connection does.
        if let Err(error) = attache::server::raise_file_limit() {
            tracing::warn!(%error, "the limit on open files could not be raised");
        }
        for Unread { name, meant } in self.settings.unread() {
            tracing::warn!(variable = name, meant, "nothing reads this variable of the environment");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
        runtime.block_on(async {
            if let Some(callers) = &parts.callers {
                let targets = ReloadTargets {
                    authenticator: callers.clone(),
                    agents: prepared.agents.clone(),
                    set_log_filter,
                    running: parts.running.clone(),
                };
                Reloader::new(&self, &prepared, targets).start()?;
            }
            let kind = self.server.agent.kind();
            (kind.run)(self, prepared, parts).await
        })
    }

    /// Checks all settings, before the server takes a port.
    pub(super) fn prepare(&self) -> Result<Prepared, Failure> {
        let filter = EnvFilter::try_new(&self.log.log).map_err(|error| {
            Failure::usage(format!("`--log {}` is not a filter: {error}", self.log.log))
                .hint("try `--log info`")
        })?;
        if let Some(url) = self.server.base_url.as_ref().filter(|url| !is_http(url)) {
            return Err(Failure::usage(format!("`--base-url {url}` is not an `http` or `https` URL"))
                .hint("try `--base-url https://agents.example.com`"));
        }
        let callers = self.settings.callers()?;
        self.guard(&self.server.listen, callers.as_ref())?;
        self.tls.check(callers.as_ref())?;
        self.paths.check()?;
        self.push.check(&self.settings)?;
        let tokens = (self.server.agent.kind().check)(self, callers.as_ref())?;
        Ok(Prepared {
            filter,
            push: self.push.secret(&self.settings)?,
            keys: keys::for_serving(self.signing.signing_keys.as_ref())?,
            callers,
            tokens,
            agents: self.settings.agents()?,
        })
    }

    /// The URL of the store.
    pub(super) fn store(&self) -> Result<String, Failure> {
        self.store.url().map(|url| url.to_string())
    }

    /// Refuses to serve other machines without authentication, unless `--insecure` is given.
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

    /// Makes the parts of the server. Fails if a certificate or an issuer cannot be used.
    fn parts(&self, prepared: &Prepared) -> Result<Parts, Failure> {
        let mut options = ServerOptions::default().with(|options| {
            options.paths = self.paths.paths();
            options.strict_version = self.protocol.strict_version;
            options.pure_card = self.protocol.pure_card;
            options.public_card = self.protocol.public_card;
            options.public_health = self.protocol.public_health;
            options.allowed_hosts = self.hosts.allowed_host.clone();
            options.cors = Cors { origins: self.cors.cors_origin.clone() };
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
        Ok(Parts { options, callers, tls, running: Running::default() })
    }

    fn announcement(&self, prepared: &Prepared) -> Result<Announcement, Failure> {
        Ok(Announcement {
            kept: self.store()?,
            paths: self.paths.paths(),
            config: self.settings.file.as_ref().map(|file| file.path.display().to_string()),
            callers: prepared.callers.clone(),
            encrypted: self.tls.is_asked_for(),
        })
    }

    /// Lets a server listen.
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
                options.retention = Retention::default()
                    .max_age(self.keep.keep_for.map(|age| age.0))
                    .max_tasks(self.keep.keep_tasks.and_then(|count| usize::try_from(count).ok()));
                config::service_limits(&self.limits, options);
                if self.push.push_every_event {
                    options.push_events = PushEvents::Everything;
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
            Failure::new(error).hint(
                "choose another address with `--listen`, such as `--listen 127.0.0.1:0` or `--listen unix:PATH`",
            )
        })?;
        let _ = parts.running.set((listening.http_service(), parts.tls));
        Ok(listening)
    }
}

fn is_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// What the address of a Unix socket begins with.
const UNIX_PREFIX: &str = "unix:";

/// Whether only this machine can connect to an address. An invalid address is reported when the server listens.
fn is_here(listen: &str) -> bool {
    listen.starts_with(UNIX_PREFIX)
        || listen
            .to_socket_addrs()
            .map_or(true, |mut addresses| addresses.all(|address| address.ip().to_canonical().is_loopback()))
}
