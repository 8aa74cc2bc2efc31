//! The JSON of the protocol before 1.0, as pure translations to and from the model.
//!
//! A dialect reads requests into [`Request`]s and writes responses, events and errors. No other module knows the differences
//! between the versions.
//!
//! For clients, [`v0_3::request`] and [`v0_1::request`] write requests, [`v0_3::response`] and [`v0_1::response`] read responses, and
//! [`read_card`] reads the cards of all versions.
//!
//! # How the dialect of a request is recognized
//!
//! `tasks/send` and `tasks/sendSubscribe` only exist in 0.1. `message/send` and `message/stream` are 0.3 if the message or one of
//! its parts has a `kind`; otherwise they are iii. All other methods, such as `tasks/get`, look the same in all dialects, so the
//! client may expect 0.3, iii or 0.1. Their responses have a merged format, [`Dialect::Either`]:
//!
//! - A task is that of 0.3. Its member `task` holds the task of iii, so that both `result.status.state` and
//!   `result.task.status.state` exist. `sessionId` exists for 0.1.
//! - Parts have a `kind` for 0.3 and the same value as `type` for 0.1. In artifacts, data also exists as text for iii.
//! - An event of a stream has the same members in 0.3 and in iii, and once more those of iii in a member that names its type.
//! - In lists no dialect wraps a task, so there the merged parts suffice.
//!
//! At a path that is configured for 0.1, [`Dialect::of_v0_1`] treats the methods that 0.1 has as 0.1.
//!
//! Over HTTP+JSON only 0.3 existed before 1.0, in two formats: see [`HttpDialect`].

mod cards;
mod http;
mod iii;
mod methods;
mod params;
mod part;
mod push;
mod read;
mod read_card;
mod states;
pub mod v0_1;
pub mod v0_3;
mod write;
mod write_part;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use cards::{dual_card, pure_card, v0_1_card, v0_3_card};
pub use http::{HttpDialect, HttpPath, HttpRequest};
pub(crate) use part::data_part;
pub use read_card::read_card;
pub(crate) use v0_3::TaggedSend;
use write::Format;

use crate::chosen_id;
use crate::json::lenient::Object;
use crate::jsonrpc::{self, Id};
use crate::{
    AgentCard, Error, ListTaskPushNotificationConfigsResponse, ListTasksResponse, Message, Request,
    StreamResponse, Task, TaskPushNotificationConfig, Version, json,
};

/// A JSON-RPC dialect of the protocol before 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The dialect of the iii-a2a worker: methods with slashes, the parts of 1.0, lower-case states and roles, wrapped responses.
    Iii,
    /// Protocol 0.3, and 0.2: every object has a `kind`.
    V0_3,
    /// The request could be of 0.3, iii or 0.1. The response has a format that clients of all three can read.
    Either,
    /// Protocol 0.1, and AgentOS: `tasks/send`, task ids that the client chooses, parts with a `type`.
    V0_1,
}

/// What a dialect allows and 1.0 does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DialectRules {
    /// A message may name a task that does not exist. The task is then created with that id.
    pub chosen_task_ids: bool,
    /// The response to a message to an ended task is the task. No error.
    pub ended_tasks: bool,
    /// A subscription to an ended task gets the task. No error.
    pub ended_subscriptions: bool,
    /// The metadata of a request becomes the metadata of the task that it creates.
    pub task_metadata: bool,
    /// A webhook without an id gets the id of its task.
    pub nameless_webhooks: bool,
    /// Clients do not know pages: a list without a page size has all tasks.
    pub whole_lists: bool,
    /// Messages have no ids of their own. The server must not use their ids to detect repeated messages.
    pub nameless_messages: bool,
}

