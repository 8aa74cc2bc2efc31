//! Requests, and tasks that were kept.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, Error as _};
use serde::{Deserialize, Deserializer};

use crate::dialect::params::{Configuration, List, TaskQuery, checked};
use crate::dialect::part::{Kind, Tagged};
use crate::dialect::push::{TaskWebhook, WebhookOfTask};
use crate::dialect::words::{LowerRole, LowerState};
use crate::json::lenient;
use crate::operation::parse;
use crate::{
    Artifact, ContextId, Error, JsonObject, Message, Operation, Part, Request, SendMessageRequest, Task,
    TaskId, TaskStatus, Timestamp,
};

/// Reads a request.
pub(in crate::dialect) fn read(method: &str, params: &[u8]) -> Result<Request, Error> {
    let request = match method {
        "message/send" => Request::SendMessage(Box::new(parse::<Send>(params)?.into())),
        "message/stream" => Request::SendStreamingMessage(Box::new(parse::<Send>(params)?.into())),
        "tasks/get" => Request::GetTask(parse::<TaskQuery>(params)?.into()),
        "tasks/cancel" => Request::CancelTask(parse::<TaskQuery>(params)?.into()),
        "tasks/list" => Request::ListTasks(parse::<List>(params)?.into()),
        "tasks/resubscribe" => Request::SubscribeToTask(parse::<TaskQuery>(params)?.into()),
        "tasks/pushNotificationConfig/set" => {
            Request::CreateTaskPushNotificationConfig(parse::<TaskWebhook>(params)?.into())
        }
        "tasks/pushNotificationConfig/get" => {
            Request::GetTaskPushNotificationConfig(parse::<WebhookOfTask>(params)?.into())
        }
        "tasks/pushNotificationConfig/list" => {
            Request::ListTaskPushNotificationConfigs(parse::<WebhookOfTask>(params)?.into())
        }
        "tasks/pushNotificationConfig/delete" => {
            Request::DeleteTaskPushNotificationConfig(parse::<WebhookOfTask>(params)?.into())
        }
        "agent/getAuthenticatedExtendedCard" | "agent/authenticatedExtendedCard" => {
            Request::GetExtendedAgentCard(Default::default())
        }
        _ => return Err(Error::method_not_found(method, METHODS)),
    };
    checked(request, field)
}

/// What the methods are called. One of them had another name before.
const METHODS: [&str; 11] = [
    "message/send",
    "message/stream",
    "tasks/get",
    "tasks/list",
    "tasks/cancel",
    "tasks/resubscribe",
    "tasks/pushNotificationConfig/set",
    "tasks/pushNotificationConfig/get",
    "tasks/pushNotificationConfig/list",
    "tasks/pushNotificationConfig/delete",
    "agent/getAuthenticatedExtendedCard",
];

/// What a field of 1.0 was called.
pub(in crate::dialect) fn field(operation: Operation, field: &str) -> Option<String> {
    let schemes = |field: &str| field.replace("authentication.scheme", "authentication.schemes");
    match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => {
            let field = part_field(field);
            Some(schemes(&field.replace("taskPushNotificationConfig", "pushNotificationConfig")))
        }
        Operation::CreateTaskPushNotificationConfig if field != "taskId" => {
            Some(format!("pushNotificationConfig.{}", schemes(field)))
        }
        // The name of a webhook may be left out; without the task it has none either.
        Operation::GetTaskPushNotificationConfig | Operation::DeleteTaskPushNotificationConfig => {
            (field == "taskId").then(|| "id".to_owned())
        }
        Operation::ListTaskPushNotificationConfigs if field == "taskId" => Some("id".to_owned()),
        Operation::GetTask
        | Operation::ListTasks
        | Operation::CancelTask
        | Operation::SubscribeToTask
        | Operation::CreateTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::GetExtendedAgentCard => Some(field.to_owned()),
    }
}

/// What a member of a message's part was called: the name and the type of a file stood inside of the file.
pub(in crate::dialect) fn part_field(field: &str) -> Cow<'_, str> {
    let Some(part) = field.strip_prefix("message.parts[") else { return Cow::Borrowed(field) };
    let file = part.strip_suffix("].filename").map(|at| (at, "name"));
    match file.or_else(|| part.strip_suffix("].mediaType").map(|at| (at, "mimeType"))) {
        Some((at, member)) => Cow::Owned(format!("message.parts[{at}].file.{member}")),
        None => Cow::Borrowed(field),
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Send {
    #[serde(deserialize_with = "lenient::object")]
    message: Said,
    #[serde(deserialize_with = "lenient::optional_object")]
    configuration: Option<Configuration>,
    metadata: Option<JsonObject>,
}

impl From<Send> for SendMessageRequest {
    fn from(Send { message, configuration, metadata }: Send) -> Self {
        Self { tenant: None, message: message.into(), configuration: configuration.map(Into::into), metadata }
    }
}

/// A send, as most requests of 0.3 are, to be read in one go with its envelope.
///
/// Parts without a `kind` are not read so. What is wrong with a request is not said: [`read`] does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TaggedSend {
    /// `message/send`.
    Whole,
    /// `message/stream`.
    Streaming,
}

