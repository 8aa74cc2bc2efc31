//! What workers and engines say to each other: one JSON object in one text frame of a WebSocket, told apart by its `type`.
//!
//! Versions 0.11 to 0.26 of the engine and its SDKs speak this; later ones add members and messages. Members that are not known
//! here are ignored, members that are optional are left out rather than `null`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

/// The port that engines listen on for workers.
pub const DEFAULT_PORT: u16 = 49134;

/// The largest message that is taken.
pub const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// One message, from either side.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Message<'a> {
    /// The engine has let a worker in.
    WorkerRegistered(WorkerRegistered),
    /// A worker is back and proves that it is the one from before.
    Reattach(Reattach),
    /// A worker has a function.
    RegisterFunction(RegisterFunction),
    /// A worker has it no more.
    UnregisterFunction(Named),
    /// A function wants to be called when something happens.
    RegisterTrigger(RegisterTrigger),
    /// It does not want to any more.
    UnregisterTrigger(UnregisterTrigger),
    /// What became of a trigger.
    TriggerRegistrationResult(TriggerRegistrationResult),
    /// A worker can fire triggers of a kind.
    RegisterTriggerType(RegisterTriggerType),
    /// It can no more.
    UnregisterTriggerType(Named),
    /// A call.
    #[serde(borrow)]
    InvokeFunction(InvokeFunction<'a>),
    /// What a call brought.
    #[serde(borrow)]
    InvocationResult(InvocationResult<'a>),
    /// A function or a worker is not taken.
    RegistrationRejected(RegistrationRejected),
    /// A function wants to be called when something happens, in the words of 0.26.
    Observe(Observe),
    /// It does not want to any more.
    Unobserve(Unobserve),
    /// What became of an observer.
    ObserveResult(ObserveResult),
    /// An observer has changed.
    ObserverStateChanged(ObserverStateChanged),
    /// The engine does not let a worker in.
    Error(ErrorMessage),
    /// Are you there?
    Ping,
    /// Yes.
    Pong,
}

/// A message that is not understood.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// It is not a message at all.
    #[error("not a JSON object with a `type`: {0}")]
    NotAMessage(serde_json::Error),
    /// Its type is not known here.
    #[error("the message type `{0}` is not known")]
    Unknown(String),
    /// It is larger than messages of its type may be.
    #[error("a `{kind}` of more than {largest} bytes")]
    TooLarge {
        /// The type.
        kind: String,
        /// How many bytes it may have.
        largest: usize,
    },
    /// It is not what its type says.
    #[error("a bad `{kind}`: {error}")]
    Bad {
        /// The type.
        kind: String,
        /// What is wrong.
        error: serde_json::Error,
    },
}

impl<'a> Message<'a> {
    /// Reads a frame.
    pub fn read(text: &'a str) -> Result<Self, FrameError> {
        Self::read_up_to(usize::MAX, text)
    }

    /// Reads a frame. Messages other than calls and results may have `largest` bytes.
    pub fn read_up_to(largest: usize, text: &'a str) -> Result<Self, FrameError> {
        #[derive(Deserialize)]
        struct Head<'a> {
            #[serde(borrow, rename = "type")]
            kind: Cow<'a, str>,
        }
        let Head { kind } = serde_json::from_str(text).map_err(FrameError::NotAMessage)?;
        // What calls and results carry stays text, so they take no more memory than the frame does.
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

    /// The frame.
    pub fn write(&self) -> String {
        // Strings, numbers and values that are JSON already cannot fail to be written into memory.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The engine has let a worker in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerRegistered {
    /// The worker's id, for as long as the connection lasts.
    pub worker_id: String,
    /// What proves later that it was this worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reattach_token: Option<String>,
    /// What the engine can do beyond the common.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// A worker is back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reattach {
    /// Its id in the connection before.
    pub previous_worker_id: String,
    /// The token of that connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reattach_token: Option<String>,
}

/// A function of a worker's.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RegisterFunction {
    /// Its id.
    pub id: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_format: Option<Value>,
    /// The JSON Schema of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Value>,
    /// What else there is to say about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// How the engine calls it over HTTP, if it is not the worker that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<Value>,
}

