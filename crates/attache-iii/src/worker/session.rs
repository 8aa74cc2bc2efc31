//! One connection to an engine, from the upgrade to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use http::StatusCode;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::calls::Outgoing;
use super::connection::LinkLog;
use super::handlers;
use super::socket::{DialError, Socket};
use super::writer::{self, Queues};
use super::{Inner, Rejection, WorkerOptions};
use crate::functions::CallError;
use crate::wire::{
    Action, FrameError, InvokeFunction, Message, Reattach, RegistrationRejected, WorkerRegistered,
};

/// How long the engine may take to register the worker, and how long closing may take.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a session ended.
pub(super) enum SessionEnd {
    /// The connection was lost, or could not be established.
    Lost(String),
    /// The engine rejected the worker.
    Rejected(Rejection),
    /// The worker was closed.
    Closed,
}

impl SessionEnd {
    fn lost(why: impl ToString) -> Self {
        Self::Lost(why.to_string())
    }
}

/// Connects, and waits until the engine has registered the worker.
pub(super) async fn connect(inner: &Inner) -> Result<(Socket, WorkerRegistered), SessionEnd> {
    let mut socket = inner.dialer.engine().await.map_err(|error| match error {
        DialError::Status(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)) => {
            let message = format!("the engine responded with {status}");
            SessionEnd::Rejected(Rejection { code: status.as_u16().to_string(), message })
        }
        DialError::TimedOut | DialError::Status(_) | DialError::Io(_) | DialError::WebSocket(_) => {
            SessionEnd::lost(error)
        }
    })?;
    let registration = tokio::time::timeout(REGISTER_TIMEOUT, wait_for_registration(&mut socket)).await;
    let registered = registration
        .unwrap_or_else(|_| Err(SessionEnd::lost("the engine did not register the worker in time")))?;
    Ok((socket, registered))
}

