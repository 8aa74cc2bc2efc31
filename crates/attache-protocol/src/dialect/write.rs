//! Writes responses and events in the JSON formats before 1.0.
//!
//! All formats have the same objects: tasks, statuses, messages, artifacts, webhooks. They differ in a few members and in some
//! names. Each object has one `Serialize` implementation, which asks the [`Format`] where the formats differ.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::push::Webhook;
use super::states::{LowerRole, LowerState, is_final, v0_1_state};
use super::write_part::PartJson;
use super::{ArtifactNumbers, Response, cards, put};
use crate::{
    Artifact, ContextId, ListTasksResponse, Message, Part, StreamResponse, Task, TaskArtifactUpdateEvent,
    TaskId, TaskPushNotificationConfig, TaskState, TaskStatus, TaskStatusUpdateEvent,
};

/// A JSON format of the protocol before 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// The format of the iii-a2a worker.
    Iii,
    /// 0.3 over JSON-RPC. Every object has a `kind`.
    V0_3,
    /// The format of 0.3 with the members that readers of iii and of 0.1 expect.
    Merged,
    /// The format of 0.1.
    V0_1,
    /// 0.3 over HTTP+JSON: the ProtoJSON of its proto.
    Proto,
    /// The same for the Python SDK, which encodes the bytes of files in base64 twice.
    PythonProto,
}

impl Format {
    pub(super) const fn is_proto(self) -> bool {
        matches!(self, Self::Proto | Self::PythonProto)
    }

    /// Whether every object has a `kind`.
    pub(super) const fn has_kinds(self) -> bool {
        matches!(self, Self::V0_3 | Self::Merged)
    }

    /// Whether objects have the members that only 0.1 knows.
    pub(super) const fn has_v0_1_members(self) -> bool {
        matches!(self, Self::V0_1 | Self::Merged)
    }

    /// Whether a status is the last one of a stream.
    const fn is_final(self, state: TaskState) -> bool {
        match self {
            Self::Iii => state.is_settled(),
            Self::V0_3 | Self::Merged | Self::V0_1 | Self::Proto | Self::PythonProto => is_final(state),
        }
    }

    /// The JSON of a value that is part of another object.
    pub(super) const fn json<T: ?Sized>(self, value: &T) -> Formatted<'_, T> {
        Formatted { value, format: self, position: Position::Nested }
    }

    /// The JSON of a value that is a whole result.
    const fn result<T: ?Sized>(self, value: &T) -> Formatted<'_, T> {
        Formatted { value, format: self, position: Position::Result }
    }

    /// The JSON of a value that is an event of a stream.
    const fn event<T: ?Sized>(self, value: &T) -> Formatted<'_, T> {
        Formatted { value, format: self, position: Position::Event }
    }
}

/// Where a value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Nested,
    Result,
    Event,
}

/// A value of the model that serializes to the JSON of a format.
pub(super) struct Formatted<'a, T: ?Sized> {
    value: &'a T,
    format: Format,
    position: Position,
}

/// Writes a response.
pub(super) fn write_response(response: &Response<'_>, format: Format, out: &mut Vec<u8>) {
    use Format::{Iii, Merged, Proto, PythonProto, V0_1, V0_3};
    match (response, format) {
        (Response::Sent(task), Iii | Proto | PythonProto) | (Response::Task(task), Iii) => {
            put(out, &Single("task", &format.result(&**task)));
        }
        (Response::Sent(task), V0_3 | Merged | V0_1)
        | (Response::Task(task), V0_3 | Merged | V0_1 | Proto | PythonProto) => {
            put(out, &format.result(&**task));
        }
        (Response::Message(message), Iii | Proto | PythonProto) => {
            put(out, &Single("message", &format.result(*message)));
        }
        (Response::Message(message), V0_3 | Merged) => put(out, &format.result(*message)),
        (Response::Message(message), V0_1) => put(out, &format.result(&completed_task(message))),
        (Response::Tasks(page), _) => put(out, &format.result(page)),
        (Response::Push(config), _) => put(out, &format.result(*config)),
        (Response::Pushes(page), Iii | V0_3 | Merged | V0_1) => put(out, &format.json(&page.configs[..])),
        (Response::Pushes(page), Proto | PythonProto) => {
            #[derive(Serialize)]
            #[serde(rename_all = "camelCase")]
            struct Page<'a> {
                configs: Formatted<'a, [TaskPushNotificationConfig]>,
                #[serde(skip_serializing_if = "str::is_empty")]
                next_page_token: &'a str,
            }
            let (configs, next_page_token) = (format.json(&page.configs[..]), page.next_page_token.as_str());
            put(out, &Page { configs, next_page_token });
        }
        (Response::Done, Iii | V0_3 | Merged | V0_1) => out.extend_from_slice(b"null"),
        (Response::Done, Proto | PythonProto) => out.extend_from_slice(b"{}"),
        (Response::Card(card), Iii) => put(out, *card),
        (Response::Card(card), V0_3 | Proto | PythonProto) => put(out, &cards::v0_3_card(card)),
        (Response::Card(card), Merged) => put(out, &cards::dual_card(card)),
        (Response::Card(card), V0_1) => {
            let url = card.supported_interfaces.first().map_or("", |interface| &interface.url);
            put(out, &cards::v0_1_card(card, url));
        }
    }
}

