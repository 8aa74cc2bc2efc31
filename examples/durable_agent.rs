//! A durable agent: tasks are in a file, and a turn that was interrupted by the end of the process runs again.
//!
//! `cargo run --example durable_agent -- 127.0.0.1:8080 tasks --restartable`, send a few words, kill the process while it repeats
//! them, start it again and read the task. Without `--restartable`, the task has failed with a message that gives the reason.

use std::path::PathBuf;
use std::time::Duration;

use attache::prelude::*;
use attache::store::{Keyring, SqliteOptions, SqliteStore};

async fn repeat(turn: Turn) -> AgentResult {
    let text = turn.text();
    if text.ends_with('?') {
        // The question is stored too: the answer may arrive after a restart.
        return turn.ask("What do you think?").await;
    }
    // A rerun starts from the beginning: an artifact of the same name replaces the one of the interrupted turn.
    turn.working(if turn.is_rerun() { "Where was I?" } else { "Thinking" }).await?;
    let mut words = text.split_inclusive(' ').peekable();
    let mut answer = turn.artifact("answer").stream();
    while let Some(word) = words.next() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if words.peek().is_none() {
            answer.last(word).await?;
            break;
        }
        answer.chunk(word).await?;
    }
    turn.complete().await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (flags, rest): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|text| text.starts_with("--"));
    let address = rest.first().map_or("127.0.0.1:8080", String::as_str);
    let directory = PathBuf::from(rest.get(1).map_or("tasks", String::as_str));

    // Secrets of webhooks are encrypted with a key that is not in the database file.
    let keyring = Keyring::from_file(directory.join("keyring.json"))?;
    let store = SqliteStore::open(directory.join("tasks.db"), SqliteOptions::new(keyring))?;
    let card =
        Card::new("Parrot", "Repeats what it hears").skill(Skill::new("repeat", "Repeat").example("a b c"));
    if flags.iter().any(|flag| flag == "--restartable") {
        serve(restartable(agent_fn(repeat)), card, store, address).await?;
    } else {
        serve(agent_fn(repeat), card, store, address).await?;
    }
    Ok(())
}

async fn serve(agent: impl Agent, card: Card, store: SqliteStore, address: &str) -> attache::Result<()> {
    Server::new(agent)
        .card(card)
        .store(store)
        // Allows webhooks on this machine, for trying them out.
        .push_options(|push| push.policy = Policy::default().allow_loopback(true))
        .bind(address)
        .run()
        .await?;
    Ok(())
}
