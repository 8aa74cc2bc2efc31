//! A coding agent as an agent, through the Agent Client Protocol (ACP): the protocol between editors and coding agents.
//!
//! The server takes the place of the editor. One process of the coding agent serves all conversations. Each conversation (A2A
//! context) is a session of it, and each message is a prompt. The process is started for the first message and ends with its last
//! session. If it crashes, the running turns fail, and the next message starts it again.
//!
//! A request for permission makes the task `input-required`. The prompt stays open until the caller answers.
//!
//! # Why the messages are defined here
//!
//! The crates `agent-client-protocol` and `agent-client-protocol-schema` switch on the feature `preserve_order` of `serde_json`. Cargo
//! unifies features, so this would change the order of JSON members in the whole server. The connection of the former also has no
//! limit on the length of a line, and starts processes outside of our process groups. The part of the protocol that a server needs is
//! small: see `wire.rs`.

mod connection;
mod conversation;
mod follow;
mod open_prompt;
mod options;
mod peer;
mod permission;
mod process;
mod prompt;
mod report;
mod routes;
mod session;
mod sessions;
mod terminals;
mod wire;
mod workspace;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use attache_core::{
    Agent, AgentError, AgentResult, Conversation, PendingPermission, PermissionAnswer, Report, Turn, Usage,
};
use attache_protocol::{AgentCard, AgentSkill, Message, Part, Task, TaskId};
use futures::{Stream, stream};
use serde_json::Value;

pub use self::options::{AcpOptions, Permissions};

use self::follow::{End, follow};
use self::open_prompt::OpenPrompt;
use self::permission::OpenRequest;
use self::sessions::{Origin, Sessions};
use self::wire::{AgentInfo, ContentBlock, StopReason};
use crate::waiting::Waiting;

/// The artifact with the answer of the agent.
const ANSWER: &str = "answer";

/// An agent that passes messages to a coding agent.
pub struct Acp {
    options: Arc<AcpOptions>,
    sessions: Sessions,
    waiting: Waiting<Question>,
}

/// A prompt and the request that it waits for. If it is dropped, the prompt is canceled first, then the request is answered as
/// canceled. The agent expects this order.
struct Question {
    prompt: OpenPrompt,
    open: Box<OpenRequest>,
    pending: PendingPermission,
}

/// Why a coding agent cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcpError {
    /// The command is empty.
    #[error("the command of the coding agent is empty, expected a program and its arguments")]
    NoCommand,
    /// No session is allowed.
    #[error("`max_sessions` is 0, expected at least 1")]
    NoSessions,
    /// A directory cannot be used.
    #[error("the directory `{}` cannot be used: {error}", path.display())]
    Directory {
        /// The path of the directory.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
}

impl Acp {
    /// An agent with these options. The program is started for the first message.
    ///
    /// The ids of sessions are kept in the store of the server, so that conversations go on after a restart.
    pub fn new(options: AcpOptions) -> Result<Self, AcpError> {
        if options.command.is_empty() {
            return Err(AcpError::NoCommand);
        }
        if options.max_sessions == 0 {
            return Err(AcpError::NoSessions);
        }
        let options = Arc::new(options);
        let sessions = Sessions::new(options.clone())?;
        Ok(Self { options, sessions, waiting: Waiting::default() })
    }

    /// The card of the agent. Name and version are those of the coding agent as soon as it has been started.
    pub fn card(&self) -> AgentCard {
        card(&self.options, self.sessions.info().borrow().as_ref())
    }

