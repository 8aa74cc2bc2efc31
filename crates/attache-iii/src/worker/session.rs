//! One connection to an engine, from its greeting to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use http::StatusCode;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::calls::Line;
use super::connection::Outage;
use super::handlers;
use super::socket::{DialError, Socket};
use super::writer::{self, Queues};
use super::{Inner, Refusal, WorkerOptions};
use crate::functions::CallError;
use crate::wire::{
    Action, FrameError, InvokeFunction, Message, Reattach, RegistrationRejected, WorkerRegistered,
};

/// How long an engine may take to greet a worker, and how long goodbyes may take.
const GREETING: Duration = Duration::from_secs(10);
const GOODBYE: Duration = Duration::from_secs(2);

/// How a session ended.
pub(super) enum Ended {
    /// The engine went, or never was there.
    Lost(String),
    /// The engine does not want this worker.
    Rejected(Refusal),
    /// This worker was closed.
    Closed,
}

impl Ended {
    fn lost(why: impl ToString) -> Self {
        Self::Lost(why.to_string())
    }
}

/// Connects and waits to be greeted.
pub(super) async fn join(inner: &Inner) -> Result<(Socket, WorkerRegistered), Ended> {
    let mut socket = inner.dialer.engine().await.map_err(|error| match error {
        DialError::Refused(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => {
            let message = format!("the engine answered {status}");
            Ended::Rejected(Refusal { code: status.as_u16().to_string(), message })
        }
        DialError::TimedOut | DialError::Refused(_) | DialError::Io(_) | DialError::WebSocket(_) => {
            Ended::lost(error)
        }
    })?;
    let greeted = tokio::time::timeout(GREETING, greeting(&mut socket)).await;
    let registered = greeted.unwrap_or_else(|_| Err(Ended::lost("it does not greet as engines do")))?;
    Ok((socket, registered))
}

async fn greeting(socket: &mut Socket) -> Result<WorkerRegistered, Ended> {
    loop {
        let frame = socket.next().await.ok_or_else(|| Ended::lost("it hung up"))?.map_err(Ended::lost)?;
        let Some(text) = text(&frame) else { continue };
        match Message::read(text) {
            Ok(Message::WorkerRegistered(registered)) => return Ok(registered),
            Ok(Message::Error(said)) => {
                return Err(Ended::Rejected(Refusal { code: said.error.code, message: said.error.message }));
            }
            Ok(Message::RegistrationRejected(rejected)) => {
                return Err(Ended::Rejected(worker_refused(rejected)));
            }
            // Nothing else is to be expected, and nothing else matters yet.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Takes part until the connection is gone.
pub(super) async fn attend(
    inner: &Inner,
    socket: Socket,
    registered: &WorkerRegistered,
    previous: Option<Reattach>,
    outage: &mut Outage,
) -> Ended {
    let (sink, stream) = socket.split();
    let (frames, frames_out) = mpsc::channel(writer::ROOM);
    let (notes, notes_out) = mpsc::unbounded_channel();
    let leave = CancellationToken::new();
    let line = Arc::new(Line { frames, notes, gone: CancellationToken::new() });
    let queues = Queues { frames: frames_out, notes: notes_out, leave: leave.clone() };
    let WorkerOptions { ping_interval, dead_after, .. } = inner.options;
    let write = writer::write(sink, queues, ping_interval, dead_after);
    let mut writer = AbortOnDropHandle::new(tokio::spawn(write));

    introduce(inner, &line, previous);
    let ended = listen(inner, &line, stream, &mut writer, outage, &registered.worker_id).await;
    if let Ended::Closed = ended {
        for goodbye in inner.registry.lock().nothing() {
            let _ = line.notes.send(goodbye);
        }
        leave.cancel();
        // Leaving without a word is no harm: the engine notices.
        let _ = tokio::time::timeout(GOODBYE, writer).await;
    }
    inner.calls.down();
    ended
}

/// Says who this is and what it has. From here on the line is open.
fn introduce(inner: &Inner, line: &Arc<Line>, previous: Option<Reattach>) {
    // Held so that whatever is registered meanwhile is said after this, and not lost.
    let registry = inner.registry.lock();
    let reattach = previous.map(|previous| Message::Reattach(previous).write());
    for note in reattach.into_iter().chain(registry.everything()).chain([metadata(&inner.options)]) {
        // The writer has not begun, so it cannot have ended.
        let _ = line.notes.send(note);
    }
    inner.calls.up(line.clone());
}

/// What the worker says about itself. Engines from 0.23 on wait for it before they take its registrations.
fn metadata(options: &WorkerOptions) -> String {
    use std::env::consts::{ARCH, FAMILY, OS};
    let mut about = json!({
        "runtime": "rust",
        "version": env!("CARGO_PKG_VERSION"),
        "name": options.name,
        "os": format!("{OS} {ARCH} ({FAMILY})"),
        "pid": std::process::id(),
    });
    if let Some(namespace) = &options.namespace {
        about["namespace"] = json!(namespace);
    }
    let data = serde_json::value::to_raw_value(&about).ok();
    let register = InvokeFunction {
        invocation_id: None,
        function_id: "engine::workers::register".into(),
        data: data.as_deref(),
        action: Some(Action::Void),
        metadata: None,
        traceparent: None,
        baggage: None,
    };
    Message::InvokeFunction(register).write()
}

type Stream = futures::stream::SplitStream<Socket>;

/// Hears what the engine says, until it or this worker is gone.
async fn listen(
    inner: &Inner,
    line: &Arc<Line>,
    mut stream: Stream,
    writer: &mut AbortOnDropHandle<writer::Written>,
    outage: &mut Outage,
    worker_id: &str,
) -> Ended {
    let mut believed = false;
    let believe = tokio::time::sleep(outage.doubt());
    let closing = inner.closing.cancelled();
    tokio::pin!(believe, closing);
    let dead_after = inner.options.dead_after;
    let mut look = tokio::time::interval((dead_after / 4).max(Duration::from_millis(1)));
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            frame = stream.next() => {
                heard = Instant::now();
                let frame = match frame {
                    Some(Ok(frame)) => frame,
                    Some(Err(error)) => return Ended::lost(error),
                    None => return Ended::lost("it hung up"),
                };
                if let Some(text) = text(&frame)
                    && let Some(ended) = hear(inner, line, text).await
                {
                    return ended;
                }
            }
            written = &mut *writer => {
                return match written {
                    Ok(Err(error)) => Ended::lost(error),
                    Ok(Ok(())) | Err(_) => Ended::lost("it cannot be written to"),
                };
            }
            () = &mut closing => return Ended::Closed,
            () = &mut believe, if !believed => {
                believed = true;
                outage.over(inner, worker_id);
            }
            _ = look.tick() => {
                if heard.elapsed() >= dead_after {
                    return Ended::Lost(format!("it was silent for {} s", dead_after.as_secs_f32()));
                }
            }
        }
    }
}

/// Does what the engine asks for. An end, if that is what it says.
async fn hear(inner: &Inner, line: &Arc<Line>, text: &str) -> Option<Ended> {
    match Message::read(text) {
        Ok(Message::InvocationResult(result)) => {
            let answer = match result.error {
                Some(error) => Err(CallError::remote(error.code, error.message)),
                None => Ok(result.result.unwrap_or(serde_json::value::RawValue::NULL).to_owned()),
            };
            inner.calls.settle(result.invocation_id, answer);
        }
        Ok(Message::InvokeFunction(invoke)) => handlers::take(inner, line, invoke).await,
        Ok(Message::Ping) => {
            // The writer's end is noticed by who listens.
            let _ = line.notes.send(Message::Pong.write());
        }
        Ok(Message::RegistrationRejected(rejected)) => match &rejected.function_id {
            Some(function) => inner.function_refused(function, &rejected),
            None => return Some(Ended::Rejected(worker_refused(rejected))),
        },
        Ok(Message::TriggerRegistrationResult(result)) => inner.trigger_result(result),
        Ok(Message::Error(said)) => {
            let (code, message) = (said.error.code, said.error.message);
            if code == "AUTH_ERROR" {
                return Some(Ended::Rejected(Refusal { code, message }));
            }
            tracing::warn!(code, message, "the engine reports an error");
        }
        Ok(
            Message::WorkerRegistered(_)
            | Message::Reattach(_)
            | Message::RegisterFunction(_)
            | Message::UnregisterFunction(_)
            | Message::RegisterTrigger(_)
            | Message::UnregisterTrigger(_)
            | Message::RegisterTriggerType(_)
            | Message::UnregisterTriggerType(_)
            | Message::Observe(_)
            | Message::Unobserve(_)
            | Message::ObserveResult(_)
            | Message::ObserverStateChanged(_)
            | Message::Pong,
        )
        | Err(FrameError::Unknown(_)) => {}
        Err(error @ (FrameError::NotAMessage(_) | FrameError::TooLarge { .. } | FrameError::Bad { .. })) => {
            tracing::debug!(%error, "a message of the engine's is not understood");
        }
    }
    None
}

fn worker_refused(rejected: RegistrationRejected) -> Refusal {
    let message = match (&rejected.worker_name, &rejected.owner_worker_id) {
        (Some(name), Some(owner)) => format!("the worker `{owner}` is called `{name}` already"),
        _ => "the engine does not take this worker".to_owned(),
    };
    Refusal { code: rejected.code, message }
}

/// The text of a frame. JSON may come as bytes too.
fn text(frame: &Frame) -> Option<&str> {
    match frame {
        Frame::Text(text) => Some(text.as_str()),
        Frame::Binary(bytes) => std::str::from_utf8(bytes).ok(),
        Frame::Ping(_) | Frame::Pong(_) | Frame::Close(_) | Frame::Frame(_) => None,
    }
}
