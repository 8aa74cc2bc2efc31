//! Follows a prompt, and reports to the caller what the agent does.

use attache_core::{
    AgentError, AgentResult, Permission, PermissionAction, PermissionAnswer, Report, TextStream, Turn, Usage,
};
use attache_protocol::Part;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::open_prompt::{Next, OpenPrompt};
use super::permission::OpenRequest;
use super::report;
use super::session::Event;
use super::wire::{ContentBlock, ContentChunk, SessionUpdate, StopReason, method};
use super::{ANSWER, AcpOptions, Permissions};

/// How many bytes of thoughts are collected before they are reported.
const MAX_THOUGHT: usize = 4_000;

/// How a turn on a prompt ends.
pub(super) enum End {
    /// The caller has to decide.
    Question(Box<OpenRequest>),
    /// The prompt has ended.
    Stopped { reason: StopReason, usage: Option<Value>, has_output: bool },
}

/// Reports events until the prompt ends or the caller has to decide.
pub(super) async fn follow(
    prompt: &mut OpenPrompt,
    turn: &Turn,
    options: &AcpOptions,
) -> Result<End, AgentError> {
    let mut output = Output::new(turn, options);
    let end = output.follow(prompt).await;
    output.flush_thought().await?;
    match &end {
        // The answer goes on in the next turn.
        Ok(End::Question(_)) => output.answer.flush().await?,
        // The caller gets what arrived before a failure.
        Ok(End::Stopped { .. }) | Err(_) => output.answer.finish().await?,
    }
    end
}

struct Output<'a> {
    turn: &'a Turn,
    options: &'a AcpOptions,
    answer: TextStream<'a>,
    thought: String,
}

impl<'a> Output<'a> {
    fn new(turn: &'a Turn, options: &'a AcpOptions) -> Self {
        let task = turn.task();
        // A turn that continues a prompt continues its answer. The first chunk of a turn replaces the artifact, so it has the
        // earlier parts.
        let artifacts = task.into_iter().flat_map(|task| task.artifacts);
        let earlier =
            artifacts.filter(|artifact| artifact.artifact_id == ANSWER).flat_map(|artifact| artifact.parts);
        let answer = TextStream::answer(turn, turn.artifact(ANSWER).parts(earlier).stream());
        Self { turn, options, answer, thought: String::new() }
    }

    async fn follow(&mut self, prompt: &mut OpenPrompt) -> Result<End, AgentError> {
        loop {
            let event = match self.answer.wait(prompt.next()).await? {
                Next::Event(event) => event,
                Next::Ended(Ok(ended)) => {
                    let usage = ended.usage.or_else(|| prompt.progress.usage.take());
                    if let Some(usage) = &usage {
                        tracing::info!(target: "attache::acp", task = %self.turn.task_id(), %usage, "the coding agent is done");
                        self.report(Usage::from_value(usage).into()).await?;
                    }
                    let has_output = prompt.progress.has_output;
                    return Ok(End::Stopped { reason: ended.stop_reason, usage, has_output });
                }
                Next::Ended(Err(error)) => return Err(prompt.peer.explain(method::PROMPT, error).await),
            };
            match event {
                Event::Update(update) => self.update(*update, prompt).await?,
                Event::Permission(open) => {
                    let request = open.request(&prompt.session.workspace);
                    let fallback = match self.options.permissions {
                        Permissions::Allow => PermissionAction::Allow,
                        Permissions::Deny => PermissionAction::Deny,
                        Permissions::Ask => PermissionAction::Ask,
                    };
                    self.answer.flush().await?;
                    match self.turn.permission(&request, fallback) {
                        // The answer is never wider than the decision: it is about this request alone.
                        Permission::Allowed => open.answer(PermissionAnswer::allowed(&request)),
                        Permission::Denied => open.answer(PermissionAnswer::denied(&request)),
                        Permission::Ask => return Ok(End::Question(open)),
                    }
                }
                Event::Flood => {
                    let limit = self.options.max_output;
                    return Err(AgentError::public(format!(
                        "the coding agent wrote more than {limit} bytes"
                    )));
                }
            }
        }
    }

