//! Calls: who waits for a result, and what the waiter gets.
//!
//! A call is stored with the worker that processes it, under the id that this worker knows. So only that worker can send the
//! result, ids of different callers do not collide, and all calls of a worker fail at once when it disconnects.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::frames::{self, Extras};
use super::outbox::PushError;
use super::registry::{Executor, Function, Handler};
use super::worker::{Call, CallPermit, OpenError, Waiter, Worker};
use super::{Invocation, Shared};
use crate::CallError;
use crate::wire::{Action, ErrorBody, InvocationResult, InvokeFunction};

/// What is left to do for a call after [`Shared::invoke`].
pub(super) enum Dispatched {
    /// Nothing.
    Done,
    /// A call of the state, which must run after the earlier calls of the same worker.
    State(StateCall),
}

/// A call of a function of the state.
pub(super) struct StateCall {
    pub(super) function: Arc<Function>,
    pub(super) data: String,
    pub(super) sender: ResultSender,
}

/// Sends the result of a call that runs in this process. Sends nothing if the caller does not wait.
pub(super) struct ResultSender(Option<(CallPermit, Uuid)>);

impl ResultSender {
    pub(super) fn send(self, function: &str, outcome: Result<&str, &CallError>) {
        match (self.0, outcome) {
            (Some((made, id)), Ok(result)) => made.0.answer(id, function, Ok(result)),
            (Some((made, id)), Err(error)) => {
                made.0.answer(id, function, Err(&error_body(error)));
            }
            (None, Ok(_)) => {}
            (None, Err(error)) => tracing::debug!(function, %error, "a call without a waiting caller failed"),
        }
    }
}

pub(super) fn error_body(error: &CallError) -> ErrorBody {
    error.to_body("not_connected")
}

fn not_found(function: &str) -> CallError {
    CallError::remote("function_not_found", format!("Function {function} not found in namespace default."))
}

fn stopped() -> CallError {
    CallError::remote("invocation_stopped", "Invocation stopped")
}

fn overloaded(function: &str) -> CallError {
    let text = format!("The worker of {function} is overloaded: try again in a moment");
    CallError::remote("worker_overloaded", text)
}

impl Shared {
    /// Carries out a call by a worker.
    pub(super) fn invoke(self: &Arc<Self>, caller: &Arc<Worker>, call: InvokeFunction<'_>) -> Dispatched {
        let waited_for = call.invocation_id.filter(|_| call.action != Some(Action::Void));
        let sender = match waited_for {
            Some(id) => match caller.begin_call(self.options.limits.calls_by_worker) {
                Some(made) => ResultSender(Some((made, id))),
                None => {
                    let text = "Too many calls at once: wait for the results of some of them";
                    let error = error_body(&CallError::remote("too_many_calls", text));
                    caller.answer(id, &call.function_id, Err(&error));
                    return Dispatched::Done;
                }
            },
            None => ResultSender(None),
        };
        if let Some(Action::Enqueue { queue }) = &call.action {
            self.enqueue(queue, &call, sender);
            return Dispatched::Done;
        }
        let Some(function) = self.registry.function(&call.function_id) else {
            sender.send(&call.function_id, Err(&not_found(&call.function_id)));
            return Dispatched::Done;
        };
        let data = call.data.map(RawValue::get);
        match &function.executor {
            Executor::Worker(worker) => {
                let extras = Extras {
                    metadata: call.metadata.map(RawValue::get),
                    traceparent: call.traceparent.as_deref(),
                    baggage: call.baggage.as_deref(),
                };
                self.forward(worker, &function, data, caller, extras, sender);
                Dispatched::Done
            }
            Executor::Local(handler) => {
                let invocation = Invocation {
                    function: function.info.id.clone(),
                    payload: call.data.unwrap_or(RawValue::NULL).to_owned(),
                    caller: Some(caller.name()),
                    trace_parent: call.traceparent.as_deref().and_then(|text| text.parse().ok()),
                };
                let handler = handler.clone();
                tokio::spawn(async move {
                    let id = invocation.function.clone();
                    let outcome = run_local(&*handler, invocation).await;
                    sender.send(&id, outcome.as_deref().map(RawValue::get));
                });
                Dispatched::Done
            }
            Executor::Builtin(builtin) if builtin.is_state() => {
                let data = data.unwrap_or("null").to_owned();
                Dispatched::State(StateCall { function: function.clone(), data, sender })
            }
            Executor::Builtin(builtin) => {
                let outcome = self.builtin(*builtin, data.unwrap_or("null"), Some(caller));
                sender.send(&call.function_id, outcome.as_deref());
                Dispatched::Done
            }
        }
    }

