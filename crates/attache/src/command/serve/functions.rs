//! The functions of iii workers as an agent, with an engine of our own for the workers to join.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};

use attache::client::{AddressBook, Verifier};
use attache::core::{ARTIFACTS_PATH, Store};
use attache::prelude::*;
use attache::server::auth::Authenticator;
use attache::server::{AllowedOrigin, Cors, FallbackAccess, LocalAddress};
use attache_agents::delegation::{Access, Api, Delegation};
use attache_agents::remote::{RemoteOptions, import};
use attache_agents::{AgentCredentials, DelegationArgs, register_progress};
use attache_iii::engine::{
    Engine, EngineError, EngineListening, EngineOptions, HttpRoute, PublicOnly, Token,
};
use attache_iii::{Exposure, Gateway, GatewayArgs};
use clap::Args;
use tokio_util::sync::CancellationToken;

use super::announcement::Hosted;
use super::named::RunningAgents;
use super::{Parts, Prepared, Serve, demo, is_here, is_http, secret_in, stopping};
use crate::command::Failure;
use crate::config::{AGENTS, Callers, DemoArgs, EngineArgs, Problems, ResolvedSettings, Secret, ServerArgs};

/// The settings of functions, of the engine and of delegation.
#[derive(Debug, Args)]
pub(super) struct FunctionArgs {
    #[command(flatten)]
    pub(super) demo: DemoArgs,
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    delegation: DelegationArgs,
}

/// The tokens that workers and callers of the delegation API send, and the keys that sign the cards of other agents.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    engine: Option<Token>,
    api: Option<Token>,
    card_trust: Option<Verifier>,
}

/// Whether a tier has a place in the order of the tiers. Without an order, every tier has.
fn is_ordered(exposure: &Exposure, tier: &str) -> bool {
    exposure.tiers.is_empty() || exposure.tiers.iter().any(|known| known == tier)
}

impl FunctionArgs {
    /// Checks the settings, and reads the tokens.
    pub(super) fn check(
        &self,
        settings: &ResolvedSettings,
        callers: Option<&Callers>,
        problems: &mut Problems<'_>,
    ) -> Tokens {
        for (index, url) in self.engine.connect.iter().enumerate().filter(|(_, url)| !is_http(url)) {
            let failure = Failure::usage(format!("`{url}` is not an `http` or `https` URL"));
            problems.add(
                [&format!("engine.connect[{index}]"), "engine.connect"],
                failure.hint("try `https://agents.example.com`"),
            );
        }
        self.check_tiers(callers, problems);
        let token = |secret: Secret| Token::new(secret.reveal());
        let bytes = |secret: Vec<u8>| Token::new(&String::from_utf8_lossy(&secret));
        let in_file =
            problems.take(["engine.token-file"], secret_in(self.engine.engine_token_file.as_deref()));
        let written = problems.take_placed(settings.secret("engine.token", |settings| {
            (settings.engine.token.as_ref(), settings.engine.token_file.as_ref())
        }));
        let engine = in_file.flatten().map(bytes).or(written.flatten().map(token));
        let outside = match self.delegation.api_token_file() {
            Some(path) => {
                let in_file = problems.take(["delegation.api-token-file"], secret_in(Some(path)));
                in_file.flatten().map(bytes)
            }
            None => {
                let in_environment = self
                    .delegation
                    .token()
                    .map_err(|error| Failure::usage(error).hint("make one with `openssl rand -hex 32`"));
                problems.take_placed(in_environment).flatten()
            }
        };
        let written = problems.take_placed(settings.secret("delegation.api-token", |settings| {
            (settings.delegation.api_token.as_ref(), settings.delegation.api_token_file.as_ref())
        }));
        let api = outside.or(written.flatten().map(token));
        Tokens { engine, api, card_trust: self.card_trust(problems) }
    }

