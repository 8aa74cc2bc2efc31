//! A program on this machine as an agent: one process per message, or one per conversation.
//!
//! With [`Protocol::Text`] the program reads the text of the message from its standard input and writes the answer to its standard
//! output. With [`Protocol::Json`] both directions carry one JSON object per line, so that the program can report progress, make
//! several artifacts and ask for input.
//!
//! A process runs in a process group of its own. It is stopped when the turn ends, is canceled or takes too long, and when the server
//! ends, however it ends. What it leaves behind is killed.

pub(crate) mod environment;
mod files;
mod history;
mod input;
mod json;
mod json_content;
mod json_reports;
mod options;
mod output_files;
mod process;
mod sessions;
mod text;

use std::sync::Arc;
use std::time::Duration;

use attache_core::{Agent, AgentError, AgentResult, Conversation, Turn, Workspace};
use attache_protocol::{Message, TaskId};
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use self::options::{ProgramOptions, Protocol};

use self::files::Files;
use self::process::Process;
use self::sessions::Sessions;

/// Longer than any turn.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// An agent that runs a program for each message.
pub struct Program {
    options: Arc<ProgramOptions>,
    permits: Arc<Semaphore>,
    sessions: Sessions,
    rules: Option<Arc<Conversation>>,
}

impl Program {
    /// An agent with these options.
    pub fn new(options: ProgramOptions) -> Self {
        let permits = Arc::new(Semaphore::new(options.max_processes));
        let rules = match options.protocol {
            Protocol::Text => None,
            Protocol::Json => Some(Arc::new(options.conversation.clone())),
        };
        Self { options: Arc::new(options), permits, sessions: Sessions::default(), rules }
    }

    /// Waits until another process may run, and starts it for the message.
    async fn start(&self, turn: &Turn) -> Result<Process, AgentError> {
        turn.require_message()?;
        let files = Files::write(turn.message()).await?;
        let workspace = self.workspace(turn).await?;
        if self.permits.available_permits() == 0 {
            // A process that waits for an answer must not keep others from running. Its answer starts a new process.
            self.sessions.stop_oldest();
        }
        let permit = self.permits.clone().acquire_owned().await?;
        Process::start(&self.options, turn, files, workspace.as_deref(), permit).map_err(|error| {
            let program = self.options.command.first().map(String::as_str).unwrap_or_default();
            AgentError::from(format!("cannot start `{program}`: {error}"))
        })
    }

    /// Waits until the task is canceled, or its time is over. Returns the result of the turn.
    async fn given_up(&self, turn: &Turn, deadline: Instant) -> AgentResult {
        tokio::select! {
            () = turn.cancelled() => Ok(()),
            () = tokio::time::sleep_until(deadline) => {
                let seconds = self.options.timeout.as_secs_f64();
                Err(AgentError::public(format!("the program did not finish within {seconds} s")))
            }
        }
    }

    /// The workspace of the conversation, if it has one.
    async fn workspace(&self, turn: &Turn) -> Result<Option<Arc<Workspace>>, AgentError> {
        match &self.rules {
            Some(_) => turn.context().workspace_if_any().await,
            None => Ok(None),
        }
    }
}

impl Agent for Program {
    async fn run(&self, turn: Turn) -> AgentResult {
        // A time that cannot be reached is no limit.
        let deadline = Instant::now().checked_add(self.options.timeout);
        let deadline = deadline.unwrap_or_else(|| Instant::now() + NO_LIMIT);
        match self.options.protocol {
            Protocol::Text => text::run(self, &turn, deadline).await,
            Protocol::Json => json::run(self, &turn, deadline).await,
        }
    }

    fn reports(&self) -> bool {
        self.options.protocol == Protocol::Json
    }

    fn conversation(&self, _: &Message) -> Option<Arc<Conversation>> {
        self.rules.clone()
    }

    fn task_ended(&self, task: &TaskId) {
        // Dropping the process stops it.
        drop(self.sessions.take(task));
    }
}
