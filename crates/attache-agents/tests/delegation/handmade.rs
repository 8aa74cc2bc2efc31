//! An agent of protocol 0.1 that is written by hand.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{Delegator, in_time};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// An agent whose times have no zone and whose card has a number where a text is expected, as some have them.
struct Sloppy {
    url: String,
    headers: mpsc::UnboundedReceiver<HeaderMap>,
    _serving: AbortOnDropHandle<()>,
}

impl Sloppy {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let card = json!({"name": "Sloppy", "url": format!("{url}/rpc"), "version": 1.5,
            "authentication": {"schemes": []}});
        let (sender, headers) = mpsc::unbounded_channel();
        let app = Router::new()
            .route("/.well-known/agent.json", get(async move || axum::Json(card)))
            .route("/rpc", post(answer))
            .with_state(sender);
        let serving = tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
        Self { url, headers, _serving: AbortOnDropHandle::new(serving) }
    }
}

async fn answer(
    State(sender): State<mpsc::UnboundedSender<HeaderMap>>,
    headers: HeaderMap,
    body: Bytes,
) -> axum::Json<Value> {
    sender.send(headers).unwrap();
    let request: Value = serde_json::from_slice(&body).unwrap();
    let status = json!({"state": "completed", "timestamp": "2026-11-17T00:22:05.706878",
        "message": {"role": "agent", "parts": [{"type": "text", "text": "done"}]}});
    let task = json!({"id": request["params"]["id"], "status": status});
    axum::Json(json!({"jsonrpc": "2.0", "id": request["id"], "result": task}))
}

#[tokio::test]
async fn a_task_with_a_time_without_a_zone_and_a_card_with_harmless_mistakes_are_read() {
    let (agent, delegator) = (Sloppy::start().await, Delegator::new());
    let task = delegator.call("a2a::send_task", json!({"agentUrl": agent.url, "message": "hi"})).await;
    assert_eq!(task["status"]["state"], "completed", "{task}");
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "done");
}

#[tokio::test]
async fn the_trace_of_a_call_reaches_an_agent_of_protocol_0_1() {
    let (mut agent, delegator) = (Sloppy::start().await, Delegator::new());
    let input = json!({"agentUrl": agent.url, "message": "hi"});
    delegator.call_in_trace("a2a::send_task", input, TRACE).await.unwrap();
    let headers = in_time(agent.headers.recv()).await.unwrap();
    let sent = headers["traceparent"].to_str().unwrap();
    assert_eq!(sent.split('-').nth(1), TRACE.split('-').nth(1));
}
