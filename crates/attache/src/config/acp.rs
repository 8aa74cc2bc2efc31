//! The settings of a coding agent.

use std::path::PathBuf;

use attache_agents::acp::{AcpOptions, Permissions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conversation::private_directories;
use super::settings::Acp;
use super::units::{FromText, Size, Time};
use crate::command::Failure;

/// Who decides when the program asks for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AcpPermissions {
    /// Every request is allowed
    Allow,
    /// Every request is denied
    Deny,
    /// The caller is asked
    Ask,
}

impl Acp {
    /// The program and its arguments.
    pub(crate) fn words(&self) -> Result<&[String], Failure> {
        self.command.as_ref().map(|command| command.words()).ok_or_else(|| {
            Failure::usage("no coding agent is named")
                .hint("name it with `--acp COMMAND`, or with `acp.command` in the configuration file")
        })
    }

    /// The options of the agent. `name` is its name among several agents.
    pub(crate) fn options(&self, name: Option<&str>) -> Result<AcpOptions, Failure> {
        let words = self.words()?.iter().map(String::as_str);
        let data = private_directories(name);
        let time = |place: &mut std::time::Duration, time: &Option<FromText<Time>>| {
            if let Some(FromText(Time(time))) = time {
                *place = *time;
            }
        };
        let size = |place: &mut usize, size: &Option<FromText<Size>>| {
            if let Some(FromText(Size(size))) = size {
                *place = usize::try_from(*size).unwrap_or(usize::MAX);
            }
        };
        Ok(AcpOptions::new(words).with(|options| {
            options.name = self.name.clone().or(name.map(str::to_owned));
            options.description.clone_from(&self.description);
            let environment = self.environment.iter();
            options.environment = environment.map(|(name, value)| (name.clone(), value.0.clone())).collect();
            options.pass_environment.clone_from(&self.pass_environment);
            options.auth_method.clone_from(&self.auth_method);
            options.workspace.clone_from(&self.workspace);
            options.data_directory =
                self.data_directory.clone().or(data).filter(|_| self.workspace.is_none());
            options.permissions = match self.permissions {
                Some(AcpPermissions::Allow) => Permissions::Allow,
                Some(AcpPermissions::Deny) => Permissions::Deny,
                Some(AcpPermissions::Ask) | None => Permissions::Ask,
            };
            options.terminal = self.terminal;
            options.show_thoughts = self.show_thoughts;
            if let Some(count) = &self.max_sessions {
                options.max_sessions = usize::try_from(count.0.0.get()).unwrap_or(usize::MAX);
            }
            time(&mut options.permission_timeout, &self.permission_timeout);
            time(&mut options.idle, &self.idle);
            time(&mut options.start_timeout, &self.start_timeout);
            time(&mut options.timeout, &self.timeout);
            time(&mut options.grace, &self.grace);
            size(&mut options.max_output, &self.max_output);
            size(&mut options.max_line, &self.max_line);
            size(&mut options.max_file, &self.max_file);
            size(&mut options.max_context, &self.max_context);
        }))
    }

    /// The directory that all conversations work in, if it does not exist.
    pub(crate) fn missing_workspace(&self) -> Option<&PathBuf> {
        self.workspace.as_ref().filter(|path| !path.is_dir())
    }
}
