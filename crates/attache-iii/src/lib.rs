//! The functions of an iii engine as the skills of an A2A agent.
//!
//! - [`wire`] has the messages between workers and engines.
//! - [`engine`] is a small embedded engine for one machine. [`worker`] connects to an engine.
//! - [`Functions`] is the common interface of both: calls, and the list of functions.
//! - [`Gateway`] is the agent whose skills are those functions, and [`exposure`] decides which of them.
//! - [`StateStore`] keeps tasks in the state of an engine.
//! - [`serve_through`] answers the HTTP requests of an engine with a service, for which it registers routes there.

#[cfg(feature = "cli")]
mod args;
mod bridge;
mod card;
mod chunks;
pub mod engine;
pub mod exposure;
mod functions;
mod gateway;
mod history;
mod hops;
mod imports;
mod input;
mod metadata;
mod missing;
mod outcome;
#[doc(hidden)]
pub mod parsing;
mod progress;
mod reply;
mod resolve;
mod schema;
mod sdk;
#[cfg(feature = "cli")]
pub mod secrets;
mod socket;
mod state_store;
#[cfg(feature = "cli")]
pub mod variables;
pub mod wire;
pub mod worker;

#[cfg(feature = "cli")]
pub use args::GatewayArgs;
pub use bridge::{serve_routes_through, serve_through};
pub use card::{CardDetails, CardOverrides, SCHEMAS_EXTENSION, with_schemas};
pub use exposure::Exposure;
pub use functions::{
    CallError, Catalog, Channel, ChannelItem, FunctionCall, FunctionInfo, Functions, Updates,
};
pub use gateway::{FunctionGatewayOptions, Gateway};
pub use hops::HOPS_EXTENSION;
pub use imports::ImportedFunctions;
pub use progress::PROGRESS_FUNCTION;
pub use schema::Schemas;
pub use state_store::StateStore;
