//! Calls: who waits for what, and what everybody is told when it comes or cannot come any more.
//!
//! A call is kept with the worker that works on it, under the id that this worker knows. So only that worker can answer it, ids of
//! different callers do not meet, and all its calls fail at once when it goes.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::frames::{self, Extras};
use super::outbox::Refused;
use super::registry::{Function, Handler, Home};
use super::worker::{Call, CallMade, NotOpened, Waiter, Worker};
use super::{Invocation, Shared};
use crate::CallError;
use crate::wire::{Action, ErrorBody, InvocationResult, InvokeFunction};

/// What a worker's call leaves to be done in its turn.
pub(super) enum Then {
    /// Nothing: it is on its way.
    Done,
    /// Something about the state, after what the worker asked for before.
    State(StateCall),
}

/// A call of a function of the state.
pub(super) struct StateCall {
    pub(super) function: Arc<Function>,
    pub(super) data: String,
    pub(super) reply: Reply,
}

/// Where the result of a call goes that a worker made and that runs here. Nowhere, if the worker does not wait.
pub(super) struct Reply(Option<(CallMade, Uuid)>);

impl Reply {
    pub(super) fn send(self, function: &str, outcome: Result<&str, &CallError>) {
        match (self.0, outcome) {
            (Some((made, id)), Ok(result)) => made.0.answer(id, function, Ok(result)),
            (Some((made, id)), Err(error)) => {
                made.0.answer(id, function, Err(&error_body(error)));
            }
            (None, Ok(_)) => {}
            (None, Err(error)) => tracing::debug!(function, %error, "a call that nobody waits for failed"),
        }
    }
}

pub(super) fn error_body(error: &CallError) -> ErrorBody {
    let (code, message) = match error {
        CallError::Remote { code, message } => (code.clone(), message.clone()),
        CallError::TimedOut => ("TIMEOUT".to_owned(), error.to_string()),
        CallError::Disconnected => ("not_connected".to_owned(), error.to_string()),
    };
    ErrorBody { code, message, stacktrace: None }
}

fn not_found(function: &str) -> CallError {
    CallError::remote("function_not_found", format!("Function {function} not found in namespace default."))
}

fn stopped() -> CallError {
    CallError::remote("invocation_stopped", "Invocation stopped")
}

fn overloaded(function: &str) -> CallError {
    let text = format!("The worker of {function} does not keep up: try again in a moment");
    CallError::remote("worker_overloaded", text)
}

impl Shared {
    /// Carries out what a worker asks for.
    pub(super) fn invoke(self: &Arc<Self>, caller: &Arc<Worker>, call: InvokeFunction<'_>) -> Then {
        let waited_for = call.invocation_id.filter(|_| call.action != Some(Action::Void));
        let reply = match waited_for {
            Some(id) => match caller.begin_call(self.options.limits.calls_by_worker) {
                Some(made) => Reply(Some((made, id))),
                None => {
                    let text = "Too many calls at once: wait for the results of some of them";
                    let error = error_body(&CallError::remote("too_many_calls", text));
                    caller.answer(id, &call.function_id, Err(&error));
                    return Then::Done;
                }
            },
            None => Reply(None),
        };
        if let Some(Action::Enqueue { queue }) = &call.action {
            self.enqueue(queue, &call, reply);
            return Then::Done;
        }
        let Some(function) = self.registry.function(&call.function_id) else {
            reply.send(&call.function_id, Err(&not_found(&call.function_id)));
            return Then::Done;
        };
        let data = call.data.map(RawValue::get);
        match &function.home {
            Home::Worker(worker) => {
                let extras = Extras {
                    metadata: call.metadata.map(RawValue::get),
                    traceparent: call.traceparent.as_deref(),
                    baggage: call.baggage.as_deref(),
                };
                self.forward(worker, &function, data, caller, extras, reply);
                Then::Done
            }
            Home::Local(handler) => {
                let invocation = Invocation {
                    function: function.info.id.clone(),
                    payload: call.data.unwrap_or(RawValue::NULL).to_owned(),
                    caller: Some(caller.name()),
                };
                let handler = handler.clone();
                tokio::spawn(async move {
                    let id = invocation.function.clone();
                    let outcome = run_local(&*handler, invocation).await;
                    reply.send(&id, outcome.as_deref().map(RawValue::get));
                });
                Then::Done
            }
            Home::Builtin(builtin) if builtin.is_state() => {
                let data = data.unwrap_or("null").to_owned();
                Then::State(StateCall { function: function.clone(), data, reply })
            }
            Home::Builtin(builtin) => {
                let outcome = self.builtin(*builtin, data.unwrap_or("null"), Some(caller));
                reply.send(&call.function_id, outcome.as_deref());
                Then::Done
            }
        }
    }

    /// Gives a worker's call to the worker that has the function.
    fn forward(
        &self,
        worker: &Arc<Worker>,
        function: &Function,
        data: Option<&str>,
        caller: &Worker,
        extras: Extras<'_>,
        reply: Reply,
    ) {
        let id = &function.info.id;
        let Reply(Some((made, wanted))) = reply else {
            let frame = frames::invoke(Uuid::new_v4(), id, data, Some(&caller.name_of_id), extras);
            if worker.outbox.push(frame).is_err() {
                tracing::debug!(function = &**id, worker = %worker.id, "a call that nobody waits for was dropped");
            }
            return;
        };
        let call = Call { function: id.clone(), waiter: Waiter::Worker(made, wanted) };
        match worker.open(wanted, call, self.options.limits.calls_to_worker) {
            Ok(opened) => {
                let frame = frames::invoke(opened, id, data, Some(&caller.name_of_id), extras);
                if let Err(refused) = worker.outbox.push(frame)
                    && let Some(call) = worker.take(opened)
                {
                    call.finish(Err(error_body(&why_refused(refused, id))));
                }
            }
            Err((why, call)) => call.finish(Err(error_body(&why_not_opened(why, id)))),
        }
    }

