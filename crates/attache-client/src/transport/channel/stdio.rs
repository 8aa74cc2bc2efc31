//! Commands: JSON-RPC in lines over the standard input and output of a program that the client starts.
//!
//! The program ends with the channel: its input is closed, after a grace time it gets SIGTERM together with the processes that it started,
//! and after another one SIGKILL. It also ends if this process is killed. A program that has ended is started again by the next request.

use std::fmt;
use std::io::Write;
use std::process::Stdio;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use attache_process::{LogLimit, Output, ProcessGroup, describe, read_errors};
use futures::future::BoxFuture;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use tokio::process::{ChildStdout, Command};
use tokio::sync::{oneshot, watch};

use super::duplex::{Dial, Duplex, FrameSource, Incoming, Loss, Traits};
use super::lines::{LineLimits, LineSink, LineSource};
use crate::agent_address::command_line;
use crate::{ClientError, ClientOptions, ConnectFailure};

/// How long a program may take to end after its input was closed, and once more after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// How long the client waits for the exit code of a program that has closed its output.
const EXIT_WAIT: Duration = Duration::from_secs(1);

/// How much of the standard error of a program is kept for error messages, in bytes.
const MAX_KEPT: usize = 1024;

/// How many commands run.
static RUNNING: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// What happens to the standard error of a command that the client starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandErrors {
    /// Each line becomes an entry of the log, with the level `info`.
    #[default]
    Log,
    /// Each line is written to the standard error of this process.
    PassOn,
}

/// Whether an address may be a command, which the client starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Commands {
    /// No command is started.
    #[default]
    Refused,
    /// Commands are started, and this happens to their standard error. Allow it only for addresses that the user of this program gives.
    Allowed(CommandErrors),
}

/// Waits until all commands that clients of this process started have ended.
///
/// A command ends when the last client that uses it is dropped. A program that is about to exit calls this, so that the command can end by
/// itself and is not killed.
pub async fn commands_ended() {
    // The sender is static, so the wait cannot fail.
    let _ = RUNNING.subscribe().wait_for(|running| *running == 0).await;
}

/// Counts a command as long as it runs, and other work that has to be finished before the process ends.
pub(super) struct Running;

impl Running {
    pub(super) fn new() -> Self {
        RUNNING.send_modify(|running| *running += 1);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.send_modify(|running| *running -= 1);
    }
}

/// Starts a program.
pub(super) struct CommandDialer {
    command: Vec<String>,
    errors: CommandErrors,
    limits: LineLimits,
}

impl CommandDialer {
    pub(super) fn new(url: &Url, options: &ClientOptions) -> Result<Self, ClientError> {
        Ok(Self {
            command: command_line(url)?,
            errors: match options.commands {
                Commands::Allowed(errors) => errors,
                Commands::Refused => return Err(refused()),
            },
            limits: LineLimits::new(options),
        })
    }

    /// The program, as errors name it. The arguments may contain secrets.
    fn name(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    fn start(&self) -> std::io::Result<Duplex> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "the command is empty"));
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (group, mut child) = ProcessGroup::spawn(command)?;
        let missing = || std::io::Error::other("a pipe to the program is missing");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = group.output(child.stdout.take().ok_or_else(missing)?);
        let stderr = group.output(child.stderr.take().ok_or_else(missing)?);
        let (close, closing) = oneshot::channel::<()>();
        let (report, ended) = watch::channel(None);
        let errors = self.errors;
        let running = Running::new();
        tokio::spawn(async move {
            let kept = Arc::new(Mutex::new(Vec::new()));
            let keep = |bytes: &[u8]| keep_last(&kept, bytes);
            let log = |line: &str| match errors {
                CommandErrors::Log => tracing::info!(target: "attache::stdio", "{line}"),
                CommandErrors::PassOn => {
                    // A closed standard error is ignored.
                    let _ = writeln!(std::io::stderr().lock(), "{line}");
                }
            };
            let rest = group.clone_handle();
            let waiting = async {
                let mut wait = std::pin::pin!(rest.wait(&mut child));
                let stopping = async {
                    // The sender is dropped with the connection, and the input of the program with it.
                    let _ = closing.await;
                    tokio::time::sleep(GRACE).await;
                    group.terminate();
                    tokio::time::sleep(GRACE).await;
                };
                tokio::select! {
                    status = &mut wait => status,
                    () = stopping => {
                        rest.kill();
                        wait.await
                    }
                }
            };
            // The user of the command sees everything.
            let limit = match errors {
                CommandErrors::Log => Some(LogLimit::default()),
                CommandErrors::PassOn => None,
            };
            let (status, ()) = tokio::join!(waiting, read_errors(stderr, limit, log, keep));
            let how = status.map_or_else(|error| error.to_string(), describe);
            let last =
                String::from_utf8_lossy(&kept.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
            report.send_replace(Some(EndedCommand { how, last }));
            drop(running);
        });
        let source = CommandSource {
            lines: LineSource::new(output, self.limits),
            ended,
            name: self.name().to_owned(),
            has_answered: false,
            _close: close,
        };
        Ok(Duplex { source: Box::new(source), sink: Box::new(LineSink(input)) })
    }
}