/// Writes an event of a stream. ProtoJSON wraps it in a member that names its type. iii has both forms: see [`iii`](super::iii).
pub(super) fn write_event(
    event: &StreamResponse,
    format: Format,
    numbers: &mut ArtifactNumbers,
    out: &mut Vec<u8>,
) {
    match event {
        StreamResponse::Task(task) => {
            numbers.reset(task);
            put_event(out, format, "task", |format| format.event(task));
        }
        StreamResponse::Message(message) if format == Format::V0_1 => {
            put(out, &format.event(&completed_task(message)));
        }
        StreamResponse::Message(message) => put_event(out, format, "message", |format| format.event(message)),
        StreamResponse::StatusUpdate(update) => {
            put_event(out, format, "statusUpdate", |format| format.event(update));
        }
        StreamResponse::ArtifactUpdate(update) => {
            let index = numbers.of(&update.artifact.artifact_id);
            put_event(out, format, "artifactUpdate", |format| ArtifactUpdateJson { update, index, format });
        }
    }
}

/// Writes an event of a type whose wrapper has this name.
fn put_event<T: Serialize>(
    out: &mut Vec<u8>,
    format: Format,
    name: &'static str,
    event: impl Fn(Format) -> T,
) {
    #[derive(Serialize)]
    struct Both<T: Serialize> {
        #[serde(flatten)]
        event: T,
        #[serde(flatten)]
        wrapped: Single<T>,
    }
    match format {
        Format::Proto | Format::PythonProto => put(out, &Single(name, event(format))),
        Format::Iii | Format::Merged => {
            put(out, &Both { event: event(format), wrapped: Single(name, event(Format::Iii)) });
        }
        Format::V0_3 | Format::V0_1 => put(out, &event(format)),
    }
}

/// A direct response as a completed task, since 0.1 only has tasks. A message without a task gives the task its own id.
fn completed_task(message: &Message) -> Task {
    let status =
        TaskStatus { state: TaskState::Completed, message: Some(Box::new(message.clone())), timestamp: None };
    Task {
        id: message.task_id.clone().unwrap_or_else(|| TaskId::from(message.message_id.as_str())),
        context_id: message.context_id.clone(),
        status,
        ..Task::default()
    }
}

/// A JSON object that is being written.
pub(super) struct ObjectWriter<S: Serializer>(S::SerializeStruct);

impl<S: Serializer> ObjectWriter<S> {
    pub(super) fn begin(serializer: S) -> Result<Self, S::Error> {
        // serde_json closes an object of length 0 at once. It ignores any other length.
        serializer.serialize_struct("Object", 1).map(Self)
    }

    pub(super) fn member<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), S::Error> {
        self.0.serialize_field(name, value)
    }

    /// Writes a member, unless there is no value.
    pub(super) fn optional<T: Serialize>(
        &mut self,
        name: &'static str,
        value: Option<T>,
    ) -> Result<(), S::Error> {
        value.map_or(Ok(()), |value| self.member(name, &value))
    }

    /// Writes a member, unless the list is empty.
    fn list<T: Serialize>(&mut self, name: &'static str, items: &[T]) -> Result<(), S::Error> {
        if items.is_empty() { Ok(()) } else { self.member(name, items) }
    }

    pub(super) fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

/// An object without members.
#[derive(Serialize)]
pub(super) struct Empty {}

/// An object with one member.
pub(super) struct Single<T>(pub(super) &'static str, pub(super) T);

impl<T: Serialize> Serialize for Single<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = ObjectWriter::begin(serializer)?;
        json.member(self.0, &self.1)?;
        json.end()
    }
}

impl<T: ?Sized> Formatted<'_, T> {
    /// Writes the `kind`, in formats that have one. iii has it in events only.
    fn write_kind<S: Serializer>(
        &self,
        kind: &'static str,
        json: &mut ObjectWriter<S>,
    ) -> Result<(), S::Error> {
        let is_iii_event = self.format == Format::Iii && self.position == Position::Event;
        if self.format.has_kinds() || is_iii_event { json.member("kind", kind) } else { Ok(()) }
    }
}

