//! The named agents of a server: made at the start, changed by a reload.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use attache::core::{BoxAgent, Caller, Conversation};
use attache::prelude::*;
use attache::protocol::{AgentCard, Error, Message, TaskId};
use attache::server::auth::{AnonymousAccess, Reloadable};
use attache::server::{Agents, Limits, NamedAgent};
use attache_agents::router::RoutedAgent;
use futures::StreamExt;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::agents::AgentName;
use super::kinds::{
    AgentSection, BuildContext, BuildRequest, BuiltAgent, CheckContext, CheckedAgent, OnFailure, TurnTimes,
};
use crate::command::Failure;
use crate::config::{Callers, CardOverrides, CardPresentation, Problems, ResolvedSettings};

/// The agents that are not functions, as they run.
pub(super) struct RunningAgents {
    context: BuildContext,
    /// The callers of the server, for an agent at the root that has none of its own.
    server_callers: Reloadable,
    checked: BTreeMap<String, CheckedAgent>,
    built: BTreeMap<String, BuiltAgent>,
    root: Option<Root>,
    /// How long turns at the root may take. It is set at the start.
    root_times: TurnTimes,
}

/// The agent at the root, if a reload can change it.
enum Root {
    /// An agent that changes with the named agents, and its current settings.
    Follows(BuiltAgent, AgentSection),
    Named(Box<NamedRoot>),
}

/// An agent of the list that is at the root too. It has the same callers and limits at both places.
struct NamedRoot {
    name: String,
    slot: RootSlot,
    authenticator: Reloadable,
    /// The callers of the agent, if it has its own.
    callers: Option<Callers>,
    /// Whether the limits at the root are separate from those of the server.
    has_own_limits: bool,
    /// How the server completes the card at the root. It is set at the start.
    presentation: CardPresentation,
}

impl NamedRoot {
    /// Lets in the callers of the agent if it has its own, else those of the server.
    fn set_callers(&mut self, agent: &CheckedAgent, server: &Reloadable) -> Result<(), Failure> {
        match agent.authenticator()? {
            // An authenticator with the same callers stays, with the keys that it has fetched.
            Some(_) if self.callers == agent.callers => {}
            Some(own) => self.authenticator.replace(own),
            None => self.authenticator.replace(server.clone()),
        }
        self.callers.clone_from(&agent.callers);
        Ok(())
    }
}

/// The agent at the root, and how it is served.
pub(super) struct RootAgent {
    pub(super) built: BuiltAgent,
    /// The callers of a named agent. Without it, those of the server.
    pub(super) authenticator: Option<Reloadable>,
    /// The limits of a named agent, if it has its own.
    pub(super) limits: Option<Limits>,
    /// How long its turns may take.
    pub(super) times: TurnTimes,
}

