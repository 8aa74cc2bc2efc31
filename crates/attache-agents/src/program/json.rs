//! The JSON protocol: one object per line, in both directions.

use std::collections::HashMap;
use std::process::ExitStatus;
use std::time::Duration;

use attache_core::{
    AgentError, AgentResult, ArtifactStream, Permission, PermissionAction, PermissionAnswer,
    PermissionRequest, Report, Turn, Usage,
};
use attache_protocol::Part;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::AsyncBufReadExt;

use super::files::Files;
use super::json_content::Content;
use super::json_reports::{DiffEvent, PermissionEvent, StepEvent, ToolEvent, decision};
use super::process::Process;
use super::{Program, ProgramOptions};
use crate::tool_artifact;

/// What a program writes.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Event {
    /// Progress.
    Status {
        #[serde(default)]
        text: String,
    },
    /// An artifact as a whole.
    Artifact {
        #[serde(default = "answer")]
        name: String,
        description: Option<String>,
        #[serde(flatten)]
        content: Content,
    },
    /// A chunk of an artifact.
    Chunk {
        #[serde(default = "answer")]
        name: String,
        #[serde(flatten)]
        content: Content,
        #[serde(default)]
        last: bool,
    },
    /// A tool call of the program.
    Tool(ToolEvent),
    /// The tokens that were used.
    Usage {
        #[serde(flatten)]
        usage: Map<String, Value>,
    },
    /// A thought.
    Thinking { text: String },
    /// The plan.
    Plan { steps: Vec<StepEvent> },
    /// A change of a file.
    Diff(DiffEvent),
    /// A request for permission. The program waits for the decision.
    Permission(PermissionEvent),
    /// A question. The program can wait for the answer, or end.
    Ask {
        #[serde(flatten)]
        content: Content,
    },
    /// The task fails.
    Fail {
        #[serde(flatten)]
        content: Content,
    },
    /// The program will not do this.
    Reject {
        #[serde(flatten)]
        content: Content,
    },
    /// The task is completed.
    Complete {
        #[serde(flatten)]
        content: Content,
    },
}

fn answer() -> String {
    "answer".to_owned()
}

/// How a turn ends.
enum End {
    Completed(Vec<Part>),
    Question(Vec<Part>),
    /// The caller has to decide about this.
    Permission(Box<PermissionRequest>),
    Failed(Vec<Part>),
    Rejected(Vec<Part>),
    /// The program ended before it wrote any event.
    Silent(ExitStatus),
}

/// Runs the program for a message, or passes the message to the process that asked for it.
pub(super) async fn run(program: &Program, turn: &Turn) -> AgentResult {
    let options = &program.options;
    if let Some(directory) = &options.directory {
        turn.hide_path(directory, "<workspace>");
    }
    let waiting = program.sessions.take(turn.task_id());
    let mut first = Line::Message;
    let mut was_waiting = waiting.is_some();
    let mut process = match waiting {
        Some(mut process) => {
            process.budget = options.max_output;
            // The turn has the context while it runs.
            process.hold = None;
            if let Some(pending) = process.pending.take() {
                match turn.permission_answer(&pending).await? {
                    Some(answer) => {
                        was_waiting = false;
                        first = Line::Decision(decision(&pending.request, answer.allows, answer.option));
                    }
                    None => return ask(program, turn, process, pending.request, true).await,
                }
            } else {
                process.files = std::mem::take(&mut process.files).with(turn.message()).await?;
            }
            process
        }
        None => {
            // A program that was asked for and is gone gets the answer as a message. What it had asked for was denied.
            let _ = turn.lost_permission();
            tokio::select! {
                process = program.start(turn) => process?,
                () = turn.cancelled() => return Ok(()),
            }
        }
    };
    let outcome = loop {
        let outcome = tokio::select! {
            outcome = talk(&mut process, turn, options, &first) => outcome,
            given_up = program.given_up(turn) => {
                process.stop().await;
                return given_up;
            }
        };
        match outcome {
            // The process ended while the answer was on its way, so the answer starts a new one.
            Ok(End::Silent(_)) if std::mem::take(&mut was_waiting) => {
                process = tokio::select! {
                    process = program.start(turn) => process?,
                    () = turn.cancelled() => return Ok(()),
                };
            }
            Ok(End::Silent(status)) => {
                break process.result(status, options).map(|()| End::Completed(Vec::new()));
            }
            outcome => break outcome,
        }
    };
    match outcome {
        Ok(End::Question(question)) => {
            // Before the question, so that no other task of the context comes in between.
            process.hold = turn.context().hold();
            turn.ask_with(question).await?;
            wait(program, turn, process, Some(options.idle));
            Ok(())
        }
        Ok(End::Permission(request)) => ask(program, turn, process, *request, false).await,
        Ok(end) => {
            process.release();
            match end {
                End::Completed(parts) if parts.is_empty() => turn.complete().await,
                End::Completed(parts) => turn.complete_with_parts(parts).await,
                End::Failed(parts) => turn.fail_with(parts).await,
                End::Rejected(parts) => turn.reject_with(parts).await,
                End::Question(parts) => turn.ask_with(parts).await,
                End::Silent(_) | End::Permission(_) => turn.complete().await,
            }
        }
        Err(error) => {
            process.stop().await;
            Err(error)
        }
    }
}