impl<T> Serialize for Formatted<'_, [T]>
where
    for<'a> Formatted<'a, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.value.iter().map(|item| self.format.json(item)))
    }
}

impl Serialize for Formatted<'_, Task> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { value: task, format, position } = *self;
        let context_id = task.context_id.as_ref().map_or("", ContextId::as_str);
        let artifacts = ArtifactsJson { artifacts: &task.artifacts, format };
        let history = format.json(&task.history[..]);
        let mut json = ObjectWriter::begin(serializer)?;
        self.write_kind("task", &mut json)?;
        json.member("id", &task.id)?;
        match format {
            // 0.3 requires the member, also for a task without a context.
            Format::V0_3 | Format::Merged => json.member("contextId", context_id)?,
            Format::Iii | Format::Proto | Format::PythonProto => {
                json.optional("contextId", task.context_id.as_ref())?;
            }
            Format::V0_1 => {}
        }
        if format.has_v0_1_members() {
            json.member("sessionId", context_id)?;
        }
        json.member("status", &format.json(&task.status))?;
        if format == Format::V0_1 {
            // Readers of 0.1 expect these members also where they are empty.
            json.member("history", &history)?;
            json.member("artifacts", &artifacts)?;
            match &task.metadata {
                Some(metadata) => json.member("metadata", metadata)?,
                None => json.member("metadata", &Empty {})?,
            }
        } else {
            json.optional("artifacts", Some(artifacts).filter(|it| !it.artifacts.is_empty()))?;
            json.optional("history", Some(history).filter(|it| !it.value.is_empty()))?;
            json.optional("metadata", task.metadata.as_ref())?;
        }
        if format.has_v0_1_members() && position == Position::Event {
            json.member("final", &format.is_final(task.status.state))?;
        }
        if format == Format::Merged && position == Position::Result {
            json.member("task", &Format::Iii.json(task))?;
        }
        json.end()
    }
}

impl Serialize for Formatted<'_, TaskStatus> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { value: status, format, .. } = *self;
        let mut json = ObjectWriter::begin(serializer)?;
        match (format, status.state) {
            (Format::Iii | Format::V0_3 | Format::Merged, state) => {
                json.member("state", &LowerState::from(state))?;
            }
            (Format::V0_1, state) => json.member("state", v0_1_state(state))?,
            // 1.0 spells it with one L. All other names are the same in 1.0.
            (Format::Proto | Format::PythonProto, TaskState::Canceled) => {
                json.member("state", "TASK_STATE_CANCELLED")?;
            }
            (Format::Proto | Format::PythonProto, state) => json.member("state", state.as_str())?,
        }
        json.optional("message", status.message.as_deref().map(|message| format.json(message)))?;
        json.optional("timestamp", status.timestamp)?;
        json.end()
    }
}

impl Serialize for Formatted<'_, Message> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { value: message, format, .. } = *self;
        let parts = PartsJson { parts: &message.parts, format, in_artifact: false };
        let mut json = ObjectWriter::begin(serializer)?;
        self.write_kind("message", &mut json)?;
        if format != Format::V0_1 {
            json.member("messageId", &message.message_id)?;
            json.optional("contextId", message.context_id.as_ref())?;
            json.optional("taskId", message.task_id.as_ref())?;
        }
        if format.is_proto() {
            json.member("role", &message.role)?;
            json.member("content", &parts)?;
        } else {
            json.member("role", &LowerRole::from(message.role))?;
            json.member("parts", &parts)?;
        }
        json.optional("metadata", message.metadata.as_ref())?;
        if format.has_kinds() || format.is_proto() {
            json.list("extensions", &message.extensions)?;
        }
        // The proto has no such field, and readers of ProtoJSON reject unknown members.
        if format.has_kinds() {
            json.list("referenceTaskIds", &message.reference_task_ids)?;
        }
        json.end()
    }
}

/// The parts of a message or of an artifact.
struct PartsJson<'a> {
    parts: &'a [Part],
    format: Format,
    in_artifact: bool,
}

impl Serialize for PartsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { parts, format, in_artifact } = *self;
        serializer.collect_seq(parts.iter().map(|part| PartJson { part, format, in_artifact }))
    }
}

/// The artifacts of a task. 0.1 numbers them.
struct ArtifactsJson<'a> {
    artifacts: &'a [Artifact],
    format: Format,
}

