//! A program on this machine as an agent: one process per message, or one per conversation.
//!
//! With [`Protocol::Text`] the program reads the text of the message from its standard input and writes the answer to its standard
//! output. With [`Protocol::Json`] both directions carry one JSON object per line, so that the program can report progress, make
//! several artifacts and ask for input.
//!
//! A process runs in a process group of its own. It is stopped when the turn ends, is canceled or takes too long, and when the server
//! ends, however it ends. What it leaves behind is killed.

mod command;
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
mod working_directory;

use std::sync::Arc;

use attache_core::{Agent, AgentError, AgentResult, Conversation, Turn, Workspace};
use attache_protocol::{Message, TaskId};
use tokio::sync::OwnedSemaphorePermit;

pub use self::options::{ProgramOptions, Protocol};

use self::files::Files;
use self::process::Process;
use self::sessions::Sessions;

/// An agent that runs a program for each message.
pub struct Program {
    options: Arc<ProgramOptions>,
    sessions: Sessions,
    rules: Option<Arc<Conversation>>,
}

impl Program {
    /// An agent with these options.
    pub fn new(mut options: ProgramOptions) -> Self {
        if options.protocol == Protocol::Json && options.directory.is_none() {
            // It may start in a workspace, which must not decide what runs.
            options.command = command::of_this_directory(options.command);
        }
        let sessions = Sessions::new(options.max_processes);
        let rules = match options.protocol {
            Protocol::Text => None,
            Protocol::Json => Some(Arc::new(options.conversation.clone())),
        };
        Self { options: Arc::new(options), sessions, rules }
    }

    /// Waits until another process may run, and starts it for the message.
    async fn start(&self, turn: &Turn) -> Result<Process, AgentError> {
        turn.require_message()?;
        let files = Files::write(turn.message()).await?;
        let workspace = self.workspace(turn).await?;
        let place = self.place(turn).await?;
        Process::start(&self.options, turn, files, workspace, place).map_err(|error| {
            let program = self.options.command.first().map(String::as_str).unwrap_or_default();
            AgentError::from(format!("cannot start `{program}`: {error}"))
        })
    }

    /// Waits for a place for another process. It takes at most as long as the program itself may take.
    async fn place(&self, turn: &Turn) -> Result<OwnedSemaphorePermit, AgentError> {
        let waiting = self.sessions.place(&turn.caller().owner);
        match tokio::time::timeout(self.options.timeout, waiting).await {
            Ok(place) => Ok(place?),
            Err(_) => {
                let seconds = self.options.timeout.as_secs_f64();
                let text = format!(
                    "no process became free within {seconds} s, so the program was not started: try again later"
                );
                Err(AgentError::public(text))
            }
        }
    }

    /// Waits until the task is canceled, or the time of the program is over, which begins now. Returns the result of the turn.
    async fn given_up(&self, turn: &Turn) -> AgentResult {
        tokio::select! {
            () = turn.cancelled() => Ok(()),
            () = tokio::time::sleep(self.options.timeout) => {
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
        match self.options.protocol {
            Protocol::Text => text::run(self, &turn).await,
            Protocol::Json => json::run(self, &turn).await,
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
