//! The subcommands, one file each.

mod bar;
mod client;
mod config;
mod keys;
mod push;
mod reference;
mod serve;
mod store;
mod store_location;

use std::fmt;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use clap_complete::Shell;

use self::client::show;
pub(crate) use self::client::{CLIENT_SECRET_VARIABLE, TOKEN_VARIABLE};
pub(crate) use self::serve::AgentName;
use self::store_location::SettingsFile;

/// A subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put an agent on the network
    ///
    /// The agent answers over JSON-RPC (`/a2a`), HTTP+JSON (`/v1`) and gRPC on one port, and describes itself at
    /// `/.well-known/agent-card.json`. Its tasks are kept in a file and outlive it.
    #[command(after_help = serve::EXAMPLES)]
    Serve(Box<serve::Serve>),

    /// Show how an agent describes itself
    Card(client::card::Card),

    /// Log in to an agent, so that other commands need no credentials
    Login(Box<client::login::Login>),

    /// Forget the login to an agent, and have its tokens revoked
    Logout(client::logout::Logout),

    /// Send a message to an agent and print what comes of it
    Send(Box<client::send::Send>),

    /// Talk with an agent
    Chat(client::chat::Chat),

    /// Look at the tasks of an agent, follow them, end them
    #[command(subcommand)]
    Task(client::task::Task),

    /// Send the news of tasks to webhooks, receive it, look after what was not delivered
    #[command(subcommand)]
    Push(push::Push),

    /// Keep names for agents, which can be used wherever an agent is asked for
    #[command(subcommand)]
    Agents(client::agents::Agents),

    /// Look after the file that tasks are kept in
    #[command(subcommand)]
    Store(store::Store),

    /// Look after the keys that cards are signed with
    #[command(subcommand)]
    Keys(keys::Keys),

    /// Check the settings of `attache serve`, and show where each comes from
    #[command(subcommand)]
    Config(config::Config),

    /// Print what makes a shell complete this command
    #[command(after_help = "For example, in bash:\n  source <(attache completions bash)")]
    Completions {
        /// The shell
        shell: Shell,
    },

    /// Print the reference of the command as Markdown
    #[command(hide = true)]
    Reference,
}

impl Command {
    /// The option `--config`, for a subcommand that reads settings.
    pub(crate) fn settings_file(&self) -> Option<&SettingsFile> {
        match self {
            Self::Serve(serve) => Some(&serve.file),
            Self::Config(config) => config.settings_file(),
            Self::Store(store) => Some(store.settings_file()),
            Self::Keys(keys) => Some(keys.settings_file()),
            Self::Push(push) => push.settings_file(),
            Self::Card(_)
            | Self::Login(_)
            | Self::Logout(_)
            | Self::Send(_)
            | Self::Chat(_)
            | Self::Task(_)
            | Self::Agents(_)
            | Self::Completions { .. }
            | Self::Reference => None,
        }
    }

    /// The settings of the server, for a subcommand that uses all of them.
    pub(crate) fn serve(&mut self) -> Option<&mut serve::Serve> {
        match self {
            Self::Serve(serve) => Some(serve),
            Self::Config(config) => config.serve(),
            Self::Card(_)
            | Self::Login(_)
            | Self::Logout(_)
            | Self::Send(_)
            | Self::Chat(_)
            | Self::Task(_)
            | Self::Push(_)
            | Self::Agents(_)
            | Self::Store(_)
            | Self::Keys(_)
            | Self::Completions { .. }
            | Self::Reference => None,
        }
    }
}

/// The exit codes of failures. Scripts rely on these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The task failed, or another error occurred.
    Failed = 1,
    /// The arguments or the settings are wrong.
    Usage = 2,
    /// The connection to the agent failed.
    Unreachable = 3,
    /// The agent requires credentials, or rejects those it got.
    Unauthorized = 4,
    /// The task waits for input.
    NeedsInput = 5,
    /// The time to wait is over. The task continues.
    TimedOut = 6,
    /// Ctrl-C was pressed; the code is that of shells.
    Interrupted = 130,
}

/// All exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the task failed, was rejected or canceled, or something else went wrong
  2    the command was not called as it should be
  3    could not connect to the agent, or the connection broke
  4    not authorized: the agent asks for credentials, or refuses those that it got
  5    the task needs an answer
  6    there was no more time to wait; the task goes on
  130  interrupted with Ctrl-C";

/// How results are printed.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

impl Output {
    /// Prints progress to a terminal.
    fn progress(&self, what: fmt::Arguments<'_>) {
        if !self.json && std::io::stderr().is_terminal() {
            say(what);
        }
    }

    /// Prints a result as JSON or as text.
    fn print(
        &self,
        value: impl FnOnce() -> serde_json::Value,
        text: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        let mut out = anstream::stdout().lock();
        printed(if self.json { writeln!(out, "{:#}", value()) } else { text(&mut out) })
    }
}

/// Prints a line to standard error.
fn say(what: fmt::Arguments<'_>) {
    // A closed standard error is ignored.
    let _ = writeln!(anstream::stderr().lock(), "{what}");
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> ExitCode {
    let result = match command {
        Command::Serve(serve) => serve.run(),
        Command::Card(card) => client::block_on(card.run()),
        Command::Login(login) => client::block_on(login.run()),
        Command::Logout(logout) => client::block_on(logout.run()),
        Command::Send(send) => client::block_on(send.run()),
        Command::Chat(chat) => client::block_on(chat.run()),
        Command::Task(task) => client::block_on(task.run()),
        Command::Push(push) => push.run(),
        Command::Agents(agents) => agents.run(),
        Command::Store(store) => store.run(),
        Command::Keys(keys) => keys.run(),
        Command::Config(config) => config.run(),
        Command::Completions { shell } => completions(shell),
        Command::Reference => reference::print(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.end(),
    }
}

fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::config::arguments(), "attache", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Prints text to standard output.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// The result of printing.
fn printed(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        // The reader has closed the pipe, which is not an error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| Failure::new(format!("cannot print the result: {error}"))),
    }
}

/// An error of the command, with a hint and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    error: String,
    hint: Option<String>,
    exit: Exit,
}

impl Failure {
    /// A failure with exit code 1.
    pub(crate) fn new(error: impl ToString) -> Self {
        Self { error: error.to_string(), hint: None, exit: Exit::Failed }
    }

    /// The arguments or the settings are wrong.
    pub(crate) fn usage(error: impl ToString) -> Self {
        Self::new(error).exit(Exit::Usage)
    }

    fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prints the failure, and returns its exit code.
    pub(crate) fn end(&self) -> ExitCode {
        self.say();
        ExitCode::from(self.exit as u8)
    }

    /// Prints the failure. Some errors contain text from agents, so control characters are removed.
    fn say(&self) {
        say(format_args!("\x1b[1;31merror:\x1b[0m {}", show::clean(&self.error)));
        if let Some(hint) = &self.hint {
            say(format_args!("\x1b[1;36mhint:\x1b[0m {}", show::clean(hint)));
        }
    }
}

/// As one line, for the log.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}
