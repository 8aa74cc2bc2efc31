//! The environment of a program: what it needs, and nothing else of the server's.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use attache_core::Turn;

use super::ProgramOptions;
use super::files::Files;

/// The variables of the server that every program gets.
const PASSED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// The variables of every program: those of the server that it may have, and its own.
pub(crate) fn base(passed: &[String], own: &BTreeMap<String, String>) -> Vec<(OsString, OsString)> {
    let passed = PASSED.iter().copied().chain(passed.iter().map(String::as_str));
    let passed = passed.filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    passed.chain(own.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}

/// All variables of a program that runs for a message.
pub(super) fn variables(options: &ProgramOptions, turn: &Turn, files: &Files) -> Vec<(OsString, OsString)> {
    let mut variables = base(&options.pass_environment, &options.environment);
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
