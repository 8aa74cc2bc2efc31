//! What the reference says about an agent at work: streams, metadata, permissions, artifacts, extensions and push notifications.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{message, sha256, start, start_with, state, status};
use crate::home::Home;
use crate::programs::has_python;

/// The members `iac_code` of the metadata of all status updates that have this member.
pub(super) fn reports<'a>(events: &'a [Value], member: &str) -> Vec<&'a Value> {
    let metadata = events.iter().map(|event| &event["statusUpdate"]["metadata"]["iac_code"][member]);
    metadata.filter(|report| !report.is_null()).collect()
}

#[tokio::test]
async fn a_stream_has_the_tools_the_file_and_the_tokens_in_the_words_of_the_reference() {
    if !has_python("iac_code::work::a_stream_has_the_tools_the_file_and_the_tokens") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let params = json!({
        "message": message("generate", json!({"contextId": "ctx-1"})),
        "configuration": {"acceptedOutputModes": ["text/plain"]},
    });
    let events = server.stream("SendStreamingMessage", params).await;
    for event in &events {
        let kinds = ["task", "message", "statusUpdate", "artifactUpdate"];
        assert_eq!(kinds.iter().filter(|kind| !event[**kind].is_null()).count(), 1, "{event}");
    }
    assert_eq!(events[0]["task"]["contextId"], "ctx-1", "{}", events[0]);
    let task = events[0]["task"]["id"].clone();
    let states: Vec<_> =
        events.iter().filter_map(|event| event["statusUpdate"]["status"]["state"].as_str()).collect();
    assert_eq!(states.last(), Some(&"TASK_STATE_INPUT_REQUIRED"), "{states:?}");
    assert!(states.contains(&"TASK_STATE_WORKING"), "{states:?}");
    let said = |event: &&Value| {
        let message = &event["statusUpdate"]["status"]["message"];
        message["role"] == "ROLE_AGENT" && message["parts"][0]["text"] == "Here is the ROS template..."
    };
    assert!(events.iter().any(|event| said(&event)), "{events:?}");
    // Tools.
    let tools = reports(&events, "tool");
    let seen: Vec<_> = tools
        .iter()
        .map(|tool| (tool["toolUseId"].as_str().unwrap(), tool["status"].as_str().unwrap()))
        .collect();
    let expected = [
        ("call-1", "started"),
        ("call-1", "input_delta"),
        ("call-1", "input_complete"),
        ("call-1", "completed"),
        ("call-2", "started"),
        ("call-2", "failed"),
    ];
    assert_eq!(seen, expected);
    assert!(tools.iter().all(|tool| ["write_file", "validate"].contains(&tool["name"].as_str().unwrap())));
    let length = |text: &Value| text.as_str().unwrap().chars().count();
    assert_eq!(length(&tools[2]["input"]["content"]), 4000, "{}", tools[2]);
    let result = &tools[3]["result"];
    assert_eq!(length(&result["text"]), 4000, "{}", tools[3]);
    let described = json!({"filename": "vpc.yml", "mediaType": "text/yaml", "byteSize": 53});
    assert_eq!(result["artifact"], described, "the content is not repeated");
    assert_eq!(
        reports(&events, "usage"),
        [&json!({"inputTokens": 120, "outputTokens": 40, "totalTokens": 160})]
    );
    assert!(reports(&events, "thinking").is_empty(), "raw thinking is not exposed");
    // The file.
    let update = events.iter().find(|event| !event["artifactUpdate"].is_null()).unwrap();
    let artifact = &update["artifactUpdate"]["artifact"];
    check_file(artifact, "vpc.yml");
    let read = server.rpc("GetTask", json!({"id": task})).await;
    check_file(&read["result"]["artifacts"][0], "vpc.yml");
    assert!(!tools.iter().any(|tool| tool.to_string().contains("ROSTemplateFormatVersion")));
    // Lists leave artifacts out unless they are asked for.
    let list = async |more: bool| {
        let params =
            json!({"contextId": "ctx-1", "includeArtifacts": more, "status": "TASK_STATE_INPUT_REQUIRED"});
        server.rpc("ListTasks", params).await["result"]["tasks"][0].clone()
    };
    assert!(list(false).await["artifacts"].as_array().is_none_or(Vec::is_empty));
    check_file(&list(true).await["artifacts"][0], "vpc.yml");
    // A history of a given length changes nothing that is stored.
    let short = server.rpc("GetTask", json!({"id": task, "historyLength": 0})).await;
    assert!(short["result"]["history"].as_array().is_none_or(Vec::is_empty), "{short}");
    let whole = server.rpc("GetTask", json!({"id": task})).await;
    assert!(!whole["result"]["history"].as_array().unwrap().is_empty(), "{whole}");
}

