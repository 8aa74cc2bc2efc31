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
mod mcp_login;
mod permission;
mod redis;
pub(crate) mod registry;
pub(crate) mod send;
pub(crate) mod show;
pub(crate) mod task;

pub(crate) use self::connect::{AgentArgs, CONNECTION, TOKEN_VARIABLE};
pub(crate) use self::login::CLIENT_SECRET_VARIABLE;
pub(crate) use self::mcp_login::{hint as mcp_login_hint, stored as stored_mcp_login};
pub(crate) use self::redis::{REDIS_VARIABLE, redis_credentials};
use super::Failure;

/// How long a command that was the agent may take to end. It is killed before that.
const COMMAND_END: std::time::Duration = std::time::Duration::from_secs(10);

/// Runs a subcommand that waits for the network.
pub(crate) fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
    let result = runtime.block_on(work);
    // A command that was the agent has no more input, and ends by itself.
    let _ = runtime
        .block_on(async { tokio::time::timeout(COMMAND_END, attache::client::commands_ended()).await });
    // A name that is still being looked up must not keep the command from ending.
    runtime.shutdown_background();
    result
}
