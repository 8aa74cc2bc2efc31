//! Redis Streams with a real Redis server, from both sides.
//!
//! The tests start `redis-server` on a free port with a folder of its own. Where it is not installed they are skipped and say so. The peer
//! in Python is installed by `cargo xtask test`.

mod access;
mod command;
mod faults;
#[path = "../e2e/home.rs"]
#[expect(dead_code, reason = "the end-to-end tests use more of it")]
mod home;
#[path = "../shared/peers.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod peers;
mod python;
mod requests;
mod support;
