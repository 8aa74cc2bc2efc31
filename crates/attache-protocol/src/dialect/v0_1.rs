//! Protocol 0.1, which has no contexts and no message ids: `tasks/send`. AgentOS uses it.
//!
//! - The client chooses the id of its task. Every response is a task. Parts have a `type`. Artifacts have a number instead of an
//!   id.
//! - A message has no id. It gets one here that is computed from its content, so that a repeated request has the same id.
//! - There are fewer states. A task that the client ended is written as `cancelled`, as AgentOS does. `canceled`, as in the
//!   schema, is read as well.
//!
//! For clients, [`request`] writes requests and [`response`] reads responses.

pub mod request;
pub mod response;

use std::borrow::Cow;

use serde::Deserialize;

use super::params::{TaskQuery, checked, schemes_field};
use super::part::{self, TaggedPart, TypeTag};
use super::push::Webhook;
use super::read::{StatusJson, require_id};
use super::states::LowerRole;
use super::v0_3;
use crate::json::{self, lenient};
use crate::operation::parse;
use crate::{
    Artifact, ContextId, Error, ErrorKind, FieldViolation, GetTaskPushNotificationConfigRequest, JsonObject,
    Message, Operation, Part, Request, SendMessageConfiguration, SendMessageRequest, Task, TaskId,
    TaskPushNotificationConfig, TaskStatus,
};

/// Reads a request.
pub(super) fn read(method: &str, params: &[u8]) -> Result<Request, Error> {
    let request = match method {
        "tasks/send" => Request::SendMessage(Box::new(parse::<Send>(params)?.into())),
        "tasks/sendSubscribe" => Request::SendStreamingMessage(Box::new(parse::<Send>(params)?.into())),
        "tasks/get" => Request::GetTask(parse::<TaskQuery>(params)?.into()),
        "tasks/cancel" => Request::CancelTask(parse::<TaskQuery>(params)?.into()),
        "tasks/resubscribe" => Request::SubscribeToTask(parse::<TaskQuery>(params)?.into()),
        "tasks/pushNotification/set" => {
            Request::CreateTaskPushNotificationConfig(parse::<TaskWebhook>(params)?.into())
        }
        "tasks/pushNotification/get" => {
            Request::GetTaskPushNotificationConfig(parse::<TaskWebhook>(params)?.into())
        }
        _ => return Err(Error::new(ErrorKind::MethodNotFound, "there is no such method")),
    };
    checked(request, field)
}

/// The name that 0.1 has for a field of 1.0.
fn field(operation: Operation, field: &str) -> Option<String> {
    match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => {
            let field = field.strip_prefix("configuration.").unwrap_or(field);
            let field = v0_3::part_field(message_field(field).unwrap_or(field));
            Some(schemes_field(&field.replace("taskPushNotificationConfig", "pushNotification")))
        }
        Operation::CreateTaskPushNotificationConfig if field != "taskId" => {
            Some(format!("pushNotificationConfig.{}", schemes_field(field)))
        }
        Operation::CreateTaskPushNotificationConfig | Operation::GetTaskPushNotificationConfig => {
            (field == "taskId").then(|| "id".to_owned())
        }
        Operation::GetTask
        | Operation::ListTasks
        | Operation::CancelTask
        | Operation::SubscribeToTask
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig
        | Operation::GetExtendedAgentCard => Some(field.to_owned()),
    }
}

/// The name of the task and of the context of a message, which are not members of the message in 0.1.
fn message_field(field: &str) -> Option<&'static str> {
    match field {
        "message.taskId" => Some("id"),
        "message.contextId" => Some("sessionId"),
        _ => None,
    }
}

/// An error with the field names of 0.1, also if it was found after the request was read.
pub(super) fn with_field_names(error: &Error) -> Cow<'_, Error> {
    let violations = error.field_violations();
    if violations.iter().all(|violation| message_field(&violation.field).is_none()) {
        return Cow::Borrowed(error);
    }
    let renamed = violations.iter().map(|FieldViolation { field, description }| FieldViolation {
        field: message_field(field).unwrap_or(field).to_owned(),
        description: description.clone(),
    });
    Cow::Owned(Error::violations(renamed.collect()))
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Send {
    #[serde(deserialize_with = "lenient::id")]
    id: Option<TaskId>,
    #[serde(deserialize_with = "lenient::id")]
    session_id: Option<ContextId>,
    #[serde(deserialize_with = "lenient::object")]
    message: MessageJson,
    #[serde(deserialize_with = "lenient::null")]
    accepted_output_modes: Vec<String>,
    #[serde(deserialize_with = "lenient::optional_object")]
    push_notification: Option<Webhook>,
    #[serde(deserialize_with = "lenient::int")]
    history_length: Option<i32>,
    metadata: Option<JsonObject>,
}

