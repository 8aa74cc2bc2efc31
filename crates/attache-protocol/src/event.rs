//! What an agent answers: a task or a message at once, or a stream of updates.

use serde::{Deserialize, Serialize};

use crate::json::lenient;
use crate::{Artifact, ContextId, JsonObject, Message, Task, TaskId, TaskStatus};

/// A task has a new status.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskStatusUpdateEvent {
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    pub task_id: TaskId,
    /// The conversation it belongs to.
    #[serde(alias = "context_id", deserialize_with = "lenient::null")]
    pub context_id: ContextId,
    /// The new status.
    #[serde(deserialize_with = "lenient::object")]
    pub status: TaskStatus,
    /// Anything else about the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
    /// The number of this event in its task. Part of protocol 1.1; absent where that is not spoken.
    #[serde(
        deserialize_with = "lenient::int",
        serialize_with = "lenient::int64_out",
        skip_serializing_if = "Option::is_none"
    )]
    pub generation: Option<u64>,
}

/// A task produced an artifact, or a piece of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskArtifactUpdateEvent {
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    pub task_id: TaskId,
    /// The conversation it belongs to.
    #[serde(alias = "context_id", deserialize_with = "lenient::null")]
    pub context_id: ContextId,
    /// The artifact, or the piece.
    #[serde(deserialize_with = "lenient::object")]
    pub artifact: Artifact,
    /// Whether the parts continue the artifact with the same id, instead of replacing it.
    #[serde(deserialize_with = "lenient::null", skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// Whether this is the last piece.
    #[serde(
        alias = "last_chunk",
        deserialize_with = "lenient::null",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub last_chunk: bool,
    /// Anything else about the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
    /// The number of this event in its task. Part of protocol 1.1; absent where that is not spoken.
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
        /// The whole task as it is now.
        Task(Task) = "task",
        /// A direct answer, with no task.
        Message(Message) = "message",
        /// A new status.
        StatusUpdate(TaskStatusUpdateEvent) = "statusUpdate" / "status_update",
        /// An artifact, or a piece of one.
        ArtifactUpdate(TaskArtifactUpdateEvent) = "artifactUpdate" / "artifact_update",
    }
}

oneof! {
    /// The answer to a message that was sent without a stream.
    #[derive(Debug, Clone, PartialEq)]
    pub enum SendMessageResponse {
        /// The task that works, or has worked, on it.
        Task(Task) = "task",
        /// A direct answer, with no task.
        Message(Message) = "message",
    }
}