    /// Gives a call to whoever keeps a queue.
    fn enqueue(self: &Arc<Self>, queue: &str, call: &InvokeFunction<'_>, reply: Reply) {
        const PROVIDER: &str = "engine::queue::enqueue";
        if self.registry.function(PROVIDER).is_none() {
            let text =
                "No queue provider is installed: start a worker that registers `engine::queue::enqueue`";
            reply.send(&call.function_id, Err(&CallError::remote("enqueue_error", text)));
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
            let taken = shared.call_text(PROVIDER, &payload, None, Duration::from_secs(30)).await;
            let receipt = serde_json::json!({ "messageReceiptId": receipt }).to_string();
            let outcome = match &taken {
                Ok(_) => Ok(&*receipt),
                Err(error) => Err(&CallError::remote("enqueue_error", error.to_string())),
            };
            reply.send(&function, outcome);
        });
    }

    /// Takes what a worker says about a call that it was given. What it was not given is none of its business.
    pub(super) fn answered(&self, worker: &Worker, answer: InvocationResult<'_>) {
        let Some(call) = worker.take(answer.invocation_id) else { return };
        call.finish(match answer.error {
            Some(error) => Err(error),
            None => Ok(answer.result.unwrap_or(RawValue::NULL)),
        });
    }

    /// Fails what a worker was working on.
    pub(super) fn fail_calls(worker: &Worker) {
        for call in worker.take_all() {
            call.finish(Err(error_body(&stopped())));
        }
    }

    /// Calls a function and waits for its result, for someone in this process.
    pub(super) async fn call_text(
        self: &Arc<Self>,
        function: &str,
        data: &str,
        metadata: Option<&str>,
        timeout: Duration,
    ) -> Result<Box<RawValue>, CallError> {
        let Some(function) = self.registry.function(function) else { return Err(not_found(function)) };
        let id = &function.info.id;
        let running = async {
            match &function.home {
                Home::Worker(worker) => {
                    let (sender, result) = oneshot::channel();
                    let call = Call { function: id.clone(), waiter: Waiter::Local(sender) };
                    let opened = worker
                        .open(Uuid::new_v4(), call, self.options.limits.calls_to_worker)
                        .map_err(|(why, _)| why_not_opened(why, id))?;
                    let _given_up = GiveUp { worker, id: opened };
                    let frame = frames::invoke(
                        opened,
                        id,
                        Some(data),
                        None,
                        Extras { metadata, ..Extras::default() },
                    );
                    worker.outbox.push(frame).map_err(|refused| why_refused(refused, id))?;
                    result.await.unwrap_or_else(|_| Err(stopped()))
                }
                Home::Local(handler) => {
                    let payload = raw(data.to_owned())?;
                    run_local(&**handler, Invocation { function: id.clone(), payload, caller: None }).await
                }
                Home::Builtin(builtin) if builtin.is_state() => raw(self.state(*builtin, data).await?),
                Home::Builtin(builtin) => raw(self.builtin(*builtin, data, None)?),
            }
        };
        tokio::time::timeout(timeout, running).await.unwrap_or(Err(CallError::TimedOut))
    }

    /// Calls a function because something happened. Nobody waits for what it says.
    pub(super) fn fire(self: &Arc<Self>, function: &str, data: &str, metadata: Option<&str>) {
        let Some(found) = self.registry.function(function) else {
            tracing::debug!(function, "a trigger fired for a function that is not there");
            return;
        };
        match &found.home {
            Home::Worker(worker) => {
                let extras = Extras { metadata, ..Extras::default() };
                let frame = frames::invoke(Uuid::new_v4(), &found.info.id, Some(data), None, extras);
                if worker.outbox.push(frame).is_err() {
                    tracing::warn!(function, worker = %worker.id, "a trigger fired for a worker that does not keep up");
                }
            }
            Home::Local(_) | Home::Builtin(_) => {
                let (shared, function, data) = (self.clone(), function.to_owned(), data.to_owned());
                tokio::spawn(async move {
                    let ran = shared.call_text(&function, &data, None, Duration::from_secs(60)).await;
                    if let Err(error) = ran {
                        tracing::debug!(function, %error, "a triggered function failed");
                    }
                });
            }
        }
    }
}

/// What a queue gets.
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

/// Takes a call back when nobody waits for it any more.
struct GiveUp<'a> {
    worker: &'a Worker,
    id: Uuid,
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        self.worker.take(self.id);
    }
}

fn why_not_opened(why: NotOpened, function: &str) -> CallError {
    match why {
        NotOpened::Overloaded => overloaded(function),
        NotOpened::Gone => stopped(),
    }
}

fn why_refused(refused: Refused, function: &str) -> CallError {
    match refused {
        Refused::Full => overloaded(function),
        Refused::Closed => stopped(),
        Refused::TooLarge { limit } => {
            let text =
                format!("The payload is too large for the worker of {function}: its SDK takes {limit} bytes");
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

/// Text that is JSON, as JSON.
fn raw(json: String) -> Result<Box<RawValue>, CallError> {
    RawValue::from_string(json).map_err(|error| CallError::remote("serialization_error", error.to_string()))
}
