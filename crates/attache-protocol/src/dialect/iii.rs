//! The dialect of the iii-a2a worker.
//!
//! Its methods are those of 0.3, its parts those of 1.0: `{"text": …}` without a `kind`, which is what tells it from 0.3. States
//! and roles are in lower case, and a task comes as `{"task": …}` whichever method asked for it. Results of functions are shown
//! as text, laid out for people.

use serde::{Deserialize, Serialize, Serializer};

use super::params::{Configuration, checked};
use super::push::TaskWebhook;
use super::words::{LowerRole, LowerState};
use super::{Answer, put, v0_3};
use crate::json::{self, lenient};
use crate::operation::parse;
use crate::{
    Artifact, Content, ContextId, Error, JsonObject, Message, Part, Request, SendMessageRequest,
    StreamResponse, Task, TaskId, TaskStatus, Timestamp,
};

/// Reads a request. All but the sends are those of 0.3.
pub(super) fn read(method: &str, params: &[u8]) -> Result<Request, Error> {
    let request = match method {
        "message/send" => Request::SendMessage(Box::new(parse::<Send>(params)?.into())),
        "message/stream" => Request::SendStreamingMessage(Box::new(parse::<Send>(params)?.into())),
        _ => return v0_3::read(method, params),
    };
    // Its parts are those of 1.0.
    let field = |operation, field: &str| match field.starts_with("message.") {
        true => Some(field.to_owned()),
        false => v0_3::field(operation, field),
    };
    checked(request, field)
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

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Said {
    #[serde(deserialize_with = "lenient::null")]
    message_id: String,
    #[serde(deserialize_with = "lenient::id")]
    context_id: Option<ContextId>,
    #[serde(deserialize_with = "lenient::id")]
    task_id: Option<TaskId>,
    role: Option<LowerRole>,
    #[serde(deserialize_with = "lenient::null")]
    parts: Vec<Part>,
    metadata: Option<JsonObject>,
    #[serde(deserialize_with = "lenient::null")]
    extensions: Vec<String>,
    #[serde(deserialize_with = "lenient::null")]
    reference_task_ids: Vec<TaskId>,
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

impl From<Send> for SendMessageRequest {
    fn from(Send { message, configuration, metadata }: Send) -> Self {
        let configuration = configuration.map(Into::into);
        Self { tenant: None, message: message.into(), configuration, metadata }
    }
}

/// A task as it is kept. Without an id and a state it is none.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptTask {
    id: TaskId,
    #[serde(default, deserialize_with = "lenient::id")]
    context_id: Option<ContextId>,
    status: lenient::Object<KeptStatus>,
    #[serde(default, deserialize_with = "lenient::objects")]
    artifacts: Vec<Artifact>,
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

impl From<KeptTask> for Task {
    fn from(kept: KeptTask) -> Self {
        let lenient::Object(KeptStatus { state, message, timestamp }) = kept.status;
        let message = message.map(|said| Box::new(said.into()));
        Self {
            id: kept.id,
            context_id: kept.context_id,
            status: TaskStatus { state: state.into(), message, timestamp },
            metadata: kept.metadata,
            generation: None,
            artifacts: kept.artifacts,
            history: kept.history.into_iter().map(Into::into).collect(),
        }
    }
}

/// Reads a task that was kept.
pub(super) fn read_task(json: &[u8]) -> Result<Task, Error> {
    let task: KeptTask = parse(json)?;
    if task.id.is_empty() {
        return Err(Error::invalid_params("id", "expected a task's id"));
    }
    Ok(task.into())
}

/// Writes a task to be kept.
pub(super) fn write_task(task: &Task, out: &mut Vec<u8>) {
    put(out, &ShownTask::new(task));
}

/// Writes an answer.
pub(super) fn write(answer: &Answer<'_>, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    enum Wrapped<'a> {
        Task(ShownTask<'a>),
        Message(ShownMessage<'a>),
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Page<'a> {
        tasks: Vec<ShownTask<'a>>,
        next_page_token: &'a str,
        page_size: i32,
        total_size: i32,
    }
    match answer {
        Answer::Sent(task) | Answer::Task(task) => put(out, &Wrapped::Task(ShownTask::new(task))),
        Answer::Message(message) => put(out, &Wrapped::Message(ShownMessage::new(message))),
        Answer::Tasks(page) => put(
            out,
            &Page {
                tasks: page.tasks.iter().map(ShownTask::new).collect(),
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
        Answer::Card(card) => put(out, &**card),
    }
}

/// Writes an event of a stream.
pub(super) fn write_event(event: &StreamResponse, out: &mut Vec<u8>) {
    #[derive(Serialize)]
    #[serde(tag = "kind", rename_all = "kebab-case")]
    enum Event<'a> {
        Task(ShownTask<'a>),
        Message(ShownMessage<'a>),
        #[serde(rename_all = "camelCase")]
        StatusUpdate {
            task_id: &'a TaskId,
            context_id: &'a ContextId,
            status: ShownStatus<'a>,
            #[serde(rename = "final")]
            is_final: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            metadata: Option<&'a JsonObject>,
        },
        #[serde(rename_all = "camelCase")]
        ArtifactUpdate {
            task_id: &'a TaskId,
            context_id: &'a ContextId,
            artifact: ShownArtifact<'a>,
            append: bool,
            last_chunk: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            metadata: Option<&'a JsonObject>,
        },
    }
    let event = match event {
        StreamResponse::Task(task) => Event::Task(ShownTask::new(task)),
        StreamResponse::Message(message) => Event::Message(ShownMessage::new(message)),
        StreamResponse::StatusUpdate(update) => Event::StatusUpdate {
            task_id: &update.task_id,
            context_id: &update.context_id,
            status: ShownStatus::new(&update.status),
            is_final: update.status.state.is_settled(),
            metadata: update.metadata.as_ref(),
        },
        StreamResponse::ArtifactUpdate(update) => Event::ArtifactUpdate {
            task_id: &update.task_id,
            context_id: &update.context_id,
            artifact: ShownArtifact::new(&update.artifact),
            append: update.append,
            last_chunk: update.last_chunk,
            metadata: update.metadata.as_ref(),
        },
    };
    put(out, &event);
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownTask<'a> {
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
    pub(super) fn new(task: &'a Task) -> Self {
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
    state: LowerState,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<ShownMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Timestamp>,
}

impl<'a> ShownStatus<'a> {
    fn new(status: &'a TaskStatus) -> Self {
        Self {
            state: status.state.into(),
            message: status.message.as_deref().map(ShownMessage::new),
            timestamp: status.timestamp,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownMessage<'a> {
    message_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a ContextId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a TaskId>,
    role: LowerRole,
    parts: &'a [Part],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

impl<'a> ShownMessage<'a> {
    fn new(message: &'a Message) -> Self {
        Self {
            message_id: &message.message_id,
            context_id: message.context_id.as_ref(),
            task_id: message.task_id.as_ref(),
            role: message.role.into(),
            parts: &message.parts,
            metadata: message.metadata.as_ref(),
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
    parts: Vec<ShownResult<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a JsonObject>,
}

impl<'a> ShownArtifact<'a> {
    fn new(artifact: &'a Artifact) -> Self {
        Self {
            artifact_id: &artifact.artifact_id,
            name: artifact.name.as_deref(),
            description: artifact.description.as_deref(),
            parts: artifact.parts.iter().map(ShownResult).collect(),
            metadata: artifact.metadata.as_ref(),
        }
    }
}

/// A part of a result. Data is laid out as text.
struct ShownResult<'a>(&'a Part);

impl Serialize for ShownResult<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.content {
            Content::Data(data) => {
                let media_type = self.0.media_type.as_deref().unwrap_or("application/json");
                let shown = Part {
                    content: Content::Text(json::pretty(data.as_str())),
                    media_type: Some(media_type.to_owned()),
                    filename: self.0.filename.clone(),
                    metadata: self.0.metadata.clone(),
                };
                shown.serialize(serializer)
            }
            Content::Text(_) | Content::Raw(_) | Content::Url(_) => self.0.serialize(serializer),
        }
    }
}
