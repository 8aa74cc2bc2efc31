//! Runs the functions of the worker. Each call runs in its own task and gets one result.

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
use super::calls::{CallResult, Outgoing};
use crate::functions::CallError;
use crate::wire::{InvocationResult, InvokeFunction, MAX_MESSAGE, Message};

/// The handler of a function.
pub(super) type Handler = Arc<dyn Fn(Invocation) -> BoxFuture<'static, CallResult> + Send + Sync>;

/// Engines add this member to payloads. It is the id of the calling worker.
const CALLER: &str = "_caller_worker_id";

/// A call of a function of this worker.
#[derive(Debug)]
pub struct Invocation {
    /// The function.
    pub function_id: String,
    /// The payload as the engine sent it. If a worker calls, an object has the member `_caller_worker_id`.
    pub data: Box<RawValue>,
    /// The metadata of the trigger that fired.
    pub metadata: Option<Box<RawValue>>,
    /// The trace context of the call.
    pub traceparent: Option<String>,
    /// The baggage of the trace.
    pub baggage: Option<String>,
}

impl Invocation {
    /// Parses the payload. The handler can return the error as it is.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_str(self.data.get()).map_err(|error| {
            let message = format!("Failed to deserialize input for {}: {error}", self.function_id);
            CallError::remote("deserialization_error", message)
        })
    }

    /// The id of the calling worker, if the engine sent it.
    pub fn caller(&self) -> Option<String> {
        serde_json::from_str(self.members()?.get(CALLER)?.get()).ok()
    }

    /// The caller's payload: [`data`](Self::data) without the member that the engine added.
    pub fn payload(&self) -> Box<RawValue> {
        let stripped = || {
            let mut members = self.members()?;
            members.remove(CALLER)?;
            serde_json::value::to_raw_value(&members).ok()
        };
        stripped().unwrap_or_else(|| self.data.clone())
    }

    /// The members of the data, if the caller's id may be among them. Searching the text first is cheaper than parsing.
    fn members(&self) -> Option<BTreeMap<String, &RawValue>> {
        let data = self.data.get();
        data.contains(CALLER).then(|| serde_json::from_str(data).ok())?
    }
}

/// Runs a function, unless too many calls are running.
pub(super) async fn run_handler(inner: &Arc<Inner>, outgoing: &Arc<Outgoing>, invoke: InvokeFunction<'_>) {
    let function_id = invoke.function_id.into_owned();
    let responder = Responder { invocation: invoke.invocation_id, function_id, outgoing: outgoing.clone() };
    let handler = inner.registry.lock().handler(&responder.function_id);
    let Some(handler) = handler else {
        let message = format!("Function {} not found", responder.function_id);
        return responder.send(Err(CallError::remote("function_not_found", message))).await;
    };
    let Ok(permit) = inner.call_permits.clone().try_acquire_owned() else {
        tracing::debug!(function = responder.function_id, "rejected a call: too many calls are running");
        let message = format!("the worker is running {} calls: try again later", inner.options.at_once);
        return responder.send(Err(CallError::remote("worker_overloaded", message))).await;
    };
    let invocation = Invocation {
        function_id: responder.function_id.clone(),
        data: invoke.data.unwrap_or(RawValue::NULL).to_owned(),
        metadata: invoke.metadata.map(ToOwned::to_owned),
        traceparent: invoke.traceparent.map(Cow::into_owned),
        baggage: invoke.baggage.map(Cow::into_owned),
    };
    let (inner, caller) = (inner.clone(), invocation.caller());
    tokio::spawn(async move {
        let ran = AssertUnwindSafe(async { handler(invocation).await }).catch_unwind().await;
        let result = ran.unwrap_or_else(|panic| {
            tracing::error!(
                function = responder.function_id,
                panic = panic_message(&*panic),
                "a function panicked"
            );
            Err(CallError::remote("invocation_failed", "the function panicked"))
        });
        let result = match (result, caller) {
            (Ok(value), Some(caller)) => inner.check_result(&caller, &value).await.map(|()| value),
            (result, _) => result,
        };
        responder.send(result).await;
        drop(permit);
    });
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Sends the result of one call.
struct Responder {
    invocation: Option<Uuid>,
    function_id: String,
    outgoing: Arc<Outgoing>,
}

impl Responder {
    async fn send(self, result: CallResult) {
        let Some(invocation) = self.invocation else { return };
        let mut frame = self.frame(invocation, &result);
        if frame.len() > MAX_MESSAGE {
            tracing::warn!(function = self.function_id, bytes = frame.len(), "a result is too large to send");
            let message = format!("the message with the result is larger than {MAX_MESSAGE} bytes");
            frame = self.frame(invocation, &Err(CallError::remote("result_too_large", message)));
        }
        // If the connection is lost, the result cannot be delivered.
        let _ = self.outgoing.frames.send(frame).await;
    }

    fn frame(&self, invocation_id: Uuid, result: &CallResult) -> String {
        let function_id = Cow::Borrowed(self.function_id.as_str());
        let (result, error) = match result {
            Ok(result) => (Some(&**result), None),
            Err(error) => (None, Some(error.to_body("invocation_failed"))),
        };
        Message::InvocationResult(InvocationResult { invocation_id, function_id, result, error }).write()
    }
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
    fn the_callers_id_can_be_read_and_removed() {
        let called = invocation(&json!({"_caller_worker_id": "w-1", "sku": "A-1"}));
        assert_eq!(called.caller().as_deref(), Some("w-1"));
        assert_eq!(called.payload().get(), r#"{"sku":"A-1"}"#);
        let other = invocation(&json!(["_caller_worker_id"]));
        assert_eq!(other.caller(), None);
        assert_eq!(other.payload().get(), r#"["_caller_worker_id"]"#);
    }

    #[test]
    fn a_payload_of_the_wrong_type_is_a_deserialization_error() {
        let error = invocation(&json!({"sku": 1})).read::<BTreeMap<String, String>>().unwrap_err();
        assert!(matches!(error, CallError::Remote { code, .. } if code == "deserialization_error"));
    }
}
