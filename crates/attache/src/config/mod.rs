//! Where settings come from: defaults, a file, the environment, flags; each beats those before it.
//!
//! The flags are clap's, and so is their order of precedence: what the file says takes the place of a flag's default, which the
//! environment and the command line beat. What has no flag, such as the list of callers, is in the file alone.

mod apply;
mod auth;
mod declare;
mod read;
mod resolve;
mod secret;
mod settings;
mod tree;
mod units;
mod variables;
mod wrong;

use std::io;
use std::path::{Path, PathBuf};

use attache::client::AddressBook;
pub(crate) use attache_iii::variables::Unread;
use attache_iii::{AgentFault, AgentSettings};
use serde::Deserialize;

pub(crate) use self::apply::{authenticator, caller_limits, limits, service_limits, tls};
use self::auth::Auth;
pub(crate) use self::auth::{Callers, Require};
use self::read::Reading;
pub(crate) use self::resolve::{Resolved, Shown, Source, Stop, arguments, settle};
pub(crate) use self::secret::{MASK, Secret};
pub(crate) use self::settings::{
    AccessArgs, ClientCertificates, CorsArgs, DemoArgs, EngineArgs, HostArgs, KeepArgs, LimitArgs,
    LogArgs, PathArgs, ProtocolArgs, PushArgs, ServerArgs, Settings, SigningArgs, StoreArgs, TlsArgs,
};
use self::tree::{Environment, Node, Sections};
pub(crate) use self::units::{HttpPath, age};
use self::wrong::Wrong;
use crate::command::Failure;

/// The list of what other agents are shown.
pub(crate) const AGENTS: &str = "delegation.agents";

/// The file that is read if none is named.
const USUAL: &str = "attache.yml";

/// The settings that a command goes by.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// The file, if there is one.
    pub(crate) file: Option<ConfigFile>,
    /// Each setting, and where it comes from.
    pub(crate) resolved: Vec<Resolved>,
}

impl Settled {
    /// Who may call; nobody is asked if nothing is said.
    pub(crate) fn callers(&self) -> Result<Option<Callers>, Failure> {
        let Some(file) = &self.file else { return Ok(None) };
        match &file.settings.auth {
            Some(auth) => auth.callers(file).map(Some),
            // Whoever writes the heading does not mean to let everyone in.
            None if file.root.at("auth").is_some() => Auth::default().callers(file).map(Some),
            None => Ok(None),
        }
    }

    /// What other agents are shown.
    pub(crate) fn agents(&self) -> Result<AddressBook, Failure> {
        let Some(file) = &self.file else { return Ok(AddressBook::default()) };
        AgentSettings::book(&file.settings.delegation.agents).map_err(|AgentFault { path, text, hint }| {
            let path = format!("{AGENTS}{path}");
            // What is in a file of its own has no place of its own.
            let entry = path.split_inclusive(']').next().unwrap_or(&path);
            let place = if file.root.at(&path).is_some() { path.as_str() } else { entry };
            let wrong = Wrong::new(text);
            file.wrong(place, hint.into_iter().fold(wrong, |wrong, hint| wrong.hint(hint)))
        })
    }

    /// The variables of the environment that nothing reads, although they are called as if something did.
    pub(crate) fn unread(&self) -> Vec<Unread> {
        let environment = attache_iii::variables::environment();
        variables::unread(environment, self.file.as_ref().map(|file| &file.root))
    }

    /// A secret that is written in the file, where no flag and no variable names a file that it is in.
    pub(crate) fn secret(
        &self,
        path: &str,
        secret: impl FnOnce(&Settings) -> (Option<&Secret>, Option<&PathBuf>),
    ) -> Result<Option<Secret>, Failure> {
        let Some(file) = &self.file else { return Ok(None) };
        match secret(&file.settings) {
            (Some(_), Some(_)) => {
                Err(file.wrong(path, Wrong::new(format!("there is both a `{path}` and a `{path}-file`"))))
            }
            (Some(secret), None) => {
                secret.clone().strong().map(Some).map_err(|wrong| file.wrong(path, wrong))
            }
            (None, _) => Ok(None),
        }
    }
}

/// A configuration file that has been read.
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) settings: Settings,
    root: Node,
}

impl std::fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ConfigFile {
    /// Reads the file that was named, or else the usual one if it is there. Of the sections that do not matter, it is only looked
    /// whether there are such.
    fn find(named: Option<&Path>, matters: Sections<'_>) -> Result<Option<Self>, Failure> {
        let path = named.unwrap_or(Path::new(USUAL));
        match std::fs::read_to_string(path) {
            Ok(text) => Self::read(path, &text, &|name| std::env::var(name).ok(), matters).map(Some),
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
    ) -> Result<Self, Failure> {
        let read = Node::read(text, environment, matters)
            .and_then(|root| Settings::deserialize(Reading(&root)).map(|settings| (root, settings)));
        let (root, settings) = read.map_err(|wrong| wrong.in_file(path))?;
        Ok(Self { path: path.to_owned(), settings, root })
    }

    /// What is wrong with the value at a path of keys.
    fn wrong(&self, path: &str, wrong: Wrong) -> Failure {
        let wrong = match self.root.at(path) {
            Some(node) => wrong.or_at(node.place, path),
            None => wrong,
        };
        wrong.in_file(&self.path)
    }
}

/// The schema of the file.
pub(crate) fn schema() -> serde_json::Value {
    schemars::schema_for!(Settings).to_value()
}

#[cfg(test)]
mod tests;
