//! The artifacts of a remote task, piece by piece in ours.

use std::hash::{DefaultHasher, Hash, Hasher};

use attache_core::{ArtifactStream, Turn};
use attache_protocol::{Artifact, Json, JsonObject, TaskArtifactUpdateEvent, limits};
use serde_json::{Map, Value};

use super::fault::Fault;
use super::fingerprint::of_part;
use super::mirror::Repeated;

/// How many artifacts a task may have.
const MAX_ARTIFACTS: usize = 1000;

/// The artifacts that were repeated so far.
pub(super) struct Artifacts<'a> {
    turn: &'a Turn,
    known: Vec<Known<'a>>,
    /// Members to add to the metadata of each artifact.
    metadata: Map<String, Value>,
}

/// An artifact of ours that repeats a remote one.
struct Known<'a> {
    id: String,
    /// The parts that it has.
    parts: Vec<u64>,
    /// The open end of the artifact. Without one, it can only be replaced.
    stream: Option<ArtifactStream<'a>>,
}

impl<'a> Artifacts<'a> {
    /// `own` are the artifacts of our task from earlier turns.
    pub(super) fn new(turn: &'a Turn, own: &[Artifact]) -> Self {
        let known = own.iter().map(|artifact| Known {
            id: artifact.artifact_id.clone(),
            parts: artifact.parts.iter().map(of_part).collect(),
            stream: None,
        });
        Self { turn, known: known.collect(), metadata: Map::new() }
    }

    pub(super) fn add_metadata(&mut self, members: Map<String, Value>) {
        self.metadata = members;
    }

    /// Repeats an update.
    pub(super) async fn update(&mut self, update: TaskArtifactUpdateEvent) -> Result<Repeated, Fault> {
        let TaskArtifactUpdateEvent { artifact, append, last_chunk, .. } = update;
        if artifact.parts.is_empty() {
            // It only marks the end, or says nothing at all.
            return Ok(Repeated::Yes);
        }
        let at = self.position(&artifact);
        match at.filter(|_| append) {
            Some(at) if self.known[at].stream.is_some() => self.append(at, artifact, 0, last_chunk).await?,
            Some(_) => return Ok(Repeated::NeedsSnapshot),
            None => self.replace(at, artifact, last_chunk).await?,
        }
        Ok(Repeated::Yes)
    }

    /// From which part on a remote artifact is new. Nothing, if no part is. All of it is new if its beginning has changed.
    pub(super) fn news(&self, artifact: &Artifact) -> Option<usize> {
        let Some(at) = self.position(artifact) else {
            return (!artifact.parts.is_empty()).then_some(0);
        };
        let known = &self.known[at].parts;
        let is_longer = artifact.parts.len() >= known.len();
        let same = is_longer && artifact.parts.iter().zip(known).all(|(part, known)| of_part(part) == *known);
        match same {
            true if artifact.parts.len() == known.len() => None,
            true if self.known[at].stream.is_some() => Some(known.len()),
            true | false => (!artifact.parts.is_empty()).then_some(0),
        }
    }

    /// Repeats a remote artifact from its part at `from` on.
    pub(super) async fn catch_up(
        &mut self,
        artifact: Artifact,
        from: usize,
        ends: bool,
    ) -> Result<(), Fault> {
        match self.position(&artifact) {
            Some(at) if from > 0 => self.append(at, artifact, from, ends).await,
            at => self.replace(at, artifact, ends).await,
        }
    }

    /// The artifact of ours that repeats a remote one.
    fn position(&self, artifact: &Artifact) -> Option<usize> {
        let id = own_id(artifact);
        self.known.iter().position(|known| known.id == id)
    }

    /// Adds parts to an artifact with an open end.
    async fn append(&mut self, at: usize, artifact: Artifact, from: usize, last: bool) -> Result<(), Fault> {
        let known = &mut self.known[at];
        let Some(mut stream) = known.stream.take() else { return Ok(()) };
        let mut parts = artifact.parts.into_iter().skip(from).peekable();
        while let Some(part) = parts.next() {
            known.parts.push(of_part(&part));
            if last && parts.peek().is_none() {
                return Ok(stream.last(part).await?);
            }
            stream.chunk(part).await?;
        }
        known.stream = Some(stream);
        Ok(())
    }

