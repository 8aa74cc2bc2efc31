//! The connection of a worker. Frames are processed in the order in which they arrive. Outgoing frames are written in batches.
//! Calls of the state run in order, concurrently with the other frames.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{self, Message as Frame};

use super::Shared;
use super::calls::{Dispatched, StateCall};
use super::listener::{Socket, close_for_restart};
use super::registry::{Executor, RegisterError, RegistrationLimits, is_id};
use super::worker::Worker;
use crate::schema;
use crate::socket::feed_text;
use crate::wire::{FrameError, Message, Reattach, RegisterFunction, WorkerRegistered};

/// How many frames are processed before the task yields.
const BURST: usize = 64;

/// How many calls of the state may wait.
const STATE_QUEUE: usize = 64;

/// How long the calls of the state may still take after the worker has disconnected.
const STATE_DRAIN: Duration = Duration::from_secs(10);

/// Serves a worker until its connection ends.
pub(super) async fn serve(shared: Arc<Shared>, socket: Socket, address: SocketAddr) {
    let worker = Arc::new(Worker::new(address, &shared.options.limits));
    worker.send(registered_message(&worker));
    shared.registry.add_worker(&worker);
    let guard = WorkerGuard { shared: &shared, worker: &worker };
    shared.worker_event("worker_connected", &worker);
    tracing::debug!(worker = %worker.id, %address, "worker connected");

    let (mut sink, mut stream) = socket.split();
    let (state_calls, received) = mpsc::channel(STATE_QUEUE);
    let mut state = pin!(run_state_calls(&shared, received));
    let reason = {
        let mut reader =
            FrameReader { shared: &shared, worker: &worker, state_calls, errors: FrameErrors::default() };
        let mut reading = pin!(reader.read(&mut stream));
        let mut writing = pin!(write(&worker, &mut sink));
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => "the engine is stopping",
            () = worker.gone.cancelled() => "the engine closed the connection",
            () = &mut writing => "the connection is lost",
            reason = &mut reading => reason,
            () = &mut state => "the connection is lost",
        }
    };
    let (id, name, functions) = (worker.id, worker.name(), worker.owned.lock().functions.len());
    drop(guard);
    tracing::info!(worker = %id, name = &*name, functions, reason, "worker left");
    // The calls of the state that the worker sent before it disconnected are still carried out.
    if tokio::time::timeout(STATE_DRAIN, state).await.is_err() {
        tracing::warn!(worker = %worker.id, "calls of the state did not finish after the worker disconnected");
    }
    if let Ok(socket) = sink.reunite(stream) {
        close_for_restart(socket).await;
    }
}

/// Removes the worker and everything that it registered when the connection ends, for any reason.
struct WorkerGuard<'a> {
    shared: &'a Arc<Shared>,
    worker: &'a Arc<Worker>,
}

impl Drop for WorkerGuard<'_> {
    fn drop(&mut self) {
        self.shared.remove_worker(self.worker);
    }
}

fn registered_message(worker: &Worker) -> String {
    Message::WorkerRegistered(WorkerRegistered {
        worker_id: worker.id_text.to_string(),
        reattach_token: Some(worker.reattach_token.to_string()),
        features: vec!["observe.v1".to_owned(), "observe.v2".to_owned()],
    })
    .write()
}

/// Writes the queued frames in batches.
async fn write(worker: &Worker, sink: &mut SplitSink<Socket, Frame>) {
    let mut frames = Vec::new();
    loop {
        let load = worker.outbox.take(&mut frames).await;
        for frame in frames.drain(..) {
            if feed_text(sink, frame).await.is_err() {
                return;
            }
        }
        if sink.flush().await.is_err() {
            return;
        }
        worker.outbox.written(load);
    }
}

/// Carries out the calls of the state, one after another.
async fn run_state_calls(shared: &Arc<Shared>, mut calls: mpsc::Receiver<StateCall>) {
    while let Some(StateCall { function, data, sender }) = calls.recv().await {
        let Executor::Builtin(builtin) = function.executor else { continue };
        let outcome = shared.state(builtin, &data).await;
        sender.send(&function.info.id, outcome.as_deref());
    }
}

/// Reads and processes the frames of one worker.
struct FrameReader<'a> {
    shared: &'a Arc<Shared>,
    worker: &'a Arc<Worker>,
    state_calls: mpsc::Sender<StateCall>,
    errors: FrameErrors,
}

