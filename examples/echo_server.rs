//! An agent that echoes each message.
//!
//! `cargo run --example echo_server`

use attache::prelude::*;

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    Ok(Server::echo().bind(address).run().await?)
}
