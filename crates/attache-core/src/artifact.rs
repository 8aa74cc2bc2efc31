//! Artifacts: the results of an agent.

use std::future::IntoFuture;
use std::sync::Arc;

use attache_protocol::{Artifact, JsonObject, Part, TaskArtifactUpdateEvent};
use serde::Serialize;

use crate::turn::Emitted;
use crate::{AgentError, AgentResult, TaskEvent, Turn};

/// Builds an artifact. Awaiting the builder adds the artifact to the task.
///
/// It replaces an earlier artifact of the same name.
#[must_use = "an artifact is added to the task when the builder is awaited"]
pub struct ArtifactBuilder<'a> {
    turn: &'a Turn,
    artifact: Artifact,
}

impl<'a> ArtifactBuilder<'a> {
    pub(crate) fn new(turn: &'a Turn, name: String) -> Self {
        Self {
            turn,
            artifact: Artifact { artifact_id: name.clone(), name: Some(name), ..Artifact::default() },
        }
    }

    pub(crate) fn from_whole(turn: &'a Turn, artifact: Artifact) -> Self {
        Self { turn, artifact }
    }

    /// Adds text.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.part(Part::text(text))
    }

    /// Adds structured data. Fails if `value` cannot be serialized as JSON.
    pub fn data<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, AgentError> {
        Ok(self.part(Part::data(value)?.media_type("application/json")))
    }

    /// Adds a file.
    pub fn file(
        self,
        name: impl Into<String>,
        media_type: impl Into<String>,
        bytes: impl Into<Vec<u8>>,
    ) -> Self {
        self.part(Part::raw(bytes).filename(name).media_type(media_type))
    }

    /// Adds a part.
    pub fn part(mut self, part: impl Into<Part>) -> Self {
        self.artifact.parts.push(part.into());
        self
    }

    /// Adds parts.
    pub fn parts(mut self, parts: impl IntoIterator<Item = Part>) -> Self {
        self.artifact.parts.extend(parts);
        self
    }

    /// Sets the description for people.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.artifact.description = Some(text.into());
        self
    }

    /// Sets the metadata.
    pub fn metadata(mut self, metadata: JsonObject) -> Self {
        self.artifact.metadata = Some(metadata);
        self
    }

    /// Sends the artifact in chunks instead. Parts added so far belong to the first chunk.
    pub fn stream(self) -> ArtifactStream<'a> {
        ArtifactStream { turn: self.turn, next: self.artifact, started: false }
    }
}

impl IntoFuture for ArtifactBuilder<'_> {
    type Output = AgentResult;
    type IntoFuture = Emitted;

    fn into_future(self) -> Emitted {
        emit(self.turn, self.artifact, false, true)
    }
}

/// Sends an artifact in chunks. Readers of streams receive each chunk.
pub struct ArtifactStream<'a> {
    turn: &'a Turn,
    next: Artifact,
    started: bool,
}

impl ArtifactStream<'_> {
    /// Sends a chunk.
    pub async fn chunk(&mut self, part: impl Into<Part>) -> AgentResult {
        self.send(part.into(), false).await
    }

    /// Sends the last chunk.
    pub async fn last(mut self, part: impl Into<Part>) -> AgentResult {
        self.send(part.into(), true).await
    }

    async fn send(&mut self, part: Part, last: bool) -> AgentResult {
        self.next.parts.push(part);
        let id = self.next.artifact_id.clone();
        let chunk = std::mem::replace(&mut self.next, Artifact { artifact_id: id, ..Artifact::default() });
        let append = std::mem::replace(&mut self.started, true);
        emit(self.turn, chunk, append, last).await
    }
}

fn emit(turn: &Turn, artifact: Artifact, append: bool, last_chunk: bool) -> Emitted {
    if artifact.parts.is_empty() {
        let text = format!("the artifact `{}` has no parts", artifact.artifact_id);
        return Emitted::new(Err(AgentError::from(text)));
    }
    let update = TaskArtifactUpdateEvent {
        task_id: turn.task_id().clone(),
        context_id: turn.context_id().clone(),
        artifact,
        append,
        last_chunk,
        ..TaskArtifactUpdateEvent::default()
    };
    turn.emit(TaskEvent::Artifact(Arc::new(update)))
}
