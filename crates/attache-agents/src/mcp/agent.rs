//! A turn: finds the tool, calls it, and reports what happens.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{
    Agent, AgentError, AgentResult, Owner, PendingPermission, Permission, PermissionAction,
    PermissionRequest, Report, ToolReport, Turn,
};
use attache_protocol::{Part, TaskId};
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::calls::Progress;
use super::connection::{Connection, OpenCall};
use super::content::ToolOutput;
use super::question::{self, Question};
use super::request::{ToolCall, resolve};
use super::{CallError, Mcp, McpError};

/// The shortest time between two reports of progress. What is reported in between is left out.
const PROGRESS_PAUSE: Duration = Duration::from_millis(100);

impl Agent for Mcp {
    async fn run(&self, turn: Turn) -> AgentResult {
        let begun = Instant::now();
        tokio::select! {
            // Dropping the call cancels it.
            () = turn.cancelled() => Ok(()),
            result = self.answer(&turn, begun) => result,
        }
    }

    fn reports(&self) -> bool {
        true
    }

    fn task_ended(&self, task: &TaskId) {
        drop(self.0.questions.take(task));
        drop(self.0.asked.take(task));
    }
}

/// A call with its question. Dropping it cancels both.
pub(super) struct OpenQuestion {
    owner: Owner,
    call: OpenCall,
    question: Question,
}

/// A call that waits for the permission of the caller.
pub(super) struct AskedCall {
    owner: Owner,
    id: String,
    call: ToolCall,
    pending: PendingPermission,
}

impl Mcp {
    async fn answer(&self, turn: &Turn, begun: Instant) -> AgentResult {
        if let Some(asked) = self.0.asked.take(turn.task_id()) {
            return self.decided(turn, asked, begun).await;
        }
        let Some(open) = self.0.questions.take(turn.task_id()) else {
            if let Some(lost) = turn.lost_permission() {
                let text = format!(
                    "{}: not permitted, because the answer did not arrive in time. Send a new message to call the tool again.",
                    lost.title
                );
                return turn.reject(text).await;
            }
            if continues(turn) {
                let seconds = self.0.options.question_timeout.as_secs_f64();
                let text = format!(
                    "The call that asked the question has ended: a question must be answered within {seconds} s, and while the server runs. Send a new message to call the tool again."
                );
                return turn.fail(text).await;
            }
            return self.start(turn, begun).await;
        };
        let OpenQuestion { call, question, .. } = open;
        let answer = match question::read(turn.message(), &question.schema, &self.0.schemas).await {
            Ok(answer) => answer,
            // The caller can answer again.
            Err(text) => return self.ask(turn, call, question, Some(text)).await,
        };
        let permit = self.permit().await?;
        // If the call has ended in the meantime, its result says why.
        let _ = question.reply.send(answer);
        self.follow(turn, call, permit, begun).await
    }

