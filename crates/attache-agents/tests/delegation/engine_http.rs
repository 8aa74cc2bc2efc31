//! The HTTP API through the HTTP of an engine, which a worker has joined.

use std::sync::Arc;

use attache_agents::delegation::{Access, Api, Delegation, DelegationOptions, serve_api_through};
use attache_core::MemoryStore;
use attache_iii::engine::{Engine, EngineOptions, Token};
use attache_iii::worker::{Worker, WorkerOptions};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::support::in_time;

const TOKEN: &str = "0123456789abcdef";

/// An engine and a worker that has registered the API.
struct EngineWithApi {
    engine: Engine,
    _worker: Worker,
}

impl EngineWithApi {
    async fn start() -> Self {
        let options = EngineOptions::default().with(|options| options.listen = "127.0.0.1:0".to_owned());
        let engine = Engine::new(Arc::new(MemoryStore::new()), options);
        let listening = engine.listen().await.unwrap();
        let url = format!("ws://{}", listening.address());
        tokio::spawn(listening.run_until(std::future::pending()));
        let worker = Worker::connect(WorkerOptions::new(url)).unwrap();
        let delegation = Delegation::new(Arc::new(MemoryStore::new()), DelegationOptions::default()).unwrap();
        let _registrations =
            serve_api_through(&worker, Api::new(delegation, Access::Token(Token::new(TOKEN))));
        Self { engine, _worker: worker }
    }

    /// Sends a request again until the worker has registered its route.
    async fn request(
        &self,
        token: &str,
        method: &str,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> (StatusCode, Value) {
        in_time(async {
            loop {
                let request = Request::builder()
                    .method(method)
                    .uri(path)
                    .header("content-type", content_type)
                    .header("authorization", format!("Bearer {token}"))
                    .header("content-length", body.len())
                    .body(Full::from(body.to_owned()))
                    .unwrap();
                if let Some(response) = self.engine.handle_http(request).await {
                    let status = response.status();
                    let body = response.into_body().collect().await.unwrap().to_bytes();
                    return (status, serde_json::from_slice(&body).unwrap());
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}

#[tokio::test]
async fn the_api_of_delegation_is_served_through_the_engine() {
    let api = EngineWithApi::start().await;
    let cards = api.request(TOKEN, "GET", "/api/a2a/cards", "text/plain", "").await;
    assert_eq!(cards, (StatusCode::OK, json!([])));
    let (status, missing) = api.request(TOKEN, "GET", "/api/a2a/task?taskId=a%20b", "text/plain", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(missing["error"]["message"], "Task not found: a b");
    for content_type in ["application/json", "application/x-www-form-urlencoded"] {
        let body = r#"{"url": "http://10.0.0.1"}"#;
        let (status, blocked) = api.request(TOKEN, "POST", "/api/a2a/discover", content_type, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(blocked["error"]["code"], "blocked", "{content_type}");
    }
    let (status, _) = api.request("wrong", "GET", "/api/a2a/cards", "text/plain", "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}
