//! Push notifications from both sides: an agent with a slow task, and the receiver of its notifications.
//!
//! `cargo run --example push_notifications` prints each notification and exits when the task ends.

use std::io::Write;

use attache::prelude::*;
use attache::protocol::{StreamResponse, TaskPushNotificationConfig};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tokio::sync::mpsc;

/// Known only to the agent. A notification with this token comes from the agent.
const TOKEN: &str = "only-the-agent-knows";

async fn bake(turn: Turn) -> AgentResult {
    turn.working("The oven is warm.").await?;
    turn.artifact("cake").text("A cake with cherries").await?;
    turn.complete_with("Ready.").await
}

/// Receives notifications on a port of its own. Returns the URL of the webhook.
async fn start_receiver(events: mpsc::UnboundedSender<StreamResponse>) -> std::io::Result<String> {
    let receive = move |headers: HeaderMap, body: String| async move {
        if headers.get("x-a2a-notification-token").is_none_or(|token| token != TOKEN) {
            return StatusCode::UNAUTHORIZED;
        }
        let Ok(event) = serde_json::from_str(&body) else { return StatusCode::BAD_REQUEST };
        // The server retries until it gets a 2xx status.
        if events.send(event).is_ok() { StatusCode::NO_CONTENT } else { StatusCode::GONE }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    let router = axum::Router::new().route("/hook", post(receive));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::new(agent_fn(bake))
        .card(Card::new("Bakery", "Bakes cakes").skill(Skill::new("bake", "Bake a cake")))
        // By default webhooks on this machine are rejected.
        .push_options(|push| push.policy = Policy::default().allow_loopback(true))
        .bind("127.0.0.1:0")
        .listen()
        .await?;
    let agent = format!("http://{}", server.address()?);
    tokio::spawn(server.run());

    let (sender, mut events) = mpsc::unbounded_channel();
    let webhook = TaskPushNotificationConfig {
        url: start_receiver(sender).await?,
        token: Some(TOKEN.to_owned()),
        ..TaskPushNotificationConfig::default()
    };
    // The client does not wait for the result: the receiver gets it.
    Client::connect(&agent)
        .await?
        .send(Outgoing::new("a cake").webhook(webhook).return_immediately())
        .await?;

    let mut out = std::io::stdout();
    while let Some(event) = events.recv().await {
        let status = match event {
            StreamResponse::Task(task) => task.status,
            StreamResponse::StatusUpdate(update) => update.status,
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => continue,
        };
        let text = status.message.as_ref().map(|message| message.text()).unwrap_or_default();
        writeln!(out, "{} {text}", status.state)?;
        if status.state.is_terminal() {
            break;
        }
    }
    Ok(())
}
