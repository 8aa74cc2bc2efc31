//! The delivery of push notifications, and how their secrets are stored.

use std::os::unix::fs::PermissionsExt;

use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::support::PATIENCE;
use super::{Server, message, settings_with, start_with, state};
use crate::home::Home;
use crate::programs::has_python;
use crate::support::Program;

const SETTINGS: &str = "push-notifications: true\npush: { allow-loopback: true }\n";

/// A receiver of webhooks on this machine.
pub(super) struct Receiver {
    pub(super) url: String,
    told: UnboundedReceiver<(HeaderMap, Value)>,
}

impl Receiver {
    pub(super) async fn start() -> Self {
        let (sender, told) = tokio::sync::mpsc::unbounded_channel();
        let handler = post(move |headers: HeaderMap, Json(body): Json<Value>| async move {
            let _ = sender.send((headers, body));
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/a2a", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/a2a", handler)).await });
        Self { url, told }
    }

    /// Whether nothing has arrived since the last notification that was read.
    pub(super) fn is_untold(&mut self) -> bool {
        self.told.is_empty()
    }

    /// The notifications up to the end of a turn.
    async fn turn(&mut self) -> Vec<(HeaderMap, Value)> {
        let mut all = Vec::new();
        loop {
            let next = tokio::time::timeout(PATIENCE, self.told.recv()).await.expect("the end is delivered");
            let (headers, body) = next.unwrap();
            let has_ended = body.to_string().contains("TASK_STATE_INPUT_REQUIRED");
            all.push((headers, body));
            if has_ended {
                return all;
            }
        }
    }
}

#[tokio::test]
async fn a_webhook_is_told_of_the_end_of_a_turn_with_its_token_and_credentials() {
    if !has_python("iac_code::push::a_webhook_is_told_of_the_end_of_a_turn") {
        return;
    }
    let mut receiver = Receiver::start().await;
    let home = Home::new();
    let server = start_with(&home, &[], SETTINGS).await;
    let params = json!({
        "message": message("generate", json!({"contextId": "c"})),
        "configuration": {"taskPushNotificationConfig": {
            "id": "webhook-1", "url": receiver.url, "token": "notification-token",
            "authentication": {"scheme": "bearer", "credentials": "callback-token"},
        }},
    });
    let sent = server.rpc("SendMessage", params).await;
    let task = sent["result"]["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}"));
    for (headers, body) in receiver.turn().await {
        // Receivers compare the scheme as text.
        assert_eq!(headers["authorization"], "Bearer callback-token");
        assert_eq!(headers["x-a2a-notification-token"], "notification-token");
        assert!(body.to_string().contains(task), "{sent}: {body}");
        // States are delivered. The file and the tools of the turn are not.
        assert!(body["artifactUpdate"].is_null(), "{body}");
    }
}

#[tokio::test]
async fn a_webhook_that_is_created_later_is_told_of_later_turns() {
    if !has_python("iac_code::push::a_webhook_that_is_created_later_is_told_of_later_turns") {
        return;
    }
    let mut receiver = Receiver::start().await;
    let home = Home::new();
    let server = start_with(&home, &[], SETTINGS).await;
    let failed = server.send(message("fail", json!({}))).await;
    assert_eq!(state(&failed), "TASK_STATE_FAILED");
    let waits = server.send(message("hello", json!({"contextId": "c"}))).await;
    for (number, sent) in [&failed, &waits].into_iter().enumerate() {
        let task = &sent["result"]["task"]["id"];
        let config = json!({"taskId": task, "id": format!("webhook-{number}"), "url": receiver.url});
        let created = server.rpc("CreateTaskPushNotificationConfig", config).await;
        assert_eq!(created["result"]["taskId"], *task, "{created}");
    }
    let task = waits["result"]["task"]["id"].as_str().unwrap();
    server.send(message("again", json!({"contextId": "c", "taskId": task, "messageId": "m2"}))).await;
    for (_, body) in receiver.turn().await {
        assert!(body.to_string().contains(task), "a task that has ended has no further events: {body}");
    }
}

#[tokio::test]
async fn stored_tokens_and_credentials_of_webhooks_are_encrypted() {
    if !has_python("iac_code::push::stored_tokens_and_credentials_of_webhooks_are_encrypted") {
        return;
    }
    let home = Home::new();
    let folder = home.path("a2a");
    std::fs::create_dir(&folder).unwrap();
    let more = format!("push-notifications: true\npersistence-dir: {}\n", folder.display());
    let file = settings_with(&home, &more);
    let text = std::fs::read_to_string(&file).unwrap().replace("store: \"memory:\"\n", "");
    std::fs::write(&file, text).unwrap();
    let keyring = home.path("keyring.json");
    let listen = ["serve", "--config", &file, "--listen", "127.0.0.1:0", "--keyring"];
    let (program, _) =
        Program::command_with(&[&listen[..], &[keyring.to_str().unwrap()]].concat(), &[]).await;
    let server = Server { program, http: Client::new() };
    let sent = server.send(message("hello", json!({}))).await;
    let named = json!({"taskId": sent["result"]["task"]["id"], "id": "webhook-1"});
    let mut config = named.clone();
    config["url"] = json!("https://hooks.example.com/a2a");
    config["token"] = json!("notification-token");
    config["authentication"] = json!({"scheme": "bearer", "credentials": "callback-token"});
    let created = server.rpc("CreateTaskPushNotificationConfig", config).await;
    let read = server.rpc("GetTaskPushNotificationConfig", named).await;
    let secrets = ["notification-token", "callback-token"];
    for shown in [created, read] {
        assert_eq!(shown["result"]["url"], "https://hooks.example.com/a2a", "{shown}");
        assert!(secrets.iter().all(|secret| !shown.to_string().contains(secret)), "{shown}");
    }
    let mut has_config = false;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(content) = std::fs::read(&path) else { continue };
        let has = |text: &str| content.windows(text.len()).any(|window| window == text.as_bytes());
        has_config |= has("webhook-1");
        assert!(secrets.iter().all(|secret| !has(secret)), "{}", path.display());
    }
    assert!(has_config, "the webhook is in the store");
    let mode = std::fs::metadata(&keyring).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
