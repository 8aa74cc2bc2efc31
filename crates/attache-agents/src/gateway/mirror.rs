//! Repeats the events of a remote task in our own.
//!
//! The remote agent reports its task in updates and in snapshots of the whole task. Updates are repeated as they come. Of a snapshot
//! only what is new is repeated. So it does not matter how often a stream breaks, and where.

use attache_core::{AgentResult, Turn};
use attache_protocol::{
    Content, JsonObject, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
};
use serde_json::json;

use super::artifacts::Artifacts;
use super::fault::Fault;
use super::fingerprint::of_status;
use super::links::Link;

/// What an event counts beside its content, in bytes, so that a flood of empty events reaches the limit, too.
const EVENT_SIZE: usize = 256;

/// The artifact for parts of a status message that the message itself cannot have.
const ATTACHMENTS: &str = "attachments";

/// Whether an update could be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Repeated {
    Yes,
    /// The update continues something that this turn has not seen. The whole task must be read.
    NeedsSnapshot,
}

/// Our task, as far as it repeats the remote one.
pub(super) struct Mirror<'a> {
    turn: &'a Turn,
    artifacts: Artifacts<'a>,
    /// The last status that was repeated.
    status: Option<u64>,
    state: TaskState,
    /// Whether our task exists.
    exists: bool,
    bytes: usize,
    max_bytes: usize,
    /// The ids of the remote task, if callers may see them.
    shown_ids: Option<JsonObject>,
}

impl<'a> Mirror<'a> {
    pub(super) fn new(turn: &'a Turn, link: &Link, max_bytes: usize) -> Self {
        let before = turn.task();
        let own = before.as_ref().map(|task| task.artifacts.as_slice()).unwrap_or_default();
        Self {
            turn,
            artifacts: Artifacts::new(turn, own, link),
            status: before.as_ref().map(|task| of_status(&task.status)),
            state: TaskState::Unspecified,
            exists: before.is_some(),
            bytes: 0,
            max_bytes,
            shown_ids: None,
        }
    }

    /// The last state of the remote task that was repeated.
    pub(super) fn state(&self) -> TaskState {
        self.state
    }

    /// The names of our artifacts, by the ids of the remote ones.
    pub(super) fn artifact_names(&self) -> Vec<(String, String)> {
        self.artifacts.names()
    }

    /// Shows the ids of the remote task to callers.
    pub(super) fn show_ids(&mut self, link: &Link) {
        let mut ids = serde_json::Map::new();
        ids.extend(link.task.as_ref().map(|id| ("attache.remoteTaskId".to_owned(), json!(id.as_str()))));
        ids.extend(
            link.context.as_ref().map(|id| ("attache.remoteContextId".to_owned(), json!(id.as_str()))),
        );
        self.shown_ids = JsonObject::new(&ids).ok();
        self.artifacts.add_metadata(ids);
    }

