//! The members of each message.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

/// The engine has accepted a worker's connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerRegistered {
    /// The worker's id. It is valid for this connection.
    pub worker_id: String,
    /// With this token the worker can prove its identity on its next connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reattach_token: Option<String>,
    /// Optional features that the engine supports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// A worker has reconnected.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reattach {
    /// The worker's id on its previous connection.
    pub previous_worker_id: String,
    /// The token of the previous connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reattach_token: Option<String>,
}

/// The registration of a function.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RegisterFunction {
    /// The function's id.
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
    /// Free metadata, such as `a2a.expose`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// How the engine calls the function over HTTP, if no worker runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<Value>,
}

/// A message that has only an id.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdOnly {
    /// The id.
    pub id: String,
}

/// The registration of a trigger: the engine calls a function on an event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegisterTrigger {
    /// The trigger's id.
    pub id: String,
    /// The trigger's type, such as `http`.
    pub trigger_type: String,
    /// The function to call.
    pub function_id: String,
    /// The settings of the trigger. The type defines them.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
    /// Metadata that the function gets with each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// The removal of a trigger.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UnregisterTrigger {
    /// The trigger's id.
    pub id: String,
    /// The trigger's type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_type: Option<String>,
}

/// The result of a trigger's registration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TriggerRegistrationResult {
    /// The trigger's id.
    pub id: String,
    /// The trigger's type.
    pub trigger_type: String,
    /// The function to call.
    pub function_id: String,
    /// Why the trigger was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// The registration of a type of trigger.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegisterTriggerType {
    /// The name of the type.
    pub id: String,
    /// What the type is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// How the engine handles a call, other than by calling and returning the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Action {
    /// The caller does not wait for the result.
    Void,
    /// A queue carries out the call later.
    Enqueue {
        /// The name of the queue.
        #[serde(default)]
        queue: String,
    },
    /// An action that is unknown here.
    #[serde(other)]
    Other,
}

/// A call of a function.
#[derive(Debug, Serialize, Deserialize)]
pub struct InvokeFunction<'a> {
    /// The id of the call. It is absent if the caller does not wait for the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation_id: Option<Uuid>,
    /// The function.
    #[serde(borrow)]
    pub function_id: Cow<'a, str>,
    /// The payload; `null` if absent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a RawValue>,
    /// How to handle the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// The metadata of the trigger that fired.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<&'a RawValue>,
    /// The trace context of the call.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Cow<'a, str>>,
    /// The baggage of the trace.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub baggage: Option<Cow<'a, str>>,
}

/// The result of a call.
#[derive(Debug, Serialize, Deserialize)]
pub struct InvocationResult<'a> {
    /// The call's id.
    pub invocation_id: Uuid,
    /// The function.
    #[serde(borrow, default)]
    pub function_id: Cow<'a, str>,
    /// The function's result; `null` if absent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub result: Option<&'a RawValue>,
    /// Why the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error code.
    #[serde(default)]
    pub code: String,
    /// A description of the error.
    #[serde(default)]
    pub message: String,
    /// The stack trace of the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacktrace: Option<String>,
}

/// An error of the engine, such as a rejected connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ErrorMessage {
    /// The error.
    pub error: ErrorBody,
}

/// The engine rejects a function or a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RegistrationRejected {
    /// The reason, as a code.
    pub code: String,
    /// The namespace of the conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The rejected function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_id: Option<String>,
    /// The rejected worker's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_name: Option<String>,
    /// The worker that holds the name or the function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner_worker_id: Option<String>,
    /// The reason as text. iii engines do not send it, and their SDKs do not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The registration of an observer: the engine calls a function when another function is called.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Observe {
    /// The observer's id.
    pub id: String,
    /// What is observed.
    pub source: ObserveSource,
    /// The function to call.
    pub target: ObserveTarget,
    /// Metadata that the function gets with each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// What is observed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObserveSource {
    /// The function that is observed, such as `http::on-request`.
    pub function_id: String,
    /// Which of its calls are observed.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub args: Value,
}

/// What an observer calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObserveTarget {
    /// The function.
    pub function_id: String,
}

/// The removal of an observer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unobserve {
    /// The observer's id.
    pub id: String,
}

/// The result of an observer's registration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObserveResult {
    /// The observer's id.
    pub id: String,
    /// The state, such as `active`.
    pub state: String,
    /// Why the observer was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// The state of an observer has changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ObserverStateChanged {
    /// The observer's id.
    pub id: String,
    /// The state, such as `disposed`.
    pub state: String,
    /// How often the observer has called its target.
    #[serde(default)]
    pub fires: u64,
}

/// A reference to one end of a channel, as it appears in payloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelRef {
    /// The channel.
    pub channel_id: String,
    /// The secret that gives access to the channel.
    pub access_key: String,
    /// Which end.
    pub direction: Direction,
}

/// An end of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The reading end.
    Read,
    /// The writing end.
    Write,
}
