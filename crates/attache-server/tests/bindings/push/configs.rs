//! The webhooks of a task: made, read, listed and deleted the same way over every binding.

use std::sync::Arc;

use attache_core::{MemoryStore, NewWebhook, PushEvents, Store, Webhook};
use attache_protocol::{TaskId, TaskPushNotificationConfig};
use serde_json::{Value, json};

use super::{Receiver, is_empty, plain, playing, pushing, send_to, send_with};
use crate::support::{Binding, Player, Running, card, serve};

/// Asks for one of the four operations on the webhooks of a task.
async fn on(server: &Running, binding: Binding, operation: &str, task: &Value, mut params: Value) -> Value {
    params["taskId"] = task.clone();
    server.ask(&operation_name(operation), params).ok(binding).await
}

fn operation_name(short: &str) -> String {
    let s = if short == "List" { "s" } else { "" };
    format!("{short}TaskPushNotificationConfig{s}")
}

/// The ids of the webhooks of a task, in order.
async fn ids(server: &Running, binding: Binding, task: &Value) -> Vec<String> {
    let listed = on(server, binding, "List", task, json!({})).await;
    let configs = listed["configs"].as_array().into_iter().flatten();
    configs.map(|config| config["id"].as_str().unwrap().to_owned()).collect()
}

fn secretive() -> Value {
    let authentication = json!({"scheme": "Bearer", "credentials": "s3cret"});
    json!({"url": "https://example.com/hook", "token": "sesame", "authentication": authentication})
}