impl TaggedSend {
    pub(crate) fn from_method(method: &str) -> Option<Self> {
        match method {
            "message/send" => Some(Self::Whole),
            "message/stream" => Some(Self::Streaming),
            _ => None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for TaggedSend {
    type Value = Request;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Request, D::Error> {
        let lenient::Object(send) = lenient::Object::<Send>::deserialize(deserializer)?;
        let send = Box::new(SendMessageRequest::from(send));
        let request = match self {
            Self::Whole => Request::SendMessage(send),
            Self::Streaming => Request::SendStreamingMessage(send),
        };
        checked(request, field).map_err(D::Error::custom)
    }
}

/// What a message may say that it is.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum MessageKind {
    Message,
}

/// What a task may say that it is.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum TaskKind {
    Task,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Said {
    #[serde(rename = "kind")]
    _kind: Option<MessageKind>,
    #[serde(deserialize_with = "lenient::null")]
    message_id: String,
    #[serde(deserialize_with = "lenient::id")]
    context_id: Option<ContextId>,
    #[serde(deserialize_with = "lenient::id")]
    task_id: Option<TaskId>,
    role: Option<LowerRole>,
    #[serde(deserialize_with = "parts")]
    parts: Vec<Part>,
    metadata: Option<JsonObject>,
    #[serde(deserialize_with = "lenient::null")]
    extensions: Vec<String>,
    #[serde(deserialize_with = "lenient::null")]
    reference_task_ids: Vec<TaskId>,
}

fn parts<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Part>, D::Error> {
    let parts = lenient::null::<D, Vec<Tagged<Kind>>>(deserializer)?;
    Ok(parts.into_iter().map(Into::into).collect())
}

impl From<Said> for Message {
    fn from(said: Said) -> Self {
        Self {
            message_id: said.message_id,
            context_id: said.context_id,
            task_id: said.task_id,
            role: said.role.map(Into::into).unwrap_or_default(),
            parts: said.parts,
            metadata: said.metadata,
            extensions: said.extensions,
            reference_task_ids: said.reference_task_ids,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeptTask {
    #[serde(default, rename = "kind")]
    _kind: Option<TaskKind>,
    id: TaskId,
    #[serde(default, deserialize_with = "lenient::id")]
    context_id: Option<ContextId>,
    status: lenient::Object<KeptStatus>,
    #[serde(default, deserialize_with = "lenient::objects")]
    artifacts: Vec<KeptArtifact>,
    #[serde(default, deserialize_with = "lenient::objects")]
    history: Vec<Said>,
    #[serde(default)]
    metadata: Option<JsonObject>,
}

#[derive(Deserialize)]
pub(super) struct KeptStatus {
    state: LowerState,
    #[serde(default, deserialize_with = "lenient::optional_object")]
    message: Option<Said>,
    #[serde(default)]
    timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct KeptArtifact {
    #[serde(deserialize_with = "lenient::null")]
    artifact_id: String,
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(deserialize_with = "lenient::string")]
    description: Option<String>,
    #[serde(deserialize_with = "parts")]
    parts: Vec<Part>,
    metadata: Option<JsonObject>,
    #[serde(deserialize_with = "lenient::null")]
    extensions: Vec<String>,
}

impl From<KeptArtifact> for Artifact {
    fn from(kept: KeptArtifact) -> Self {
        Self {
            artifact_id: kept.artifact_id,
            name: kept.name,
            description: kept.description,
            parts: kept.parts,
            metadata: kept.metadata,
            extensions: kept.extensions,
        }
    }
}

impl From<KeptStatus> for TaskStatus {
    fn from(KeptStatus { state, message, timestamp }: KeptStatus) -> Self {
        Self { state: state.into(), message: message.map(|said| Box::new(said.into())), timestamp }
    }
}

impl From<KeptTask> for Task {
    fn from(kept: KeptTask) -> Self {
        let lenient::Object(status) = kept.status;
        Self {
            id: kept.id,
            context_id: kept.context_id,
            status: status.into(),
            metadata: kept.metadata,
            generation: None,
            artifacts: kept.artifacts.into_iter().map(Into::into).collect(),
            history: kept.history.into_iter().map(Into::into).collect(),
        }
    }
}

/// Reads a task that was kept. Without an id and a state it is none.
pub(in crate::dialect) fn read_task(json: &[u8]) -> Result<Task, Error> {
    let kept: KeptTask = parse(json)?;
    if kept.id.is_empty() {
        return Err(Error::invalid_params("id", "expected a task's id"));
    }
    Ok(kept.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn every_method_that_is_named_to_who_asks_for_another_is_one() {
        for method in METHODS {
            let refused = read(method, b"{}").err().map(|error| error.kind());
            assert_ne!(refused, Some(ErrorKind::MethodNotFound), "{method}");
        }
        assert_eq!(read("tasks/what", b"{}").unwrap_err().kind(), ErrorKind::MethodNotFound);
    }
}
