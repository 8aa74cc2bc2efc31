//! What the three bindings promise to a client on the other side of a socket.
//!
//! One program for all themes, since linking one for each takes longer than running all of them.

mod artifacts;
mod audit;
mod auth;
mod callers;
mod cancel;
mod card;
#[cfg_attr(not(unix), expect(dead_code, unused_imports, reason = "the tests of transports need Unix"))]
#[path = "../conformance/mod.rs"]
mod conformance;
mod envelope;
mod errors;
mod generations_of_clients;
mod grpc;
mod idempotency;
mod identifiers;
mod iii_dialect;
mod in_process;
mod inside;
mod jwt;
mod limits;
mod listing;
mod mapping;
mod named_agents;
mod offered;
mod pages;
mod push;
mod request_log;
mod rest;
mod resuming;
mod rights;
mod router;
mod sending;
mod shutdown;
mod signing;
mod streams;
mod support;
mod tls;
#[cfg(unix)]
mod transports;
#[cfg(unix)]
mod unix;
mod v0_3_grpc;
mod v0_3_http_json;
mod versions;
