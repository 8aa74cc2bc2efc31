//! Registers functions with an engine: the embedded engine of this process, or the engine that a worker has joined.

use std::fmt;
use std::sync::Arc;

use attache_core::{BoxFuture, TraceParent};
use attache_iii::engine::Engine;
use attache_iii::wire::RegisterFunction;
use attache_iii::worker::Worker;
use attache_iii::{CallError, FunctionInfo};
use serde_json::value::RawValue;

/// Runs a function: takes its payload and the trace that the call belongs to, and returns its result.
pub type FunctionHandler = Arc<
    dyn Fn(Box<RawValue>, Option<TraceParent>) -> BoxFuture<'static, Result<Box<RawValue>, CallError>>
        + Send
        + Sync,
>;

/// An engine that functions can be registered with.
pub trait FunctionHost: Send + Sync + 'static {
    /// Registers a function until the returned guard is dropped. Replaces a function with the same id.
    fn register_function(&self, function: FunctionInfo, handler: FunctionHandler) -> FunctionGuard;
}

/// A registered function. Dropping this unregisters it.
#[must_use = "dropping the guard unregisters the function"]
pub struct FunctionGuard(Option<Box<dyn FnOnce() + Send>>);

impl FunctionGuard {
    /// A guard that calls `unregister` when it is dropped.
    pub fn new(unregister: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(unregister)))
    }

    /// Drops the guard without unregistering: another function has been registered under the same id.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for FunctionGuard {
    fn drop(&mut self) {
        if let Some(unregister) = self.0.take() {
            unregister();
        }
    }
}

impl fmt::Debug for FunctionGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionGuard").finish_non_exhaustive()
    }
}

impl FunctionHost for Engine {
    fn register_function(&self, function: FunctionInfo, handler: FunctionHandler) -> FunctionGuard {
        let (engine, id) = (self.clone(), function.id.clone());
        self.register(function, move |invocation| handler(invocation.payload, invocation.trace_parent));
        FunctionGuard::new(move || {
            engine.unregister(&id);
        })
    }
}

impl FunctionHost for Worker {
    fn register_function(&self, function: FunctionInfo, handler: FunctionHandler) -> FunctionGuard {
        let request = RegisterFunction {
            id: function.id.to_string(),
            description: function.description,
            request_format: function.request_format,
            response_format: function.response_format,
            metadata: function.metadata,
            invocation: None,
        };
        let registration = self.register(request, move |invocation| {
            let trace_parent = invocation.traceparent.as_deref().and_then(|text| text.parse().ok());
            handler(invocation.payload(), trace_parent)
        });
        FunctionGuard::new(move || registration.unregister())
    }
}