    /// Calls the tool that the message names.
    async fn start(&self, turn: &Turn, begun: Instant) -> AgentResult {
        // Before the connection, which can be a process for this call.
        let permit = self.permit().await?;
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => return unavailable(turn, &error).await,
        };
        let catalog = self.catalog();
        let call = match resolve(turn.message(), turn.metadata(), &catalog.tools) {
            Ok(call) => call,
            Err(text) => return turn.fail(text).await,
        };
        if let Err(error) = self.check(&call.tool, &call.arguments).await {
            return turn.fail(error.to_string()).await;
        }
        let id = turn.message().message_id.clone();
        match permission(turn, &id, &call) {
            Permission::Allowed => self.run_tool(turn, connection, id, call, permit, begun).await,
            Permission::Denied => not_permitted(turn, call.tool.name()).await,
            Permission::Ask => {
                // A call that waits for an answer does not keep others from running.
                drop(permit);
                self.ask_permission(turn, id, call, false).await
            }
        }
    }

    /// Asks the caller whether the tool may be called, and keeps the call for the answer.
    async fn ask_permission(&self, turn: &Turn, id: String, call: ToolCall, again: bool) -> AgentResult {
        let pending = turn.ask_permission(request(&id, &call), again).await?;
        let limit = turn.permission_timeout().unwrap_or(self.0.options.question_timeout);
        pending.deny_after(limit);
        let asked = AskedCall { owner: turn.caller().owner.clone(), id, call, pending };
        self.0.asked.put(turn.task_id().clone(), asked);
        // Calls keep their arguments while they wait. A call that is dropped is denied.
        drop(self.0.asked.take_beyond(self.0.options.max_calls, |asked| &asked.owner));
        // The task can be canceled before the call is among the waiting ones.
        if turn.is_cancelled() {
            drop(self.0.asked.take(turn.task_id()));
        }
        Ok(())
    }

    /// Goes on after the answer of the caller.
    async fn decided(&self, turn: &Turn, asked: AskedCall, begun: Instant) -> AgentResult {
        let AskedCall { id, call, pending, .. } = asked;
        match turn.permission_answer(&pending).await? {
            None => self.ask_permission(turn, id, call, true).await,
            Some(answer) if answer.allows => {
                let permit = self.permit().await?;
                match self.connection().await {
                    Ok(connection) => self.run_tool(turn, connection, id, call, permit, begun).await,
                    Err(error) => unavailable(turn, &error).await,
                }
            }
            Some(_) => not_permitted(turn, call.tool.name()).await,
        }
    }

    /// Calls a tool that may be called.
    async fn run_tool(
        &self,
        turn: &Turn,
        connection: Arc<Connection>,
        id: String,
        ToolCall { tool, arguments }: ToolCall,
        permit: OwnedSemaphorePermit,
        begun: Instant,
    ) -> AgentResult {
        turn.working("").await?;
        turn.report(ToolReport::started(&id).name(tool.name())).await?;
        let input = Value::Object(arguments.clone());
        turn.report(ToolReport::input_complete(&id).name(tool.name()).input(input)).await?;
        let mut call = connection.call(tool.name(), arguments);
        call.id = id;
        self.follow(turn, call, permit, begun).await
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, AgentError> {
        Ok(self.0.permits.clone().acquire_owned().await?)
    }

    /// Reports the progress of a call until it ends or asks a question.
    async fn follow(
        &self,
        turn: &Turn,
        mut call: OpenCall,
        permit: OwnedSemaphorePermit,
        begun: Instant,
    ) -> AgentResult {
        let limit = self.0.options.call_timeout;
        let deadline = Instant::now() + limit;
        let mut next_report = Instant::now();
        let mut progress = call.progress.clone();
        let result = loop {
            tokio::select! {
                biased;
                result = &mut call.result => break result.unwrap_or_else(|_| Err(CallError::Ended(call.tool.clone()))),
                Some(question) = call.questions.recv() => {
                    // A call that waits for an answer does not keep others from running.
                    drop(permit);
                    return self.ask(turn, call, question, None).await;
                }
                () = tokio::time::sleep_until(deadline) => {
                    break Err(CallError::TimedOut { tool: call.tool.clone(), limit });
                }
                () = async {
                    tokio::time::sleep_until(next_report).await;
                    if progress.changed().await.is_err() {
                        std::future::pending().await
                    }
                } => {
                    next_report = Instant::now() + PROGRESS_PAUSE;
                    let latest = progress.borrow_and_update().clone();
                    report(turn, latest).await?;
                }
            }
        };
        // Progress that was held back, or that arrived together with the result.
        if result.is_ok() && progress.has_changed().unwrap_or(true) {
            let latest = progress.borrow_and_update().clone();
            report(turn, latest).await?;
        }
        log(turn, &call.tool, &result, begun);
        finish(turn, &call, result).await
    }

    /// Asks the caller, and keeps the call for the answer.
    async fn ask(
        &self,
        turn: &Turn,
        call: OpenCall,
        question: Question,
        again: Option<String>,
    ) -> AgentResult {
        let mut parts = question.parts();
        if let Some(text) = again {
            parts.insert(0, Part::text(text));
        }
        let options = &self.0.options;
        let open = OpenQuestion { owner: turn.caller().owner.clone(), call, question };
        // The call is kept first, so that an answer finds it.
        let expired = tokio::time::sleep(options.question_timeout);
        self.0.questions.put_until(turn.task_id().clone(), open, expired);
        drop(self.0.questions.take_beyond(options.max_calls, |open| &open.owner));
        let asked = turn.ask_with(parts).await;
        // The task can be canceled before the call is among the waiting ones.
        if asked.is_err() || turn.is_cancelled() {
            drop(self.0.questions.take(turn.task_id()));
        }
        asked
    }
}

/// What the operator says about a call. Without rules every tool may be called: the caller asks for it.
fn permission(turn: &Turn, id: &str, call: &ToolCall) -> Permission {
    match turn.has_permission_rules() {
        true => turn.permission(&request(id, call), PermissionAction::Allow),
        false => Permission::Allowed,
    }
}