impl Serialize for ArtifactsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let artifacts = self.artifacts.iter().enumerate();
        serializer.collect_seq(artifacts.map(|(index, artifact)| ArtifactJson {
            artifact,
            index,
            update: None,
            format: self.format,
        }))
    }
}

/// An artifact of a task, or of an update.
struct ArtifactJson<'a> {
    artifact: &'a Artifact,
    index: usize,
    update: Option<&'a TaskArtifactUpdateEvent>,
    format: Format,
}

impl Serialize for ArtifactJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { artifact, index, update, format } = *self;
        let mut json = ObjectWriter::begin(serializer)?;
        if format != Format::V0_1 {
            json.member("artifactId", &artifact.artifact_id)?;
        }
        json.optional("name", artifact.name.as_ref())?;
        json.optional("description", artifact.description.as_ref())?;
        json.member("parts", &PartsJson { parts: &artifact.parts, format, in_artifact: true })?;
        if format.has_v0_1_members() {
            json.member("index", &index)?;
            json.optional("append", update.map(|update| update.append))?;
            json.optional("lastChunk", update.map(|update| update.last_chunk))?;
        }
        json.optional("metadata", artifact.metadata.as_ref())?;
        if format.has_kinds() || format.is_proto() {
            json.list("extensions", &artifact.extensions)?;
        }
        json.end()
    }
}

impl<T: ?Sized> Formatted<'_, T> {
    /// Writes the members by which an update names its task.
    fn write_ids<S: Serializer>(
        &self,
        task_id: &TaskId,
        context_id: &ContextId,
        json: &mut ObjectWriter<S>,
    ) -> Result<(), S::Error> {
        if self.format.has_v0_1_members() {
            json.member("id", task_id)?;
        }
        if self.format != Format::V0_1 {
            json.member("taskId", task_id)?;
            json.member("contextId", context_id)?;
        }
        Ok(())
    }
}

impl Serialize for Formatted<'_, TaskStatusUpdateEvent> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { value: update, format, .. } = *self;
        let mut json = ObjectWriter::begin(serializer)?;
        self.write_kind("status-update", &mut json)?;
        self.write_ids(&update.task_id, &update.context_id, &mut json)?;
        json.member("status", &format.json(&update.status))?;
        json.member("final", &format.is_final(update.status.state))?;
        json.optional("metadata", update.metadata.as_ref())?;
        json.end()
    }
}

/// An update of an artifact, with the number that 0.1 gives the artifact.
struct ArtifactUpdateJson<'a> {
    update: &'a TaskArtifactUpdateEvent,
    index: usize,
    format: Format,
}

impl Serialize for ArtifactUpdateJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { update, index, format } = *self;
        let event = format.event(update);
        let mut json = ObjectWriter::begin(serializer)?;
        event.write_kind("artifact-update", &mut json)?;
        event.write_ids(&update.task_id, &update.context_id, &mut json)?;
        let artifact = ArtifactJson { artifact: &update.artifact, index, update: Some(update), format };
        json.member("artifact", &artifact)?;
        if format != Format::V0_1 {
            json.member("append", &update.append)?;
            json.member("lastChunk", &update.last_chunk)?;
        }
        json.optional("metadata", update.metadata.as_ref())?;
        json.end()
    }
}

impl Serialize for Formatted<'_, ListTasksResponse> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = ObjectWriter::begin(serializer)?;
        json.member("tasks", &self.format.json(&self.value.tasks[..]))?;
        if self.format != Format::V0_1 {
            json.member("nextPageToken", &self.value.next_page_token)?;
            json.member("pageSize", &self.value.page_size)?;
            json.member("totalSize", &self.value.total_size)?;
        }
        json.end()
    }
}

impl Serialize for Formatted<'_, TaskPushNotificationConfig> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let config = self.value;
        let task_id = config.task_id.as_ref().map_or("", TaskId::as_str);
        let webhook = Webhook::from(config);
        let mut json = ObjectWriter::begin(serializer)?;
        match self.format {
            Format::Iii | Format::V0_3 | Format::Merged => json.member("taskId", task_id)?,
            Format::V0_1 => json.member("id", task_id)?,
            Format::Proto | Format::PythonProto => {
                let id = config.id.as_deref().unwrap_or_default();
                json.member("name", &format!("tasks/{task_id}/pushNotificationConfigs/{id}"))?;
            }
        }
        // A task of 0.1 has one webhook, which needs no id.
        let webhook = if self.format == Format::V0_1 { webhook.without_id() } else { webhook };
        json.member("pushNotificationConfig", &webhook)?;
        json.end()
    }
}