impl Dial for CommandDialer {
    const TRAITS: Traits = Traits { auth_per_connection: false, is_replaceable: false, has_pings: false };

    fn dial<'a>(&'a self, _: &'a [(HeaderName, HeaderValue)]) -> BoxFuture<'a, Result<Duplex, ClientError>> {
        Box::pin(async move {
            self.start().map_err(|error| {
                let is_missing = error.kind() == std::io::ErrorKind::NotFound;
                let why = if is_missing { "there is no such program".to_owned() } else { error.to_string() };
                let why = ConnectFailure::Ended(format!("the command cannot be started: {why}"));
                ClientError::Connect { url: format!("stdio:{}", self.name()), why }
            })
        })
    }
}

/// The error for a command that may not be started.
fn refused() -> ClientError {
    let text = "commands are not started: `ClientOptions::commands` allows it";
    ClientError::Invalid(text.to_owned())
}

/// Keeps the last bytes.
fn keep_last(kept: &Mutex<Vec<u8>>, bytes: &[u8]) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_KEPT)..]);
    let excess = kept.len().saturating_sub(MAX_KEPT);
    kept.drain(..excess);
}

/// How a command ended.
#[derive(Debug, Clone)]
struct EndedCommand {
    how: String,
    /// The end of its standard error.
    last: String,
}

impl EndedCommand {
    /// The last lines of the standard error, in one line.
    fn last_lines(&self) -> String {
        let mut lines: Vec<&str> = self.last.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let excess = lines.len().saturating_sub(3);
        lines.drain(..excess);
        let text: String = lines.join(" | ").chars().filter(|c| !c.is_control()).collect();
        if text.is_empty() { String::new() } else { format!(": {text}") }
    }
}

/// Reads the output of a program.
struct CommandSource {
    lines: LineSource<Output<ChildStdout>>,
    ended: watch::Receiver<Option<EndedCommand>>,
    name: String,
    has_answered: bool,
    /// Dropped with this value, which ends the program.
    _close: oneshot::Sender<()>,
}

impl CommandSource {
    async fn read(&mut self) -> Result<Incoming, Loss> {
        match self.lines.frame().await {
            Ok(Some(incoming)) => {
                self.has_answered = true;
                Ok(incoming)
            }
            Ok(None) => Err(self.describe_end().await),
            Err(Loss::Protocol(why)) => Err(Loss::Protocol(format!(
                "the output of the command `{}` must have JSON-RPC responses only, one in each line: {why}",
                self.name
            ))),
            Err(loss) => Err(loss),
        }
    }

    /// Why the program does not write any more.
    async fn describe_end(&mut self) -> Loss {
        let ended = tokio::time::timeout(EXIT_WAIT, self.ended.wait_for(Option::is_some)).await;
        let ended = ended.ok().and_then(Result::ok).and_then(|ended| ended.clone());
        let (how, last) = match &ended {
            Some(ended) => (format!("ended with {}", ended.how), ended.last_lines()),
            None => ("closed its output".to_owned(), String::new()),
        };
        match self.has_answered {
            true => Loss::Broken(format!("the command `{}` {how}{last}", self.name)),
            false => Loss::Ended {
                command: format!("stdio:{}", self.name),
                how: format!("the command {how} before it answered{last}"),
            },
        }
    }
}

impl FrameSource for CommandSource {
    fn next(&mut self) -> BoxFuture<'_, Result<Incoming, Loss>> {
        Box::pin(self.read())
    }
}

impl fmt::Debug for CommandDialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandDialer").field("command", &self.name()).finish_non_exhaustive()
    }
}
