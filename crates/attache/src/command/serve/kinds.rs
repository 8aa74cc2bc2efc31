//! Makes agents from their settings, whether they are at the root or have names.

use std::collections::BTreeMap;
use std::sync::Arc;

use attache::client::AddressBook;
use attache::core::{BoxAgent, Conversation, DefaultWorkspace, Echo, Store};
use attache::prelude::*;
use attache::protocol::AgentCard;
use attache_agents::AgentCredentials;
use attache_agents::acp::{Acp, AcpOptions};
use attache_agents::budget::Budget;
use attache_agents::gateway::Gateway;
use attache_agents::mcp::Mcp;
use attache_agents::model::Model;
use attache_agents::program::{Program, Protocol};
use attache_agents::router::{RoutedAgent, Router};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use tokio::sync::watch;

use super::agents::{AgentName, Kind};
use super::tools::ToolSources;
use super::{Serve, is_http};
use crate::command::Failure;
use crate::config::{self, AgentSection, CardOverrides, ConversationSettings, HttpUrl};

/// The environment variable with the key of the model at the root.
pub(crate) const MODEL_KEY_VARIABLE: &str = "ATTACHE_MODEL_KEY";

/// An agent that can be served, with its current card.
#[derive(Clone)]
pub(super) struct BuiltAgent {
    pub(super) agent: BoxAgent,
    pub(super) card: watch::Receiver<AgentCard>,
    /// The MCP server that the agent is, if it is one.
    pub(super) mcp: Option<Mcp>,
}

impl BuiltAgent {
    /// An agent whose card may change. What the operator says is applied to every card.
    fn new(
        agent: impl Agent,
        card: AgentCard,
        updates: Option<BoxStream<'static, AgentCard>>,
        overrides: CardOverrides,
    ) -> Self {
        let changed = move |mut card: AgentCard| {
            overrides.apply(&mut card);
            card
        };
        let (sender, receiver) = watch::channel(changed(card));
        if let Some(mut updates) = updates {
            tokio::spawn(async move {
                while let Some(card) = updates.next().await {
                    if sender.send(changed(card)).is_err() {
                        return;
                    }
                }
            });
        }
        Self { agent: agent.boxed(), card: receiver, mcp: None }
    }

    /// The current card.
    pub(super) fn current_card(&self) -> AgentCard {
        self.card.borrow().clone()
    }

    /// The card whenever it changes.
    pub(super) fn cards(&self) -> impl Stream<Item = AgentCard> + Send + 'static {
        futures::stream::unfold(self.card.clone(), |mut card| async move {
            card.changed().await.ok()?;
            let current = card.borrow_and_update().clone();
            Some((current, card))
        })
    }

    fn routed(&self) -> RoutedAgent {
        RoutedAgent::watching(self.agent.clone(), self.card.clone())
    }
}

/// The agents that a router can pass messages to.
pub(super) fn routed(agents: &BTreeMap<String, BuiltAgent>) -> Vec<(String, RoutedAgent)> {
    agents.iter().map(|(name, agent)| (name.clone(), agent.routed())).collect()
}

/// What agents get from the server that they run in.
#[derive(Clone)]
pub(super) struct BuildContext {
    /// The store of the server.
    pub(super) store: Arc<dyn Store>,
    /// The credentials for other agents.
    pub(super) agents: AddressBook,
    /// The URL of the server, as far as it is known before the server listens.
    pub(super) own_url: Option<String>,
    /// What models can call.
    pub(super) tools: ToolSources,
    /// The rules for conversations.
    pub(super) conversation: ConversationSettings,
}

impl BuildContext {
    /// The budget of the callers of an agent.
    fn budget(&self, settings: &config::BudgetSettings, name: Option<&str>) -> Budget {
        // The agent at the root has no name, and no other agent has an empty one.
        Budget::new(settings.options(), self.store.clone(), name.unwrap_or_default())
    }
}