    /// Sends a call to the worker that has the function.
    fn forward(
        &self,
        worker: &Arc<Worker>,
        function: &Function,
        data: Option<&str>,
        caller: &Worker,
        extras: Extras<'_>,
        sender: ResultSender,
    ) {
        let id = &function.info.id;
        let ResultSender(Some((made, wanted))) = sender else {
            let frame = frames::invoke(Uuid::new_v4(), id, data, Some(&caller.id_text), extras);
            if worker.outbox.push(frame).is_err() {
                tracing::debug!(function = &**id, worker = %worker.id, "dropped a call without a waiting caller");
            }
            return;
        };
        let call = Call { function: id.clone(), waiter: Waiter::Worker(made, wanted) };
        match worker.open(wanted, call, self.options.limits.calls_to_worker) {
            Ok(opened) => {
                let frame = frames::invoke(opened, id, data, Some(&caller.id_text), extras);
                if let Err(error) = worker.outbox.push(frame)
                    && let Some(call) = worker.take(opened)
                {
                    call.finish(Err(error_body(&push_failed(error, id))));
                }
            }
            Err((why, call)) => call.finish(Err(error_body(&open_failed(why, id)))),
        }
    }

    /// Sends a call to the worker that provides queues.
    fn enqueue(self: &Arc<Self>, queue: &str, call: &InvokeFunction<'_>, sender: ResultSender) {
        const PROVIDER: &str = "engine::queue::enqueue";
        if self.registry.function(PROVIDER).is_none() {
            let text =
                "No queue provider is installed: start a worker that registers `engine::queue::enqueue`";
            sender.send(&call.function_id, Err(&CallError::remote("enqueue_error", text)));
            return;
        }
        let receipt = Uuid::new_v4().to_string();
        let payload = Queued {
            queue,
            function_id: &call.function_id,
            data: call.data,
            message_receipt_id: &receipt,
            traceparent: call.traceparent.as_deref(),
            baggage: call.baggage.as_deref(),
        };
        let payload = serde_json::to_string(&payload).unwrap_or_default();
        let (shared, function) = (self.clone(), call.function_id.clone().into_owned());
        tokio::spawn(async move {
            let queued =
                shared.call_text(PROVIDER, &payload, Extras::default(), Duration::from_secs(30)).await;
            let receipt = serde_json::json!({ "messageReceiptId": receipt }).to_string();
            let outcome = match &queued {
                Ok(_) => Ok(&*receipt),
                Err(error) => Err(&CallError::remote("enqueue_error", error.to_string())),
            };
            sender.send(&function, outcome);
        });
    }

    /// Handles the result of a call. A result of a call that this worker was not given is ignored.
    pub(super) fn handle_result(&self, worker: &Worker, answer: InvocationResult<'_>) {
        let Some(call) = worker.take(answer.invocation_id) else { return };
        call.finish(match answer.error {
            Some(error) => Err(error),
            None => Ok(answer.result.unwrap_or(RawValue::NULL)),
        });
    }

    /// Fails all calls that a worker is processing.
    pub(super) fn fail_calls(worker: &Worker) {
        for call in worker.take_all() {
            call.finish(Err(error_body(&stopped())));
        }
    }