/// The card and the agent of a [`NamedRoot`].
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

    fn prepare(&self, first: &mut Message) {
        self.0.load().prepare(first);
    }

    fn restartable(&self) -> bool {
        self.0.load().restartable()
    }

    fn restarts(&self, first: &Message) -> bool {
        self.0.load().restarts(first)
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
        server_callers: Option<Reloadable>,
        checked: BTreeMap<String, CheckedAgent>,
    ) -> Result<Self, Failure> {
        // Only a file can list callers and name agents.
        let server_callers = server_callers.unwrap_or_else(|| Reloadable::new(AnonymousAccess));
        let mut agents = Self {
            context,
            server_callers,
            checked: BTreeMap::new(),
            built: BTreeMap::new(),
            root: None,
            root_times: TurnTimes::default(),
        };
        // One agent that is down keeps none of the others from running.
        let NextAgents { checked, built } = agents.prepare(checked, OnFailure::TryAgain).await?;
        (agents.checked, agents.built) = (checked, built);
        let users = agents.checked.iter().filter(|(_, agent)| agent.section.uses_others());
        let mut made = Vec::new();
        for (name, agent) in users {
            let built = agents.build(Some(name), &agent.section, agent.card.clone()).await;
            made.push((name.clone(), built.map_err(|failure| in_agent(name, failure))?));
        }
        agents.built.extend(made);
        agents.publish_mcp();
        Ok(agents)
    }

    /// Builds an agent. It can pass messages to the named agents that exist.
    async fn build(
        &self,
        name: Option<&str>,
        section: &AgentSection,
        card: CardOverrides,
    ) -> Result<BuiltAgent, Failure> {
        self.request(name, section, card).build().await
    }

    fn request(&self, name: Option<&str>, section: &AgentSection, card: CardOverrides) -> BuildRequest {
        let others = if section.uses_others() { self.routed() } else { Vec::new() };
        let (name, section, context) = (name.map(str::to_owned), section.clone(), self.context.clone());
        BuildRequest { name, section, card, others, context }
    }

    /// The agents that routers pass messages to. An agent with callers of its own is not one of them, because the router has other
    /// callers.
    fn routed(&self) -> Vec<(String, RoutedAgent)> {
        let has_own_callers =
            |name: &String| self.checked.get(name).is_none_or(|agent| agent.callers.is_some());
        let agents = self.built.iter().filter(|(_, agent)| agent.follow.is_none());
        let agents = agents.filter(|(name, _)| !has_own_callers(name));
        agents.map(|(name, agent)| (name.clone(), agent.routed())).collect()
    }

    /// How long the turns of an agent may take.
    fn times(&self, section: &AgentSection) -> TurnTimes {
        times_among(&self.checked, section)
    }

    /// Lets models call the tools of the MCP servers that there are now.
    fn publish_mcp(&self) {
        let servers =
            self.built.iter().filter_map(|(name, agent)| Some((name.clone(), agent.current_mcp()?)));
        self.context.tools.mcp.store(Arc::new(servers.collect()));
    }

    /// Makes the agents that are new or have changed. Nothing that runs is touched.
    pub(super) async fn prepare(
        &self,
        checked: BTreeMap<String, CheckedAgent>,
        on_failure: OnFailure,
    ) -> Result<NextAgents, Failure> {
        let mut requests = Vec::new();
        for (name, agent) in &checked {
            // Callers that cannot be authenticated are reported before anything changes.
            agent.authenticator().map_err(|failure| in_agent(name, failure))?;
            let is_same = self.checked.get(name).is_some_and(|old| old.is_same(agent));
            // An agent that uses others is made when they are in use.
            if is_same || agent.section.uses_others() {
                continue;
            }
            let request = self.request(Some(name), &agent.section, agent.card.clone());
            requests.push(async move {
                let built = request.build_named(on_failure).await;
                built.map(|built| (name.clone(), built)).map_err(|failure| in_agent(name, failure))
            });
        }
        let built = futures::future::try_join_all(requests).await?.into_iter().collect();
        Ok(NextAgents { checked, built })
    }

    /// Makes the agent at the root. What the operator says about it is applied again by the server, which changes nothing.
    pub(super) async fn root(
        &mut self,
        name: &AgentName,
        section: Option<AgentSection>,
        overrides: &CardOverrides,
        limits: &Limits,
    ) -> Result<RootAgent, Failure> {
        match (name, section) {
            (_, Some(section)) => {
                let built = self.build(None, &section, overrides.clone()).await?;
                let times = self.times(&section);
                self.root = built.follow.is_some().then(|| Root::Follows(built.clone(), section));
                self.root_times = times;
                Ok(RootAgent { built, authenticator: None, limits: None, times })
            }
            (AgentName::Named(name), None) => {
                let (Some(found), Some(checked)) = (self.built.get(name), self.checked.get(name)) else {
                    return Err(Failure::usage(format!("there is no agent `{name}`")));
                };
                let slot = RootSlot::new(found);
                let agent = CurrentAgent(slot.agent.clone()).boxed();
                let built = BuiltAgent::in_place(agent, slot.card.subscribe());
                let (limits, times) = (checked.limits(limits), self.times(&checked.section));
                let authenticator = Reloadable::new(self.server_callers.clone());
                let mut root = NamedRoot {
                    name: name.clone(),
                    slot,
                    authenticator: authenticator.clone(),
                    callers: None,
                    has_own_limits: limits.is_some(),
                    presentation: checked.card.presentation().clone(),
                };
                root.set_callers(checked, &self.server_callers)?;
                (self.root, self.root_times) = (Some(Root::Named(Box::new(root))), times);
                Ok(RootAgent { built, authenticator: Some(authenticator), limits, times })
            }
            (AgentName::Functions | AgentName::Kind(_), None) => {
                Err(Failure::new("functions are served in another way"))
            }
        }
    }

    /// Puts all agents on a server.
    pub(super) fn publish(&self, server: &Agents, limits: &Limits) -> Result<(), Failure> {
        for (name, built) in &self.built {
            if let Some(checked) = self.checked.get(name) {
                put(server, name, checked, built, limits, self.times(&checked.section))?;
            }
        }
        Ok(())
    }

    /// Says what the next settings would protect less.
    pub(super) fn weaker(
        &self,
        next: &BTreeMap<String, CheckedAgent>,
        server_authenticates: bool,
    ) -> Option<String> {
        let named = self.checked.iter().map(|(name, agent)| (name, agent.callers.as_ref()));
        // The agent at the root stays there if it is removed from the list.
        let root = match &self.root {
            Some(Root::Named(root)) => Some((&root.name, root.callers.as_ref())),
            Some(Root::Follows(..)) | None => None,
        };
        named.chain(root).find_map(|(name, now)| {
            let (now, then) = (now?, next.get(name)?);
            match &then.callers {
                Some(then) => then.asks_less_than(now),
                None if server_authenticates => None,
                None => Some(format!("callers of the agent `{name}` would no longer be authenticated")),
            }
        })
    }

    /// Checks that the agent at the root can go on with the next named agents. `section` is its next settings, if the file has any
    /// for an agent of its kind.
    pub(super) fn check_root(
        &self,
        section: Option<&AgentSection>,
        next: &ResolvedSettings,
    ) -> Result<(), Failure> {
        let (Some(Root::Follows(_, now)), Some(file)) = (&self.root, &next.file) else { return Ok(()) };
        if section.is_some_and(|section| section.kind() == now.kind()) {
            return Ok(());
        }
        let named = &file.settings.agents;
        let context = CheckContext { named, is_root: true, has_functions: false };
        let mut problems = Problems::of(next);
        problems.section_or(now.kind(), "agent", |problems| now.check(&context, problems));
        problems.result().map_err(|failure| {
            failure.hint("the agent at the root changes at a restart only, and goes on with these settings")
        })
    }

    /// Uses agents that were prepared. Agents that have not changed are not touched.
    pub(super) async fn apply(
        &mut self,
        next: NextAgents,
        server: &Agents,
        limits: &Limits,
    ) -> Result<(), Failure> {
        let NextAgents { checked, built: new } = next;
        let old = std::mem::replace(&mut self.checked, checked);
        for name in old.keys().filter(|name| !self.checked.contains_key(*name)) {
            server.remove(name);
            tracing::info!(agent = name, "removed an agent");
        }
        // An agent that uses others and does so no more, or the other way round, is made anew.
        self.built.retain(|name, built| {
            let agent = self.checked.get(name);
            agent.is_some_and(|agent| agent.section.uses_others() == built.follow.is_some())
        });
        for (name, built) in new {
            if let Some(agent) = self.checked.get(&name) {
                put(server, &name, agent, &built, limits, self.times(&agent.section))?;
                tracing::info!(agent = name, "changed an agent");
            }
            self.built.insert(name, built);
        }
        let mut made = Vec::new();
        for (name, agent) in self.checked.iter().filter(|(_, agent)| agent.section.uses_others()) {
            let built = match self.built.get(name) {
                Some(built) => {
                    if let Some(follow) = &built.follow {
                        let followed = follow(&agent.section, self.routed());
                        followed.map_err(|failure| in_agent(name, failure))?;
                    }
                    // The times of a router follow the agents that it passes messages to.
                    let has_same_times = || times_among(&old, &agent.section) == self.times(&agent.section);
                    if old.get(name).is_some_and(|old| old.is_same(agent)) && has_same_times() {
                        continue;
                    }
                    built.clone()
                }
                None => self.build(Some(name), &agent.section, agent.card.clone()).await?,
            };
            put(server, name, agent, &built, limits, self.times(&agent.section))?;
            tracing::info!(agent = name, "changed an agent");
            made.push((name.clone(), built));
        }
        self.built.extend(made);
        self.publish_mcp();
        Ok(())
    }

    /// Changes the agent at the root, where it depends on the named agents. `section` is its next settings, if the file has any for an
    /// agent of its kind. Returns the limits of its callers, if they are not those of the server.
    pub(super) fn apply_root(
        &mut self,
        section: Option<&AgentSection>,
        limits: &Limits,
    ) -> Result<Option<Limits>, Failure> {
        let routed = self.routed();
        let (section, limits) = match &mut self.root {
            Some(Root::Follows(built, now)) => {
                if let Some(next) = section.filter(|next| next.kind() == now.kind()) {
                    *now = next.clone();
                }
                if let Some(follow) = &built.follow {
                    follow(now, routed)
                        .map_err(|failure| failure.hint("the agent at the root stays as it was"))?;
                }
                (now.clone(), None)
            }
            Some(Root::Named(root)) => {
                let (Some(built), Some(agent)) = (self.built.get(&root.name), self.checked.get(&root.name))
                else {
                    // It was removed from the list, and goes on as it is.
                    return Ok(None);
                };
                // The callers change first: the next settings of the agent may be for fewer of them.
                root.set_callers(agent, &self.server_callers)?;
                root.slot.set(built);
                let own = agent.limits(limits);
                if own.is_some() && !root.has_own_limits {
                    tracing::warn!(agent = root.name, "the limits of the agent at the root need a restart");
                }
                if root.presentation != *agent.card.presentation() {
                    tracing::warn!(
                        agent = root.name,
                        "`schemes`, `grpc` and `transports` in the card of the agent at the root need a restart"
                    );
                }
                let limits = root.has_own_limits.then(|| own.unwrap_or_else(|| limits.clone()));
                (agent.section.clone(), limits)
            }
            None => return Ok(None),
        };
        if self.times(&section).exceed(self.root_times) {
            tracing::warn!("longer times of the agent at the root need a restart");
        }
        Ok(limits)
    }
}

