//! The artifacts of a remote task, piece by piece in ours.

use attache_core::{ArtifactBuilder, ArtifactStream, Turn};
use attache_protocol::{Artifact, Json, JsonObject, TaskArtifactUpdateEvent, limits};
use serde_json::{Map, Value};

use super::fault::Fault;
use super::fingerprint::of_part;
use super::links::Link;
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
    /// The id of the remote artifact. A turn that runs again does not know it, and finds the artifact by its name.
    id: Option<String>,
    name: String,
    /// The parts that it has.
    parts: Vec<u64>,
    /// The open end of the artifact. Without one, it can only be replaced.
    stream: Option<ArtifactStream<'a>>,
}

impl<'a> Artifacts<'a> {
    /// `own` are the artifacts of our task from earlier turns.
    pub(super) fn new(turn: &'a Turn, own: &[Artifact], link: &Link) -> Self {
        let known = own.iter().map(|artifact| {
            let name = &artifact.artifact_id;
            let link = link.artifacts.iter().find(|(_, ours)| ours == name);
            Known {
                id: link.map(|(id, _)| id.clone()),
                name: name.clone(),
                parts: artifact.parts.iter().map(of_part).collect(),
                stream: None,
            }
        });
        Self { turn, known: known.collect(), metadata: Map::new() }
    }

    pub(super) fn add_metadata(&mut self, members: Map<String, Value>) {
        self.metadata = members;
    }

    /// The names of our artifacts, by the ids of the remote ones.
    pub(super) fn names(&self) -> Vec<(String, String)> {
        let names = self.known.iter().filter_map(|known| Some((known.id.clone()?, known.name.clone())));
        names.collect()
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
    pub(super) fn news(&mut self, artifact: &Artifact) -> Option<usize> {
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
    fn position(&mut self, artifact: &Artifact) -> Option<usize> {
        let id = remote_id(artifact);
        if let Some(at) = self.known.iter().position(|known| known.id.as_deref() == Some(id)) {
            return Some(at);
        }
        let name = self.new_name(artifact);
        let at = self.known.iter().position(|known| known.name == name)?;
        self.known[at].id = Some(id.to_owned());
        Some(at)
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
                let (id, name) = (Some(remote_id(&artifact).to_owned()), self.new_name(&artifact));
                self.known.push(Known { id, name, parts: Vec::new(), stream: None });
                self.known.len() - 1
            }
        };
        let builder = self.builder(&self.known[at].name, &artifact)?;
        let known = &mut self.known[at];
        known.parts = artifact.parts.iter().map(of_part).collect();
        known.stream = None;
        let mut parts = artifact.parts;
        if last {
            return Ok(builder.parts(parts).await?);
        }
        let Some(end) = parts.pop() else { return Ok(()) };
        let mut stream = builder.parts(parts).stream();
        stream.chunk(end).await?;
        known.stream = Some(stream);
        Ok(())
    }

    fn builder(&self, name: &str, artifact: &Artifact) -> Result<ArtifactBuilder<'a>, Fault> {
        let mut builder = self.turn.artifact(name);
        if let Some(description) = &artifact.description {
            builder = builder.description(description);
        }
        if artifact.metadata.is_none() && self.metadata.is_empty() {
            return Ok(builder);
        }
        let metadata = with_members(artifact.metadata.as_ref(), &self.metadata);
        Ok(builder
            .metadata(metadata.map_err(|_| Fault::Invalid("the metadata of an artifact is not an object"))?))
    }

    /// The name of an artifact of ours: that of the remote one, with a number if another remote artifact has it.
    fn new_name(&self, artifact: &Artifact) -> String {
        let name = artifact.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(remote_id(artifact));
        let mut wanted: String = name.chars().filter(|it| !it.is_control()).collect();
        // A number must fit behind it.
        wanted.truncate(wanted.floor_char_boundary(limits::ARTIFACT_ID - 16));
        if wanted.is_empty() {
            wanted.push_str("artifact");
        }
        let is_taken = |name: &str| self.known.iter().any(|known| known.name == name && known.id.is_some());
        let numbered = (2..).map(|number| format!("{wanted} {number}"));
        std::iter::once(wanted.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or(wanted)
    }
}

/// The id of a remote artifact. Some agents give only a name.
fn remote_id(artifact: &Artifact) -> &str {
    match artifact.artifact_id.as_str() {
        "" => artifact.name.as_deref().unwrap_or_default(),
        id => id,
    }
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
