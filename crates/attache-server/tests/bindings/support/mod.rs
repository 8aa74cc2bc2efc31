//! A server on a port of its own, and a client for each of its bindings.

mod agents;
mod ask;
pub(crate) mod desk;
mod ear;
mod flaky;
mod grpc;
pub(crate) mod issuer;
pub(crate) mod pki;
mod raw;
mod sse;
pub(crate) mod v0_3;
mod wire;

use std::net::SocketAddr;
use std::time::Duration;

use attache_core::Agent;
use attache_server::{Listening, Server};
use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use self::agents::{Act, Stage, stage};
pub(crate) use self::ask::{Ask, Binding, Refusal};
pub(crate) use self::ear::Ear;
pub(crate) use self::flaky::{BROKEN, Flaky};
pub(crate) use self::grpc::{Client, connect_tls};
pub(crate) use self::raw::Raw;
pub(crate) use self::sse::{Frame, Sse};
pub(crate) use self::wire::{canonical, message, send, text};
pub(crate) use crate::conformance::{Player, card, player, without_ids};

/// How long a test waits for what must happen, before it says that it did not.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Waits for what must happen.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(MAX_WAIT, what).await.expect("it happens in time")
}

/// A server that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) base: String,
    pub(crate) address: SocketAddr,
    pub(crate) http: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<std::io::Result<()>>,
}

/// Puts a server on a free port.
pub(crate) async fn serve<A: Agent>(server: Server<A>) -> Running {
    let listening = server.bind("127.0.0.1:0").listen().await.unwrap();
    let base = format!("http://{}", listening.address().unwrap());
    run(listening, base, client())
}

/// Puts a server that speaks TLS on a free port of `localhost`, with a client that trusts it.
pub(crate) async fn serve_tls<A: Agent>(server: Server<A>, http: reqwest::Client) -> Running {
    let listening = server.bind("127.0.0.1:0").listen().await.unwrap();
    let base = format!("https://localhost:{}", listening.address().unwrap().port());
    run(listening, base, http)
}

fn run(listening: Listening, base: String, http: reqwest::Client) -> Running {
    let address = listening.address().unwrap();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(listening.run_until(async {
        // Stopped or dropped: the end either way.
        let _ = stopped.await;
    }));
    Running { base, address, http, stop: Some(stop), served }
}

/// Puts an application on a free port.
pub(crate) async fn adopt(app: axum::Router) -> Running {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn(async move { axum::serve(listener, app).await });
    Running { base: format!("http://{address}"), address, http: client(), stop: None, served }
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// A client that speaks HTTP/2 from its first byte.
pub(crate) fn over_http2() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap()
}

/// A running server with the scripted agent.
pub(crate) async fn playing() -> Running {
    serve(player()).await
}

impl Running {
    /// A request with nothing but a method and a path.
    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base))
    }

    /// A request that speaks 1.0.
    pub(crate) fn http(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).header("A2A-Version", "1.0")
    }

    /// Asks for an operation, over whichever binding.
    pub(crate) fn ask(&self, operation: &str, params: Value) -> Ask {
        Ask::new(self, operation, params)
    }

    /// Calls a JSON-RPC method with the id 1. The whole response comes back.
    pub(crate) async fn rpc(&self, method: &str, params: Value) -> Value {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        self.post(body.to_string()).await.json()
    }

    /// Posts a body to the JSON-RPC endpoint.
    pub(crate) async fn post(&self, body: impl Into<reqwest::Body>) -> Reply {
        let request = self.http(Method::POST, "/a2a").header("Content-Type", "application/json");
        fetch(request.body(body)).await
    }

    /// Makes an HTTP+JSON request; the path is what follows the binding's own.
    pub(crate) async fn rest(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        let method = method.parse().unwrap();
        let request = self.http(method, &format!("/v1{path}"));
        fetch(match body {
            Some(body) => request.header("Content-Type", "application/a2a+json").body(body.to_string()),
            None => request,
        })
        .await
    }

    /// Opens a stream over JSON-RPC, with the id 1.
    pub(crate) async fn sse(&self, method: &str, params: Value) -> Sse {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        Sse::open(
            self.http(Method::POST, "/a2a").header("Content-Type", "application/json").body(body.to_string()),
        )
        .await
    }

    /// Opens a stream over HTTP+JSON.
    pub(crate) async fn rest_sse(&self, method: &str, path: &str, body: Option<Value>) -> Sse {
        let request = self.http(method.parse().unwrap(), &format!("/v1{path}"));
        Sse::open(match body {
            Some(body) => request.header("Content-Type", "application/json").body(body.to_string()),
            None => request,
        })
        .await
    }

    /// A gRPC client, of the published SDK's types.
    pub(crate) async fn grpc(&self) -> Client {
        grpc::connect(&self.base).await
    }

    /// Sends a text and gives back the task that it led to.
    pub(crate) async fn task(&self, text: &str) -> Value {
        self.sent(send(text)).await["task"].clone()
    }

    /// Sends what `params` say and gives back the result.
    pub(crate) async fn sent(&self, params: Value) -> Value {
        let response = self.rpc("SendMessage", params).await;
        assert!(response.get("error").is_none(), "{response}");
        response["result"].clone()
    }

    /// The task as it is now.
    pub(crate) async fn read(&self, id: &Value) -> Value {
        self.rpc("GetTask", json!({"id": id})).await["result"].clone()
    }

    /// Tells the server to stop.
    pub(crate) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.send(()).expect("it runs");
        }
    }

    /// Waits until the server has stopped.
    pub(crate) async fn stopped(self) {
        soon(self.served).await.unwrap().unwrap();
    }
}

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Makes a request and reads the response.
pub(crate) async fn fetch(request: RequestBuilder) -> Reply {
    let response = soon(request.send()).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    Reply { status, headers, body: soon(response.bytes()).await.unwrap() }
}

impl Reply {
    /// The body, which is JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// A header, empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The code of the JSON-RPC error that it is.
    pub(crate) fn code(&self) -> i64 {
        let json = self.json();
        json["error"]["code"].as_i64().unwrap_or_else(|| panic!("not an error: {json}"))
    }
}
