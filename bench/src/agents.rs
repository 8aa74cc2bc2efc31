//! Our server with one of the ready-made agents, and the store in memory.
//!
//! It runs on one thread as the subject does, so that the two differ in what they do and not in how they are run.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;

use anyhow::{Context, Result};
use attache::core::{BoxAgent, MemoryStore, Store};
use attache::prelude::*;
use attache_agents::gateway::{Gateway, GatewayOptions};
use attache_agents::model::{Model, ModelOptions};
use attache_agents::program::{Program, ProgramOptions};
use clap::Args;

/// Which agent is served.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct AgentKind {
    /// A program that gets the text of a message
    #[arg(long, value_name = "PROGRAM")]
    program: Option<String>,
    /// A language model at this URL
    #[arg(long, value_name = "URL")]
    model: Option<String>,
    /// A remote agent at this URL
    #[arg(long, value_name = "URL")]
    remote: Option<String>,
}

impl AgentKind {
    async fn build(self, store: &Arc<dyn Store>) -> Result<BoxAgent> {
        if let Some(program) = self.program {
            return Ok(Program::new(ProgramOptions::new([program])).boxed());
        }
        if let Some(url) = self.model {
            return Ok(Model::new(ModelOptions::new(url, "bench"))?.boxed());
        }
        let url = self.remote.context("no agent is named")?;
        Ok(Gateway::connect(GatewayOptions::new(url, store.clone())).await?.boxed())
    }
}

/// Serves on `listen` until the process is killed.
pub(crate) async fn serve(listen: SocketAddr, kind: AgentKind) -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let agent = kind.build(&store).await?;
    let server = Server::new(agent)
        .card(Card::new("Agent", "What the benchmark measures").input_modes(["*/*"]))
        .shared_store(store)
        .bind(listen.to_string())
        .options(|options| {
            // A load is one caller. Its requests are counted like everyone's, and there may be as many as there are.
            options.limits.requests_per_second = Some(NonZeroU32::MAX);
            options.limits.requests_per_caller = Some(NonZeroUsize::MAX);
        });
    server.run().await?;
    Ok(())
}
