//! A turn: finds the tool, calls it, and reports what happens.

use std::time::Duration;

use attache_core::{Agent, AgentError, AgentResult, Report, ToolReport, Turn};
use attache_protocol::{Part, TaskId};
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::calls::Progress;
use super::connection::OpenCall;
use super::content::ToolOutput;
use super::question::{self, Question};
use super::request::{ToolCall, resolve};
use super::sessions::Waiting;
use super::{CallError, Mcp};

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
        drop(self.0.sessions.take(task));
    }
}

impl Mcp {
    async fn answer(&self, turn: &Turn, begun: Instant) -> AgentResult {
        let Some(waiting) = self.0.sessions.take(turn.task_id()) else {
            if continues(turn) {
                let seconds = self.0.options.question_timeout.as_secs_f64();
                let text = format!(
                    "The call that asked the question has ended: a question must be answered within {seconds} s, and while the server runs. Send a new message to call the tool again."
                );
                return turn.fail(text).await;
            }
            return self.start(turn, begun).await;
        };
        let Waiting { call, question } = waiting;
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
            Err(error) => {
                tracing::warn!(target: "attache::mcp", task = %turn.task_id(), %error, "a call failed");
                return turn.fail(CallError::Unavailable.to_string()).await;
            }
        };
        let catalog = self.catalog();
        let ToolCall { tool, arguments } = match resolve(turn.message(), turn.metadata(), &catalog.tools) {
            Ok(call) => call,
            Err(text) => return turn.fail(text).await,
        };
        if let Err(error) = self.check(&tool, &arguments).await {
            return turn.fail(error.to_string()).await;
        }
        let id = turn.message().message_id.clone();
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
        let waiting = Waiting { call, question };
        // The call is kept first, so that an answer finds it.
        self.0.sessions.put(turn.task_id().clone(), waiting, options.question_timeout, options.max_calls);
        let asked = turn.ask_with(parts).await;
        // The task can be canceled before the call is among the waiting ones.
        if asked.is_err() || turn.is_cancelled() {
            drop(self.0.sessions.take(turn.task_id()));
        }
        asked
    }
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
