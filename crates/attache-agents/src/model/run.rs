//! One turn of a model: its replies, and the tools that it calls in between.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use attache_core::{
    AgentError, AgentResult, ContextHold, PendingPermission, Permission, PermissionAction, PermissionRequest,
    ToolReport, Turn, Usage,
};
use attache_protocol::Part;
use serde_json::Value;

use super::reply::{Finish, ToolCall};
use super::tool;
use super::transcript::{TooLarge, Transcript};
use super::wire::ChatMessage;
use super::{Model, conversation};
use crate::answer::Answer;
use crate::tool_artifact;

/// The artifact with the text of the model.
const REPLY: &str = "reply";

/// How long the caller has to answer a request for permission, unless the operator has set it.
const PERMISSION_TIMEOUT: Duration = Duration::from_secs(600);

/// A turn that goes on when the caller has answered.
pub(super) struct Paused {
    run: Run,
    pending: PendingPermission,
    /// Keeps the context for the task.
    _hold: Option<ContextHold>,
}

/// The conversation with the model, and the calls that it waits for.
struct Run {
    messages: Transcript,
    calls: VecDeque<ToolCall>,
    /// What the caller has decided about the first call.
    decided: Option<bool>,
    rounds: usize,
    used: Usage,
}

impl Model {
    pub(super) async fn answer(&self, turn: &Turn) -> AgentResult {
        let (run, earlier) = match self.waiting.take(turn.task_id()) {
            None => (self.begin(turn).await?, Vec::new()),
            Some(Paused { mut run, pending, _hold }) => match turn.permission_answer(&pending).await? {
                Some(answer) => {
                    run.decided = Some(answer.allows);
                    (run, earlier_reply(turn))
                }
                None => return self.pause(turn, run, pending.request, true).await,
            },
        };
        let mut run = run;
        let stream = Answer::new(turn, REPLY, earlier);
        let result = self.go_on(turn, &mut run, stream).await;
        if run.used != Usage::default() && !turn.is_cancelled() {
            // Before the end of the task, where it can still be reported.
            turn.report(run.used.clone()).await?;
        }
        match result? {
            Outcome::Done(text) => match text {
                Some(text) => turn.complete_with(text).await,
                None => turn.complete().await,
            },
            Outcome::Rejected(text) => turn.reject(text.into_owned()).await,
            Outcome::Ask(request) => self.pause(turn, run, request, false).await,
        }
    }

    async fn begin(&self, turn: &Turn) -> Result<Run, AgentError> {
        turn.require_message()?;
        let note = turn.lost_permission().map(|lost| {
            let text = format!(
                "(The request for permission `{}` was denied, because the answer did not arrive in time. What follows may be the \
                 answer.)",
                lost.title
            );
            ChatMessage::system(&text)
        });
        let messages = conversation::transcript(turn, &self.options, note).await?;
        Ok(Run { messages, calls: VecDeque::new(), decided: None, rounds: 0, used: Usage::default() })
    }

    /// Asks the caller, and keeps the turn for the answer.
    async fn pause(&self, turn: &Turn, run: Run, request: PermissionRequest, again: bool) -> AgentResult {
        // Before the question, so that no other task of the context comes in between.
        let hold = turn.context().hold();
        let asked = turn.ask_permission(request, again).await?;
        let limit = turn.permission_timeout().unwrap_or(PERMISSION_TIMEOUT);
        asked.deny_after(limit);
        let paused = Paused { run, pending: asked, _hold: hold };
        self.waiting.put(turn.task_id().clone(), paused);
        // The task can be canceled before the turn is among the waiting ones.
        if turn.is_cancelled() {
            drop(self.waiting.take(turn.task_id()));
        }
        Ok(())
    }

