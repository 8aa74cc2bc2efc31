//! A worker's connection: frames are read one after the other, carried out in that order, and what is to be said is written in
//! batches. What the worker asks of the state is done in its order, beside the rest.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{self, Message as Frame, Utf8Bytes};

use super::Shared;
use super::calls::{StateCall, Then};
use super::listener::{Socket, interrupt};
use super::registry::{Allowance, Home, NotRegistered, is_id};
use super::worker::Worker;
use crate::schema;
use crate::wire::{FrameError, Message, Reattach, RegisterFunction, WorkerRegistered};

/// How many frames are carried out before others get their turn.
const BURST: usize = 64;

/// How many bytes of a message go into one frame.
const MAX_PIECE: usize = 8 * 1024 * 1024;

/// How many calls of the state may wait for their turn.
const STATE_QUEUE: usize = 64;

/// How long what a worker asked of the state may still take when the worker is gone.
const STATE_DRAIN: Duration = Duration::from_secs(10);

/// Serves a worker until its connection ends.
pub(super) async fn serve(shared: Arc<Shared>, socket: Socket, address: SocketAddr) {
    let worker = Arc::new(Worker::new(address, &shared.options.limits));
    worker.send(welcome(&worker));
    shared.registry.admit(&worker);
    let presence = Presence { shared: &shared, worker: &worker };
    shared.worker_event("worker_connected", &worker);
    tracing::debug!(worker = %worker.id, %address, "a worker has connected");

    let (mut sink, mut stream) = socket.split();
    let (asks, asked) = mpsc::channel(STATE_QUEUE);
    let mut state = pin!(answer_for_state(&shared, asked));
    {
        let mut desk = Desk { shared: &shared, worker: &worker, asks, complaints: Complaints::default() };
        let mut reading = pin!(desk.read(&mut stream));
        let mut writing = pin!(write(&worker, &mut sink));
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => {}
            () = worker.gone.cancelled() => {}
            () = &mut writing => {}
            () = &mut reading => {}
            () = &mut state => {}
        }
    }
    drop(presence);
    tracing::debug!(worker = %worker.id, "a worker is gone");
    // What it asked for before it went is still done.
    if tokio::time::timeout(STATE_DRAIN, state).await.is_err() {
        tracing::warn!(worker = %worker.id, "the state was too slow for what a worker left behind");
    }
    if let Ok(socket) = sink.reunite(stream) {
        interrupt(socket).await;
    }
}

/// A worker that is there, and lets go of all it has when its connection ends, however it ends.
struct Presence<'a> {
    shared: &'a Arc<Shared>,
    worker: &'a Arc<Worker>,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.shared.dismiss(self.worker);
    }
}

fn welcome(worker: &Worker) -> String {
    Message::WorkerRegistered(WorkerRegistered {
        worker_id: worker.name_of_id.to_string(),
        reattach_token: Some(worker.reattach_token.to_string()),
        features: vec!["observe.v1".to_owned(), "observe.v2".to_owned()],
    })
    .write()
}

/// Writes what gathers, many frames at a time.
async fn write(worker: &Worker, sink: &mut SplitSink<Socket, Frame>) {
    let mut frames = Vec::new();
    loop {
        let load = worker.outbox.take(&mut frames).await;
        for frame in frames.drain(..) {
            if feed(sink, frame).await.is_err() {
                return;
            }
        }
        if sink.flush().await.is_err() {
            return;
        }
        worker.outbox.written(load);
    }
}

/// Writes a message, in pieces where it is large: Rust workers before 0.24 hang up at a frame of more than 16 MiB.
async fn feed(sink: &mut SplitSink<Socket, Frame>, text: Utf8Bytes) -> Result<(), tungstenite::Error> {
    if text.len() <= MAX_PIECE {
        return sink.feed(Frame::Text(text)).await;
    }
    let (mut rest, mut kind) = (Bytes::from(text), Data::Text);
    while !rest.is_empty() {
        let piece = rest.split_to(rest.len().min(MAX_PIECE));
        let piece = tungstenite::protocol::frame::Frame::message(piece, OpCode::Data(kind), rest.is_empty());
        sink.feed(Frame::Frame(piece)).await?;
        kind = Data::Continue;
    }
    Ok(())
}

/// Does what is asked of the state, one after the other.
async fn answer_for_state(shared: &Arc<Shared>, mut asked: mpsc::Receiver<StateCall>) {
    while let Some(StateCall { function, data, reply }) = asked.recv().await {
        let Home::Builtin(builtin) = function.home else { continue };
        let outcome = shared.state(builtin, &data).await;
        reply.send(&function.info.id, outcome.as_deref());
    }
}

/// Where the frames of one worker are read.
struct Desk<'a> {
    shared: &'a Arc<Shared>,
    worker: &'a Arc<Worker>,
    asks: mpsc::Sender<StateCall>,
    complaints: Complaints,
}

