//! A remote agent that is written by hand, to see and to say everything on the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_client::Client;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::support::*;

/// A request that the remote got.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Request {
    fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// A remote that is written by hand.
pub(crate) struct Remote {
    pub(crate) url: String,
    requests: mpsc::UnboundedReceiver<Request>,
    _serving: AbortOnDropHandle<()>,
}

impl Remote {
    /// Answers each request with what `answer` returns for its method and its number, counted from 0.
    pub(crate) async fn start<F>(streaming: bool, answer: F) -> Self
    where
        F: Fn(&str, usize, Value) -> Response + Send + Sync + 'static,
    {
        let more = move |url: &str| {
            json!({
                "capabilities": {"streaming": streaming},
                "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            })
        };
        Self::start_with(more, answer).await
    }

    /// The same, with members of the card that depend on the URL of the endpoint.
    pub(crate) async fn start_with<F>(more: impl FnOnce(&str) -> Value, answer: F) -> Self
    where
        F: Fn(&str, usize, Value) -> Response + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut card = json!({
            "name": "Hostile", "description": "", "version": "1", "skills": [],
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        });
        let more = more(&format!("{url}/a2a"));
        card.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (sender, requests) = mpsc::unbounded_channel();
        let answer = Arc::new(answer);
        let count = Arc::new(AtomicUsize::new(0));
        let handler = post(async move |headers: HeaderMap, body: Bytes| {
            let body: Value = serde_json::from_slice(&body).unwrap();
            let number = count.fetch_add(1, Ordering::SeqCst);
            let (method, id) = (body["method"].as_str().unwrap_or_default().to_owned(), body["id"].clone());
            sender.send(Request { headers, body }).unwrap();
            answer(&method, number, id)
        });
        let app = Router::new()
            .route("/.well-known/agent-card.json", get(async move || axum::Json(card)))
            .route("/a2a", handler);
        let serving = tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
        Self { url, requests, _serving: AbortOnDropHandle::new(serving) }
    }

    pub(crate) async fn request(&mut self) -> Request {
        in_time(self.requests.recv()).await.unwrap()
    }

    /// Waits for a request with this method.
    pub(crate) async fn request_of(&mut self, method: &str) -> Request {
        loop {
            let request = self.request().await;
            if request.method() == method {
                return request;
            }
        }
    }
}

pub(crate) fn result(id: &Value, result: Value) -> Response {
    axum::Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

/// A stream of these results. It stays open if `open`.
pub(crate) fn events(id: &Value, results: Vec<Value>, open: bool) -> Response {
    let id = id.clone();
    let event = move |result: Value| {
        Ok::<_, std::io::Error>(Bytes::from(format!(
            "data: {}\n\n",
            json!({"jsonrpc": "2.0", "id": id, "result": result})
        )))
    };
    let rest = futures::stream::once(async move {
        if open {
            std::future::pending::<()>().await;
        }
        Ok(Bytes::new())
    });
    let body = Body::from_stream(futures::stream::iter(results).map(event).chain(rest));
    ([("content-type", "text/event-stream")], body).into_response()
}

pub(crate) fn task(state: &str) -> Value {
    json!({"task": {"id": "t1", "contextId": "c1", "status": {"state": state}}})
}

pub(crate) fn status(state: &str) -> Value {
    json!({"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {"state": state}}})
}

pub(crate) fn piece(text: &str, append: bool) -> Value {
    json!({"artifactUpdate": {"taskId": "t1", "contextId": "c1", "append": append,
        "artifact": {"artifactId": "a", "name": "answer", "parts": [{"text": text}]}}})
}

pub(crate) async fn client_of(remote: &Remote, max_bytes: usize) -> (TestServer, Client) {
    let options = quick_options(&remote.url, new_store()).with(|options| options.max_bytes = max_bytes);
    let gateway = start_gateway(options).await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    (gateway, client)
}

pub(crate) const MIB: usize = 1024 * 1024;
