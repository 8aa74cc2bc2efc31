//! A connected worker: its queue of frames, the calls that it is processing, and its registrations.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::EngineLimits;
use super::frames;
use super::outbox::{Outbox, PushError};
use crate::wire::ErrorBody;
use crate::{CallError, sdk};

pub(super) struct Worker {
    pub(super) id: Uuid,
    /// The id as text.
    pub(super) id_text: Box<str>,
    /// With this token the worker can prove its identity on its next connection.
    pub(super) reattach_token: Uuid,
    pub(super) address: SocketAddr,
    pub(super) connected_at: SystemTime,
    pub(super) profile: RwLock<Profile>,
    pub(super) outbox: Outbox,
    pub(super) owned: Mutex<Owned>,
    /// Cancelled when the connection must end.
    pub(super) gone: CancellationToken,
    calls: Mutex<Calls>,
    /// How many calls this worker has made that have no result yet.
    calling: AtomicUsize,
    pub(super) channels: AtomicUsize,
}

/// The metadata that a worker sends about itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Profile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) os: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) isolation: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) telemetry: Option<Value>,
}

/// The registrations that are removed when the worker disconnects.
#[derive(Default)]
pub(super) struct Owned {
    /// Functions, with the size of their registration in bytes.
    pub(super) functions: HashMap<Arc<str>, usize>,
    pub(super) triggers: HashSet<String>,
    /// The size of all registrations in bytes.
    pub(super) bytes: usize,
}

#[derive(Default)]
struct Calls {
    open: HashMap<Uuid, Call>,
    closed: bool,
}

/// A call that a worker is processing.
pub(super) struct Call {
    pub(super) function: Arc<str>,
    pub(super) waiter: Waiter,
}

/// The receiver of the result of a call.
pub(super) enum Waiter {
    /// A worker. It knows the call by this id.
    Worker(CallPermit, Uuid),
    /// A task in this process.
    Local(oneshot::Sender<Result<Box<RawValue>, CallError>>),
}

/// A permit for a call that a worker has made. The call is counted until the permit is dropped.
pub(super) struct CallPermit(pub(super) Arc<Worker>);

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.0.calling.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a call cannot be sent to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenError {
    /// The worker is processing too many calls.
    Overloaded,
    /// The worker has disconnected.
    Gone,
}

impl Worker {
    pub(super) fn new(address: SocketAddr, limits: &EngineLimits) -> Self {
        let id = Uuid::new_v4();
        Self {
            id,
            id_text: id.to_string().into(),
            reattach_token: Uuid::new_v4(),
            address,
            connected_at: SystemTime::now(),
            profile: RwLock::default(),
            outbox: Outbox::new(limits.queued_bytes, limits.queued_frames),
            owned: Mutex::default(),
            gone: CancellationToken::new(),
            calls: Mutex::default(),
            calling: AtomicUsize::new(0),
            channels: AtomicUsize::new(0),
        }
    }

    /// The worker's name; its id if it has no name.
    pub(super) fn name(&self) -> Arc<str> {
        self.profile.read().name.clone().unwrap_or_else(|| Arc::from(&*self.id_text))
    }

    /// How many calls the worker is processing.
    pub(super) fn load(&self) -> usize {
        self.calls.lock().open.len()
    }

    /// Counts a call by this worker. Returns `None` if the worker has too many open calls.
    pub(super) fn begin_call(self: &Arc<Self>, limit: usize) -> Option<CallPermit> {
        let made = self.calling.fetch_add(1, Ordering::Relaxed);
        let call = CallPermit(self.clone());
        (made < limit).then_some(call)
    }

    /// Records a call that this worker will process. The call gets the id `wanted`, or a new id if `wanted` is in use.
    pub(super) fn open(&self, wanted: Uuid, call: Call, limit: usize) -> Result<Uuid, (OpenError, Call)> {
        let mut calls = self.calls.lock();
        if calls.closed {
            return Err((OpenError::Gone, call));
        }
        if calls.open.len() >= limit {
            return Err((OpenError::Overloaded, call));
        }
        let mut id = wanted;
        while calls.open.contains_key(&id) {
            id = Uuid::new_v4();
        }
        calls.open.insert(id, call);
        Ok(id)
    }

    /// Removes a call, because it has a result or is abandoned.
    pub(super) fn take(&self, id: Uuid) -> Option<Call> {
        self.calls.lock().open.remove(&id)
    }

    /// Removes all calls and accepts no more.
    pub(super) fn take_all(&self) -> Vec<Call> {
        let mut calls = self.calls.lock();
        calls.closed = true;
        std::mem::take(&mut calls.open).into_values().collect()
    }

    /// Removes the calls that `caller` made: `caller` has disconnected.
    pub(super) fn forget_calls_by(&self, caller: &Self) {
        let is_theirs = |call: &mut Call| match &call.waiter {
            Waiter::Worker(made, _) => made.0.id == caller.id,
            Waiter::Local(_) => false,
        };
        // Dropped after the lock is released: dropping the last handle of a worker takes other locks.
        let mut calls = self.calls.lock();
        let gone: Vec<_> = calls.open.extract_if(|_, call| is_theirs(call)).collect();
        drop(calls);
        drop(gone);
    }

    /// Sends the worker the result of a call that it made.
    pub(super) fn answer(&self, id: Uuid, function: &str, outcome: Result<&str, &ErrorBody>) {
        if self.offer(frames::result(id, function, outcome)) == Err(TooLarge) {
            let message = format!("The result of {function} is larger than the SDK of this worker accepts");
            let error = ErrorBody { code: "result_too_large".to_owned(), message, stacktrace: None };
            self.send(frames::result(id, function, Err(&error)));
        }
    }

    /// Sends a frame that the worker waits for. If too many frames are queued, the worker is disconnected.
    pub(super) fn send(&self, frame: String) {
        if self.offer(frame) == Err(TooLarge) {
            tracing::warn!(worker = %self.id, "a frame is too large for the SDK of this worker");
        }
    }

    fn offer(&self, frame: String) -> Result<(), TooLarge> {
        match self.outbox.push(frame) {
            Ok(()) | Err(PushError::Closed) => {}
            Err(PushError::TooLarge { .. }) => return Err(TooLarge),
            Err(PushError::Full) => {
                if !self.gone.is_cancelled() {
                    tracing::warn!(worker = %self.id, "disconnecting a worker that does not read its frames");
                }
                self.gone.cancel();
            }
        }
        Ok(())
    }

    /// Applies the limit of the worker's SDK. A worker that gets a larger message drops its connection, and all its calls fail.
    pub(super) fn apply_sdk_limits(&self) {
        let profile = self.profile.read();
        if profile.runtime.as_deref() == Some("python") {
            self.outbox.limit_frames(sdk::max_message(Some("python"), profile.version.as_deref()));
        }
    }
}

/// The frame is larger than the worker accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TooLarge;

impl Call {
    /// Sends the result to the waiter.
    pub(super) fn finish(self, outcome: Result<&RawValue, ErrorBody>) {
        match self.waiter {
            Waiter::Worker(made, id) => {
                made.0.answer(id, &self.function, outcome.as_ref().map(|result| result.get()));
            }
            Waiter::Local(sender) => {
                let outcome = outcome
                    .map(ToOwned::to_owned)
                    .map_err(|error| CallError::remote(error.code, error.message));
                // The waiter may have stopped waiting.
                let _ = sender.send(outcome);
            }
        }
    }
}
