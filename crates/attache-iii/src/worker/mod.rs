//! A worker that joins an iii engine: it offers functions of its own and calls those of others.
//!
//! There is one connection, and it comes back for as long as the worker lives: what was registered is registered again, without
//! the caller's doing. A call never waits for a connection that is gone; it fails, and the caller decides. Only before the very
//! first connection do calls wait, up to their own deadline.
//!
//! ```no_run
//! use attache_iii::wire::RegisterFunction;
//! use attache_iii::worker::{Invocation, Worker, WorkerOptions};
//!
//! # async fn example() -> Result<(), attache_iii::worker::WorkerError> {
//! let worker = Worker::connect(WorkerOptions::new("ws://localhost:49134"))?;
//! let function = RegisterFunction { id: "demo::echo".to_owned(), ..Default::default() };
//! worker.register(function, |call: Invocation| async move { Ok(call.payload()) });
//! worker.connected().await;
//! # Ok(())
//! # }
//! ```

mod calls;
mod catalog;
mod channels;
mod connection;
mod handlers;
mod options;
mod registry;
mod session;
mod socket;
mod writer;

use std::fmt;
use std::sync::{Arc, OnceLock};

use attache_core::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::calls::{Answer, Calls};
use self::registry::Registry;
use self::socket::Dialer;
use crate::functions::{CallError, Channel, ChannelItem, FunctionCall, Functions, Updates};
use crate::wire::{ChannelRef, RegisterFunction};

pub use self::channels::ChannelWriter;
pub use self::handlers::Invocation;
pub use self::options::{WorkerError, WorkerOptions};
pub use self::registry::{Refusal, Registration};

/// Whether a worker has an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// It is trying to get there.
    Connecting,
    /// It has.
    Connected {
        /// What the engine calls this connection.
        worker_id: String,
    },
    /// The engine does not want this worker. It asks again from time to time.
    Rejected(Refusal),
    /// The worker was closed.
    Closed,
}

/// A worker. Cheap to clone; all clones are one worker, which leaves the engine when it is [closed](Self::close) or the last
/// clone is dropped.
#[derive(Clone)]
pub struct Worker(Arc<Owned>);

struct Owned {
    inner: Arc<Inner>,
    _leave: DropGuard,
}

struct Inner {
    options: WorkerOptions,
    dialer: Dialer,
    runtime: Handle,
    state: watch::Sender<Connection>,
    calls: Calls,
    /// Locked before the line in `calls`, never after it.
    registry: Mutex<Registry>,
    /// Room for calls of the worker's own functions.
    room: Arc<Semaphore>,
    catalog: OnceLock<Updates>,
    closing: CancellationToken,
}

impl Worker {
    /// Starts a worker. It connects in the background, and again whenever the connection is lost.
    ///
    /// Call this within a runtime of tokio's.
    pub fn connect(options: WorkerOptions) -> Result<Self, WorkerError> {
        let runtime = Handle::try_current().map_err(|_| WorkerError::NoRuntime)?;
        let dialer = Dialer::new(options::engine_url(&options.url)?, options.headers.clone());
        let room = Arc::new(Semaphore::new(options.at_once.min(Semaphore::MAX_PERMITS)));
        let closing = CancellationToken::new();
        let inner = Arc::new(Inner {
            options,
            dialer,
            runtime,
            state: watch::Sender::new(Connection::Connecting),
            calls: Calls::new(),
            registry: Mutex::default(),
            room,
            catalog: OnceLock::new(),
            closing: closing.clone(),
        });
        inner.runtime.spawn(connection::run(inner.clone()));
        Ok(Self(Arc::new(Owned { inner, _leave: closing.drop_guard() })))
    }

    /// Waits until the worker has an engine, or was closed.
    pub async fn connected(&self) {
        let done = |state: &Connection| matches!(state, Connection::Connected { .. } | Connection::Closed);
        // An error means that there is no worker, which cannot be while this handle is there.
        let _ = self.state().wait_for(done).await;
    }

    /// Whether the worker has an engine, as it comes and goes.
    pub fn state(&self) -> watch::Receiver<Connection> {
        self.0.inner.state.subscribe()
    }

    /// Offers a function, now and after each reconnect. One with the same id is replaced.
    ///
    /// Many calls run at once, each as a task of its own. A handler that panics fails its call and nothing else. One that holds a
    /// clone of the worker keeps it until it is closed.
    pub fn register<F, R>(&self, function: RegisterFunction, handler: F) -> Registration
    where
        F: Fn(Invocation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Box<RawValue>, CallError>> + Send + 'static,
    {
        self.0.inner.register(function, Arc::new(move |invocation| Box::pin(handler(invocation))))
    }

    /// Has a function called when something happens, now and after each reconnect.
    pub fn register_trigger(
        &self,
        trigger_type: impl Into<String>,
        function_id: impl Into<String>,
        config: Value,
    ) -> Registration {
        self.0.inner.register_trigger(trigger_type.into(), function_id.into(), config)
    }

    /// Calls a function and waits for its result.
    pub async fn call(&self, call: FunctionCall<'_>) -> Result<Box<RawValue>, CallError> {
        self.0.inner.invoke(call, None).await
    }

    /// Calls a function with something beside its payload and waits for its result. Engines before 0.21 do not pass it on.
    pub async fn call_with(
        &self,
        call: FunctionCall<'_>,
        metadata: &RawValue,
    ) -> Result<Box<RawValue>, CallError> {
        self.0.inner.invoke(call, Some(metadata)).await
    }

    /// Calls a function without waiting for a result: only for the call to be on its way. Two such calls may overtake each other.
    pub async fn send(&self, call: FunctionCall<'_>) -> Result<(), CallError> {
        self.0.inner.send(call, None).await
    }

    /// Takes the writing end of a channel.
    pub async fn open_writer(&self, end: &ChannelRef) -> Result<ChannelWriter, CallError> {
        self.0.inner.open_writer(end).await
    }

    /// Takes the reading end of a channel. What is read ends when the writer closes it, or when the worker loses its engine;
    /// dropping the receiver closes the channel.
    pub async fn open_reader(&self, end: &ChannelRef) -> Result<mpsc::Receiver<ChannelItem>, CallError> {
        self.0.inner.open_reader(end).await
    }

    /// Unregisters everything and leaves the engine. Whoever holds a clone has a worker that is closed.
    pub async fn close(self) {
        self.0.inner.closing.cancel();
        let _ = self.state().wait_for(|state| *state == Connection::Closed).await;
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.inner.fmt(f)
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        f.debug_struct("Worker").field("name", &self.options.name).field("state", &*state).finish()
    }
}

impl Functions for Worker {
    fn call<'a>(&'a self, call: FunctionCall<'a>) -> BoxFuture<'a, Answer> {
        Box::pin(self.0.inner.invoke(call, None))
    }

    fn open_channel(&self) -> BoxFuture<'_, Result<Channel, CallError>> {
        Box::pin(self.0.inner.open_channel())
    }

    /// The functions of the engine. They are looked for from the first time on that somebody asks.
    fn updates(&self) -> Updates {
        self.0.inner.catalog.get_or_init(|| catalog::follow(&self.0.inner)).clone()
    }
}
