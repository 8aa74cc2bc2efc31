//! The named agents of a server: made at the start, changed by a reload.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use attache::core::{BoxAgent, Caller, Conversation};
use attache::prelude::*;
use attache::protocol::{AgentCard, Error, Message, TaskId};
use attache::server::{Agents, Limits, NamedAgent};
use attache_agents::router::Router;
use futures::StreamExt;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::agents::AgentName;
use super::kinds::{self, BuildContext, BuiltAgent};
use crate::command::Failure;
use crate::config::{AgentSection, CardOverrides, CheckedAgent};

/// The agents that are not functions, as they run.
pub(super) struct RunningAgents {
    context: BuildContext,
    checked: BTreeMap<String, CheckedAgent>,
    /// All named agents but the routers.
    built: BTreeMap<String, BuiltAgent>,
    routers: BTreeMap<String, (Router, BuiltAgent)>,
    root: Option<Root>,
}

/// The agent at the root, if a reload can change it.
enum Root {
    Router(Router),
    Named(String, RootSlot),
}

/// An agent of the list that is at the root too.
struct RootSlot {
    agent: Arc<ArcSwap<BoxAgent>>,
    card: watch::Sender<AgentCard>,
    /// Repeats the cards of the current agent. Aborted when another agent takes its place.
    cards: AbortOnDropHandle<()>,
}

impl RootSlot {
    fn new(built: &BuiltAgent) -> Self {
        let card = watch::channel(built.current_card()).0;
        let cards = Self::repeat_cards(built, &card);
        Self { agent: Arc::new(ArcSwap::from_pointee(built.agent.clone())), card, cards }
    }

    fn set(&mut self, built: &BuiltAgent) {
        self.agent.store(Arc::new(built.agent.clone()));
        self.card.send_replace(built.current_card());
        self.cards = Self::repeat_cards(built, &self.card);
    }

    fn repeat_cards(built: &BuiltAgent, to: &watch::Sender<AgentCard>) -> AbortOnDropHandle<()> {
        let (mut cards, to) = (Box::pin(built.cards()), to.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            while let Some(card) = cards.next().await {
                to.send_replace(card);
            }
        }))
    }
}

/// The current agent of a [`RootSlot`].
struct CurrentAgent(Arc<ArcSwap<BoxAgent>>);

impl Agent for CurrentAgent {
    async fn run(&self, turn: Turn) -> AgentResult {
        let agent = self.0.load_full();
        agent.run(turn).await
    }

    fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
        self.0.load().admits(caller, message)
    }

    fn restartable(&self) -> bool {
        self.0.load().restartable()
    }

    fn reports(&self) -> bool {
        self.0.load().reports()
    }

    fn conversation(&self, first: &Message) -> Option<Arc<Conversation>> {
        self.0.load().conversation(first)
    }

    fn task_ended(&self, task: &TaskId) {
        self.0.load().task_ended(task);
    }
}

/// Agents that are made but not yet in use.
pub(super) struct NextAgents {
    checked: BTreeMap<String, CheckedAgent>,
    /// Those that are new or whose settings have changed.
    built: BTreeMap<String, BuiltAgent>,
}

impl NextAgents {
    /// Whether there are no named agents.
    pub(super) fn is_empty(&self) -> bool {
        self.checked.is_empty()
    }
}

impl RunningAgents {
    /// Makes all named agents.
    pub(super) async fn start(
        context: BuildContext,
        checked: BTreeMap<String, CheckedAgent>,
    ) -> Result<Self, Failure> {
        let nothing = Self {
            context: context.clone(),
            checked: BTreeMap::new(),
            built: BTreeMap::new(),
            routers: BTreeMap::new(),
            root: None,
        };
        let NextAgents { checked, built } = nothing.prepare(checked).await?;
        let mut routers = BTreeMap::new();
        for (name, agent) in &checked {
            if let AgentSection::Router(router) = &agent.section {
                let router = kinds::build_router(router, &built, agent.card.clone());
                routers.insert(name.clone(), router.map_err(|failure| in_agent(name, failure))?);
            }
        }
        let agents = Self { context, checked, built, routers, root: None };
        agents.publish_mcp();
        Ok(agents)
    }

