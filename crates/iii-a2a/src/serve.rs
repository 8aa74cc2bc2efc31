//! Serving: through the engine's HTTP, or on a port of our own.

use std::io::Write;
use std::sync::Arc;

use attache_iii::remote::{RemoteOptions, import};
use attache_iii::worker::{Worker, WorkerError, WorkerOptions};
use attache_iii::{Gateway, serve_through};
use attache_protocol::{AgentCard, AgentInterface, binding};
use attache_server::{Server, stop_signal};
use futures::StreamExt;

use crate::{Arguments, Failure};

/// Where the engine's HTTP is if nothing is said.
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
    let worker =
        Worker::connect(worker_options(&arguments).map_err(Failure::usage)?).map_err(Failure::usage)?;
    let store = arguments.place.open(&worker)?;
    let remote = RemoteOptions { own_url: Some(own_url(&arguments)), ..RemoteOptions::default() };
    let imports = import(worker.clone(), arguments.connect.clone(), remote);
    let gateway = Gateway::with_imports(Arc::new(worker.clone()), arguments.gateway.options(), imports);
    let server = Server::new(gateway.clone()).shared_store(store).push(!arguments.no_push);
    match &arguments.listen {
        Some(address) => {
            let mut server = server.card(gateway.card()).card_updates(gateway.cards()).bind(address);
            if let Some(url) = &arguments.base_url {
                server = server.base_url(url.trim_end_matches('/'));
            }
            let listening = server.listen().await.map_err(|error| {
                Failure::new(error)
                    .hint("choose another address with `--listen`, such as `--listen 127.0.0.1:0`")
            })?;
            let address = listening.address().map_err(Failure::new)?;
            announce(&arguments, &format!("http://{address}"));
            listening.run().await.map_err(|error| Failure::new(format!("the server stopped: {error}")))?;
        }
        None => {
            let base = arguments.base_url.as_deref().unwrap_or(ENGINE_HTTP).trim_end_matches('/').to_owned();
            let cards = gateway.cards().map({
                let base = base.clone();
                move |card| through_engine(card, &base)
            });
            let server = server.card(through_engine(gateway.card(), &base)).card_updates(cards);
            let surface = server.into_surface(&base).map_err(Failure::new)?;
            let _registered = serve_through(&worker, surface.clone());
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

/// Where this process is an agent, as far as that is known before it listens.
fn own_url(arguments: &Arguments) -> String {
    match (&arguments.base_url, &arguments.listen) {
        (Some(url), _) => url.clone(),
        (None, Some(address)) => format!("http://{address}"),
        (None, None) => ENGINE_HTTP.to_owned(),
    }
}

/// A card with the ways in that lead through the engine's HTTP, which has no gRPC.
fn through_engine(mut card: AgentCard, base: &str) -> AgentCard {
    card.supported_interfaces = vec![
        AgentInterface::new(format!("{base}/a2a"), binding::JSONRPC),
        AgentInterface::new(format!("{base}/v1"), binding::HTTP_JSON),
    ];
    card
}

fn worker_options(arguments: &Arguments) -> Result<WorkerOptions, WorkerError> {
    let mut options = WorkerOptions::new(&arguments.engine_url);
    if let Some(name) = &arguments.worker_name {
        options.name.clone_from(name);
    }
    options.namespace.clone_from(&arguments.namespace);
    match &arguments.token {
        Some(token) => options.token(token),
        None => Ok(options),
    }
}

/// Says where the agent is.
fn announce(arguments: &Arguments, url: &str) {
    let mut out = anstream::stderr().lock();
    let way = if arguments.listen.is_some() { "on a port of its own" } else { "through the engine's HTTP" };
    // Nothing can be done about an error stream that is closed.
    let _ = writeln!(
        out,
        "Serving the functions of {} {way}\n\n  card       {url}/.well-known/agent-card.json\n  JSON-RPC   {url}/a2a\n  HTTP+JSON  {url}/v1\n",
        arguments.engine_url,
    );
}
