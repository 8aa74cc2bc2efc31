//! A connected worker: what is to be written to it, what it is working on, and what it has registered.

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
use super::outbox::{Outbox, Refused};
use crate::CallError;
use crate::wire::ErrorBody;

pub(super) struct Worker {
    pub(super) id: Uuid,
    /// The id as it is written.
    pub(super) name_of_id: Box<str>,
    /// What proves, on another connection, that it is this worker that has come back.
    pub(super) reattach_token: Uuid,
    pub(super) address: SocketAddr,
    pub(super) connected_at: SystemTime,
    pub(super) profile: RwLock<Profile>,
    pub(super) outbox: Outbox,
    pub(super) owned: Mutex<Owned>,
    /// The connection is to end.
    pub(super) gone: CancellationToken,
    calls: Mutex<Calls>,
    /// Calls that it has made and that run.
    calling: AtomicUsize,
    pub(super) channels: AtomicUsize,
}

/// What a worker says about itself.
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

/// What goes when the worker goes.
#[derive(Default)]
pub(super) struct Owned {
    /// Functions, with the bytes of their registration.
    pub(super) functions: HashMap<Arc<str>, usize>,
    pub(super) triggers: HashSet<String>,
    /// The bytes of all registrations.
    pub(super) bytes: usize,
}

#[derive(Default)]
struct Calls {
    open: HashMap<Uuid, Call>,
    closed: bool,
}

/// A call that a worker is working on.
pub(super) struct Call {
    pub(super) function: Arc<str>,
    pub(super) waiter: Waiter,
}

/// Who waits for the result of a call.
pub(super) enum Waiter {
    /// A worker, which knows the call by this id.
    Worker(CallMade, Uuid),
    /// Someone in this process.
    Local(oneshot::Sender<Result<Box<RawValue>, CallError>>),
}

/// A call that a worker has made; counted until dropped.
pub(super) struct CallMade(pub(super) Arc<Worker>);

impl Drop for CallMade {
    fn drop(&mut self) {
        self.0.calling.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a call cannot be given to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// It has enough to do.
    Overloaded,
    /// It is going.
    Gone,
}

impl Worker {
    pub(super) fn new(address: SocketAddr, limits: &EngineLimits) -> Self {
        let id = Uuid::new_v4();
        Self {
            id,
            name_of_id: id.to_string().into(),
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

    /// The name that it gave itself, or its id.
    pub(super) fn name(&self) -> Arc<str> {
        self.profile.read().name.clone().unwrap_or_else(|| Arc::from(&*self.name_of_id))
    }

    /// How many calls it is working on.
    pub(super) fn load(&self) -> usize {
        self.calls.lock().open.len()
    }

    /// Counts a call that it makes, unless it has made too many.
    pub(super) fn begin_call(self: &Arc<Self>, limit: usize) -> Option<CallMade> {
        let made = self.calling.fetch_add(1, Ordering::Relaxed);
        let call = CallMade(self.clone());
        (made < limit).then_some(call)
    }

    /// Takes note of a call that it is to work on; under `wanted`, unless it has one of that id already.
    pub(super) fn open(&self, wanted: Uuid, call: Call, limit: usize) -> Result<Uuid, (NotOpened, Call)> {
        let mut calls = self.calls.lock();
        if calls.closed {
            return Err((NotOpened::Gone, call));
        }
        if calls.open.len() >= limit {
            return Err((NotOpened::Overloaded, call));
        }
        let mut id = wanted;
        while calls.open.contains_key(&id) {
            id = Uuid::new_v4();
        }
        calls.open.insert(id, call);
        Ok(id)
    }

    /// Takes a call back, be it answered or given up.
    pub(super) fn take(&self, id: Uuid) -> Option<Call> {
        self.calls.lock().open.remove(&id)
    }

    /// Takes all calls back and lets no more in.
    pub(super) fn take_all(&self) -> Vec<Call> {
        let mut calls = self.calls.lock();
        calls.closed = true;
        std::mem::take(&mut calls.open).into_values().collect()
    }

    /// Forgets the calls that `caller` made: nobody waits for them any more.
    pub(super) fn forget_calls_by(&self, caller: &Self) {
        let is_theirs = |call: &mut Call| match &call.waiter {
            Waiter::Worker(made, _) => made.0.id == caller.id,
            Waiter::Local(_) => false,
        };
        // Dropped after the lock: the last handle of a worker takes more with it.
        let mut calls = self.calls.lock();
        let gone: Vec<_> = calls.open.extract_if(|_, call| is_theirs(call)).collect();
        drop(calls);
        drop(gone);
    }

    /// Tells it the result of a call that it made.
    pub(super) fn answer(&self, id: Uuid, function: &str, outcome: Result<&str, &ErrorBody>) {
        if self.offer(frames::result(id, function, outcome)) == Err(TooLarge) {
            let message = format!("The result of {function} is larger than the SDK of this worker takes");
            let error = ErrorBody { code: "result_too_large".to_owned(), message, stacktrace: None };
            self.send(frames::result(id, function, Err(&error)));
        }
    }

    /// Sends it something that it waits for. A worker that lets too much of that gather is cut off.
    pub(super) fn send(&self, frame: String) {
        if self.offer(frame) == Err(TooLarge) {
            tracing::warn!(worker = %self.id, "something was too large for a worker to be told");
        }
    }

    fn offer(&self, frame: String) -> Result<(), TooLarge> {
        match self.outbox.push(frame) {
            Ok(()) | Err(Refused::Closed) => {}
            Err(Refused::TooLarge { .. }) => return Err(TooLarge),
            Err(Refused::Full) => {
                if !self.gone.is_cancelled() {
                    tracing::warn!(worker = %self.id, "a worker does not read what it asked for: cut off");
                }
                self.gone.cancel();
            }
        }
        Ok(())
    }

    /// Keeps to what its SDK takes: a worker that gets a larger message drops its connection, and with it everybody's calls.
    pub(super) fn heed_limits(&self) {
        const MIB: usize = 1024 * 1024;
        let profile = self.profile.read();
        let version = profile.version.as_deref().map(numbers).unwrap_or_default();
        match profile.runtime.as_deref() {
            Some("python") if version < [0, 25, 0] => self.outbox.limit_frames(MIB),
            Some(_) | None => {}
        }
    }
}

/// It is larger than the worker takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TooLarge;

/// The first three numbers of a version.
fn numbers(version: &str) -> [u32; 3] {
    let mut numbers = version.split(['.', '-', '+']).map(|number| number.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

impl Call {
    /// Tells whoever waits.
    pub(super) fn finish(self, outcome: Result<&RawValue, ErrorBody>) {
        match self.waiter {
            Waiter::Worker(made, id) => {
                made.0.answer(id, &self.function, outcome.as_ref().map(|result| result.get()));
            }
            Waiter::Local(sender) => {
                let outcome = outcome
                    .map(ToOwned::to_owned)
                    .map_err(|error| CallError::remote(error.code, error.message));
                // Whoever has stopped waiting does not mind.
                let _ = sender.send(outcome);
            }
        }
    }
}
