//! An agent that streams a story word by word.
//!
//! `cargo run --example streaming_agent`, then call `SendStreamingMessage`: each word is an event.

use std::time::Duration;

use attache::prelude::*;

const STORY: &str = "Once upon a time there was an envoy who carried every word exactly once and in order";

async fn tell(turn: Turn) -> AgentResult {
    turn.working("Remembering a story").await?;
    let mut story = turn.artifact("story").stream();
    let mut words = STORY.split_inclusive(' ').peekable();
    while let Some(word) = words.next() {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(30)) => {}
            // After a cancel, the rest is not sent.
            () = turn.cancelled() => return Ok(()),
        }
        if words.peek().is_none() {
            story.last(word).await?;
            break;
        }
        story.chunk(word).await?;
    }
    turn.complete().await
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let card =
        Card::new("Storyteller", "Tells a story, word by word").skill(Skill::new("story", "Tell a story"));
    Ok(Server::new(agent_fn(tell)).card(card).bind(address).run().await?)
}
