//! Answers and events.

use serde::{Serialize, Serializer};

use crate::dialect::cards;
use crate::dialect::part::{Form, ShownParts};
use crate::dialect::push::TaskWebhook;
use crate::dialect::words::{LowerRole, LowerState, is_final};
use crate::dialect::{Answer, Numbers, iii, put};
use crate::{
    Artifact, ContextId, JsonObject, Message, StreamResponse, Task, TaskArtifactUpdateEvent, TaskId,
    TaskStatus, TaskStatusUpdateEvent, Timestamp,
};

/// For whom is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::dialect) enum Manner {
    /// For those who speak 0.3, to the letter.
    Exact,
    /// For those who may speak the dialect of iii, or 0.1, as well.
    Merged,
}

impl Manner {
    const fn message(self) -> Form {
        match self {
            Self::Exact => Form::Kind,
            Self::Merged => Form::Either,
        }
    }

    const fn result(self) -> Form {
        match self {
            Self::Exact => Form::Kind,
            Self::Merged => Form::EitherResult,
        }
    }

    /// A member that only the merged form has.
    fn merged<T>(self, member: impl FnOnce() -> T) -> Option<T> {
        (self == Self::Merged).then(member)
    }
}

/// Writes an answer.
pub(in crate::dialect) fn write(answer: &Answer<'_>, manner: Manner, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Page<'a> {
        tasks: Vec<ShownTask<'a>>,
        next_page_token: &'a str,
        page_size: i32,
        total_size: i32,
    }
    match answer {
        Answer::Sent(task) | Answer::Task(task) => {
            let of_iii = manner.merged(|| iii::ShownTask::new(task));
            put(out, &ShownTask { task: of_iii, ..ShownTask::new(task, manner) });
        }
        // Only a send is answered so, and that tells which dialect it is in.
        Answer::Message(message) => put(out, &ShownMessage::new(message, manner)),
        Answer::Tasks(page) => put(
            out,
            &Page {
                tasks: page.tasks.iter().map(|task| ShownTask::new(task, manner)).collect(),
                next_page_token: &page.next_page_token,
                page_size: page.page_size,
                total_size: page.total_size,
            },
        ),
        Answer::Push(config) => put(out, &TaskWebhook::from(&**config)),
        Answer::Pushes(configs) => {
            put(out, &configs.configs.iter().map(TaskWebhook::from).collect::<Vec<_>>());
        }
        Answer::Done => out.extend_from_slice(b"null"),
        Answer::Card(card) => match manner {
            Manner::Exact => put(out, &cards::v0_3_card(card)),
            Manner::Merged => put(out, &cards::dual_card(card)),
        },
    }
}

/// Writes a task by itself.
pub(in crate::dialect) fn write_task(task: &Task, out: &mut Vec<u8>) {
    put(out, &ShownTask::new(task, Manner::Exact));
}

