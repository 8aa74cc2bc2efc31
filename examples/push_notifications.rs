//! Push notifications from both sides: an agent with a slow task, and the receiver of its notifications.
//!
//! `cargo run --example push_notifications` starts the agent on port 8080 and the receiver on port 9090. It creates a webhook, sends a
//! message, prints each notification, and deletes the webhook when the task has ended. Other addresses:
//! `cargo run --example push_notifications -- 127.0.0.1:8081 127.0.0.1:9091`.

use std::io::Write;

use attache::prelude::*;
use attache::protocol::{StreamResponse, TaskPushNotificationConfig};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use futures::StreamExt;
use tokio::sync::mpsc;

/// Known only to the agent. A notification with this token comes from the agent.
const TOKEN: &str = "only-the-agent-knows";

/// Asks what to bake, then bakes it.
async fn bake(turn: Turn) -> AgentResult {
    if turn.text() == "an order" {
        return turn.ask("What shall I bake?").await;
    }
    turn.working("The oven is warm.").await?;
    turn.artifact("cake").text(format!("Here is {}", turn.text())).await?;
    turn.complete_with("Ready.").await
}

/// Receives notifications on a port of its own. Returns the URL of the webhook.
async fn start_receiver(
    address: &str,
    events: mpsc::UnboundedSender<StreamResponse>,
) -> std::io::Result<String> {
    let receive = move |headers: HeaderMap, body: String| async move {
        if headers.get("x-a2a-notification-token").is_none_or(|token| token != TOKEN) {
            return StatusCode::UNAUTHORIZED;
        }
        let Ok(event) = serde_json::from_str(&body) else { return StatusCode::BAD_REQUEST };
        // The server retries until it gets a 2xx status.
        if events.send(event).is_ok() { StatusCode::NO_CONTENT } else { StatusCode::GONE }
    };
    let listener = tokio::net::TcpListener::bind(address).await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    let router = axum::Router::new().route("/hook", post(receive));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let receiver = arguments.next().unwrap_or_else(|| "127.0.0.1:9090".to_owned());
    let server = Server::new(agent_fn(bake))
        .card(Card::new("Bakery", "Bakes cakes").skill(Skill::new("bake", "Bake a cake")))
        // By default webhooks on this machine are rejected.
        .push_options(|push| push.policy = Policy::default().allow_loopback(true))
        .bind(address)
        .listen()
        .await?;
    let url = format!("http://{}", server.address()?);
    tokio::spawn(server.run());
    let (sender, mut events) = mpsc::unbounded_channel();
    let webhook = start_receiver(&receiver, sender).await?;
    let agent = Client::connect(&url).await?;
    let mut out = std::io::stdout();

    // A webhook belongs to a task.
    let Reply::Task(task) = agent.send("an order").await? else { return Err("expected a task".into()) };
    let webhook = TaskPushNotificationConfig {
        url: webhook,
        token: Some(TOKEN.to_owned()),
        ..TaskPushNotificationConfig::default()
    };
    let created = agent.create_webhook(task.id.clone(), webhook).await?;
    writeln!(out, "created a webhook")?;

    // The client does not wait for the result: the receiver gets it.
    agent.send(Outgoing::new("a cake").task(task.id.clone()).return_immediately()).await?;
    while let Some(event) = events.recv().await {
        let status = match event {
            StreamResponse::Task(task) => task.status,
            StreamResponse::StatusUpdate(update) => update.status,
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Message(_) => continue,
        };
        let text = status.message.as_ref().map(|message| message.text()).unwrap_or_default();
        writeln!(out, "received {} {text}", status.state)?;
        if status.state.is_terminal() {
            break;
        }
    }

    agent.delete_webhook(task.id.clone(), created.id.unwrap_or_default()).await?;
    writeln!(out, "deleted the webhook, {} left", agent.webhooks(task.id).count().await)?;
    Ok(())
}
