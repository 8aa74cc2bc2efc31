//! Reads responses and events, for a client.
//!
//! Some servers respond in the JSON of 0.3's schema, in which every object has a `kind`. Those responses are read as well.

use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};

use super::read::{MessageJson, webhook_id};
use crate::dialect::part::{self, ProtoPart};
use crate::dialect::push::Webhook;
use crate::dialect::read::require_id;
use crate::dialect::v0_3::response::{self as tagged, Event};
use crate::json::lenient::{self, Object};
use crate::operation::parse;
use crate::{
    Artifact, ContextId, Error, JsonObject, ListTaskPushNotificationConfigsResponse, Message, Part,
    SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent, TaskId, TaskPushNotificationConfig,
    TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};

/// Reads the response to a message.
pub fn reply(json: &[u8]) -> Result<SendMessageResponse, Error> {
    if is_tagged(json) {
        return tagged::reply(json);
    }
    match parse::<Payload>(json)? {
        Payload { task: Some(Object(task)), .. } => task.read().map(SendMessageResponse::Task),
        Payload { message: Some(Object(message)), .. } => Ok(SendMessageResponse::Message(message.into())),
        Payload { .. } => Err(Error::invalid_params("", "expected exactly one of `task` and `message`")),
    }
}

/// Reads a task.
pub fn task(json: &[u8]) -> Result<Task, Error> {
    if is_tagged(json) { tagged::task(json) } else { parse::<TaskJson>(json)?.read() }
}

/// Reads an event of a stream. `None` means that its type is unknown.
pub fn event(json: &[u8]) -> Result<Option<Event>, Error> {
    if is_tagged(json) {
        return tagged::event(json).map(Some);
    }
    let event = |response| Ok(Some(Event { response, is_last: false }));
    match parse::<Payload>(json)? {
        Payload { task: Some(Object(task)), .. } => event(StreamResponse::Task(task.read()?)),
        Payload { message: Some(Object(message)), .. } => event(StreamResponse::Message(message.into())),
        Payload { status_update: Some(Object(update)), .. } => {
            let is_last = update.is_final;
            Ok(Some(Event { response: StreamResponse::StatusUpdate(update.into()), is_last }))
        }
        Payload { artifact_update: Some(Object(update)), .. } => {
            event(StreamResponse::ArtifactUpdate(update.into()))
        }
        Payload { .. } => Ok(None),
    }
}

/// Reads a webhook.
pub fn webhook(json: &[u8]) -> Result<TaskPushNotificationConfig, Error> {
    parse::<WebhookJson>(json)?.read()
}

/// Reads webhooks.
pub fn webhooks(json: &[u8]) -> Result<ListTaskPushNotificationConfigsResponse, Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Page {
        #[serde(deserialize_with = "lenient::objects")]
        configs: Vec<WebhookJson>,
        #[serde(alias = "next_page_token", deserialize_with = "lenient::null")]
        next_page_token: String,
    }
    let Page { configs, next_page_token } = parse(json)?;
    let configs = configs.into_iter().map(WebhookJson::read).collect::<Result<_, _>>()?;
    Ok(ListTaskPushNotificationConfigsResponse { configs, next_page_token })
}

/// Whether an object has a `kind`.
fn is_tagged(json: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct KindMember {
        #[serde(rename = "kind")]
        _kind: IgnoredAny,
    }
    serde_json::from_slice::<Object<KindMember>>(json).is_ok()
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Payload {
    task: Option<Object<TaskJson>>,
    /// The proto has two names for this field.
    #[serde(alias = "msg")]
    message: Option<Object<MessageJson>>,
    #[serde(alias = "status_update")]
    status_update: Option<Object<StatusUpdate>>,
    #[serde(alias = "artifact_update")]
    artifact_update: Option<Object<ArtifactUpdate>>,
}

/// A task. It must have an id.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TaskJson {
    #[serde(deserialize_with = "lenient::null")]
    id: TaskId,
    #[serde(alias = "context_id", deserialize_with = "lenient::id")]
    context_id: Option<ContextId>,
    #[serde(deserialize_with = "lenient::object")]
    status: StatusJson,
    #[serde(deserialize_with = "lenient::objects")]
    artifacts: Vec<ArtifactJson>,
    #[serde(deserialize_with = "lenient::objects")]
    history: Vec<MessageJson>,
    metadata: Option<JsonObject>,
}

