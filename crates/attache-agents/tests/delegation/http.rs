//! The HTTP API: its responses, and who may use it.

use std::sync::Arc;

use attache_agents::delegation::{Access, Api, DelegationOptions};
use attache_core::MemoryStore;
use attache_iii::engine::Token;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::support::{Delegator, TestAgent, in_time};

pub(crate) type ApiRequest = Request<Full<bytes::Bytes>>;

pub(crate) fn post(path: &str, body: &Value) -> ApiRequest {
    // As `curl -d` sends it.
    let request = Request::post(path).header("host", "localhost:3111");
    request.header("content-type", "application/x-www-form-urlencoded").body(body.to_string().into()).unwrap()
}

fn get(path: &str) -> ApiRequest {
    Request::get(path).header("host", "localhost:3111").body(Full::default()).unwrap()
}

/// Sends a request to the API. Returns the status and the body of the response.
pub(crate) async fn send(api: &Api, sent: ApiRequest) -> (StatusCode, Value) {
    let response = in_time(api.handle(sent)).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn the_api_returns_what_the_functions_return() {
    let (agent, delegator) = (TestAgent::start("Office").await, Delegator::new());
    let api = Api::new(delegator.delegation.clone(), Access::ThisMachine);
    let (status, found) = send(&api, post("/api/a2a/discover", &json!({"url": agent.url()}))).await;
    assert_eq!((status, &found["card"]["name"]), (StatusCode::OK, &json!("Office")));
    let message = json!({"agentUrl": agent.v0_1_url(), "message": "Analyze this data...", "metadata": {}});
    let (status, task) = send(&api, post("/api/a2a/send", &message)).await;
    assert_eq!((status, &task["status"]["state"]), (StatusCode::OK, &json!("completed")));
    let path = format!("/api/a2a/task?taskId={}", task["id"].as_str().unwrap());
    assert_eq!(send(&api, get(&path)).await, (StatusCode::OK, task.clone()));
    let (status, cards) = send(&api, get("/api/a2a/cards")).await;
    assert_eq!((status, &cards[1]["name"]), (StatusCode::OK, &json!("Office")));
    let (status, refused) = send(&api, post("/api/a2a/cancel", &json!({"taskId": task["id"]}))).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(refused["error"]["message"], "Cannot cancel task in state: completed");
    assert!(api.handle(get("/api/a2a/other")).await.is_none());
}

#[tokio::test]
async fn each_error_has_its_status() {
    let delegator = Delegator::with(Arc::new(MemoryStore::new()), DelegationOptions::default());
    let api = Api::new(delegator.delegation.clone(), Access::ThisMachine);
    let broken = Request::post("/api/a2a/send").header("host", "[::1]").body("{".into()).unwrap();
    for (request, status, text) in [
        (post("/api/a2a/send", &json!({"message": "hi"})), 400, "agentUrl is required"),
        (post("/api/a2a/discover", &json!({})), 400, "url is required"),
        (get("/api/a2a/task"), 400, "taskId is required"),
        (get("/api/a2a/task?taskId=nope"), 404, "Task not found: nope"),
        (post("/api/a2a/cancel", &json!({"taskId": "nope"})), 404, "Task not found: nope"),
        (post("/api/a2a/discover", &json!({"url": "http://10.0.0.1"})), 400, "blocked: "),
        (get("/api/a2a/send"), 405, "use POST here"),
        (broken, 400, "the input must be a JSON object"),
    ] {
        let (found, body) = send(&api, request).await;
        let message = body["error"]["message"].as_str().unwrap();
        assert!(found == status && message.starts_with(text), "{found}: {body}");
    }
}

#[tokio::test]
async fn a_caller_without_the_token_gets_a_challenge() {
    let delegator = Delegator::new();
    let api = Api::new(delegator.delegation.clone(), Access::Token(Token::new("0123456789abcdef")));
    for given in [None, Some("Bearer wrong"), Some("Basic 0123456789abcdef"), Some("0123456789abcdef")] {
        let mut request = get("/api/a2a/cards");
        if let Some(given) = given {
            request.headers_mut().insert("authorization", given.parse().unwrap());
        }
        let response = api.handle(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"a2a\"");
    }
    let mut request = get("/api/a2a/cards");
    // With the token, the host does not matter.
    request.headers_mut().insert("host", "agents.example.com".parse().unwrap());
    request.headers_mut().insert("authorization", "bearer 0123456789abcdef".parse().unwrap());
    assert_eq!(api.handle(request).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn without_a_token_only_local_programs_may_use_the_api() {
    let delegator = Delegator::new();
    let closed = Api::new(delegator.delegation.clone(), Access::Closed);
    assert_eq!(send(&closed, get("/api/a2a/cards")).await.0, StatusCode::FORBIDDEN);
    let local = Api::new(delegator.delegation.clone(), Access::ThisMachine);
    assert_eq!(send(&local, get("/api/a2a/cards")).await.0, StatusCode::OK);
    let mut page = get("/api/a2a/cards");
    page.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
    assert_eq!(send(&local, page).await.0, StatusCode::FORBIDDEN);
}
