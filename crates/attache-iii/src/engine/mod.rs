//! The embedded engine. Workers of the iii SDKs connect to it if no separate engine runs on the machine.
//!
//! Workers connect over WebSockets. They register functions, call functions of each other, keep values in the state, and serve
//! HTTP requests. Code in this process needs no socket: [`Engine::register`] adds functions, and the engine implements
//! [`Functions`].
//!
//! - The frames of one connection are processed in order. So calls from one worker to another arrive in order.
//! - When a worker disconnects, its functions, triggers and channels are removed, and the calls that it was processing fail at
//!   once.
//! - A worker cannot disturb another worker. Its registrations, its queues and its open calls are limited, and only the worker
//!   that received a call can send the result of that call.

mod builtins;
mod calls;
mod catalog;
mod channel_socket;
mod channels;
mod connection;
mod frames;
mod http;
mod listener;
mod options;
mod outbox;
mod registry;
mod state;
mod triggers;
mod update;
mod worker;
mod writer;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use attache_core::{BoxFuture, Store, TraceParent};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::catalog::Publisher;
use self::channels::Channels;
use self::frames::Extras;
use self::http::routes::Routes;
use self::registry::{Executor, Registry};
use self::triggers::Triggers;
use self::worker::Worker;
use crate::{CallError, Channel, FunctionCall, FunctionInfo, Functions, Updates};

pub use self::http::{HttpBody, HttpRoute, PublicOnly};
pub(crate) use self::http::{result_as_response, written_head};
pub use self::listener::EngineListening;
pub use self::options::{EngineError, EngineLimits, EngineOptions, Token};
pub use self::writer::ChannelWriter;

/// A call of a function in this process.
#[derive(Debug)]
pub struct Invocation {
    /// The function.
    pub function: Arc<str>,
    /// The payload.
    pub payload: Box<RawValue>,
    /// The name of the calling worker. `None` if the call comes from this process.
    pub caller: Option<Arc<str>>,
    /// The trace that the call belongs to.
    pub trace_parent: Option<TraceParent>,
}

/// The embedded engine. Cheap to clone.
///
/// ```
/// # use std::sync::Arc;
/// # use attache_core::MemoryStore;
/// # use attache_iii::engine::{Engine, EngineOptions};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let options = EngineOptions::default().with(|options| options.listen = "127.0.0.1:0".into());
/// let engine = Engine::new(Arc::new(MemoryStore::default()), options);
/// let listening = engine.listen().await?;
/// println!("workers connect to ws://{}", listening.address());
/// listening.run_until(async { /* a signal */ }).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    /// Background tasks. They end when the engine is dropped.
    _background: Vec<AbortOnDropHandle<()>>,
}