    /// A new card each time that the coding agent says something else about itself when it is started.
    pub fn cards(&self) -> impl Stream<Item = AgentCard> + Send + 'static {
        let mut info = self.sessions.info();
        // A change since the first card must not be missed.
        info.mark_changed();
        stream::unfold((self.options.clone(), info), async |(options, mut info)| {
            info.changed().await.ok()?;
            let card = card(&options, info.borrow_and_update().as_ref());
            Some((card, (options, info)))
        })
    }

    async fn answer(&self, turn: &Turn) -> AgentResult {
        // A question of a program that has ended is dropped here, which frees the session for the new prompt.
        let waiting = self.waiting.take(turn.task_id()).filter(|question| !question.prompt.is_closed());
        let mut prompt = match waiting {
            Some(question) => match turn.permission_answer(&question.pending).await? {
                Some(answer) => resume(question, answer, &self.options),
                None => {
                    let Question { prompt, open, pending } = question;
                    let pending = turn.ask_permission(pending.request, true).await?;
                    self.wait(turn, Question { prompt, open, pending });
                    return Ok(());
                }
            },
            None => self.prompt(turn).await?,
        };
        match follow(&mut prompt, turn, &self.options).await? {
            End::Question(open) => {
                let request = open.request(&prompt.session.workspace);
                // Before the question, so that no other task of the context comes in between.
                prompt.keep_context(turn);
                let pending = turn.ask_permission(request, false).await?;
                self.wait(turn, Question { prompt, open, pending });
                Ok(())
            }
            End::Stopped { reason, usage, has_output } => {
                drop(prompt);
                end(turn, reason, usage, has_output).await
            }
        }
    }

    /// Sends the message as a prompt.
    async fn prompt(&self, turn: &Turn) -> Result<OpenPrompt, AgentError> {
        turn.require_message()?;
        let (lease, origin) = self.sessions.acquire(turn).await?;
        let Some(live) = &*lease.session else {
            return Err(AgentError::from("a session is missing"));
        };
        let mut blocks = Vec::new();
        if origin == Origin::New
            && let Some(text) = conversation::earlier(turn, self.options.max_context).await?
        {
            blocks.push(ContentBlock::Text { text });
        }
        if let Some(lost) = turn.lost_permission() {
            let text = format!(
                "(The request for permission `{}` was denied, because the answer did not arrive in time. What follows may be \
                 the answer.)",
                lost.title
            );
            blocks.push(ContentBlock::Text { text });
        }
        let accepted = live.peer.capabilities.prompt_capabilities;
        blocks.extend(prompt::blocks(&turn.input().await?, &live.session, accepted).await?);
        let mut prompt =
            OpenPrompt::start(lease, &blocks, self.options.max_output, self.options.grace).await?;
        let has_answer = |task: Task| task.artifacts.iter().any(|artifact| artifact.artifact_id == ANSWER);
        if turn.task().is_some_and(has_answer) {
            (prompt.progress.follows_text, prompt.progress.new_paragraph) = (true, true);
        }
        Ok(prompt)
    }

    /// Keeps the prompt open until the caller answers. After the time limit another turn gives the denial to the agent.
    fn wait(&self, turn: &Turn, question: Question) {
        let limit = turn.permission_timeout().unwrap_or(self.options.permission_timeout);
        // Without the program, the context is free for other tasks.
        let gone = question.prompt.peer.connection.when_closed();
        question.pending.deny_after(limit);
        self.waiting.put_until(turn.task_id().clone(), question, gone);
        // The task can be canceled before the prompt is among the waiting ones.
        if turn.is_cancelled() {
            drop(self.waiting.take(turn.task_id()));
        }
    }
}

/// Gives the answer to the agent. Its prompt goes on.
fn resume(question: Question, answer: PermissionAnswer, options: &AcpOptions) -> OpenPrompt {
    let Question { mut prompt, open, pending: _ } = question;
    prompt.release_context();
    prompt.session.refill(options.max_output);
    open.answer(answer);
    prompt
}

/// Ends the task as the prompt has ended.
async fn end(turn: &Turn, reason: StopReason, usage: Option<Value>, has_output: bool) -> AgentResult {
    let (name, limit) = match reason {
        StopReason::EndTurn | StopReason::Unknown => return turn.complete().await,
        StopReason::Refusal => return turn.reject("the coding agent refused to go on").await,
        StopReason::Cancelled => return Err(AgentError::public("the coding agent canceled the prompt")),
        StopReason::MaxTokens => ("max_tokens", "tokens"),
        StopReason::MaxTurnRequests => ("max_turn_requests", "requests to its model"),
    };
    if !has_output {
        let text = format!("the coding agent stopped before it answered: it reached its limit of {limit}");
        return Err(AgentError::public(text));
    }
    let report = Report::stop_reason(name);
    let report = match usage {
        Some(usage) => report.and(Usage::from_value(&usage)),
        None => report,
    };
    let mut part =
        Part::text(format!("the answer is incomplete: the coding agent reached its limit of {limit}"));
    part.metadata = turn.report_metadata(report);
    turn.complete_with(part).await
}

fn card(options: &AcpOptions, info: Option<&AgentInfo>) -> AgentCard {
    let own = info.map(|info| info.title.clone().unwrap_or_else(|| info.name.clone()));
    let name = options.name.clone().or(own).unwrap_or_else(|| options.name());
    let description = options.description.clone();
    let description =
        description.unwrap_or_else(|| format!("The coding agent {name}: reads, writes and runs code"));
    let skill = AgentSkill::new("code", "Work on code").description(description.clone()).tags(["coding"]);
    let card = AgentCard::new(name, description).skill(skill).input_modes(options.conversation.input.modes());
    match info.and_then(|info| info.version.clone()) {
        Some(version) => card.version(version),
        None => card,
    }
}

impl Agent for Acp {
    async fn run(&self, turn: Turn) -> AgentResult {
        // Dropping the prompt cancels it.
        tokio::select! {
            answered = tokio::time::timeout(self.options.timeout, self.answer(&turn)) => match answered {
                Ok(result) => result,
                Err(_) => {
                    let seconds = self.options.timeout.as_secs_f64();
                    Err(AgentError::public(format!("the coding agent did not finish within {seconds} s")))
                }
            },
            () = turn.cancelled() => Ok(()),
        }
    }

    fn reports(&self) -> bool {
        true
    }

    fn conversation(&self, _: &Message) -> Option<Arc<Conversation>> {
        Some(self.sessions.rules.clone())
    }

    fn task_ended(&self, task: &TaskId) {
        drop(self.waiting.take(task));
    }
}