impl Desk<'_> {
    async fn read(&mut self, stream: &mut SplitStream<Socket>) {
        let mut burst = 0;
        while let Some(frame) = stream.next().await {
            match frame {
                Ok(Frame::Text(text)) => self.take(&text).await,
                Ok(Frame::Binary(bytes)) => {
                    // Telemetry of old SDKs.
                    if [&b"OTLP"[..], b"MTRC", b"LOGS"].iter().any(|kind| bytes.starts_with(kind)) {
                        continue;
                    }
                    match std::str::from_utf8(&bytes) {
                        Ok(text) => self.take(text).await,
                        Err(error) => self.complaints.about(self.worker, &error),
                    }
                }
                Ok(Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_)) => {}
                Ok(Frame::Close(_)) => return,
                Err(error) => {
                    let expected = matches!(
                        error,
                        tungstenite::Error::Protocol(
                            tungstenite::error::ProtocolError::ResetWithoutClosingHandshake
                        ) | tungstenite::Error::Io(_)
                    );
                    if !expected {
                        tracing::warn!(worker = %self.worker.id, %error, "a connection ended");
                    }
                    return;
                }
            }
            burst += 1;
            if burst == BURST {
                burst = 0;
                tokio::task::yield_now().await;
            }
            // Whoever does not read the answers is not asked for more.
            self.worker.outbox.room().await;
        }
    }

    async fn take(&mut self, text: &str) {
        let (shared, worker) = (self.shared, self.worker);
        // Those that say a little too much are told so; those that say far too much are not read.
        let largest = shared.options.limits.registration.saturating_mul(4);
        let message = match Message::read_up_to(largest, text) {
            Ok(message) => message,
            Err(FrameError::Unknown(kind)) if kind == "registerservice" => return,
            Err(error) => return self.complaints.about(worker, &error),
        };
        match message {
            Message::InvokeFunction(call) => match shared.invoke(worker, call) {
                Then::Done => {}
                Then::State(call) => {
                    // Waits for its turn when the worker asks for more than the store can do.
                    let _ = self.asks.send(call).await;
                }
            },
            Message::InvocationResult(answer) => shared.answered(worker, answer),
            Message::RegisterFunction(function) => self.register(function, text.len()).await,
            Message::UnregisterFunction(named) => {
                shared.registry.unregister(worker, &named.id);
                shared.publisher.touch();
            }
            Message::RegisterTrigger(_) | Message::Observe(_)
                if text.len() > shared.options.limits.registration =>
            {
                self.complaints.about(worker, &"a trigger that says too much");
            }
            Message::RegisterTrigger(trigger) => shared.register_trigger(worker, trigger),
            Message::UnregisterTrigger(trigger) => {
                shared.remove_trigger(Some(worker), &trigger.id);
            }
            Message::RegisterTriggerType(kind) => shared.provide_kind(worker, kind),
            Message::UnregisterTriggerType(named) => shared.withdraw_kind(worker, &named.id),
            Message::TriggerRegistrationResult(answer) => shared.provider_answered(worker, answer),
            Message::Observe(observe) => shared.observe(worker, observe),
            Message::Unobserve(unobserve) => shared.unobserve(worker, unobserve.id),
            Message::Reattach(reattach) => self.reattach(&reattach),
            Message::Ping => worker.send(Message::Pong.write()),
            Message::Pong => {}
            Message::WorkerRegistered(_)
            | Message::RegistrationRejected(_)
            | Message::ObserveResult(_)
            | Message::ObserverStateChanged(_)
            | Message::Error(_) => self.complaints.about(worker, &"a message that only engines send"),
        }
    }

    async fn register(&mut self, function: RegisterFunction, size: usize) {
        let limits = &self.shared.options.limits;
        let refusal = match &function.request_format {
            // What is too large, or has no id, is refused for that.
            Some(schema) if size <= limits.registration && is_id(&function.id) => {
                schema::refusal(schema).await
            }
            Some(_) | None => None,
        };
        let allowance =
            Allowance { functions: limits.functions, one: limits.registration, all: limits.registrations };
        let registered = match refusal {
            Some(why) => {
                self.shared.registry.unregister(self.worker, &function.id);
                self.shared.publisher.touch();
                Err(NotRegistered::costly(
                    &function.id,
                    format!("the schema of `{}` is refused: {why}", function.id),
                ))
            }
            None => self.shared.registry.register(self.worker, function, size, allowance),
        };
        match registered {
            Ok(()) => self.shared.publisher.touch(),
            Err(NotRegistered::BadId) => {
                self.complaints.about(self.worker, &"a function without a usable id");
            }
            Err(NotRegistered::Rejected(answer, why)) => {
                let (worker, function) = (&self.worker, answer.function_id.as_deref());
                tracing::warn!(worker = %worker.id, function, code = answer.code, %why, "a function is not taken");
                worker.send(Message::RegistrationRejected(*answer).write());
            }
        }
    }

    /// A worker has come back: the connection that it had before makes room for this one.
    fn reattach(&self, reattach: &Reattach) {
        let before = reattach.previous_worker_id.parse().ok().and_then(|id| self.shared.registry.worker(id));
        let token = reattach.reattach_token.as_deref().unwrap_or_default();
        if let Some(before) = before
            && before.id != self.worker.id
            && super::Token::new(&before.reattach_token.to_string()).matches(token)
        {
            tracing::info!(worker = %self.worker.id, before = %before.id, "a worker has come back");
            self.shared.dismiss(&before);
        }
    }
}

/// What is wrong with the frames of one worker. A few lines say it; a flood of garbage is counted.
#[derive(Default)]
struct Complaints {
    said: usize,
    unsaid: usize,
    last: Option<Instant>,
}

impl Complaints {
    fn about(&mut self, worker: &Worker, error: &dyn std::fmt::Display) {
        const AT_ONCE: usize = 5;
        const PAUSE: Duration = Duration::from_secs(10);
        if self.said >= AT_ONCE && self.last.is_some_and(|last| last.elapsed() < PAUSE) {
            self.unsaid += 1;
            return;
        }
        let others = std::mem::take(&mut self.unsaid);
        tracing::warn!(worker = %worker.id, %error, others, "a frame is ignored");
        self.said += 1;
        self.last = Some(Instant::now());
    }
}
