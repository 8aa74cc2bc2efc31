//! Answers and events.

use serde::{Serialize, Serializer};

use super::part::ShownPart;
use crate::dialect::push::Webhook;
use crate::dialect::words::is_final;
use crate::dialect::{Answer, cards, put};
use crate::{
    Artifact, ContextId, JsonObject, ListTasksResponse, Message, Part, Role, StreamResponse, Task, TaskId,
    TaskPushNotificationConfig, TaskState, TaskStatus, Timestamp,
};

/// Writes an answer. The card is the one thing that is not ProtoJSON: it is written as everywhere.
pub(in crate::dialect) fn write(answer: &Answer, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Pushes<'a> {
        configs: Vec<ShownWebhook>,
        #[serde(skip_serializing_if = "str::is_empty")]
        next_page_token: &'a str,
    }
    match answer {
        Answer::Sent(task) => put(out, &Payload::Task(ShownTask::new(task))),
        Answer::Message(message) => put(out, &Payload::Message(ShownMessage::new(message))),
        Answer::Task(task) => put(out, &ShownTask::new(task)),
        Answer::Tasks(page) => write_page(page, out),
        Answer::Push(config) => put(out, &ShownWebhook::new(config)),
        Answer::Pushes(configs) => put(
            out,
            &Pushes {
                configs: configs.configs.iter().map(ShownWebhook::new).collect(),
                next_page_token: &configs.next_page_token,
            },
        ),
        Answer::Done => out.extend_from_slice(b"{}"),
        Answer::Card(card) => put(out, &cards::v0_3_card(card)),
    }
}

fn write_page(page: &ListTasksResponse, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Page<'a> {
        tasks: Vec<ShownTask<'a>>,
        next_page_token: &'a str,
        page_size: i32,
        total_size: i32,
    }
    put(
        out,
        &Page {
            tasks: page.tasks.iter().map(ShownTask::new).collect(),
            next_page_token: &page.next_page_token,
            page_size: page.page_size,
            total_size: page.total_size,
        },
    );
}

/// Writes an event of a stream.
pub(in crate::dialect) fn write_event(event: &StreamResponse, out: &mut Vec<u8>) {
    let payload = match event {
        StreamResponse::Task(task) => Payload::Task(ShownTask::new(task)),
        StreamResponse::Message(message) => Payload::Message(ShownMessage::new(message)),
        StreamResponse::StatusUpdate(update) => Payload::StatusUpdate(StatusUpdate {
            task_id: &update.task_id,
            context_id: &update.context_id,
            status: ShownStatus::new(&update.status),
            is_final: is_final(update.status.state),
            metadata: update.metadata.as_ref(),
        }),
        StreamResponse::ArtifactUpdate(update) => Payload::ArtifactUpdate(ArtifactUpdate {
            task_id: &update.task_id,
            context_id: &update.context_id,
            artifact: ShownArtifact::new(&update.artifact),
            append: update.append,
            last_chunk: update.last_chunk,
            metadata: update.metadata.as_ref(),
        }),
    };
    put(out, &payload);
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Payload<'a> {
    Task(ShownTask<'a>),
    Message(ShownMessage<'a>),
    StatusUpdate(StatusUpdate<'a>),
    ArtifactUpdate(ArtifactUpdate<'a>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusUpdate<'a> {
    task_id: &'a TaskId,
    context_id: &'a ContextId,
    status: ShownStatus<'a>,
    #[serde(rename = "final")]
    is_final: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactUpdate<'a> {
    task_id: &'a TaskId,
    context_id: &'a ContextId,
    artifact: ShownArtifact<'a>,
    append: bool,
    last_chunk: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownTask<'a> {
    id: &'a TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a ContextId>,
    status: ShownStatus<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<ShownArtifact<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<ShownMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

impl<'a> ShownTask<'a> {
    fn new(task: &'a Task) -> Self {
        Self {
            id: &task.id,
            context_id: task.context_id.as_ref(),
            status: ShownStatus::new(&task.status),
            artifacts: task.artifacts.iter().map(ShownArtifact::new).collect(),
            history: task.history.iter().map(ShownMessage::new).collect(),
            metadata: task.metadata.as_ref(),
        }
    }
}

#[derive(Serialize)]
struct ShownStatus<'a> {
    #[serde(serialize_with = "state")]
    state: TaskState,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<ShownMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Timestamp>,
}

/// The names are those of 1.0, but for one that has lost a letter since.
fn state<S: Serializer>(state: &TaskState, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match state {
        TaskState::Canceled => "TASK_STATE_CANCELLED",
        TaskState::Unspecified
        | TaskState::Submitted
        | TaskState::Working
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::InputRequired
        | TaskState::Rejected
        | TaskState::AuthRequired => state.as_str(),
    })
}

impl<'a> ShownStatus<'a> {
    fn new(status: &'a TaskStatus) -> Self {
        Self {
            state: status.state,
            message: status.message.as_deref().map(ShownMessage::new),
            timestamp: status.timestamp,
        }
    }
}

/// A message. The proto has no place for the tasks that it refers to, and readers of the time refuse what they do not know.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownMessage<'a> {
    message_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a ContextId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a TaskId>,
    role: Role,
    content: Vec<ShownPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [String],
}

impl<'a> ShownMessage<'a> {
    pub(super) fn new(message: &'a Message) -> Self {
        Self {
            message_id: &message.message_id,
            context_id: message.context_id.as_ref(),
            task_id: message.task_id.as_ref(),
            role: message.role,
            content: shown(&message.parts),
            metadata: message.metadata.as_ref(),
            extensions: &message.extensions,
        }
    }
}

fn shown(parts: &[Part]) -> Vec<ShownPart<'_>> {
    parts.iter().map(ShownPart).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownArtifact<'a> {
    artifact_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    parts: Vec<ShownPart<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [String],
}

impl<'a> ShownArtifact<'a> {
    fn new(artifact: &'a Artifact) -> Self {
        Self {
            artifact_id: &artifact.artifact_id,
            name: artifact.name.as_deref(),
            description: artifact.description.as_deref(),
            parts: shown(&artifact.parts),
            metadata: artifact.metadata.as_ref(),
            extensions: &artifact.extensions,
        }
    }
}

/// A webhook under its resource name.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownWebhook {
    name: String,
    push_notification_config: Webhook,
}

impl ShownWebhook {
    pub(super) fn new(config: &TaskPushNotificationConfig) -> Self {
        let task = config.task_id.as_ref().map_or("", TaskId::as_str);
        let webhook = config.id.as_deref().unwrap_or_default();
        Self {
            name: format!("tasks/{task}/pushNotificationConfigs/{webhook}"),
            push_notification_config: config.into(),
        }
    }
}
