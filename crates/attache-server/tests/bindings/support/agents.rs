//! Agents that tests tell what to do.

use attache_core::{Agent, AgentResult, Turn, agent_fn};
use attache_protocol::Part;
use tokio::sync::{mpsc, oneshot};

use super::soon;

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

/// Where a test plays the agent itself: each turn waits for it.
pub(crate) struct Stage(mpsc::UnboundedReceiver<Act>);

/// One turn of the agent that a test plays. The turn is over when this is dropped.
pub(crate) struct Act {
    turn: Turn,
    _exit: oneshot::Sender<()>,
}

/// An agent that leaves everything to the test.
pub(crate) fn stage() -> (impl Agent, Stage) {
    let (enter, entered) = mpsc::unbounded_channel();
    let agent = agent_fn(move |turn: Turn| {
        let enter = enter.clone();
        async move {
            let (exit, left) = oneshot::channel();
            if enter.send(Act { turn, _exit: exit }).is_ok() {
                // Dropping the act is the signal.
                let _ = left.await;
            }
            Ok(())
        }
    });
    (agent, Stage(entered))
}

impl Stage {
    /// Waits for the next turn.
    pub(crate) async fn turn(&mut self) -> Act {
        soon(self.0.recv()).await.expect("the server runs")
    }
}

impl std::ops::Deref for Act {
    type Target = Turn;

    fn deref(&self) -> &Turn {
        &self.turn
    }
}
