//! The agent of the suite.

use attache_core::{Agent, AgentResult, Turn};
use attache_protocol::{AgentCard, Part};
use attache_server::Server;

/// Does what the first word of a message says, and gives back the text if that is no word it knows.
pub(crate) struct Player;

impl Agent for Player {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.text();
        match text.split(' ').next().unwrap_or_default() {
            "ask" => turn.ask("what exactly?").await,
            "auth" => turn.require_auth("who are you?").await,
            "reject" => turn.reject("not that").await,
            "fail" => turn.fail("it did not work").await,
            "message" => turn.reply(text).await,
            "chunks" => {
                turn.working("one moment").await?;
                let mut answer = turn.artifact("answer").stream();
                answer.chunk("one ").await?;
                answer.chunk("two ").await?;
                answer.last("three").await?;
                turn.complete_with("that is all").await
            }
            "wait" => {
                turn.working(super::WAITING).await?;
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

/// A server with the scripted agent, with everything switched on.
pub(crate) fn player() -> Server<Player> {
    Server::new(Player).card(card())
}

/// A card that promises everything.
pub(crate) fn card() -> AgentCard {
    let mut card =
        AgentCard::new("Player", "Does what it is told").input_modes(["text/plain", "application/json"]);
    card.capabilities.push_notifications = Some(true);
    card
}
