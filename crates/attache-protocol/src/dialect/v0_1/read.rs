//! Requests, and tasks that were kept.

use std::borrow::Cow;

use serde::Deserialize;

use crate::dialect::params::{TaskQuery, checked};
use crate::dialect::part::{Tagged, Type};
use crate::dialect::push::Webhook;
use crate::dialect::v0_3;
use crate::dialect::words::{LowerRole, LowerState};
use crate::json::{self, lenient};
use crate::operation::parse;
use crate::{
    Artifact, ContextId, Error, ErrorKind, FieldViolation, GetTaskPushNotificationConfigRequest, JsonObject,
    Message, Operation, Part, Request, SendMessageConfiguration, SendMessageRequest, Task, TaskId,
    TaskPushNotificationConfig, TaskStatus, Timestamp,
};

/// Reads a request.
pub(in crate::dialect) fn read(method: &str, params: &[u8]) -> Result<Request, Error> {
    let request = match method {
        "tasks/send" => Request::SendMessage(Box::new(parse::<Send>(params)?.into())),
        "tasks/sendSubscribe" => Request::SendStreamingMessage(Box::new(parse::<Send>(params)?.into())),
        "tasks/get" => Request::GetTask(parse::<TaskQuery>(params)?.into()),
        "tasks/cancel" => Request::CancelTask(parse::<TaskQuery>(params)?.into()),
        "tasks/resubscribe" => Request::SubscribeToTask(parse::<TaskQuery>(params)?.into()),
        "tasks/pushNotification/set" => {
            Request::CreateTaskPushNotificationConfig(parse::<WatchedTask>(params)?.into())
        }
        "tasks/pushNotification/get" => {
            Request::GetTaskPushNotificationConfig(parse::<WatchedTask>(params)?.into())
        }
        _ => return Err(Error::new(ErrorKind::MethodNotFound, "there is no such method")),
    };
    checked(request, field)
}

/// What a field of 1.0 was called.
fn field(operation: Operation, field: &str) -> Option<String> {
    let schemes = |field: &str| field.replace("authentication.scheme", "authentication.schemes");
    match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => {
            let field = field.strip_prefix("configuration.").unwrap_or(field);
            let field = v0_3::part_field(sent_field(field).unwrap_or(field));
            Some(schemes(&field.replace("taskPushNotificationConfig", "pushNotification")))
        }
        Operation::CreateTaskPushNotificationConfig if field != "taskId" => {
            Some(format!("pushNotificationConfig.{}", schemes(field)))
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

/// What a send calls the task and the context of its message, which stand beside the message here.
fn sent_field(field: &str) -> Option<&'static str> {
    match field {
        "message.taskId" => Some("id"),
        "message.contextId" => Some("sessionId"),
        _ => None,
    }
}

/// An error with the names that fields have here, also where it was found after the request was read.
pub(in crate::dialect) fn renamed(error: &Error) -> Cow<'_, Error> {
    let violations = error.field_violations();
    if violations.iter().all(|violation| sent_field(&violation.field).is_none()) {
        return Cow::Borrowed(error);
    }
    let renamed = violations.iter().map(|FieldViolation { field, description }| FieldViolation {
        field: sent_field(field).unwrap_or(field).to_owned(),
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
    message: Said,
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
            Some(id) => TaskPushNotificationConfig { task_id: None, ..webhook.of(id.clone()) },
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
struct Said {
    role: Option<LowerRole>,
    #[serde(deserialize_with = "parts")]
    parts: Vec<Part>,
    metadata: Option<JsonObject>,
}

fn parts<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Part>, D::Error> {
    let parts = lenient::null::<D, Vec<Tagged<Type>>>(deserializer)?;
    Ok(parts.into_iter().map(Into::into).collect())
}

impl Said {
    fn into_message(self, task_id: Option<TaskId>, context_id: Option<ContextId>) -> Message {
        let mut message = Message {
            context_id,
            task_id,
            role: self.role.map(Into::into).unwrap_or_default(),
            parts: self.parts,
            metadata: self.metadata,
            ..Message::default()
        };
        message.message_id = id_of(&message);
        message
    }
}

/// An id that follows from the task and from what the message says (FNV-1a, 128 bits).
fn id_of(message: &Message) -> String {
    let mut text = Vec::new();
    // A message can be written into memory; if it could not, all its ids would be the same.
    let _ = json::write(&mut text, message);
    let hash = text.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    format!("{hash:032x}")
}

/// A task, with its only webhook where that is set.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WatchedTask {
    #[serde(deserialize_with = "lenient::null")]
    id: TaskId,
    #[serde(deserialize_with = "lenient::object")]
    push_notification_config: Webhook,
}

impl From<WatchedTask> for TaskPushNotificationConfig {
    fn from(WatchedTask { id, push_notification_config }: WatchedTask) -> Self {
        push_notification_config.of(id)
    }
}

impl From<WatchedTask> for GetTaskPushNotificationConfigRequest {
    fn from(WatchedTask { id, .. }: WatchedTask) -> Self {
        Self { tenant: None, id: id.as_str().to_owned(), task_id: id }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptTask {
    id: TaskId,
    #[serde(default, deserialize_with = "lenient::id")]
    session_id: Option<ContextId>,
    status: lenient::Object<KeptStatus>,
    #[serde(default, deserialize_with = "lenient::objects")]
    artifacts: Vec<KeptArtifact>,
    #[serde(default, deserialize_with = "lenient::objects")]
    history: Vec<Said>,
    #[serde(default)]
    metadata: Option<JsonObject>,
}

#[derive(Deserialize)]
struct KeptStatus {
    state: LowerState,
    #[serde(default, deserialize_with = "lenient::optional_object")]
    message: Option<Said>,
    #[serde(default)]
    timestamp: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeptArtifact {
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(deserialize_with = "lenient::string")]
    description: Option<String>,
    #[serde(deserialize_with = "parts")]
    parts: Vec<Part>,
    metadata: Option<JsonObject>,
}

/// Reads a task that was kept. Without an id and a state it is none. Its artifacts are named by their numbers.
pub(in crate::dialect) fn read_task(json: &[u8]) -> Result<Task, Error> {
    let kept: KeptTask = parse(json)?;
    if kept.id.is_empty() {
        return Err(Error::invalid_params("id", "expected a task's id"));
    }
    let lenient::Object(status) = kept.status;
    let (id, context_id) = (kept.id, kept.session_id);
    let message = |said: Said| said.into_message(Some(id.clone()), context_id.clone());
    let artifacts = kept.artifacts.into_iter().enumerate().map(|(index, artifact)| Artifact {
        artifact_id: index.to_string(),
        name: artifact.name,
        description: artifact.description,
        parts: artifact.parts,
        metadata: artifact.metadata,
        extensions: Vec::new(),
    });
    Ok(Task {
        status: TaskStatus {
            state: status.state.into(),
            message: status.message.map(|said| Box::new(message(said))),
            timestamp: status.timestamp,
        },
        metadata: kept.metadata,
        generation: None,
        artifacts: artifacts.collect(),
        history: kept.history.into_iter().map(&message).collect(),
        id: id.clone(),
        context_id: context_id.clone(),
    })
}
