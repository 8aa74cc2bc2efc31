//! Our server with the functions of iii workers as its skills, wired as `attache serve` does it: the embedded engine and the
//! gateway in one process, with one store in memory.
//!
//! It runs on one thread as the subject does, so that the two differ in what they do and not in how they are run.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use attache::core::{MemoryStore, Store};
use attache::prelude::*;
use attache::server::Paths;
use attache_iii::engine::{Engine, EngineOptions};
use attache_iii::{FunctionGatewayOptions, Gateway};

/// Serves on `listen`, with an engine on `engine_listen`, until the process is killed.
pub(crate) async fn serve(listen: SocketAddr, engine_listen: SocketAddr) -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let options = EngineOptions::default().with(|options| options.listen = engine_listen.to_string());
    let engine = Engine::new(store.clone(), options);
    let workers = engine.listen().await?;
    let paths = Paths::default();
    let own = [crate::requests::CARD_PATH, "/health"];
    let below = [paths.http_json.as_deref().unwrap_or_default(), "/lf.a2a.v1.A2AService"];
    engine.reserve_paths(own.into_iter().chain(paths.jsonrpc.iter().map(String::as_str)), below);
    let gateway = Gateway::new(Arc::new(engine.clone()), FunctionGatewayOptions::default());
    let listening = Server::new(gateway.clone())
        .card(gateway.card())
        .card_updates(gateway.cards())
        .fallback(move |request| {
            let engine = engine.clone();
            async move { engine.handle_http(request).await }
        })
        .shared_store(store)
        .bind(listen.to_string())
        .listen()
        .await?;
    tokio::spawn(workers.run_until(std::future::pending()));
    listening.run().await?;
    Ok(())
}
