//! Settings from four sources: defaults, a file, the environment and flags. Each source overrides those before it.
//!
//! clap applies the precedence: a value from the file replaces the default of its flag, and the environment and the command line
//! override defaults. A setting without a flag, such as the list of callers, can only be set in the file.

mod acp;
mod agents;
mod apply;
mod auth;
mod budget;
mod card;
mod compat;
mod conversation;
mod declare;
mod deserialize;
mod error;
mod log;
mod mcp;
mod model;
mod problems;
mod program;
mod redis;
mod remote;
mod reports;
mod resolve;
mod router;
mod secret;
mod settings;
mod template;
mod tree;
mod units;
mod variables;

use std::io;
use std::path::{Path, PathBuf};

use attache::client::AddressBook;
use attache::server::PushQueue;
use attache_agents::{AgentFault, AgentSettings};
pub(crate) use attache_iii::variables::Unread;
use serde::Deserialize;

pub(crate) use self::agents::{NamedAgent, NamedSettings};
pub(crate) use self::apply::{authenticator, caller_limits, limits, service_limits, tls};
use self::auth::Auth;
pub(crate) use self::auth::{Callers, Require};
pub(crate) use self::budget::BudgetSettings;
pub(crate) use self::card::{CardOverrides, CardPresentation};
pub(crate) use self::compat::warnings as iac_code_warnings;
pub(crate) use self::conversation::{Compat, ConversationSettings};
use self::deserialize::NodeReader;
pub(crate) use self::error::ConfigError;
pub(crate) use self::log::{LogFormat, STANDARD_OUTPUT};
pub(crate) use self::model::ModelTool;
pub(crate) use self::problems::Problems;
pub(crate) use self::program::CommandLine;
pub(crate) use self::redis::{push_queue, redis_streams};
pub(crate) use self::reports::SafeMode;
pub(crate) use self::resolve::{DisplayValue, Resolved, Source, Stop, arguments, parse_arguments};
pub(crate) use self::secret::{MASK, Masked, Secret};
pub(crate) use self::settings::{
    AccessArgs, Acp, AcpArgs, ArtifactArgs, ArtifactDirectoryArgs, ArtifactUrlKind, CardArgs,
    ClientCertificates, CompatArgs, CorsArgs, DemoArgs, EngineArgs, HostArgs, KeepArgs, LimitArgs, LogArgs,
    Mcp, McpArgs, Model, ModelArgs, PathArgs, Program, ProgramArgs, ProtocolArgs, PushArgs, RedisArgs,
    Remote, RemoteArgs, Router, ServerArgs, Settings, SigningArgs, StoreArgs, TlsArgs,
};
pub(crate) use self::template::template;
use self::tree::{Environment, Node, Position, Sections, Value};
pub(crate) use self::units::{AgentUrl, FromText, HttpPath, HttpUrl, Time, age, stores};
use crate::command::Failure;

/// The key of the list of credentials for other agents.
pub(crate) const AGENTS: &str = "delegation.agents";

/// The file that is read if `--config` names none.
pub(crate) const USUAL: &str = "attache.yml";

/// The file of settings, and the value of each setting.
#[derive(Debug, Default)]
pub(crate) struct ResolvedSettings {
    /// The file, if there is one.
    pub(crate) file: Option<ConfigFile>,
    /// The value of each setting, and its source.
    pub(crate) resolved: Vec<Resolved>,
}

impl ResolvedSettings {
    /// The callers to authenticate. Without any, no authentication is configured.
    pub(crate) fn callers(&self) -> Result<Option<Callers>, Failure> {
        let Some(file) = &self.file else { return Ok(None) };
        file.check_items("auth")?;
        match &file.settings.auth {
            Some(auth) => auth.callers(file, "auth").map(Some),
            // An empty `auth` is a mistake: without this, it would switch authentication off.
            None if file.root.at("auth").is_some() => Auth::default().callers(file, "auth").map(Some),
            None if file.is_wrong("auth") => Err(Failure::consequence()),
            None => Ok(None),
        }
    }

    /// The credentials for other agents.
    pub(crate) fn agents(&self) -> Result<AddressBook, Failure> {
        let Some(file) = &self.file else { return Ok(AddressBook::default()) };
        file.check_items(AGENTS)?;
        AgentSettings::book(&file.settings.delegation.agents).map_err(|AgentFault { path, text, hint }| {
            let path = format!("{AGENTS}{path}");
            // A secret in a file of its own has no position here: the error names the entry.
            let entry = path.split_inclusive(']').next().unwrap_or(&path);
            let position = if file.root.at(&path).is_some() { path.as_str() } else { entry };
            let error = ConfigError::new(text);
            file.error(position, hint.into_iter().fold(error, |error, hint| error.hint(hint)))
        })
    }

    /// Whether a setting, or one above or below it, is left out because it is wrong in the file.
    fn is_wrong(&self, path: &str) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_wrong(path))
    }

    /// The environment variables that begin with `ATTACHE_` and that nothing reads.
    pub(crate) fn unread(&self) -> Vec<Unread> {
        let environment = attache_iii::variables::environment();
        variables::unread(environment, self.file.as_ref().map(|file| &file.root))
    }

    /// A secret that stands in the file of settings itself.
    pub(crate) fn secret(
        &self,
        path: &str,
        secret: impl FnOnce(&Settings) -> (Option<&Secret>, Option<&PathBuf>),
    ) -> Result<Option<Secret>, Failure> {
        let Some(file) = &self.file else { return Ok(None) };
        match secret(&file.settings) {
            (Some(_), Some(_)) => {
                Err(file
                    .error(path, ConfigError::new(format!("there is both a `{path}` and a `{path}-file`"))))
            }
            (Some(secret), None) => {
                secret.clone().strong().map(Some).map_err(|error| file.error(path, error))
            }
            (None, _) => Ok(None),
        }
    }
}

