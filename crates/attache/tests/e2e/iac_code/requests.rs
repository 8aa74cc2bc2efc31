//! The rows of the reference about requests: required fields, listings, histories, cancels and subscriptions.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::{message, start, state};
use crate::home::Home;
use crate::programs::has_python;

#[tokio::test]
async fn a_message_without_a_required_field_is_refused_by_its_name() {
    if !has_python("iac_code::requests::a_message_without_a_required_field_is_refused_by_its_name") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let without = |field: &str| {
        let mut message = message("hello", json!({}));
        message.as_object_mut().unwrap().remove(field);
        message
    };
    for (field, message) in [
        ("messageId", without("messageId")),
        ("role", without("role")),
        ("role", message("hello", json!({"role": "ROLE_AGENT"}))),
        ("parts", without("parts")),
        ("parts", message("", json!({"parts": []}))),
    ] {
        let refused = server.send(message).await;
        assert_eq!(refused["error"]["code"], -32602, "{field}: {refused}");
        assert!(refused["error"].to_string().contains(&format!("message.{field}")), "{refused}");
    }
    let listed = server.rpc("ListTasks", json!({})).await;
    assert_eq!(listed["result"]["totalSize"], 0, "{listed}");
}

#[tokio::test]
async fn lists_are_sorted_filtered_and_cut_as_documented() {
    if !has_python("iac_code::requests::lists_are_sorted_filtered_and_cut_as_documented") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    // Tasks that fail at once, so that some have the same time stamp.
    futures::future::join_all((0..24).map(|_| server.send(message("", json!({"contextId": "empty"}))))).await;
    let listed = server.rpc("ListTasks", json!({"contextId": "empty", "pageSize": 100})).await;
    let key = |task: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&task["status"]["timestamp"]), text(&task["id"]))
    };
    let keys: Vec<_> = listed["result"]["tasks"].as_array().unwrap().iter().map(key).collect();
    assert_eq!(keys.len(), 24, "{listed}");
    let latest_first = keys.is_sorted_by_key(|(timestamp, _)| Reverse(timestamp.clone()));
    assert!(latest_first, "{keys:?}");
    // Pages have the same order, also of tasks with the same time stamp.
    let (mut paged, mut token) = (Vec::new(), json!(""));
    loop {
        let params = json!({"contextId": "empty", "pageSize": 7, "pageToken": token});
        let page = server.rpc("ListTasks", params).await["result"].clone();
        paged.extend(page["tasks"].as_array().unwrap().iter().map(key));
        token = page["nextPageToken"].clone();
        if token.as_str().is_none_or(str::is_empty) {
            break;
        }
    }
    assert_eq!(paged, keys);
    let running = server.begin("sleep 60", "running").await;
    for (what, params, count) in [
        ("the state of a running task", json!({"status": "TASK_STATE_WORKING"}), 1),
        ("the state of tasks that failed", json!({"status": "TASK_STATE_FAILED"}), 24),
        ("a state that no task has", json!({"status": "TASK_STATE_CANCELED"}), 0),
        ("a context", json!({"contextId": "running"}), 1),
        ("a context and a state", json!({"contextId": "running", "status": "TASK_STATE_FAILED"}), 0),
        ("nothing", json!({}), 25),
    ] {
        // A task is submitted for a moment before it works.
        crate::support::until(what, async || {
            server.rpc("ListTasks", params.clone()).await["result"]["totalSize"] == count
        })
        .await;
    }
    for (size, code) in [(0, -32602), (101, -32602), (-1, -32602)] {
        let refused = server.rpc("ListTasks", json!({"pageSize": size})).await;
        assert_eq!(refused["error"]["code"], code, "{size}: {refused}");
    }
    let refused = server.rpc("ListTasks", json!({"pageToken": "not a token"})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    server.rpc("CancelTask", json!({"id": running})).await;
}

#[tokio::test]
async fn a_history_has_its_last_messages_and_stays_whole_in_the_store() {
    if !has_python("iac_code::requests::a_history_has_its_last_messages_and_stays_whole_in_the_store") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let sent = server.send(message("one", json!({"contextId": "c"}))).await;
    let task = &sent["result"]["task"]["id"];
    server.send(message("two", json!({"contextId": "c", "taskId": task, "messageId": "m2"}))).await;
    let read = async |length: Option<i32>| {
        let mut params = json!({"id": task});
        if let Some(length) = length {
            params["historyLength"] = json!(length);
        }
        let read = server.rpc("GetTask", params).await;
        read["result"]["history"].as_array().cloned().unwrap_or_default()
    };
    let whole = read(None).await;
    assert!(whole.len() >= 3, "{whole:?}");
    for length in [0, 1, 2, 3, 1000] {
        let last = &whole[whole.len().saturating_sub(length)..];
        assert_eq!(read(Some(length as i32)).await, last, "{length}");
        let listed = server.rpc("ListTasks", json!({"historyLength": length})).await;
        let listed = &listed["result"]["tasks"][0]["history"];
        assert_eq!(listed.as_array().map_or(&[][..], Vec::as_slice), last, "{length}");
    }
    assert_eq!(read(None).await, whole);
    let refused = server.rpc("GetTask", json!({"id": task, "historyLength": -1})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test]
async fn a_stream_tells_of_the_cancel_of_its_task() {
    if !has_python("iac_code::requests::a_stream_tells_of_the_cancel_of_its_task") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let mut events =
        server.open("SendStreamingMessage", json!({"message": message("sleep 60", json!({}))})).await;
    let task = events.next().await.unwrap()["task"]["id"].clone();
    let canceled = server.rpc("CancelTask", json!({"id": task})).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    let events = events.rest().await;
    let last = events.last().unwrap();
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED", "{events:?}");
}

#[tokio::test]
async fn tasks_that_do_not_run_are_neither_followed_nor_canceled() {
    if !has_python("iac_code::requests::tasks_that_do_not_run_are_neither_followed_nor_canceled") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let id = |sent: Value| sent["result"]["task"]["id"].as_str().unwrap().to_owned();
    let failed = server.send(message("fail", json!({}))).await;
    assert_eq!(state(&failed), "TASK_STATE_FAILED");
    let canceled = server.begin("sleep 60", "c").await;
    server.rpc("CancelTask", json!({"id": canceled})).await;
    let waits = server.send(message("hello", json!({}))).await;
    for (what, task, cancel) in [
        ("failed", id(failed), -32002),
        ("canceled", canceled, -32002),
        ("waits for input", id(waits), -32002),
        ("unknown", "unknown".to_owned(), -32001),
    ] {
        let refused = server.rpc("SubscribeToTask", json!({"id": task})).await;
        assert_eq!(refused["error"]["code"], -32001, "{what}: {refused}");
        let refused = server.rpc("CancelTask", json!({"id": task})).await;
        assert_eq!(refused["error"]["code"], cancel, "{what}: {refused}");
    }
}
