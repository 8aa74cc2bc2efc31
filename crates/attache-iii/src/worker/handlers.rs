//! Calls of the worker's own functions: each runs as a task of its own and is answered once.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use attache_core::BoxFuture;
use futures::FutureExt;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Inner;
use super::calls::{Answer, Line};
use crate::functions::CallError;
use crate::wire::{ErrorBody, InvocationResult, InvokeFunction, MAX_MESSAGE, Message};

/// What runs a function.
pub(super) type Handler = Arc<dyn Fn(Invocation) -> BoxFuture<'static, Answer> + Send + Sync>;

/// The member that engines put into payloads to say who calls.
const CALLER: &str = "_caller_worker_id";

/// A call of one of the worker's functions.
#[derive(Debug)]
pub struct Invocation {
    /// The function.
    pub function_id: String,
    /// What it gets, as the engine passed it on: objects have the member `_caller_worker_id` where a worker calls.
    pub data: Box<RawValue>,
    /// What the trigger that fired says.
    pub metadata: Option<Box<RawValue>>,
    /// Where the call belongs in a trace.
    pub traceparent: Option<String>,
    /// What travels with the trace.
    pub baggage: Option<String>,
}

impl Invocation {
    /// Reads what the function gets. The error is one to return.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_str(self.data.get()).map_err(|error| {
            let message = format!("Failed to deserialize input for {}: {error}", self.function_id);
            CallError::remote("deserialization_error", message)
        })
    }

    /// The worker that calls, where the engine says so.
    pub fn caller(&self) -> Option<String> {
        serde_json::from_str(self.members()?.get(CALLER)?.get()).ok()
    }

    /// What the caller gave: [`data`](Self::data) without what the engine put there.
    pub fn payload(&self) -> Box<RawValue> {
        let stripped = || {
            let mut members = self.members()?;
            members.remove(CALLER)?;
            serde_json::value::to_raw_value(&members).ok()
        };
        stripped().unwrap_or_else(|| self.data.clone())
    }

    /// The members of the data, if the caller's id may be among them: looking is cheaper than reading.
    fn members(&self) -> Option<BTreeMap<String, &RawValue>> {
        let data = self.data.get();
        data.contains(CALLER).then(|| serde_json::from_str(data).ok())?
    }
}

/// Runs a function for the engine, unless too many are running.
pub(super) async fn take(inner: &Inner, line: &Arc<Line>, invoke: InvokeFunction<'_>) {
    let function_id = invoke.function_id.into_owned();
    let reply = Reply { invocation: invoke.invocation_id, function_id, line: line.clone() };
    let handler = inner.registry.lock().handler(&reply.function_id);
    let Some(handler) = handler else {
        let message = format!("Function {} not found", reply.function_id);
        return reply.send(Err(CallError::remote("function_not_found", message))).await;
    };
    let Ok(permit) = inner.room.clone().try_acquire_owned() else {
        tracing::debug!(function = reply.function_id, "too many calls at once; one was refused");
        let message = format!("the worker runs {} calls already; try again later", inner.options.at_once);
        return reply.send(Err(CallError::remote("worker_overloaded", message))).await;
    };
    let invocation = Invocation {
        function_id: reply.function_id.clone(),
        data: invoke.data.unwrap_or(RawValue::NULL).to_owned(),
        metadata: invoke.metadata.map(ToOwned::to_owned),
        traceparent: invoke.traceparent.map(Cow::into_owned),
        baggage: invoke.baggage.map(Cow::into_owned),
    };
    tokio::spawn(async move {
        let ran = AssertUnwindSafe(async { handler(invocation).await }).catch_unwind().await;
        let answer = ran.unwrap_or_else(|panic| {
            tracing::error!(function = reply.function_id, panic = said(&*panic), "a function panicked");
            Err(CallError::remote("invocation_failed", "the function panicked"))
        });
        reply.send(answer).await;
        drop(permit);
    });
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("something that is no text")
}

/// Where an answer goes. Sending it is the only thing to do with it.
struct Reply {
    invocation: Option<Uuid>,
    function_id: String,
    line: Arc<Line>,
}

impl Reply {
    async fn send(self, answer: Answer) {
        let Some(invocation) = self.invocation else { return };
        let mut frame = self.frame(invocation, &answer);
        if frame.len() > MAX_MESSAGE {
            tracing::warn!(function = self.function_id, bytes = frame.len(), "a result is too large to send");
            let message = format!("the result makes a message of more than {MAX_MESSAGE} bytes");
            frame = self.frame(invocation, &Err(CallError::remote("result_too_large", message)));
        }
        // A connection that is gone took the caller with it.
        let _ = self.line.frames.send(frame).await;
    }

    fn frame(&self, invocation_id: Uuid, answer: &Answer) -> String {
        let function_id = Cow::Borrowed(self.function_id.as_str());
        let (result, error) = match answer {
            Ok(result) => (Some(&**result), None),
            Err(error) => (None, Some(body(error))),
        };
        Message::InvocationResult(InvocationResult { invocation_id, function_id, result, error }).write()
    }
}

fn body(error: &CallError) -> ErrorBody {
    let (code, message) = match error {
        CallError::Remote { code, message } => (code.clone(), message.clone()),
        CallError::TimedOut => ("TIMEOUT".to_owned(), error.to_string()),
        CallError::Disconnected => ("invocation_failed".to_owned(), error.to_string()),
    };
    ErrorBody { code, message, stacktrace: None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn invocation(data: &Value) -> Invocation {
        let data = serde_json::value::to_raw_value(data).unwrap();
        let function_id = "pricing::quote".to_owned();
        Invocation { function_id, data, metadata: None, traceparent: None, baggage: None }
    }

    #[test]
    fn the_callers_id_can_be_read_and_left_out() {
        let called = invocation(&json!({"_caller_worker_id": "w-1", "sku": "A-1"}));
        assert_eq!(called.caller().as_deref(), Some("w-1"));
        assert_eq!(called.payload().get(), r#"{"sku":"A-1"}"#);
        let other = invocation(&json!(["_caller_worker_id"]));
        assert_eq!(other.caller(), None);
        assert_eq!(other.payload().get(), r#"["_caller_worker_id"]"#);
    }

    #[test]
    fn a_payload_that_does_not_fit_is_an_error_to_return() {
        let error = invocation(&json!({"sku": 1})).read::<BTreeMap<String, String>>().unwrap_err();
        assert!(matches!(error, CallError::Remote { code, .. } if code == "deserialization_error"));
    }
}