/// How long the turns of an agent may take among these named agents. A router passes them to any of those.
fn times_among(named: &BTreeMap<String, CheckedAgent>, section: &AgentSection) -> TurnTimes {
    match section.uses_others() {
        true => named.values().map(|agent| agent.section.times()).fold(section.times(), TurnTimes::max),
        false => section.times(),
    }
}

fn put(
    server: &Agents,
    name: &str,
    checked: &CheckedAgent,
    built: &BuiltAgent,
    limits: &Limits,
    times: TurnTimes,
) -> Result<(), Failure> {
    let mut agent =
        NamedAgent::new(built.agent.clone()).card(built.current_card()).card_updates(built.cards());
    if let Some(authenticator) = checked.authenticator()? {
        agent = agent.authenticate(authenticator);
    }
    if let Some(limits) = checked.limits(limits) {
        agent = agent.limits(limits);
    }
    agent = checked.card.presentation().apply_to_agent(agent);
    agent = agent.service_options(move |options| times.apply(options));
    server.put(name, agent).map_err(|error| in_agent(name, Failure::new(error)))
}

/// A failure of one of the agents.
fn in_agent(name: &str, failure: Failure) -> Failure {
    failure.about(format!("the agent `{name}`"))
}

#[cfg(test)]
mod tests {
    use attache::core::Echo;

