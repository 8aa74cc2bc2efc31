//! Reads the responses of servers that do not follow the protocol exactly, for a client.
//!
//! The readers of the versions are strict. When one of them cannot read a response, a client tries again here. This reader looks
//! at the shape of each object and not at the version that was agreed on:
//!
//! - Objects of all versions are read, wrapped in a member that names their type or not, with the names of any version.
//! - A wrong value that does no harm is replaced: a time without a zone is in UTC, an unknown state or role is unspecified, a part of
//!   an unknown kind is data, `null` is an empty list, a number is the text of an id.
//! - What is left out or replaced by a guess is a deviation, which the client logs.
//!
//! Only what a client cannot do without is an error: a task needs an id. Requests are never read here: a server stays strict, so that
//! a client learns of its mistakes.

mod card;
mod members;
mod objects;
mod part;

use serde_json::value::RawValue;

use self::members::Members;
pub use crate::dialect::v0_3::response::Event;
use crate::{
    AgentCard, Error, ListTaskPushNotificationConfigsResponse, ListTasksResponse, SendMessageResponse, Task,
    TaskPushNotificationConfig,
};

/// How many deviations of one response are remembered.
const DEVIATIONS: usize = 16;

/// A value, and what was wrong with its JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct Tolerated<T> {
    /// The value.
    pub value: T,
    /// What was replaced or left out, for a log.
    pub deviations: Vec<String>,
}

/// The binding that a response came over. Its formats of data differ, and nothing in the data tells which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// HTTP+JSON of 0.3, which puts data into an object of its own.
    HttpJson0_3,
    /// Any other binding.
    Other,
}

/// A type that is read tolerantly.
pub trait ReadTolerantly: Sized {
    /// Reads a response.
    ///
    /// ```
    /// use attache_protocol::tolerant::{ReadTolerantly, Source};
    /// use attache_protocol::Task;
    ///
    /// let json = br#"{"id": 7, "status": {"state": "working", "timestamp": "2026-11-17T00:22:05.706878"}}"#;
    /// let task = Task::read_tolerantly(Source::Other, json).unwrap().value;
    /// assert_eq!(task.id.as_str(), "7");
    /// assert_eq!(task.status.timestamp.unwrap().to_string(), "2026-11-17T00:22:05.706878Z");
    /// ```
    fn read_tolerantly(source: Source, json: &[u8]) -> Result<Tolerated<Self>, Error>;
}

macro_rules! read_tolerantly {
    ($( $name:ty = $method:ident; )+) => { $(
        impl ReadTolerantly for $name {
            fn read_tolerantly(source: Source, json: &[u8]) -> Result<Tolerated<Self>, Error> {
                let json: &RawValue = serde_json::from_slice(json)
                    .map_err(|error| Error::invalid_params("", error.to_string()))?;
                let mut reader = Reader { source, deviations: Vec::new() };
                let value = reader.$method(json)?;
                Ok(Tolerated { value, deviations: reader.deviations })
            }
        }
    )+ };
}

read_tolerantly! {
    Task = task;
    SendMessageResponse = reply;
    Event = event;
    ListTasksResponse = tasks;
    TaskPushNotificationConfig = webhook;
    ListTaskPushNotificationConfigsResponse = webhooks;
}

/// The card of any version. A member that cannot be read is left out.
impl ReadTolerantly for AgentCard {
    fn read_tolerantly(_: Source, json: &[u8]) -> Result<Tolerated<Self>, Error> {
        card::read(json)
    }
}

/// The reader of one response.
struct Reader {
    source: Source,
    deviations: Vec<String>,
}

impl Reader {
    fn note(&mut self, deviation: impl Into<String>) {
        if self.deviations.len() < DEVIATIONS {
            self.deviations.push(deviation.into());
        }
    }
}

fn missing(field: &str, what: &str) -> Error {
    Error::invalid_params(field, what)
}

/// The members of a value, which must be an object.
fn object(json: &RawValue) -> Result<Members<'_>, Error> {
    Members::of(json).ok_or_else(|| missing("", "expected an object"))
}

/// The beginning of a text, for a message.
fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}
