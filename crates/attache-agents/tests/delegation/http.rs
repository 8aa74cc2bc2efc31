//! The HTTP API: what it answers, and whom.

use std::sync::Arc;

use attache_agents::delegation::{Access, Api, DelegationOptions};
use attache_core::MemoryStore;
use attache_iii::engine::Token;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::support::{House, Office, soon};

type Asked = Request<Full<bytes::Bytes>>;

fn post(path: &str, body: &Value) -> Asked {
    // As `curl -d` does it.
    let request = Request::post(path).header("host", "localhost:3111");
    request.header("content-type", "application/x-www-form-urlencoded").body(body.to_string().into()).unwrap()
}

fn get(path: &str) -> Asked {
    Request::get(path).header("host", "localhost:3111").body(Full::default()).unwrap()
}

async fn ask(api: &Api, request: Asked) -> (StatusCode, Value) {
    let response = soon(api.handle(request)).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn the_api_returns_what_the_functions_return() {
    let (office, house) = (Office::open("Office").await, House::new());
    let api = Api::new(house.delegation.clone(), Access::ThisMachine);
    let (status, found) = ask(&api, post("/api/a2a/discover", &json!({"url": office.url()}))).await;
    assert_eq!((status, &found["card"]["name"]), (StatusCode::OK, &json!("Office")));
    let message = json!({"agentUrl": office.oldest(), "message": "Analyze this data...", "metadata": {}});
    let (status, task) = ask(&api, post("/api/a2a/send", &message)).await;
    assert_eq!((status, &task["status"]["state"]), (StatusCode::OK, &json!("completed")));
    let path = format!("/api/a2a/task?taskId={}", task["id"].as_str().unwrap());
    assert_eq!(ask(&api, get(&path)).await, (StatusCode::OK, task.clone()));
    let (status, cards) = ask(&api, get("/api/a2a/cards")).await;
    assert_eq!((status, &cards[1]["name"]), (StatusCode::OK, &json!("Office")));
    let (status, refused) = ask(&api, post("/api/a2a/cancel", &json!({"taskId": task["id"]}))).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(refused["error"]["message"], "Cannot cancel task in state: completed");
    assert!(api.handle(get("/api/a2a/other")).await.is_none());
}

#[tokio::test]
async fn each_error_has_its_status() {
    let house = House::with(Arc::new(MemoryStore::new()), DelegationOptions::default());
    let api = Api::new(house.delegation.clone(), Access::ThisMachine);
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
        let (found, body) = ask(&api, request).await;
        let said = body["error"]["message"].as_str().unwrap();
        assert!(found == status && said.starts_with(text), "{found}: {body}");
    }
}

#[tokio::test]
async fn a_caller_without_the_token_gets_a_challenge() {
    let house = House::new();
    let api = Api::new(house.delegation.clone(), Access::Token(Token::new("0123456789abcdef")));
    for shown in [None, Some("Bearer wrong"), Some("Basic 0123456789abcdef"), Some("0123456789abcdef")] {
        let mut request = get("/api/a2a/cards");
        if let Some(shown) = shown {
            request.headers_mut().insert("authorization", shown.parse().unwrap());
        }
        let response = api.handle(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"a2a\"");
    }
    let mut request = get("/api/a2a/cards");
    // Also from elsewhere: the token is what counts.
    request.headers_mut().insert("host", "agents.example.com".parse().unwrap());
    request.headers_mut().insert("authorization", "bearer 0123456789abcdef".parse().unwrap());
    assert_eq!(api.handle(request).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn without_a_token_only_local_programs_may_use_the_api() {
    let house = House::new();
    let closed = Api::new(house.delegation.clone(), Access::Nobody);
    assert_eq!(ask(&closed, get("/api/a2a/cards")).await.0, StatusCode::FORBIDDEN);
    let local = Api::new(house.delegation.clone(), Access::ThisMachine);
    assert_eq!(ask(&local, get("/api/a2a/cards")).await.0, StatusCode::OK);
    let mut page = get("/api/a2a/cards");
    page.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
    assert_eq!(ask(&local, page).await.0, StatusCode::FORBIDDEN);
}
