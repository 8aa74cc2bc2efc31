//! An agent that asks for input: it books a table and asks for the number of people and the time.
//!
//! `cargo run --example multi_turn`, send `a table please`, then answer with the task's id until it is booked.

use attache::prelude::*;

async fn book(turn: Turn) -> AgentResult {
    // The history of the task contains the conversation. The answers are the client's messages after the first.
    let answers: Vec<String> = turn
        .task()
        .map(|task| task.history.iter().filter(|m| m.role == Role::User).skip(1).map(Message::text).collect())
        .unwrap_or_default();
    match answers.as_slice() {
        [] => turn.ask("For how many people?").await,
        [people] if people.trim().parse::<u8>().is_err() => {
            turn.fail(format!("`{people}` is not a number of people.")).await
        }
        [_] => turn.ask("At what time?").await,
        [people, time, ..] => {
            turn.artifact("booking")
                .text(format!("A table for {} at {}.", people.trim(), time.trim()))
                .await?;
            turn.complete().await
        }
    }
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let card = Card::new("Tables", "Books a table")
        .skill(Skill::new("book", "Book a table").example("a table please"));
    Ok(Server::new(agent_fn(book)).card(card).bind(address).run().await?)
}
