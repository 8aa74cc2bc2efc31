//! `cargo xtask bench`: our server against a bare one, as ratios.

use anyhow::Result;
use clap::Args;

use crate::run;

/// Our server against a bare one, as ratios
///
/// Everything after `bench` goes to the harness: try `cargo xtask bench -- --help`.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What to pass on, such as `--quick` or `--only send,list`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        let mut command = run::cargo(&["run", "--profile", "dist", "--package", "attache-bench", "--"]);
        command.args(self.arguments);
        run::check(command)
    }
}
