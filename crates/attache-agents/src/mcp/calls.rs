//! The calls that run on a connection, so that progress and questions of the server reach the right one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, GetMeta, JsonRpcMessage, NumberOrString, ProgressNotificationParam,
    ProgressToken, RequestId,
};
use tokio::sync::{mpsc, watch};

use super::error::excerpt;
use super::question::Question;

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Progress {
    pub(super) progress: f64,
    pub(super) total: Option<f64>,
    pub(super) message: Option<String>,
}

/// The ends of a running call that the connection writes to. It travels with the request to the transport, which registers it
/// before the server can answer.
#[derive(Debug, Clone)]
pub(super) struct CallSlot(Arc<Slot>);

#[derive(Debug)]
struct Slot {
    progress: watch::Sender<Option<Progress>>,
    questions: mpsc::Sender<Question>,
}

impl CallSlot {
    pub(super) fn new(progress: watch::Sender<Option<Progress>>, questions: mpsc::Sender<Question>) -> Self {
        Self(Arc::new(Slot { progress, questions }))
    }

    /// Asks the caller. Gives the question back if the call cannot ask.
    pub(super) fn ask(&self, question: Question) -> Result<(), Question> {
        self.0.questions.try_send(question).map_err(mpsc::error::TrySendError::into_inner)
    }
}

/// The running calls by their request ids and progress tokens.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    by_id: HashMap<RequestId, CallSlot>,
    by_token: HashMap<ProgressToken, RequestId>,
}

/// Which call a question belongs to.
#[derive(Debug)]
pub(super) enum QuestionOwner {
    Call(CallSlot),
    /// No call runs.
    NoCall,
    /// Several calls run, and the transport does not tell them apart.
    Ambiguous,
}

impl Calls {
    /// Registers the call of an outgoing message, if it is one.
    pub(super) fn register(&self, message: &ClientJsonRpcMessage) {
        let JsonRpcMessage::Request(request) = message else { return };
        let ClientRequest::CallToolRequest(call) = &request.request else { return };
        let Some(slot) = call.extensions.get::<CallSlot>() else { return };
        let mut state = self.0.lock();
        state.by_id.insert(request.id.clone(), slot.clone());
        if let Some(token) = request.request.get_meta().get_progress_token() {
            state.by_token.insert(token, request.id.clone());
        }
    }

    pub(super) fn remove(&self, id: &RequestId) {
        let mut state = self.0.lock();
        state.by_id.remove(id);
        state.by_token.retain(|_, other| other != id);
    }

    /// Passes on progress. Progress of calls that have ended is dropped.
    pub(super) fn progress(&self, params: ProgressNotificationParam) {
        let state = self.0.lock();
        let slot = state.by_token.get(&normal(params.progress_token)).and_then(|id| state.by_id.get(id));
        if let Some(slot) = slot {
            let message = params.message.map(|text| excerpt(&text)).filter(|text| !text.is_empty());
            let progress = Progress { progress: params.progress, total: params.total, message };
            slot.0.progress.send_replace(Some(progress));
        }
    }

    /// The call that a question belongs to: the one that the transport names, otherwise the only one. A question is never shown to
    /// a caller who may not be meant.
    pub(super) fn asked(&self, origin: Option<&RequestId>) -> QuestionOwner {
        let state = self.0.lock();
        if let Some(id) = origin {
            return state.by_id.get(id).cloned().map_or(QuestionOwner::NoCall, QuestionOwner::Call);
        }
        let mut calls = state.by_id.values();
        match (calls.next(), calls.next()) {
            (None, _) => QuestionOwner::NoCall,
            (Some(only), None) => QuestionOwner::Call(only.clone()),
            (Some(_), Some(_)) => QuestionOwner::Ambiguous,
        }
    }
}

/// Some servers return a number as a string.
fn normal(token: ProgressToken) -> ProgressToken {
    match token {
        ProgressToken(NumberOrString::String(text)) => match text.parse() {
            Ok(number) => ProgressToken(NumberOrString::Number(number)),
            Err(_) => ProgressToken(NumberOrString::String(text)),
        },
        number @ ProgressToken(NumberOrString::Number(_)) => number,
    }
}
