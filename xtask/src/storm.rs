//! `cargo xtask storm`: a server that gets broken requests from all sides.

use anyhow::Result;
use clap::Args;

use crate::run;

/// Broken HTTP/1, HTTP/2, WebSocket frames and lines at a running server, with `/health` and memory watched
///
/// Fails if the server ends, `/health` is slow or wrong, memory grows, or a valid request is not answered afterwards. A short version
/// is among the tests. Everything after `storm` goes to the harness: try `cargo xtask storm -- --help`.
#[derive(Debug, Args)]
pub(crate) struct Storm {
    /// What to pass on, such as `--seconds 600`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Storm {
    pub(crate) fn run(self) -> Result<()> {
        let mut command =
            run::cargo(&["run", "--profile", "dist", "--package", "attache-bench", "--", "storm"]);
        command.args(self.arguments);
        run::check(command)
    }
}