/// A configuration file that has been read.
///
/// A file with errors has them all in `errors`, and its wrong values are left out of `settings`. Only `attache config check` goes on
/// with such a file, to find further errors.
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) errors: Vec<Failure>,
    /// The paths of the values that are left out.
    wrong: Vec<String>,
    root: Node,
}

impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ConfigFile {
    /// Reads the file with this name, or else the default file if it exists. A section that the command does not need is skipped.
    fn find(
        named: Option<&Path>,
        matters: Sections<'_>,
        compat: Option<Compat>,
    ) -> Result<Option<Self>, Failure> {
        let path = named.unwrap_or(Path::new(USUAL));
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(Self::read(path, &text, &|name| std::env::var(name).ok(), matters, compat))),
            // Everything may come from the environment.
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound && compat.is_some() => {
                Ok(Some(Self::read(path, "", &|name| std::env::var(name).ok(), matters, compat)))
            }
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let failure = Failure::usage(format!("`{}` cannot be read: {error}", path.display()));
                Err(failure.hint("name the configuration with `--config PATH`, or with `ATTACHE_CONFIG`"))
            }
        }
    }

    fn read(
        path: &Path,
        text: &str,
        environment: Environment<'_>,
        matters: Sections<'_>,
        compat: Option<Compat>,
    ) -> Self {
        let (mut found, empty) = (Vec::new(), Value::Map(Vec::new()));
        let (mut root, unreadable) = match Node::read(text, environment, matters, &mut found) {
            Ok(root) => (root, None),
            Err(error) => {
                let position = Position { line: 1, column: 1 };
                (Node { position, path: String::new(), value: empty }, Some(error))
            }
        };
        if compat == Some(Compat::IacCode) || compat::is_asked_for(&root) {
            compat::translate(&mut root, environment, &mut found);
        }
        let (settings, errors, wrong) = (Settings::default(), Vec::new(), Vec::new());
        let mut file = Self { path: path.to_owned(), settings, errors, wrong, root };
        for error in found {
            file.leave_out(error);
        }
        if let Some(error) = unreadable {
            file.errors.push(error.in_file(path));
            // Everything after the error is missing.
            file.wrong.push(String::new());
        }
        // What is wrong is left out, until the rest can be read.
        loop {
            match Settings::deserialize(NodeReader(&file.root)) {
                Ok(settings) => {
                    file.settings = settings;
                    return file;
                }
                Err(error) => {
                    if !file.leave_out(error) {
                        return file;
                    }
                }
            }
        }
    }

    /// Adds an error, and leaves out the value that has it. Returns whether there was such a value.
    fn leave_out(&mut self, error: ConfigError) -> bool {
        let culprit = error.culprit.clone();
        // That a value is missing follows from the error that it was left out for.
        if !self.is_wrong(&culprit) {
            self.errors.push(error.in_file(&self.path));
        }
        let is_left_out = self.root.remove(&culprit);
        self.wrong.push(culprit);
        is_left_out
    }

    /// Whether the file has this section, even an empty one.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.root.at(path).is_some()
    }

    /// Whether a value, or one above or below it, is left out because it is wrong.
    fn is_wrong(&self, path: &str) -> bool {
        let is_above = |above: &str, path: &str| {
            above.is_empty()
                || path
                    .strip_prefix(above)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.wrong.iter().any(|wrong| is_above(wrong, path) || is_above(path, wrong))
    }

    /// Fails if an item of a list below this path is left out: the numbers of the others are not those in the file.
    fn check_items(&self, path: &str) -> Result<(), Failure> {
        match self.wrong.iter().any(|wrong| wrong.starts_with(path) && wrong.ends_with(']')) {
            true => Err(Failure::consequence()),
            false => Ok(()),
        }
    }

    /// An error about the value at a path of keys.
    fn error(&self, path: &str, error: ConfigError) -> Failure {
        if self.is_wrong(path) {
            return Failure::consequence();
        }
        let error = match self.root.at(path) {
            Some(node) => error.or_at(node.position, path),
            None => error,
        };
        error.in_file(&self.path)
    }
}

/// The push queue of the file with this name, or else of the default file if it exists. The rest of the file is not read.
pub(crate) fn configured_push_queue(named: Option<&Path>) -> Result<Option<PushQueue>, Failure> {
    let matters = |section: &str| section == "compat" || section == "push" || section.starts_with("push-");
    let Some(file) = ConfigFile::find(named, &matters, None)? else { return Ok(None) };
    if !file.errors.is_empty() {
        return Err(Failure::all(file.errors));
    }
    let push = file.settings.push.clone();
    let settings = ResolvedSettings { file: Some(file), resolved: Vec::new() };
    let mut problems = Problems::of(&settings);
    let queue = push_queue(&push, &mut problems);
    problems.result().map(|()| queue)
}

/// The schema of the file.
pub(crate) fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Settings).to_value();
    log::describe(&mut schema);
    schema
}

#[cfg(test)]
mod tests;
