//! Reads responses of a server of 0.3, for a client.
//!
//! Every object has a `kind`. Some servers leave it out; then the members of the object decide. Errors have the field names of
//! 0.3.

use std::borrow::Cow;

use serde::Deserialize;

use super::read::{self, ArtifactJson, V0_3};
use crate::dialect::push::TaskWebhook;
use crate::dialect::read::{MessageJson, StatusJson, TaskJson};
use crate::json::lenient::{self, Object};
use crate::operation::parse;
use crate::{
    ContextId, Error, JsonObject, ListTaskPushNotificationConfigsResponse, ListTasksResponse, Message,
    SendMessageResponse, StreamResponse, Task, TaskArtifactUpdateEvent, TaskId, TaskPushNotificationConfig,
    TaskStatusUpdateEvent,
};

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The event itself.
    pub response: StreamResponse,
    /// Whether the server marked the event as the last one. It may do so in any state of the task.
    pub is_last: bool,
}

/// Reads the response to a message.
pub fn reply(json: &[u8]) -> Result<SendMessageResponse, Error> {
    match kind(json)? {
        Kind::Task => task(json).map(SendMessageResponse::Task),
        Kind::Message => message(json).map(SendMessageResponse::Message),
        Kind::StatusUpdate | Kind::ArtifactUpdate => {
            Err(Error::invalid_params("kind", "expected `task` or `message`"))
        }
    }
}

/// Reads a task.
pub fn task(json: &[u8]) -> Result<Task, Error> {
    read::read_task(json)
}

/// Reads an event of a stream.
pub fn event(json: &[u8]) -> Result<Event, Error> {
    let event = |response| Event { response, is_last: false };
    match kind(json)? {
        Kind::Task => task(json).map(StreamResponse::Task).map(event),
        Kind::Message => message(json).map(StreamResponse::Message).map(event),
        Kind::StatusUpdate => parse::<StatusUpdate>(json).map(Into::into),
        Kind::ArtifactUpdate => {
            parse::<ArtifactUpdate>(json).map(Into::into).map(StreamResponse::ArtifactUpdate).map(event)
        }
    }
}

/// Reads a page of tasks. Some servers respond with a list of all tasks.
pub fn tasks(json: &[u8]) -> Result<ListTasksResponse, Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Page {
        #[serde(deserialize_with = "lenient::objects")]
        tasks: Vec<TaskJson<V0_3>>,
        #[serde(deserialize_with = "lenient::null")]
        next_page_token: String,
        #[serde(deserialize_with = "lenient::int_or_zero")]
        page_size: i32,
        #[serde(deserialize_with = "lenient::int")]
        total_size: Option<i32>,
    }
    let page =
        if is_list(json) { Page { tasks: list(json)?, ..Page::default() } } else { parse::<Page>(json)? };
    let count = i32::try_from(page.tasks.len()).unwrap_or(i32::MAX);
    Ok(ListTasksResponse {
        tasks: page.tasks.into_iter().map(Into::into).collect(),
        next_page_token: page.next_page_token,
        page_size: page.page_size,
        total_size: page.total_size.unwrap_or(count),
    })
}

/// Reads a webhook.
pub fn webhook(json: &[u8]) -> Result<TaskPushNotificationConfig, Error> {
    parse::<TaskWebhook>(json).map(Into::into)
}

/// Reads a list of webhooks.
pub fn webhooks(json: &[u8]) -> Result<ListTaskPushNotificationConfigsResponse, Error> {
    let configs = list::<TaskWebhook>(json)?.into_iter().map(Into::into).collect();
    Ok(ListTaskPushNotificationConfigsResponse { configs, next_page_token: String::new() })
}

fn message(json: &[u8]) -> Result<Message, Error> {
    parse::<MessageJson<V0_3>>(json).map(Into::into)
}

fn is_list(json: &[u8]) -> bool {
    json.trim_ascii_start().first() == Some(&b'[')
}

fn list<T: for<'de> Deserialize<'de>>(json: &[u8]) -> Result<Vec<T>, Error> {
    let items: Vec<Object<T>> =
        serde_json::from_slice(json).map_err(|error| Error::invalid_params("", error.to_string()))?;
    Ok(items.into_iter().map(|Object(item)| item).collect())
}

/// The type of an object.
enum Kind {
    Task,
    Message,
    StatusUpdate,
    ArtifactUpdate,
}

fn kind(json: &[u8]) -> Result<Kind, Error> {
    use serde::de::IgnoredAny;

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct KindMembers<'a> {
        #[serde(borrow)]
        kind: Option<Cow<'a, str>>,
        parts: Option<IgnoredAny>,
        artifact: Option<IgnoredAny>,
        status: Option<IgnoredAny>,
        id: Option<IgnoredAny>,
    }
    let Object(members): Object<KindMembers<'_>> =
        serde_json::from_slice(json).map_err(|error| Error::invalid_params("", error.to_string()))?;
    match members.kind.as_deref() {
        Some("task") => Ok(Kind::Task),
        Some("message") => Ok(Kind::Message),
        Some("status-update") => Ok(Kind::StatusUpdate),
        Some("artifact-update") => Ok(Kind::ArtifactUpdate),
        Some(other) => {
            let other: String = other.chars().take(64).collect();
            let expected = "`task`, `message`, `status-update`, `artifact-update`";
            Err(Error::invalid_params(
                "kind",
                format!("unknown value `{other}`, expected one of: {expected}"),
            ))
        }
        None if members.artifact.is_some() => Ok(Kind::ArtifactUpdate),
        None if members.status.is_some() && members.id.is_some() => Ok(Kind::Task),
        None if members.status.is_some() => Ok(Kind::StatusUpdate),
        None if members.parts.is_some() => Ok(Kind::Message),
        None => Err(Error::invalid_params("kind", "is missing, and the other members fit none of the kinds")),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusUpdate {
    task_id: TaskId,
    #[serde(default, deserialize_with = "lenient::null")]
    context_id: ContextId,
    status: Object<StatusJson<MessageJson<V0_3>>>,
    #[serde(default, rename = "final", deserialize_with = "lenient::null")]
    is_final: bool,
    #[serde(default)]
    metadata: Option<JsonObject>,
}

impl From<StatusUpdate> for Event {
    fn from(update: StatusUpdate) -> Self {
        let Object(status) = update.status;
        Self {
            response: StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
                task_id: update.task_id,
                context_id: update.context_id,
                status: status.into(),
                metadata: update.metadata,
                generation: None,
            }),
            is_last: update.is_final,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactUpdate {
    task_id: TaskId,
    #[serde(default, deserialize_with = "lenient::null")]
    context_id: ContextId,
    artifact: Object<ArtifactJson>,
    #[serde(default, deserialize_with = "lenient::null")]
    append: bool,
    #[serde(default, deserialize_with = "lenient::null")]
    last_chunk: bool,
    #[serde(default)]
    metadata: Option<JsonObject>,
}

impl From<ArtifactUpdate> for TaskArtifactUpdateEvent {
    fn from(update: ArtifactUpdate) -> Self {
        let Object(artifact) = update.artifact;
        Self {
            task_id: update.task_id,
            context_id: update.context_id,
            artifact: artifact.into(),
            append: update.append,
            last_chunk: update.last_chunk,
            metadata: update.metadata,
            generation: None,
        }
    }
}
