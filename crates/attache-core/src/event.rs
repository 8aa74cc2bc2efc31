//! The events of a task's log.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use attache_protocol::{
    Message, StreamResponse, Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent, json,
};
use bytes::Bytes;

use crate::report::hide_reports;

/// The position of an event in its task's log. The first is 1; zero is before the first.
///
/// It is also the id of the event in a stream, the cursor of a resumed stream, the expected version of an append, and the generation of
/// the task.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seq(pub u64);

impl Seq {
    /// Before the first event.
    pub const START: Self = Self(0);

    /// The position `count` events later.
    #[must_use]
    pub fn plus(self, count: usize) -> Self {
        Self(self.0 + count as u64)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A change of a task. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskEvent {
    /// The task was created. This is always the first event, and only the first.
    Created(Arc<Task>),
    /// The client sent another message. It is added to the history and is not part of streams.
    Message(Arc<Message>),
    /// The task has a new status.
    Status(Arc<TaskStatusUpdateEvent>),
    /// The agent produced an artifact, or a chunk of one.
    Artifact(Arc<TaskArtifactUpdateEvent>),
}

impl TaskEvent {
    /// The new state of the task, if the event sets one.
    pub fn state(&self) -> Option<TaskState> {
        match self {
            Self::Created(task) => Some(task.status.state),
            Self::Status(update) => Some(update.status.state),
            Self::Message(_) | Self::Artifact(_) => None,
        }
    }

    /// The event as streams send it. `None` for events that are not part of streams.
    pub fn to_stream(&self) -> Option<StreamResponse> {
        match self {
            Self::Created(task) => Some(StreamResponse::Task((**task).clone())),
            Self::Message(_) => None,
            Self::Status(update) => Some(StreamResponse::StatusUpdate((**update).clone())),
            Self::Artifact(update) => Some(StreamResponse::ArtifactUpdate((**update).clone())),
        }
    }

    /// Writes the event as stores keep it: like in a stream, and a message of the client as `{"message":…}`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Created(task) => wrap(out, "task", task),
            Self::Message(message) => wrap(out, "message", message),
            Self::Status(update) => wrap(out, "statusUpdate", update),
            Self::Artifact(update) => wrap(out, "artifactUpdate", update),
        }
    }
}

/// Reads an event as [`TaskEvent::write`] writes it.
impl From<StreamResponse> for TaskEvent {
    fn from(response: StreamResponse) -> Self {
        match response {
            StreamResponse::Task(task) => Self::Created(Arc::new(task)),
            StreamResponse::Message(message) => Self::Message(Arc::new(message)),
            StreamResponse::StatusUpdate(update) => Self::Status(Arc::new(update)),
            StreamResponse::ArtifactUpdate(update) => Self::Artifact(Arc::new(update)),
        }
    }
}

/// An event with its position in the log.
#[derive(Debug)]
pub struct Entry {
    /// The position.
    pub seq: Seq,
    /// The event.
    pub event: TaskEvent,
    json: OnceLock<Bytes>,
}

impl Entry {
    /// An event at a position.
    pub fn new(seq: Seq, event: TaskEvent) -> Self {
        Self { seq, event, json: OnceLock::new() }
    }

    /// The event as JSON for a webhook, which activates no extension. Empty for events that webhooks do not get.
    pub fn webhook_json(&self) -> Bytes {
        match hide_reports(&self.event) {
            Some(Cow::Borrowed(_)) => self.json().clone(),
            Some(Cow::Owned(event)) => Self::new(self.seq, event).json().clone(),
            None => Bytes::new(),
        }
    }

    /// The event as JSON, encoded once for all readers of streams. Empty for events that are not part of streams.
    pub fn json(&self) -> &Bytes {
        self.json.get_or_init(|| {
            let mut out = Vec::new();
            if !matches!(self.event, TaskEvent::Message(_)) {
                out.reserve(256);
                self.event.write(&mut out);
            }
            out.into()
        })
    }
}

/// Writes `{"member":value}` without copying the value into a `StreamResponse`.
fn wrap<T: serde::Serialize>(out: &mut Vec<u8>, member: &str, value: &T) {
    out.extend_from_slice(b"{\"");
    out.extend_from_slice(member.as_bytes());
    out.extend_from_slice(b"\":");
    write_json(out, value);
    out.push(b'}');
}

/// Appends a value as JSON. This cannot fail for the types of the protocol. If it ever does, the reader gets `null` instead of half a
/// document.
pub fn write_json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let start = out.len();
    if let Err(error) = json::write(out, value) {
        tracing::error!(%error, "a value of the protocol could not be written as JSON");
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}
