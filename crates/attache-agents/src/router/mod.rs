//! A router: one agent that passes each message to one of several named agents.
//!
//! A message goes to the agent that it names, else to the agent with the skill that it names, else to the agent of the first rule
//! that matches, else to the default agent. The chosen agent runs the turn itself, so its events are those of the task.
//!
//! The choice is noted in the metadata of the first message of a task, which the server stores. So all turns of a task go to the same
//! agent, also after a restart and after a change of the rules.

mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use attache_core::{Agent, AgentError, AgentResult, BoxAgent, Caller, Conversation, Turn, check_media_types};
use attache_protocol::{AgentCard, AgentSkill, Error, ErrorKind, Json, JsonObject, Message, Role, TaskId};
use futures::Stream;
use tokio::sync::watch;

pub use self::rules::Rule;

/// The member of a message's metadata that names an agent.
pub const AGENT_METADATA: &str = "agent";

/// The member of a message's metadata that names a skill: its id, or `AGENT/ID`.
pub const SKILL_METADATA: &str = "skill";

/// The member of a message's metadata with the name of the agent that the router has chosen for its task.
pub(crate) const CHOSEN_METADATA: &str = "attache.agent";

/// How messages are routed.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct RouterOptions {
    /// The agent for messages that name none and match no rule. Without one, such messages are rejected.
    pub default: Option<String>,
    /// The rules, in the order in which they are tried.
    pub rules: Vec<Rule>,
}

impl RouterOptions {
    /// Messages go to the agents that they name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The agents that the options name.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.agent.as_str()).chain(self.default.as_deref())
    }
}

/// An agent that a router passes messages to, with its card.
#[derive(Debug, Clone)]
pub struct RoutedAgent {
    agent: BoxAgent,
    card: watch::Receiver<AgentCard>,
}

impl RoutedAgent {
    /// An agent whose card does not change.
    pub fn new(agent: impl Agent, card: AgentCard) -> Self {
        // The receiver keeps the last card when its sender is dropped.
        Self::watching(agent, watch::channel(card).1)
    }

    /// An agent with its current card.
    pub fn watching(agent: impl Agent, card: watch::Receiver<AgentCard>) -> Self {
        Self { agent: agent.boxed(), card }
    }
}

/// Passes each message to one of several agents. Cheap to clone: all clones are one router.
#[derive(Debug, Clone)]
pub struct Router(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    routing: ArcSwap<Routing>,
    /// Counts the changes of agents and rules.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Routing {
    options: RouterOptions,
    agents: BTreeMap<String, RoutedAgent>,
}

impl Router {
    /// A router to these agents.
    pub fn new(
        options: RouterOptions,
        agents: impl IntoIterator<Item = (String, RoutedAgent)>,
    ) -> Result<Self, UnknownAgent> {
        let routing = ArcSwap::from_pointee(Routing::new(options, agents)?);
        Ok(Self(Arc::new(Inner { routing, changes: watch::channel(0).0 })))
    }

    /// Replaces the agents and the rules. Running turns are not affected.
    pub fn set(
        &self,
        options: RouterOptions,
        agents: impl IntoIterator<Item = (String, RoutedAgent)>,
    ) -> Result<(), UnknownAgent> {
        self.0.routing.store(Arc::new(Routing::new(options, agents)?));
        self.0.changes.send_modify(|count| *count += 1);
        Ok(())
    }

    /// The card: the skills of all agents. The id of a skill is `AGENT/ID`.
    pub fn card(&self) -> AgentCard {
        self.0.routing.load().card()
    }

    /// The card whenever the agents change. The stream ends with the router, and does not keep it.
    pub fn cards(&self) -> impl Stream<Item = AgentCard> + Send + 'static {
        let (router, changes) = (Arc::downgrade(&self.0), self.0.changes.subscribe());
        futures::stream::unfold((router, changes), |(router, mut changes)| async move {
            changes.changed().await.ok()?;
            let card = router.upgrade()?.routing.load().card();
            Some((card, (router, changes)))
        })
    }
}

