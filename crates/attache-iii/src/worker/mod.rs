//! A worker that connects to an iii engine. It registers its own functions and calls other functions.
//!
//! There is one connection. If it is lost, the worker reconnects and registers everything again. A call does not wait for a lost
//! connection: it fails, and the caller decides. Only before the first connection do calls wait, until their own deadline.
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
mod sizes;
mod socket;
mod writer;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use attache_core::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::calls::{CallResult, Calls};
use self::registry::Registry;
use self::socket::Dialer;
use crate::functions::{CallError, Channel, ChannelItem, FunctionCall, Functions, Updates};
use crate::wire::{ChannelRef, RegisterFunction};

pub use self::channels::ChannelWriter;
pub use self::handlers::Invocation;
pub use self::options::{WorkerError, WorkerOptions};
pub use self::registry::{Registration, Rejection};

/// The connection of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// The worker is trying to connect.
    Connecting,
    /// The worker is connected.
    Connected {
        /// The id that the engine gave this connection.
        worker_id: String,
    },
    /// The engine rejected the worker. The worker retries from time to time.
    Rejected(Rejection),
    /// The worker was closed.
    Closed,
}

/// A worker. Cloning is cheap, and all clones are one worker. It disconnects when it is [closed](Self::close) or the last clone
/// is dropped.
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
    /// Lock order: this lock first, then the lock in `calls`.
    registry: Mutex<Registry>,
    /// Permits for calls of the worker's functions.
    call_permits: Arc<Semaphore>,
    catalog: OnceLock<Updates>,
    /// Whether everything will be registered again in a moment.
    registering_again: AtomicBool,
    closing: CancellationToken,
}

impl Worker {
    /// Starts a worker. It connects in the background, and reconnects when the connection is lost.
    ///
    /// Must be called within a tokio runtime.
    pub fn connect(options: WorkerOptions) -> Result<Self, WorkerError> {
        let runtime = Handle::try_current().map_err(|_| WorkerError::NoRuntime)?;
        let dialer = Dialer::new(options::engine_url(&options.url)?, options.headers.clone());
        let call_permits = Arc::new(Semaphore::new(options.at_once.min(Semaphore::MAX_PERMITS)));
        let closing = CancellationToken::new();
        let inner = Arc::new(Inner {
            options,
            dialer,
            runtime,
            state: watch::Sender::new(Connection::Connecting),
            calls: Calls::new(),
            registry: Mutex::default(),
            call_permits,
            catalog: OnceLock::new(),
            registering_again: AtomicBool::new(false),
            closing: closing.clone(),
        });
        inner.runtime.spawn(connection::run(inner.clone()));
        Ok(Self(Arc::new(Owned { inner, _leave: closing.drop_guard() })))
    }

    /// Waits until the worker is connected or closed.
    pub async fn connected(&self) {
        let done = |state: &Connection| matches!(state, Connection::Connected { .. } | Connection::Closed);
        // An error means that the worker was dropped, which this handle prevents.
        let _ = self.state().wait_for(done).await;
    }

    /// The state of the connection, updated when it changes.
    pub fn state(&self) -> watch::Receiver<Connection> {
        self.0.inner.state.subscribe()
    }

    /// Registers a function, now and after each reconnect. It replaces a function with the same id.
    ///
    /// Calls run concurrently, each in its own task. If a handler panics, only its call fails. A handler that holds a clone of
    /// the worker keeps the worker alive until it is closed.
    pub fn register<F, R>(&self, function: RegisterFunction, handler: F) -> Registration
    where
        F: Fn(Invocation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Box<RawValue>, CallError>> + Send + 'static,
    {
        self.0.inner.register(function, Arc::new(move |invocation| Box::pin(handler(invocation))))
    }

    /// Registers a trigger, now and after each reconnect: the engine calls the function on an event.
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

    /// Calls a function with metadata and waits for its result. Engines before 0.21 do not forward the metadata.
    pub async fn call_with(
        &self,
        call: FunctionCall<'_>,
        metadata: &RawValue,
    ) -> Result<Box<RawValue>, CallError> {
        self.0.inner.invoke(call, Some(metadata)).await
    }

    /// Calls a function and waits only until the call is queued, not for the result. The engine may reorder such calls.
    pub async fn send(&self, call: FunctionCall<'_>) -> Result<(), CallError> {
        self.0.inner.send(call, None).await
    }

    /// Opens the writing end of a channel.
    pub async fn open_writer(&self, end: &ChannelRef) -> Result<ChannelWriter, CallError> {
        self.0.inner.open_writer(end).await
    }

    /// Opens the reading end of a channel. It ends when the writer closes the channel, or when the connection to the engine is
    /// lost. Dropping the receiver closes the channel.
    pub async fn open_reader(&self, end: &ChannelRef) -> Result<mpsc::Receiver<ChannelItem>, CallError> {
        self.0.inner.open_reader(end).await
    }

    /// Unregisters everything and disconnects. Other clones of the worker are closed too.
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
    fn call<'a>(&'a self, call: FunctionCall<'a>) -> BoxFuture<'a, CallResult> {
        Box::pin(self.0.inner.invoke(call, None))
    }

    fn open_channel(&self) -> BoxFuture<'_, Result<Channel, CallError>> {
        Box::pin(self.0.inner.open_channel())
    }

    /// The functions of the engine. The worker starts to list them at the first call.
    fn updates(&self) -> Updates {
        self.0.inner.catalog.get_or_init(|| catalog::watch_functions(&self.0.inner)).clone()
    }
}
