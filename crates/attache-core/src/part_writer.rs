//! Parts whose content is written piece by piece, and large content of events.
//!
//! Content up to the limit for inline content stays in memory and in the part. Larger content goes to the artifact store while it is
//! written, so that memory does not grow with it.

use std::path::Path;

use attache_protocol::{Content, Part};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::artifact_links::{parts_of_event, reference};
use crate::redaction::FileRedaction;
use crate::turn_state::TurnRequest;
use crate::{AgentError, AgentResult, ArtifactError, ArtifactWriter, Artifacts, ContentPlace, TaskEvent};

/// How much is read from a file or a reader at a time.
const CHUNK: usize = 64 * 1024;

/// The largest content of a part without an artifact store, since it stays in memory and in the store of tasks: 32 MiB.
const MAX_INLINE: usize = 32 * 1024 * 1024;

/// Writes the content of a file part. [`Turn::part_writer`](crate::Turn::part_writer) makes one.
///
/// ```
/// use attache_core::{AgentResult, Turn};
///
/// async fn answer(turn: Turn) -> AgentResult {
///     let mut rows = turn.part_writer("rows.csv", "text/csv");
///     for row in 0..1_000_000 {
///         rows.write(format!("{row},{}\n", row * row)).await?;
///     }
///     let part = rows.finish().await?;
///     turn.artifact("rows").part(part).await?;
///     turn.complete().await
/// }
/// ```
#[must_use = "the part is made when the writer is finished"]
pub struct PartWriter {
    artifacts: Option<Artifacts>,
    place: ContentPlace,
    written: Written,
    /// Hides secrets and paths, if the service does.
    redaction: Option<FileRedaction>,
}

enum Written {
    Inline(Vec<u8>),
    Stored(Box<dyn ArtifactWriter>),
}

impl PartWriter {
    pub(crate) fn new(
        artifacts: Option<Artifacts>,
        place: ContentPlace,
        redaction: Option<FileRedaction>,
    ) -> Self {
        Self { artifacts, place, written: Written::Inline(Vec::new()), redaction }
    }

    /// Adds bytes.
    pub async fn write(&mut self, bytes: impl Into<Bytes>) -> AgentResult {
        let bytes = bytes.into();
        let bytes = match &mut self.redaction {
            Some(redaction) => redaction.push(&bytes).into(),
            None => bytes,
        };
        self.add(bytes).await
    }

    async fn add(&mut self, bytes: Bytes) -> AgentResult {
        match &mut self.written {
            Written::Stored(writer) => writer.write(bytes).await.map_err(ArtifactError::into_agent_error)?,
            Written::Inline(inline) => match &self.artifacts {
                Some(artifacts) if is_above(artifacts, inline.len() + bytes.len()) => {
                    let begun = begin(artifacts, [std::mem::take(inline).into(), bytes]).await;
                    self.written = Written::Stored(begun.map_err(ArtifactError::into_agent_error)?);
                }
                None if inline.len() + bytes.len() > MAX_INLINE => {
                    return Err(AgentError::public(format!(
                        "the artifact is larger than {MAX_INLINE} bytes, and this server stores no larger ones"
                    )));
                }
                Some(_) | None => inline.extend_from_slice(&bytes),
            },
        }
        Ok(())
    }

    /// Adds everything that a reader has.
    pub async fn copy(&mut self, reader: impl AsyncRead + Send) -> AgentResult {
        let mut reader = std::pin::pin!(reader);
        loop {
            let mut chunk = Vec::with_capacity(CHUNK);
            if reader.read_buf(&mut chunk).await? == 0 {
                return Ok(());
            }
            self.write(chunk).await?;
        }
    }

    /// The part. Once it is in an event, clients get the content.
    pub async fn finish(mut self) -> Result<Part, AgentError> {
        if let Some(redaction) = self.redaction.take() {
            self.add(redaction.finish().into()).await?;
        }
        let Self { place, written, .. } = self;
        let (filename, media_type) = (place.filename.clone(), place.media_type.clone());
        Ok(match written {
            Written::Inline(bytes) => Part { filename, media_type, ..Part::raw(bytes) },
            Written::Stored(writer) => {
                let stored = writer.commit(place).await.map_err(ArtifactError::into_agent_error)?;
                reference(&stored, filename, media_type, None)
            }
        })
    }
}

/// Begins to write content to the store.
async fn begin(
    artifacts: &Artifacts,
    chunks: impl IntoIterator<Item = Bytes>,
) -> Result<Box<dyn ArtifactWriter>, ArtifactError> {
    let mut writer = artifacts.store.create().await?;
    for chunk in chunks {
        writer.write(chunk).await?;
    }
    Ok(writer)
}

fn is_above(artifacts: &Artifacts, length: usize) -> bool {
    u64::try_from(length).is_ok_and(|length| length > artifacts.inline_limit)
}

/// The name of a file without its folders.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Moves large content of events to the artifact store, and leaves references.
pub(crate) async fn store_large_parts(
    artifacts: &Artifacts,
    turn: &TurnRequest,
    events: &mut [TaskEvent],
) -> AgentResult {
    let is_large =
        |part: &Part| matches!(&part.content, Content::Raw(bytes) if is_above(artifacts, bytes.len()));
    for event in events {
        let has_large = match event {
            TaskEvent::Artifact(update) => update.artifact.parts.iter().any(is_large),
            TaskEvent::Status(update) => {
                update.status.message.as_ref().is_some_and(|message| message.parts.iter().any(is_large))
            }
            TaskEvent::Created(_) | TaskEvent::Message(_) => false,
        };
        if !has_large {
            continue;
        }
        let Some(parts) = parts_of_event(event) else { continue };
        for part in parts.iter_mut().filter(|part| is_large(part)) {
            let Content::Raw(bytes) = &mut part.content else { continue };
            let writer = begin(artifacts, [std::mem::take(bytes).into()]).await;
            let writer = writer.map_err(ArtifactError::into_agent_error)?;
            let (filename, media_type) = (part.filename.take(), part.media_type.take());
            let place = ContentPlace {
                owner: turn.caller.owner.clone(),
                task: turn.task_id.clone(),
                filename: filename.clone(),
                media_type: media_type.clone(),
            };
            let stored = writer.commit(place).await.map_err(ArtifactError::into_agent_error)?;
            *part = reference(&stored, filename, media_type, part.metadata.take());
        }
    }
    Ok(())
}