    /// Lets models call the tools of the MCP servers that there are now.
    fn publish_mcp(&self) {
        let servers = self.built.iter().filter_map(|(name, agent)| Some((name.clone(), agent.mcp.clone()?)));
        self.context.tools.mcp.store(Arc::new(servers.collect()));
    }

    /// Makes the agents that are new or have changed. Nothing that runs is touched.
    pub(super) async fn prepare(
        &self,
        checked: BTreeMap<String, CheckedAgent>,
    ) -> Result<NextAgents, Failure> {
        let mut built = BTreeMap::new();
        for (name, agent) in &checked {
            let is_same = self.checked.get(name).is_some_and(|old| old.settings == agent.settings);
            if is_same || matches!(agent.section, AgentSection::Router(_)) {
                continue;
            }
            let made = kinds::build(Some(name), &agent.section, agent.card.clone(), &self.context).await;
            built.insert(name.clone(), made.map_err(|failure| in_agent(name, failure))?);
        }
        Ok(NextAgents { checked, built })
    }

    /// Makes the agent at the root.
    pub(super) async fn root(
        &mut self,
        name: &AgentName,
        section: Option<AgentSection>,
    ) -> Result<BuiltAgent, Failure> {
        // What the operator says about the agent at the root is applied by the server.
        let overrides = CardOverrides::default();
        match (name, section) {
            (_, Some(AgentSection::Router(router))) => {
                let (router, built) = kinds::build_router(&router, &self.built, overrides)?;
                self.root = Some(Root::Router(router));
                Ok(built)
            }
            (_, Some(section)) => kinds::build(None, &section, overrides, &self.context).await,
            (AgentName::Named(name), None) => {
                let routers = self.routers.get(name).map(|(_, built)| built);
                let Some(found) = self.built.get(name).or(routers) else {
                    return Err(Failure::usage(format!("there is no agent `{name}`")));
                };
                let slot = RootSlot::new(found);
                let agent = CurrentAgent(slot.agent.clone()).boxed();
                let built = BuiltAgent { agent, card: slot.card.subscribe(), mcp: None };
                self.root = Some(Root::Named(name.clone(), slot));
                Ok(built)
            }
            (AgentName::Kind(_), None) => Err(Failure::new("functions are served in another way")),
        }
    }

    /// Puts all agents on a server.
    pub(super) fn publish(&self, server: &Agents, limits: &Limits) -> Result<(), Failure> {
        for (name, built) in self.all() {
            if let Some(checked) = self.checked.get(name) {
                put(server, name, checked, built, limits)?;
            }
        }
        Ok(())
    }

    fn all(&self) -> impl Iterator<Item = (&String, &BuiltAgent)> {
        self.built.iter().chain(self.routers.iter().map(|(name, (_, built))| (name, built)))
    }

    /// Says what the next settings would protect less.
    pub(super) fn weaker(
        &self,
        next: &BTreeMap<String, CheckedAgent>,
        server_authenticates: bool,
    ) -> Option<String> {
        self.checked.iter().find_map(|(name, now)| {
            let (now, then) = (now.callers.as_ref()?, next.get(name)?);
            match &then.callers {
                Some(then) => then.asks_less_than(now),
                None if server_authenticates => None,
                None => Some(format!("callers of the agent `{name}` would no longer be authenticated")),
            }
        })
    }