    async fn update(&mut self, update: SessionUpdate, prompt: &mut OpenPrompt) -> AgentResult {
        if !matches!(update, SessionUpdate::AgentThoughtChunk(_)) {
            self.flush_thought().await?;
        }
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => self.message(chunk, prompt).await,
            SessionUpdate::AgentThoughtChunk(ContentChunk {
                content: ContentBlock::Text { text }, ..
            }) if self.shows_thoughts() => {
                self.thought.push_str(&text);
                if self.thought.len() >= MAX_THOUGHT { self.flush_thought().await } else { Ok(()) }
            }
            SessionUpdate::ToolCall(call) | SessionUpdate::ToolCallUpdate(call) => {
                prompt.progress.new_paragraph = true;
                for report in prompt.progress.tool(call, &prompt.session.workspace) {
                    self.report(report).await?;
                }
                Ok(())
            }
            SessionUpdate::Plan(plan) => {
                prompt.progress.new_paragraph = true;
                self.report(report::plan(plan)).await
            }
            SessionUpdate::UsageUpdate(usage) => {
                prompt.progress.usage = Some(usage);
                Ok(())
            }
            SessionUpdate::AgentThoughtChunk(_) | SessionUpdate::Other => Ok(()),
        }
    }

    /// Adds a chunk of a message to the answer. Messages are separated by an empty line.
    async fn message(&mut self, chunk: ContentChunk, prompt: &mut OpenPrompt) -> AgentResult {
        let progress = &mut prompt.progress;
        if chunk.message_id.is_some() && progress.message_id != chunk.message_id {
            progress.new_paragraph |= progress.message_id.is_some();
            progress.message_id = chunk.message_id;
        }
        let part = match chunk.content {
            ContentBlock::Text { text } if text.is_empty() => return Ok(()),
            ContentBlock::Text { mut text } => {
                let follows_text = progress.has_output || progress.follows_text;
                if std::mem::take(&mut progress.new_paragraph) && follows_text {
                    text.insert_str(0, "\n\n");
                }
                Part::text(text)
            }
            ContentBlock::Image { data, mime_type } | ContentBlock::Audio { data, mime_type } => {
                decoded(&data)?.media_type(mime_type)
            }
            ContentBlock::ResourceLink { name, uri, mime_type, .. } => {
                let mut part = Part::url(uri).filename(name);
                part.media_type = mime_type;
                part
            }
            ContentBlock::Resource { resource } => {
                let mut part = match (resource.text, resource.blob) {
                    (Some(text), _) => Part::text(text),
                    (None, Some(blob)) => decoded(&blob)?,
                    (None, None) => Part::url(resource.uri),
                };
                part.media_type = resource.mime_type;
                part
            }
            ContentBlock::Other => return Ok(()),
        };
        progress.has_output = true;
        self.answer.push(part).await
    }

    async fn flush_thought(&mut self) -> AgentResult {
        if self.thought.is_empty() {
            return Ok(());
        }
        let thought = std::mem::take(&mut self.thought);
        // Longer thoughts come in several reports, because a report shows only the beginning of a long text.
        let mut rest = thought.as_str();
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.floor_char_boundary(MAX_THOUGHT));
            let report = Report::thinking(piece).text(piece);
            self.report(if self.options.show_thoughts { report.allowed() } else { report }).await?;
            rest = later;
        }
        Ok(())
    }

    fn shows_thoughts(&self) -> bool {
        self.options.show_thoughts || self.turn.report_options().exposure.raw_thinking
    }

    /// Reports progress: a text for people, and metadata for machines.
    async fn report(&mut self, report: Report) -> AgentResult {
        // The order of text and reports stays as it was.
        self.answer.flush().await?;
        self.turn.report(report).await
    }
}

fn decoded(data: &str) -> Result<Part, AgentError> {
    let bytes = STANDARD.decode(data).map_err(|error| {
        tracing::warn!(target: "attache::acp", %error, "a coding agent sent content that is not base64");
        AgentError::public("the coding agent sent content that cannot be read")
    })?;
    Ok(Part::raw(bytes))
}