fn assert_without_secrets(answers: &[&Value]) {
    for answer in answers {
        let text = answer.to_string();
        assert!(!text.contains("sesame") && !text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn a_webhook_is_made_read_listed_and_deleted_over_every_binding() {
    let (server, _) = playing(|_| {}).await;
    for binding in Binding::ALL {
        let task = server.task("ask").await["id"].clone();
        let made = on(&server, binding, "Create", &task, secretive()).await;
        let id = made["id"].as_str().unwrap();
        assert!(!id.is_empty(), "{binding:?}");
        assert_eq!((&made["taskId"], &made["url"]), (&task, &json!("https://example.com/hook")));
        assert_eq!(made["authentication"]["scheme"], "Bearer");
        let read = on(&server, binding, "Get", &task, json!({"id": id})).await;
        assert_eq!(made, read, "{binding:?}");
        let listed = on(&server, binding, "List", &task, json!({})).await;
        assert_eq!(listed["configs"], json!([made]), "{binding:?}");
        assert_without_secrets(&[&made, &read, &listed]);
        for time in ["once", "twice"] {
            on(&server, binding, "Delete", &task, json!({"id": id})).await;
            let get = server.ask(&operation_name("Get"), json!({"taskId": task, "id": id}));
            assert_eq!(get.refused(binding).await.reason, "TASK_NOT_FOUND", "{binding:?} {time}");
            assert!(ids(&server, binding, &task).await.is_empty(), "{binding:?} {time}");
        }
    }
}

#[tokio::test]
async fn an_id_that_the_client_chose_names_what_is_replaced() {
    let (server, store) = playing(|_| {}).await;
    for binding in Binding::ALL {
        let task = server.task("ask").await["id"].clone();
        let mut hook = secretive();
        hook["id"] = json!("mine");
        assert_eq!(on(&server, binding, "Create", &task, hook).await["id"], "mine", "{binding:?}");
        on(&server, binding, "Create", &task, json!({"id": "other", "url": "https://example.com/"})).await;
        let moved = json!({"id": "mine", "url": "https://example.org/"});
        on(&server, binding, "Create", &task, moved).await;
        assert_eq!(ids(&server, binding, &task).await, ["mine", "other"], "{binding:?}");
        let read = on(&server, binding, "Get", &task, json!({"id": "mine"})).await;
        assert_eq!(read["url"], "https://example.org/", "{binding:?}");
        let kept = store.outbox().webhooks(&TaskId::from(task.as_str().unwrap())).await.unwrap();
        assert_eq!((&kept[0].config.token, &kept[0].config.authentication), (&None, &None), "all of it");
    }
}

#[tokio::test]
async fn a_webhook_made_over_one_binding_is_there_over_all() {
    let (server, _) = playing(|_| {}).await;
    let task = server.task("ask").await["id"].clone();
    for (number, maker) in Binding::ALL.into_iter().enumerate() {
        let mut hook = secretive();
        hook["id"] = json!(number.to_string());
        on(&server, maker, "Create", &task, hook).await;
        for reader in Binding::ALL {
            assert_eq!(ids(&server, reader, &task).await.len(), number + 1, "{maker:?} {reader:?}");
            let read = on(&server, reader, "Get", &task, json!({"id": number.to_string()})).await;
            assert_eq!(read["url"], "https://example.com/hook", "{maker:?} {reader:?}");
        }
    }
}

#[tokio::test]
async fn a_webhook_that_comes_with_a_message_can_be_read_afterwards() {
    let (server, _) = playing(|_| {}).await;
    let receiver = Receiver::start().await;
    for operation in ["SendMessage", "SendStreamingMessage"] {
        for binding in Binding::ALL {
            let mut hook = secretive();
            hook["url"] = json!(receiver.url("/"));
            hook["id"] = json!("inline");
            let sent = server.ask(operation, send_with("ask", &hook)).ok(binding).await;
            let first = if operation == "SendMessage" { &sent } else { &sent[0] };
            let task = &first["task"]["id"];
            let read = on(&server, binding, "Get", task, json!({"id": "inline"})).await;
            assert_eq!((&read["url"], &read["taskId"]), (&hook["url"], task), "{operation} {binding:?}");
            assert_eq!(ids(&server, binding, task).await, ["inline"]);
            assert_without_secrets(&[&sent, &read]);
        }
    }
}

#[tokio::test]
async fn a_task_that_has_ended_can_have_webhooks_and_has_nothing_to_tell() {
    let (server, store) = playing(|_| {}).await;
    let receiver = Receiver::start().await;
    for binding in Binding::ALL {
        let task = server.task("hi").await["id"].clone();
        let made = on(&server, binding, "Create", &task, plain(receiver.url("/"))).await;
        let read = on(&server, binding, "Get", &task, json!({"id": made["id"]})).await;
        assert_eq!(made, read, "{binding:?}");
        assert!(is_empty(&store).await);
        on(&server, binding, "Delete", &task, json!({"id": made["id"]})).await;
        assert!(ids(&server, binding, &task).await.is_empty());
    }
    assert!(receiver.is_quiet());
}

#[tokio::test]
async fn a_server_whose_card_says_no_refuses_webhooks_and_tells_none() {
    let mut silent = card();
    silent.capabilities.push_notifications = Some(false);
    let store = Arc::new(MemoryStore::new());
    let mut server = serve(pushing(Player, &store, |_| {}).card(silent)).await;
    let mut receiver = Receiver::start().await;
    let task = server.task("ask").await["id"].clone();
    for binding in Binding::ALL {
        for (operation, more) in [
            ("Create", plain(receiver.url("/"))),
            ("Get", json!({"id": "c"})),
            ("List", json!({})),
            ("Delete", json!({"id": "c"})),
        ] {
            let mut params = more;
            params["taskId"] = task.clone();
            let refusal = server.ask(&operation_name(operation), params).refused(binding).await;
            assert_eq!(refusal.reason, "PUSH_NOTIFICATION_NOT_SUPPORTED", "{operation} {binding:?}");
        }
        let inline = server.ask("SendMessage", send_with("hi", &plain(receiver.url("/"))));
        assert_eq!(inline.refused(binding).await.reason, "PUSH_NOTIFICATION_NOT_SUPPORTED", "{binding:?}");
    }
    assert_eq!(server.rpc("ListTasks", json!({})).await["result"]["totalSize"], 1, "nothing was made");

    // One that is there all the same, from a time when the card said yes.
    let id = TaskId::from(task.as_str().unwrap());
    let config = TaskPushNotificationConfig {
        id: Some("old".to_owned()),
        task_id: Some(id.clone()),
        url: receiver.url("/"),
        ..TaskPushNotificationConfig::default()
    };
    let webhook = Webhook { config, events: PushEvents::States, dialect: None, trace_parent: None };
    store.outbox().put_webhook(&id, NewWebhook { webhook, limit: 32 }).await.unwrap();
    server.sent(send_to(&task, "this")).await;
    server.stop();
    server.stopped().await;
    assert!(!is_empty(&store).await && receiver.is_quiet());
    let _telling = serve(pushing(Player, &store, |_| {})).await;
    let call = receiver.told().await;
    assert_eq!((call.news().as_str(), call.numbers().1), ("WORKING", 1), "nobody has tried before");
    assert_eq!(receiver.news(1).await, ["COMPLETED"]);
}
