//! The ways of speaking that came before 1.0, as pure translations to and from the model.
//!
//! A dialect reads the requests of its time into [`Request`]s and writes answers, events and errors as its time had them.
//! Nothing outside of here knows what the differences are.
//!
//! The other way around, for clients: [`v0_3::request`] writes requests, [`v0_3::answer`] reads what is answered, and
//! [`read_card`] reads the cards of both generations.
//!
//! # Which dialect a request is in
//!
//! `tasks/send` and `tasks/sendSubscribe` are 0.1's alone. `message/send` and `message/stream` are 0.3's where the message or
//! one of its parts has a `kind`, and iii's where none has. All other methods, such as `tasks/get`, look the same in
//! all of them: who asked so may read 0.3, iii or 0.1. They are answered in a merged form, [`Dialect::Either`]:
//!
//! - a task is the bare one of 0.3, and has in its member `task` the one of iii, so that `result.status.state` and
//!   `result.task.status.state` are both there; `sessionId` is there for 0.1;
//! - parts have a `kind` for 0.3 and the same as `type` for 0.1; in results, data is there as text too, which iii reads;
//! - in lists and streams, where a task is not wrapped by anyone, these parts are all that it takes.
//!
//! Where the address tells that 0.1 is meant, [`Dialect::oldest_of`] answers the methods that 0.1 had to its letter.
//!
//! Over HTTP+JSON only 0.3 was spoken before 1.0, in two ways: see [`HttpDialect`].

mod cards;
mod error;
mod http;
mod iii;
mod params;
mod part;
mod push;
mod read_card;
mod v0_1;
pub mod v0_3;
mod words;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use cards::{dual_card, pure_card, v0_1_card, v0_3_card};
pub use http::{HttpDialect, HttpPath, HttpRequest};
pub use read_card::read_card;
pub(crate) use v0_3::TaggedSend;

use crate::chosen_id;
use crate::json::lenient::Object;
use crate::jsonrpc::Id;
use crate::{
    AgentCard, Error, ListTaskPushNotificationConfigsResponse, ListTasksResponse, Message, Request,
    StreamResponse, Task, TaskPushNotificationConfig, Version, json,
};

/// A way of speaking other than that of 1.0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// That of the iii-a2a worker: methods with slashes, flat parts, lower-case states and roles, answers in a wrapper.
    Iii,
    /// That of protocol 0.3, and of 0.2: everything says what `kind` it is.
    V0_3,
    /// That of a request which does not tell whether it is iii's or 0.3's. It is answered so that all can read it.
    Either,
    /// That of protocol 0.1, and of AgentOS: `tasks/send` with an id of the client's choice, parts with a `type`.
    V0_1,
}

/// What is allowed in a dialect and not in 1.0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowances {
    /// A message may name a task that does not exist yet, which is then created under that id.
    pub chosen_task_ids: bool,
    /// A message to a task that has ended gets the task as it ended.
    pub ended_tasks: bool,
    /// A subscription to a task that has ended gets the task as it ended.
    pub ended_subscriptions: bool,
    /// What is said about a request is said about the task that it creates.
    pub task_metadata: bool,
    /// A webhook without a name bears the id of its task.
    pub nameless_webhooks: bool,
    /// Messages have no ids: the ones that they are given tell nothing about repeats.
    pub nameless_messages: bool,
}

