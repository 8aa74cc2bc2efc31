//! Agents that are not ours, and do as they please.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::routing::{get, post};
use futures::StreamExt;
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

/// A server whose card leads to the agent at this URL, which wants to see the token `t-1`.
pub(super) async fn leading_to(agent: &str) -> String {
    let interface =
        json!({"url": format!("{agent}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
    let card = json!({
        "supportedInterfaces": [interface],
        "securitySchemes": {"partners": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"partners": {}}}],
    });
    serve(card, Router::new()).await
}

/// A server that says that everything is at this URL.
pub(super) async fn redirecting_to(url: &str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    let here = format!("http://{}", listener.local_addr().expect("it has an address"));
    let there = url.to_owned();
    let app = Router::new().fallback(move |uri: axum::http::Uri| async move {
        axum::response::Redirect::temporary(&format!("{there}{}", uri.path()))
    });
    tokio::spawn(async { axum::serve(listener, app).await });
    here
}

/// An agent that wants to see the API key `k-1`, or that it is Ann with the password `s3cret`.
pub(super) async fn locked(scheme: &str) -> String {
    let schemes = json!({
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
    });
    let card = json!({"securitySchemes": schemes, "securityRequirements": [{"schemes": {scheme: {}}}]});
    start(card, |headers| {
        let is = |name: &str, value: &str| headers.get(name).is_some_and(|it| it == value);
        if !is("x-key", "k-1") && !is("authorization", "Basic YW5uOnMzY3JldA==") {
            return Err(StatusCode::UNAUTHORIZED);
        }
        Ok(json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "come in"}]}}))
    })
    .await
}

/// An agent that asks something and leaves the stream open, as if the answer came there. The stream of that begins with the question.
pub(super) async fn patient() -> String {
    let rpc = |body: String| async move {
        let request: Value = serde_json::from_str(&body).expect("a request is JSON");
        let event = |result: Value| {
            let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
            format!("data: {response}\n\n")
        };
        let message = json!({"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "How many?"}]});
        let status = json!({"state": "TASK_STATE_INPUT_REQUIRED", "message": message});
        let mut events = vec![event(json!({"task": {"id": "t", "contextId": "c", "status": status}}))];
        let answer = &request["params"]["message"];
        if answer["taskId"] == "t" {
            let artifact = json!({"artifactId": "a", "parts": answer["parts"]});
            events.push(event(
                json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact}}),
            ));
            let status = json!({"state": "TASK_STATE_COMPLETED"});
            events.push(event(json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status}})));
        }
        let events = futures::stream::iter(events).chain(futures::stream::pending());
        let body = Body::from_stream(events.map(Ok::<_, std::convert::Infallible>));
        ([(header::CONTENT_TYPE, "text/event-stream")], body)
    };
    serve(json!({"capabilities": {"streaming": true}}), Router::new().route("/rpc", post(rpc))).await
}

/// Starts an agent that sends chunks of an artifact, the first one appended too, and then the whole artifact once more.
pub(super) async fn repeating() -> String {
    let rpc = |body: String| async move {
        let request: Value = serde_json::from_str(&body).expect("a request is JSON");
        let event = |result: Value| {
            let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
            format!("data: {response}\n\n")
        };
        let piece = |text: &str, append: bool| {
            let artifact = json!({"artifactId": "a", "parts": [{"text": text}]});
            event(
                json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "append": append}}),
            )
        };
        let status = |state: &str| {
            event(json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state}}}))
        };
        let events = [
            event(json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}})),
            piece("good ", true),
            piece("morning", true),
            piece("good morning", false),
            status("TASK_STATE_COMPLETED"),
        ];
        ([(header::CONTENT_TYPE, "text/event-stream")], events.concat())
    };
    serve(json!({"capabilities": {"streaming": true}}), Router::new().route("/rpc", post(rpc))).await
}

/// Starts an agent that mixes versions in its stream, sends an unknown event, and answers in the history only.
pub(super) async fn mixed() -> String {
    let rpc = |body: String| async move {
        let request: Value = serde_json::from_str(&body).expect("a request is JSON");
        let response = |result: Value| json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        let task = json!({"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}, "history": [
            {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
            {"messageId": "n", "role": "ROLE_AGENT", "parts": [{"text": "the answer"}]},
        ]});
        let message = json!({"kind": "message", "messageId": "n", "role": "agent",
            "parts": [{"kind": "text", "text": "the answer"}]});
        let update = |status: Value| json!({"kind": "status-update", "taskId": "t", "contextId": "c", "status": status});
        match request["method"].as_str() {
            Some("SendStreamingMessage") => {
                let events = [
                    json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}),
                    json!({"usage": {"tokens": 7}}),
                    update(
                        json!({"state": "working", "message": message, "timestamp": "2026-11-17T00:22:05.706878"}),
                    ),
                    update(json!({"state": "completed"})),
                ];
                let events = events.map(|event| format!("data: {}\n\n", response(event)));
                ([(header::CONTENT_TYPE, "text/event-stream")], events.concat())
            }
            Some("SendMessage") => json(&response(json!({ "task": task }))),
            Some(_) | None => json(&response(task)),
        }
    };
    serve(json!({"capabilities": {"streaming": true}}), Router::new().route("/rpc", post(rpc))).await
}

/// Starts an agent with a card and a way to answer: a result, or a status that says no.
async fn start(
    more: Value,
    answer: impl Fn(&HeaderMap) -> Result<Value, StatusCode> + Send + Sync + 'static,
) -> String {
    let answer = Arc::new(answer);
    let rpc = move |headers: HeaderMap, body: String| async move {
        let request: Value = serde_json::from_str(&body).expect("a request is JSON");
        answer(&headers).map(|result| json(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})))
    };
    serve(more, Router::new().route("/rpc", post(rpc))).await
}

fn json(value: &Value) -> ([(HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string())
}

/// Starts an agent that answers at `/rpc`. Its card has these members besides those that it must have.
async fn serve(more: Value, rpc: Router) -> String {
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
    let app = rpc.route("/.well-known/agent-card.json", get(move || async move { json(&card) }));
    tokio::spawn(async { axum::serve(listener, app).await });
    url
}
