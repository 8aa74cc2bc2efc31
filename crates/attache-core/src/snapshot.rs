//! A task at one point of its log, in the form in which it is cheapest to hand out.
//!
//! A task that has ended never changes, so it is kept as the JSON it will be read as, with marks where the artifacts and
//! each message of the history begin. Reading it copies bytes; nothing is parsed or built.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use attache_protocol::{Artifact, Content, Message, Part, Task, TaskState};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::Seq;
use crate::event::write_json;

/// How much of a task to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// How many messages of history at most, latest last; all if not given.
    pub history: Option<usize>,
    /// Whether to show the artifacts.
    pub artifacts: bool,
    /// Whether to show the generation.
    pub generation: bool,
}

impl Default for View {
    fn default() -> Self {
        Self::FULL
    }
}

impl View {
    /// Everything, as protocol 1.0 knows it.
    pub const FULL: Self = Self { history: None, artifacts: true, generation: false };
}

/// A task at one point of its log.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The last event that the task includes.
    pub seq: Seq,
    /// Where the task stands.
    pub state: TaskState,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    Live(Arc<Task>),
    /// With the value, while it is still at hand.
    Ended(Arc<Ended>, Option<Arc<Task>>),
}

impl Snapshot {
    /// A snapshot of a task that may still change.
    pub fn live(seq: Seq, task: Task) -> Self {
        Self { seq, state: task.status.state, body: Body::Live(Arc::new(task)) }
    }

    /// A snapshot of a task that has ended.
    pub fn ended(seq: Seq, state: TaskState, ended: Arc<Ended>) -> Self {
        Self { seq, state, body: Body::Ended(ended, None) }
    }

    /// A snapshot of a task at the moment when it ends, and its final form. Who asks this snapshot for the value need not have it
    /// parsed.
    pub fn ending(seq: Seq, task: Task) -> (Self, Arc<Ended>) {
        let (state, task) = (task.status.state, Arc::new(task));
        let ended = Arc::new(Ended::new(task.clone()));
        (Self { seq, state, body: Body::Ended(ended.clone(), Some(task)) }, ended)
    }

    /// The whole task, as a value.
    pub fn task(&self) -> Cow<'_, Task> {
        match &self.body {
            Body::Live(task) | Body::Ended(_, Some(task)) => Cow::Borrowed(task),
            Body::Ended(ended, None) => ended.task(),
        }
    }

    /// The task as a value, with only what `view` shows.
    pub fn viewed(&self, view: View) -> Cow<'_, Task> {
        let task = self.task();
        let generation = view.generation.then_some(self.seq.0);
        let whole = view.artifacts && view.history.is_none_or(|limit| limit >= task.history.len());
        if whole && task.generation == generation {
            return task;
        }
        let mut task = task.into_owned();
        if !view.artifacts {
            task.artifacts = Vec::new();
        }
        if let Some(limit) = view.history {
            task.history.drain(..task.history.len().saturating_sub(limit));
        }
        task.generation = generation;
        Cow::Owned(task)
    }

    /// About how many bytes [`write`](Self::write) writes, where that is known without writing; else nothing.
    pub fn size_hint(&self, view: View) -> usize {
        match &self.body {
            Body::Ended(ended, _) if let Form::Json(marked) = &ended.0 => {
                let hidden = if view.artifacts { 0 } else { marked.history - marked.artifacts };
                marked.json.len() - hidden as usize
            }
            Body::Live(_) | Body::Ended(..) => 0,
        }
    }

    /// Writes the task as JSON with what `view` shows.
    pub fn write(&self, view: View, out: &mut Vec<u8>) {
        let value = match &self.body {
            Body::Live(task) => &**task,
            Body::Ended(ended, _) => match &ended.0 {
                Form::Large(task) => &**task,
                Form::Json(marked) => {
                    let start = out.len();
                    marked.write(view, out);
                    if view.generation {
                        let member = format!("\"generation\":\"{}\",", self.seq);
                        out.splice(start + 1..start + 1, member.into_bytes());
                    }
                    return;
                }
            },
        };
        if view == View::FULL {
            out.reserve(weight(value) + 512);
            write_json(out, value);
        } else {
            write_json(out, &*self.viewed(view));
        }
    }
}

