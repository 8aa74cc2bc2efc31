//! A prompt that runs in a session. It can last longer than a turn: while the caller is asked for permission.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{AgentError, Turn};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::mpsc;

use super::connection::{CallError, PendingCall};
use super::peer::{LiveSession, Peer};
use super::report::Progress;
use super::session::{Event, Session};
use super::sessions::Lease;
use super::wire::{ContentBlock, Prompted, method};

/// A prompt that runs. If this is dropped before the prompt has ended, the prompt is canceled.
pub(super) struct OpenPrompt {
    pub(super) session: Arc<Session>,
    pub(super) peer: Arc<Peer>,
    /// What is known from earlier events.
    pub(super) progress: Progress,
    events: mpsc::UnboundedReceiver<Event>,
    call: Option<PendingCall>,
    /// How the prompt has ended. Events that arrived before come first.
    result: Option<Result<Prompted, CallError>>,
    /// Keeps the session for this prompt.
    lease: Option<Lease>,
    grace: Duration,
}

/// What happens next in a prompt.
pub(super) enum Next {
    Event(Event),
    Ended(Result<Prompted, CallError>),
}

impl OpenPrompt {
    /// Sends a prompt. The lease has a session.
    pub(super) async fn start(
        lease: Lease,
        blocks: &[ContentBlock],
        budget: usize,
        grace: Duration,
    ) -> Result<Self, AgentError> {
        let Some(LiveSession { session, peer }) = &*lease.session else {
            return Err(AgentError::from("a prompt needs a session"));
        };
        let (session, peer) = (session.clone(), peer.clone());
        let events = session.begin(budget);
        let params = json!({"sessionId": session.id, "prompt": blocks});
        let call = match peer.connection.start(method::PROMPT, &params) {
            Ok(call) => Some(call),
            Err(error) => return Err(peer.explain(method::PROMPT, error).await),
        };
        let progress = Progress::default();
        Ok(Self { session, peer, progress, events, call, result: None, lease: Some(lease), grace })
    }

    /// Waits for the next event, or for the end of the prompt. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Next {
        if self.result.is_none()
            && let Some(call) = &mut self.call
        {
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return Next::Event(event),
                result = call.result() => self.result = Some(result),
            }
        }
        // Events that arrived before the response are in the channel by now.
        if let Ok(event) = self.events.try_recv() {
            return Next::Event(event);
        }
        self.call = None;
        Next::Ended(self.result.take().unwrap_or(Err(CallError::Closed)))
    }

    /// Keeps the context for the task while the caller is asked.
    pub(super) fn keep_context(&mut self, turn: &Turn) {
        if let Some(lease) = &mut self.lease {
            lease.keep_context(&turn.context());
        }
    }

    /// The turn that goes on with the prompt has the context.
    pub(super) fn release_context(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.release_context();
        }
    }

    /// Whether the program has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.peer.is_closed()
    }
}

impl Drop for OpenPrompt {
    fn drop(&mut self) {
        let Some(mut lease) = self.lease.take() else { return };
        lease.release_context();
        let call = self.call.take().filter(|_| self.result.is_none() && !self.peer.is_closed());
        if call.is_some() {
            self.peer.connection.notify(method::CANCEL, &json!({"sessionId": self.session.id}));
        }
        self.session.end();
        // Requests for permission among the events are answered as canceled.
        self.events.close();
        while self.events.try_recv().is_ok() {}
        let Some(mut call) = call else { return };
        let grace = self.grace;
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                // The session can be used again when the prompt has really ended.
                runtime.spawn(async move {
                    match tokio::time::timeout(grace, call.result::<IgnoredAny>()).await {
                        Ok(_) => drop(lease),
                        Err(_) => lease.abandon(),
                    }
                });
            }
            Err(_) => lease.abandon(),
        }
    }
}
