//! Artifacts: the results of an agent.

use std::future::IntoFuture;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use attache_protocol::{Artifact, JsonObject, Part, TaskArtifactUpdateEvent};
use serde::Serialize;
use tokio::io::AsyncRead;

use crate::part_writer::name_of;
use crate::turn::Emitted;
use crate::{AgentError, AgentResult, BoxFuture, TaskEvent, Turn};

/// Builds an artifact. Awaiting the builder adds the artifact to the task.
///
/// It replaces an earlier artifact of the same name.
#[must_use = "an artifact is added to the task when the builder is awaited"]
pub struct ArtifactBuilder<'a> {
    turn: &'a Turn,
    artifact: Artifact,
    sources: Vec<Source<'a>>,
}

/// Content that is read when the artifact is sent.
struct Source<'a> {
    /// The number of parts before this one.
    position: usize,
    filename: String,
    media_type: String,
    kind: SourceKind<'a>,
}

enum SourceKind<'a> {
    Path(PathBuf),
    Reader(Pin<Box<dyn AsyncRead + Send + 'a>>),
}

impl<'a> ArtifactBuilder<'a> {
    pub(crate) fn new(turn: &'a Turn, name: String) -> Self {
        Self {
            turn,
            artifact: Artifact { artifact_id: name.clone(), name: Some(name), ..Artifact::default() },
            sources: Vec::new(),
        }
    }

    pub(crate) fn from_whole(turn: &'a Turn, artifact: Artifact) -> Self {
        Self { turn, artifact, sources: Vec::new() }
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

    /// Adds the file at a path. It is read when the artifact is sent, and large files are not held in memory: see
    /// [`Turn::part_writer`]. The artifact fails if the file cannot be read.
    pub fn path(self, path: impl Into<PathBuf>, media_type: impl Into<String>) -> Self {
        let path = path.into();
        let filename = name_of(&path);
        self.source(filename, media_type.into(), SourceKind::Path(path))
    }

    /// Adds a file whose content comes from a reader, which is read when the artifact is sent. Large content is not held in memory: see
    /// [`Turn::part_writer`].
    pub fn reader(
        self,
        name: impl Into<String>,
        media_type: impl Into<String>,
        reader: impl AsyncRead + Send + 'a,
    ) -> Self {
        self.source(name.into(), media_type.into(), SourceKind::Reader(Box::pin(reader)))
    }

    fn source(mut self, filename: String, media_type: String, kind: SourceKind<'a>) -> Self {
        let position = self.artifact.parts.len();
        self.sources.push(Source { position, filename, media_type, kind });
        self
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
        ArtifactStream { turn: self.turn, next: self.artifact, sources: self.sources, started: false }
    }
}

impl<'a> IntoFuture for ArtifactBuilder<'a> {
    type Output = AgentResult;
    type IntoFuture = EmittedArtifact<'a>;

    fn into_future(self) -> EmittedArtifact<'a> {
        let Self { turn, mut artifact, sources } = self;
        if sources.is_empty() {
            return EmittedArtifact(Emission::Added(emit(turn, artifact, false, true)));
        }
        EmittedArtifact(Emission::Reading(Box::pin(async move {
            read_sources(turn, &mut artifact, sources).await?;
            emit(turn, artifact, false, true).await
        })))
    }
}

/// The result of sending an artifact. The artifact is added before this future is polled, unless content has to be read first.
pub struct EmittedArtifact<'a>(Emission<'a>);

enum Emission<'a> {
    Added(Emitted),
    Reading(BoxFuture<'a, AgentResult>),
}

impl Future for EmittedArtifact<'_> {
    type Output = AgentResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AgentResult> {
        match &mut self.0 {
            Emission::Added(emitted) => Pin::new(emitted).poll(cx),
            Emission::Reading(reading) => reading.as_mut().poll(cx),
        }
    }
}

/// Reads the content of sources, and adds the parts at their positions.
async fn read_sources(turn: &Turn, artifact: &mut Artifact, sources: Vec<Source<'_>>) -> AgentResult {
    for (added, source) in sources.into_iter().enumerate() {
        let mut writer = turn.part_writer(source.filename, source.media_type);
        match source.kind {
            SourceKind::Reader(reader) => writer.copy(reader).await?,
            SourceKind::Path(path) => {
                let opened = tokio::fs::File::open(&path).await;
                let failed = |error| format!("the file `{}` could not be read: {error}", path.display());
                writer.copy(opened.map_err(failed)?).await?;
            }
        }
        artifact.parts.insert(source.position + added, writer.finish().await?);
    }
    Ok(())
}

/// Sends an artifact in chunks. Readers of streams receive each chunk.
pub struct ArtifactStream<'a> {
    turn: &'a Turn,
    next: Artifact,
    sources: Vec<Source<'a>>,
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
        read_sources(self.turn, &mut self.next, std::mem::take(&mut self.sources)).await?;
        self.next.parts.push(part);
        let id = self.next.artifact_id.clone();
        let chunk = std::mem::replace(&mut self.next, Artifact { artifact_id: id, ..Artifact::default() });
        let append = std::mem::replace(&mut self.started, true);
        emit(self.turn, chunk, append, last).await
    }
}

pub(crate) fn emit(turn: &Turn, artifact: Artifact, append: bool, last_chunk: bool) -> Emitted {
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