    /// Creates our task, so that it survives a crash from now on.
    pub(super) async fn begin(&mut self) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.exists, true) {
            // The same status of the remote agent is then nothing new.
            self.status = Some(of_status(&TaskStatus { state: TaskState::Working, ..TaskStatus::default() }));
            self.turn.working("").await?;
        }
        Ok(())
    }

    /// Repeats the update of an artifact.
    pub(super) async fn artifact(&mut self, update: TaskArtifactUpdateEvent) -> Result<Repeated, Fault> {
        self.count(&update.artifact.parts)?;
        self.exists = true;
        self.artifacts.update(update).await
    }

    /// Repeats a status.
    pub(super) async fn status(&mut self, status: TaskStatus) -> Result<(), Fault> {
        let parts = status.message.as_ref().map(|message| message.parts.as_slice()).unwrap_or_default();
        self.count(parts)?;
        let fingerprint = of_status(&status);
        let TaskStatus { state, message, .. } = status;
        // A state without a message that does not change says nothing new.
        let is_new = self.status != Some(fingerprint) || message.is_some();
        self.status = Some(fingerprint);
        self.state = state;
        if is_new { self.emit(state, message.map(|message| message.parts)).await } else { Ok(()) }
    }

    /// Repeats what is new in the whole task. The first snapshot in response to an answer can still have the question, so it may be
    /// left out.
    pub(super) async fn snapshot(&mut self, task: Task, with_status: bool) -> Result<(), Fault> {
        let ends = task.status.state.is_terminal();
        for artifact in task.artifacts {
            let Some(parts) = self.artifacts.news(&artifact) else { continue };
            self.count(&artifact.parts[parts..])?;
            self.exists = true;
            self.artifacts.catch_up(artifact, parts, ends).await?;
        }
        if with_status && self.status != Some(of_status(&task.status)) {
            return self.status(task.status).await;
        }
        if with_status {
            self.state = task.status.state;
        }
        Ok(())
    }

    /// Repeats a direct message. It ends our task, if there is one.
    pub(super) async fn reply(&mut self, message: Message) -> Result<(), Fault> {
        self.count(&message.parts)?;
        self.state = TaskState::Completed;
        Ok(self.turn.reply_with(self.with_ids(message.parts)).await?)
    }

    async fn emit(&mut self, state: TaskState, parts: Option<Vec<Part>>) -> Result<(), Fault> {
        let turn = self.turn;
        let parts = parts.filter(|parts| !parts.is_empty());
        let emitted: AgentResult = match state {
            TaskState::Unspecified | TaskState::Submitted => return self.begin().await,
            TaskState::Working => {
                self.exists = true;
                turn.working(parts.map(|parts| as_text(&parts)).unwrap_or_default()).await
            }
            TaskState::Completed => {
                self.begin().await?;
                match parts {
                    Some(parts) => turn.reply_with(self.with_ids(parts)).await,
                    None => turn.complete().await,
                }
            }
            TaskState::Failed => {
                let part = self.one_part(parts, "the remote agent failed and gave no reason").await?;
                turn.fail(part).await
            }
            TaskState::Rejected => {
                let part =
                    self.one_part(parts, "the remote agent rejected the task and gave no reason").await?;
                turn.reject(part).await
            }
            // Only the caller can cancel our task. Here the remote agent did it.
            TaskState::Canceled => {
                let text = match parts {
                    Some(parts) => format!("the remote agent canceled the task: {}", as_text(&parts)),
                    None => "the remote agent canceled the task".to_owned(),
                };
                turn.fail(text).await
            }
            TaskState::InputRequired => {
                let part = self.one_part(parts, "the remote agent needs input").await?;
                turn.ask(part).await
            }
            TaskState::AuthRequired => {
                let part = self.one_part(parts, "the remote agent needs credentials").await?;
                turn.require_auth(part).await
            }
        };
        self.exists = true;
        Ok(emitted?)
    }

    /// The message of a status as one part. Texts are joined. Parts that cannot be joined with the text become an artifact, so that
    /// nothing is lost.
    async fn one_part(&mut self, parts: Option<Vec<Part>>, default: &str) -> Result<Part, Fault> {
        let mut parts = self.with_ids(parts.unwrap_or_else(|| vec![Part::text(default)]));
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return Ok(only);
        }
        let (texts, others): (Vec<Part>, Vec<Part>) =
            parts.into_iter().partition(|part| part.as_text().is_some());
        if !others.is_empty() {
            self.turn.artifact(ATTACHMENTS).parts(others).await?;
        }
        let metadata = texts.first().and_then(|part| part.metadata.clone());
        let text = if texts.is_empty() { default.to_owned() } else { as_text(&texts) };
        Ok(Part { metadata, ..Part::text(text) })
    }

    /// The parts, with the remote ids in the metadata of the first one if callers may see them.
    fn with_ids(&self, mut parts: Vec<Part>) -> Vec<Part> {
        if let (Some(ids), Some(first)) = (&self.shown_ids, parts.first_mut()) {
            first.metadata.get_or_insert_with(|| ids.clone());
        }
        parts
    }

    fn count(&mut self, parts: &[Part]) -> Result<(), Fault> {
        self.bytes += EVENT_SIZE + parts.iter().map(size).sum::<usize>();
        if self.bytes > self.max_bytes { Err(Fault::TooLarge(self.max_bytes)) } else { Ok(()) }
    }
}

/// The approximate size of a part in memory, in bytes.
fn size(part: &Part) -> usize {
    let content = match &part.content {
        Content::Text(text) | Content::Url(text) => text.len(),
        Content::Raw(bytes) => bytes.len(),
        Content::Data(data) => data.as_str().len(),
    };
    size_of::<Part>() + content + part.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len())
}

/// Parts as text: data as JSON, a file by its name.
fn as_text(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match &part.content {
        Content::Text(text) | Content::Url(text) => text.clone(),
        Content::Data(data) => data.as_str().to_owned(),
        Content::Raw(bytes) => {
            let name = part.filename.as_deref().unwrap_or("without a name");
            format!("(file {name}, {} bytes)", bytes.len())
        }
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_progress_message_are_readable_as_text() {
        let parts = [
            Part::text("half"),
            Part::data(&json!({"done": 5})).unwrap(),
            Part::url("https://a.example/x"),
            Part::raw(vec![0; 3]).filename("a.png"),
        ];
        assert_eq!(as_text(&parts), "half\n{\"done\":5}\nhttps://a.example/x\n(file a.png, 3 bytes)");
    }
}