/// A rule or the default names an agent that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the router has no agent `{name}`, expected one of: {}", known.join(", "))]
pub struct UnknownAgent {
    /// The name.
    pub name: String,
    /// The names that exist.
    pub known: Vec<String>,
}

/// The agent for a message, or why there is none.
type Choice<'a> = Result<(&'a str, &'a RoutedAgent), Error>;

impl Routing {
    fn new(
        options: RouterOptions,
        agents: impl IntoIterator<Item = (String, RoutedAgent)>,
    ) -> Result<Self, UnknownAgent> {
        let agents: BTreeMap<_, _> = agents.into_iter().collect();
        let unknown = options.agents().find(|name| !agents.contains_key(*name)).map(str::to_owned);
        match unknown {
            Some(name) => Err(UnknownAgent { name, known: agents.keys().cloned().collect() }),
            None => Ok(Self { options, agents }),
        }
    }

    fn card(&self) -> AgentCard {
        let names: Vec<_> = self.agents.keys().map(String::as_str).collect();
        let mut card = AgentCard::new("Router", format!("Passes messages to: {}", names.join(", ")));
        let (mut input, mut output) = (Vec::new(), Vec::new());
        for (name, agent) in &self.agents {
            let own = agent.card.borrow();
            let add = |modes: &mut Vec<String>, more: &[String]| {
                let new: Vec<_> = more.iter().filter(|mode| !modes.contains(mode)).cloned().collect();
                modes.extend(new);
            };
            add(&mut input, &own.default_input_modes);
            add(&mut output, &own.default_output_modes);
            for skill in &own.skills {
                let mut skill = AgentSkill { id: format!("{name}/{}", skill.id), ..skill.clone() };
                if !skill.tags.contains(name) {
                    skill.tags.push(name.clone());
                }
                // A skill without modes of its own has those of its agent, which are not those of the router.
                if skill.input_modes.is_empty() {
                    skill.input_modes.clone_from(&own.default_input_modes);
                }
                if skill.output_modes.is_empty() {
                    skill.output_modes.clone_from(&own.default_output_modes);
                }
                card.skills.push(skill);
            }
        }
        if !input.is_empty() {
            card.default_input_modes = input;
        }
        if !output.is_empty() {
            card.default_output_modes = output;
        }
        card
    }

    fn choose(&self, message: &Message) -> Choice<'_> {
        let named = |member: &str| {
            let metadata = message.metadata.as_ref()?;
            metadata.get::<String>(member)
        };
        if let Some(name) = named(AGENT_METADATA) {
            return self.by_name(&name).ok_or_else(|| {
                let known = self.agents.keys().cloned().collect();
                let text = UnknownAgent { name, known }.to_string();
                Error::invalid_params(format!("message.metadata.{AGENT_METADATA}"), text)
            });
        }
        if let Some(skill) = named(SKILL_METADATA) {
            return self.by_skill(&skill);
        }
        let matching = self.options.rules.iter().find(|rule| {
            self.by_name(&rule.agent).is_some_and(|(_, agent)| rule.matches(message, &agent.card.borrow()))
        });
        let name = matching.map(|rule| rule.agent.as_str()).or(self.options.default.as_deref());
        name.and_then(|name| self.by_name(name)).ok_or_else(|| {
            let names: Vec<_> = self.agents.keys().map(String::as_str).collect();
            let text = format!("name one of these agents: {}", names.join(", "));
            Error::invalid_params(format!("message.metadata.{AGENT_METADATA}"), text)
        })
    }

    /// The agent of a task, by the message that the task began with.
    fn of_task(&self, first: &Message) -> Choice<'_> {
        match chosen(first) {
            None => self.choose(first),
            Some(name) => self.by_name(&name).ok_or_else(|| {
                let text = format!("the agent `{name}`, which this task went to, does not exist any more");
                Error::new(ErrorKind::UnsupportedOperation, text)
            }),
        }
    }

    fn by_name(&self, name: &str) -> Option<(&str, &RoutedAgent)> {
        self.agents.get_key_value(name).map(|(name, agent)| (name.as_str(), agent))
    }

    /// The agent with a skill, by `AGENT/ID`, or by the id if only one agent has it.
    fn by_skill(&self, skill: &str) -> Choice<'_> {
        let has =
            |agent: &RoutedAgent, id: &str| agent.card.borrow().skills.iter().any(|skill| skill.id == id);
        let exact = skill
            .split_once('/')
            .and_then(|(name, id)| self.by_name(name).filter(|(_, agent)| has(agent, id)));
        if let Some(found) = exact {
            return Ok(found);
        }
        let mut all = self.agents.iter().filter(|(_, agent)| has(agent, skill));
        let field = format!("message.metadata.{SKILL_METADATA}");
        match (all.next(), all.next()) {
            (Some((name, agent)), None) => Ok((name, agent)),
            (Some((one, _)), Some((other, _))) => {
                let text = format!("`{one}` and `{other}` have it: name the skill as `{one}/{skill}`");
                Err(Error::invalid_params(&field, text))
            }
            (None, _) => {
                let text = format!("no agent has the skill `{skill}`: the card lists the skills");
                Err(Error::invalid_params(&field, text))
            }
        }
    }
}

