//! Agents that a server of this process serves, for callers in the same process.

use attache_protocol::Error;
use bytes::Bytes;

use crate::{BoxFuture, TraceParent};

/// An agent that a server of this process serves. It is called without a transport and without credentials.
pub trait ServedAgent: Send + Sync + 'static {
    /// The card as JSON of protocol 0.1. `None` if the server has no such agent.
    fn v0_1_card(&self) -> Option<Bytes>;

    /// Answers a JSON-RPC request. A request that can be one of protocol 0.1 is taken as such. `None` if the request is a notification.
    /// Fails if the response is a stream.
    fn answer<'a>(
        &'a self,
        request: &'a [u8],
        trace_parent: Option<TraceParent>,
    ) -> BoxFuture<'a, Result<Option<Bytes>, Error>>;
}
