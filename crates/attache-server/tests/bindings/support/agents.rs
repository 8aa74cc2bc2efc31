//! Agents that tests tell what to do.

use attache_core::{Agent, AgentResult, Turn, agent_fn};
use tokio::sync::{mpsc, oneshot};

use super::soon;

/// Where a test plays the agent itself: each turn waits for it.
pub(crate) struct Stage(mpsc::UnboundedReceiver<Act>);

/// One turn of the agent that a test plays. The turn is over when this is dropped.
pub(crate) struct Act {
    turn: Turn,
    pauses: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

/// An agent that leaves everything to the test.
pub(crate) fn stage() -> (impl Agent, Stage) {
    let (enter, entered) = mpsc::unbounded_channel();
    let agent = agent_fn(move |turn: Turn| {
        let enter = enter.clone();
        async move {
            let (pauses, mut asked) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
            // A test that is over needs no agent.
            let _ = enter.send(Act { turn, pauses });
            while let Some(paused) = asked.recv().await {
                // What was said is written while the agent pauses.
                tokio::task::yield_now().await;
                let _ = paused.send(());
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

impl Act {
    /// Says something, and waits until it is written.
    pub(crate) async fn say(&self, what: impl IntoFuture<Output = AgentResult>) -> AgentResult {
        what.await?;
        let (paused, pause) = oneshot::channel();
        if self.pauses.send(paused).is_ok() {
            // A turn that is over writes nothing more.
            let _ = soon(pause).await;
        }
        Ok(())
    }

    pub(crate) async fn working(&self, text: &str) {
        self.say(self.turn.working(text)).await.unwrap();
    }

    pub(crate) async fn text(&self, artifact: impl Into<String>, text: &str) {
        self.say(self.turn.artifact(artifact).text(text)).await.unwrap();
    }

    pub(crate) async fn ask(&self, text: &str) {
        self.say(self.turn.ask(text)).await.unwrap();
    }

    pub(crate) async fn complete(&self) {
        self.say(self.turn.complete()).await.unwrap();
    }

    /// The turn itself.
    pub(crate) fn turn(&self) -> &Turn {
        &self.turn
    }

    pub(crate) fn task_id(&self) -> String {
        self.turn.task_id().as_str().to_owned()
    }
}
