//! Our server as the harness measures it: the SDK with a store and an agent that does next to nothing.
//!
//! What the works expect of the agent, by the first text part of the message:
//!
//! | text | the agent |
//! |---|---|
//! | `chunks:N` | emits N artifact chunks, yielding to the runtime between them, and completes |
//! | `hang` | emits `TASK_STATE_WORKING` and waits until it is cancelled |
//! | anything else | gives it back as an artifact and completes |

use std::net::SocketAddr;

use anyhow::Result;
use attache::core::Echo;
use attache::prelude::*;
use attache::store::StoreUrl;

struct Subject;

impl Agent for Subject {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.message().parts.first().and_then(Part::as_text).unwrap_or_default();
        if text == "hang" {
            turn.working("").await?;
            turn.cancelled().await;
            return Ok(());
        }
        let Some(count) = text.strip_prefix("chunks:").and_then(|count| count.parse::<usize>().ok()) else {
            return Echo.run(turn).await;
        };
        let mut chunks = turn.artifact("chunks").stream();
        for _ in 1..count {
            chunks.chunk("a chunk of text ").await?;
            tokio::task::yield_now().await;
        }
        chunks.last("a chunk of text ").await?;
        turn.complete().await
    }
}

/// Serves the subject on `listen` until the process is killed: JSON-RPC 1.0 at `POST /a2a`.
pub(crate) async fn serve(listen: SocketAddr, store: StoreUrl) -> Result<()> {
    let card = Card::new("Subject", "What the benchmark measures").input_modes(["*/*"]);
    Server::new(Subject)
        .card(card)
        .shared_store(crate::store::open(&store)?)
        .bind(listen.to_string())
        .run()
        .await?;
    Ok(())
}
