//! A2A over JSON-RPC, HTTP+JSON and gRPC on one port.
//!
//! [`Server`] puts an [`Agent`](attache_core::Agent) on the network. The bindings frame bytes and carry parameters; what an
//! operation means is decided in [`attache_core`].

mod audit;
pub mod auth;
mod body;
mod card;
mod connection;
mod descriptors;
mod grpc;
mod http_json;
mod idle;
mod jsonrpc;
mod limits;
mod load;
mod options;
mod origin;
mod params;
mod peer;
mod push;
mod reply;
mod server;
mod signing;
mod socket;
mod sse;
mod surface;
mod tls;

pub use attache_outbound::{IpNet, Policy};
pub use attache_signing::{Algorithm, JwkError, KeySet, SigningKeys};
pub use body::{Body, BodyError, BoxBody};
pub use connection::{Listening, stop_signal};
pub use descriptors::raise_file_limit;
pub use limits::Limits;
pub use options::{Paths, ServerOptions};
pub use origin::{AllowedHost, AllowedOrigin, Cors, NotAHost, NotAnOrigin, is_loopback_url};
pub use peer::Peer;
pub use push::{PushOptions, SigningSecret};
pub use server::{Server, ServerError};
pub use surface::{FallbackAccess, Surface, SurfaceForKnown};
pub use tls::{ClientCertificate, Tls, TlsError, TlsRenewal};
