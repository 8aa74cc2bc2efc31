//! A2A over JSON-RPC, HTTP+JSON and gRPC on one port, and JSON-RPC over WebSocket, Unix sockets, standard input and output, and gRPC.
//!
//! [`Server`] puts an [`Agent`](attache_core::Agent) on the network. The way of a request:
//!
//! - `transport` accepts connections: TCP with or without TLS, Unix sockets, WebSocket, and standard input and output.
//! - `http` routes a request and protects the server from web pages.
//! - `binding` parses and writes what one binding has on the wire: JSON-RPC, HTTP+JSON, gRPC.
//! - `dispatch` admits the caller once and runs the operation. Every transport and binding ends there.
//!
//! What an operation means is decided in [`attache_core`].

mod agents;
mod assemble;
mod audit;
pub mod auth;
mod binding;
mod card;
mod dispatch;
mod forward;
mod http;
mod in_process;
mod limits;
mod options;
mod peer;
mod push;
mod request_log;
mod server;
mod signing;
mod tls;
mod transport;

pub use crate::agents::{AddAgentError, Agents, NamedAgent};
pub use crate::card::runtime::RUNTIME_EXTENSION;
pub use crate::card::schemes::SchemeNames;
pub use crate::forward::{Forward, JsonRpcFrame, JsonRpcReply};
pub use crate::http::body::{Body, BodyError, BoxBody};
pub use crate::http::origin::{AllowedHost, AllowedOrigin, Cors, NotAHost, NotAnOrigin, is_loopback_url};
pub use crate::http::{FallbackAccess, HttpService, HttpServiceFor, InProgress};
pub use crate::in_process::{InProcessCaller, InProcessReply};
pub use crate::limits::Limits;
pub use crate::options::{CardTransports, GrpcAddress, Paths, ServerOptions};
pub use crate::peer::{Peer, PeerProcess};
#[cfg(feature = "redis")]
pub use crate::push::{DeadJob, JobDetails, PendingJob, PendingState, PushQueue};
#[cfg(feature = "redis")]
#[doc(hidden)]
pub use crate::push::{ParsedJob, parse_job, seal_job};
pub use crate::push::{PushOptions, SigningSecret};
pub use crate::request_log::RequestLog;
pub use crate::server::{Server, ServerError};
pub use crate::tls::{ClientCertificate, Tls, TlsError, TlsRenewal};
pub use crate::transport::descriptors::raise_file_limit;
#[cfg(feature = "redis")]
pub use crate::transport::redis::{OptionFlaw, RedisStreams};
#[cfg(feature = "redis")]
#[doc(hidden)]
pub use crate::transport::redis::{ParsedEntry, parse_entry, parse_left};
pub use crate::transport::{Listening, LocalAddress, stop_signal};
pub use attache_outbound::{IpNet, Policy};
#[cfg(feature = "redis")]
pub use attache_redis::{InvalidUrl as InvalidRedisUrl, RedisUrl};
#[cfg(feature = "signing")]
pub use attache_signing::{Algorithm, JwkError, KeySet, SigningKeys};
