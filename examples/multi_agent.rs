//! Two agents: a coordinator splits a job and delegates the pieces to a worker concurrently.
//!
//! `cargo run --example multi_agent` starts the coordinator on port 3001 and the worker on port 3002. Then send `count the words` with
//! a text on each further line. Other addresses: `cargo run --example multi_agent -- 127.0.0.1:8080 127.0.0.1:8081`.

use attache::client::ClientError;
use attache::prelude::*;
use futures::future::try_join_all;

/// Counts words. It does not know the coordinator.
async fn count(turn: Turn) -> AgentResult {
    let words = turn.text().split_whitespace().count();
    turn.artifact("count").text(words.to_string()).await?;
    turn.complete().await
}

/// Delegates each line to the worker and adds up the results.
struct Coordinator {
    worker: Client,
}

impl Agent for Coordinator {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.text();
        let lines: Vec<&str> = text.lines().skip(1).filter(|line| !line.trim().is_empty()).collect();
        if lines.is_empty() {
            return turn.reject("Nothing to count: put a text on each line after the first.").await;
        }
        turn.working(format!("Asking {} about {} lines", self.worker.card().name, lines.len())).await?;
        // If this task is canceled, the coordinator stops waiting for the worker.
        let counts = tokio::select! {
            counts = try_join_all(lines.iter().map(|line| self.ask(line))) => counts,
            () = turn.cancelled() => return Ok(()),
        };
        let counts = match counts {
            Ok(counts) => counts,
            Err(error) => return turn.fail(format!("The worker did not answer: {error}")).await,
        };
        for (line, count) in lines.iter().zip(&counts) {
            turn.artifact(*line).text(count.clone()).await?;
        }
        let total: usize = counts.iter().filter_map(|count| count.parse::<usize>().ok()).sum();
        turn.complete_with(format!("{total} words in {} lines", lines.len())).await
    }
}

impl Coordinator {
    async fn ask(&self, line: &str) -> Result<String, ClientError> {
        let reply = self.worker.send(line).await?;
        Ok(Texts::from(&reply).all())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3001".to_owned());
    let worker = arguments.next().unwrap_or_else(|| "127.0.0.1:3002".to_owned());
    let card = Card::new("Counter", "Counts words").skill(Skill::new("count", "Count words"));
    let worker = Server::new(agent_fn(count)).card(card).bind(worker).listen().await?;
    let url = format!("http://{}", worker.address()?);
    tokio::spawn(worker.run());

    // The worker could be any A2A agent: the coordinator knows only its address.
    let worker = Client::connect(&url).await?;
    let card = Card::new("Coordinator", "Splits a job and delegates the pieces")
        .skill(Skill::new("count", "Count the words of several texts"));
    Server::new(Coordinator { worker }).card(card).bind(address).run().await?;
    Ok(())
}
