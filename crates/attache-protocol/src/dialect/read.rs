//! Reads the messages and tasks that the formats over JSON-RPC have in common.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::params::Configuration;
use super::part;
use super::states::{LowerRole, LowerState};
use crate::json::lenient;
use crate::operation::parse;
use crate::{
    Artifact, ContextId, Error, JsonObject, Message, Part, SendMessageRequest, Task, TaskId, TaskStatus,
    Timestamp,
};

/// A format over JSON-RPC, as far as it differs from the others.
pub(super) trait ReadFormat: Default {
    /// A part.
    type Part: DeserializeOwned + Into<Part>;
    /// An artifact.
    type Artifact: DeserializeOwned + Into<Artifact>;
    /// The `kind` of a message.
    type MessageKind: DeserializeOwned + Default;
    /// The `kind` of a task.
    type TaskKind: DeserializeOwned;
}

/// The arguments of `message/send` and `message/stream`.
#[derive(Default, Deserialize)]
#[serde(default, bound = "F: ReadFormat")]
pub(super) struct SendJson<F: ReadFormat> {
    #[serde(deserialize_with = "lenient::object")]
    message: MessageJson<F>,
    #[serde(deserialize_with = "lenient::optional_object")]
    configuration: Option<Configuration>,
    metadata: Option<JsonObject>,
}

impl<F: ReadFormat> From<SendJson<F>> for SendMessageRequest {
    fn from(SendJson { message, configuration, metadata }: SendJson<F>) -> Self {
        Self { tenant: None, message: message.into(), configuration: configuration.map(Into::into), metadata }
    }
}

/// A message.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound = "F: ReadFormat")]
pub(super) struct MessageJson<F: ReadFormat> {
    #[serde(rename = "kind")]
    _kind: Option<F::MessageKind>,
    #[serde(deserialize_with = "lenient::null")]
    message_id: String,
    #[serde(deserialize_with = "lenient::id")]
    context_id: Option<ContextId>,
    #[serde(deserialize_with = "lenient::id")]
    task_id: Option<TaskId>,
    role: Option<LowerRole>,
    #[serde(deserialize_with = "part::parts::<_, F::Part>")]
    parts: Vec<Part>,
    metadata: Option<JsonObject>,
    #[serde(deserialize_with = "lenient::null")]
    extensions: Vec<String>,
    #[serde(deserialize_with = "lenient::null")]
    reference_task_ids: Vec<TaskId>,
}

impl<F: ReadFormat> From<MessageJson<F>> for Message {
    fn from(message: MessageJson<F>) -> Self {
        Self {
            message_id: message.message_id,
            context_id: message.context_id,
            task_id: message.task_id,
            role: message.role.map(Into::into).unwrap_or_default(),
            parts: message.parts,
            metadata: message.metadata,
            extensions: message.extensions,
            reference_task_ids: message.reference_task_ids,
        }
    }
}

/// The status of a task. `M` is its message.
#[derive(Deserialize)]
#[serde(bound = "M: Deserialize<'de>")]
pub(super) struct StatusJson<M> {
    pub(super) state: LowerState,
    #[serde(default, deserialize_with = "lenient::optional_object")]
    pub(super) message: Option<M>,
    #[serde(default)]
    pub(super) timestamp: Option<Timestamp>,
}

impl<M: Into<Message>> From<StatusJson<M>> for TaskStatus {
    fn from(StatusJson { state, message, timestamp }: StatusJson<M>) -> Self {
        Self { state: state.into(), message: message.map(|message| Box::new(message.into())), timestamp }
    }
}

/// A task. It must have an id and a state.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "F: ReadFormat")]
pub(super) struct TaskJson<F: ReadFormat> {
    #[serde(default, rename = "kind")]
    _kind: Option<F::TaskKind>,
    id: TaskId,
    #[serde(default, deserialize_with = "lenient::id")]
    context_id: Option<ContextId>,
    status: lenient::Object<StatusJson<MessageJson<F>>>,
    #[serde(default, deserialize_with = "lenient::objects")]
    artifacts: Vec<F::Artifact>,
    #[serde(default, deserialize_with = "lenient::objects")]
    history: Vec<MessageJson<F>>,
    #[serde(default)]
    metadata: Option<JsonObject>,
}

impl<F: ReadFormat> From<TaskJson<F>> for Task {
    fn from(task: TaskJson<F>) -> Self {
        let lenient::Object(status) = task.status;
        Self {
            id: task.id,
            context_id: task.context_id,
            status: status.into(),
            metadata: task.metadata,
            generation: None,
            artifacts: task.artifacts.into_iter().map(Into::into).collect(),
            history: task.history.into_iter().map(Into::into).collect(),
        }
    }
}

/// Reads a task.
pub(super) fn read_task<F: ReadFormat>(json: &[u8]) -> Result<Task, Error> {
    let task: TaskJson<F> = parse(json)?;
    require_id(&task.id)?;
    Ok(task.into())
}

/// An empty id counts as missing.
pub(super) fn require_id(id: &TaskId) -> Result<(), Error> {
    if id.is_empty() { Err(Error::invalid_params("id", "expected a task's id")) } else { Ok(()) }
}
