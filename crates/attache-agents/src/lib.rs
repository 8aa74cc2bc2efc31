//! Ready-made agents, and tools to work with other agents.
//!
//! - [`acp`] passes messages to a coding agent over the Agent Client Protocol.
//! - [`remote`] registers the skills of remote A2A agents as functions of an iii engine.
//! - [`delegation`] sends tasks to agents that callers name, and keeps a record of each task.
//! - [`budget`] limits the tokens and the time that each caller uses.
//! - [`gateway`] serves a remote A2A agent as its own.
//! - [`mcp`] calls the tools of an MCP server.
//! - [`model`] passes messages to a language model.
//! - [`program`] runs a program on this machine for each message.
//! - [`router`] passes each message to one of several agents.
//! - [`AgentCredentials`] holds the credentials that [`remote`], [`delegation`] and [`gateway`] send to other agents.
//!
//! Further agents belong here, each in its own module.
//!
//! # Why this crate depends on `attache-iii`
//!
//! An imported skill is a function of an engine, and workers delegate by calling functions of an engine. So [`remote`] and
//! [`delegation`] need the types of the engine: [`FunctionInfo`](attache_iii::FunctionInfo) and [`CallError`](attache_iii::CallError).
//! With types of its own in this crate, each command would have to convert them, since `attache-iii` cannot implement a trait of a later
//! crate.
//!
//! The rest of the engine is behind [`FunctionHost`], which registers a function. It is implemented for the embedded engine and for a
//! worker. Agents that need no engine must not use `attache-iii`, except for its check of payloads against schemas.

pub mod acp;
mod address;
#[cfg(feature = "cli")]
mod agent_settings;
mod answer;
#[cfg(feature = "cli")]
mod args;
pub mod budget;
mod child;
mod credentials;
pub mod delegation;
mod fetch;
pub mod gateway;
mod host;
pub mod mcp;
pub mod model;
pub mod program;
mod progress;
pub mod remote;
pub mod router;
mod tool_artifact;
mod waiting;

#[cfg(feature = "cli")]
pub use agent_settings::{AgentFault, AgentSettings, OAuthSettings};
#[cfg(feature = "cli")]
pub use args::{API_TOKEN_VARIABLE, DelegationArgs, network};
pub use credentials::AgentCredentials;
pub use fetch::UrlFetcher;
pub use host::{FunctionGuard, FunctionHandler, FunctionHost};
pub use progress::register_progress;
