//! An agent that can be served, with its current card.

use std::sync::Arc;

use attache::core::BoxAgent;
use attache::prelude::*;
use attache::protocol::AgentCard;
use attache_agents::mcp::Mcp;
use attache_agents::router::RoutedAgent;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::sync::watch;

use super::AgentSection;
use crate::command::Failure;
use crate::config::CardOverrides;

/// Gives an agent new settings, and the other agents as they are now.
type Follow = dyn Fn(&AgentSection, Vec<(String, RoutedAgent)>) -> Result<(), Failure> + Send + Sync;

/// An agent that can be served, with its current card.
#[derive(Clone)]
pub(in super::super) struct BuiltAgent {
    pub(in super::super) agent: BoxAgent,
    pub(in super::super) card: watch::Receiver<AgentCard>,
    /// The MCP server that the agent is, if it is one.
    pub(super) mcp: Option<Mcp>,
    /// The agent itself, for one that was not available when it was built.
    pub(super) later: Option<watch::Receiver<Option<Self>>>,
    /// How the agent changes with other agents, if it passes messages to them.
    pub(in super::super) follow: Option<Arc<Follow>>,
}

impl BuiltAgent {
    /// An agent whose card does not change.
    pub(in super::super) fn new(agent: impl Agent, card: AgentCard, overrides: CardOverrides) -> Self {
        Self::with_updates(agent, card, futures::stream::empty().boxed(), overrides)
    }

    /// An agent whose card may change. What the operator says is applied to every card. The updates are dropped when the agent is.
    pub(super) fn with_updates(
        agent: impl Agent,
        card: AgentCard,
        mut updates: BoxStream<'static, AgentCard>,
        overrides: CardOverrides,
    ) -> Self {
        let changed = move |mut card: AgentCard| {
            overrides.apply(&mut card);
            card
        };
        let (sender, receiver) = watch::channel(changed(card));
        tokio::spawn(async move {
            // The updates of an agent that was removed may never end by themselves, and may keep what the agent is connected to.
            tokio::select! {
                () = sender.closed() => {}
                () = async {
                    while let Some(card) = updates.next().await {
                        sender.send_replace(changed(card));
                    }
                } => {}
            }
        });
        Self { agent: agent.boxed(), card: receiver, mcp: None, later: None, follow: None }
    }

    /// The same agent, or one that stands for it, at another place.
    pub(in super::super) fn in_place(agent: BoxAgent, card: watch::Receiver<AgentCard>) -> Self {
        Self { agent, card, mcp: None, later: None, follow: None }
    }

    /// The MCP server that the agent is, if it is one and is available.
    pub(in super::super) fn current_mcp(&self) -> Option<Mcp> {
        let later = || self.later.as_ref()?.borrow().as_ref()?.mcp.clone();
        self.mcp.clone().or_else(later)
    }

    /// The current card.
    pub(in super::super) fn current_card(&self) -> AgentCard {
        self.card.borrow().clone()
    }

    /// The card whenever it changes.
    pub(in super::super) fn cards(&self) -> impl Stream<Item = AgentCard> + Send + 'static {
        futures::stream::unfold(self.card.clone(), |mut card| async move {
            card.changed().await.ok()?;
            let current = card.borrow_and_update().clone();
            Some((current, card))
        })
    }

    /// The agent for a router.
    pub(in super::super) fn routed(&self) -> RoutedAgent {
        RoutedAgent::watching(self.agent.clone(), self.card.clone())
    }
}

#[cfg(test)]
mod tests {
    use attache::core::Echo;
    use tokio::sync::oneshot::{self, error::TryRecvError};

    use super::*;

    #[tokio::test]
    async fn the_updates_of_an_agent_end_when_the_agent_is_removed() {
        let (kept, mut ended) = oneshot::channel::<()>();
        let updates = futures::stream::once(async move {
            let _kept = kept;
            std::future::pending::<AgentCard>().await
        });
        let card = AgentCard::new("Agent", "Waits for ever");
        let built = BuiltAgent::with_updates(Echo, card, updates.boxed(), CardOverrides::default());
        let clone = built.clone();
        drop(built);
        tokio::task::yield_now().await;
        assert_eq!(ended.try_recv(), Err(TryRecvError::Empty), "a clone is still in use");
        drop(clone);
        assert!(ended.await.is_err());
    }
}
