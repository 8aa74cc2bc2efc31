//! The client's guarantees, with our server and with servers that deviate.

mod bindings;
#[cfg(unix)]
mod channels;
mod credentials;
mod deadlines;
mod discovery;
#[cfg(unix)]
mod faults;
mod frameworks;
mod grpc;
mod hostile;
mod http_json;
mod listing;
mod oauth;
mod origins;
mod recorded;
mod refusals;
mod resuming;
mod sending;
mod streaming;
mod support;
mod tls;
mod trust;
mod v0_3;
mod waiting;
