//! Agents to use as they are, without writing one.
//!
//! - [`remote`] registers the skills of remote A2A agents as functions of an iii engine.
//! - [`delegation`] sends tasks to agents that callers name, and keeps a record of each task.
//! - [`AgentCredentials`] holds the credentials that both of them send to other agents.
//!
//! Further agents belong here, each in a module of its own: a program on this machine, an ACP agent, a language model, the tools of
//! an MCP server, a router.
//!
//! # Why this crate depends on `attache-iii`
//!
//! An imported skill is a function of an engine, and callers use delegation by functions of an engine. So both modules need the
//! types of the engine: [`FunctionInfo`](attache_iii::FunctionInfo) and [`CallError`](attache_iii::CallError). Types of their own
//! would have to be converted in each command, since `attache-iii` cannot implement traits of a crate that comes after it.
//! [`FunctionHost`] is all that they need of the engine itself: registering a function. It is implemented here for the embedded
//! engine and for a worker. Agents that need no engine must not use `attache-iii`.

#[cfg(feature = "cli")]
mod agent_settings;
#[cfg(feature = "cli")]
mod args;
mod credentials;
pub mod delegation;
mod host;
pub mod remote;

#[cfg(feature = "cli")]
pub use agent_settings::{AgentFault, AgentSettings};
#[cfg(feature = "cli")]
pub use args::{API_TOKEN_VARIABLE, DelegationArgs};
pub use credentials::AgentCredentials;
pub use host::{FunctionHost, Handler, Offer};
