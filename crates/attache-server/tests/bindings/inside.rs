//! Internal errors: the client gets an id, and the log has the cause under that id.

use std::sync::atomic::Ordering;

use attache_core::{Turn, agent_fn};
use attache_server::Server;
use serde_json::{Value, json};

use crate::support::{BROKEN, Binding, Ear, Flaky, card, player, send, serve};

/// Text that must not reach a client.
const INSIDE: [&str; 5] = ["SELECT", "/var/lib", "tasks.db", "swordfish", "panicked"];

fn assert_nothing_shows(text: &str) {
    for word in INSIDE {
        assert!(!text.contains(word), "`{word}` shows: {text}");
    }
}

fn operations(task: &Value) -> Vec<(&'static str, Value)> {
    let mut more = send("more");
    more["message"]["taskId"] = task.clone();
    let webhook = json!({"taskId": task, "id": "w", "url": "https://example.com"});
    vec![
        ("SendMessage", more.clone()),
        ("SendStreamingMessage", more),
        ("GetTask", json!({"id": task})),
        ("ListTasks", json!({})),
        ("SubscribeToTask", json!({"id": task})),
        ("CreateTaskPushNotificationConfig", webhook),
        ("GetTaskPushNotificationConfig", json!({"taskId": task, "id": "w"})),
        ("ListTaskPushNotificationConfigs", json!({"taskId": task})),
        ("DeleteTaskPushNotificationConfig", json!({"taskId": task, "id": "w"})),
        ("CancelTask", json!({"id": task})),
    ]
}

#[tokio::test]
async fn a_store_that_breaks_is_an_id_to_those_outside() {
    let ear = Ear::new();
    let (store, broken) = Flaky::with_switch();
    let server = serve(player().store(store)).await;
    let task = server.task("ask").await["id"].clone();
    broken.store(true, Ordering::Relaxed);
    for binding in Binding::ALL {
        for (operation, params) in operations(&task) {
            ear.all();
            let refusal = server.ask(operation, params).refused(binding).await;
            assert_eq!(refusal.reason, "INTERNAL_ERROR", "{operation} {binding:?}: {refusal:?}");
            assert_nothing_shows(&format!("{refusal:?}"));
            let id = &refusal.metadata["errorId"];
            assert_eq!(refusal.message, format!("something went wrong here: error {id}"));
            let logged: Vec<_> = ear.all().into_iter().filter(|line| line.contains(id)).collect();
            assert!(matches!(&logged[..], [line] if line.contains(BROKEN)), "{operation}: {logged:#?}");
        }
    }
}

#[tokio::test]
async fn a_send_that_cannot_be_kept_is_an_id_to_those_outside() {
    let (store, broken) = Flaky::with_switch();
    let server = serve(player().store(store)).await;
    broken.store(true, Ordering::Relaxed);
    for binding in Binding::ALL {
        for operation in ["SendMessage", "SendStreamingMessage"] {
            for key in [None, Some("k")] {
                let ask = server.ask(operation, send("hi"));
                let ask = key.into_iter().fold(ask, |ask, key| ask.header("Idempotency-Key", key));
                // Of a stream that has begun the error is the last event.
                assert_nothing_shows(&format!("{:?}", ask.over(binding).await));
            }
        }
    }
}

#[tokio::test]
async fn an_agent_that_breaks_is_an_id_to_those_outside() {
    let ear = Ear::new();
    let agent = agent_fn(|turn: Turn| async move {
        match turn.text().as_str() {
            "panic" => panic!("swordfish in /var/lib"),
            "panic later" => {
                turn.working("").await?;
                tokio::task::yield_now().await;
                panic!("swordfish in /var/lib")
            }
            _ => Err(std::io::Error::other("SELECT swordfish").into()),
        }
    });
    let server = serve(Server::new(agent).card(card())).await;
    for binding in Binding::ALL {
        for text in ["panic", "panic later", "error"] {
            ear.all();
            let sent = server.ask("SendMessage", send(text)).ok(binding).await;
            assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_FAILED", "{text} {binding:?}");
            assert_nothing_shows(&sent.to_string());
            let said = sent["task"]["status"]["message"]["parts"][0]["text"].as_str().unwrap().to_owned();
            let id = said.rsplit("error id ").next().unwrap().trim_end_matches(')').to_owned();
            let logged = ear.all().into_iter().filter(|line| line.contains(&id)).collect::<Vec<_>>();
            assert!(matches!(&logged[..], [line] if line.contains("swordfish")), "{text}: {logged:#?}");
        }
    }
}