fn request(id: &str, ToolCall { tool, arguments }: &ToolCall) -> PermissionRequest {
    PermissionRequest {
        title: format!("call {}", tool.name()),
        ..PermissionRequest::new(id, tool.name()).input(Value::Object(arguments.clone()))
    }
}

async fn not_permitted(turn: &Turn, tool: &str) -> AgentResult {
    turn.reject(format!("The tool `{tool}` was not called: it is not permitted.")).await
}

async fn unavailable(turn: &Turn, error: &McpError) -> AgentResult {
    tracing::warn!(target: "attache::mcp", task = %turn.task_id(), %error, "a call failed");
    turn.fail(CallError::Unavailable.to_string()).await
}

/// Whether the message continues a task.
fn continues(turn: &Turn) -> bool {
    let own = &turn.message().message_id;
    turn.task().is_some_and(|task| task.history.iter().any(|message| message.message_id != *own))
}

async fn report(turn: &Turn, progress: Option<Progress>) -> AgentResult {
    let Some(Progress { progress, total, message }) = progress else { return Ok(()) };
    let text = message.unwrap_or_else(|| match total {
        Some(total) => format!("{progress} of {total}"),
        None => progress.to_string(),
    });
    turn.report(Report::progress(progress, total).text(text)).await
}

async fn finish(turn: &Turn, call: &OpenCall, result: Result<ToolOutput, CallError>) -> AgentResult {
    let (report, shown) = match &result {
        Ok(output) if output.is_error => (ToolReport::failed(&call.id), output.for_model()),
        Ok(output) => (ToolReport::completed(&call.id), output.for_model()),
        Err(error) => (ToolReport::failed(&call.id), error.to_string().into()),
    };
    turn.report(report.name(&call.tool).result(shown)).await?;
    match result {
        Ok(output) if output.is_error => turn.fail(output.failure()).await,
        Ok(output) => {
            if !output.parts.is_empty() {
                turn.artifact(&call.tool).parts(output.parts).await?;
            }
            turn.complete().await
        }
        Err(error) => turn.fail(error.to_string()).await,
    }
}

/// Logs the outcome. Neither arguments nor results are logged.
fn log(turn: &Turn, tool: &str, result: &Result<ToolOutput, CallError>, begun: Instant) {
    let outcome = match result {
        Ok(output) if output.is_error => "failed",
        Ok(_) => "completed",
        Err(CallError::TimedOut { .. }) => "timed out",
        Err(CallError::Ended(_)) => "server ended",
        Err(CallError::TooLarge { .. }) => "too large",
        Err(CallError::Canceled) => "canceled",
        Err(
            CallError::Unavailable
            | CallError::Refused(_)
            | CallError::UnknownTool(_)
            | CallError::Arguments { .. },
        ) => "refused",
    };
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (caller, task) = (turn.caller().principal(), turn.task_id());
    tracing::info!(target: "attache::mcp", tool, %caller, %task, outcome, ms, "tool call");
}

impl Mcp {
    /// A permit, the checks and the call, without a turn. Questions of the server are declined.
    pub(super) async fn call_alone(&self, name: &str, arguments: Value) -> Result<ToolOutput, CallError> {
        let _permit = self.permit().await.map_err(|_| CallError::Unavailable)?;
        let connection = self.connection().await.map_err(|error| {
            tracing::warn!(target: "attache::mcp", tool = name, %error, "a call failed");
            CallError::Unavailable
        })?;
        let catalog = self.catalog();
        let Some(tool) = catalog.tools.iter().find(|tool| tool.name() == name) else {
            return Err(CallError::UnknownTool(super::request::unknown(name, &catalog.tools)));
        };
        let arguments = match arguments {
            Value::Object(arguments) => arguments,
            Value::Null => Map::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let faults = "they must be an object".to_owned();
                return Err(CallError::Arguments { tool: name.to_owned(), faults });
            }
        };
        self.check(tool, &arguments).await?;
        let mut call = connection.call(name, arguments);
        // Without a receiver, questions are declined.
        call.questions.close();
        let limit = self.0.options.call_timeout;
        let late = || CallError::TimedOut { tool: name.to_owned(), limit };
        tokio::time::timeout(limit, call.result()).await.unwrap_or_else(|_| Err(late()))
    }
}