    /// Uses agents that were prepared. Agents that have not changed are not touched.
    pub(super) fn apply(
        &mut self,
        next: NextAgents,
        server: &Agents,
        limits: &Limits,
    ) -> Result<(), Failure> {
        let NextAgents { checked, built: new } = next;
        for name in self.checked.keys().filter(|name| !checked.contains_key(*name)) {
            server.remove(name);
            tracing::info!(agent = name, "removed an agent");
        }
        let is_router = |name: &String| {
            checked.get(name).is_some_and(|agent| matches!(agent.section, AgentSection::Router(_)))
        };
        self.built.retain(|name, _| checked.contains_key(name) && !is_router(name));
        self.routers.retain(|name, _| is_router(name));
        for (name, built) in new {
            if let Some(agent) = checked.get(&name) {
                put(server, &name, agent, &built, limits)?;
                tracing::info!(agent = name, "changed an agent");
            }
            self.built.insert(name, built);
        }
        for (name, agent) in &checked {
            let AgentSection::Router(settings) = &agent.section else { continue };
            match self.routers.get(name) {
                Some((router, _)) => {
                    let set = router.set(settings.options(), kinds::routed(&self.built));
                    set.map_err(|error| in_agent(name, Failure::new(error)))?;
                    if self.checked.get(name).is_some_and(|old| old.settings == agent.settings) {
                        continue;
                    }
                }
                None => {
                    let made = kinds::build_router(settings, &self.built, agent.card.clone())?;
                    self.routers.insert(name.clone(), made);
                }
            }
            if let Some((_, built)) = self.routers.get(name) {
                put(server, name, agent, built, limits)?;
                tracing::info!(agent = name, "changed an agent");
            }
        }
        self.checked = checked;
        self.publish_mcp();
        Ok(())
    }

    /// Changes the agent at the root, where it depends on the named agents.
    pub(super) fn apply_root(&mut self, section: Option<&AgentSection>) -> Result<(), Failure> {
        match (&mut self.root, section) {
            (Some(Root::Router(router)), Some(AgentSection::Router(settings))) => router
                .set(settings.options(), kinds::routed(&self.built))
                .map_err(|error| Failure::new(error).hint("the router at the root stays as it was")),
            (Some(Root::Named(name, slot)), _) => {
                let router = self.routers.get(name).map(|(_, built)| built);
                if let Some(built) = self.built.get(name).or(router) {
                    slot.set(built);
                }
                Ok(())
            }
            (Some(Root::Router(_)) | None, _) => Ok(()),
        }
    }
}

fn put(
    server: &Agents,
    name: &str,
    checked: &CheckedAgent,
    built: &BuiltAgent,
    limits: &Limits,
) -> Result<(), Failure> {
    let mut agent =
        NamedAgent::new(built.agent.clone()).card(built.current_card()).card_updates(built.cards());
    if let Some(authenticator) = checked.authenticator()? {
        agent = agent.authenticate(authenticator);
    }
    if let Some(limits) = checked.limits(limits) {
        agent = agent.limits(limits);
    }
    server.put(name, agent).map_err(|error| in_agent(name, Failure::new(error)))
}

/// A failure of one of the agents.
fn in_agent(name: &str, failure: Failure) -> Failure {
    failure.about(format!("the agent `{name}`"))
}

#[cfg(test)]
mod tests {
    use attache::core::Echo;

    use super::*;

    fn agent(name: &str) -> (watch::Sender<AgentCard>, BuiltAgent) {
        let (sender, card) = watch::channel(AgentCard::new(name, "d"));
        (sender, BuiltAgent { agent: Echo.boxed(), card, mcp: None })
    }

    #[tokio::test]
    async fn the_root_repeats_the_cards_of_its_current_agent_only() {
        let ((old, first), (new, second)) = (agent("first"), agent("second"));
        let mut slot = RootSlot::new(&first);
        let mut cards = slot.card.subscribe();
        let mut next = async || {
            cards.changed().await.unwrap();
            cards.borrow_and_update().name.clone()
        };
        old.send_replace(AgentCard::new("first, changed", "d"));
        assert_eq!(next().await, "first, changed");
        slot.set(&second);
        assert_eq!(next().await, "second");
        old.send_replace(AgentCard::new("first, changed again", "d"));
        new.send_replace(AgentCard::new("second, changed", "d"));
        assert_eq!(next().await, "second, changed");
    }
}
