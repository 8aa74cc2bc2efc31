//! The functions of an iii engine as the skills of an A2A agent.
//!
//! - [`wire`] has the messages between workers and engines.
//! - [`engine`] is a small embedded engine for one machine. [`worker`] connects to an engine.
//! - [`Functions`] is the common interface of both: calls, and the list of functions.
//! - [`Gateway`] is the agent whose skills are those functions, and [`exposure`] decides which of them.
//! - [`remote`] makes functions of the skills of other agents, and [`delegation`] gives tasks to agents that callers name.
//! - [`StateStore`] keeps tasks in the state of an engine.
//! - [`serve_through`] puts a surface behind the HTTP of an engine.

#[cfg(feature = "cli")]
mod agent_settings;
#[cfg(feature = "cli")]
mod args;
mod bridge;
mod card;
mod chunks;
mod credentials;
pub mod delegation;
pub mod engine;
pub mod exposure;
mod functions;
mod gateway;
mod history;
pub mod remote;
mod resolve;
mod schema;
#[cfg(feature = "cli")]
pub mod secrets;
mod socket;
mod state_store;
#[cfg(feature = "cli")]
pub mod variables;
pub mod wire;
pub mod worker;

#[cfg(feature = "cli")]
pub use agent_settings::{AgentFault, AgentSettings};
#[cfg(feature = "cli")]
pub use args::{API_TOKEN_VARIABLE, DelegationArgs, GatewayArgs};
pub use bridge::{serve_api_through, serve_through};
pub use card::{CardDetails, SCHEMAS_EXTENSION};
pub use credentials::AgentCredentials;
pub use exposure::Exposure;
pub use functions::{
    CallError, Catalog, Channel, ChannelItem, FunctionCall, FunctionInfo, Functions, Updates,
};
pub use gateway::{Gateway, GatewayOptions};
pub use state_store::StateStore;
