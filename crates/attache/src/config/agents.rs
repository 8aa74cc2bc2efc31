//! The section `agents` of the file: further agents of the server, by their names.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ResolvedSettings;
use super::auth::{Auth, Callers};
use super::card::CardOverrides;
use super::problems::Problems;
use super::settings::{Acp, Card, Limits, Mcp, Model, Program, Remote, Router};
use crate::command::Failure;

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

    /// The limits of the agent, if it has its own.
    pub(crate) fn limits(&self, server: &attache::server::Limits) -> Option<attache::server::Limits> {
        self.limits.as_ref().map(|limits| limits.over(server.clone()))
    }
}

/// The settings of a named agent after all checks. `S` is the section that says what it is.
pub(crate) struct NamedSettings<S> {
    pub(crate) settings: NamedAgent,
    pub(crate) section: S,
    pub(crate) card: CardOverrides,
    /// Its own callers. Without any, it has those of the server.
    pub(crate) callers: Option<Callers>,
}

impl ResolvedSettings {
    /// The named agents whose settings are valid. `find` checks the name of an agent and finds the section that says what it is. `check`
    /// checks the section, below the path of the agent.
    pub(crate) fn named_agents<S>(
        &self,
        problems: &mut Problems<'_>,
        find: impl Fn(&str, &NamedAgent) -> Result<S, Failure>,
        check: impl Fn(&str, &S, &mut Problems<'_>),
    ) -> BTreeMap<String, NamedSettings<S>> {
        let Some(file) = &self.file else { return BTreeMap::new() };
        let mut checked = BTreeMap::new();
        // Wrong names of the server are reported with its own card.
        let schemes = self.card().map(|card| card.presentation().schemes().clone()).unwrap_or_default();
        for (name, settings) in &file.settings.agents {
            let path = format!("agents.{name}");
            let Some(section) = problems.take([&path], find(name, settings)) else { continue };
            check(&path, &section, problems);
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
                let settings = settings.clone();
                checked.insert(name.clone(), NamedSettings { settings, section, card, callers });
            }
        }
        checked
    }
}
