//! The REST routes of the reference: at the root in the form of 1.0, and below `/v1` in the form of 0.3.

use serde_json::{Value, json};

use super::support::Events;
use super::{Server, contains, message, start_with};
use crate::home::Home;
use crate::programs::has_python;

/// A request, and what its response has.
type Row = (&'static str, String, Option<Value>, u16, Value);

async fn check(server: &Server, version: Option<&str>, rows: Vec<Row>) {
    for (method, path, body, status, expected) in rows {
        let response = server.rest(version, method, &path, body.as_ref()).await;
        let found = response.status().as_u16();
        let text = response.text().await.unwrap();
        let json: Value = serde_json::from_str(&text).unwrap_or_default();
        assert_eq!(found, status, "{method} {path}: {text}");
        assert!(contains(&json, &expected), "{method} {path}: {text} lacks {expected}");
    }
}

/// Follows a running task in a stream, cancels it, and reads the stream to its end.
async fn cancel_in_a_stream(server: &Server, version: Option<&str>, prefix: &str, task: &str) {
    let path = format!("{prefix}/tasks/{task}:subscribe");
    let mut events = Events::of(server.rest(version, "GET", &path, None).await);
    let first = events.next().await.unwrap();
    assert_eq!(first["task"]["id"], *task, "{first}");
    let cancel = format!("{prefix}/tasks/{task}:cancel");
    let expected = json!({"id": task, "status": {"state": canceled(version)}});
    check(server, version, vec![("POST", cancel, Some(json!({})), 200, expected)]).await;
    let rest = events.rest().await;
    let last = rest.last().unwrap_or_else(|| panic!("{path}: nothing was said of the cancel"));
    assert_eq!(last["statusUpdate"]["status"]["state"], canceled(version), "{rest:?}");
}

/// How a version writes the state of a canceled task.
fn canceled(version: Option<&str>) -> &'static str {
    if version.is_some() { "TASK_STATE_CANCELED" } else { "TASK_STATE_CANCELLED" }
}

#[tokio::test]
async fn every_rest_route_answers_at_the_root() {
    if !has_python("iac_code::rest::every_rest_route_answers_at_the_root") {
        return;
    }
    let home = Home::new();
    let server = start_with(&home, &[], "push-notifications: true\n").await;
    let one = Some("1.0");
    let body = json!({"message": message("hello", json!({"contextId": "c"}))});
    let sent = server.rest(one, "POST", "/message:send", Some(&body)).await;
    let sent: Value = sent.json().await.unwrap();
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{sent}");
    let id = sent["task"]["id"].as_str().unwrap();
    let push = format!("/tasks/{id}/pushNotificationConfigs");
    let config = json!({"id": "webhook-1", "url": "https://hooks.example.com/a2a"});
    let missing = json!({"error": {"code": 404, "status": "NOT_FOUND",
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND"}]}});
    let rows = vec![
        ("GET", "/tasks?contextId=c".into(), None, 200, json!({"tasks": [{"id": id}], "totalSize": 1})),
        ("GET", "/tasks?contextId=d".into(), None, 200, json!({"totalSize": 0})),
        ("GET", format!("/tasks/{id}?historyLength=1"), None, 200, json!({"id": id, "contextId": "c"})),
        ("GET", "/tasks/unknown".into(), None, 404, json!({"error": {"status": "NOT_FOUND"}})),
        ("POST", format!("/tasks/{id}:cancel"), Some(json!({})), 400, json!({})),
        ("GET", format!("/tasks/{id}:subscribe"), None, 404, missing),
        ("POST", push.clone(), Some(config), 200, json!({"id": "webhook-1", "taskId": id})),
        ("GET", push.clone(), None, 200, json!({"configs": [{"id": "webhook-1"}]})),
        (
            "GET",
            format!("{push}/webhook-1"),
            None,
            200,
            json!({"id": "webhook-1", "url": "https://hooks.example.com/a2a"}),
        ),
        ("DELETE", format!("{push}/webhook-1"), None, 200, json!({})),
        ("GET", push.clone(), None, 200, json!({})),
        ("GET", "/extendedAgentCard".into(), None, 200, json!({"name": "iac-code"})),
    ];
    check(&server, one, rows).await;
    let streamed = server.rest(one, "POST", "/message:stream", Some(&body)).await;
    let events = Events::of(streamed).rest().await;
    assert_eq!(events[0]["task"]["contextId"], "c", "{events:?}");
    let last = events.last().unwrap();
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{events:?}");
    let running = server.begin("sleep 60", "r").await;
    cancel_in_a_stream(&server, one, "", &running).await;
}

#[tokio::test]
async fn every_rest_route_answers_below_v1_in_the_form_of_0_3() {
    if !has_python("iac_code::rest::every_rest_route_answers_below_v1_in_the_form_of_0_3") {
        return;
    }
    let home = Home::new();
    let server = start_with(&home, &[], "push-notifications: true\n").await;
    let body = |text: &str, context: &str, blocking: bool| {
        let message =
            json!({"messageId": "m", "role": "ROLE_USER", "contextId": context, "content": [{"text": text}]});
        json!({"message": message, "configuration": {"blocking": blocking}})
    };
    let sent = server.rest(None, "POST", "/v1/message:send", Some(&body("hello", "c", true))).await;
    let sent: Value = sent.json().await.unwrap();
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{sent}");
    let id = sent["task"]["id"].as_str().unwrap();
    // It is a task like those of the other routes, and of no other tenant.
    let read = server.rpc("GetTask", json!({"id": id})).await;
    assert_eq!(read["result"]["contextId"], "c", "{read}");
    let push = format!("/v1/tasks/{id}/pushNotificationConfigs");
    let name = format!("tasks/{id}/pushNotificationConfigs/webhook-1");
    let config = json!({"name": name,
        "pushNotificationConfig": {"id": "webhook-1", "url": "https://hooks.example.com/a2a"}});
    let create = json!({"parent": format!("tasks/{id}"), "configId": "webhook-1", "config": config});
    let rows = vec![
        ("GET", format!("/v1/tasks/{id}"), None, 200, json!({"id": id})),
        ("GET", "/v1/tasks/unknown".into(), None, 404, json!({})),
        ("POST", format!("/v1/tasks/{id}:cancel"), Some(json!({})), 409, json!({})),
        ("GET", format!("/v1/tasks/{id}:subscribe"), None, 404, json!({})),
        ("POST", push.clone(), Some(create), 200, config.clone()),
        ("GET", push.clone(), None, 200, json!({"configs": [config]})),
        ("GET", format!("{push}/webhook-1"), None, 200, config),
        ("DELETE", format!("{push}/webhook-1"), None, 200, json!({})),
        ("GET", "/v1/card".into(), None, 200, json!({"name": "iac-code"})),
    ];
    check(&server, None, rows).await;
    let streamed = server.rest(None, "POST", "/v1/message:stream", Some(&body("hello", "c", true))).await;
    let events = Events::of(streamed).rest().await;
    let last = events.last().unwrap();
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{events:?}");
    let running = server.rest(None, "POST", "/v1/message:send", Some(&body("sleep 60", "r", false))).await;
    let running: Value = running.json().await.unwrap();
    cancel_in_a_stream(&server, None, "/v1", running["task"]["id"].as_str().unwrap()).await;
}
