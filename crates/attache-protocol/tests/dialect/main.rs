//! The dialects before 1.0: snapshots of requests and responses, and properties of all values.

#[path = "../arbitrary/mod.rs"]
#[expect(dead_code, unused_macros, reason = "only some of the protocol is spoken in dialects")]
mod arbitrary;
mod cards;
mod carried;
mod either;
mod errors;
mod http;
mod http_carried;
mod iii;
mod support;
mod tolerant;
mod v0_1;
mod v0_1_client;
mod v0_3;
mod v0_3_client;
mod v0_3_http_client;
