//! Clients of every generation on one server: the same task, to each in its own words.

use serde_json::{Value, json};

use crate::support::{Binding, Running, fetch, playing};

/// Asks at a path, without saying which version is spoken.
async fn rpc(server: &Running, path: &str, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": "r1", "method": method, "params": params}).to_string();
    let request = server.bare(reqwest::Method::POST, path).header("Content-Type", "application/json");
    fetch(request.body(body)).await.json()
}

fn tagged(text: &str) -> Value {
    json!({"message": {"kind": "message", "messageId": "m1", "role": "user",
        "parts": [{"kind": "text", "text": text}]}})
}

#[tokio::test]
async fn a_task_of_0_3_is_there_for_1_0_and_for_the_oldest() {
    let server = playing().await;
    let sent = rpc(&server, "/a2a", "message/send", tagged("hi")).await;
    let task = &sent["result"];
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")), "{sent}");
    assert_eq!(task["history"][0]["parts"][0]["kind"], "text");
    let id = &task["id"];
    for binding in Binding::ALL {
        let now = server.ask("GetTask", json!({"id": id})).ok(binding).await;
        assert_eq!(now["status"]["state"], "TASK_STATE_COMPLETED");
        assert!(now["kind"].is_null() && now["history"][0]["parts"][0]["kind"].is_null(), "{now}");
    }
    let oldest = rpc(&server, "/a2a/rpc", "tasks/get", json!({"id": id})).await;
    assert_eq!(oldest["result"]["status"]["state"], "completed", "{oldest}");
    assert_eq!(oldest["result"]["sessionId"], task["contextId"]);
    assert_eq!(oldest["result"]["history"][0]["parts"][0]["type"], "text");
}

#[tokio::test]
async fn a_question_that_tells_no_dialect_is_answered_for_all() {
    let server = playing().await;
    let id = rpc(&server, "/a2a", "message/send", tagged("hi")).await["result"]["id"].clone();
    let answer = rpc(&server, "/a2a", "tasks/get", json!({"id": id})).await;
    assert_eq!(answer["result"]["status"]["state"], "completed", "{answer}");
    assert_eq!(answer["result"]["task"]["status"]["state"], "completed");
    let stated = server.ask("tasks/get", json!({"id": id})).version(Some("0.3")).ok(Binding::JsonRpc).await;
    assert_eq!(stated["status"]["state"], "completed");
    assert!(stated["task"].is_null(), "{stated}");
}

#[tokio::test]
async fn the_oldest_dialect_sends_under_an_id_of_its_own() {
    let server = playing().await;
    let params = json!({"id": "task-1", "sessionId": "s-1", "metadata": {"priority": "high"},
        "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}});
    for path in ["/a2a/rpc", "/a2a"] {
        let sent = rpc(&server, path, "tasks/send", params.clone()).await;
        let task = &sent["result"];
        assert_eq!((&task["id"], &task["sessionId"]), (&json!("task-1"), &json!("s-1")), "{sent}");
        assert_eq!(task["status"]["state"], "completed");
        assert_eq!(task["metadata"]["priority"], "high");
    }
}

#[tokio::test]
async fn a_stream_of_0_3_says_which_event_is_final() {
    let server = playing().await;
    let body =
        json!({"jsonrpc": "2.0", "id": 7, "method": "message/stream", "params": tagged("hi")}).to_string();
    let request = server.bare(reqwest::Method::POST, "/a2a").header("Content-Type", "application/json");
    let reply = fetch(request.body(body)).await;
    let events: Vec<Value> = String::from_utf8_lossy(&reply.body)
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str::<Value>(data).expect("JSON")["result"].take())
        .collect();
    assert_eq!(events[0]["kind"], "task");
    let last = events.last().expect("events");
    assert_eq!((&last["kind"], &last["final"]), (&json!("status-update"), &json!(true)), "{last}");
}

#[tokio::test]
async fn errors_have_the_codes_of_their_time() {
    let server = playing().await;
    let unknown = rpc(&server, "/a2a", "tasks/get", json!({"id": "nope"})).await;
    assert_eq!((&unknown["error"]["code"], &unknown["id"]), (&json!(-32001), &json!("r1")), "{unknown}");
    let bad = json!({"message": {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "smell"}]}});
    let bad = rpc(&server, "/a2a", "message/send", bad).await;
    assert_eq!(bad["error"]["code"], -32602, "{bad}");
    assert!(bad.to_string().contains("parts[0].kind"), "{bad}");
}