/// Asks the caller for a permission, and keeps the process for the decision.
async fn ask(
    program: &Program,
    turn: &Turn,
    mut process: Process,
    request: PermissionRequest,
    again: bool,
) -> AgentResult {
    // Before the question, so that no other task of the context comes in between.
    process.hold = turn.context().hold();
    let pending = turn.ask_permission(request, again).await?;
    // Then another turn gives the denial to the process.
    pending.deny_after(turn.permission_timeout().unwrap_or(program.options.permission_timeout));
    process.pending = Some(pending);
    wait(program, turn, process, None);
    Ok(())
}

/// Keeps the process for the answer of the caller.
fn wait(program: &Program, turn: &Turn, process: Process, limit: Option<Duration>) {
    program.sessions.put(turn.task_id().clone(), turn.caller().owner.clone(), process, limit);
    // The task can be canceled before the process is among the waiting ones.
    if turn.is_cancelled() {
        drop(program.sessions.take(turn.task_id()));
    }
}

/// What a turn tells the program first.
enum Line {
    /// The message of the turn.
    Message,
    /// The decision about a permission.
    Decision(Value),
}

/// Tells the program the message or a decision, and handles events until one of them ends the turn.
async fn talk(
    process: &mut Process,
    turn: &Turn,
    options: &ProgramOptions,
    first: &Line,
) -> Result<End, AgentError> {
    // The input stays open for later messages. The program may write events before it reads, or never read.
    match first {
        Line::Message => {
            let message = input(turn, &process.files).await?;
            tell(process, &message);
        }
        Line::Decision(decision) => tell(process, decision),
    }
    let mut streams: HashMap<String, ArtifactStream<'_>> = HashMap::new();
    let mut line = Vec::new();
    let mut is_silent = true;
    loop {
        let chunk = process.output.fill_buf().await?;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(chunk.len(), |end| end + 1);
        line.extend_from_slice(&chunk[..count]);
        let is_over = chunk.is_empty();
        process.output.consume(count);
        process.spend(count, options)?;
        if end.is_none() && !is_over {
            continue;
        }
        let text = line.trim_ascii();
        is_silent &= text.is_empty();
        if !text.is_empty()
            && let Some(end) = handle(turn, &mut streams, parse(text)?, process, options).await?
        {
            return Ok(end);
        }
        if is_over {
            let status = process.ended().await?;
            if is_silent {
                return Ok(End::Silent(status));
            }
            process.result(status, options)?;
            return Ok(End::Completed(Vec::new()));
        }
        line.clear();
    }
}

/// Writes a line to the program.
fn tell(process: &Process, line: &Value) {
    if let Some(input) = &process.input {
        input.write(format!("{line}\n").into_bytes());
    }
}

