//! The dialect of the iii-a2a worker, beside 1.0 on the same path.

use serde_json::{Value, json};

use crate::support::{Binding, fetch, playing};

fn flat(text: &str) -> Value {
    json!({"message": {"messageId": "m1", "role": "user", "parts": [{"text": text}]}})
}

async fn rpc(server: &crate::support::Running, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": "t1", "method": method, "params": params}).to_string();
    let request = server.bare(reqwest::Method::POST, "/a2a").header("Content-Type", "application/json");
    fetch(request.body(body)).await.json()
}

#[tokio::test]
async fn a_flat_message_is_answered_with_a_task_in_lower_case() {
    let server = playing().await;
    let answer = rpc(&server, "message/send", flat("hi")).await;
    let task = &answer["result"]["task"];
    assert_eq!(task["status"]["state"], "completed", "{answer}");
    assert_eq!(task["history"][0]["role"], "user");
    assert!(task["history"][0]["kind"].is_null() && task["kind"].is_null());
    let id = &task["id"];
    for method in ["tasks/get", "tasks/cancel"] {
        let answer = rpc(&server, method, json!({"id": id})).await;
        match method {
            "tasks/get" => assert_eq!(&answer["result"]["task"], task),
            _ => assert_eq!(answer["error"]["code"], -32002, "{answer}"),
        }
    }
    let listed = rpc(&server, "tasks/list", json!({})).await["result"]["tasks"][0].clone();
    assert_eq!((&listed["id"], &listed["status"]["state"]), (&task["id"], &task["status"]["state"]));
}

#[tokio::test]
async fn the_same_task_is_seen_in_the_words_of_1_0() {
    let server = playing().await;
    let id = rpc(&server, "message/send", flat("hi")).await["result"]["task"]["id"].clone();
    for binding in Binding::ALL {
        let task = server.ask("GetTask", json!({"id": id})).ok(binding).await;
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
        assert_eq!(task["history"][0]["role"], "ROLE_USER");
    }
}

#[tokio::test]
async fn a_send_to_a_task_that_has_ended_gets_the_stored_task() {
    let server = playing().await;
    let first = rpc(&server, "message/send", flat("hi")).await["result"]["task"].clone();
    let mut again = flat("other");
    again["message"]["taskId"] = first["id"].clone();
    assert_eq!(rpc(&server, "message/send", again).await["result"]["task"], first);
}

#[tokio::test]
async fn a_client_may_choose_the_id_of_its_task_and_1_0_may_not() {
    let server = playing().await;
    let mut chosen = flat("hi");
    chosen["message"]["taskId"] = json!("mine-1");
    chosen["metadata"] = json!({"priority": "high"});
    let task = rpc(&server, "message/send", chosen.clone()).await["result"]["task"].clone();
    assert_eq!((&task["id"], &task["metadata"]["priority"]), (&json!("mine-1"), &json!("high")));
    chosen["message"]["taskId"] = json!("mine-2");
    chosen["message"]["role"] = json!("ROLE_USER");
    assert_eq!(server.ask("SendMessage", chosen).refused(Binding::JsonRpc).await.code, -32001);
    let mut odd = flat("hi");
    odd["message"]["taskId"] = json!("x".repeat(200));
    assert_eq!(rpc(&server, "message/send", odd).await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_stream_tells_events_by_their_kind_and_says_which_is_final() {
    let server = playing().await;
    let body =
        json!({"jsonrpc": "2.0", "id": 7, "method": "message/stream", "params": flat("hi")}).to_string();
    let request = server.bare(reqwest::Method::POST, "/a2a").header("Content-Type", "application/json");
    let reply = fetch(request.body(body)).await;
    let events: Vec<Value> = String::from_utf8_lossy(&reply.body)
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    assert!(events.iter().all(|event| event["id"] == 7));
    assert_eq!(events[0]["result"]["kind"], "task");
    let last = &events.last().expect("events")["result"];
    assert_eq!((&last["kind"], &last["final"]), (&json!("status-update"), &json!(true)), "{last}");
    assert_eq!(last["status"]["state"], "completed");
    let id = &events[0]["result"]["id"];
    let body = json!({"jsonrpc": "2.0", "id": 8, "method": "tasks/resubscribe", "params": {"id": id}});
    let request = server.bare(reqwest::Method::POST, "/a2a").header("Content-Type", "application/json");
    let again = fetch(request.body(body.to_string())).await.body;
    let again = String::from_utf8_lossy(&again);
    assert!(again.contains(r#""state":"completed""#), "{again}");
}

#[tokio::test]
async fn a_list_has_all_tasks_since_its_clients_know_no_pages() {
    let server = playing().await;
    for number in 0..103 {
        let mut message = flat("hi");
        message["message"]["messageId"] = json!(format!("m{number}"));
        rpc(&server, "message/send", message).await;
    }
    let listed = rpc(&server, "tasks/list", json!({})).await["result"].clone();
    assert_eq!(listed["tasks"].as_array().map(Vec::len), Some(103));
    assert_eq!((&listed["pageSize"], &listed["nextPageToken"]), (&json!(103), &json!("")));
    let some = rpc(&server, "tasks/list", json!({"pageSize": 2})).await["result"].clone();
    assert_eq!(some["tasks"].as_array().map(Vec::len), Some(2), "a client that knows pages gets them");
}

#[tokio::test]
async fn the_names_of_1_0_work_for_clients_that_state_no_version() {
    let server = playing().await;
    let sent = rpc(&server, "SendMessage", flat("hi")).await["result"]["task"].clone();
    assert_eq!(sent["status"]["state"], "completed", "{sent}");
    let got = rpc(&server, "GetTask", json!({"id": sent["id"]})).await["result"].clone();
    assert_eq!(got["task"], sent, "as clients of iii read it");
    assert_eq!(got["status"]["state"], "TASK_STATE_COMPLETED", "as clients of 1.0 read it");
    let stated = server.ask("GetTask", json!({"id": sent["id"]})).ok(Binding::JsonRpc).await;
    assert_eq!(stated["task"], Value::Null, "a client that states 1.0 gets 1.0 alone");
}

#[tokio::test]
async fn errors_have_the_words_of_the_worker() {
    let server = playing().await;
    let done = rpc(&server, "message/send", flat("hi")).await["result"]["task"]["id"].clone();
    for (method, params, words) in [
        ("tasks/get", json!({"id": "nope"}), "Task not found: nope"),
        ("tasks/cancel", json!({"id": "nope"}), "Task not found: nope"),
        ("tasks/cancel", json!({"id": done}), "Task not cancelable (terminal state)"),
    ] {
        assert_eq!(rpc(&server, method, params).await["error"]["message"], words);
    }
    let invalid = rpc(&server, "tasks/get", json!({})).await["error"]["message"].clone();
    assert!(invalid.as_str().is_some_and(|words| words.starts_with("Invalid params: ")), "{invalid}");
}

#[tokio::test]
async fn errors_have_the_codes_of_the_documents() {
    let server = playing().await;
    for (method, params, code) in [
        ("tasks/get", json!({"id": "nope"}), -32001),
        ("tasks/cancel", json!({"id": "nope"}), -32001),
        ("message/send", json!({}), -32602),
        (
            "message/send",
            json!({"message": {"messageId": "m", "role": "robot", "parts": [{"text": "x"}]}}),
            -32602,
        ),
        ("tasks/list", json!({"status": "TASK_STATE_WORKING"}), -32602),
    ] {
        let answer = rpc(&server, method, params).await;
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &json!("t1")),
            "{method}: {answer}"
        );
    }
}
