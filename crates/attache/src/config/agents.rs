//! The section `agents` of the file: further agents of the server, by their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use attache::server::auth::Authenticator;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::{Auth, Callers};
use super::card::CardOverrides;
use super::error::ConfigError;
use super::model::ModelTool;
use super::settings::{Acp, Card, Limits, Mcp, Model, Program, Remote, Router};
use super::{ResolvedSettings, apply};
use crate::command::{AgentName, Failure};

/// An agent with a name. It has exactly one of the sections that say what it is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct NamedAgent {
    /// A program on this machine
    program: Option<Program>,
    /// A language model
    model: Option<Model>,
    /// A coding agent
    acp: Option<Acp>,
    /// The tools of an MCP server
    mcp: Option<Mcp>,
    /// A remote A2A agent
    remote: Option<Remote>,
    /// A router to other agents of this list
    router: Option<Router>,
    /// Whether it gives back what it gets
    echo: bool,
    /// How the agent describes itself
    card: Card,
    /// Who may call it; if this is not set, those who may call the server
    auth: Option<Auth>,
    /// How much its callers may ask for; what is not set is as for the server
    limits: Option<Limits>,
}

/// What an agent is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AgentSection {
    Echo,
    Program(Program),
    Model(Box<Model>),
    Acp(Box<Acp>),
    Mcp(Box<Mcp>),
    Remote(Remote),
    Router(Router),
}

impl NamedAgent {
    /// What the agent is. Fails unless exactly one section says so.
    fn section(&self) -> Result<AgentSection, ConfigError> {
        let mut given = Vec::new();
        given.extend(self.program.clone().map(AgentSection::Program));
        given.extend(self.model.clone().map(|model| AgentSection::Model(Box::new(model))));
        given.extend(self.acp.clone().map(|acp| AgentSection::Acp(Box::new(acp))));
        given.extend(self.mcp.clone().map(|mcp| AgentSection::Mcp(Box::new(mcp))));
        given.extend(self.remote.clone().map(AgentSection::Remote));
        given.extend(self.router.clone().map(AgentSection::Router));
        given.extend(self.echo.then_some(AgentSection::Echo));
        match given.len() {
            1 => Ok(given.remove(0)),
            0 => Err(ConfigError::new("it is not said what this agent is").hint(
                "add one of the sections `program`, `model`, `acp`, `mcp`, `remote` and `router`, or `echo: true`",
            )),
            _ => Err(ConfigError::new("an agent is one thing, and several sections say what it is")
                .hint("leave all but one of them out, or make several agents")),
        }
    }
}

/// A named agent after all checks.
#[derive(Clone)]
pub(crate) struct CheckedAgent {
    /// The settings that it was made of. An agent whose settings have not changed is not made again.
    pub(crate) settings: NamedAgent,
    pub(crate) section: AgentSection,
    pub(crate) card: CardOverrides,
    /// Its own callers. Without any, it has those of the server.
    pub(crate) callers: Option<Callers>,
}

impl CheckedAgent {
    /// The authenticator of the agent, if it has one of its own.
    pub(crate) fn authenticator(&self) -> Result<Option<Arc<dyn Authenticator>>, Failure> {
        self.callers.as_ref().map(apply::authenticator).transpose()
    }

    /// The limits of the agent, if it has its own.
    pub(crate) fn limits(&self, server: &attache::server::Limits) -> Option<attache::server::Limits> {
        self.settings.limits.as_ref().map(|limits| limits.over(server.clone()))
    }
}

impl ResolvedSettings {
    /// Checks the tools of a model. `has_functions` is whether functions are at the root.
    pub(crate) fn check_tools(&self, model: &Model, has_functions: bool) -> Result<(), String> {
        let none = BTreeMap::new();
        let all = self.file.as_ref().map_or(&none, |file| &file.settings.agents);
        for tool in model.tools() {
            match &tool {
                ModelTool::Mcp(name) if all.get(name).is_none_or(|agent| agent.mcp.is_none()) => {
                    return Err(format!(
                        "the tool `{tool}` needs an agent `{name}` with a section `mcp` in `agents`"
                    ));
                }
                ModelTool::Agent(name) => match all.get(name) {
                    None => return Err(format!("the tool `{tool}` needs an agent `{name}` in `agents`")),
                    // Two agents that call each other would never end.
                    Some(agent)
                        if agent.router.is_some()
                            || agent.model.as_ref().is_some_and(Model::calls_agents) =>
                    {
                        return Err(format!("the tool `{tool}` is an agent that calls other agents itself"));
                    }
                    Some(_) => {}
                },
                ModelTool::Functions if !has_functions => {
                    return Err("the tool `functions` needs `agent: functions`".to_owned());
                }
                ModelTool::Mcp(_) | ModelTool::Functions => {}
            }
        }
        Ok(())
    }

    /// The named agents. Reports all errors.
    pub(crate) fn named_agents(&self) -> Result<BTreeMap<String, CheckedAgent>, Failure> {
        let Some(file) = &self.file else { return Ok(BTreeMap::new()) };
        let (mut checked, mut errors) = (BTreeMap::new(), Vec::new());
        let all = &file.settings.agents;
        for (name, settings) in all {
            let path = format!("agents.{name}");
            let mut error =
                |at: &str, error: ConfigError| errors.push(file.error(&format!("{path}{at}"), error));
            if let Err(text) = AgentName::check_named(name) {
                error("", ConfigError::new(text));
                continue;
            }
            let section = match settings.section() {
                Ok(section) => section,
                Err(wrong) => {
                    error("", wrong);
                    continue;
                }
            };
            if let AgentSection::Router(router) = &section {
                for target in router.options().agents() {
                    let routes = all.get(target).is_some_and(|agent| agent.router.is_none());
                    if !routes {
                        let text = format!("there is no agent `{target}` that is not a router itself");
                        error(".router", ConfigError::new(text));
                    }
                }
            }
            if let Some(key) = settings.limits.as_ref().and_then(Limits::of_server_only) {
                let text =
                    format!("`{key}` is a limit of the whole server: set it below `limits` at the top");
                error(&format!(".limits.{key}"), ConfigError::new(text));
            }
            let callers = match &settings.auth {
                Some(auth) => match auth.callers(file, &format!("{path}.auth")) {
                    Ok(callers) => Some(callers),
                    Err(failure) => {
                        errors.push(failure);
                        continue;
                    }
                },
                None => None,
            };
            match self.card_of(&settings.card, &format!("{path}.card")) {
                Ok(card) => {
                    let settings = settings.clone();
                    checked.insert(name.clone(), CheckedAgent { settings, section, card, callers });
                }
                Err(failure) => errors.push(failure),
            }
        }
        match errors.is_empty() {
            true => Ok(checked),
            false => Err(Failure::all(errors)),
        }
    }
}
