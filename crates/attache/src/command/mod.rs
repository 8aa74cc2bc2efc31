//! The subcommands, one file each.

mod serve;

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;

/// What the command can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put an agent on the network
    Serve(serve::Serve),
}

/// Runs a subcommand to its end.
pub(crate) fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Serve(serve) => serve.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { error, hint }) => {
            let mut out = anstream::stderr().lock();
            // Nothing can be done about an error stream that is closed.
            let _ = writeln!(out, "error: {error}");
            if let Some(hint) = hint {
                let _ = writeln!(out, "hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

/// What went wrong, and what to do next.
pub(crate) struct Failure {
    error: String,
    hint: Option<String>,
}

impl Failure {
    fn new(error: impl ToString) -> Self {
        Self { error: error.to_string(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