/// A task that has ended: its JSON, or the value itself where that is so large that a second copy would hurt.
#[derive(Debug)]
pub struct Ended(Form);

#[derive(Debug)]
enum Form {
    Json(Marked),
    Large(Arc<Task>),
}

/// A task that has ended, in the pieces that stores keep, so that what is not asked for need not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndedPieces {
    /// Everything but artifacts and history, without the last brace.
    pub head: Vec<u8>,
    /// `,"artifacts":[…]`, or nothing.
    pub artifacts: Vec<u8>,
    /// `,"history":[…]`, or nothing.
    pub history: Vec<u8>,
    /// Where in `history` each message begins.
    pub messages: Vec<u32>,
}

/// From how much content on a task is kept as a value. What its parts hold is then shared with whoever else holds it.
const LARGE: usize = 32 * 1024;

impl Ended {
    /// The final form of a task.
    pub fn new(task: impl Into<Arc<Task>>) -> Self {
        let task = task.into();
        let large = weight(&task) >= LARGE;
        Self(if large { Form::Large(task) } else { Form::Json(Marked::new(&task)) })
    }

    /// The pieces in which to keep it.
    pub fn to_pieces(&self) -> EndedPieces {
        match &self.0 {
            Form::Json(marked) => marked.to_pieces(),
            Form::Large(task) => Marked::new(task).to_pieces(),
        }
    }

    /// Puts the pieces together again. Those that will not be shown may be missing.
    ///
    /// The pieces are checked: a file can be damaged, and what is made of them goes to callers as it is.
    pub fn from_pieces(pieces: EndedPieces) -> Result<Self, serde_json::Error> {
        let EndedPieces { head: mut json, artifacts, history, messages } = pieces;
        json.reserve_exact(artifacts.len() + history.len() + 1);
        json.push(b'}');
        serde_json::from_slice::<Task>(&json)?;
        json.pop();
        if !artifacts.is_empty() {
            serde_json::from_slice::<Vec<Artifact>>(member(&artifacts, ARTIFACTS)?)?;
        }
        if !history.is_empty() || !messages.is_empty() {
            check_history(&history, &messages)?;
        }
        let artifacts_at = json.len() as u32;
        json.extend_from_slice(&artifacts);
        let history_at = json.len() as u32;
        json.extend_from_slice(&history);
        json.push(b'}');
        let messages = messages.into_iter().map(|at| at + history_at).collect();
        let marked = Marked { json: json.into(), artifacts: artifacts_at, history: history_at, messages };
        Ok(Self(Form::Json(marked)))
    }

    fn task(&self) -> Cow<'_, Task> {
        match &self.0 {
            Form::Json(marked) => Cow::Owned(marked.task()),
            Form::Large(task) => Cow::Borrowed(task),
        }
    }
}

/// How the piece with the artifacts begins.
const ARTIFACTS: &[u8] = b",\"artifacts\":";

/// How the piece with the history begins.
const HISTORY: &[u8] = b",\"history\":";

/// The value of a piece that is one member of an object.
fn member<'a>(piece: &'a [u8], name: &[u8]) -> Result<&'a [u8], serde_json::Error> {
    piece.strip_prefix(name).ok_or_else(|| serde::de::Error::custom("a piece begins with the wrong name"))
}

/// Whether the history is an array of messages, each of which begins where a mark says.
fn check_history(history: &[u8], marks: &[u32]) -> Result<(), serde_json::Error> {
    let messages: Vec<&RawValue> = serde_json::from_slice(member(history, HISTORY)?)?;
    let starts = messages.iter().map(|message| message.get().as_ptr().addr() - history.as_ptr().addr());
    if !starts.eq(marks.iter().map(|mark| *mark as usize)) {
        return Err(serde::de::Error::custom("the messages of the history are not where they should be"));
    }
    messages.into_iter().try_for_each(|message| serde_json::from_str::<Message>(message.get()).map(drop))
}