/// Writes an event of a stream.
pub(in crate::dialect) fn write_event(
    event: &StreamResponse,
    manner: Manner,
    numbers: &mut Numbers,
    out: &mut Vec<u8>,
) {
    match event {
        StreamResponse::Task(task) => {
            numbers.note(task);
            let is_final = manner.merged(|| is_final(task.status.state));
            put(out, &ShownTask { is_final, ..ShownTask::new(task, manner) });
        }
        StreamResponse::Message(message) => put(out, &ShownMessage::new(message, manner)),
        StreamResponse::StatusUpdate(update) => put(out, &StatusUpdate::new(update, manner)),
        StreamResponse::ArtifactUpdate(update) => {
            let index = numbers.of(&update.artifact.artifact_id);
            put(out, &ArtifactUpdate::new(update, index, manner));
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusUpdate<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a TaskId>,
    task_id: &'a TaskId,
    context_id: &'a ContextId,
    status: ShownStatus<'a>,
    #[serde(rename = "final")]
    is_final: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

impl<'a> StatusUpdate<'a> {
    fn new(update: &'a TaskStatusUpdateEvent, manner: Manner) -> Self {
        Self {
            kind: "status-update",
            id: manner.merged(|| &update.task_id),
            task_id: &update.task_id,
            context_id: &update.context_id,
            status: ShownStatus::new(&update.status, manner),
            is_final: is_final(update.status.state),
            metadata: update.metadata.as_ref(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactUpdate<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a TaskId>,
    task_id: &'a TaskId,
    context_id: &'a ContextId,
    artifact: ShownArtifact<'a>,
    append: bool,
    last_chunk: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

impl<'a> ArtifactUpdate<'a> {
    fn new(update: &'a TaskArtifactUpdateEvent, index: usize, manner: Manner) -> Self {
        let artifact = ShownArtifact {
            append: manner.merged(|| update.append),
            last_chunk: manner.merged(|| update.last_chunk),
            ..ShownArtifact::new(&update.artifact, index, manner)
        };
        Self {
            kind: "artifact-update",
            id: manner.merged(|| &update.task_id),
            task_id: &update.task_id,
            context_id: &update.context_id,
            artifact,
            append: update.append,
            last_chunk: update.last_chunk,
            metadata: update.metadata.as_ref(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownTask<'a> {
    kind: &'static str,
    id: &'a TaskId,
    /// Required, so it is there even where the task is in none.
    context_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    status: ShownStatus<'a>,
    #[serde(skip_serializing_if = "Shown::is_empty")]
    artifacts: Shown<'a, Artifact>,
    #[serde(skip_serializing_if = "Shown::is_empty")]
    history: Shown<'a, Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
    #[serde(rename = "final", skip_serializing_if = "Option::is_none")]
    is_final: Option<bool>,
    /// The task once more, for those who look for it there.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<iii::ShownTask<'a>>,
}

impl<'a> ShownTask<'a> {
    fn new(task: &'a Task, manner: Manner) -> Self {
        let context_id = task.context_id.as_ref().map_or("", ContextId::as_str);
        Self {
            kind: "task",
            id: &task.id,
            context_id,
            session_id: manner.merged(|| context_id),
            status: ShownStatus::new(&task.status, manner),
            artifacts: Shown { items: &task.artifacts, manner },
            history: Shown { items: &task.history, manner },
            metadata: task.metadata.as_ref(),
            is_final: None,
            task: None,
        }
    }
}

/// What a task has several of. Each is shown when it is its turn to be written.
struct Shown<'a, T> {
    items: &'a [T],
    manner: Manner,
}

impl<T> Shown<'_, T> {
    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl Serialize for Shown<'_, Artifact> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let artifacts = self.items.iter().enumerate();
        serializer.collect_seq(artifacts.map(|(i, artifact)| ShownArtifact::new(artifact, i, self.manner)))
    }
}

impl Serialize for Shown<'_, Message> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.items.iter().map(|message| ShownMessage::new(message, self.manner)))
    }
}

#[derive(Serialize)]
struct ShownStatus<'a> {
    state: LowerState,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<ShownMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Timestamp>,
}

impl<'a> ShownStatus<'a> {
    fn new(status: &'a TaskStatus, manner: Manner) -> Self {
        Self {
            state: status.state.into(),
            message: status.message.as_deref().map(|message| ShownMessage::new(message, manner)),
            timestamp: status.timestamp,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownMessage<'a> {
    kind: &'static str,
    message_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a ContextId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a TaskId>,
    role: LowerRole,
    parts: ShownParts<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reference_task_ids: &'a [TaskId],
}

impl<'a> ShownMessage<'a> {
    pub(super) fn new(message: &'a Message, manner: Manner) -> Self {
        Self {
            kind: "message",
            message_id: &message.message_id,
            context_id: message.context_id.as_ref(),
            task_id: message.task_id.as_ref(),
            role: message.role.into(),
            parts: ShownParts { parts: &message.parts, form: manner.message() },
            metadata: message.metadata.as_ref(),
            extensions: &message.extensions,
            reference_task_ids: &message.reference_task_ids,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownArtifact<'a> {
    artifact_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    parts: ShownParts<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    append: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_chunk: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [String],
}

impl<'a> ShownArtifact<'a> {
    fn new(artifact: &'a Artifact, index: usize, manner: Manner) -> Self {
        Self {
            artifact_id: &artifact.artifact_id,
            name: artifact.name.as_deref(),
            description: artifact.description.as_deref(),
            parts: ShownParts { parts: &artifact.parts, form: manner.result() },
            index: manner.merged(|| index),
            append: None,
            last_chunk: None,
            metadata: artifact.metadata.as_ref(),
            extensions: &artifact.extensions,
        }
    }
}