/// Something that has an id and nothing else that matters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Named {
    /// The id.
    pub id: String,
}

/// A function wants to be called when something happens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegisterTrigger {
    /// The trigger's id.
    pub id: String,
    /// What kind of trigger.
    pub trigger_type: String,
    /// The function to call.
    pub function_id: String,
    /// When to call it, in the words of the kind.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
    /// What to tell the function with each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// A function does not want to be called any more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UnregisterTrigger {
    /// The trigger's id.
    pub id: String,
    /// What kind of trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_type: Option<String>,
}

/// What became of a trigger.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TriggerRegistrationResult {
    /// The trigger's id.
    pub id: String,
    /// What kind of trigger.
    pub trigger_type: String,
    /// The function to call.
    pub function_id: String,
    /// Why it is not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// A kind of trigger.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegisterTriggerType {
    /// The kind.
    pub id: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// What a call is to do besides being carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Action {
    /// Nobody waits for the result.
    Void,
    /// It is to be carried out later, by a queue.
    Enqueue {
        /// Which queue.
        #[serde(default)]
        queue: String,
    },
    /// Something that is not known here.
    #[serde(other)]
    Other,
}

/// A call.
#[derive(Debug, Serialize, Deserialize)]
pub struct InvokeFunction<'a> {
    /// Its id; absent where nobody waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation_id: Option<Uuid>,
    /// The function.
    #[serde(borrow)]
    pub function_id: Cow<'a, str>,
    /// What it gets; `null` if absent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a RawValue>,
    /// What else to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// What the trigger that fired says.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<&'a RawValue>,
    /// Where the call belongs in a trace.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Cow<'a, str>>,
    /// What travels with the trace.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub baggage: Option<Cow<'a, str>>,
}

/// What a call brought.
#[derive(Debug, Serialize, Deserialize)]
pub struct InvocationResult<'a> {
    /// The call's id.
    pub invocation_id: Uuid,
    /// The function.
    #[serde(borrow, default)]
    pub function_id: Cow<'a, str>,
    /// What it returned; `null` if absent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub result: Option<&'a RawValue>,
    /// Why it returned nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Which kind of error.
    #[serde(default)]
    pub code: String,
    /// What is to be said about it.
    #[serde(default)]
    pub message: String,
    /// Where in the function it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacktrace: Option<String>,
}

/// The engine does not let a worker in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ErrorMessage {
    /// Why.
    pub error: ErrorBody,
}

/// A function or a worker is not taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegistrationRejected {
    /// Why.
    pub code: String,
    /// Where the conflict is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The function, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_id: Option<String>,
    /// The worker's name, if it is that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_name: Option<String>,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_worker_id: Option<String>,
    /// The reason in words. Engines of iii do not say it, and their SDKs do not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A function wants to be called when another one is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Observe {
    /// The observer's id.
    pub id: String,
    /// What is observed.
    pub source: ObserveSource,
    /// The function to call.
    pub target: ObserveTarget,
    /// What to tell the function with each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// What is observed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObserveSource {
    /// The function that is observed, such as `http::on-request`.
    pub function_id: String,
    /// Which of its calls.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub args: Value,
}

/// What an observer calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObserveTarget {
    /// The function.
    pub function_id: String,
}

/// An observer is no longer wanted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unobserve {
    /// The observer's id.
    pub id: String,
}

/// What became of an observer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObserveResult {
    /// The observer's id.
    pub id: String,
    /// What it is now, such as `active`.
    pub state: String,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// An observer has changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObserverStateChanged {
    /// The observer's id.
    pub id: String,
    /// What it is now, such as `disposed`.
    pub state: String,
    /// How often it has called its target.
    #[serde(default)]
    pub fires: u64,
}

/// One end of a channel, as it travels inside payloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelRef {
    /// The channel.
    pub channel_id: String,
    /// What lets its holder in.
    pub access_key: String,
    /// Which end.
    pub direction: Direction,
}

/// An end of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Where things come out.
    Read,
    /// Where they go in.
    Write,
}
