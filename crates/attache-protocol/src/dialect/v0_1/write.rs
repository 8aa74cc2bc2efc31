//! Answers and events.

use serde::Serialize;

use crate::dialect::part::{Form, ShownParts};
use crate::dialect::push::Webhook;
use crate::dialect::words::{LowerRole, is_final, oldest_state};
use crate::dialect::{Answer, Numbers, cards, put};
use crate::{
    Artifact, ContextId, JsonObject, Message, StreamResponse, Task, TaskId, TaskPushNotificationConfig,
    TaskState, TaskStatus, Timestamp,
};

/// Writes an answer.
pub(in crate::dialect) fn write(answer: &Answer<'_>, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Page<'a> {
        tasks: Vec<ShownTask<'a>>,
    }
    match answer {
        Answer::Sent(task) | Answer::Task(task) => put(out, &ShownTask::new(task)),
        Answer::Message(message) => put(out, &ShownTask::answered(message)),
        Answer::Tasks(page) => put(out, &Page { tasks: page.tasks.iter().map(ShownTask::new).collect() }),
        Answer::Push(config) => put(out, &WatchedTask::new(config)),
        Answer::Pushes(configs) => {
            put(out, &configs.configs.iter().map(WatchedTask::new).collect::<Vec<_>>());
        }
        Answer::Done => out.extend_from_slice(b"null"),
        Answer::Card(card) => {
            let url = card.supported_interfaces.first().map_or("", |interface| &interface.url);
            put(out, &cards::v0_1_card(card, url));
        }
    }
}

/// Writes a task by itself.
pub(in crate::dialect) fn write_task(task: &Task, out: &mut Vec<u8>) {
    put(out, &ShownTask::new(task));
}

/// Writes an event of a stream. There were two: a new status, and an artifact. A whole task is a status with more beside it.
pub(in crate::dialect) fn write_event(event: &StreamResponse, numbers: &mut Numbers, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct StatusUpdate<'a> {
        id: &'a TaskId,
        status: ShownStatus<'a>,
        #[serde(rename = "final")]
        is_final: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<&'a JsonObject>,
    }
    #[derive(Serialize)]
    struct ArtifactUpdate<'a> {
        id: &'a TaskId,
        artifact: ShownArtifact<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<&'a JsonObject>,
    }
    match event {
        StreamResponse::Task(task) => {
            numbers.note(task);
            put(out, &ShownTask { is_final: Some(is_final(task.status.state)), ..ShownTask::new(task) });
        }
        StreamResponse::Message(message) => {
            put(out, &ShownTask { is_final: Some(true), ..ShownTask::answered(message) });
        }
        StreamResponse::StatusUpdate(update) => put(
            out,
            &StatusUpdate {
                id: &update.task_id,
                status: ShownStatus::new(&update.status),
                is_final: is_final(update.status.state),
                metadata: update.metadata.as_ref(),
            },
        ),
        StreamResponse::ArtifactUpdate(update) => {
            let index = numbers.of(&update.artifact.artifact_id);
            let artifact = ShownArtifact {
                append: Some(update.append),
                last_chunk: Some(update.last_chunk),
                ..ShownArtifact::new((index, &update.artifact))
            };
            put(out, &ArtifactUpdate { id: &update.task_id, artifact, metadata: update.metadata.as_ref() });
        }
    }
}

/// A task with its webhook.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WatchedTask<'a> {
    id: &'a str,
    push_notification_config: Webhook,
}

impl<'a> WatchedTask<'a> {
    fn new(config: &'a TaskPushNotificationConfig) -> Self {
        Self {
            id: config.task_id.as_ref().map_or("", TaskId::as_str),
            push_notification_config: Webhook::from(config).nameless(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownTask<'a> {
    id: &'a str,
    session_id: &'a str,
    status: ShownStatus<'a>,
    history: Vec<ShownMessage<'a>>,
    artifacts: Vec<ShownArtifact<'a>>,
    metadata: Metadata<'a>,
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    is_final: Option<bool>,
}

impl<'a> ShownTask<'a> {
    fn new(task: &'a Task) -> Self {
        Self {
            id: task.id.as_str(),
            session_id: task.context_id.as_ref().map_or("", ContextId::as_str),
            status: ShownStatus::new(&task.status),
            history: task.history.iter().map(ShownMessage::new).collect(),
            artifacts: task.artifacts.iter().enumerate().map(ShownArtifact::new).collect(),
            metadata: Metadata(task.metadata.as_ref()),
            is_final: None,
        }
    }

    /// A direct answer, as a task that it completes. Where it belongs to none, it is known by its own id.
    fn answered(message: &'a Message) -> Self {
        Self {
            id: message.task_id.as_ref().map_or(&message.message_id, TaskId::as_str),
            session_id: message.context_id.as_ref().map_or("", ContextId::as_str),
            status: ShownStatus {
                state: oldest_state(TaskState::Completed),
                message: Some(ShownMessage::new(message)),
                timestamp: None,
            },
            history: Vec::new(),
            artifacts: Vec::new(),
            metadata: Metadata(None),
            is_final: None,
        }
    }
}

/// What is said about a task: an object even where nothing is, since readers look into it.
struct Metadata<'a>(Option<&'a JsonObject>);

impl Serialize for Metadata<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(metadata) => metadata.serialize(serializer),
            None => serializer.collect_map(std::iter::empty::<((), ())>()),
        }
    }
}

#[derive(Serialize)]
struct ShownStatus<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<ShownMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Timestamp>,
}

impl<'a> ShownStatus<'a> {
    fn new(status: &'a TaskStatus) -> Self {
        Self {
            state: oldest_state(status.state),
            message: status.message.as_deref().map(ShownMessage::new),
            timestamp: status.timestamp,
        }
    }
}

#[derive(Serialize)]
struct ShownMessage<'a> {
    role: LowerRole,
    parts: ShownParts<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

impl<'a> ShownMessage<'a> {
    fn new(message: &'a Message) -> Self {
        Self {
            role: message.role.into(),
            parts: ShownParts { parts: &message.parts, form: Form::Type },
            metadata: message.metadata.as_ref(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownArtifact<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    parts: ShownParts<'a>,
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    append: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_chunk: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

impl<'a> ShownArtifact<'a> {
    fn new((index, artifact): (usize, &'a Artifact)) -> Self {
        Self {
            name: artifact.name.as_deref(),
            description: artifact.description.as_deref(),
            parts: ShownParts { parts: &artifact.parts, form: Form::Type },
            index,
            append: None,
            last_chunk: None,
            metadata: artifact.metadata.as_ref(),
        }
    }
}