    /// Calls a function from this process and waits for its result.
    pub(super) async fn call_text(
        self: &Arc<Self>,
        function: &str,
        data: &str,
        extras: Extras<'_>,
        timeout: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        let Some(function) = self.registry.function(function) else { return Err(not_found(function)) };
        let id = &function.info.id;
        let running = async {
            match &function.executor {
                Executor::Worker(worker) => {
                    let (sender, result) = oneshot::channel();
                    let call = Call { function: id.clone(), waiter: Waiter::Local(sender) };
                    let opened = worker
                        .open(Uuid::new_v4(), call, self.options.limits.calls_to_worker)
                        .map_err(|(why, _)| open_failed(why, id))?;
                    let _guard = CallGuard { worker, id: opened };
                    let frame = frames::invoke(opened, id, Some(data), None, extras);
                    worker.outbox.push(frame).map_err(|error| push_failed(error, id))?;
                    result.await.unwrap_or_else(|_| Err(stopped()))
                }
                Executor::Local(handler) => {
                    let payload = raw(data.to_owned())?;
                    let trace_parent = extras.traceparent.and_then(|text| text.parse().ok());
                    let invocation = Invocation { function: id.clone(), payload, caller: None, trace_parent };
                    run_local(&**handler, invocation).await
                }
                Executor::Builtin(builtin) if builtin.is_state() => raw(self.state(*builtin, data).await?),
                Executor::Builtin(builtin) => raw(self.builtin(*builtin, data, None)?),
            }
        };
        tokio::time::timeout(timeout, running).await.unwrap_or(Err(CallError::TimedOut))
    }

    /// Calls a function because a trigger fired. The result is ignored.
    pub(super) fn fire(self: &Arc<Self>, function: &str, data: &str, metadata: Option<&str>) {
        let Some(found) = self.registry.function(function) else {
            tracing::debug!(function, "a trigger fired for an unknown function");
            return;
        };
        match &found.executor {
            Executor::Worker(worker) => {
                let extras = Extras { metadata, ..Extras::default() };
                let frame = frames::invoke(Uuid::new_v4(), &found.info.id, Some(data), None, extras);
                if worker.outbox.push(frame).is_err() {
                    tracing::warn!(function, worker = %worker.id, "dropped a triggered call: the worker is overloaded");
                }
            }
            Executor::Local(_) | Executor::Builtin(_) => {
                let (shared, function, data) = (self.clone(), function.to_owned(), data.to_owned());
                tokio::spawn(async move {
                    let ran =
                        shared.call_text(&function, &data, Extras::default(), Duration::from_secs(60)).await;
                    if let Err(error) = ran {
                        tracing::debug!(function, %error, "a triggered function failed");
                    }
                });
            }
        }
    }
}

/// The payload for the queue.
#[derive(Serialize)]
struct Queued<'a> {
    queue: &'a str,
    function_id: &'a str,
    data: Option<&'a RawValue>,
    #[serde(rename = "messageReceiptId")]
    message_receipt_id: &'a str,
    traceparent: Option<&'a str>,
    baggage: Option<&'a str>,
}

/// Removes a call when its waiter is dropped.
struct CallGuard<'a> {
    worker: &'a Worker,
    id: Uuid,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.worker.take(self.id);
    }
}

fn open_failed(why: OpenError, function: &str) -> CallError {
    match why {
        OpenError::Overloaded => overloaded(function),
        OpenError::Gone => stopped(),
    }
}

fn push_failed(error: PushError, function: &str) -> CallError {
    match error {
        PushError::Full => overloaded(function),
        PushError::Closed => stopped(),
        PushError::TooLarge { limit } => {
            let text = format!(
                "The payload is too large for the worker of {function}: its SDK accepts {limit} bytes"
            );
            CallError::remote("payload_too_large", text)
        }
    }
}

async fn run_local(handler: &Handler, invocation: Invocation) -> Result<Box<RawValue>, CallError> {
    let function = invocation.function.clone();
    let running = AssertUnwindSafe(async { handler(invocation).await });
    running.catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(function = &*function, "a function of this process panicked");
        Err(CallError::remote("invocation_failed", "the function panicked"))
    })
}

/// Wraps JSON text.
fn raw(json: String) -> Result<Box<RawValue>, CallError> {
    RawValue::from_string(json).map_err(|error| CallError::remote("serialization_error", error.to_string()))
}
