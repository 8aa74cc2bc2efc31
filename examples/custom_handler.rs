//! An agent with several skills and artifacts of text, data and files.
//!
//! `cargo run --example custom_handler`, then send `weather Oslo`, `report` or anything else.

use std::collections::BTreeMap;

use attache::prelude::*;

struct Assistant;

impl Agent for Assistant {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.text();
        match text.split_once(' ').unwrap_or((&text, "")) {
            ("weather", city) if !city.is_empty() => weather(&turn, city).await,
            ("weather", _) => turn.reject("Which city? Try `weather Oslo`.").await,
            ("report", _) => report(&turn).await,
            // A direct message needs no task.
            _ => turn.reply(format!("I know `weather CITY` and `report`. You said: {text}")).await,
        }
    }
}

/// Answers with text for people and data for programs.
async fn weather(turn: &Turn, city: &str) -> AgentResult {
    turn.working(format!("Looking at the sky over {city}")).await?;
    let forecast = BTreeMap::from([("city", city), ("sky", "clear"), ("wind", "calm")]);
    turn.artifact("forecast").text(format!("Clear and calm in {city}.")).data(&forecast)?.await?;
    turn.complete().await
}

/// Answers with a file.
async fn report(turn: &Turn) -> AgentResult {
    let csv = "day,visitors\nmon,3\ntue,5\n";
    turn.artifact("report").description("Visitors by day").file("visitors.csv", "text/csv", csv).await?;
    turn.complete_with(format!("Made for {}.", turn.caller().principal())).await
}

#[tokio::main]
async fn main() -> attache::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let card = Card::new("Assistant", "Tells the weather and writes reports")
        .provider("Example Org", "https://example.org")
        .skill(Skill::new("weather", "Weather").tags(["weather", "forecast"]).example("weather Oslo"))
        .skill(Skill::new("report", "Report").output_modes(["text/csv"]).example("report"));
    Ok(Server::new(Assistant).card(card).bind(address).run().await?)
}
