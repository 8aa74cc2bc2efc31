//! The server in the place of iac-code: the requests and the table rows of its protocol reference.
#![cfg(unix)]

mod card;
mod command;
mod content;
mod contexts;
mod credentials;
mod input;
mod push;
mod reports;
mod requests;
mod rest;
mod rows;
mod support;
mod transports;
mod work;
mod workspaces;

use std::path::Path;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use self::support::{
    Server, contains, message, settings, settings_with, sha256, start, start_with, state, status,
};
use crate::home::Home;
use crate::programs::has_python;
use crate::support::Program;

#[tokio::test]
async fn the_card_and_the_routes_are_those_of_the_reference() {
    if !has_python("iac_code::the_card_and_the_routes_are_those_of_the_reference") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let url = &server.program.url;
    let response = server.http.get(format!("{url}/.well-known/agent-card.json")).send().await.unwrap();
    let tag = response.headers()["etag"].clone();
    assert!(response.headers()["cache-control"].to_str().unwrap().contains("max-age=60"));
    assert!(response.headers().contains_key("last-modified"));
    let card: Value = response.json().await.unwrap();
    assert_eq!(card["name"], "iac-code");
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    assert!(interfaces.iter().any(|it| it["protocolBinding"] == "HTTP+JSON"), "{card}");
    assert_eq!(card["capabilities"]["extendedAgentCard"], true, "{card}");
    let extension = |uri: &str| {
        let all = card["capabilities"]["extensions"].as_array().unwrap_or_else(|| panic!("{card}"));
        all.iter().find(|extension| extension["uri"] == uri).cloned()
    };
    let metadata = extension("urn:iac-code:a2a:artifact-metadata:v1").unwrap_or_else(|| panic!("{card}"));
    assert_ne!(metadata["required"], true);
    let thinking = extension("urn:iac-code:a2a:thinking-exposure:v1").unwrap_or_else(|| panic!("{card}"));
    assert_eq!(thinking["params"]["enabledTypes"], json!(["tool_trace"]));
    let interface = &card["supportedInterfaces"][0];
    assert_eq!(
        (&interface["protocolBinding"], &interface["protocolVersion"]),
        (&json!("JSONRPC"), &json!("1.0"))
    );
    assert_eq!(interface["url"], format!("{url}/"));
    assert_eq!(card["capabilities"]["streaming"], true);
    assert_ne!(card["capabilities"]["pushNotifications"], true);
    assert_eq!(card["defaultOutputModes"], json!(["text/plain"]));
    let modes = card["defaultInputModes"].as_array().unwrap();
    for mode in
        ["text/plain", "application/json", "text/yaml", "image/png", "audio/wav", "application/octet-stream"]
    {
        assert!(modes.contains(&json!(mode)), "{mode}: {modes:?}");
    }
    let skills: Vec<_> =
        card["skills"].as_array().unwrap().iter().map(|skill| skill["id"].as_str().unwrap()).collect();
    for skill in ["iac_generation", "iac_review", "aliyun_ros_operations", "terraform_ros_conversion"] {
        assert!(skills.contains(&skill), "{skills:?}");
    }
    let again = server.http.get(format!("{url}/.well-known/agent-card.json")).header("If-None-Match", tag);
    assert_eq!(again.send().await.unwrap().status(), StatusCode::NOT_MODIFIED);
    let health: Value = server.http.get(format!("{url}/health")).send().await.unwrap().json().await.unwrap();
    assert_eq!(health["status"], "healthy");
    let extended = server.rpc("GetExtendedAgentCard", json!({})).await;
    assert_eq!(extended["result"]["name"], "iac-code", "{extended}");
    // HTTP+JSON at the root.
    let body = json!({"message": message("hello", json!({}))});
    let sent = server.http.post(format!("{url}/message:send")).header("A2A-Version", "1.0").json(&body);
    let sent: Value = sent.send().await.unwrap().json().await.unwrap();
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{sent}");
}

