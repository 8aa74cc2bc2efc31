//! Calls an agent over any transport: HTTP, a Unix socket, WebSocket, the gRPC envelope, or a command that the client starts.
//!
//! For example: `cargo run --example any_transport -- "stdio:attache serve --stdio --agent echo"`, or with `unix:/run/agent.sock`,
//! `ws://localhost:3111/ws` or `grpc-jsonrpc://localhost:3111`.

use std::io::Write;

use attache::client::{ClientError, CommandErrors, Commands, commands_ended};
use attache::prelude::*;

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());

    // The address comes from the user of this program, so it may be a command.
    let options = ClientOptions::default().commands(Commands::Allowed(CommandErrors::PassOn));
    let agent = Client::connect_with(&address, options).await?;

    let texts = agent.stream("Hello").await?.texts().await?;
    // An error means that the reader has closed the pipe. It is ignored.
    let _ = writeln!(std::io::stdout(), "{}", texts.all());

    // The command ends with its client. Waiting for it lets it end by itself.
    drop(agent);
    commands_ended().await;
    Ok(())
}
