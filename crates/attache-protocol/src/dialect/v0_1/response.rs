//! Reads responses of a server of 0.1, for a client.
//!
//! Every response to a message is a task. The events of a stream have no names: their members decide what they are.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{ArtifactJson, MessageJson};
use crate::dialect::read::StatusJson;
use crate::dialect::v0_3::response::Event;
use crate::json::lenient::{self, Object};
use crate::operation::parse;
use crate::{
    Error, JsonObject, SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent, TaskId,
    TaskPushNotificationConfig, TaskStatus, TaskStatusUpdateEvent,
};

/// Reads the response to a message.
pub fn reply(json: &[u8]) -> Result<SendMessageResponse, Error> {
    task(json).map(SendMessageResponse::Task)
}

/// Reads a task.
pub fn task(json: &[u8]) -> Result<Task, Error> {
    super::read_task(json)
}

/// Reads a webhook.
pub fn webhook(json: &[u8]) -> Result<TaskPushNotificationConfig, Error> {
    parse::<super::TaskWebhook>(json).map(Into::into)
}

/// Reads an event of a stream.
pub fn event(json: &[u8]) -> Result<Event, Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Members {
        artifact: Option<IgnoredAny>,
        session_id: Option<IgnoredAny>,
        artifacts: Option<IgnoredAny>,
        history: Option<IgnoredAny>,
        #[serde(rename = "final", deserialize_with = "lenient::null")]
        is_final: bool,
    }
    let members: Members = parse(json)?;
    let is_task = members.session_id.is_some() || members.artifacts.is_some() || members.history.is_some();
    let response = if members.artifact.is_some() {
        StreamResponse::ArtifactUpdate(parse::<ArtifactUpdate>(json)?.into())
    } else if is_task {
        StreamResponse::Task(task(json)?)
    } else {
        StreamResponse::StatusUpdate(parse::<StatusUpdate>(json)?.into())
    };
    Ok(Event { response, is_last: members.is_final })
}

#[derive(Deserialize)]
struct StatusUpdate {
    id: TaskId,
    status: Object<StatusJson<MessageJson>>,
    #[serde(default)]
    metadata: Option<JsonObject>,
}

impl From<StatusUpdate> for TaskStatusUpdateEvent {
    fn from(StatusUpdate { id, status: Object(status), metadata }: StatusUpdate) -> Self {
        let message = status.message.map(|message| Box::new(message.into_message(Some(id.clone()), None)));
        let status = TaskStatus { state: status.state.into(), message, timestamp: status.timestamp };
        Self { task_id: id, status, metadata, ..Self::default() }
    }
}

#[derive(Deserialize)]
struct ArtifactUpdate {
    id: TaskId,
    artifact: Object<ArtifactJson>,
    #[serde(default)]
    metadata: Option<JsonObject>,
}

impl From<ArtifactUpdate> for TaskArtifactUpdateEvent {
    fn from(ArtifactUpdate { id, artifact: Object(artifact), metadata }: ArtifactUpdate) -> Self {
        let (append, last_chunk) = (artifact.append, artifact.last_chunk);
        Self { task_id: id, artifact: artifact.into(), append, last_chunk, metadata, ..Self::default() }
    }
}