/// The response of an operation, before a dialect writes it.
#[derive(Debug)]
pub enum Response<'a> {
    /// The task of a message that was sent.
    Sent(Cow<'a, Task>),
    /// A direct response to a message.
    Message(&'a Message),
    /// A task.
    Task(Cow<'a, Task>),
    /// A page of tasks.
    Tasks(ListTasksResponse),
    /// A webhook.
    Push(&'a TaskPushNotificationConfig),
    /// Webhooks.
    Pushes(&'a ListTaskPushNotificationConfigsResponse),
    /// The operation is done and has no result.
    Done,
    /// The extended card.
    Card(&'a AgentCard),
}

impl Dialect {
    /// The dialect of a JSON-RPC request. `None` if no dialect has the method.
    ///
    /// ```
    /// use attache_protocol::Dialect;
    ///
    /// let flat = br#"{"message": {"parts": [{"text": "hi"}]}}"#;
    /// let tagged = br#"{"message": {"parts": [{"kind": "text", "text": "hi"}]}}"#;
    /// assert_eq!(Dialect::of("message/send", flat), Some(Dialect::Iii));
    /// assert_eq!(Dialect::of("message/send", tagged), Some(Dialect::V0_3));
    /// assert_eq!(Dialect::of("tasks/get", br#"{"id": "t"}"#), Some(Dialect::Either));
    /// ```
    pub fn of(method: &str, params: &[u8]) -> Option<Self> {
        match method {
            "message/send" | "message/stream" => Some(if has_kinds(params) { Self::V0_3 } else { Self::Iii }),
            "tasks/send"
            | "tasks/sendSubscribe"
            | "tasks/pushNotification/set"
            | "tasks/pushNotification/get" => Some(Self::V0_1),
            "tasks/get"
            | "tasks/cancel"
            | "tasks/list"
            | "tasks/resubscribe"
            | "tasks/pushNotificationConfig/set"
            | "tasks/pushNotificationConfig/get"
            | "tasks/pushNotificationConfig/list"
            | "tasks/pushNotificationConfig/delete"
            | "agent/getAuthenticatedExtendedCard"
            | "agent/authenticatedExtendedCard" => Some(Self::Either),
            _ => None,
        }
    }

    /// The same at a path for 0.1, where every method that 0.1 has is of 0.1.
    pub fn of_v0_1(method: &str, params: &[u8]) -> Option<Self> {
        match method {
            "tasks/get" | "tasks/cancel" | "tasks/resubscribe" => Some(Self::V0_1),
            _ => Self::of(method, params),
        }
    }

    /// Reads a JSON-RPC request. The dialect must have the method. Errors have the field names of the dialect.
    pub fn read(self, method: &str, params: &[u8]) -> Result<Request, Error> {
        match self {
            Self::Iii => iii::read(method, params),
            Self::V0_3 => v0_3::read(method, params).map(with_page_size),
            Self::Either => v0_3::read(method, params),
            Self::V0_1 => v0_1::read(method, params),
        }
    }

    /// The method of iii that a request of an iii client calls by a name of 1.0: a send whose role is in lower case. `None` for any
    /// other request.
    pub fn iii_alias(method: &str, params: &[u8]) -> Option<&'static str> {
        let alias = match method {
            "SendMessage" => "message/send",
            "SendStreamingMessage" => "message/stream",
            _ => return None,
        };
        iii::has_lower_case_role(params).then_some(alias)
    }

    /// What the dialect allows and 1.0 does not.
    pub fn rules(self) -> DialectRules {
        let v0_3 =
            DialectRules { ended_subscriptions: true, nameless_webhooks: true, ..DialectRules::default() };
        let iii = DialectRules { chosen_task_ids: true, ended_tasks: true, task_metadata: true, ..v0_3 };
        match self {
            Self::V0_3 => v0_3,
            // If the dialect is unknown, everything is allowed that one of the dialects allows.
            Self::Iii | Self::Either => DialectRules { whole_lists: true, ..iii },
            Self::V0_1 => DialectRules { nameless_messages: true, ..iii },
        }
    }

    /// The name of the dialect, for storage. [`from_name`](Self::from_name) is the inverse.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iii => "iii",
            Self::V0_3 => "0.3",
            Self::Either => "either",
            Self::V0_1 => "0.1",
        }
    }

    /// The dialect with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Iii, Self::V0_3, Self::Either, Self::V0_1].into_iter().find(|dialect| dialect.name() == name)
    }

    /// The protocol version of the dialect.
    pub fn version(self) -> Version {
        match self {
            Self::Iii | Self::V0_3 | Self::Either => Version::V0_3,
            Self::V0_1 => Version::V0_1,
        }
    }

    /// Writes a response as the result of a JSON-RPC response. Tasks have the ids that clients chose.
    pub fn write(self, response: &Response<'_>, out: &mut Vec<u8>) {
        let write = |response: &Response<'_>, out| write::write_response(response, self.format(), out);
        match response {
            Response::Sent(task) => write(&Response::Sent(Cow::Borrowed(&task.with_chosen_id())), out),
            Response::Task(task) => write(&Response::Task(Cow::Borrowed(&task.with_chosen_id())), out),
            Response::Message(message) => write(&Response::Message(&chosen_id::message(message)), out),
            Response::Tasks(page) if page.tasks.iter().any(|task| task.id.is_scoped()) => {
                let tasks = page.tasks.iter().map(|task| task.with_chosen_id().into_owned()).collect();
                write(&Response::Tasks(ListTasksResponse { tasks, ..page.clone() }), out);
            }
            Response::Push(config) => write(&Response::Push(&chosen_id::webhook(config)), out),
            Response::Pushes(page) => {
                let configs = page.configs.iter().map(|config| chosen_id::webhook(config).into_owned());
                let page = ListTaskPushNotificationConfigsResponse {
                    configs: configs.collect(),
                    next_page_token: page.next_page_token.clone(),
                };
                write(&Response::Pushes(&page), out);
            }
            Response::Tasks(_) | Response::Done | Response::Card(_) => write(response, out),
        }
    }

    const fn format(self) -> Format {
        match self {
            Self::Iii => Format::Iii,
            Self::V0_3 => Format::V0_3,
            Self::Either => Format::Merged,
            Self::V0_1 => Format::V0_1,
        }
    }

    /// A writer for the events of one stream.
    pub fn events(self) -> EventWriter {
        EventWriter { dialect: self, numbers: ArtifactNumbers::default() }
    }

    /// Writes a single event as the result of a JSON-RPC response. [`events`](Self::events) writes the events of a stream.
    pub fn write_event(self, event: &StreamResponse, out: &mut Vec<u8>) {
        self.events().write(event, out);
    }

    /// A JSON-RPC error response to `id`, with the error code of the dialect.
    pub fn error_response(self, id: &Id, error: &Error) -> Vec<u8> {
        match self {
            Self::Iii | Self::Either => {
                jsonrpc::error_response_as(id, &iii::worded(error), error.kind().v0_3_code())
            }
            Self::V0_3 => jsonrpc::error_response_as(id, error, error.kind().v0_3_code()),
            Self::V0_1 => {
                let error = v0_1::with_field_names(error);
                jsonrpc::error_response_as(id, &error, error.kind().v0_1_code())
            }
        }
    }

    /// Writes a task without an envelope, for stores and webhooks.
    pub fn write_task(self, task: &Task, out: &mut Vec<u8>) {
        let format = match self {
            Self::Either => Format::V0_3,
            Self::Iii | Self::V0_3 | Self::V0_1 => self.format(),
        };
        put(out, &format.json(task));
    }

    /// Reads a task that [`write_task`](Self::write_task) wrote. Unknown members are ignored.
    pub fn read_task(self, json: &[u8]) -> Result<Task, Error> {
        match self {
            Self::Iii => iii::read_task(json),
            Self::V0_3 | Self::Either => v0_3::read_task(json),
            Self::V0_1 => v0_1::read_task(json),
        }
    }
}

/// Writes the events of one stream. It remembers the numbers of artifacts for later events.
#[derive(Debug, Clone)]
pub struct EventWriter {
    dialect: Dialect,
    numbers: ArtifactNumbers,
}

impl EventWriter {
    /// Writes the next event as the result of a JSON-RPC response.
    pub fn write(&mut self, event: &StreamResponse, out: &mut Vec<u8>) {
        write::write_event(&chosen_id::event(event), self.dialect.format(), &mut self.numbers, out);
    }
}

/// The numbers of a task's artifacts, in order of appearance. 0.1 has them instead of ids.
#[derive(Debug, Clone, Default)]
struct ArtifactNumbers(Vec<String>);

impl ArtifactNumbers {
    /// Starts with the artifacts that the task already has.
    fn reset(&mut self, task: &Task) {
        self.0 = task.artifacts.iter().map(|artifact| artifact.artifact_id.clone()).collect();
    }

    fn of(&mut self, artifact_id: &str) -> usize {
        self.0.iter().position(|known| known == artifact_id).unwrap_or_else(|| {
            self.0.push(artifact_id.to_owned());
            self.0.len() - 1
        })
    }
}

/// Sets the page size of a list, if the client does not.
fn with_page_size(mut request: Request) -> Request {
    if let Request::ListTasks(list) = &mut request {
        list.page_size.get_or_insert(params::PAGE_SIZE);
    }
    request
}

/// Whether a message or one of its parts has a `kind`.
fn has_kinds(params: &[u8]) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Params<'a> {
        #[serde(borrow)]
        message: Option<&'a RawValue>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Kinds<'a> {
        #[serde(borrow)]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        parts: Option<Vec<&'a RawValue>>,
    }
    /// Invalid JSON has no kind. It is rejected later, when it is read.
    fn kinds(json: &RawValue) -> Kinds<'_> {
        serde_json::from_str(json.get()).map(|Object(kinds)| kinds).unwrap_or_default()
    }
    let Ok(Params { message: Some(message) }) = serde_json::from_slice(params) else { return false };
    let Kinds { kind, parts } = kinds(message);
    kind.is_some() || parts.into_iter().flatten().any(|part| kinds(part).kind.is_some())
}

/// Writes a value as JSON. Values of the model cannot fail to serialize into memory; if one did, the result would be `null`.
fn put<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    let start = out.len();
    if json::write(out, value).is_err() {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}
