//! The JSON protocol: one object per line, in both directions.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitStatus;

use attache_core::{
    AgentError, AgentResult, ArtifactStream, Permission, PermissionAction, PermissionAnswer,
    PermissionRequest, Report, Turn, Usage,
};
use attache_protocol::Part;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::files::Files;
use super::json_reports::{DiffEvent, PermissionEvent, StepEvent, ToolEvent, decision};
use super::process::Process;
use super::{Program, ProgramOptions};

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

/// The content of an event: any of these.
#[derive(Debug, Default, Deserialize)]
struct Content {
    text: Option<String>,
    data: Option<Value>,
    #[serde(default)]
    parts: Vec<OutputPart>,
}

/// A part, or a file that the program has written.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OutputPart {
    File {
        path: PathBuf,
        filename: Option<String>,
        #[serde(rename = "mediaType")]
        media_type: Option<String>,
    },
    Part(Part),
}

/// How a turn ends.
enum End {
    Completed(Option<Part>),
    Question(Part),
    /// The caller has to decide about this.
    Permission(Box<PermissionRequest>),
    Failed(Part),
    Rejected(Part),
    /// The program ended before it wrote any event.
    Silent(ExitStatus),
}

/// Runs the program for a message, or passes the message to the process that asked for it.
pub(super) async fn run(program: &Program, turn: &Turn, files: &Files) -> AgentResult {
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
            }
            process
        }
        None => {
            // A program that was asked for and is gone gets the answer as a message. What it had asked for was denied.
            let _ = turn.lost_permission();
            tokio::select! {
                process = program.start(turn, files) => process?,
                () = turn.cancelled() => return Ok(()),
            }
        }
    };
    let outcome = loop {
        let outcome = tokio::select! {
            outcome = talk(&mut process, turn, files, options, &first) => Some(outcome),
            () = turn.cancelled() => None,
        };
        match outcome {
            // The process ended while the answer was on its way, so the answer starts a new one.
            Some(Ok(End::Silent(_))) if std::mem::take(&mut was_waiting) => {
                process = tokio::select! {
                    process = program.start(turn, files) => process?,
                    () = turn.cancelled() => return Ok(()),
                };
            }
            Some(Ok(End::Silent(status))) => {
                break Some(process.result(status, options).map(|()| End::Completed(None)));
            }
            outcome => break outcome,
        }
    };
    match outcome {
        Some(Ok(End::Question(question))) => {
            // Before the question, so that no other task of the context comes in between.
            process.hold = turn.context().hold();
            turn.ask(question).await?;
            program.sessions.put(turn.task_id().clone(), process, options.idle, options.clone());
            // The task can be canceled before the process is among the waiting ones.
            if turn.is_cancelled() {
                drop(program.sessions.take(turn.task_id()));
            }
            Ok(())
        }
        Some(Ok(End::Permission(request))) => ask(program, turn, process, *request, false).await,
        Some(Ok(end)) => {
            process.release(options);
            match end {
                End::Completed(None) => turn.complete().await,
                End::Completed(Some(part)) => turn.complete_with(part).await,
                End::Failed(part) => turn.fail(part).await,
                End::Rejected(part) => turn.reject(part).await,
                End::Question(part) => turn.ask(part).await,
                End::Silent(_) | End::Permission(_) => turn.complete().await,
            }
        }
        Some(Err(error)) => {
            process.stop(options).await;
            Err(error)
        }
        None => {
            process.stop(options).await;
            Ok(())
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
    process.pending = Some(pending);
    let limit = turn.permission_timeout().unwrap_or(program.options.permission_timeout);
    program.sessions.put(turn.task_id().clone(), process, limit, program.options.clone());
    // The task can be canceled before the process is among the waiting ones.
    if turn.is_cancelled() {
        drop(program.sessions.take(turn.task_id()));
    }
    Ok(())
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
    files: &Files,
    options: &ProgramOptions,
    first: &Line,
) -> Result<End, AgentError> {
    let first = match first {
        Line::Message => &input(turn, files).await?,
        Line::Decision(decision) => decision,
    };
    let (lines, mut queue) = mpsc::unbounded_channel();
    // The receiver is here, so this cannot fail.
    let _ = lines.send(first.to_string());
    let mut input = process.input.take();
    // The program may write events before it reads, so both happen at once. The input stays open for later messages.
    let (input, end) = {
        let writing = async {
            while let Some(mut line) = queue.recv().await {
                line.push('\n');
                if let Some(input) = &mut input {
                    // A program that does not read its input is not an error.
                    let _ = input.write_all(line.as_bytes()).await;
                    let _ = input.flush().await;
                }
            }
        };
        // The sender is dropped with the events, which ends the writing.
        let reading = async move { events(process, turn, options, &lines).await.map(|end| (end, process)) };
        let ((), end) = tokio::join!(writing, reading);
        (input, end)
    };
    let (end, process) = end?;
    process.input = input;
    Ok(end)
}

/// Handles the events of the program.
async fn events(
    process: &mut Process,
    turn: &Turn,
    options: &ProgramOptions,
    lines: &mpsc::UnboundedSender<String>,
) -> Result<End, AgentError> {
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
            && let Some(end) = handle(turn, &mut streams, parse(text)?, process, options, lines).await?
        {
            return Ok(end);
        }
        if is_over {
            let status = process.ended().await?;
            if is_silent {
                return Ok(End::Silent(status));
            }
            process.result(status, options)?;
            return Ok(End::Completed(None));
        }
        line.clear();
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
    lines: &mpsc::UnboundedSender<String>,
) -> Result<Option<End>, AgentError> {
    match event {
        Event::Tool(tool) => turn.report(tool.report()).await?,
        Event::Usage { usage } => turn.report(Usage::from_value(&Value::Object(usage))).await?,
        Event::Thinking { text } => turn.report(Report::thinking(text)).await?,
        Event::Plan { steps } => turn.report(Report::plan(steps.into_iter().map(StepEvent::step))).await?,
        Event::Diff(diff) => turn.report(Report::diffs([diff.diff()])).await?,
        Event::Permission(event) => {
            let request = event.request();
            let allowed = match turn.permission(&request, PermissionAction::Ask) {
                Permission::Allowed => true,
                Permission::Denied => false,
                Permission::Ask => return Ok(Some(End::Permission(Box::new(request)))),
            };
            let answer = match allowed {
                true => PermissionAnswer::allowed(&request),
                false => PermissionAnswer::denied(&request),
            };
            // The writer runs until this turn ends.
            let _ = lines.send(decision(&request, answer.allows, answer.option).to_string());
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
        Event::Ask { content } => return Ok(Some(End::Question(content.part()?))),
        Event::Fail { content } => return Ok(Some(End::Failed(content.part()?))),
        Event::Reject { content } => return Ok(Some(End::Rejected(content.part()?))),
        Event::Complete { content } => return Ok(Some(End::Completed(content.part().ok()))),
    }
    Ok(None)
}

impl Content {
    /// All parts. Files are read from the disk.
    async fn parts(self, process: &mut Process, options: &ProgramOptions) -> Result<Vec<Part>, AgentError> {
        let mut parts: Vec<Part> = self.text.map(Part::text).into_iter().collect();
        if let Some(data) = &self.data {
            parts.push(Part::data(data)?);
        }
        for part in self.parts {
            parts.push(match part {
                OutputPart::Part(part) => part,
                OutputPart::File { path, filename, media_type } => {
                    let place =
                        options.directory.as_deref().map_or(path.clone(), |folder| folder.join(&path));
                    let bytes = read_file(&place, process.budget).await;
                    let bytes = bytes.map_err(|error| unreadable(&path, &error))?;
                    // The file counts as output.
                    process.spend(bytes.len(), options)?;
                    let own_name = || path.file_name().map(|name| name.to_string_lossy().into_owned());
                    let mut part = Part::raw(bytes);
                    part.filename = filename.or_else(own_name);
                    part.media_type = media_type;
                    part
                }
            });
        }
        if parts.is_empty() {
            return Err(AgentError::public("the program wrote an event without content"));
        }
        Ok(parts)
    }

    /// The one part of a question or of an end.
    fn part(self) -> Result<Part, AgentError> {
        match (self.text, self.data) {
            (Some(text), _) => Ok(Part::text(text)),
            (None, Some(data)) => Ok(Part::data(&data)?),
            (None, None) => {
                Err(AgentError::public("the program wrote an event without `text` and without `data`"))
            }
        }
    }
}

/// Reads a file, and at most one byte more than the limit. Devices and pipes are refused, because they can be endless.
async fn read_file(path: &std::path::Path, limit: usize) -> std::io::Result<Vec<u8>> {
    if !tokio::fs::metadata(path).await?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    tokio::fs::File::open(path).await?.take(limit).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn unreadable(path: &std::path::Path, error: &std::io::Error) -> AgentError {
    tracing::warn!(target: "attache::program", path = %path.display(), %error, "a file of a program cannot be read");
    AgentError::public("the program named a file that cannot be read")
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
    let history: Vec<Value> = turn
        .task()
        .map(|task| task.history)
        .unwrap_or_default()
        .iter()
        .filter(|earlier| earlier.message_id != turn.message().message_id)
        .map(|earlier| json!(earlier))
        .collect();
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
