//! The environment of a program: what it needs, and nothing else of the server's.

use std::ffi::{OsStr, OsString};

use attache_core::Turn;

use super::ProgramOptions;
use super::files::Files;

/// The variables of the server that every program gets.
const PASSED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// All variables of a program.
pub(super) fn variables(options: &ProgramOptions, turn: &Turn, files: &Files) -> Vec<(OsString, OsString)> {
    let passed = PASSED.iter().copied().chain(options.pass_environment.iter().map(String::as_str));
    let mut variables: Vec<(OsString, OsString)> =
        passed.filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect();
    variables.extend(options.environment.iter().map(|(name, value)| (name.into(), value.into())));
    let mut own =
        |name: &str, value: &OsStr| variables.push((format!("ATTACHE_{name}").into(), value.into()));
    own("TASK_ID", turn.task_id().as_str().as_ref());
    own("CONTEXT_ID", turn.context_id().as_str().as_ref());
    own("MESSAGE_ID", turn.message().message_id.as_ref());
    if let Some(name) = turn.caller().owner.principal.name() {
        own("CALLER", name.as_ref());
    }
    if let Some(folder) = files.folder() {
        own("FILES", folder.as_os_str());
    }
    variables
}