/// What an operation answers, before it is written in a dialect.
#[derive(Debug)]
pub enum Answer<'a> {
    /// The task that a message led to.
    Sent(Cow<'a, Task>),
    /// A direct answer to a message.
    Message(&'a Message),
    /// A task.
    Task(Cow<'a, Task>),
    /// A page of tasks.
    Tasks(ListTasksResponse),
    /// A webhook.
    Push(&'a TaskPushNotificationConfig),
    /// Webhooks.
    Pushes(&'a ListTaskPushNotificationConfigsResponse),
    /// Done, with nothing to say.
    Done,
    /// The extended card.
    Card(&'a AgentCard),
}

impl Dialect {
    /// The dialect that a JSON-RPC request is in, if it is in one that is spoken here.
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

    /// The same at an address where 0.1 is spoken: what could be in that dialect is.
    pub fn oldest_of(method: &str, params: &[u8]) -> Option<Self> {
        match method {
            "tasks/get" | "tasks/cancel" | "tasks/resubscribe" => Some(Self::V0_1),
            _ => Self::of(method, params),
        }
    }

    /// Reads a JSON-RPC request. The method must be one of the dialect's. What is wrong is told in the dialect's words.
    pub fn read(self, method: &str, params: &[u8]) -> Result<Request, Error> {
        match self {
            Self::Iii => iii::read(method, params),
            Self::V0_3 | Self::Either => v0_3::read(method, params),
            Self::V0_1 => v0_1::read(method, params),
        }
    }

    /// What the dialect allows beyond 1.0.
    pub fn allowances(self) -> Allowances {
        let v0_3 = Allowances { ended_subscriptions: true, nameless_webhooks: true, ..Allowances::default() };
        let free = Allowances { chosen_task_ids: true, ended_tasks: true, task_metadata: true, ..v0_3 };
        match self {
            Self::V0_3 => v0_3,
            // Where it is in doubt who asks, what one of them may do is allowed.
            Self::Iii | Self::Either => free,
            Self::V0_1 => Allowances { nameless_messages: true, ..free },
        }
    }

    /// What the dialect is called where it is written down. It can be read back.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iii => "iii",
            Self::V0_3 => "0.3",
            Self::Either => "either",
            Self::V0_1 => "0.1",
        }
    }

    /// The dialect of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Iii, Self::V0_3, Self::Either, Self::V0_1].into_iter().find(|dialect| dialect.name() == name)
    }

    /// The protocol version that the dialect is counted to.
    pub fn version(self) -> Version {
        match self {
            Self::Iii | Self::V0_3 | Self::Either => Version::V0_3,
            Self::V0_1 => Version { major: 0, minor: 1 },
        }
    }

    /// Writes an answer as the result of a JSON-RPC response. Tasks bear the ids that clients chose.
    pub fn write(self, answer: &Answer<'_>, out: &mut Vec<u8>) {
        match answer {
            Answer::Sent(task) => {
                self.write_as_is(&Answer::Sent(Cow::Borrowed(&task.with_chosen_id())), out);
            }
            Answer::Task(task) => {
                self.write_as_is(&Answer::Task(Cow::Borrowed(&task.with_chosen_id())), out);
            }
            Answer::Message(message) => {
                self.write_as_is(&Answer::Message(&chosen_id::message(message)), out);
            }
            Answer::Tasks(page) if page.tasks.iter().any(|task| task.id.is_scoped()) => {
                let tasks = page.tasks.iter().map(|task| task.with_chosen_id().into_owned()).collect();
                self.write_as_is(&Answer::Tasks(ListTasksResponse { tasks, ..page.clone() }), out);
            }
            Answer::Push(config) => self.write_as_is(&Answer::Push(&chosen_id::webhook(config)), out),
            Answer::Pushes(page) => {
                let configs = page.configs.iter().map(|config| chosen_id::webhook(config).into_owned());
                let page = ListTaskPushNotificationConfigsResponse {
                    configs: configs.collect(),
                    next_page_token: page.next_page_token.clone(),
                };
                self.write_as_is(&Answer::Pushes(&page), out);
            }
            Answer::Tasks(_) | Answer::Done | Answer::Card(_) => self.write_as_is(answer, out),
        }
    }

    fn write_as_is(self, answer: &Answer<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Iii => iii::write(answer, out),
            Self::V0_3 => v0_3::write(answer, v0_3::Manner::Exact, out),
            Self::Either => v0_3::write(answer, v0_3::Manner::Merged, out),
            Self::V0_1 => v0_1::write(answer, out),
        }
    }

    /// What writes the events of one stream.
    pub fn events(self) -> Events {
        Events { dialect: self, numbers: Numbers::default() }
    }

    /// Writes a single event as the result of a JSON-RPC response. For those of a stream see [`events`](Self::events).
    pub fn write_event(self, event: &StreamResponse, out: &mut Vec<u8>) {
        self.events().write(event, out);
    }

    /// A JSON-RPC response that refuses `id`, with the codes that the dialect has.
    pub fn error_response(self, id: &Id, error: &Error) -> Vec<u8> {
        match self {
            Self::Iii | Self::V0_3 | Self::Either => error::response(id, error, error::v0_3_code),
            Self::V0_1 => error::response(id, &v0_1::renamed(error), error::v0_1_code),
        }
    }

    /// Writes a task by itself, as stores of the dialect's time keep it and webhooks get it.
    pub fn write_task(self, task: &Task, out: &mut Vec<u8>) {
        match self {
            Self::Iii => iii::write_task(task, out),
            Self::V0_3 | Self::Either => v0_3::write_task(task, out),
            Self::V0_1 => v0_1::write_task(task, out),
        }
    }

    /// Reads a task as [`write_task`](Self::write_task) writes it. What the dialect does not know is passed over.
    pub fn read_task(self, json: &[u8]) -> Result<Task, Error> {
        match self {
            Self::Iii => iii::read_task(json),
            Self::V0_3 | Self::Either => v0_3::read_task(json),
            Self::V0_1 => v0_1::read_task(json),
        }
    }
}

/// Writes the events of one stream, and remembers what the next ones refer to.
#[derive(Debug, Clone)]
pub struct Events {
    dialect: Dialect,
    numbers: Numbers,
}

impl Events {
    /// Writes the next event as the result of a JSON-RPC response.
    pub fn write(&mut self, event: &StreamResponse, out: &mut Vec<u8>) {
        let Self { dialect, numbers } = self;
        let event = &*chosen_id::event(event);
        match dialect {
            Dialect::Iii => iii::write_event(event, out),
            Dialect::V0_3 => v0_3::write_event(event, v0_3::Manner::Exact, numbers, out),
            Dialect::Either => v0_3::write_event(event, v0_3::Manner::Merged, numbers, out),
            Dialect::V0_1 => v0_1::write_event(event, numbers, out),
        }
    }
}

/// The numbers by which 0.1 knows the artifacts of a task, in the order in which they appear.
#[derive(Debug, Clone, Default)]
struct Numbers(Vec<String>);

impl Numbers {
    /// Numbers the artifacts that a task already has.
    fn note(&mut self, task: &Task) {
        self.0 = task.artifacts.iter().map(|artifact| artifact.artifact_id.clone()).collect();
    }

    fn of(&mut self, artifact_id: &str) -> usize {
        self.0.iter().position(|known| known == artifact_id).unwrap_or_else(|| {
            self.0.push(artifact_id.to_owned());
            self.0.len() - 1
        })
    }
}

/// Whether a message says of itself or of one of its parts what kind it is.
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
    /// What is not as it should be has no kind, and is refused when it is read.
    fn kinds(json: &RawValue) -> Kinds<'_> {
        serde_json::from_str(json.get()).map(|Object(kinds)| kinds).unwrap_or_default()
    }
    let Ok(Params { message: Some(message) }) = serde_json::from_slice(params) else { return false };
    let Kinds { kind, parts } = kinds(message);
    kind.is_some() || parts.into_iter().flatten().any(|part| kinds(part).kind.is_some())
}

/// Strings, numbers and values that are JSON already cannot fail to be written into memory.
fn put<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    let start = out.len();
    if json::write(out, value).is_err() {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
}