impl From<Send> for SendMessageRequest {
    fn from(send: Send) -> Self {
        let webhook = send.push_notification.map(|webhook| match &send.id {
            Some(id) => TaskPushNotificationConfig { task_id: None, ..webhook.for_task(id.clone()) },
            None => webhook.into(),
        });
        let configuration = SendMessageConfiguration {
            accepted_output_modes: send.accepted_output_modes,
            task_push_notification_config: webhook.map(Box::new),
            history_length: send.history_length.filter(|length| *length != 0),
            ..SendMessageConfiguration::default()
        };
        Self {
            tenant: None,
            message: send.message.into_message(send.id, send.session_id),
            configuration: Some(configuration),
            metadata: send.metadata,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MessageJson {
    role: Option<LowerRole>,
    #[serde(deserialize_with = "part::parts::<_, TaggedPart<TypeTag>>")]
    parts: Vec<Part>,
    metadata: Option<JsonObject>,
}

impl MessageJson {
    fn into_message(self, task_id: Option<TaskId>, context_id: Option<ContextId>) -> Message {
        let mut message = Message {
            context_id,
            task_id,
            role: self.role.map(Into::into).unwrap_or_default(),
            parts: self.parts,
            metadata: self.metadata,
            ..Message::default()
        };
        message.message_id = message_id(&message);
        message
    }
}

/// An id that is computed from the task and the content of the message (FNV-1a, 128 bits).
fn message_id(message: &Message) -> String {
    let mut text = Vec::new();
    // Writing a message into memory cannot fail. If it did, all messages would have the same id.
    let _ = json::write(&mut text, message);
    let hash = text.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    format!("{hash:032x}")
}

/// A task and its only webhook.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TaskWebhook {
    #[serde(deserialize_with = "lenient::null")]
    id: TaskId,
    #[serde(deserialize_with = "lenient::object")]
    push_notification_config: Webhook,
}

impl From<TaskWebhook> for TaskPushNotificationConfig {
    fn from(TaskWebhook { id, push_notification_config }: TaskWebhook) -> Self {
        push_notification_config.for_task(id)
    }
}

impl From<TaskWebhook> for GetTaskPushNotificationConfigRequest {
    fn from(TaskWebhook { id, .. }: TaskWebhook) -> Self {
        Self { tenant: None, id: id.as_str().to_owned(), task_id: id }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskJson {
    id: TaskId,
    #[serde(default, deserialize_with = "lenient::id")]
    session_id: Option<ContextId>,
    status: lenient::Object<StatusJson<MessageJson>>,
    #[serde(default, deserialize_with = "lenient::objects")]
    artifacts: Vec<ArtifactJson>,
    #[serde(default, deserialize_with = "lenient::objects")]
    history: Vec<MessageJson>,
    #[serde(default)]
    metadata: Option<JsonObject>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ArtifactJson {
    /// The number of an artifact in an event. In a task, its place is its number.
    #[serde(deserialize_with = "lenient::int_or_zero")]
    index: i32,
    /// Whether an artifact in an event continues the earlier one with its number.
    #[serde(deserialize_with = "lenient::null")]
    append: bool,
    #[serde(deserialize_with = "lenient::null")]
    last_chunk: bool,
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(deserialize_with = "lenient::string")]
    description: Option<String>,
    #[serde(deserialize_with = "part::parts::<_, TaggedPart<TypeTag>>")]
    parts: Vec<Part>,
    metadata: Option<JsonObject>,
}

impl From<ArtifactJson> for Artifact {
    fn from(artifact: ArtifactJson) -> Self {
        Self {
            artifact_id: artifact.index.to_string(),
            name: artifact.name,
            description: artifact.description,
            parts: artifact.parts,
            metadata: artifact.metadata,
            extensions: Vec::new(),
        }
    }
}

/// Reads a stored task. It must have an id and a state. The number of an artifact becomes its id.
pub(super) fn read_task(json: &[u8]) -> Result<Task, Error> {
    let task: TaskJson = parse(json)?;
    require_id(&task.id)?;
    let lenient::Object(status) = task.status;
    let (id, context_id) = (task.id, task.session_id);
    let message = |message: MessageJson| message.into_message(Some(id.clone()), context_id.clone());
    let artifacts = task
        .artifacts
        .into_iter()
        .enumerate()
        .map(|(index, artifact)| Artifact { artifact_id: index.to_string(), ..artifact.into() });
    Ok(Task {
        status: TaskStatus {
            state: status.state.into(),
            message: status.message.map(|it| Box::new(message(it))),
            timestamp: status.timestamp,
        },
        metadata: task.metadata,
        generation: None,
        artifacts: artifacts.collect(),
        history: task.history.into_iter().map(&message).collect(),
        id: id.clone(),
        context_id: context_id.clone(),
    })
}
