//! Where functions can be offered: an engine of this process, or one that a worker has joined.

use std::fmt;
use std::sync::Arc;

use attache_core::BoxFuture;
use attache_iii::engine::Engine;
use attache_iii::wire::RegisterFunction;
use attache_iii::worker::Worker;
use attache_iii::{CallError, FunctionInfo};
use serde_json::value::RawValue;

/// What runs a function: its payload in, its result out.
pub type Handler =
    Arc<dyn Fn(Box<RawValue>) -> BoxFuture<'static, Result<Box<RawValue>, CallError>> + Send + Sync>;

/// Where functions can be offered.
pub trait FunctionHost: Send + Sync + 'static {
    /// Offers a function until the offer is dropped. One with the same id is replaced.
    fn offer(&self, function: FunctionInfo, handler: Handler) -> Offer;
}

/// A function that is offered. Dropping this takes it back.
#[must_use = "dropping an offer takes it back"]
pub struct Offer(Option<Box<dyn FnOnce() + Send>>);

impl Offer {
    /// An offer that is taken back like this.
    pub fn new(take_back: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(take_back)))
    }

    /// There is another offer in its place, so that there is nothing to take back.
    pub(crate) fn replaced(mut self) {
        self.0 = None;
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if let Some(take_back) = self.0.take() {
            take_back();
        }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer").finish_non_exhaustive()
    }
}

impl FunctionHost for Engine {
    fn offer(&self, function: FunctionInfo, handler: Handler) -> Offer {
        let (engine, id) = (self.clone(), function.id.clone());
        self.register(function, move |invocation| handler(invocation.payload));
        Offer::new(move || {
            engine.unregister(&id);
        })
    }
}

impl FunctionHost for Worker {
    fn offer(&self, function: FunctionInfo, handler: Handler) -> Offer {
        let said = RegisterFunction {
            id: function.id.to_string(),
            description: function.description,
            request_format: function.request_format,
            response_format: function.response_format,
            metadata: function.metadata,
            invocation: None,
        };
        let registration = self.register(said, move |invocation| handler(invocation.payload()));
        Offer::new(move || registration.unregister())
    }
}
