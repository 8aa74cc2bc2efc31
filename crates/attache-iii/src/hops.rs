//! How many agents a request has come through.

use attache_protocol::Message;

/// The metadata of a message that says through how many agents the request has come.
pub const HOPS_EXTENSION: &str = "urn:attache:extension:hops:v1";

/// The most agents that a request may have come through.
pub(crate) const MAX_HOPS: u64 = 8;

/// Through how many agents the request has come that a message belongs to. None, if it does not say.
pub(crate) fn hops(message: &Message) -> u64 {
    message.metadata.as_ref().and_then(|metadata| metadata.get(HOPS_EXTENSION)).unwrap_or(0)
}