impl TaskJson {
    fn read(self) -> Result<Task, Error> {
        require_id(&self.id)?;
        Ok(Task {
            id: self.id,
            context_id: self.context_id,
            status: self.status.into(),
            metadata: self.metadata,
            generation: None,
            artifacts: self.artifacts.into_iter().map(Into::into).collect(),
            history: self.history.into_iter().map(Into::into).collect(),
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusJson {
    #[serde(deserialize_with = "state")]
    state: TaskState,
    /// The proto has two names for this field.
    #[serde(alias = "update", deserialize_with = "lenient::optional_object")]
    message: Option<MessageJson>,
    timestamp: Option<Timestamp>,
}

/// A state by its name or its number. All names are those of 1.0, except `TASK_STATE_CANCELLED`.
fn state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TaskState, D::Error> {
    let Some(raw) = Option::<Box<serde_json::value::RawValue>>::deserialize(deserializer)? else {
        return Ok(TaskState::default());
    };
    match raw.get() {
        r#""TASK_STATE_CANCELLED""# => Ok(TaskState::Canceled),
        text => serde_json::from_str(text).map_err(D::Error::custom),
    }
}

impl From<StatusJson> for TaskStatus {
    fn from(StatusJson { state, message, timestamp }: StatusJson) -> Self {
        let message: Option<Message> = message.map(Into::into);
        Self { state, message: message.map(Box::new), timestamp }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ArtifactJson {
    #[serde(alias = "artifact_id", deserialize_with = "lenient::null")]
    artifact_id: String,
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(deserialize_with = "lenient::string")]
    description: Option<String>,
    #[serde(deserialize_with = "part::parts::<_, ProtoPart>")]
    parts: Vec<Part>,
    metadata: Option<JsonObject>,
    #[serde(deserialize_with = "lenient::null")]
    extensions: Vec<String>,
}

impl From<ArtifactJson> for Artifact {
    fn from(it: ArtifactJson) -> Self {
        Self {
            artifact_id: it.artifact_id,
            name: it.name,
            description: it.description,
            parts: it.parts,
            metadata: it.metadata,
            extensions: it.extensions,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StatusUpdate {
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    task_id: TaskId,
    #[serde(alias = "context_id", deserialize_with = "lenient::null")]
    context_id: ContextId,
    #[serde(deserialize_with = "lenient::object")]
    status: StatusJson,
    #[serde(rename = "final", deserialize_with = "lenient::null")]
    is_final: bool,
    metadata: Option<JsonObject>,
}

impl From<StatusUpdate> for TaskStatusUpdateEvent {
    fn from(it: StatusUpdate) -> Self {
        Self {
            task_id: it.task_id,
            context_id: it.context_id,
            status: it.status.into(),
            metadata: it.metadata,
            generation: None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ArtifactUpdate {
    #[serde(alias = "task_id", deserialize_with = "lenient::null")]
    task_id: TaskId,
    #[serde(alias = "context_id", deserialize_with = "lenient::null")]
    context_id: ContextId,
    #[serde(deserialize_with = "lenient::object")]
    artifact: ArtifactJson,
    #[serde(deserialize_with = "lenient::null")]
    append: bool,
    #[serde(alias = "last_chunk", deserialize_with = "lenient::null")]
    last_chunk: bool,
    metadata: Option<JsonObject>,
}

impl From<ArtifactUpdate> for TaskArtifactUpdateEvent {
    fn from(it: ArtifactUpdate) -> Self {
        Self {
            task_id: it.task_id,
            context_id: it.context_id,
            artifact: it.artifact.into(),
            append: it.append,
            last_chunk: it.last_chunk,
            metadata: it.metadata,
            generation: None,
        }
    }
}

/// A webhook with its resource name, or with the id of its task.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WebhookJson {
    #[serde(deserialize_with = "lenient::string")]
    name: Option<String>,
    #[serde(alias = "task_id", deserialize_with = "lenient::id")]
    task_id: Option<TaskId>,
    #[serde(alias = "push_notification_config", deserialize_with = "lenient::object")]
    push_notification_config: Webhook,
}

impl WebhookJson {
    fn read(self) -> Result<TaskPushNotificationConfig, Error> {
        let Self { name, task_id, push_notification_config } = self;
        let Some(name) = name else {
            return Ok(push_notification_config.for_task(task_id.unwrap_or_default()));
        };
        let task = name.strip_prefix("tasks/").and_then(|rest| rest.split('/').next()).unwrap_or_default();
        let own = webhook_id(&name, task).map_err(|text| Error::invalid_params("name", text))?;
        Ok(push_notification_config.or_id(own).for_task(TaskId::from(task)))
    }
}
