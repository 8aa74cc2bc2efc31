//! Logging in at an authorization server that others made, to an agent that asks it whether tokens are good.
//!
//! `cargo xtask test` installs the server and says where it is; without that, these tests are skipped with a message.

mod agent;
mod browser;
mod command;
#[path = "../e2e/home.rs"]
#[expect(dead_code, reason = "the end-to-end tests use more of it")]
mod home;
mod library;
mod mcp;
#[path = "../shared/peers.rs"]
mod peers;
mod provider;
