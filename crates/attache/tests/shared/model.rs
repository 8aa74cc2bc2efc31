//! A chat completion endpoint that replies from a script.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

/// The key that the endpoint accepts.
pub(crate) const KEY: &str = "a key of the scripted model";

/// Starts the endpoint and returns its base URL.
///
/// The reply names the roles of the messages that the model got and repeats the last one, word by word. A message `call NAME JSON`
/// makes the model call a tool, and `tools` makes it list its tools.
pub(crate) async fn start() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/v1", listener.local_addr().expect("it has an address"));
    let app = Router::new().route("/v1/chat/completions", post(complete));
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn complete(headers: HeaderMap, Json(request): Json<Value>) -> Response {
    let key = headers.get("authorization").and_then(|value| value.to_str().ok());
    if key != Some(&format!("Bearer {KEY}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let messages = request["messages"].as_array().expect("there are messages");
    let roles: Vec<_> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    let last = messages.last().and_then(|message| message["content"].as_str()).expect("a message has text");
    assert_eq!(request["stream"], true, "{request}");
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let names: Vec<_> = tools.iter().filter_map(|tool| tool["function"]["name"].as_str()).collect();
    if roles.last() == Some(&"user")
        && let Some((name, arguments)) = last.strip_prefix("call ").and_then(|call| call.split_once(' '))
    {
        let call = json!({"index": 0, "id": "c", "function": {"name": name, "arguments": arguments}});
        let chunk = json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]});
        let body = format!("data: {chunk}\n\ndata: [DONE]\n\n");
        return ([("content-type", "text/event-stream")], Body::from(body)).into_response();
    }
    let reply = match last {
        "tools" => names.join(" "),
        last => format!("{}: {last}", roles.join(",")),
    };
    let pieces: Vec<_> = reply.split_inclusive(' ').collect();
    let events = pieces.iter().map(|piece| {
        let chunk = json!({"choices": [{"index": 0, "delta": {"content": piece}}]});
        format!("data: {chunk}\n\n")
    });
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let body: String = events.chain([format!("data: {end}\n\n"), "data: [DONE]\n\n".to_owned()]).collect();
    ([("content-type", "text/event-stream")], Body::from(body)).into_response()
}

/// The text of the first artifact of a task. Each chunk is a part.
pub(crate) fn reply(task: &Value) -> String {
    let parts = task["artifacts"][0]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}