fn parse(line: &[u8]) -> Result<Event, AgentError> {
    serde_json::from_slice(line).map_err(|error| {
        let shown: String = String::from_utf8_lossy(line).chars().take(200).collect();
        tracing::warn!(target: "attache::program", %error, line = shown, "a program wrote an invalid event");
        AgentError::public("the program wrote an invalid event")
    })
}

async fn handle<'a>(
    turn: &'a Turn,
    streams: &mut HashMap<String, ArtifactStream<'a>>,
    event: Event,
    process: &mut Process,
    options: &ProgramOptions,
) -> Result<Option<End>, AgentError> {
    match event {
        Event::Tool(tool) => {
            let (report, file) = tool.report();
            turn.report(report).await?;
            tool_artifact::add(turn, file).await?;
        }
        Event::Usage { usage } => turn.report(Usage::from_value(&Value::Object(usage))).await?,
        Event::Thinking { text } => turn.report(Report::thinking(text)).await?,
        Event::Plan { steps } => turn.report(Report::plan(steps.into_iter().map(StepEvent::step))).await?,
        Event::Diff(diff) => turn.report(Report::diffs([diff.diff()])).await?,
        Event::Permission(event) => {
            let request = match &process.own_directory {
                // The paths are not about the workspace.
                Some(directory) => event.request().in_directory(directory),
                None => event.request(),
            };
            let answer = match turn.permission(&request, PermissionAction::Ask) {
                Permission::Allowed => PermissionAnswer::allowed(&request),
                Permission::Denied => PermissionAnswer::denied(&request),
                Permission::Ask => return Ok(Some(End::Permission(Box::new(request)))),
            };
            tell(process, &decision(&request, answer.allows, answer.option));
        }
        Event::Status { text } => turn.working(text).await?,
        Event::Artifact { name, description, content } => {
            let parts = content.parts(process, options).await?;
            let artifact = turn.artifact(name).parts(parts);
            match description {
                Some(description) => artifact.description(description).await?,
                None => artifact.await?,
            }
        }
        Event::Chunk { name, content, last } => {
            let mut parts = content.parts(process, options).await?;
            let stream = streams.entry(name.clone()).or_insert_with(|| turn.artifact(&*name).stream());
            let last_part = if last { parts.pop() } else { None };
            for part in parts {
                stream.chunk(part).await?;
            }
            if last && let Some(stream) = streams.remove(&name) {
                stream.last(last_part.unwrap_or_else(|| Part::text(""))).await?;
            }
        }
        Event::Ask { content } => return Ok(Some(End::Question(content.parts(process, options).await?))),
        Event::Fail { content } => return Ok(Some(End::Failed(content.parts(process, options).await?))),
        Event::Reject { content } => return Ok(Some(End::Rejected(content.parts(process, options).await?))),
        Event::Complete { content } => {
            return Ok(Some(End::Completed(content.parts_if_any(process, options).await?)));
        }
    }
    Ok(None)
}

/// What the program reads: the message, with its files on the disk, and what was said before in this task.
async fn input(turn: &Turn, files: &Files) -> Result<Value, AgentError> {
    let mut message = json!(turn.message());
    if let Some(parts) = message["parts"].as_array_mut() {
        for (number, part) in parts.iter_mut().enumerate() {
            if let (Some(path), Some(part)) = (files.path(number), part.as_object_mut()) {
                part.remove("raw");
                part.insert("path".to_owned(), path.display().to_string().into());
            }
        }
    }
    let caller = turn.caller();
    let scopes: Vec<&str> = caller.rights.scopes().collect();
    let history = super::history::before(turn).await?;
    let workspace = turn.context().workspace_if_any().await?;
    Ok(json!({
        "type": "message",
        "taskId": turn.task_id(),
        "contextId": turn.context_id(),
        "text": turn.text(),
        "input": turn.input().await?.text(),
        "workspace": workspace.as_ref().map(|workspace| workspace.root()),
        "message": message,
        "caller": {"name": caller.owner.principal.name(), "scopes": scopes},
        "history": history,
    }))
}
