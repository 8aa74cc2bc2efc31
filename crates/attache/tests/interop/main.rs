//! The official SDKs of A2A as clients of our server, and as servers of our client, as which there are those published for Rust, too.
//!
//! `cargo xtask test` installs them and says where they are; without that, these tests are skipped with a message. What each peer
//! could do is left in `target/interop`, from which `docs/interop.md` is made.

mod agent;
mod clients;
mod conversation;
mod example;
mod gateway;
mod generations;
#[path = "../shared/peers.rs"]
mod peers;
mod sdk;
mod servers;
mod signatures;
mod table;