    fn check_tiers(&self, callers: Option<&Callers>, problems: &mut Problems<'_>) {
        let exposure = self.gateway.exposure();
        let hint = "add it to `functions.tiers` or `--tiers`, lowest tier first";
        if let Some(tier) = exposure.tier.as_ref().filter(|tier| !is_ordered(&exposure, tier)) {
            let failure = Failure::usage(format!("the tier `{tier}` is not in `functions.tiers`"));
            problems.add(["functions.tier", "functions.tiers"], failure.hint(hint));
        }
        let tiers: BTreeSet<_> = callers.into_iter().flat_map(Callers::tiers).collect();
        for tier in tiers.into_iter().filter(|tier| !is_ordered(&exposure, tier)) {
            let failure =
                Failure::usage(format!("the tier `{tier}` of a caller is not in `functions.tiers`"));
            problems.add(["functions.tiers"], failure.hint(hint));
        }
        if callers.is_some_and(Callers::have_tiers) && exposure.tier().is_none() {
            let failure = Failure::usage("some callers have a tier, and the tier of the others is not set");
            problems.add(
                ["functions.tier", "functions.tiers"],
                failure.hint(
                    "set it with `functions.tier` or `--tier`, such as `--tier public`, or order the tiers with `functions.tiers`",
                ),
            );
        }
    }

    /// The keys that sign the cards of other agents.
    fn card_trust(&self, problems: &mut Problems<'_>) -> Option<Verifier> {
        let files = self.delegation.agent_keys().iter().enumerate();
        let keys: Vec<_> = files
            .filter_map(|(index, path)| {
                let read = DelegationArgs::read_keys(path).map_err(Failure::usage);
                problems.take([&format!("delegation.card-keys[{index}]"), "delegation.card-keys"], read)
            })
            .collect();
        (!keys.is_empty()).then(|| keys.into_iter().fold(Verifier::new(), Verifier::pin))
    }

    /// Starts an engine and the gateway to its functions. `own_url` is the URL of the agent, `agents` has credentials for others.
    pub(super) async fn start(
        &self,
        store: Arc<dyn Store>,
        own_url: String,
        server: &ServerArgs,
        tokens: Tokens,
        agents: AddressBook,
    ) -> Result<Started, Failure> {
        let options = EngineOptions::default().with(|options| {
            options.listen = self.engine.engine_listen.clone();
            options.token = tokens.engine;
        });
        let credentials = AgentCredentials::new(agents, AGENTS);
        let delegation = match self.demo.demo && is_here(&server.listen) {
            // So that a newcomer can try delegation on one machine.
            true => self.delegation.clone().allowing_loopback(),
            false => self.delegation.clone(),
        };
        let delegation = delegation.start(store.clone(), credentials.clone(), tokens.card_trust);
        let delegation = delegation.map_err(Failure::new)?;
        let engine = Engine::new(store, options);
        let mut settings = self.gateway.options(server.base_url.as_deref());
        if self.demo.demo {
            demo::register(&engine, settings.exposure.tier());
            settings.default_function.get_or_insert_with(|| demo::DEFAULT_FUNCTION.to_owned());
        }
        let listening = engine.listen().await.map_err(|error| {
            let hint = match &error {
                EngineError::Open(_) => {
                    "make a token with `openssl rand -hex 32 > token` and name it with `--engine-token-file token`"
                }
                EngineError::Address(_) | EngineError::Taken { .. } => {
                    "choose another address with `--engine-listen`, such as `--engine-listen 127.0.0.1:0`"
                }
            };
            Failure::new(error).hint(hint)
        })?;
        let remote = RemoteOptions::default().with(|options| {
            options.own_url = Some(own_url);
            options.credentials = credentials;
        });
        let imports = import(engine.clone(), self.engine.connect.clone(), remote);
        let gateway = Gateway::with_imports(Arc::new(engine.clone()), settings, imports);
        Ok(Started { engine, listening, gateway, delegation, api_token: tokens.api })
    }
}

/// An engine that listens, and the gateway to its functions.
pub(super) struct Started {
    pub(super) engine: Engine,
    pub(super) listening: EngineListening,
    pub(super) gateway: Gateway,
    /// Absent if delegation is switched off.
    pub(super) delegation: Option<Delegation>,
    /// The token that callers of the delegation API send.
    pub(super) api_token: Option<Token>,
}

