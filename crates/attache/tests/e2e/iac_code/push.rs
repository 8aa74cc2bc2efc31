//! The delivery of push notifications.

use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{message, start_with};
use crate::home::Home;
use crate::programs::has_python;

#[tokio::test]
async fn a_webhook_is_told_of_the_end_of_a_turn_with_its_token_and_credentials() {
    if !has_python("iac_code::push::a_webhook_is_told_of_the_end_of_a_turn") {
        return;
    }
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    let handler = post(move |headers: axum::http::HeaderMap, Json(body): Json<Value>| async move {
        let _ = sender.send((headers, body));
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/a2a", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/a2a", handler)).await });
    let home = Home::new();
    let settings = "push-notifications: true\npush: { allow-loopback: true }\n";
    let server = start_with(&home, &[], settings).await;
    let params = json!({
        "message": message("hello", json!({"contextId": "c"})),
        "configuration": {"taskPushNotificationConfig": {
            "id": "webhook-1", "url": url, "token": "notification-token",
            "authentication": {"scheme": "bearer", "credentials": "callback-token"},
        }},
    });
    let sent = server.rpc("SendMessage", params).await;
    let task = &sent["result"]["task"]["id"];
    let last = async {
        loop {
            let (headers, body) = told.recv().await.unwrap();
            assert_eq!(headers["authorization"], "bearer callback-token");
            assert_eq!(headers["x-a2a-notification-token"], "notification-token");
            let text = body.to_string();
            assert!(text.contains(task.as_str().unwrap()), "{sent}: {text}");
            if text.contains("TASK_STATE_INPUT_REQUIRED") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), last).await.expect("the end is delivered");
}
