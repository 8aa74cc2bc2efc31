//! MCP servers as agents: a scripted server for exact and hostile cases, and servers of other projects.
#![cfg(unix)]

mod calls;
mod failures;
mod http;
mod models;
mod peers;
mod permissions;
mod questions;
mod start;
mod support;
