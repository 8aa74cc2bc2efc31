//! Calls an agent: sends a message and prints the response, then prints a stream as it arrives.
//!
//! Start an agent, such as `cargo run --example streaming_agent`, then `cargo run --example simple_client`.

use std::io::Write;

use attache::client::ClientError;
use attache::prelude::*;
use attache::protocol::StreamResponse;

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let agent = Client::connect(&address).await?;
    eprintln!("{}: {}", agent.card().name, agent.card().description);

    let mut out = std::io::stdout();
    let say = |out: &mut std::io::Stdout, text: &str| {
        // An error means that the reader has closed the pipe. It is ignored.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    };

    // Waits until the agent has responded.
    let reply = agent.send("Hello").await?;
    say(&mut out, &format!("{}\n", Texts::from(&reply).all()));

    // Or stream the events. After a broken connection the client reconnects and resumes without a gap.
    let mut events = agent.stream("Tell me a story").await?;
    while let Some(event) = events.next().await {
        match event? {
            StreamResponse::ArtifactUpdate(update) => say(&mut out, &update.artifact.text()),
            StreamResponse::Message(message) => say(&mut out, &message.text()),
            StreamResponse::StatusUpdate(update) => eprintln!("({})", update.status.state),
            StreamResponse::Task(task) => eprintln!("(task {}: {})", task.id, task.status.state),
        }
    }
    say(&mut out, "\n");
    Ok(())
}
