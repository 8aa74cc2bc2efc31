//! Serves the agent through the engine's HTTP, or on its own port.

use std::io::Write;
use std::sync::{Arc, OnceLock};

use attache_agents::delegation::{Access, Api, serve_api_through};
use attache_agents::register_progress;
use attache_agents::remote::{RemoteOptions, import};
use attache_core::Identity;
use attache_iii::worker::{Worker, WorkerError, WorkerOptions};
use attache_iii::{Gateway, serve_through};
use attache_server::{Server, stop_signal};

use crate::{Arguments, Failure, agents};

/// The default URL of the engine's HTTP.
const ENGINE_HTTP: &str = "http://localhost:3111";

pub(crate) async fn run(arguments: Arguments) -> Result<(), Failure> {
    if let Some(url) = arguments.base_url.as_ref().filter(|url| !is_http(url)) {
        return Err(Failure::usage(format!("`--base-url {url}` is not an `http` or `https` URL"))
            .hint("try `--base-url https://agents.example.com`"));
    }
    if let Some(url) = arguments.connect.iter().find(|url| !is_http(url)) {
        return Err(Failure::usage(format!("`--connect {url}` is not an `http` or `https` URL"))
            .hint("try `--connect https://agents.example.com`"));
    }
    arguments.place.check()?;
    let token = arguments
        .delegation
        .token()
        .map_err(|error| Failure::usage(error).hint("make one with `openssl rand -hex 32`"))?;
    let card_trust = arguments.delegation.card_trust().map_err(Failure::usage)?;
    let credentials = agents::credentials(arguments.agent_credentials.as_deref())?;
    let worker =
        Worker::connect(worker_options(&arguments).map_err(Failure::usage)?).map_err(Failure::usage)?;
    let store = arguments.place.open(&worker).await?;
    let remote = RemoteOptions::default().with(|options| {
        options.own_url = Some(own_url(&arguments));
        options.credentials = credentials.clone();
    });
    let imports = import(worker.clone(), arguments.connect.clone(), remote);
    let settings = arguments.gateway.options(arguments.base_url.as_deref());
    let gateway = Gateway::with_imports(Arc::new(worker.clone()), settings, imports);
    let _progress = register_progress(&worker, &gateway);
    let delegation =
        arguments.delegation.start(store.clone(), credentials, card_trust).map_err(Failure::new)?;
    let server = Server::new(gateway.clone())
        .card(gateway.card())
        .card_updates(gateway.cards())
        .shared_store(store)
        .push(!arguments.push.no_push)
        .push_options(|push| push.policy = arguments.push.policy())
        .options(|options| {
            options.allowed_hosts.clone_from(&arguments.allowed_host);
            options.cors.origins.clone_from(&arguments.cors_origin);
        });
    match &arguments.listen {
        Some(address) => {
            // The access to the API depends on the address that the server listens on.
            let api: Arc<OnceLock<Api>> = Arc::default();
            let delegating = api.clone();
            let mut server = server.bind(address).fallback(move |request| {
                let api = delegating.clone();
                async move { api.get()?.handle(request).await }
            });
            if let Some(url) = &arguments.base_url {
                server = server.base_url(url.trim_end_matches('/'));
            }
            let listening = server.listen().await.map_err(|error| {
                Failure::new(error)
                    .hint("choose another address with `--listen`, such as `--listen 127.0.0.1:0`")
            })?;
            let address = listening.address().map_err(Failure::new)?;
            let mut _offers = Vec::new();
            if let Some(delegation) = delegation {
                let hosts = arguments.allowed_host.iter().map(|host| format!("http://{host}"));
                let access =
                    Access::new(token, address.ip(), arguments.base_url.iter().cloned().chain(hosts));
                let public = arguments.base_url.clone().unwrap_or_else(|| format!("http://{address}"));
                delegation.set_own_agent(gateway, public);
                delegation.restore_own_card().await;
                let caller = listening.http_service().in_process(Identity::default());
                _offers = delegation.register_functions(&worker, caller);
                let _ = api.set(Api::new(delegation, access));
            }
            announce(&arguments, &format!("http://{address}"));
            listening.run().await.map_err(|error| Failure::new(format!("the server stopped: {error}")))?;
        }
        None => {
            let base = arguments.base_url.as_deref().unwrap_or(ENGINE_HTTP).trim_end_matches('/').to_owned();
            // The engine's HTTP supports neither gRPC nor WebSocket.
            let server = server.options(|options| {
                (options.paths.grpc, options.paths.envelope) = (false, false);
                options.paths.websocket = None;
            });
            let surface = server.into_http_service(&base).map_err(Failure::new)?;
            let mut _registered = serve_through(&worker, surface.clone());
            let mut _offers = Vec::new();
            if let Some(delegation) = delegation {
                // This process does not know who can reach the engine's HTTP.
                let access = token.map_or(Access::Closed, Access::Token);
                delegation.set_own_agent(gateway, &base);
                delegation.restore_own_card().await;
                _offers = delegation.register_functions(&worker, surface.in_process(Identity::default()));
                _registered.extend(serve_api_through(&worker, Api::new(delegation, access)));
            }
            announce(&arguments, &base);
            stop_signal().await;
            surface.shutdown().await;
        }
    }
    worker.close().await;
    Ok(())
}

fn is_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// The URL of this agent, as far as it is known before the server listens.
fn own_url(arguments: &Arguments) -> String {
    match (&arguments.base_url, &arguments.listen) {
        (Some(url), _) => url.clone(),
        (None, Some(address)) => format!("http://{address}"),
        (None, None) => ENGINE_HTTP.to_owned(),
    }
}

fn worker_options(arguments: &Arguments) -> Result<WorkerOptions, WorkerError> {
    let mut options = WorkerOptions::new(&arguments.engine_url);
    if let Some(name) = &arguments.worker_name {
        options.name.clone_from(name);
    }
    options.namespace.clone_from(&arguments.namespace);
    options.max_payload = arguments.max_payload;
    match &arguments.token {
        Some(token) => options.token(token),
        None => Ok(options),
    }
}

/// Prints the URLs of the agent.
fn announce(arguments: &Arguments, url: &str) {
    let mut out = anstream::stderr().lock();
    let way = if arguments.listen.is_some() { "on its own port" } else { "through the engine's HTTP" };
    // If standard error is closed, the message is lost.
    let _ = writeln!(
        out,
        "Serving the functions of {} {way}\n\n  card       {url}/.well-known/agent-card.json\n  JSON-RPC   {url}/a2a\n  HTTP+JSON  {url}/v1\n",
        arguments.engine_url,
    );
}