impl FrameReader<'_> {
    /// Reads until the connection ends. Returns the reason.
    async fn read(&mut self, stream: &mut SplitStream<Socket>) -> &'static str {
        let mut burst = 0;
        while let Some(frame) = stream.next().await {
            match frame {
                Ok(Frame::Text(text)) => self.handle_frame(&text).await,
                Ok(Frame::Binary(bytes)) => {
                    // Telemetry from old SDKs.
                    if [&b"OTLP"[..], b"MTRC", b"LOGS"].iter().any(|kind| bytes.starts_with(kind)) {
                        continue;
                    }
                    match std::str::from_utf8(&bytes) {
                        Ok(text) => self.handle_frame(text).await,
                        Err(error) => self.errors.report(self.worker, &error),
                    }
                }
                Ok(Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_)) => {}
                Ok(Frame::Close(_)) => return "the worker closed the connection",
                Err(error) => {
                    let expected = matches!(
                        error,
                        tungstenite::Error::Protocol(
                            tungstenite::error::ProtocolError::ResetWithoutClosingHandshake
                        ) | tungstenite::Error::Io(_)
                    );
                    if !expected {
                        tracing::warn!(worker = %self.worker.id, %error, "the connection of a worker failed");
                    }
                    return "the connection is lost";
                }
            }
            burst += 1;
            if burst == BURST {
                burst = 0;
                tokio::task::yield_now().await;
            }
            // A worker that does not read its results is not read from.
            self.worker.outbox.room().await;
        }
        "the connection is lost"
    }

    async fn handle_frame(&mut self, text: &str) {
        let (shared, worker) = (self.shared, self.worker);
        // A registration that is slightly too large gets an error response. A much larger one is not parsed.
        let largest = shared.options.limits.registration.saturating_mul(4);
        let message = match Message::read_up_to(largest, text) {
            Ok(message) => message,
            Err(FrameError::Unknown(kind)) if kind == "registerservice" => return,
            Err(error) => return self.errors.report(worker, &error),
        };
        match message {
            Message::InvokeFunction(call) => match shared.invoke(worker, call) {
                Dispatched::Done => {}
                Dispatched::State(call) => {
                    // Waits if the worker sends more calls than the store can process.
                    let _ = self.state_calls.send(call).await;
                }
            },
            Message::InvocationResult(answer) => shared.handle_result(worker, answer),
            Message::RegisterFunction(function) => self.register(function, text.len()).await,
            Message::UnregisterFunction(named) => {
                shared.registry.unregister(worker, &named.id);
                shared.publisher.mark_changed();
            }
            Message::RegisterTrigger(_) | Message::Observe(_)
                if text.len() > shared.options.limits.registration =>
            {
                self.errors.report(worker, &"the registration of a trigger is too large");
            }
            Message::RegisterTrigger(trigger) => shared.register_trigger(worker, trigger),
            Message::UnregisterTrigger(trigger) => {
                shared.remove_trigger(Some(worker), &trigger.id);
            }
            Message::RegisterTriggerType(kind) => shared.register_trigger_type(worker, kind),
            Message::UnregisterTriggerType(named) => shared.unregister_trigger_type(worker, &named.id),
            Message::TriggerRegistrationResult(answer) => shared.provider_result(worker, answer),
            Message::Observe(observe) => shared.observe(worker, observe),
            Message::Unobserve(unobserve) => shared.unobserve(worker, unobserve.id),
            Message::Reattach(reattach) => self.reattach(&reattach),
            Message::Ping => worker.send(Message::Pong.write()),
            Message::Pong => {}
            Message::WorkerRegistered(_)
            | Message::RegistrationRejected(_)
            | Message::ObserveResult(_)
            | Message::ObserverStateChanged(_)
            | Message::Error(_) => self.errors.report(worker, &"only engines send this message"),
        }
    }

    async fn register(&mut self, function: RegisterFunction, size: usize) {
        let limits = &self.shared.options.limits;
        let rejection = match &function.request_format {
            // The registry rejects a function that is too large or has an invalid id.
            Some(schema) if size <= limits.registration && is_id(&function.id) => {
                schema::rejection_reason(schema).await
            }
            Some(_) | None => None,
        };
        let allowed = RegistrationLimits {
            functions: limits.functions,
            one_function: limits.registration,
            all_functions: limits.registrations,
        };
        let registered = match rejection {
            Some(why) => {
                self.shared.registry.unregister(self.worker, &function.id);
                self.shared.publisher.mark_changed();
                Err(RegisterError::schema_rejected(
                    &function.id,
                    format!("the schema of `{}` is rejected: {why}", function.id),
                ))
            }
            None => self.shared.registry.register(self.worker, function, size, allowed),
        };
        match registered {
            Ok(()) => self.shared.publisher.mark_changed(),
            Err(RegisterError::BadId) => {
                self.errors.report(self.worker, &"the id of the function is invalid");
            }
            Err(RegisterError::Rejected(answer, why)) => {
                let (worker, function) = (&self.worker, answer.function_id.as_deref());
                tracing::warn!(worker = %worker.id, function, code = answer.code, %why, "a function was rejected");
                worker.send(Message::RegistrationRejected(*answer).write());
            }
        }
    }

    /// A worker has reconnected. Its previous connection is removed.
    fn reattach(&self, reattach: &Reattach) {
        let before = reattach.previous_worker_id.parse().ok().and_then(|id| self.shared.registry.worker(id));
        let token = reattach.reattach_token.as_deref().unwrap_or_default();
        if let Some(before) = before
            && before.id != self.worker.id
            && super::Token::new(&before.reattach_token.to_string()).matches(token)
        {
            tracing::info!(worker = %self.worker.id, before = %before.id, "worker reconnected");
            self.shared.remove_worker(&before);
        }
    }
}

/// Logs invalid frames of one worker. The first few are logged; after that the log is rate-limited, and suppressed lines are counted.
#[derive(Default)]
struct FrameErrors {
    logged: usize,
    suppressed: usize,
    last: Option<Instant>,
}

impl FrameErrors {
    fn report(&mut self, worker: &Worker, error: &dyn std::fmt::Display) {
        const AT_ONCE: usize = 5;
        const PAUSE: Duration = Duration::from_secs(10);
        if self.logged >= AT_ONCE && self.last.is_some_and(|last| last.elapsed() < PAUSE) {
            self.suppressed += 1;
            return;
        }
        let suppressed = std::mem::take(&mut self.suppressed);
        tracing::warn!(worker = %worker.id, %error, suppressed, "ignored an invalid frame");
        self.logged += 1;
        self.last = Some(Instant::now());
    }
}
