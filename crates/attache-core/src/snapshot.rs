//! A task at one position of its log.
//!
//! A task that has ended never changes. It is kept as JSON, with the offsets of the artifacts and of each message of the history.
//! Reading such a task copies bytes and parses nothing.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use attache_protocol::{Artifact, Content, Message, Part, Task, TaskState};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::Seq;
use crate::event::write_json;

/// Which parts of a task to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The maximal number of messages of the history, counted from the latest. `None` means all.
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
    /// Everything that protocol 1.0 has.
    pub const FULL: Self = Self { history: None, artifacts: true, generation: false };
}

/// A task at one position of its log.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The position of the last event that the task includes.
    pub seq: Seq,
    /// The state of the task.
    pub state: TaskState,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    Live(Arc<Task>),
    /// With the parsed task, if it is available.
    Ended(Arc<EndedTask>, Option<Arc<Task>>),
}

impl Snapshot {
    /// A snapshot of a task that may still change.
    pub fn live(seq: Seq, task: Task) -> Self {
        Self { seq, state: task.status.state, body: Body::Live(Arc::new(task)) }
    }

    /// A snapshot of a task that has ended.
    pub fn ended(seq: Seq, state: TaskState, ended: Arc<EndedTask>) -> Self {
        Self { seq, state, body: Body::Ended(ended, None) }
    }

    /// A snapshot of a task at the moment when it ends, and its final form. This snapshot has the task as a value, so that
    /// [`task`](Self::task) need not parse it.
    pub fn ending(seq: Seq, task: Task) -> (Self, Arc<EndedTask>) {
        let (state, task) = (task.status.state, Arc::new(task));
        let ended = Arc::new(EndedTask::new(task.clone()));
        (Self { seq, state, body: Body::Ended(ended.clone(), Some(task)) }, ended)
    }

    /// The whole task.
    pub fn task(&self) -> Cow<'_, Task> {
        match &self.body {
            Body::Live(task) | Body::Ended(_, Some(task)) => Cow::Borrowed(task),
            Body::Ended(ended, None) => ended.task(),
        }
    }

    /// The task with the parts that `view` shows.
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

    /// Whether the task may contain a text. `false` is certain. A task that is not kept as JSON may contain everything.
    pub(crate) fn may_contain(&self, text: &str) -> bool {
        match &self.body {
            Body::Ended(ended, _) if let EndedForm::Json(indexed) = &ended.0 => {
                memchr::memmem::find(&indexed.json, text.as_bytes()).is_some()
            }
            Body::Live(_) | Body::Ended(..) => true,
        }
    }

    /// The approximate number of bytes that [`write`](Self::write) writes. 0 if that is not known in advance.
    pub fn size_hint(&self, view: View) -> usize {
        match &self.body {
            Body::Ended(ended, _) if let EndedForm::Json(indexed) = &ended.0 => {
                let hidden = if view.artifacts { 0 } else { indexed.history - indexed.artifacts };
                indexed.json.len() - hidden as usize
            }
            Body::Live(_) | Body::Ended(..) => 0,
        }
    }

    /// Writes the task as JSON with the parts that `view` shows.
    pub fn write(&self, view: View, out: &mut Vec<u8>) {
        let value = match &self.body {
            Body::Live(task) => &**task,
            Body::Ended(ended, _) => match &ended.0 {
                EndedForm::Large(task) => &**task,
                EndedForm::Json(indexed) => {
                    let start = out.len();
                    indexed.write(view, out);
                    if view.generation {
                        let member = format!("\"generation\":\"{}\",", self.seq);
                        out.splice(start + 1..start + 1, member.into_bytes());
                    }
                    return;
                }
            },
        };
        if view == View::FULL {
            out.reserve(content_size(value) + 512);
            write_json(out, value);
        } else {
            write_json(out, &*self.viewed(view));
        }
    }
}

/// A task that has ended, as JSON. A large task stays a value, because a second copy of its content would cost too much memory.
#[derive(Debug)]
pub struct EndedTask(EndedForm);

#[derive(Debug)]
enum EndedForm {
    Json(IndexedJson),
    Large(Arc<Task>),
}

/// A task that has ended, in the parts that a store keeps. A store need not read the parts that a caller does not need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredEndedTask {
    /// All members but artifacts and history, without the closing brace.
    pub head: Vec<u8>,
    /// `,"artifacts":[…]`, or empty.
    pub artifacts: Vec<u8>,
    /// `,"history":[…]`, or empty.
    pub history: Vec<u8>,
    /// The offset of each message in `history`.
    pub messages: Vec<u32>,
}

/// From this content size on, a task stays a value. Its content is then shared with the events.
const LARGE: usize = 32 * 1024;

