//! The responses of an agent: a task, a message, or a stream of updates.

use serde::{Deserialize, Serialize};

use crate::json::lenient;
use crate::{Artifact, ContextId, JsonObject, Message, Part, Task, TaskId, TaskStatus};

/// A task has a new status.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskStatusUpdateEvent {
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    pub task_id: TaskId,
    /// The context of the task.
    #[serde(alias = "context_id", deserialize_with = "lenient::null")]
    pub context_id: ContextId,
    /// The new status.
    #[serde(deserialize_with = "lenient::object")]
    pub status: TaskStatus,
    /// Additional data about the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
    /// The number of this event in its task. Part of protocol 1.1, and absent in earlier versions.
    #[serde(
        deserialize_with = "lenient::int",
        serialize_with = "lenient::int64_out",
        skip_serializing_if = "Option::is_none"
    )]
    pub generation: Option<u64>,
}

/// A task produced an artifact, or a chunk of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskArtifactUpdateEvent {
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    pub task_id: TaskId,
    /// The context of the task.
    #[serde(alias = "context_id", deserialize_with = "lenient::null")]
    pub context_id: ContextId,
    /// The artifact, or a chunk of it.
    #[serde(deserialize_with = "lenient::object")]
    pub artifact: Artifact,
    /// Whether the parts are appended to the artifact with the same id. Otherwise they replace it.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// Whether this is the last chunk.
    #[serde(
        alias = "last_chunk",
        deserialize_with = "lenient::null",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub last_chunk: bool,
    /// Additional data about the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
    /// The number of this event in its task. Part of protocol 1.1, and absent in earlier versions.
    #[serde(
        deserialize_with = "lenient::int",
        serialize_with = "lenient::int64_out",
        skip_serializing_if = "Option::is_none"
    )]
    pub generation: Option<u64>,
}

oneof! {
    /// One event of a stream, and the body of a push notification.
    #[derive(Debug, Clone, PartialEq)]
    pub enum StreamResponse {
        /// The current task.
        Task(Task) = "task",
        /// A direct response without a task.
        Message(Message) = "message",
        /// A new status.
        StatusUpdate(TaskStatusUpdateEvent) = "statusUpdate" / "status_update",
        /// An artifact, or a chunk of one.
        ArtifactUpdate(TaskArtifactUpdateEvent) = "artifactUpdate" / "artifact_update",
    }
}

oneof! {
    /// The response to a message that was sent without a stream.
    #[derive(Debug, Clone, PartialEq)]
    pub enum SendMessageResponse {
        /// The task of the message.
        Task(Task) = "task",
        /// A direct response without a task.
        Message(Message) = "message",
    }
}

impl StreamResponse {
    /// All parts of its messages and artifacts.
    pub fn parts_mut(&mut self) -> Box<dyn Iterator<Item = &mut Part> + '_> {
        match self {
            Self::Task(task) => Box::new(task.parts_mut()),
            Self::Message(message) => Box::new(message.parts.iter_mut()),
            Self::StatusUpdate(update) => {
                Box::new(update.status.message.iter_mut().flat_map(|message| &mut message.parts))
            }
            Self::ArtifactUpdate(update) => Box::new(update.artifact.parts.iter_mut()),
        }
    }
}

impl SendMessageResponse {
    /// All parts of its messages and artifacts.
    pub fn parts_mut(&mut self) -> Box<dyn Iterator<Item = &mut Part> + '_> {
        match self {
            Self::Task(task) => Box::new(task.parts_mut()),
            Self::Message(message) => Box::new(message.parts.iter_mut()),
        }
    }
}
