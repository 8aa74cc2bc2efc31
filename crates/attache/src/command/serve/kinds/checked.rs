//! The named agents of the configuration file, after all checks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use attache::client::Secret;
use attache::server::Limits;
use attache::server::auth::Authenticator;

use super::{AgentSection, CheckContext, KINDS, sections};
use crate::command::{AgentName, Failure};
use crate::config::{self, Callers, CardOverrides, NamedAgent, NamedSettings, Problems, ResolvedSettings};

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
pub(crate) struct SecretFiles(Vec<Option<Secret>>);

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
        self.callers.as_ref().map(config::authenticator).transpose()
    }

    /// The limits of the agent, if it has its own.
    pub(crate) fn limits(&self, server: &Limits) -> Option<Limits> {
        self.settings.limits(server)
    }
}

/// The named agents whose settings are valid. `has_functions` is whether functions are at the root.
pub(crate) fn named_agents(
    settings: &ResolvedSettings,
    has_functions: bool,
    problems: &mut Problems<'_>,
) -> BTreeMap<String, CheckedAgent> {
    let none = BTreeMap::new();
    let named = settings.file.as_ref().map_or(&none, |file| &file.settings.agents);
    let context = CheckContext { named, is_root: false, has_functions };
    let find = |name: &str, agent: &NamedAgent| {
        AgentName::check_named(name).map_err(Failure::usage)?;
        section(agent)
    };
    let check = |path: &str, section: &AgentSection, problems: &mut Problems<'_>| {
        problems.section(&format!("{path}.{}", section.kind()), |problems| section.check(&context, problems));
    };
    let checked = settings.named_agents(problems, find, check).into_iter().map(|(name, agent)| {
        let NamedSettings { settings, section, card, callers } = agent;
        let secrets = SecretFiles::read(&section);
        (name, CheckedAgent { settings, section, card, secrets, callers })
    });
    checked.collect()
}

/// The section of the kind of a named agent. Fails unless there is exactly one.
fn section(agent: &NamedAgent) -> Result<AgentSection, Failure> {
    let mut given = sections(agent);
    match given.len() {
        1 => Ok(given.remove(0)),
        0 => Err(Failure::usage("the agent has no kind").hint(format!("add one of the {}", choices()))),
        _ => Err(Failure::usage("an agent has one kind, and several sections say what it is")
            .hint("leave all but one of them out, or make several agents")),
    }
}

/// How the file names the kinds: sections, then switches.
fn choices() -> String {
    let named = |is_switch: bool, end: &str| -> Vec<String> {
        let kinds = KINDS.iter().filter(|kind| kind.is_switch == is_switch);
        kinds.map(|kind| format!("`{}{end}`", kind.name)).collect()
    };
    let (mut sections, switches) = (named(false, ""), named(true, ": true"));
    let last = sections.pop().into_iter().collect::<String>();
    [vec![format!("sections {} and {last}", sections.join(", "))], switches].concat().join(", or ")
}