/// The agent that the router has noted in the metadata of a message.
fn chosen(message: &Message) -> Option<String> {
    message.metadata.as_ref()?.get(CHOSEN_METADATA)
}

/// Notes the chosen agent in the metadata of a message. A note of the caller is removed.
fn note(message: &mut Message, name: Option<&str>) -> Result<(), serde_json::Error> {
    if name.is_none() && chosen(message).is_none() {
        return Ok(());
    }
    let mut members: BTreeMap<String, Json> = match &message.metadata {
        Some(metadata) => metadata.read()?,
        None => BTreeMap::new(),
    };
    members.remove(CHOSEN_METADATA);
    if let Some(name) = name {
        members.insert(CHOSEN_METADATA.to_owned(), Json::new(name)?);
    }
    message.metadata = Some(JsonObject::new(&members)?);
    Ok(())
}

impl Agent for Router {
    async fn run(&self, turn: Turn) -> AgentResult {
        let routing = self.0.routing.load_full();
        let task = turn.task();
        let first =
            task.as_ref().and_then(|task| task.history.iter().find(|message| message.role == Role::User));
        let (name, agent) = routing
            .of_task(first.unwrap_or(turn.message()))
            .map_err(|error| AgentError::public(error.message().to_owned()))?;
        tracing::debug!(target: "attache::router", task = %turn.task_id(), agent = name, "chose an agent");
        agent.agent.run(turn).await
    }

    fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
        // A follow-up goes to the agent of its task, which is not known here.
        if message.task_id.is_some() {
            return Ok(());
        }
        let routing = self.0.routing.load();
        let (_, agent) = routing.choose(message)?;
        check_media_types(&agent.card.borrow(), message)?;
        agent.agent.admits(caller, message)
    }

    fn prepare(&self, first: &mut Message) {
        let routing = self.0.routing.load();
        let choice = routing.choose(first).ok();
        if let Some((_, agent)) = choice {
            agent.agent.prepare(first);
        }
        if let Err(error) = note(first, choice.map(|(name, _)| name)) {
            tracing::warn!(target: "attache::router", %error, "the chosen agent cannot be noted");
        }
    }

    /// The rules of the agent that the task goes to.
    fn conversation(&self, first: &Message) -> Option<Arc<Conversation>> {
        let routing = self.0.routing.load();
        let (_, agent) = routing.of_task(first).ok()?;
        agent.agent.conversation(first)
    }

    /// Whether the turns of all agents may run again.
    fn restartable(&self) -> bool {
        self.0.routing.load().agents.values().all(|agent| agent.agent.restartable())
    }

    /// As the agent of the task says.
    fn restarts(&self, first: &Message) -> bool {
        let routing = self.0.routing.load();
        routing.of_task(first).is_ok_and(|(_, agent)| agent.agent.restarts(first))
    }

    fn reports(&self) -> bool {
        self.0.routing.load().agents.values().any(|agent| agent.agent.reports())
    }

    fn task_ended(&self, task: &TaskId) {
        for agent in self.0.routing.load().agents.values() {
            agent.agent.task_ended(task);
        }
    }
}