    use super::super::kinds::{SecretFiles, sections};
    use super::*;

    fn checked(settings: &str) -> CheckedAgent {
        let settings: crate::config::NamedAgent = serde_json::from_str(settings).unwrap();
        let section = sections(&settings).remove(0);
        CheckedAgent {
            settings,
            section,
            card: CardOverrides::default(),
            secrets: SecretFiles::default(),
            callers: None,
        }
    }

    #[test]
    fn a_router_has_as_much_time_as_the_slowest_agent_behind_it() {
        let named = [
            ("slow", r#"{"program": {"command": ["a"], "timeout": "3h", "grace": "30s"}}"#),
            ("fast", r#"{"echo": true}"#),
            ("desk", r#"{"router": {"default": "slow"}}"#),
        ];
        let named = named.map(|(name, settings)| (name.to_owned(), checked(settings)));
        let named = BTreeMap::from(named);
        let times = |name: &str| times_among(&named, &named[name].section);
        assert_eq!(times("desk"), times("slow"));
        assert!(times("desk").exceed(times("fast")));
    }

    fn agent(name: &str) -> (watch::Sender<AgentCard>, BuiltAgent) {
        let (sender, card) = watch::channel(AgentCard::new(name, "d"));
        (sender, BuiltAgent::in_place(Echo.boxed(), card))
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