#[tokio::test]
async fn contexts_workspaces_and_errors_are_those_of_the_reference() {
    if !has_python("iac_code::contexts_workspaces_and_errors_are_those_of_the_reference") {
        return;
    }
    let home = Home::new();
    let project = home.path("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::create_dir(home.path("other")).unwrap();
    std::fs::write(project.join("main.tf"), "resource {}").unwrap();
    let server = start(&home, &[]).await;
    let at = |path: &Path| json!({"iac_code": {"cwd": path}});
    let named = message("where", json!({"metadata": at(&project), "contextId": "ctx-1"}));
    let first = server.send(named).await;
    assert_eq!(state(&first), "TASK_STATE_INPUT_REQUIRED", "{first}");
    let task = first["result"]["task"]["id"].clone();
    let listed = server.rpc("ListTasks", json!({"contextId": "ctx-1", "pageSize": 20})).await;
    assert_eq!(listed["result"]["tasks"][0]["id"], task, "{listed}");
    let read = server.rpc("GetTask", json!({"id": task, "historyLength": 10})).await;
    assert_eq!(read["result"]["id"], task);
    // Another workspace, one that is not allowed, and one that does not exist.
    let other = message("x", json!({"metadata": at(&home.path("other")), "contextId": "ctx-1"}));
    let refused = server.send(other).await;
    assert_eq!(
        (state(&refused), status(&refused)),
        ("TASK_STATE_FAILED", "A2A context belongs to a different workspace")
    );
    for path in [Path::new("/etc"), &home.path("missing"), Path::new("relative")] {
        let refused = server.send(message("x", json!({"metadata": at(path)}))).await;
        assert_eq!(
            (state(&refused), status(&refused)),
            ("TASK_STATE_FAILED", "Invalid A2A workspace metadata.")
        );
    }
    // Input.
    let empty = server.send(message("", json!({}))).await;
    assert_eq!(
        (state(&empty), status(&empty)),
        ("TASK_STATE_FAILED", "A2A server currently accepts text input only.")
    );
    let file =
        |path: &Path| json!([{"url": format!("file://{}", path.display()), "mediaType": "text/plain"}]);
    let parts = |parts: Value| message("", json!({"parts": parts, "metadata": at(&project)}));
    let local = server.send(parts(file(&project.join("main.tf")))).await;
    assert_eq!(state(&local), "TASK_STATE_INPUT_REQUIRED", "{local}");
    assert_eq!(server.send(parts(file(&home.path("attache.yml")))).await["error"]["code"], -32602);
    let remote = server.send(parts(json!([{"url": "https://example.org/a"}]))).await;
    assert_eq!(remote["error"]["code"], -32602, "{remote}");
    let video = server.send(parts(json!([{"raw": "AQI=", "mediaType": "video/mp4"}]))).await;
    assert_eq!(video["error"]["code"], -32005, "{video}");
    let image =
        server.send(parts(json!([{"raw": "AQI=", "mediaType": "image/png", "filename": "a.png"}]))).await;
    assert_eq!(state(&image), "TASK_STATE_INPUT_REQUIRED", "{image}");
    assert!(image.to_string().contains("- mediaType=image/png"), "{image}");
    // Tasks that do not run.
    assert_eq!(server.rpc("CancelTask", json!({"id": task})).await["error"]["code"], -32002);
    assert_eq!(server.rpc("SubscribeToTask", json!({"id": task})).await["error"]["code"], -32001);
    assert_eq!(server.rpc("GetTask", json!({"id": "a b"})).await["error"]["code"], -32602);
    let push = json!({"taskId": task, "id": "w", "url": "https://hooks.example.com/a2a"});
    assert_eq!(server.rpc("CreateTaskPushNotificationConfig", push).await["error"]["code"], -32003);
    for method in ["Get", "Delete"] {
        let params = json!({"taskId": task, "id": "w"});
        let refused = server.rpc(&format!("{method}TaskPushNotificationConfig"), params).await;
        assert_eq!(refused["error"]["code"], -32003, "{refused}");
    }
    let refused = server.rpc("ListTaskPushNotificationConfigs", json!({"taskId": task})).await;
    assert_eq!(refused["error"]["code"], -32003, "{refused}");
    // The agent says why it fails, or ends without a word.
    let failed = server.send(message("fail", json!({}))).await;
    assert_eq!(
        (state(&failed), status(&failed)),
        ("TASK_STATE_FAILED", "Authentication required. Configure credentials and retry.")
    );
    let crashed =
        server.send(message("crash the-key-of-the-provider", json!({"metadata": at(&project)}))).await;
    assert_eq!(state(&crashed), "TASK_STATE_FAILED", "{crashed}");
    let text = status(&crashed);
    let is_clean = !text.contains(&*project.to_string_lossy()) && !text.contains("the-key");
    assert!(is_clean && !text.contains("Traceback"), "{text}");
}

#[tokio::test]
async fn a_context_is_busy_while_its_turn_runs_and_can_be_canceled() {
    if !has_python("iac_code::a_context_is_busy_while_its_turn_runs_and_can_be_canceled") {
        return;
    }
    let home = Home::new();
    let server = start(&home, &[]).await;
    let params = json!({
        "message": message("sleep 60", json!({"contextId": "c"})),
        "configuration": {"returnImmediately": true},
    });
    let running = server.rpc("SendMessage", params).await;
    let task = running["result"]["task"]["id"].clone();
    let second = server.send(message("hello", json!({"contextId": "c"}))).await;
    assert_eq!((state(&second), status(&second)), ("TASK_STATE_FAILED", "Task is already working."));
    // Another context does not wait.
    let other = server.send(message("hello", json!({"contextId": "d"}))).await;
    assert_eq!(state(&other), "TASK_STATE_INPUT_REQUIRED", "{other}");
    let canceled = server.rpc("CancelTask", json!({"id": task})).await;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    let next = server.send(message("hello", json!({"contextId": "c"}))).await;
    assert_eq!(state(&next), "TASK_STATE_INPUT_REQUIRED", "{next}");
}

#[tokio::test]
async fn callers_show_the_credentials_of_the_environment() {
    if !has_python("iac_code::callers_show_the_credentials_of_the_environment") {
        return;
    }
    let home = Home::new();
    let environment = [
        ("IACCODE_A2A_HTTP_TOKEN", "the-token-of-this-test"),
        ("IACCODE_A2A_API_KEY", "the-key-of-this-test"),
        ("IACCODE_A2A_BASIC_USERNAME", "ops"),
        ("IACCODE_A2A_BASIC_PASSWORD", "the-password-of-this-test"),
    ];
    let server = start(&home, &environment).await;
    let url = format!("{}/.well-known/agent-card.json", server.program.url);
    let body = json!({"jsonrpc": "2.0", "id": "8", "method": "GetExtendedAgentCard", "params": {}});
    let endpoint = format!("{}/", server.program.url);
    let denied = server.http.post(&endpoint).json(&body).send().await.unwrap();
    assert_eq!(denied.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(denied.json::<Value>().await.unwrap(), json!({"error": "Unauthorized"}));
    let card: Value = server
        .http
        .get(&url)
        .header("X-API-Key", "the-key-of-this-test")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert!(card["securitySchemes"]["bearerAuth"].is_object(), "{card}");
    assert!(card["securitySchemes"]["basicAuth"].is_object(), "{card}");
    let basic = server.http.post(&endpoint).header("A2A-Version", "1.0").json(&body);
    let basic = basic.basic_auth("ops", Some("the-password-of-this-test")).send().await.unwrap();
    assert_eq!(basic.status(), StatusCode::OK);
    assert_eq!(card["securitySchemes"]["apiKeyAuth"]["apiKeySecurityScheme"]["name"], "X-API-Key");
    let extended = server.http.post(&endpoint).header("A2A-Version", "1.0").json(&body);
    let extended: Value =
        extended.bearer_auth("the-token-of-this-test").send().await.unwrap().json().await.unwrap();
    assert_eq!(extended["result"]["name"], "iac-code", "{extended}");
}

#[tokio::test]
async fn operators_list_and_close_contexts() {
    if !has_python("iac_code::operators_list_and_close_contexts") {
        return;
    }
    let home = Home::new();
    let file = settings(&home);
    let store = format!("sqlite:{}", home.path("tasks.db").display());
    let arguments = ["serve", "--config", &file, "--listen", "127.0.0.1:0", "--store", &store];
    let (program, _) = Program::command_with(&arguments, &[]).await;
    let server = Server { program, http: Client::new() };
    server.send(message("hello", json!({"contextId": "c"}))).await;
    let run = async |arguments: &[&str]| {
        let mut command = crate::support::attache();
        let output =
            command.arg("context").args(arguments).args(["--store", &store, "--json"]).output().await;
        serde_json::from_slice::<Value>(&output.unwrap().stdout).unwrap_or_default()
    };
    let listed = run(&["list"]).await;
    assert_eq!(listed["contexts"][0]["contextId"], "c", "{listed}");
    assert_eq!(listed["contexts"][0]["turns"], 1);
    assert_eq!(run(&["show", "c"]).await["contextId"], "c");
    assert_eq!(run(&["close", "c"]).await["closed"], true);
    let refused = server.send(message("again", json!({"contextId": "c"}))).await;
    assert_eq!(refused["error"]["code"], -32004, "{refused}");
    assert!(run(&["show", "c"]).await["closed"].is_string());
}
