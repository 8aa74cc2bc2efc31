//! Open calls, and the connection that they use.
//!
//! Each call here ends: with its result, at its deadline, or at once when the connection is lost.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Connection, Inner};
use crate::functions::{CallError, FunctionCall};
use crate::wire::{Action, InvokeFunction, MAX_MESSAGE, Message};

/// The result of a call.
pub(super) type CallResult = Result<Box<RawValue>, CallError>;

/// The outgoing half of one connection to an engine.
pub(super) struct Outgoing {
    /// Calls and results. The queue is limited: a sender waits if it is full.
    pub(super) frames: mpsc::Sender<String>,
    /// Registrations and pongs. They are sent first, and senders do not wait.
    pub(super) control: mpsc::UnboundedSender<String>,
    /// Cancelled when the connection is lost.
    pub(super) gone: CancellationToken,
}

/// The state of the connection.
enum LinkState {
    NeverConnected,
    Connected(Arc<Outgoing>),
    Disconnected,
}

/// The open calls. One lock guards the calls and the connection, so that no call is added after the connection is lost.
pub(super) struct Calls(Mutex<State>);

struct State {
    link: LinkState,
    pending: HashMap<Uuid, oneshot::Sender<CallResult>>,
}

impl Calls {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { link: LinkState::NeverConnected, pending: HashMap::new() }))
    }

    /// Sets the connection.
    pub(super) fn connect(&self, outgoing: Arc<Outgoing>) {
        self.0.lock().link = LinkState::Connected(outgoing);
    }

    /// Removes the connection. All open calls fail.
    pub(super) fn disconnect(&self) {
        let mut state = self.0.lock();
        if let LinkState::Connected(outgoing) = std::mem::replace(&mut state.link, LinkState::Disconnected) {
            outgoing.gone.cancel();
        }
        // Dropping the senders wakes the callers.
        state.pending.clear();
    }

    /// The connection, if there is one.
    pub(super) fn outgoing(&self) -> Option<Arc<Outgoing>> {
        match &self.0.lock().link {
            LinkState::Connected(outgoing) => Some(outgoing.clone()),
            LinkState::NeverConnected | LinkState::Disconnected => None,
        }
    }

    /// Whether there has been no connection yet.
    fn never_connected(&self) -> bool {
        matches!(self.0.lock().link, LinkState::NeverConnected)
    }

    fn begin(&self) -> Result<(Arc<Outgoing>, Pending<'_>), CallError> {
        let id = Uuid::new_v4();
        let (sender, result) = oneshot::channel();
        let mut state = self.0.lock();
        let LinkState::Connected(outgoing) = &state.link else { return Err(CallError::Disconnected) };
        let outgoing = outgoing.clone();
        state.pending.insert(id, sender);
        Ok((outgoing, Pending { calls: self, id, result, received: false }))
    }

    /// Passes a result to the caller, if the caller still waits.
    pub(super) fn complete(&self, id: Uuid, result: CallResult) {
        let waiter = self.0.lock().pending.remove(&id);
        if let Some(waiter) = waiter {
            // The caller may have stopped waiting.
            let _ = waiter.send(result);
        }
    }
}

/// An open call. Dropping it removes the call.
struct Pending<'a> {
    calls: &'a Calls,
    id: Uuid,
    result: oneshot::Receiver<CallResult>,
    received: bool,
}

impl Pending<'_> {
    async fn result(mut self) -> CallResult {
        let result = (&mut self.result).await;
        self.received = true;
        result.unwrap_or(Err(CallError::Disconnected))
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.received {
            self.calls.0.lock().pending.remove(&self.id);
        }
    }
}

impl Inner {
    /// Calls a function and waits for the result.
    pub(super) async fn invoke(&self, call: FunctionCall<'_>, metadata: Option<&RawValue>) -> CallResult {
        self.check_size(call.function, call.payload).await?;
        self.exchange(call, metadata).await
    }

    /// Calls a function whose worker accepts the payload, and waits for the result.
    pub(super) async fn exchange(&self, call: FunctionCall<'_>, metadata: Option<&RawValue>) -> CallResult {
        self.with_deadline(call.timeout, async {
            let (outgoing, pending) = self.calls.begin()?;
            let frame = frame(&call, Some(pending.id), metadata)?;
            outgoing.frames.send(frame).await.map_err(|_| CallError::Disconnected)?;
            pending.result().await
        })
        .await
    }

    /// Calls a function and waits only until the call is queued, not for the result.
    pub(super) async fn send(
        &self,
        call: FunctionCall<'_>,
        metadata: Option<&RawValue>,
    ) -> Result<(), CallError> {
        self.check_size(call.function, call.payload).await?;
        self.with_deadline(call.timeout, async {
            let outgoing = self.calls.outgoing().ok_or(CallError::Disconnected)?;
            let frame = frame(&call, None, metadata)?;
            outgoing.frames.send(frame).await.map_err(|_| CallError::Disconnected)
        })
        .await
    }

    /// Waits for the first connection, then for `calling`, all within `timeout`.
    async fn with_deadline<T>(
        &self,
        timeout: Duration,
        calling: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let result = tokio::time::timeout(timeout, async {
            self.first_connection().await;
            calling.await
        });
        match result.await {
            Ok(result) => result,
            Err(_) if self.calls.never_connected() => Err(CallError::Disconnected),
            Err(_) => Err(CallError::TimedOut),
        }
    }

    /// Waits for the first connection. Returns when it is clear that the engine cannot be reached or rejects the worker.
    async fn first_connection(&self) {
        if self.calls.never_connected() {
            // An error means that the worker is being dropped.
            let _ = self.state.subscribe().wait_for(|state| *state != Connection::Connecting).await;
        }
    }
}

/// Encodes a call. Without an id, the engine sends no result.
fn frame(
    call: &FunctionCall<'_>,
    id: Option<Uuid>,
    metadata: Option<&RawValue>,
) -> Result<String, CallError> {
    let message = Message::InvokeFunction(InvokeFunction {
        invocation_id: id,
        function_id: Cow::Borrowed(call.function),
        data: Some(call.payload),
        action: id.is_none().then_some(Action::Void),
        metadata,
        traceparent: call.trace_parent.as_ref().map(|parent| Cow::Borrowed(parent.as_str())),
        baggage: None,
    });
    let frame = message.write();
    if frame.len() > MAX_MESSAGE {
        let message = format!("the message with the payload is larger than {MAX_MESSAGE} bytes");
        return Err(CallError::remote("payload_too_large", message));
    }
    Ok(frame)
}