/// Makes an agent that is not a router. `own_name` is its name, if it has one.
pub(super) async fn build(
    own_name: Option<&str>,
    section: &AgentSection,
    overrides: CardOverrides,
    context: &BuildContext,
) -> Result<BuiltAgent, Failure> {
    check(section)?;
    Ok(match section {
        AgentSection::Echo => BuiltAgent::new(Echo, echo_card(), None, overrides),
        AgentSection::Program(program) => {
            let Some(command) = &program.command else { return Err(no_program()) };
            let name = command.name();
            let mut options = program.options(command);
            let modes = match options.protocol {
                Protocol::Text => vec!["*/*".to_owned()],
                Protocol::Json => context.conversation.rules().input.modes(),
            };
            options.conversation = context.conversation.rules();
            let card = AgentCard::new(name, format!("The program {name}"))
                .input_modes(modes)
                .skill(Skill::new(name, name).description(format!("Runs {name} for each message")));
            let agent = Program::new(options);
            match &program.budget {
                Some(budget) => {
                    let budget = context.budget(budget, own_name);
                    BuiltAgent::new(budget.limit(agent), card, None, overrides)
                }
                None => BuiltAgent::new(agent, card, None, overrides),
            }
        }
        AgentSection::Model(model) => {
            let (_, name) = endpoint(model)?;
            let images: &[&str] = if model.images { &["image/*"] } else { &[] };
            let rules = context.conversation.rules_with_media(images);
            let modes = rules.input.modes();
            let agent = context.tools.give(model_agent(model, rules)?, &model.tools());
            let card = AgentCard::new(name, format!("The language model {name}"))
                .input_modes(modes)
                .skill(Skill::new("chat", "General conversation").description("Answers in plain language"));
            match &model.budget {
                Some(budget) => {
                    let budget = context.budget(budget, own_name);
                    BuiltAgent::new(budget.limit(agent.budget(budget.clone())), card, None, overrides)
                }
                None => BuiltAgent::new(agent, card, None, overrides),
            }
        }
        AgentSection::Acp(acp) => {
            let agent = Acp::new(acp_options(acp, own_name, context)?).map_err(Failure::new)?;
            let (card, cards) = (agent.card(), agent.cards().boxed());
            BuiltAgent::new(agent, card, Some(cards), overrides)
        }
        AgentSection::Mcp(mcp) => {
            let sampling =
                mcp.sampling.as_ref().map(|model| model_agent(model, Conversation::default())).transpose()?;
            let agent = Mcp::connect(mcp.options(sampling)?).await.map_err(Failure::new)?;
            let (card, cards) = (agent.card(), agent.cards().boxed());
            BuiltAgent { mcp: Some(agent.clone()), ..BuiltAgent::new(agent, card, Some(cards), overrides) }
        }
        AgentSection::Remote(remote) => {
            let credentials = AgentCredentials::new(context.agents.clone(), config::AGENTS);
            let options = remote.options(context.store.clone(), credentials, context.own_url.clone())?;
            let agent = Gateway::connect(options).await.map_err(|error| {
                Failure::new(error).hint("check the address, or wait for the agent with `remote.wait: true`")
            })?;
            let (card, cards) = (agent.card(), agent.cards().boxed());
            BuiltAgent::new(agent, card, Some(cards), overrides)
        }
        AgentSection::Router(_) => {
            return Err(Failure::new("a router is made after the agents that it names"));
        }
    })
}

/// A language model without tools.
fn model_agent(model: &config::Model, rules: Conversation) -> Result<Model, Failure> {
    let (url, name) = endpoint(model)?;
    let options = model.options(url, name, model_key(model)?).with(|options| options.conversation = rules);
    Model::new(options).map_err(Failure::new)
}

/// The options of a coding agent. What its section does not set is as for all conversations.
fn acp_options(
    acp: &config::Acp,
    own_name: Option<&str>,
    context: &BuildContext,
) -> Result<AcpOptions, Failure> {
    let rules = context.conversation.rules();
    Ok(acp.options(own_name)?.with(|options| {
        if acp.idle.is_none() {
            options.idle = rules.contexts.idle;
        }
        if acp.max_sessions.is_none() {
            options.max_sessions = rules.contexts.max;
        }
        // A directory that is shared by default replaces the private ones, unless the section names some.
        if acp.data_directory.is_none() && rules.workspaces.default != DefaultWorkspace::None {
            options.data_directory = None;
        }
        options.conversation = rules;
    }))
}

/// Makes a router to agents that exist.
pub(super) fn build_router(
    router: &config::Router,
    agents: &BTreeMap<String, BuiltAgent>,
    overrides: CardOverrides,
) -> Result<(Router, BuiltAgent), Failure> {
    let made = Router::new(router.options(), routed(agents)).map_err(|error| {
        Failure::usage(error.to_string()).hint("define it below `agents` in the configuration file")
    })?;
    let built = BuiltAgent::new(made.clone(), made.card(), Some(made.cards().boxed()), overrides);
    Ok((made, built))
}

fn echo_card() -> AgentCard {
    AgentCard::new("Echo", "Gives back what it gets")
        .skill(Skill::new("echo", "Echo").description("Gives back what it gets").example("Hello"))
        .input_modes(["*/*"])
        .output_modes(["*/*"])
}

