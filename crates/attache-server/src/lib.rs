//! A2A over JSON-RPC, HTTP+JSON and gRPC on one port.
//!
//! [`Server`] puts an [`Agent`](attache_core::Agent) on the network. The bindings frame bytes and carry parameters; what an
//! operation means is decided in [`attache_core`].

pub mod auth;
mod body;
mod card;
mod connection;
mod grpc;
mod http_json;
mod idle;
mod jsonrpc;
mod options;
mod params;
mod push;
mod reply;
mod server;
mod signing;
mod sse;
mod surface;

pub use attache_outbound::{IpNet, Policy};
pub use attache_signing::{Algorithm, SigningKeys};
pub use body::{Body, BodyError, BoxBody};
pub use connection::{Listening, stop_signal};
pub use options::{Paths, ServerOptions};
pub use push::{PushOptions, SigningSecret};
pub use server::{Server, ServerError};
pub use surface::Surface;
