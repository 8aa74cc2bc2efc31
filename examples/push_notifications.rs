//! Push notifications, both ends: an agent that takes its time, and a receiver that is told how it goes.
//!
//! `cargo run --example push_notifications` prints each notification and ends with the task.

use std::io::Write;

use attache::prelude::*;
use attache::protocol::{StreamResponse, TaskPushNotificationConfig};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tokio::sync::mpsc;

/// What only the agent was told: whoever sends it with a notification is the agent.
const TOKEN: &str = "only-the-agent-knows";

async fn bake(turn: Turn) -> AgentResult {
    turn.working("The oven is warm.").await?;
    turn.artifact("cake").text("A cake with cherries").await?;
    turn.complete_with("Ready.").await
}

/// Takes in notifications, on a port of its own.
async fn receiver(news: mpsc::UnboundedSender<StreamResponse>) -> std::io::Result<String> {
    let take = move |headers: HeaderMap, body: String| async move {
        if headers.get("x-a2a-notification-token").is_none_or(|token| token != TOKEN) {
            return StatusCode::UNAUTHORIZED;
        }
        let Ok(event) = serde_json::from_str(&body) else { return StatusCode::BAD_REQUEST };
        // The agent tries again until it gets a 2xx.
        if news.send(event).is_ok() { StatusCode::NO_CONTENT } else { StatusCode::GONE }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/news", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().route("/news", post(take))).await });
    Ok(url)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::new(agent_fn(bake))
        .card(Card::new("Bakery", "Bakes cakes").skill(Skill::new("bake", "Bake a cake")))
        // Webhooks on this machine are refused unless this is said.
        .push_options(|push| push.policy = Policy::default().allow_loopback(true))
        .bind("127.0.0.1:0")
        .listen()
        .await?;
    let agent = format!("http://{}", server.address()?);
    tokio::spawn(server.run());

    let (tell, mut news) = mpsc::unbounded_channel();
    let webhook = TaskPushNotificationConfig {
        url: receiver(tell).await?,
        token: Some(TOKEN.to_owned()),
        ..TaskPushNotificationConfig::default()
    };
    // Nobody waits for the answer: the news comes by itself.
    Client::connect(&agent)
        .await?
        .send(Outgoing::new("a cake").webhook(webhook).return_immediately())
        .await?;

    let mut out = std::io::stdout();
    while let Some(event) = news.recv().await {
        let status = match event {
            StreamResponse::Task(task) => task.status,
            StreamResponse::StatusUpdate(update) => update.status,
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => continue,
        };
        let words = status.message.as_ref().map(|message| message.text()).unwrap_or_default();
        writeln!(out, "{} {words}", status.state)?;
        if status.state.is_terminal() {
            break;
        }
    }
    Ok(())
}