/// Checks the URL of a stored file, and what its metadata says.
fn check_file(artifact: &Value, name: &str) {
    let part = &artifact["parts"][0];
    let path = part["url"].as_str().and_then(|url| url.strip_prefix("file://"));
    let path = path.unwrap_or_else(|| panic!("{artifact}"));
    let content = std::fs::read(path).unwrap();
    assert!(content.starts_with(b"ROSTemplateFormatVersion"), "{artifact}");
    assert_eq!((&part["filename"], &part["mediaType"]), (&json!(name), &json!("text/yaml")));
    let metadata = &part["metadata"];
    assert_eq!((&metadata["mediaType"], &metadata["byteSize"]), (&json!("text/yaml"), &json!(content.len())));
    assert_eq!(metadata["sha256"], sha256(&content), "{artifact}");
    assert!(part["raw"].is_null() && part["text"].is_null(), "{artifact}");
}

#[tokio::test]
async fn raw_thinking_is_streamed_where_it_is_exposed_and_nothing_where_nothing_is() {
    if !has_python("iac_code::work::raw_thinking_is_streamed_where_it_is_exposed") {
        return;
    }
    let home = Home::new();
    let server = start_with(&home, &[], "thinking-exposure: [tool-trace, raw-thinking]\n").await;
    let events =
        server.stream("SendStreamingMessage", json!({"message": message("generate", json!({}))})).await;
    let thought = json!({"type": "raw_thinking", "text": "A VPC needs a CIDR block."});
    assert_eq!(reports(&events, "thinking"), [&thought]);
    let url = format!("{}/.well-known/agent-card.json", server.program.url);
    let card: Value = server.http.get(url).send().await.unwrap().json().await.unwrap();
    assert!(card.to_string().contains(r#""enabledTypes":["raw_thinking","tool_trace"]"#), "{card}");
    drop(server);
    let home = Home::new();
    let server = start_with(&home, &[], "thinking-exposure: none\n").await;
    let events =
        server.stream("SendStreamingMessage", json!({"message": message("generate", json!({}))})).await;
    assert!(reports(&events, "tool").is_empty() && reports(&events, "thinking").is_empty());
    assert!(events.iter().any(|event| !event["artifactUpdate"].is_null()), "artifacts are not affected");
    let url = format!("{}/.well-known/agent-card.json", server.program.url);
    let card: Value = server.http.get(url).send().await.unwrap().json().await.unwrap();
    assert!(!card.to_string().contains("thinking-exposure"), "{card}");
}

#[tokio::test]
async fn a_permission_is_denied_and_reported_unless_it_is_approved() {
    if !has_python("iac_code::work::a_permission_is_denied_and_reported_unless_it_is_approved") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let events = server.stream("SendStreamingMessage", json!({"message": message("apply", json!({}))})).await;
    let permissions = reports(&events, "permission");
    assert_eq!(permissions.len(), 1, "{events:?}");
    assert_eq!(permissions[0]["autoApproved"], false);
    assert_eq!(permissions[0]["toolName"], "aliyun_ros");
    assert!(events.iter().any(|event| event.to_string().contains("The stack is not created.")), "{events:?}");
    drop(server);
    let home = Home::new();
    let server = start_with(&home, &[], "auto-approve-permissions: true\n").await;
    let events = server.stream("SendStreamingMessage", json!({"message": message("apply", json!({}))})).await;
    assert_eq!(reports(&events, "permission")[0]["autoApproved"], true, "{events:?}");
    assert!(events.iter().any(|event| event.to_string().contains("The stack is created.")), "{events:?}");
}

#[tokio::test]
async fn a_caller_that_is_asked_answers_in_the_form_of_the_peer() {
    if !has_python("iac_code::work::a_caller_that_is_asked_answers_in_the_form_of_the_peer") {
        return;
    }
    let home = Home::new();
    let server = start_with(&home, &[], "permission-default: ask\n").await;
    let asked = server.send(message("apply", json!({"contextId": "c"}))).await;
    assert_eq!(state(&asked), "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let task = asked["result"]["task"]["id"].clone();
    let parts = asked["result"]["task"]["status"]["message"]["parts"].as_array().unwrap().clone();
    let input = parts.iter().map(|part| &part["data"]).find(|data| data["kind"] == "permission");
    let input = input.unwrap_or_else(|| panic!("{asked}")).clone();
    let answer = |decision: &str| {
        json!({
            "messageId": "m2", "role": "ROLE_USER", "taskId": task, "contextId": "c",
            "parts": [{"mediaType": "application/json", "data": {
                "schemaVersion": 1, "kind": "permission", "requestTaskId": task, "inputId": input["inputId"],
                "toolUseId": input["toolUseId"], "decision": decision,
            }}],
        })
    };
    let wrong = server.send(answer("perhaps")).await;
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    let done = server.send(answer("allow_once")).await;
    assert_eq!(state(&done), "TASK_STATE_INPUT_REQUIRED", "{done}");
    assert!(done.to_string().contains("The stack is created."), "{done}");
}

#[tokio::test]
async fn a_required_extension_is_in_the_card_and_missing_it_is_an_error() {
    if !has_python("iac_code::work::a_required_extension_is_in_the_card_and_missing_it_is_an_error") {
        return;
    }
    let uri = "urn:iac-code:a2a:artifact-metadata:v1";
    let home = Home::new();
    let server = start_with(&home, &[], &format!("required-extensions: [\"{uri}\"]\n")).await;
    let missing = server.send(message("hello", json!({}))).await;
    assert_eq!(missing["error"]["code"], -32008, "{missing}");
    assert!(missing["error"].to_string().contains("EXTENSION_SUPPORT_REQUIRED"), "{missing}");
    let params = json!({"message": message("hello", json!({}))});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
    let request = server.http.post(format!("{}/", server.program.url)).header("A2A-Version", "1.0");
    let answer: Value =
        request.header("A2A-Extensions", uri).json(&body).send().await.unwrap().json().await.unwrap();
    assert_eq!(state(&answer), "TASK_STATE_INPUT_REQUIRED", "{answer}");
    let url = format!("{}/.well-known/agent-card.json", server.program.url);
    let card: Value = server.http.get(url).send().await.unwrap().json().await.unwrap();
    let all = card["capabilities"]["extensions"].as_array().unwrap();
    assert!(all.iter().any(|it| it["uri"] == uri && it["required"] == true), "{card}");
}

#[tokio::test]
async fn push_configs_are_stored_listed_and_deleted_where_they_are_switched_on() {
    if !has_python("iac_code::work::push_configs_are_stored_listed_and_deleted") {
        return;
    }
    let home = Home::new();
    let server = start_with(&home, &[], "push-notifications: true\npush-queue: local-file\n").await;
    let url = format!("{}/.well-known/agent-card.json", server.program.url);
    let card: Value = server.http.get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!(card["capabilities"]["pushNotifications"], true, "{card}");
    let sent = server.send(message("hello", json!({}))).await;
    let task = &sent["result"]["task"]["id"];
    let config = json!({
        "taskId": task, "id": "webhook-1", "url": "https://hooks.example.com/a2a", "token": "notification-token",
        "authentication": {"scheme": "bearer", "credentials": "callback-token"},
    });
    let created = server.rpc("CreateTaskPushNotificationConfig", config).await;
    assert_eq!(created["result"]["id"], "webhook-1", "{created}");
    let named = json!({"taskId": task, "id": "webhook-1"});
    let got = server.rpc("GetTaskPushNotificationConfig", named.clone()).await;
    assert_eq!(got["result"]["url"], "https://hooks.example.com/a2a", "{got}");
    let listed = server.rpc("ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
    assert_eq!(listed["result"]["configs"][0]["id"], "webhook-1", "{listed}");
    let deleted = server.rpc("DeleteTaskPushNotificationConfig", named.clone()).await;
    assert!(deleted["error"].is_null(), "{deleted}");
    let gone = server.rpc("GetTaskPushNotificationConfig", named).await;
    assert!(gone["error"].is_object(), "{gone}");
    for unsafe_url in
        ["ftp://hooks.example.com/", "http://localhost/", "http://127.0.0.1/", "http://10.1.2.3/"]
    {
        let config = json!({"taskId": task, "id": "webhook-2", "url": unsafe_url});
        let refused = server.rpc("CreateTaskPushNotificationConfig", config).await;
        assert_eq!(refused["error"]["code"], -32602, "{unsafe_url}: {refused}");
    }
}

#[tokio::test]
async fn a_subscription_to_a_running_task_begins_with_it_and_ends_with_the_turn() {
    if !has_python("iac_code::work::a_subscription_to_a_running_task_begins_with_it") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let params = json!({
        "message": message("sleep 2", json!({"contextId": "c"})),
        "configuration": {"returnImmediately": true},
    });
    let running = server.rpc("SendMessage", params).await;
    assert!(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state(&running)), "{running}");
    let task = &running["result"]["task"]["id"];
    let events = server.stream("SubscribeToTask", json!({"id": task})).await;
    assert_eq!(events[0]["task"]["id"], *task, "{events:?}");
    let last = events.last().unwrap();
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{events:?}");
    // The same context goes on with its conversation, and an unknown task is not found.
    let next = server.send(message("hello", json!({"contextId": "c"}))).await;
    assert_eq!(state(&next), "TASK_STATE_INPUT_REQUIRED", "{next}");
    assert_eq!(status(&running), "");
    assert_eq!(server.rpc("GetTask", json!({"id": "unknown"})).await["error"]["code"], -32001);
    assert_eq!(
        server.rpc("ListTasks", json!({"pageSize": 1})).await["result"]["tasks"].as_array().unwrap().len(),
        1
    );
    let token = server.rpc("ListTasks", json!({"pageSize": 1})).await["result"]["nextPageToken"].clone();
    let second = server.rpc("ListTasks", json!({"pageSize": 1, "pageToken": token})).await;
    assert_eq!(second["result"]["tasks"][0]["id"], *task, "{second}");
}

#[tokio::test]
async fn a_card_is_signed_with_the_secret_of_the_peers() {
    if !has_python("iac_code::work::a_card_is_signed_with_the_secret_of_the_peers") {
        return;
    }
    let home = Home::new();
    let server = start_with(&home, &[], "signing-secret: the-secret-of-this-test-0123456789\n").await;
    let url = format!("{}/.well-known/agent-card.json", server.program.url);
    let card: Value = server.http.get(&url).send().await.unwrap().json().await.unwrap();
    let protected = card["signatures"][0]["protected"].as_str().unwrap_or_else(|| panic!("{card}"));
    let header: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(protected).unwrap()).unwrap();
    assert_eq!(header, json!({"alg": "HS256", "kid": "default", "typ": "JOSE"}));
    assert!(!card.to_string().contains("the-secret-of-this-test"));
}