async fn wait_for_registration(socket: &mut Socket) -> Result<WorkerRegistered, SessionEnd> {
    loop {
        let frame = socket
            .next()
            .await
            .ok_or_else(|| SessionEnd::lost("the engine closed the connection"))?
            .map_err(SessionEnd::lost)?;
        let Some(text) = text(&frame) else { continue };
        match Message::read(text) {
            Ok(Message::WorkerRegistered(registered)) => return Ok(registered),
            Ok(Message::Error(message)) => {
                return Err(SessionEnd::Rejected(Rejection {
                    code: message.error.code,
                    message: message.error.message,
                }));
            }
            Ok(Message::RegistrationRejected(rejected)) => {
                return Err(SessionEnd::Rejected(worker_rejected(rejected)));
            }
            // The engine sends nothing else before it registers the worker. Other messages are ignored.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Serves a connection until it ends.
pub(super) async fn run(
    inner: &Arc<Inner>,
    socket: Socket,
    registered: &WorkerRegistered,
    previous: Option<Reattach>,
    log: &mut LinkLog,
) -> SessionEnd {
    let (sink, stream) = socket.split();
    let (frames, frames_out) = mpsc::channel(writer::QUEUE_SIZE);
    let (control, control_out) = mpsc::unbounded_channel();
    let leave = CancellationToken::new();
    let outgoing = Arc::new(Outgoing { frames, control, gone: CancellationToken::new() });
    let queues = Queues { frames: frames_out, control: control_out, leave: leave.clone() };
    let WorkerOptions { ping_interval, dead_after, .. } = inner.options;
    let write = writer::write(sink, queues, ping_interval, dead_after);
    let mut writer = AbortOnDropHandle::new(tokio::spawn(write));

    send_registrations(inner, &outgoing, previous);
    let ended = read_frames(inner, &outgoing, stream, &mut writer, log, &registered.worker_id).await;
    if let SessionEnd::Closed = ended {
        for frame in inner.registry.lock().unregistrations() {
            let _ = outgoing.control.send(frame);
        }
        leave.cancel();
        // Closing may fail: the engine notices the end of the connection.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, writer).await;
    }
    inner.calls.disconnect();
    ended
}

/// Sends the metadata and the registrations of the worker. After this the connection accepts calls.
fn send_registrations(inner: &Inner, outgoing: &Arc<Outgoing>, previous: Option<Reattach>) {
    // The lock ensures that later registrations are sent after these, and are not lost.
    let registry = inner.registry.lock();
    let reattach = previous.map(|previous| Message::Reattach(previous).write());
    for frame in reattach.into_iter().chain(registry.registrations()).chain([metadata(&inner.options)]) {
        // The writer reads from the queue only later, so the queue is open.
        let _ = outgoing.control.send(frame);
    }
    inner.calls.connect(outgoing.clone());
}

/// The metadata of the worker. Engines since 0.23 wait for it before they apply registrations.
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

/// Reads and handles frames until the connection ends or the worker is closed.
async fn read_frames(
    inner: &Arc<Inner>,
    outgoing: &Arc<Outgoing>,
    mut stream: Stream,
    writer: &mut AbortOnDropHandle<writer::WriteResult>,
    log: &mut LinkLog,
    worker_id: &str,
) -> SessionEnd {
    let mut confirmed = false;
    let confirm = tokio::time::sleep(log.confirm_after());
    let closing = inner.closing.cancelled();
    tokio::pin!(confirm, closing);
    let dead_after = inner.options.dead_after;
    let mut check = tokio::time::interval((dead_after / 4).max(Duration::from_millis(1)));
    let mut last_frame_at = Instant::now();
    loop {
        tokio::select! {
            frame = stream.next() => {
                last_frame_at = Instant::now();
                let frame = match frame {
                    Some(Ok(frame)) => frame,
                    Some(Err(error)) => return SessionEnd::lost(error),
                    None => return SessionEnd::lost("the engine closed the connection"),
                };
                if let Some(text) = text(&frame)
                    && let Some(ended) = handle_frame(inner, outgoing, text).await
                {
                    return ended;
                }
            }
            written = &mut *writer => {
                return match written {
                    Ok(Err(error)) => SessionEnd::lost(error),
                    Ok(Ok(())) | Err(_) => SessionEnd::lost("writing to the engine failed"),
                };
            }
            () = &mut closing => return SessionEnd::Closed,
            () = &mut confirm, if !confirmed => {
                confirmed = true;
                log.connected(inner, worker_id);
            }
            _ = check.tick() => {
                if last_frame_at.elapsed() >= dead_after {
                    return SessionEnd::Lost(format!("the engine sent nothing for {} s", dead_after.as_secs_f32()));
                }
            }
        }
    }
}

/// Handles one frame. Returns the end of the session if the frame ends it.
async fn handle_frame(inner: &Arc<Inner>, outgoing: &Arc<Outgoing>, text: &str) -> Option<SessionEnd> {
    match Message::read(text) {
        Ok(Message::InvocationResult(result)) => {
            let outcome = match result.error {
                Some(error) => Err(CallError::remote(error.code, error.message)),
                None => Ok(result.result.unwrap_or(serde_json::value::RawValue::NULL).to_owned()),
            };
            inner.calls.complete(result.invocation_id, outcome);
        }
        Ok(Message::InvokeFunction(invoke)) => handlers::run_handler(inner, outgoing, invoke).await,
        Ok(Message::Ping) => {
            // If the writer has ended, `read_frames` notices it.
            let _ = outgoing.control.send(Message::Pong.write());
        }
        Ok(Message::RegistrationRejected(rejected)) => match &rejected.function_id {
            Some(function) => inner.function_rejected(function, &rejected),
            None => return Some(SessionEnd::Rejected(worker_rejected(rejected))),
        },
        Ok(Message::TriggerRegistrationResult(result)) => inner.trigger_result(result),
        Ok(Message::Error(message)) => {
            let (code, message) = (message.error.code, message.error.message);
            if code == "AUTH_ERROR" {
                return Some(SessionEnd::Rejected(Rejection { code, message }));
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
            tracing::debug!(%error, "ignored an invalid frame of the engine");
        }
    }
    None
}

fn worker_rejected(rejected: RegistrationRejected) -> Rejection {
    let message = match (&rejected.worker_name, &rejected.owner_worker_id) {
        (Some(name), Some(owner)) => format!("the worker `{owner}` has the name `{name}` already"),
        _ => "the engine rejected this worker".to_owned(),
    };
    Rejection { code: rejected.code, message }
}

/// The text of a frame. JSON may also come in binary frames.
fn text(frame: &Frame) -> Option<&str> {
    match frame {
        Frame::Text(text) => Some(text.as_str()),
        Frame::Binary(bytes) => std::str::from_utf8(bytes).ok(),
        Frame::Ping(_) | Frame::Pong(_) | Frame::Close(_) | Frame::Frame(_) => None,
    }
}