/// Checks the settings of an agent, before the server takes a port.
pub(super) fn check(section: &AgentSection) -> Result<(), Failure> {
    match section {
        AgentSection::Echo | AgentSection::Router(_) => Ok(()),
        AgentSection::Program(program) => {
            let counts_tokens = |budget: &config::BudgetSettings| budget.tokens.is_some();
            if program.budget.as_ref().is_some_and(counts_tokens) {
                return Err(Failure::usage("a program uses no tokens: its `budget` can have a `time` only"));
            }
            program.command.as_ref().map(|_| ()).ok_or_else(no_program)
        }
        AgentSection::Model(model) => {
            endpoint(model)?;
            model_key(model).map(|_| ())
        }
        AgentSection::Acp(acp) => {
            acp.words()?;
            match acp.missing_workspace() {
                Some(path) => Err(Failure::usage(format!("`{}` is not a directory", path.display()))
                    .hint("name an existing directory with `--workspace PATH`, or leave it out")),
                None => Ok(()),
            }
        }
        AgentSection::Mcp(mcp) => {
            mcp.server()?;
            mcp.sampling.as_ref().map_or(Ok(()), |model| endpoint(model).map(|_| ()))
        }
        AgentSection::Remote(remote) => remote.url().map(|_| ()),
    }
}

fn no_program() -> Failure {
    Failure::usage("`agent` is `program`, and no program is named")
        .hint("name it with `--program './agent.py'`, or with `program.command` in the configuration file")
}

/// The URL of the API and the name of the model.
fn endpoint(model: &config::Model) -> Result<(&str, &str), Failure> {
    match (&model.url, &model.name) {
        (Some(url), Some(name)) => Ok((&url.0.0, name)),
        (Some(_), None) => Err(Failure::usage("the name of the model is missing")
            .hint("name it with `--model-name NAME`, or with `model.name` in the configuration file")),
        (None, _) => Err(Failure::usage("`agent` is `model`, and no endpoint is named").hint(
            "name it with `--model https://api.openai.com/v1`, or with `model.url` in the configuration file",
        )),
    }
}

/// The key of the API: from its file, or from the settings.
fn model_key(model: &config::Model) -> Result<Option<String>, Failure> {
    let Some(path) = &model.key_file else { return Ok(model.key.as_ref().map(|key| key.0.clone())) };
    let key = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("`--model-key-file {}` cannot be read: {error}", path.display()))
    })?;
    match key.trim() {
        "" => Err(Failure::usage(format!("there is no key in `{}`", path.display()))),
        key => Ok(Some(key.to_owned())),
    }
}

/// The settings of the agent at the root, with what the flags say. `None` for functions and for a named agent.
pub(super) fn root_section(serve: &Serve, name: &AgentName) -> Result<Option<AgentSection>, Failure> {
    let file = serve.settings.file.as_ref().map(|file| &file.settings);
    let kind = match name {
        AgentName::Kind(kind) => *kind,
        AgentName::Named(_) => return Ok(None),
    };
    Ok(Some(match kind {
        Kind::Functions => return Ok(None),
        Kind::Echo => AgentSection::Echo,
        Kind::Program => {
            let section = file.map(|file| file.program.clone()).unwrap_or_default();
            AgentSection::Program(config::Program { command: serve.program.program.clone(), ..section })
        }
        Kind::Model => {
            let section = file.map(|file| file.model.clone()).unwrap_or_default();
            let flags = &serve.model;
            if let Some(url) = flags.model.as_ref().filter(|url| !is_http(url)) {
                return Err(Failure::usage(format!("`--model {url}` is not an `http` or `https` URL"))
                    .hint("try `--model https://api.openai.com/v1`"));
            }
            // The file of the flag comes first, then the environment, then the settings.
            let in_environment = || std::env::var(MODEL_KEY_VARIABLE).ok().map(config::Masked);
            let key = match &flags.model_key_file {
                Some(_) => None,
                None => in_environment().or(section.key.clone()),
            };
            AgentSection::Model(Box::new(config::Model {
                url: flags.model.clone().map(|url| config::FromText(HttpUrl(url))),
                name: flags.model_name.clone(),
                key,
                key_file: flags.model_key_file.clone(),
                ..section
            }))
        }
        Kind::Acp => {
            let section = file.map(|file| file.acp.clone()).unwrap_or_default();
            let flags = &serve.acp;
            let (command, workspace) = (flags.acp.clone(), flags.workspace.clone());
            AgentSection::Acp(Box::new(config::Acp { command, workspace, ..section }))
        }
        Kind::Mcp => {
            let section = file.map(|file| file.mcp.clone()).unwrap_or_default();
            AgentSection::Mcp(Box::new(config::Mcp { command: serve.mcp.mcp.clone(), ..section }))
        }
        Kind::Remote => {
            let section = file.map(|file| file.remote.clone()).unwrap_or_default();
            let url = &serve.remote.remote;
            if let Some(url) = url.as_ref().filter(|url| !is_http(url)) {
                return Err(Failure::usage(format!("`--remote {url}` is not an `http` or `https` URL"))
                    .hint("try `--remote https://agents.example.com`"));
            }
            let url = url.clone().map(|url| config::FromText(HttpUrl(url)));
            AgentSection::Remote(config::Remote { url, ..section })
        }
        Kind::Router => AgentSection::Router(file.map(|file| file.router.clone()).unwrap_or_default()),
    }))
}