impl EndedTask {
    /// The final form of a task.
    pub fn new(task: impl Into<Arc<Task>>) -> Self {
        let task = task.into();
        let large = content_size(&task) >= LARGE;
        Self(if large { EndedForm::Large(task) } else { EndedForm::Json(IndexedJson::new(&task)) })
    }

    /// The form for a store.
    pub fn to_stored(&self) -> StoredEndedTask {
        match &self.0 {
            EndedForm::Json(indexed) => indexed.to_stored(),
            EndedForm::Large(task) => IndexedJson::new(task).to_stored(),
        }
    }

    /// Rebuilds the task from the form for a store. Parts that will not be shown may be missing.
    ///
    /// The JSON is validated, because a file can be damaged and the bytes go to callers unchanged.
    pub fn from_stored(pieces: StoredEndedTask) -> Result<Self, serde_json::Error> {
        let StoredEndedTask { head: mut json, artifacts, history, messages } = pieces;
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
        let indexed =
            IndexedJson { json: json.into(), artifacts: artifacts_at, history: history_at, messages };
        Ok(Self(EndedForm::Json(indexed)))
    }

    fn task(&self) -> Cow<'_, Task> {
        match &self.0 {
            EndedForm::Json(indexed) => Cow::Owned(indexed.task()),
            EndedForm::Large(task) => Cow::Borrowed(task),
        }
    }
}

/// The beginning of the JSON of the artifacts.
const ARTIFACTS: &[u8] = b",\"artifacts\":";

/// The beginning of the JSON of the history.
const HISTORY: &[u8] = b",\"history\":";

/// The value of one member of an object.
fn member<'a>(json: &'a [u8], name: &[u8]) -> Result<&'a [u8], serde_json::Error> {
    json.strip_prefix(name).ok_or_else(|| serde::de::Error::custom("a member has the wrong name"))
}

/// Checks that the history is an array of messages at these offsets.
fn check_history(history: &[u8], offsets: &[u32]) -> Result<(), serde_json::Error> {
    let messages: Vec<&RawValue> = serde_json::from_slice(member(history, HISTORY)?)?;
    let starts = messages.iter().map(|message| message.get().as_ptr().addr() - history.as_ptr().addr());
    if !starts.eq(offsets.iter().map(|offset| *offset as usize)) {
        return Err(serde::de::Error::custom("the messages of the history are not at their offsets"));
    }
    messages.into_iter().try_for_each(|message| serde_json::from_str::<Message>(message.get()).map(drop))
}

/// The approximate number of bytes of the content of a task.
fn content_size(task: &Task) -> usize {
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

/// A task as JSON with offsets.
///
/// `artifacts` and `history` are the last members, in this order. Both may be missing.
#[derive(Debug)]
pub(crate) struct IndexedJson {
    json: Box<[u8]>,
    /// The offset of `,"artifacts":[…]`, which ends where the history begins.
    artifacts: u32,
    /// The offset of `,"history":[…]`, which ends before the closing brace.
    history: u32,
    /// The offset of each message of the history. Most histories are short.
    messages: SmallVec<[u32; 4]>,
}

impl IndexedJson {
    fn new(task: &Task) -> Self {
        thread_local! {
            /// Tasks are written here first, then copied into an allocation of their exact size.
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

    fn to_stored(&self) -> StoredEndedTask {
        let (artifacts, history) = (self.artifacts as usize, self.history as usize);
        StoredEndedTask {
            head: self.json[..artifacts].to_vec(),
            artifacts: self.json[artifacts..history].to_vec(),
            history: self.json[history..self.json.len() - 1].to_vec(),
            messages: self.messages.iter().map(|at| at - self.history).collect(),
        }
    }

    fn task(&self) -> Task {
        serde_json::from_slice(&self.json).unwrap_or_else(|error| {
            tracing::error!(%error, "the JSON of an ended task cannot be parsed");
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

/// The members of a task before `artifacts` and `history`. The pattern below does not compile if `Task` gets another field.
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
                let ended =
                    Snapshot::ended(Seq(7), TaskState::Completed, Arc::new(EndedTask::new(task.clone())));
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
    fn a_damaged_stored_task_is_rejected_and_an_intact_one_is_read() {
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
        let whole = EndedTask::new(task.clone()).to_stored();
        let read =
            |pieces: StoredEndedTask| EndedTask::from_stored(pieces).map(|ended| ended.task().into_owned());
        assert_eq!(read(whole.clone()).unwrap(), task);
        let hidden = StoredEndedTask { head: whole.head.clone(), ..StoredEndedTask::default() };
        assert_eq!(read(hidden).unwrap(), Task { artifacts: vec![], history: vec![], ..task });

        let broken = |damage: fn(&mut StoredEndedTask)| {
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
        // Valid together, but not alone: each part can also be shown without the others.
        broken(|pieces| {
            let end = pieces.head.pop().unwrap();
            pieces.artifacts.insert(0, end);
        });
    }
}
