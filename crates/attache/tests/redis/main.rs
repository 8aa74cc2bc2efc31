//! Redis Streams with a real Redis server, from both sides.
//!
//! The tests start `redis-server` on a free port with a folder of its own. Where it is not installed they are skipped, and a line states
//! why. The peer in Python is installed by `cargo xtask test`.

mod access;
mod bounds;
mod command;
#[path = "../../../attache-server/tests/conformance/mod.rs"]
#[expect(unused_imports, reason = "the tests of the server use more of it")]
mod conformance;
mod faults;
#[path = "../e2e/home.rs"]
#[expect(dead_code, reason = "the end-to-end tests use more of it")]
mod home;
mod matrix;
#[path = "../shared/peers.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod peers;
mod push_queue;
mod python;
mod requests;
mod several;
mod support;
