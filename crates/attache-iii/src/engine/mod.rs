//! The embedded engine: what workers of the iii SDKs join when there is no engine of its own on the machine.
//!
//! Workers connect over WebSockets, register functions, call each other's, keep values in the state, and answer HTTP requests.
//! What is in this process takes part without a socket: [`Engine::register`] adds functions, and the engine is [`Functions`].
//!
//! - Frames of one connection are carried out in their order, so calls of one worker to another one arrive in order.
//! - A worker that goes takes its functions, triggers and channels with it, and what it was working on fails at once.
//! - A worker cannot disturb another one: what it can have registered, waiting and under way is limited, and only the worker that
//!   was given a call can answer it.

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

use attache_core::{BoxFuture, Store};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::catalog::Publisher;
use self::channels::Channels;
use self::http::routes::Routes;
use self::registry::{Home, Registry};
use self::triggers::Triggers;
use self::worker::Worker;
use crate::{CallError, Channel, FunctionCall, FunctionInfo, Functions, Updates};

pub use self::http::{HttpBody, HttpRoute, PublicOnly};
pub use self::listener::EngineListening;
pub use self::options::{EngineError, EngineLimits, EngineOptions, Token};
pub use self::writer::ChannelWriter;

/// A call of a function of this process.
#[derive(Debug)]
pub struct Invocation {
    /// The function.
    pub function: Arc<str>,
    /// What it gets.
    pub payload: Box<RawValue>,
    /// The name of the worker that calls; nobody's, if the call comes from this process.
    pub caller: Option<Arc<str>>,
}

/// The embedded engine. Cheap to clone.
///
/// ```
/// # use std::sync::Arc;
/// # use attache_core::MemoryStore;
/// # use attache_iii::engine::{Engine, EngineOptions};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let options = EngineOptions { listen: "127.0.0.1:0".into(), ..EngineOptions::default() };
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
    /// What runs beside the connections, for as long as there is an engine.
    _background: Vec<AbortOnDropHandle<()>>,
}

/// What the connections of an engine share.
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
    /// Lets a worker go, with all that it had. Once; more often does nothing.
    fn dismiss(self: &Arc<Self>, worker: &Arc<Worker>) {
        if !self.registry.dismiss(worker) {
            return;
        }
        worker.outbox.close();
        self.remove_triggers_of(worker);
        self.channels.remove_of(worker);
        Self::fail_calls(worker);
        for other in self.registry.workers() {
            other.forget_calls_by(worker);
        }
        self.publisher.touch();
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
    /// An engine that keeps the state in `store`. Must be called within a tokio runtime.
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
            AbortOnDropHandle::new(tokio::spawn(shared.clone().keep_catalog())),
            AbortOnDropHandle::new(tokio::spawn(shared.clone().sweep_channels())),
        ];
        Self(Arc::new(Inner { shared, _background: background }))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// Takes the port that workers connect to. What this process has registered by then is in the list of functions at once.
    pub async fn listen(&self) -> Result<EngineListening, EngineError> {
        self.shared().publisher.publish(|| self.shared().registry.catalog());
        EngineListening::bind(self.clone()).await
    }

    /// Registers a function of this process. Whoever had its id has it no more.
    pub fn register<F, R>(&self, function: FunctionInfo, handler: F)
    where
        F: Fn(Invocation) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Box<RawValue>, CallError>> + Send + 'static,
    {
        let handler = move |invocation| -> BoxFuture<'static, _> { Box::pin(handler(invocation)) };
        self.shared().registry.put(function, Home::Local(Arc::new(handler)));
        self.shared().publisher.touch();
    }

    /// Removes a function of this process. Whether there was one.
    pub fn unregister(&self, function: &str) -> bool {
        let removed = self.shared().registry.remove_local(function);
        self.shared().publisher.touch();
        removed
    }

    /// Keeps paths for others than HTTP triggers: `exact` ones, and all at and below those in `below`.
    ///
    /// Whoever asks for one of them is told that it belongs to the A2A server.
    pub fn reserve_paths<'a>(
        &self,
        exact: impl IntoIterator<Item = &'a str>,
        below: impl IntoIterator<Item = &'a str>,
    ) {
        let mut routes = self.shared().routes.write();
        exact.into_iter().for_each(|path| routes.reserve(path));
        below.into_iter().for_each(|path| routes.reserve_below(path));
    }

    /// The origins whose pages may call the function with the HTTP trigger for a method and a path, as its author lists them in the
    /// metadata `a2a.origins`.
    pub fn http_origins(&self, method: &::http::Method, path: &str) -> Vec<String> {
        http::origins(self.shared(), method, path)
    }

    /// What answers a request with this method and path.
    ///
    /// What it says may change until the request is answered: see [`PublicOnly`].
    pub fn http_route(&self, method: &::http::Method, path: &str) -> HttpRoute {
        http::route(self.shared(), method, path)
    }

    /// Answers a request with the function whose HTTP trigger has its path. Nothing, if there is none.
    ///
    /// JSON bodies up to [`EngineLimits::http_body_in_call`] are part of the call; all bodies can be read through `request_body`.
    ///
    /// Which web pages may send the request is for the server to decide before, with [`http_origins`](Self::http_origins).
    /// With [`PublicOnly`] among the extensions of the request, only a function that is for everyone answers.
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
        Box::pin(self.shared().call_text(call.function, call.payload.get(), None, call.timeout))
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
