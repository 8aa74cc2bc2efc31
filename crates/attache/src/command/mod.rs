//! The subcommands, one file each.

mod place;
mod push;
mod serve;
mod store;

use std::fmt;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};

/// What the command can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put an agent on the network
    ///
    /// The agent answers over JSON-RPC (`/a2a`), HTTP+JSON (`/v1`) and gRPC on one port, and describes itself at
    /// `/.well-known/agent-card.json`. Its tasks are kept in a file and outlive it.
    Serve(Box<serve::Serve>),

    /// Look after the file that tasks are kept in
    #[command(subcommand)]
    Store(store::Store),

    /// Look after push notifications
    #[command(subcommand)]
    Push(push::Push),
}

/// How results are shown.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Output {
    /// Says what is being done, to people who watch.
    fn progress(&self, what: fmt::Arguments<'_>) {
        if !self.json && std::io::stderr().is_terminal() {
            say(what);
        }
    }

    /// Prints a result, for programs or for people.
    fn print(
        &self,
        value: impl FnOnce() -> serde_json::Value,
        text: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        let mut out = anstream::stdout().lock();
        let printed = if self.json { writeln!(out, "{:#}", value()) } else { text(&mut out) };
        match printed {
            // Whoever reads has read enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed.map_err(|error| Failure::new(format!("cannot print the result: {error}"))),
        }
    }
}

/// Says something beside the result.
fn say(what: fmt::Arguments<'_>) {
    // Nothing can be done about an error stream that is closed.
    let _ = writeln!(anstream::stderr().lock(), "{what}");
}

/// Runs a subcommand to its end.
pub(crate) fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Serve(serve) => serve.run(),
        Command::Store(store) => store.run(),
        Command::Push(push) => push.run(),
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
