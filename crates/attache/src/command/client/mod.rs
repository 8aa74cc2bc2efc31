//! The subcommands that talk to agents.

pub(crate) mod agents;
pub(crate) mod card;
pub(crate) mod chat;
mod connect;
mod download;
mod editor;
pub(crate) mod hooks;
mod list;
pub(crate) mod listen;
mod live;
pub(crate) mod login;
pub(crate) mod logout;
mod markdown;
pub(crate) mod registry;
pub(crate) mod send;
pub(crate) mod show;
pub(crate) mod task;

pub(crate) use self::connect::{CONNECTION, TOKEN_VARIABLE};
pub(crate) use self::login::CLIENT_SECRET_VARIABLE;
use super::Failure;

/// Runs a subcommand that waits for the network.
pub(crate) fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
    let result = runtime.block_on(work);
    // A name that is still being looked up must not keep the command from ending.
    runtime.shutdown_background();
    result
}
