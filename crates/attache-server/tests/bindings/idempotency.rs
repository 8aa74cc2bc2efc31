//! Repeating a send safely: the key in a header, in metadata, and in neither.

use attache_protocol::IDEMPOTENCY_EXTENSION;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Binding, Running, fetch, player, playing, send, serve};

async fn count(server: &Running) -> Value {
    server.rpc("ListTasks", json!({})).await["result"]["totalSize"].clone()
}

/// The id of the task that a send with this key led to.
async fn sent(server: &Running, binding: Binding, key: &str, params: &Value) -> Value {
    let ask = server.ask("SendMessage", params.clone()).header("Idempotency-Key", key);
    ask.ok(binding).await["task"]["id"].clone()
}

#[tokio::test]
async fn a_send_with_the_same_key_is_carried_out_once_whichever_way_it_is_repeated() {
    let server = playing().await;
    let params = send("hi");
    let first = sent(&server, Binding::JsonRpc, "k1", &params).await;
    for binding in Binding::ALL {
        assert_eq!(sent(&server, binding, "k1", &params).await, first, "{binding:?}");
        let events = server
            .ask("SendStreamingMessage", params.clone())
            .header("idempotency-key", "k1")
            .ok(binding)
            .await;
        assert_eq!(events[0]["task"]["id"], first, "{binding:?}");
    }
    assert_eq!(count(&server).await, 1);
    for (binding, key) in Binding::ALL.into_iter().zip(["k2", "k3", "k4"]) {
        assert_ne!(sent(&server, binding, key, &params).await, first);
    }
    assert_eq!(count(&server).await, 4);
}

#[tokio::test]
async fn without_a_key_every_send_is_another() {
    let server = playing().await;
    let params = send("hi");
    for binding in Binding::ALL {
        server.ask("SendMessage", params.clone()).ok(binding).await;
    }
    assert_eq!(count(&server).await, 3, "the same message id");
}

#[tokio::test]
async fn the_message_id_is_the_key_where_that_is_the_rule() {
    let server =
        serve(player().service_options(|options| options.message_id_is_idempotency_key = true)).await;
    let params = send("hi");
    for binding in Binding::ALL {
        server.ask("SendMessage", params.clone()).ok(binding).await;
    }
    assert_eq!(count(&server).await, 1);
}

#[tokio::test]
async fn the_same_key_with_another_message_is_refused() {
    let server = playing().await;
    let params = send("hi");
    sent(&server, Binding::HttpJson, "k1", &params).await;
    let mut other = params.clone();
    other["message"]["parts"][0]["text"] = json!("something else");
    for operation in ["SendMessage", "SendStreamingMessage"] {
        for binding in Binding::ALL {
            let refusal =
                server.ask(operation, other.clone()).header("Idempotency-Key", "k1").refused(binding).await;
            assert_eq!(
                (refusal.reason.as_str(), refusal.fields),
                ("INVALID_PARAMS", vec!["Idempotency-Key".to_owned()])
            );
        }
    }
    assert_eq!(count(&server).await, 1);
}

#[tokio::test]
async fn an_empty_or_unreadable_key_is_a_mistake() {
    let server = playing().await;
    for key in ["", " ", "\"\"", "\"half", "\"a\"b\""] {
        for binding in Binding::ALL {
            let refusal =
                server.ask("SendMessage", send("hi")).header("Idempotency-Key", key).refused(binding).await;
            assert_eq!(refusal.fields, ["Idempotency-Key"], "{key:?} {binding:?}");
        }
    }
    let long = "k".repeat(256);
    for binding in Binding::ALL {
        let refusal =
            server.ask("SendMessage", send("hi")).header("Idempotency-Key", &long).refused(binding).await;
        assert_eq!(refusal.fields, ["Idempotency-Key"]);
    }
    let binary = reqwest::header::HeaderValue::from_bytes(b"\xff\xfe").unwrap();
    let request = server.http(Method::POST, "/v1/message:send").header("Idempotency-Key", binary);
    assert_eq!(fetch(request.json(&send("hi"))).await.status, 400);
    assert_eq!(count(&server).await, 0);
}

#[tokio::test]
async fn a_quoted_key_is_the_same_key() {
    let server = playing().await;
    let params = send("hi");
    let first = sent(&server, Binding::JsonRpc, "k1", &params).await;
    assert_eq!(sent(&server, Binding::HttpJson, "\"k1\"", &params).await, first);
    assert_eq!(sent(&server, Binding::Grpc, " k1 ", &params).await, first);
}

#[tokio::test]
async fn the_key_may_travel_in_the_metadata() {
    let server = playing().await;
    let mut params = send("hi");
    params["metadata"] = json!({ IDEMPOTENCY_EXTENSION: "k1" });
    let mut ids = Vec::new();
    for binding in Binding::ALL {
        ids.push(server.ask("SendMessage", params.clone()).ok(binding).await["task"]["id"].clone());
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    params["metadata"] = json!({ IDEMPOTENCY_EXTENSION: 7 });
    for binding in Binding::ALL {
        assert_eq!(server.ask("SendMessage", params.clone()).refused(binding).await.reason, "INVALID_PARAMS");
    }
}

#[tokio::test]
async fn a_key_belongs_to_its_tenant() {
    let server = playing().await;
    let mut params = send("hi");
    let first = sent(&server, Binding::JsonRpc, "k1", &params).await;
    params["tenant"] = json!("acme");
    assert_ne!(sent(&server, Binding::JsonRpc, "k1", &params).await, first);
}

#[tokio::test]
async fn a_repeat_waits_for_the_task_that_the_first_send_began() {
    let server = playing().await;
    let mut params = send("ask");
    let first = sent(&server, Binding::JsonRpc, "k1", &params).await;
    let repeat =
        server.ask("SendMessage", params.clone()).header("Idempotency-Key", "k1").ok(Binding::Grpc).await;
    assert_eq!(
        (&repeat["task"]["id"], &repeat["task"]["status"]["state"]),
        (&first, &json!("TASK_STATE_INPUT_REQUIRED"))
    );
    // How long the client wants to wait is no other message.
    params["configuration"] = json!({"returnImmediately": false});
    let again =
        server.ask("SendMessage", params).header("Idempotency-Key", "k1").over(Binding::HttpJson).await;
    assert!(again.result.is_err() || again.unwrap()["task"]["id"] == first);
}
