//! Agents that tests control.

use std::sync::Arc;

use attache_core::{Agent, AgentResult, Turn, agent_fn};
use attache_protocol::Part;
use tokio::sync::Semaphore;

/// Does what the first word of a message says, or returns its parts.
pub(crate) struct Player;

impl Agent for Player {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.text();
        match text.split(' ').next().unwrap_or_default() {
            "ask" => turn.ask("what exactly?").await,
            "message" => turn.reply(text).await,
            "count" => {
                turn.working("counting").await?;
                count(&turn, None).await?;
                turn.complete().await
            }
            "wait" => {
                turn.working("waiting").await?;
                turn.cancelled().await;
                Ok(())
            }
            _ => {
                let parts: Vec<Part> = turn.message().parts.clone();
                turn.artifact("answer").parts(parts).await
            }
        }
    }
}

/// Emits the numbers from 0 up to the last word of the message.
async fn count(turn: &Turn, gate: Option<&Semaphore>) -> AgentResult {
    let last = turn.text().rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(3);
    let mut answer = turn.artifact("numbers").stream();
    for number in 0..last {
        if let Some(gate) = gate {
            gate.acquire().await?.forget();
        }
        answer.chunk(format!("{number} ")).await?;
    }
    answer.last(last.to_string()).await
}

/// An agent that emits one number for each permit, and then completes.
pub(crate) fn gated() -> (impl Agent, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let agent = agent_fn(move |turn: Turn| {
        let gate = held.clone();
        async move {
            turn.working("counting").await?;
            count(&turn, Some(&gate)).await?;
            if turn.text().starts_with("ask") { turn.ask("and now?").await } else { turn.complete().await }
        }
    });
    (agent, gate)
}