/// The state that all connections of an engine share.
struct Shared {
    options: EngineOptions,
    store: Arc<dyn Store>,
    registry: Registry,
    triggers: Mutex<Triggers>,
    routes: RwLock<Routes>,
    channels: Arc<Channels>,
    publisher: Publisher,
    http_requests: Arc<AtomicUsize>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Shared {
    /// Removes a worker and everything that it registered. A second call does nothing.
    fn remove_worker(self: &Arc<Self>, worker: &Arc<Worker>) {
        if !self.registry.remove_worker(worker) {
            return;
        }
        worker.outbox.close();
        self.remove_triggers_of(worker);
        self.channels.remove_channels_of(worker);
        Self::fail_calls(worker);
        for other in self.registry.workers() {
            other.forget_calls_by(worker);
        }
        self.publisher.mark_changed();
        self.worker_event("worker_disconnected", worker);
    }

    async fn sweep_channels(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(Duration::from_secs(15));
        loop {
            ticks.tick().await;
            self.channels.sweep();
        }
    }
}

impl Engine {
    /// Creates an engine that keeps the state in `store`. Must be called within a tokio runtime.
    pub fn new(store: Arc<dyn Store>, options: EngineOptions) -> Self {
        let shared = Arc::new(Shared {
            options,
            store,
            registry: Registry::default(),
            triggers: Mutex::default(),
            routes: RwLock::default(),
            channels: Arc::default(),
            publisher: Publisher::new(),
            http_requests: Arc::default(),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        shared.install_builtins();
        shared.publisher.publish(|| shared.registry.catalog());
        let background = vec![
            AbortOnDropHandle::new(tokio::spawn(shared.clone().run_publisher())),
            AbortOnDropHandle::new(tokio::spawn(shared.clone().sweep_channels())),
        ];
        Self(Arc::new(Inner { shared, _background: background }))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Binds the port that workers connect to. Functions that are registered before this call are listed at once.
    pub async fn listen(&self) -> Result<EngineListening, EngineError> {
        self.shared().publisher.publish(|| self.shared().registry.catalog());
        EngineListening::bind(self.clone()).await
    }

    /// Registers a function of this process. It replaces a function with the same id.
    pub fn register<F, R>(&self, function: FunctionInfo, handler: F)
    where
        F: Fn(Invocation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Box<RawValue>, CallError>> + Send + 'static,
    {
        let handler = move |invocation| -> BoxFuture<'static, _> { Box::pin(handler(invocation)) };
        self.shared().registry.insert(function, Executor::Local(Arc::new(handler)));
        self.shared().publisher.mark_changed();
    }

    /// Removes a function of this process. Returns whether there was one.
    pub fn unregister(&self, function: &str) -> bool {
        let removed = self.shared().registry.remove_local(function);
        self.shared().publisher.mark_changed();
        removed
    }

    /// Reserves paths, so that HTTP triggers cannot use them: the paths in `exact`, and all paths at or below those in `below`.
    ///
    /// A trigger with a reserved path is rejected with an error that says that the path belongs to the A2A server.
    pub fn reserve_paths<'a>(
        &self,
        exact: impl IntoIterator<Item = &'a str>,
        below: impl IntoIterator<Item = &'a str>,
    ) {
        let mut routes = self.shared().routes.write();
        exact.into_iter().for_each(|path| routes.reserve(path));
        below.into_iter().for_each(|path| routes.reserve_below(path));
    }

    /// The origins whose web pages may call the function that has an HTTP trigger for this method and path. The function lists
    /// them in its metadata as `a2a.origins`.
    pub fn http_origins(&self, method: &::http::Method, path: &str) -> Vec<String> {
        http::origins(self.shared(), method, path)
    }

    /// Who may send a request with this method and path.
    ///
    /// The result can be out of date when the request is handled: see [`PublicOnly`].
    pub fn http_route(&self, method: &::http::Method, path: &str) -> HttpRoute {
        http::route(self.shared(), method, path)
    }

    /// Calls the function whose HTTP trigger matches the request. Returns `None` if no trigger has the path.
    ///
    /// The call contains JSON bodies up to [`EngineLimits::http_body_in_call`]. The function can read every body through
    /// `request_body`.
    ///
    /// The server must check the origin of the request before this call, with [`http_origins`](Self::http_origins). If the
    /// request has the extension [`PublicOnly`], only a public function may serve it.
    pub async fn handle_http<B>(&self, request: ::http::Request<B>) -> Option<::http::Response<HttpBody>>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        http::handle(self.shared(), request).await
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("listen", &self.shared().options.listen).finish_non_exhaustive()
    }
}

impl Functions for Engine {
    fn call<'a>(&'a self, call: FunctionCall<'a>) -> BoxFuture<'a, Result<Box<RawValue>, CallError>> {
        Box::pin(async move {
            let traceparent = call.trace_parent.as_ref().map(TraceParent::as_str);
            let extras = Extras { traceparent, ..Extras::default() };
            self.shared().call_text(call.function, call.payload.get(), extras, call.timeout).await
        })
    }

    fn open_channel(&self) -> BoxFuture<'_, Result<Channel, CallError>> {
        Box::pin(async {
            let (writer, items) = self.shared().channels.open();
            Ok(Channel { writer, items })
        })
    }

    fn updates(&self) -> Updates {
        self.shared().publisher.subscribe()
    }
}