    async fn go_on(&self, turn: &Turn, run: &mut Run, mut stream: Answer<'_>) -> Result<Outcome, AgentError> {
        let tools = self.tools_for(turn);
        loop {
            while let Some(call) = run.calls.front().cloned() {
                let permission = match run.decided.take() {
                    Some(true) => Permission::Allowed,
                    Some(false) => Permission::Denied,
                    None => permission(turn, &call),
                };
                if permission == Permission::Ask {
                    stream.flush().await?;
                    return Ok(Outcome::Ask(request(&call)));
                }
                run.calls.pop_front();
                let called = match permission {
                    Permission::Allowed => {
                        stream.wait(tool::call(&tools, &call, self.options.tool_timeout)).await?
                    }
                    Permission::Denied | Permission::Ask => {
                        Err("error: the tool was not permitted".to_owned())
                    }
                };
                stream.flush().await?;
                let (report, result) = match called {
                    Ok(result) => (ToolReport::completed(&call.id), result),
                    Err(error) => (ToolReport::failed(&call.id), error),
                };
                // The model reads the whole result. The caller gets a file in it as an artifact.
                let (shown, file) = match tool_artifact::take_from_text(&result) {
                    Some((shown, file)) => (shown, Some(file)),
                    None => (result.clone().into(), None),
                };
                turn.report(report.name(&call.name).result(shown)).await?;
                tool_artifact::add(turn, file).await?;
                run.messages.push(ChatMessage::tool(call.id, result));
            }
            if run.rounds > self.options.max_rounds {
                let limit = self.options.max_rounds;
                let text = format!("the model called tools more than {limit} times in a row");
                stream.finish().await?;
                return Err(AgentError::public(text));
            }
            if let Err(TooLarge { size }) = run.messages.fit(self.options.max_context) {
                let limit = self.options.max_context;
                stream.finish().await?;
                if run.rounds > 0 {
                    let text =
                        format!("the model called tools with {size} bytes, and it gets at most {limit}");
                    return Err(AgentError::public(text));
                }
                let text = format!(
                    "the message and the system prompt have {size} bytes, at most {limit} are accepted"
                );
                return Ok(Outcome::Rejected(text.into()));
            }
            run.rounds += 1;
            let messages = run.messages.messages();
            let reply = match self.ask(turn, messages, &tools, &mut stream, &mut run.used).await {
                Ok(reply) => reply,
                Err(error) => {
                    // The caller gets what arrived before the failure.
                    stream.finish().await?;
                    return Err(error);
                }
            };
            match reply.finish {
                Finish::Stop => {
                    stream.finish().await?;
                    return Ok(Outcome::Done(None));
                }
                Finish::Length => {
                    stream.finish().await?;
                    return Ok(Outcome::Done(Some(
                        "the reply is incomplete: the model reached its length limit",
                    )));
                }
                Finish::Filtered => {
                    stream.finish().await?;
                    return Ok(Outcome::Rejected("the model's provider filtered the reply".into()));
                }
                Finish::ToolCalls => {
                    run.calls = reply.calls.clone().into();
                    run.messages.push(ChatMessage::assistant(reply));
                }
            }
        }
    }
}

/// How a turn ends, or pauses.
enum Outcome {
    Done(Option<&'static str>),
    Rejected(Cow<'static, str>),
    Ask(PermissionRequest),
}

/// The text of the earlier turns of this task. The first chunk of a turn replaces the artifact, so it has the earlier parts.
fn earlier_reply(turn: &Turn) -> Vec<Part> {
    let artifacts = turn.task().into_iter().flat_map(|task| task.artifacts);
    artifacts.filter(|artifact| artifact.artifact_id == REPLY).flat_map(|artifact| artifact.parts).collect()
}

/// The tools of a model are chosen by the operator, so they are allowed unless a rule says something else.
fn permission(turn: &Turn, call: &ToolCall) -> Permission {
    match turn.has_permission_rules() {
        true => turn.permission(&request(call), PermissionAction::Allow),
        false => Permission::Allowed,
    }
}

fn request(call: &ToolCall) -> PermissionRequest {
    let input = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
    PermissionRequest {
        title: format!("call {}", call.name),
        ..PermissionRequest::new(&call.id, &call.name).input(input)
    }
}
