//! The section `agents` of the file: further agents of the server, by their names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use attache::server::auth::Authenticator;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auth::{Auth, Callers};
use super::card::CardOverrides;
use super::model::ModelTool;
use super::problems::Problems;
use super::settings::{Acp, Card, Limits, Mcp, Model, Program, Remote, Router};
use super::{ResolvedSettings, apply};
use crate::command::{AgentName, AgentSection, CheckContext, Failure, sections};

/// An agent with a name. It has exactly one of the sections that say what it is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct NamedAgent {
    /// A program on this machine
    pub(crate) program: Option<Program>,
    /// A language model
    pub(crate) model: Option<Model>,
    /// A coding agent
    pub(crate) acp: Option<Acp>,
    /// The tools of an MCP server
    pub(crate) mcp: Option<Mcp>,
    /// A remote A2A agent
    pub(crate) remote: Option<Remote>,
    /// A router to other agents of this list
    pub(crate) router: Option<Router>,
    /// Whether it gives back what it gets
    pub(crate) echo: bool,
    /// How the agent describes itself
    card: Card,
    /// Who may call it; if this is not set, those who may call the server
    auth: Option<Auth>,
    /// How much its callers may ask for; what is not set is as for the server
    limits: Option<Limits>,
}

impl NamedAgent {
    /// Whether it has callers of its own.
    pub(crate) fn has_own_callers(&self) -> bool {
        self.auth.is_some()
    }

    /// What the agent is. Fails unless exactly one section says so.
    fn section(&self) -> Result<AgentSection, Failure> {
        let mut given = sections(self);
        match given.len() {
            1 => Ok(given.remove(0)),
            0 => Err(Failure::usage("the agent has no kind").hint(
                "add one of the sections `program`, `model`, `acp`, `mcp`, `remote` and `router`, or `echo: true`",
            )),
            _ => Err(Failure::usage("an agent has one kind, and several sections say what it is")
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
    /// The secrets in files of their own, as they were when the settings were checked.
    pub(crate) secrets: SecretFiles,
    /// Its own callers. Without any, it has those of the server.
    pub(crate) callers: Option<Callers>,
}

/// The content of the files that the settings of an agent name for its secrets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SecretFiles(Vec<Option<attache::client::Secret>>);

impl SecretFiles {
    /// Reads the files. One that cannot be read is reported by the check of the settings.
    fn read(section: &AgentSection) -> Self {
        let read = |path: PathBuf| std::fs::read_to_string(path).ok().map(Into::into);
        Self(section.secret_files().into_iter().map(read).collect())
    }
}

impl CheckedAgent {
    /// Whether an agent with these settings need not be made anew. Secrets in files of their own can change without the settings.
    pub(crate) fn is_same(&self, next: &Self) -> bool {
        self.settings == next.settings && self.callers == next.callers && self.secrets == next.secrets
    }

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
    pub(crate) fn check_tools(&self, model: &Model, has_functions: bool, problems: &mut Problems<'_>) {
        for (index, tool) in model.tools().iter().enumerate() {
            let name = match tool {
                ModelTool::Mcp(name) | ModelTool::Agent(name) => Some(name),
                ModelTool::Functions => None,
            };
            if name.is_some_and(|name| problems.is_wrong(&format!("agents.{name}"))) {
                continue;
            }
            if let Some(flaw) = self.tool_flaw(tool, has_functions) {
                problems.add([&format!("tools[{index}]"), "tools"], Failure::usage(flaw));
            }
        }
    }

    /// Why a model cannot have a tool, if it cannot.
    fn tool_flaw(&self, tool: &ModelTool, has_functions: bool) -> Option<String> {
        let named = |name: &String| self.file.as_ref().and_then(|file| file.settings.agents.get(name));
        match tool {
            ModelTool::Mcp(name) if named(name).is_none_or(|agent| agent.mcp.is_none()) => {
                Some(format!("the tool `{tool}` needs an agent `{name}` with a section `mcp` in `agents`"))
            }
            ModelTool::Agent(name) => match named(name) {
                None => Some(format!("the tool `{tool}` needs an agent `{name}` in `agents`")),
                // Two agents that call each other would never end.
                Some(agent)
                    if agent.router.is_some() || agent.model.as_ref().is_some_and(Model::calls_agents) =>
                {
                    Some(format!("the tool `{tool}` is an agent that calls other agents itself"))
                }
                Some(_) => None,
            },
            ModelTool::Functions if !has_functions => {
                Some("the tool `functions` needs `agent: functions`".to_owned())
            }
            ModelTool::Mcp(_) | ModelTool::Functions => None,
        }
    }

    /// The named agents whose settings are valid. `has_functions` is whether functions are at the root.
    pub(crate) fn named_agents(
        &self,
        has_functions: bool,
        problems: &mut Problems<'_>,
    ) -> BTreeMap<String, CheckedAgent> {
        let Some(file) = &self.file else { return BTreeMap::new() };
        let mut checked = BTreeMap::new();
        // Wrong names of the server are reported with its own card.
        let schemes = self.card().map(|card| card.presentation().schemes().clone()).unwrap_or_default();
        let all = &file.settings.agents;
        for (name, settings) in all {
            let path = format!("agents.{name}");
            let named = problems.take([&path], AgentName::check_named(name).map_err(Failure::usage));
            let section = problems.take([&path], settings.section());
            let (Some(()), Some(section)) = (named, section) else { continue };
            let context = CheckContext { settings: self, named: all, is_root: false, has_functions };
            problems.section(&format!("{path}.{}", section.kind()), |problems| {
                section.check(&context, problems);
            });
            if let Some(key) = settings.limits.as_ref().and_then(Limits::of_server_only) {
                let text =
                    format!("`{key}` is a limit of the whole server: set it below `limits` at the top");
                problems.add([&format!("{path}.limits.{key}")], Failure::usage(text));
            }
            let auth_path = format!("{path}.auth");
            // An empty `auth` is a mistake: without this, the agent would have the callers of the server.
            let empty = file.root.at(&auth_path).map(|_| Auth::default());
            let callers = settings.auth.as_ref().or(empty.as_ref());
            let callers = callers.map(|auth| auth.callers(file, &auth_path)).transpose();
            let card = self.card_of(&settings.card, &format!("{path}.card"), schemes.clone());
            let (callers, card) = (problems.take_placed(callers), problems.take_placed(card));
            if let (Some(callers), Some(card)) = (callers, card) {
                let (settings, secrets) = (settings.clone(), SecretFiles::read(&section));
                checked.insert(name.clone(), CheckedAgent { settings, section, card, secrets, callers });
            }
        }
        checked
    }
}
