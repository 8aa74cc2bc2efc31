//! The messages between workers and engines. Each message is one JSON object in one text frame of a WebSocket. Its member `type`
//! names it.
//!
//! The engine and its SDKs use these messages from version 0.11 to 0.26; later versions add members and messages. Unknown members
//! are ignored. Optional members are omitted, not `null`.

mod messages;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use self::messages::*;

/// The port that engines listen on for workers.
pub const DEFAULT_PORT: u16 = 49134;

/// The largest message that is accepted, in bytes.
pub const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// One message, in either direction.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Message<'a> {
    /// The engine has accepted a worker's connection.
    WorkerRegistered(WorkerRegistered),
    /// A worker has reconnected, and proves which worker it was before.
    Reattach(Reattach),
    /// A worker registers a function.
    RegisterFunction(RegisterFunction),
    /// A worker removes a function.
    UnregisterFunction(IdOnly),
    /// A worker asks the engine to call a function on an event.
    RegisterTrigger(RegisterTrigger),
    /// A worker removes a trigger.
    UnregisterTrigger(UnregisterTrigger),
    /// The result of a trigger's registration.
    TriggerRegistrationResult(TriggerRegistrationResult),
    /// A worker provides a type of trigger.
    RegisterTriggerType(RegisterTriggerType),
    /// A worker no longer provides a type of trigger.
    UnregisterTriggerType(IdOnly),
    /// A call of a function.
    #[serde(borrow)]
    InvokeFunction(InvokeFunction<'a>),
    /// The result of a call.
    #[serde(borrow)]
    InvocationResult(InvocationResult<'a>),
    /// The engine rejects a function or a worker.
    RegistrationRejected(RegistrationRejected),
    /// A worker asks the engine to call a function on an event, since 0.26.
    Observe(Observe),
    /// A worker removes an observer.
    Unobserve(Unobserve),
    /// The result of an observer's registration.
    ObserveResult(ObserveResult),
    /// The state of an observer has changed.
    ObserverStateChanged(ObserverStateChanged),
    /// The engine reports an error, for example a rejected connection.
    Error(ErrorMessage),
    /// Asks the other side for a [`Pong`](Self::Pong).
    Ping,
    /// The response to a [`Ping`](Self::Ping).
    Pong,
}

/// Why a frame cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The frame is not a JSON object with a `type`.
    #[error("not a JSON object with a `type`: {0}")]
    NotAMessage(serde_json::Error),
    /// The message type is unknown.
    #[error("unknown message type `{0}`")]
    Unknown(String),
    /// The message is larger than its type allows.
    #[error("a `{kind}` of more than {largest} bytes")]
    TooLarge {
        /// The message type.
        kind: String,
        /// The limit in bytes.
        largest: usize,
    },
    /// The members do not fit the message type.
    #[error("invalid `{kind}`: {error}")]
    Bad {
        /// The message type.
        kind: String,
        /// What is wrong.
        error: serde_json::Error,
    },
}

impl<'a> Message<'a> {
    /// Parses a frame.
    pub fn read(text: &'a str) -> Result<Self, FrameError> {
        Self::read_up_to(usize::MAX, text)
    }

    /// Parses a frame. Only calls and results may have more than `largest` bytes.
    pub fn read_up_to(largest: usize, text: &'a str) -> Result<Self, FrameError> {
        #[derive(Deserialize)]
        struct Head<'a> {
            #[serde(borrow, rename = "type")]
            kind: Cow<'a, str>,
        }
        let Head { kind } = serde_json::from_str(text).map_err(FrameError::NotAMessage)?;
        // Calls and results keep their payload as text, so they need no more memory than the frame.
        if text.len() > largest && !matches!(&*kind, "invokefunction" | "invocationresult") {
            return Err(FrameError::TooLarge { kind: kind.chars().take(64).collect(), largest });
        }
        fn body<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
            serde_json::from_str(text)
        }
        let read = match &*kind {
            "invokefunction" => body(text).map(Message::InvokeFunction),
            "invocationresult" => body(text).map(Message::InvocationResult),
            "workerregistered" => body(text).map(Message::WorkerRegistered),
            "reattach" => body(text).map(Message::Reattach),
            "registerfunction" => body(text).map(Message::RegisterFunction),
            "unregisterfunction" => body(text).map(Message::UnregisterFunction),
            "registertrigger" => body(text).map(Message::RegisterTrigger),
            "unregistertrigger" => body(text).map(Message::UnregisterTrigger),
            "triggerregistrationresult" => body(text).map(Message::TriggerRegistrationResult),
            "registertriggertype" => body(text).map(Message::RegisterTriggerType),
            "unregistertriggertype" => body(text).map(Message::UnregisterTriggerType),
            "registrationrejected" => body(text).map(Message::RegistrationRejected),
            "observe" => body(text).map(Message::Observe),
            "unobserve" => body(text).map(Message::Unobserve),
            "observeresult" => body(text).map(Message::ObserveResult),
            "observerstatechanged" => body(text).map(Message::ObserverStateChanged),
            "error" => body(text).map(Message::Error),
            "ping" => Ok(Message::Ping),
            "pong" => Ok(Message::Pong),
            _ => return Err(FrameError::Unknown(kind.chars().take(64).collect())),
        };
        read.map_err(|error| FrameError::Bad { kind: kind.into_owned(), error })
    }

    /// Encodes the message as the text of a frame.
    pub fn write(&self) -> String {
        // Encoding strings, numbers and raw JSON into memory cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}
