//! Agents that are not ours, and do as they please.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{get, post};
use serde_json::{Value, json};

/// An agent that answers every request over JSON-RPC with the same result, for as long as the test runs. Its card has these members
/// besides those that it must have.
pub(super) async fn fake(card: Value, result: Value) -> String {
    start(card, move |_| Ok(result.clone())).await
}

/// An agent that does not stream, answers before it is done, and is done when it is asked again.
pub(super) async fn slow() -> String {
    let asked = AtomicBool::new(false);
    start(json!({}), move |_| {
        if !asked.swap(true, Ordering::Relaxed) {
            return Ok(json!({"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}}));
        }
        let artifact = json!({"artifactId": "a", "parts": [{"text": "at last"}]});
        Ok(json!({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "artifacts": [artifact]}))
    })
    .await
}

/// An agent that wants to see the token `t-1`.
pub(super) async fn guarded() -> String {
    let card = json!({
        "securitySchemes": {"partners": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"partners": {}}}],
    });
    start(card, |headers| {
        if headers.get(header::AUTHORIZATION).is_none_or(|value| value != "Bearer t-1") {
            return Err(StatusCode::UNAUTHORIZED);
        }
        Ok(json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "come in"}]}}))
    })
    .await
}

/// Starts an agent with a card and a way to answer: a result, or a status that says no.
async fn start(
    more: Value,
    answer: impl Fn(&HeaderMap) -> Result<Value, StatusCode> + Send + Sync + 'static,
) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let url = format!("http://{}", listener.local_addr().expect("it has an address"));
    let interface =
        json!({"url": format!("{url}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    let mut card = json!({
        "name": "Fake", "description": "Does as it pleases", "version": "1", "capabilities": {}, "skills": [],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "supportedInterfaces": [interface],
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        card[name] = value.clone();
    }
    let json = |value: &Value| ([(header::CONTENT_TYPE, "application/json")], value.to_string());
    let answer = Arc::new(answer);
    let rpc = move |headers: HeaderMap, body: String| async move {
        let request: Value = serde_json::from_str(&body).expect("a request is JSON");
        answer(&headers).map(|result| json(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})))
    };
    let app = Router::new()
        .route("/.well-known/agent-card.json", get(move || async move { json(&card) }))
        .route("/rpc", post(rpc));
    tokio::spawn(async { axum::serve(listener, app).await });
    url
}