/// About how many bytes the content of a task takes.
fn weight(task: &Task) -> usize {
    let parts = |parts: &[Part]| -> usize {
        let sizes = parts.iter().map(|part| match &part.content {
            Content::Text(text) | Content::Url(text) => text.len(),
            Content::Raw(bytes) => bytes.len(),
            Content::Data(data) => data.as_str().len(),
        });
        sizes.sum()
    };
    let artifacts: usize = task.artifacts.iter().map(|artifact| parts(&artifact.parts)).sum();
    let history: usize = task.history.iter().map(|message| parts(&message.parts)).sum();
    artifacts + history
}

/// A task as JSON with marks.
///
/// The members stand in the order: everything else, `artifacts`, `history`. Either of the last two may be missing.
#[derive(Debug)]
pub(crate) struct Marked {
    json: Box<[u8]>,
    /// Where `,"artifacts":[…]` begins; it ends where the history begins.
    artifacts: u32,
    /// Where `,"history":[…]` begins; it ends before the last brace.
    history: u32,
    /// Where each message of the history begins. Most histories are short.
    messages: SmallVec<[u32; 4]>,
}

impl Marked {
    fn new(task: &Task) -> Self {
        thread_local! {
            /// Where tasks are written before they get a place of exactly their size.
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        SCRATCH.with_borrow_mut(|json| {
            json.clear();
            Self::write_into(json, task)
        })
    }

    fn write_into(json: &mut Vec<u8>, task: &Task) -> Self {
        write_json(json, &HeadOnly(task));
        json.pop();
        let artifacts = json.len() as u32;
        if !task.artifacts.is_empty() {
            json.extend_from_slice(ARTIFACTS);
            write_json(json, &task.artifacts);
        }
        let history = json.len() as u32;
        let mut messages = SmallVec::with_capacity(task.history.len());
        for (i, message) in task.history.iter().enumerate() {
            json.extend_from_slice(if i == 0 { b",\"history\":[" } else { b"," });
            messages.push(json.len() as u32);
            write_json(json, message);
        }
        json.extend_from_slice(if messages.is_empty() { b"}" } else { b"]}" });
        Self { json: json.as_slice().into(), artifacts, history, messages }
    }

    fn to_pieces(&self) -> EndedPieces {
        let (artifacts, history) = (self.artifacts as usize, self.history as usize);
        EndedPieces {
            head: self.json[..artifacts].to_vec(),
            artifacts: self.json[artifacts..history].to_vec(),
            history: self.json[history..self.json.len() - 1].to_vec(),
            messages: self.messages.iter().map(|at| at - self.history).collect(),
        }
    }

    fn task(&self) -> Task {
        serde_json::from_slice(&self.json).unwrap_or_else(|error| {
            tracing::error!(%error, "a task that was written cannot be read back");
            Task::default()
        })
    }

    fn write(&self, view: View, out: &mut Vec<u8>) {
        let keep = view.history.map_or(self.messages.len(), |limit| limit.min(self.messages.len()));
        if view.artifacts && keep == self.messages.len() {
            out.extend_from_slice(&self.json);
            return;
        }
        let body = if view.artifacts { self.history } else { self.artifacts };
        out.extend_from_slice(&self.json[..body as usize]);
        match self.messages.len() - keep {
            _ if keep == 0 => out.push(b'}'),
            0 => out.extend_from_slice(&self.json[self.history as usize..]),
            hidden => {
                out.extend_from_slice(b",\"history\":[");
                out.extend_from_slice(&self.json[self.messages[hidden] as usize..]);
            }
        }
    }
}

/// The members of a task before `artifacts` and `history`. The type has no others, which `Task`'s field order and a test see to.
struct HeadOnly<'a>(&'a Task);

