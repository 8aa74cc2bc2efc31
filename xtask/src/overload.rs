//! `cargo xtask overload`: a server that is asked for ten times what it can take, and one with thousands of slow clients.

use anyhow::Result;
use clap::Args;

use crate::run;

/// A server that is asked for ten times what it can take, and one with thousands of slow clients
///
/// Fails if an answer was wrong, a refusal slow or unclear, memory grew, or speed did not come back. A short version is among the
/// tests. Everything after `overload` goes to the harness: try `cargo xtask overload -- --help`.
#[derive(Debug, Args)]
pub(crate) struct Overload {
    /// What to pass on, such as `--seconds 10`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Overload {
    pub(crate) fn run(self) -> Result<()> {
        let mut command =
            run::cargo(&["run", "--profile", "dist", "--package", "attache-bench", "--", "overload"]);
        command.args(self.arguments);
        run::check(command)
    }
}
