//! Talks to A2A agents.
//!
//! [`Client::connect`] finds an agent by its card. Then messages can be [sent](Client::send) and [streamed](Client::stream), and
//! tasks read, listed, followed and canceled.
//!
//! What it promises:
//!
//! - A message is sent once. Only one with an [idempotency key](Outgoing::idempotency_key) is repeated when the connection breaks.
//! - A stream that breaks is taken up again where it broke: with a server that numbers its events and knows `Last-Event-ID`, as
//!   Attaché's does, no event is lost and none comes twice.
//! - Nothing an agent answers makes the client wait forever, or take more memory than [allowed](ClientOptions).
//! - Dropping a future or a stream stops the waiting, not the task.
//!
//! It speaks JSON-RPC, version 1.0 of the protocol.

mod client;
mod discovery;
mod error;
mod http;
mod jsonrpc;
mod options;
mod outgoing;
mod remote;
mod sse;
mod stream;

pub use attache_outbound::{Policy, Refused};
pub use client::{Client, Refreshed, Reply};
pub use error::ClientError;
pub use options::{Backoff, ClientOptions};
pub use outgoing::Outgoing;
pub use remote::RemoteError;
pub use stream::Events;