    /// Sends an artifact from its beginning on.
    async fn replace(&mut self, at: Option<usize>, artifact: Artifact, last: bool) -> Result<(), Fault> {
        let at = match at {
            Some(at) => at,
            None if self.known.len() >= MAX_ARTIFACTS => {
                return Err(Fault::Invalid("it has too many artifacts"));
            }
            None => {
                self.known.push(Known { id: own_id(&artifact), parts: Vec::new(), stream: None });
                self.known.len() - 1
            }
        };
        let own = self.own(&artifact)?;
        let mut parts = artifact.parts;
        let known = &mut self.known[at];
        known.parts = parts.iter().map(of_part).collect();
        known.stream = None;
        let builder = self.turn.repeat_artifact(own);
        if last {
            return Ok(builder.parts(parts).await?);
        }
        let Some(end) = parts.pop() else { return Ok(()) };
        let mut stream = builder.parts(parts).stream();
        stream.chunk(end).await?;
        known.stream = Some(stream);
        Ok(())
    }

    /// A remote artifact as ours, without its parts: with an id and texts that can be stored, and with our members in its metadata.
    fn own(&self, artifact: &Artifact) -> Result<Artifact, Fault> {
        let metadata = match (&artifact.metadata, self.metadata.is_empty()) {
            (None, true) => None,
            (metadata, _) => {
                let metadata = with_members(metadata.as_ref(), &self.metadata);
                Some(metadata.map_err(|_| Fault::Invalid("the metadata of an artifact is not an object"))?)
            }
        };
        Ok(Artifact {
            artifact_id: own_id(artifact),
            name: artifact.name.as_deref().map(|name| cut(name, limits::ARTIFACT_NAME)),
            description: artifact.description.as_deref().map(|text| cut(text, limits::ARTIFACT_DESCRIPTION)),
            parts: Vec::new(),
            metadata,
            extensions: artifact.extensions.clone(),
        })
    }
}

/// The id of our artifact: that of the remote one, or one made from it if it cannot be stored. Some agents give only a name.
fn own_id(artifact: &Artifact) -> String {
    let id = match artifact.artifact_id.as_str() {
        "" => artifact.name.as_deref().filter(|name| !name.is_empty()).unwrap_or("artifact"),
        id => id,
    };
    if id.len() <= limits::ARTIFACT_ID && !id.contains(char::is_control) {
        return id.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    format!("artifact-{:016x}", hasher.finish())
}

/// A text with at most `limit` bytes.
fn cut(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

/// The metadata with further members.
fn with_members(
    metadata: Option<&JsonObject>,
    more: &Map<String, Value>,
) -> Result<JsonObject, serde_json::Error> {
    let mut members: std::collections::BTreeMap<String, Json> = match metadata {
        Some(metadata) => metadata.read()?,
        None => Default::default(),
    };
    for (key, value) in more {
        members.insert(key.clone(), Json::new(value)?);
    }
    JsonObject::new(&members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(id: &str, name: Option<&str>) -> Artifact {
        Artifact { artifact_id: id.to_owned(), name: name.map(str::to_owned), ..Artifact::default() }
    }

    #[test]
    fn an_id_is_kept_unless_it_is_missing_or_cannot_be_stored() {
        assert_eq!(own_id(&artifact("a-1", Some("page"))), "a-1");
        assert_eq!(own_id(&artifact("", Some("page"))), "page");
        assert_eq!(own_id(&artifact("", None)), "artifact");
        let (long, longer) = ("x".repeat(limits::ARTIFACT_ID + 1), "x".repeat(limits::ARTIFACT_ID + 2));
        let ids = [long.as_str(), &longer, "a\nb"].map(|id| own_id(&artifact(id, None)));
        assert!(ids.iter().all(|id| id.starts_with("artifact-") && id.len() == 25), "{ids:?}");
        assert!(ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("häuser", 2), "h");
        assert_eq!(cut("häuser", 3), "hä");
        assert_eq!(cut("ab", 3), "ab");
    }
}