impl serde::Serialize for HeadOnly<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let Task { id, context_id, status, metadata, generation: _, artifacts: _, history: _ } = self.0;
        let mut head = serializer.serialize_struct("Task", 4)?;
        head.serialize_field("id", id)?;
        if let Some(context_id) = context_id {
            head.serialize_field("contextId", context_id)?;
        }
        head.serialize_field("status", status)?;
        if let Some(metadata) = metadata {
            head.serialize_field("metadata", metadata)?;
        }
        head.end()
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::TaskStatus;

    use super::*;

    #[test]
    fn an_ended_task_reads_the_same_as_a_live_one_in_every_view() {
        for (artifacts, messages, size) in
            (0..3).flat_map(|a| (0..4).flat_map(move |m| [(a, m, 1), (a, m, LARGE)]))
        {
            {
                let task = Task {
                    id: "t".into(),
                    context_id: Some("c".into()),
                    status: TaskStatus { state: TaskState::Completed, ..TaskStatus::default() },
                    artifacts: (0..artifacts)
                        .map(|i| Artifact {
                            artifact_id: format!("a{i}"),
                            parts: vec![Part::text("x".repeat(size))],
                            ..Artifact::default()
                        })
                        .collect(),
                    history: (0..messages).map(|i| Message::user(format!("m{i}"), "hi")).collect(),
                    ..Task::default()
                };
                let live = Snapshot::live(Seq(7), task.clone());
                let ended = Snapshot::ended(Seq(7), TaskState::Completed, Arc::new(Ended::new(task.clone())));
                for history in [None, Some(0), Some(1), Some(3), Some(9)] {
                    for (show, generation) in [(true, false), (false, true), (true, true), (false, false)] {
                        let view = View { history, artifacts: show, generation };
                        let read = |snapshot: &Snapshot| {
                            let mut out = Vec::new();
                            snapshot.write(view, &mut out);
                            serde_json::from_slice::<serde_json::Value>(&out).unwrap()
                        };
                        assert_eq!(read(&live), read(&ended), "{view:?}");
                        assert_eq!(live.viewed(view), ended.viewed(view), "{view:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn pieces_that_were_damaged_are_refused_and_whole_ones_come_back() {
        let task = Task {
            id: "t".into(),
            status: TaskStatus { state: TaskState::Completed, ..TaskStatus::default() },
            artifacts: vec![Artifact {
                artifact_id: "a".to_owned(),
                parts: vec![Part::text("x")],
                ..Artifact::default()
            }],
            history: vec![Message::user("m0", "hi"), Message::user("m1", "ho")],
            ..Task::default()
        };
        let whole = Ended::new(task.clone()).to_pieces();
        let read = |pieces: EndedPieces| Ended::from_pieces(pieces).map(|ended| ended.task().into_owned());
        assert_eq!(read(whole.clone()).unwrap(), task);
        let hidden = EndedPieces { head: whole.head.clone(), ..EndedPieces::default() };
        assert_eq!(read(hidden).unwrap(), Task { artifacts: vec![], history: vec![], ..task });

        let broken = |damage: fn(&mut EndedPieces)| {
            let mut pieces = whole.clone();
            damage(&mut pieces);
            assert!(read(pieces.clone()).is_err(), "{pieces:?}");
        };
        broken(|pieces| pieces.head[8] = 0xFF);
        broken(|pieces| pieces.head.truncate(10));
        broken(|pieces| pieces.head.clear());
        broken(|pieces| pieces.artifacts[3] = b'x');
        broken(|pieces| pieces.artifacts.truncate(20));
        broken(|pieces| pieces.history[20] = 0);
        broken(|pieces| pieces.history.clear());
        broken(|pieces| pieces.messages[1] += 1);
        broken(|pieces| pieces.messages[1] = u32::MAX);
        broken(|pieces| pieces.messages.truncate(1));
        // Whole, but only together: each is also shown without the others.
        broken(|pieces| {
            let end = pieces.head.pop().unwrap();
            pieces.artifacts.insert(0, end);
        });
    }
}
