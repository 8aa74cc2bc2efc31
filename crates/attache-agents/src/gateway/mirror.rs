//! Repeats the events of a remote task in our own.
//!
//! The remote agent reports its task in updates and in snapshots of the whole task. Updates are repeated as they come. Of a snapshot
//! only what is new is repeated. So it does not matter how often a stream breaks, and where.

use attache_core::Turn;
use attache_protocol::{
    Content, JsonObject, Message, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};
use serde_json::json;

use super::artifacts::Artifacts;
use super::fault::Fault;
use super::fingerprint::of_status;
use super::links::Link;

/// What an event counts beside its content, in bytes, so that a flood of empty events reaches the limit, too.
const EVENT_SIZE: usize = 256;

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
    /// Whether this turn has repeated an artifact.
    has_artifacts: bool,
    bytes: usize,
    max_bytes: usize,
    /// The ids of the remote task, if callers may see them.
    shown_ids: Option<JsonObject>,
}

impl<'a> Mirror<'a> {
    pub(super) fn new(turn: &'a Turn, max_bytes: usize) -> Self {
        let before = turn.task();
        let own = before.as_ref().map(|task| task.artifacts.as_slice()).unwrap_or_default();
        Self {
            turn,
            artifacts: Artifacts::new(turn, own),
            status: before.as_ref().map(|task| of_status(&task.status)),
            state: TaskState::Unspecified,
            exists: before.is_some(),
            has_artifacts: false,
            bytes: 0,
            max_bytes,
            shown_ids: None,
        }
    }

    /// The last state of the remote task that was repeated.
    pub(super) fn state(&self) -> TaskState {
        self.state
    }

    /// Whether this turn has repeated an artifact.
    pub(super) fn has_artifacts(&self) -> bool {
        self.has_artifacts
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
        self.has_artifacts |= !update.artifact.parts.is_empty();
        self.artifacts.update(update).await
    }

    /// Repeats the update of a status.
    pub(super) async fn status_update(&mut self, update: TaskStatusUpdateEvent) -> Result<(), Fault> {
        self.status(update.status, update.metadata).await
    }

    async fn status(&mut self, status: TaskStatus, metadata: Option<JsonObject>) -> Result<(), Fault> {
        let parts = status.message.as_ref().map(|message| message.parts.as_slice()).unwrap_or_default();
        self.count(parts)?;
        let of_message = status.message.as_ref().and_then(|message| message.metadata.as_ref());
        self.count_bytes(
            of_message.into_iter().chain(&metadata).map(|metadata| metadata.as_str().len()).sum(),
        )?;
        let fingerprint = of_status(&status);
        let TaskStatus { state, message, .. } = status;
        // A state without a message and metadata that does not change says nothing new.
        let is_new = self.status != Some(fingerprint) || message.is_some() || metadata.is_some();
        self.status = Some(fingerprint);
        self.state = state;
        if is_new { self.emit(state, message.map(|message| *message), metadata).await } else { Ok(()) }
    }

    /// Repeats what is new in the whole task. The first snapshot in response to an answer can still have the question, so it may be
    /// left out.
    pub(super) async fn snapshot(&mut self, task: Task, with_status: bool) -> Result<(), Fault> {
        let ends = task.status.state.is_terminal();
        for artifact in task.artifacts {
            let Some(parts) = self.artifacts.news(&artifact) else { continue };
            self.count(&artifact.parts[parts..])?;
            self.exists = true;
            self.has_artifacts = true;
            self.artifacts.catch_up(artifact, parts, ends).await?;
        }
        if with_status && self.status != Some(of_status(&task.status)) {
            return self.status(task.status, None).await;
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

    async fn emit(
        &mut self,
        state: TaskState,
        message: Option<Message>,
        metadata: Option<JsonObject>,
    ) -> Result<(), Fault> {
        let default = match state {
            TaskState::Unspecified => return self.begin().await,
            TaskState::Submitted | TaskState::Working | TaskState::Completed => None,
            TaskState::Failed => Some("the remote agent failed and gave no reason"),
            TaskState::Rejected => Some("the remote agent rejected the task and gave no reason"),
            TaskState::Canceled => Some("the remote agent canceled the task"),
            TaskState::InputRequired => Some("the remote agent needs input"),
            TaskState::AuthRequired => Some("the remote agent needs credentials"),
        };
        let message = message
            .filter(|message| !message.parts.is_empty())
            .or_else(|| default.map(|text| Message { parts: vec![Part::text(text)], ..Message::default() }));
        let message = message.map(|message| Message { parts: self.with_ids(message.parts), ..message });
        if state == TaskState::Submitted && message.is_none() && metadata.is_none() {
            return self.begin().await;
        }
        self.exists = true;
        // Our task has been accepted already, so it does not go back to that state.
        let state = if state == TaskState::Submitted { TaskState::Working } else { state };
        Ok(self.turn.repeat_status(state, message, metadata).await?)
    }

    /// The parts, with the remote ids in the metadata of the first one if callers may see them.
    fn with_ids(&self, mut parts: Vec<Part>) -> Vec<Part> {
        if let (Some(ids), Some(first)) = (&self.shown_ids, parts.first_mut()) {
            first.metadata.get_or_insert_with(|| ids.clone());
        }
        parts
    }

    fn count(&mut self, parts: &[Part]) -> Result<(), Fault> {
        self.count_bytes(EVENT_SIZE + parts.iter().map(size).sum::<usize>())
    }

    /// Takes back bytes that are counted in another way.
    pub(super) fn uncount(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Counts bytes of the answer.
    pub(super) fn count_bytes(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.saturating_add(bytes);
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
