//! Serving through the HTTP of an engine. Each test runs an engine, a worker that is connected over a socket, and an A2A server
//! that the worker has registered. Requests go through the engine's HTTP.

use std::sync::Arc;
use std::time::Duration;

use attache_core::MemoryStore;
use attache_iii::engine::{Engine, EngineOptions};
use attache_iii::worker::{Worker, WorkerOptions};
use attache_iii::{FunctionGatewayOptions, FunctionInfo, Functions, Gateway, serve_through};
use attache_server::Server;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// An engine with an A2A server behind its HTTP.
struct Setup {
    engine: Engine,
    stop: CancellationToken,
    _worker: Worker,
}

impl Drop for Setup {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn set_up() -> Setup {
    let options = EngineOptions::default().with(|options| options.listen = "127.0.0.1:0".to_owned());
    let engine = Engine::new(Arc::new(MemoryStore::new()), options);
    let listening = engine.listen().await.expect("a port");
    let url = format!("ws://{}", listening.address());
    let stop = CancellationToken::new();
    tokio::spawn(listening.run_until(stop.clone().cancelled_owned()));
    let quote =
        FunctionInfo { metadata: Some(json!({"a2a.expose": true})), ..FunctionInfo::new("pricing::quote") };
    engine.register(quote, |_| async {
        Ok(serde_json::value::to_raw_value(&json!({"price": 42})).expect("JSON"))
    });
    let worker = Worker::connect(WorkerOptions::new(url)).expect("a worker");
    let gateway = Gateway::new(Arc::new(worker.clone()), FunctionGatewayOptions::default());
    let server = Server::new(gateway.clone()).card(gateway.card()).card_updates(gateway.cards());
    let surface = server.into_http_service("http://localhost:3111").expect("a surface");
    let _registered = serve_through(&worker, surface);
    let known = |catalog: &Option<_>| {
        let catalog: Option<&Arc<attache_iii::Catalog>> = catalog.as_ref();
        catalog.is_some_and(|catalog| catalog.contains_key("pricing::quote"))
    };
    worker.updates().wait_for(known).await.expect("the function");
    Setup { engine, stop, _worker: worker }
}

impl Setup {
    /// Repeats a request until its route exists: the worker registers it in the background.
    async fn ask(&self, method: &str, path: &str, content_type: &str, body: &str) -> Response<Bytes> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        loop {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("content-type", content_type)
                .header("content-length", body.len())
                .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
                .expect("a request");
            if let Some(response) = self.engine.handle_http(request).await {
                let (head, body) = response.into_parts();
                let body = body.collect().await.expect("a body").to_bytes();
                return Response::from_parts(head, body);
            }
            assert!(tokio::time::Instant::now() < deadline, "there is nothing at {path}");
            tokio::task::yield_now().await;
        }
    }

    async fn rpc(&self, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        json_of(&self.ask("POST", "/a2a", "application/json", &body).await)
    }
}

fn json_of(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body())
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(response.body())))
}

fn flat() -> Value {
    json!({"message": {"messageId": "m1", "role": "user",
        "parts": [{"data": {"function_id": "pricing::quote", "payload": {}}}]}})
}

#[tokio::test]
async fn the_card_is_served() {
    let setup = set_up().await;
    let response = setup.ask("GET", "/.well-known/agent-card.json", "text/plain", "").await;
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(json_of(&response)["skills"][0]["id"], "pricing::quote");
}

#[tokio::test]
async fn functions_are_called_over_json_rpc() {
    let setup = set_up().await;
    let answer = setup.rpc("message/send", flat()).await;
    let task = &answer["result"]["task"];
    assert_eq!(task["status"]["state"], "completed", "{answer}");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "{\n  \"price\": 42\n}");
    let again = setup.rpc("tasks/get", json!({"id": task["id"]})).await;
    assert_eq!(&again["result"]["task"], task);
}

#[tokio::test]
async fn functions_are_called_over_http_json() {
    let setup = set_up().await;
    let mut params = flat();
    params["message"]["role"] = json!("ROLE_USER");
    // The engine does not parse bodies of this type: the worker reads them through a channel.
    let response = setup.ask("POST", "/v1/message:send", "application/a2a+json", &params.to_string()).await;
    let task = json_of(&response)["task"].clone();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    let id = task["id"].as_str().expect("an id");
    let own = "application/a2a+json";
    let read = setup.ask("GET", &format!("/v1/tasks/{id}?historyLength=0"), own, "").await;
    assert_eq!(json_of(&read)["id"], id);
    assert!(json_of(&read)["history"].is_null());
    let cancel = setup.ask("POST", &format!("/v1/tasks/{id}:cancel"), own, "{}").await;
    assert_eq!(cancel.status(), StatusCode::BAD_REQUEST, "{cancel:?}");
    let missing = setup.ask("GET", "/v1/tasks/nope", "text/plain", "").await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn streams_leave_through_the_channel_of_the_response() {
    let setup = set_up().await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": flat()}).to_string();
    let response = setup.ask("POST", "/a2a", "application/json", &body).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = String::from_utf8_lossy(response.body()).into_owned();
    assert!(text.starts_with(": ok\n\n"), "{text}");
    assert!(text.contains(r#""final":true"#), "{text}");
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused_with_the_code_for_it() {
    let setup = set_up().await;
    let response = setup.ask("POST", "/a2a", "application/json", "{broken").await;
    assert_eq!(json_of(&response)["error"]["code"], -32700);
}
