//! The subcommands, one file each.

mod bar;
mod client;
mod config;
mod context;
mod health;
mod keys;
mod proxy;
mod push;
mod reference;
mod serve;
mod store;
mod store_location;
mod terminal;

use std::fmt;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use clap_complete::Shell;

pub(crate) use self::client::registry::PreferredBinding;
use self::client::show;
pub(crate) use self::client::{CLIENT_SECRET_VARIABLE, REDIS_VARIABLE, TOKEN_VARIABLE, redis_credentials};
pub(crate) use self::serve::{AgentName, MODEL_KEY_VARIABLE};
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

    /// Send a message to an agent and print the reply
    Send(Box<client::send::Send>),

    /// Talk with an agent
    Chat(client::chat::Chat),

    /// Look at the tasks of an agent, follow them, end them
    #[command(subcommand)]
    Task(client::task::Task),

    /// Manage webhooks, receive notifications, and retry failed ones
    #[command(subcommand)]
    Push(push::Push),

    /// Manage saved agents, whose names can be used instead of URLs
    #[command(subcommand)]
    Agents(client::agents::Agents),

    /// Connect a client on one transport to an agent on another
    ///
    /// JSON-RPC requests and responses pass through unchanged, in every protocol version. The proxy keeps no tasks.
    #[command(after_help = proxy::EXAMPLES)]
    Proxy(Box<proxy::Proxy>),

    /// Check, back up and maintain the store
    #[command(subcommand)]
    Store(store::Store),

    /// Manage the contexts of agents that hold conversations
    #[command(subcommand)]
    Context(context::Context),

    /// Manage the keys that sign cards
    #[command(subcommand)]
    Keys(keys::Keys),

    /// Check the settings of `attache serve`, and show where each comes from
    #[command(subcommand)]
    Config(config::Config),

    /// Find out whether the server of these settings runs, for containers and scripts
    ///
    /// Takes the address from the same file, environment and flags as `attache serve`. The exit code is 0 if the server
    /// runs, 1 if it responds with an error and 3 if it cannot be reached.
    #[command(
        after_help = "For example, as the health check of a container:\n  HEALTHCHECK CMD [\"attache\", \"health\"]"
    )]
    Health(Box<health::Health>),

    /// Print a shell completion script
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },

    /// Write the manual pages of the command into a directory
    #[command(after_help = MANUAL)]
    Man {
        /// The directory, which is made if there is none
        #[arg(value_name = "DIRECTORY")]
        directory: PathBuf,
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
            Self::Health(health) => Some(&health.serve.file),
            Self::Store(store) => Some(store.settings_file()),
            Self::Context(context) => Some(context.settings_file()),
            Self::Keys(keys) => Some(keys.settings_file()),
            Self::Push(push) => push.settings_file(),
            Self::Card(_)
            | Self::Login(_)
            | Self::Logout(_)
            | Self::Send(_)
            | Self::Chat(_)
            | Self::Task(_)
            | Self::Agents(_)
            | Self::Proxy(_)
            | Self::Completions { .. }
            | Self::Man { .. }
            | Self::Reference => None,
        }
    }

    /// Whether the subcommand itself reports errors in the file of settings, together with others.
    pub(crate) fn reports_all_errors(&self) -> bool {
        matches!(self, Self::Config(config) if config.is_check())
    }

    /// The settings of the server, for a subcommand that uses all of them.
    pub(crate) fn serve(&mut self) -> Option<&mut serve::Serve> {
        match self {
            Self::Serve(serve) => Some(serve),
            Self::Config(config) => config.serve(),
            Self::Health(health) => Some(&mut health.serve),
            Self::Card(_)
            | Self::Login(_)
            | Self::Logout(_)
            | Self::Send(_)
            | Self::Chat(_)
            | Self::Task(_)
            | Self::Push(_)
            | Self::Agents(_)
            | Self::Proxy(_)
            | Self::Store(_)
            | Self::Context(_)
            | Self::Keys(_)
            | Self::Completions { .. }
            | Self::Man { .. }
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

/// Where completions go, for `--help`.
const COMPLETIONS: &str = "\
To complete in the current shell only:
  bash         source <(attache completions bash)
  zsh          source <(attache completions zsh)

To complete in every new shell, write the script where the shell looks for it:
  bash         attache completions bash > \\
                 ~/.local/share/bash-completion/completions/attache
  zsh          attache completions zsh > ~/.zfunc/_attache
               and in ~/.zshrc: fpath+=~/.zfunc; autoload -U compinit; compinit
  fish         attache completions fish > \\
                 ~/.config/fish/completions/attache.fish
  elvish       attache completions elvish >> ~/.config/elvish/rc.elv
  powershell   attache completions powershell >> $PROFILE

For all users, packages use /usr/share/bash-completion/completions/attache,
/usr/share/zsh/vendor-completions/_attache and
/usr/share/fish/vendor_completions.d/attache.fish.";

/// Where manual pages go, for `--help`.
const MANUAL: &str = "\
For example:
  attache man ~/.local/share/man/man1
  man attache-serve";

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
        Command::Proxy(proxy) => proxy.run(),
        Command::Store(store) => store.run(),
        Command::Context(context) => context.run(),
        Command::Keys(keys) => keys.run(),
        Command::Config(config) => config.run(),
        Command::Health(health) => health.run(),
        Command::Completions { shell } => completions(shell),
        Command::Man { directory } => man(&directory),
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

/// Writes a manual page for the command and for each subcommand.
fn man(directory: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("the manual pages cannot be written to `{}`: {error}", directory.display()))
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(crate::config::arguments(), directory).map_err(failed)?;
    let pages = std::fs::read_dir(directory).map_err(failed)?.flatten();
    let count = pages.filter(|page| page.file_name().to_string_lossy().starts_with("attache")).count();
    say(format_args!(
        "wrote {count} pages to `{}`: `man -l {}` shows one",
        directory.display(),
        directory.join("attache.1").display()
    ));
    Ok(())
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
    /// Further failures of the same kind.
    more: Vec<Self>,
    /// Whether another failure that is reported has led to this one.
    is_consequence: bool,
}

impl Failure {
    /// A failure with exit code 1.
    pub(crate) fn new(error: impl ToString) -> Self {
        Self {
            error: error.to_string(),
            hint: None,
            exit: Exit::Failed,
            more: Vec::new(),
            is_consequence: false,
        }
    }

    /// The arguments or the settings are wrong.
    pub(crate) fn usage(error: impl ToString) -> Self {
        Self::new(error).exit(Exit::Usage)
    }

    /// A failure that follows from another one, which is reported.
    pub(crate) fn consequence() -> Self {
        Self { is_consequence: true, ..Self::usage("another setting is wrong") }
    }

    /// All failures as one. The exit code is that of the first.
    pub(crate) fn all(failures: impl IntoIterator<Item = Self>) -> Self {
        let mut each = failures.into_iter().flat_map(Self::each).filter(|failure| !failure.is_consequence);
        match each.next() {
            Some(first) => Self { more: each.collect(), ..first },
            None => Self::consequence(),
        }
    }

    /// The failures that this one consists of.
    pub(crate) fn each(mut self) -> impl Iterator<Item = Self> {
        let more = std::mem::take(&mut self.more);
        std::iter::once(self).chain(more)
    }

    fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Says what the failure is about.
    pub(crate) fn about(mut self, what: impl fmt::Display) -> Self {
        self.error = format!("{what}: {}", self.error);
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
        self.more.iter().for_each(Self::say);
    }
}

impl std::error::Error for Failure {}

/// As one line, for the log.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        self.more.iter().try_for_each(|failure| write!(f, "; {failure}"))
    }
}
