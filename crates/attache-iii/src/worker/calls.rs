//! Calls that are under way, and the line they take.
//!
//! A call that is noted here ends: with its answer, at its deadline, or at once when the connection goes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Connection, Inner};
use crate::functions::{CallError, FunctionCall};
use crate::wire::{Action, InvokeFunction, MAX_MESSAGE, Message};

/// What a call brings.
pub(super) type Answer = Result<Box<RawValue>, CallError>;

/// The way out to an engine, for as long as one connection lasts.
pub(super) struct Line {
    /// Calls and answers. There is only so much room: who has more waits.
    pub(super) frames: mpsc::Sender<String>,
    /// What is said about the worker itself. It goes first, and does not wait.
    pub(super) notes: mpsc::UnboundedSender<String>,
    /// Set when the connection is gone.
    pub(super) gone: CancellationToken,
}

/// Whether there is a line.
enum Link {
    NotYet,
    Up(Arc<Line>),
    Down,
}

/// The calls under way. One lock holds them and the line, so that none is noted after the line went.
pub(super) struct Calls(Mutex<State>);

struct State {
    link: Link,
    pending: HashMap<Uuid, oneshot::Sender<Answer>>,
}

impl Calls {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State { link: Link::NotYet, pending: HashMap::new() }))
    }

    /// There is a line from now on.
    pub(super) fn up(&self, line: Arc<Line>) {
        self.0.lock().link = Link::Up(line);
    }

    /// There is no line any more: whatever is under way has failed.
    pub(super) fn down(&self) {
        let mut state = self.0.lock();
        if let Link::Up(line) = std::mem::replace(&mut state.link, Link::Down) {
            line.gone.cancel();
        }
        // Dropping the other end tells who waits.
        state.pending.clear();
    }

    /// The line, if there is one.
    pub(super) fn line(&self) -> Option<Arc<Line>> {
        match &self.0.lock().link {
            Link::Up(line) => Some(line.clone()),
            Link::NotYet | Link::Down => None,
        }
    }

    /// Whether there never was a line.
    fn not_yet(&self) -> bool {
        matches!(self.0.lock().link, Link::NotYet)
    }

    fn begin(&self) -> Result<(Arc<Line>, Pending<'_>), CallError> {
        let id = Uuid::new_v4();
        let (answered, answer) = oneshot::channel();
        let mut state = self.0.lock();
        let Link::Up(line) = &state.link else { return Err(CallError::Disconnected) };
        let line = line.clone();
        state.pending.insert(id, answered);
        Ok((line, Pending { calls: self, id, answer, answered: false }))
    }

    /// Hands an answer to who waits for it, if anyone still does.
    pub(super) fn settle(&self, id: Uuid, answer: Answer) {
        let waiting = self.0.lock().pending.remove(&id);
        if let Some(waiting) = waiting {
            // Who waited may have left.
            let _ = waiting.send(answer);
        }
    }
}

/// A call under way. Dropping it forgets the call.
struct Pending<'a> {
    calls: &'a Calls,
    id: Uuid,
    answer: oneshot::Receiver<Answer>,
    answered: bool,
}

impl Pending<'_> {
    async fn answer(mut self) -> Answer {
        let answer = (&mut self.answer).await;
        self.answered = true;
        answer.unwrap_or(Err(CallError::Disconnected))
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.calls.0.lock().pending.remove(&self.id);
        }
    }
}

impl Inner {
    /// Calls a function and waits for what it brings.
    pub(super) async fn invoke(&self, call: FunctionCall<'_>, metadata: Option<&RawValue>) -> Answer {
        let answer = async {
            self.first_connection().await;
            let (line, pending) = self.calls.begin()?;
            let frame = frame(&call, Some(pending.id), metadata)?;
            line.frames.send(frame).await.map_err(|_| CallError::Disconnected)?;
            pending.answer().await
        };
        match tokio::time::timeout(call.timeout, answer).await {
            Ok(answer) => answer,
            Err(_) if self.calls.not_yet() => Err(CallError::Disconnected),
            Err(_) => Err(CallError::TimedOut),
        }
    }

    /// Calls a function and does not wait for what it brings, only for the call to be on its way.
    pub(super) async fn send(
        &self,
        call: FunctionCall<'_>,
        metadata: Option<&RawValue>,
    ) -> Result<(), CallError> {
        let sent = async {
            self.first_connection().await;
            let line = self.calls.line().ok_or(CallError::Disconnected)?;
            let frame = frame(&call, None, metadata)?;
            line.frames.send(frame).await.map_err(|_| CallError::Disconnected)
        };
        match tokio::time::timeout(call.timeout, sent).await {
            Ok(sent) => sent,
            Err(_) if self.calls.not_yet() => Err(CallError::Disconnected),
            Err(_) => Err(CallError::TimedOut),
        }
    }

    /// Waits for the first connection, as long as it is not clear that there is none to be had.
    async fn first_connection(&self) {
        if self.calls.not_yet() {
            // An error means that the worker is being dropped.
            let _ = self.state.subscribe().wait_for(|state| *state != Connection::Connecting).await;
        }
    }
}

/// A call as it goes over the wire; without an id, nobody waits for it.
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
        traceparent: None,
        baggage: None,
    });
    let frame = message.write();
    if frame.len() > MAX_MESSAGE {
        let message = format!("the payload makes a message of more than {MAX_MESSAGE} bytes");
        return Err(CallError::remote("payload_too_large", message));
    }
    Ok(frame)
}