/// Serves the functions of an engine of our own until the process is stopped.
pub(super) async fn serve(serve: Serve, mut prepared: Prepared, parts: Parts) -> Result<(), Failure> {
    let idle = serve.server.idle_shutdown.map(|time| time.0);
    let store = serve.store.open().await?;
    let announcement = serve.announcement(&prepared)?;
    let scheme = if parts.tls.is_some() { "https" } else { "http" };
    let own_url = serve.own_url();
    let tokens = std::mem::take(&mut prepared.tokens);
    let Started { engine, listening: workers, gateway, delegation, api_token } =
        serve.functions.start(store.clone(), own_url, &serve.server, tokens, prepared.agents.clone()).await?;
    let (mut exact, below) = serve.paths.paths().answered();
    exact.extend(prepared.keys.iter().map(|_| "/.well-known/jwks.json".to_owned()));
    engine.reserve_paths(exact.iter().map(String::as_str), below.iter().map(String::as_str));
    engine.reserve_paths(Api::paths(), []);
    if serve.has_named_agents() {
        engine.reserve_paths([], ["/agents"]);
    }
    if serve.stores_artifacts(&*store) {
        engine.reserve_paths([], [ARTIFACTS_PATH]);
    }
    // The API is made later: who may use it depends on the address that the server gets.
    let api: Arc<OnceLock<Api>> = Arc::default();
    let (triggers, delegating, origins) = (engine.clone(), api.clone(), engine.clone());
    let (callers, routes) = (parts.callers.clone(), engine.clone());
    let mut server = Server::new(gateway.clone())
        .card(gateway.card())
        .card_updates(gateway.cards())
        .fallback_access(move |head| match routes.http_route(&head.method, head.uri.path()) {
            _ if Api::has_path(head.uri.path()) => FallbackAccess::Own,
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
                match api.get().filter(|_| Api::has_path(request.uri().path())) {
                    // With `auth`, programs on this machine are not trusted: one of them may be a proxy.
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
    let mut context = serve.build_context(&store, &prepared, &parts);
    context.tools.functions = Some(gateway.clone());
    let named = std::mem::take(&mut prepared.named);
    let agents = RunningAgents::start(context, parts.callers.clone(), named).await?;
    let listening = serve.listen(server, store, prepared, parts, agents).await?;
    let addresses = listening.local_addresses().map_err(Failure::new)?;
    let _progress = register_progress(&engine, &gateway);
    let mut _offers = Vec::new();
    if let Some(delegation) = delegation {
        let hosts = serve.hosts.allowed_host.iter().map(|host| format!("http://{host}"));
        let (ip, own_host) = reached(&addresses);
        let access = Access::new(api_token, ip, serve.server.base_url.iter().cloned().chain(hosts));
        let public = serve.server.base_url.clone().unwrap_or_else(|| format!("{scheme}://{own_host}"));
        delegation.set_own_agent(gateway, public);
        delegation.restore_own_card().await;
        _offers =
            delegation.register_functions(&engine, listening.http_service().in_process(Identity::default()));
        let _ = api.set(Api::new(delegation, access));
    }
    let engine_url = format!("ws://{}", workers.address());
    let hosted = Hosted { engine: &engine_url, demo: serve.functions.demo.demo };
    announcement.say(&addresses, Some(hosted));
    let stop = CancellationToken::new();
    let workers = tokio::spawn(workers.run_until(stop.clone().cancelled_owned()));
    // Turns that still run need their workers until they end.
    let served = stopping::run(listening, idle).await;
    stop.cancel();
    if served.is_ok() {
        let _ = workers.await;
    }
    served
}

/// The widest address that the server listens on, which decides who may use the API, and the host of the first one.
fn reached(addresses: &[LocalAddress]) -> (IpAddr, String) {
    let tcp = || {
        addresses.iter().filter_map(|address| match address {
            LocalAddress::Tcp(address) => Some(address),
            // Only programs of this user can connect.
            LocalAddress::Unix(_) => None,
        })
    };
    let wide = tcp().map(|address| address.ip()).find(|ip| !ip.to_canonical().is_loopback());
    let ip = wide.or_else(|| tcp().next().map(|address| address.ip()));
    let host = tcp().next().map_or_else(|| "localhost".to_owned(), ToString::to_string);
    (ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), host)
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
