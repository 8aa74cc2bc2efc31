//! The subcommands, one file each.

mod serve;

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;

/// What the command can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put an agent on the network
    ///
    /// The agent answers over JSON-RPC (`/a2a`), HTTP+JSON (`/v1`) and gRPC on one port, and describes itself at
    /// `/.well-known/agent-card.json`. Its tasks are kept in memory until it is stopped.
    Serve(serve::Serve),
}

/// Runs a subcommand to its end.
pub(crate) fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Serve(serve) => serve.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { error, hint, code }) => {
            let mut out = anstream::stderr().lock();
            // Nothing can be done about an error stream that is closed.
            let _ = writeln!(out, "error: {error}");
            if let Some(hint) = hint {
                let _ = writeln!(out, "hint: {hint}");
            }
            ExitCode::from(code)
        }
    }
}

/// What went wrong, and what to do next.
pub(crate) struct Failure {
    error: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// Something did not work.
    fn new(error: impl ToString) -> Self {
        Self { error: error.to_string(), hint: None, code: 1 }
    }

    /// The command was not called as it should be.
    fn usage(error: impl ToString) -> Self {
        Self { code: 2, ..Self::new(error) }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
