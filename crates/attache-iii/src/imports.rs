//! Functions that this process has registered for other agents, and can call without the engine.

use std::time::Duration;

use attache_core::{BoxFuture, TraceParent};
use serde_json::value::RawValue;

use crate::{CallError, FunctionInfo};

/// Functions that a [`Gateway`](crate::Gateway) calls directly instead of through the engine.
///
/// The engine cannot cancel a call, and does not pass on the number of agents that a request has come through. A direct call does
/// both.
pub trait ImportedFunctions: Send + Sync + 'static {
    /// Calls a function with a time limit. `hops` is the number of agents that the request has come through, this one included.
    /// `trace_parent` is the trace that the call belongs to. Dropping the future cancels the call.
    ///
    /// `None` if the function is not one of these. Another process can have registered a different function under the same id.
    fn call<'a>(
        &self,
        function: &FunctionInfo,
        payload: &'a RawValue,
        timeout: Duration,
        hops: u64,
        trace_parent: Option<TraceParent>,
    ) -> Option<BoxFuture<'a, Result<Box<RawValue>, CallError>>>;
}
