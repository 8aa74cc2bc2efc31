//! Coding agents over ACP, with real processes.
//!
//! Most tests use `agent.py`, which does what its prompts say. They need Python. The tests of `sdk.rs` use an agent that is written
//! with the SDK of the protocol. The test of `opencode.rs` uses a coding agent that people work with.
#![cfg(target_os = "linux")]

mod conversations;
mod files;
mod opencode;
#[path = "../../../attache/tests/shared/peers.rs"]
#[expect(dead_code, reason = "the interop tests use more of it")]
mod peers;
mod permissions;
mod prompts;
mod sdk;
mod support;
