//! The environment of the program and of its terminals: what they need, and nothing else of the server's.

use std::ffi::OsString;

use super::AcpOptions;

/// The variables of the server that every program gets.
const PASSED: [&str; 6] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];

/// All variables of the program.
pub(super) fn variables(options: &AcpOptions) -> Vec<(OsString, OsString)> {
    let passed = PASSED.iter().copied().chain(options.pass_environment.iter().map(String::as_str));
    let mut variables: Vec<(OsString, OsString)> =
        passed.filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect();
    variables.extend(options.environment.iter().map(|(name, value)| (name.into(), value.into())));
    variables
}
