//! Addresses that are never called, and values that never get into a header.

use std::sync::Arc;
use std::time::Duration;

use attache_core::{MemoryStore, WebhookCheck};
use attache_server::{Policy, Server};
use serde_json::{Value, json};

use super::{Receiver, clock, given_up, pass, plain, playing, pushing, send_with, task_with};
use crate::support::{Binding, Ear, Player, Refusal, Running, card, serve};

const INLINE: &str = "configuration.taskPushNotificationConfig.";

/// Addresses that a client must not have a server call, unless the operator allows them.
const FORBIDDEN: [&str; 29] = [
    "http://127.0.0.1:8080/hook",
    "http://127.8.8.8/",
    "http://localhost/",
    "http://LOCALHOST:3111/a2a",
    "http://hooks.localhost/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://0.0.0.0/",
    "http://10.0.0.1/",
    "http://172.16.5.4/",
    "https://192.168.1.1/",
    "http://100.64.0.1/",
    "http://[fc00::1]/",
    "http://[fe80::1]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/",
    "http://metadata.google.internal/",
    "http://router/",
    "http://db.internal/",
    "http://2130706433/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://example.com@127.0.0.1/",
    "http://user:password@example.com/",
    "http://example.com\\@127.0.0.1/",
    "http://example.com./",
    "https://example.com:0/",
];

/// What is no address of a webhook for anyone.
const NONSENSE: [&str; 8] = [
    "",
    "hook",
    "/hook",
    "//example.com/hook",
    "file:///etc/passwd",
    "ftp://example.com/",
    "https://exam ple.com/",
    "https://example.com/\r\nX-Evil: 1",
];

fn assert_names(refusal: &Refusal, binding: Binding, field: &str) {
    let code = match binding {
        Binding::JsonRpc => -32602,
        Binding::HttpJson => 400,
        Binding::Grpc => 3,
    };
    assert_eq!((refusal.code, refusal.reason.as_str()), (code, "INVALID_PARAMS"), "{binding:?} {refusal:?}");
    assert_eq!(refusal.fields, [field], "{binding:?} {refusal:?}");
}

/// Asks for a webhook in every way there is, and is refused because of a field each time.
async fn assert_refused(server: &Running, task: &Value, hook: &Value, field: &str) {
    let mut params = hook.clone();
    params["taskId"] = task.clone();
    for binding in Binding::ALL {
        let create = server.ask("CreateTaskPushNotificationConfig", params.clone());
        assert_names(&create.refused(binding).await, binding, field);
        for operation in ["SendMessage", "SendStreamingMessage"] {
            let send = server.ask(operation, send_with("hi", hook));
            assert_names(&send.refused(binding).await, binding, &format!("{INLINE}{field}"));
        }
    }
}

/// Says that a task is the only one, and has no webhooks.
async fn assert_nothing_made(server: &Running, task: &Value) {
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 1);
    let listed = server.rpc("ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
    assert!(listed["result"]["configs"].as_array().is_none_or(Vec::is_empty), "{listed}");
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_and_nothing_is_made() {
    let server = serve(Server::new(Player).card(card())).await;
    let task = server.task("ask").await["id"].clone();
    for url in FORBIDDEN {
        assert_refused(&server, &task, &plain(url), "url").await;
    }
    assert_nothing_made(&server, &task).await;
}

#[tokio::test]
async fn what_is_no_address_is_refused_and_nothing_is_made() {
    let (server, _) = playing(|_| {}).await;
    let task = server.task("ask").await["id"].clone();
    for url in NONSENSE {
        assert_refused(&server, &task, &plain(url), "url").await;
    }
    assert_nothing_made(&server, &task).await;
}

#[tokio::test]
async fn what_would_break_out_of_a_header_is_refused_and_nothing_is_made() {
    let (server, _) = playing(|_| {}).await;
    let task = server.task("ask").await["id"].clone();
    let url = "https://example.com/";
    for (hook, field) in [
        (json!({"url": url, "token": "a\r\nX-Evil: 1"}), "token"),
        (json!({"url": url, "token": "a\u{0}b"}), "token"),
        (json!({"url": url, "token": "sésame"}), "token"),
        (json!({"url": url, "id": "a\nb"}), "id"),
        (json!({"url": url, "authentication": {"scheme": "Bearer x\r\nX-Evil:"}}), "authentication.scheme"),
        (json!({"url": url, "authentication": {"scheme": "Bea rer"}}), "authentication.scheme"),
        (json!({"url": url, "authentication": {"credentials": "x"}}), "authentication.scheme"),
        (
            json!({"url": url, "authentication": {"scheme": "Bearer", "credentials": "x\r\nX-Evil: 1"}}),
            "authentication.credentials",
        ),
    ] {
        assert_refused(&server, &task, &hook, field).await;
    }
    assert_nothing_made(&server, &task).await;
}

#[tokio::test]
async fn a_metadata_service_is_refused_whatever_else_is_allowed() {
    let (server, _) = playing(|options| {
        let networks = ["169.254.0.0/16", "fd00::/8"].map(|network| network.parse().unwrap());
        options.policy = Policy::default().allow_loopback(true).allow(networks);
    })
    .await;
    let task = server.task("ask").await["id"].clone();
    for url in ["http://169.254.169.254/", "http://[fd00:ec2::254]/", "http://metadata.google.internal/"] {
        assert_refused(&server, &task, &plain(url), "url").await;
    }
    assert_nothing_made(&server, &task).await;
    let allowed = json!({"taskId": task, "url": "http://169.254.1.1/"});
    server.ask("CreateTaskPushNotificationConfig", allowed).ok(Binding::Grpc).await;
}

#[tokio::test]
async fn an_operator_can_ask_for_more() {
    let store = Arc::new(MemoryStore::new());
    let server = pushing(Player, &store, |options| options.policy = Policy::default().https_only(true))
        .service_options(|options| {
            options.webhook_check = WebhookCheck::new(|url| match url.starts_with("https://hooks.") {
                true => Ok(()),
                false => Err("expected one of our hooks".to_owned()),
            });
        });
    let server = serve(server).await;
    let task = server.task("ask").await["id"].clone();
    for url in ["http://hooks.example.com/", "https://example.com/", "https://hooks.internal/"] {
        assert_refused(&server, &task, &plain(url), "url").await;
    }
    assert_nothing_made(&server, &task).await;
    let allowed = json!({"taskId": task, "url": "https://hooks.example.com/"});
    server.ask("CreateTaskPushNotificationConfig", allowed).ok(Binding::JsonRpc).await;
}

#[tokio::test]
async fn an_address_that_is_no_longer_allowed_is_not_called() {
    let mut receiver = Receiver::start().await;
    let (store, clock) = (Arc::new(MemoryStore::new()), clock());
    let mut before = serve(pushing(Player, &store, |_| {}).clock(clock.clone())).await;
    task_with(&before, "hi", &plain(receiver.url("/"))).await;
    receiver.answer(503).await;
    before.stop();
    before.stopped().await;
    pass(&clock, Duration::from_secs(60));
    let ear = Ear::new();
    let stricter = Server::new(Player).card(card()).shared_store(store.clone()).clock(clock.clone());
    let _stricter = serve(stricter).await;
    for dead in given_up(&store, 2).await {
        assert!(dead.error.contains("is not a public address"), "{}", dead.error);
    }
    assert!(receiver.is_quiet());
    let denied = ear.audit();
    assert_eq!(denied.len(), 2, "{denied:#?}");
    for line in denied {
        assert!(line.contains("binding=\"webhook\"") && line.contains("is not a public address"), "{line}");
    }
}
