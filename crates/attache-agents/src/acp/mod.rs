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
mod metadata;
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
mod waiting;
mod wire;
mod workspace;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use attache_core::{Agent, AgentError, AgentResult, Conversation, Turn};
use attache_protocol::{AgentCard, AgentSkill, Message, Part, Role, Task, TaskId};
use futures::{Stream, stream};
use serde_json::{Map, Value};

pub use self::options::{AcpOptions, Permissions};

use self::follow::{End, follow};
use self::metadata::{PERMISSION, STOP_REASON, USAGE, cut_value};
use self::open_prompt::OpenPrompt;
use self::permission::Answer;
use self::sessions::{Origin, Sessions};
use self::waiting::{Question, Waiting};
use self::wire::{AgentInfo, ContentBlock, StopReason};

/// The artifact with the answer of the agent.
const ANSWER: &str = "answer";

/// An agent that passes messages to a coding agent.
pub struct Acp {
    options: Arc<AcpOptions>,
    sessions: Sessions,
    waiting: Waiting,
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
            Some(question) => match question.request.read_answer(turn.message()) {
                Some(answer) => resume(question, answer, &self.options),
                None => return self.ask(turn, question, true).await,
            },
            None => self.prompt(turn).await?,
        };
        match follow(&mut prompt, turn, &self.options).await? {
            End::Question(request) => self.ask(turn, Question { prompt, request }, false).await,
            End::Stopped { reason, usage, has_output } => {
                drop(prompt);
                end(turn, reason, usage, has_output).await
            }
        }
    }

    /// Sends the message as a prompt.
    async fn prompt(&self, turn: &Turn) -> Result<OpenPrompt, AgentError> {
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
        if let Some(title) = lost_question(turn) {
            let text = format!(
                "(The request for permission `{title}` was denied, because the answer did not arrive in time. What follows may be \
                 the answer.)"
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

    /// Asks the caller, and keeps the prompt open until it answers.
    async fn ask(&self, turn: &Turn, question: Question, again: bool) -> AgentResult {
        turn.ask_with(question.request.question(again)?).await?;
        self.waiting.put(turn.task_id().clone(), question, self.options.permission_timeout);
        // The task can be canceled before the prompt is among the waiting ones.
        if turn.is_cancelled() {
            drop(self.waiting.take(turn.task_id()));
        }
        Ok(())
    }
}

/// Gives the answer to the agent. Its prompt goes on.
fn resume(question: Question, answer: Answer, options: &AcpOptions) -> OpenPrompt {
    let Question { prompt, request } = question;
    prompt.session.refill(options.max_output);
    request.answer(answer);
    prompt
}

/// What the caller was asked before this turn, if the task waited for permission.
fn lost_question(turn: &Turn) -> Option<String> {
    let task = turn.task()?;
    let mut earlier = task.history.iter().filter(|message| message.message_id != turn.message().message_id);
    let last = task.status.message.as_deref().or(earlier.next_back())?;
    let asked: Value =
        last.parts.iter().find_map(Part::as_data).filter(|_| last.role == Role::Agent)?.read().ok()?;
    asked.get(PERMISSION)?.get("title")?.as_str().map(str::to_owned)
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
    let mut members = Map::from_iter([(STOP_REASON.to_owned(), name.into())]);
    members.extend(usage.map(|usage| (USAGE.to_owned(), cut_value(&usage))));
    let mut part =
        Part::text(format!("the answer is incomplete: the coding agent reached its limit of {limit}"));
    part.metadata = metadata::object(members);
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

    fn conversation(&self, _: &Message) -> Option<Arc<Conversation>> {
        Some(self.sessions.rules.clone())
    }

    fn task_ended(&self, task: &TaskId) {
        drop(self.waiting.take(task));
    }
}
