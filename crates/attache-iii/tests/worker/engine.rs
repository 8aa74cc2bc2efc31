//! An engine that does nothing by itself. The test sends and receives each frame.

#![expect(clippy::result_large_err, reason = "the callbacks of a handshake are as tungstenite has them")]

use std::net::SocketAddr;
use std::time::Duration;

use attache_iii::CallError;
use attache_iii::FunctionCall;
use attache_iii::wire::RegisterFunction;
use attache_iii::worker::{Worker, WorkerOptions};
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, StatusCode};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// How long a test waits for something that must happen.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// Waits for something that must happen.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(TIMEOUT, what).await.expect("it happens in time")
}

/// A port that workers connect to.
pub(crate) struct Engine {
    listener: TcpListener,
}

impl Engine {
    pub(crate) async fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    /// Listens at an address that a worker knows already.
    pub(crate) async fn at(address: SocketAddr) -> Self {
        Self { listener: TcpListener::bind(address).await.unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.listener.local_addr().unwrap())
    }

    /// Settings with long intervals, so that only the test causes events.
    pub(crate) fn options(&self) -> WorkerOptions {
        WorkerOptions::new(self.url()).with(|options| {
            options.name = "tester".to_owned();
            options.reconnect_min = Duration::from_millis(5);
            options.reconnect_max = Duration::from_millis(20);
            options.poll_interval = LONG;
        })
    }

    pub(crate) fn worker(&self) -> Worker {
        Worker::connect(self.options()).unwrap()
    }

    /// Accepts a connection and sends nothing.
    pub(crate) async fn accept(&self) -> Peer {
        soon(async {
            let (stream, _) = self.listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut path, mut headers) = (String::new(), HeaderMap::new());
            let note = |request: &Request, response: Response| {
                path = request.uri().to_string();
                headers = request.headers().clone();
                Ok::<_, ErrorResponse>(response)
            };
            // The limits of real engines: large messages, in frames of up to 16 MiB.
            let config = WebSocketConfig::default();
            let socket =
                tokio_tungstenite::accept_hdr_async_with_config(stream, note, Some(config)).await.unwrap();
            Peer { socket, path, headers }
        })
        .await
    }

    /// Rejects the upgrade of a connection.
    pub(crate) async fn refuse(&self, status: StatusCode) {
        let (stream, _) = soon(self.listener.accept()).await.unwrap();
        let refuse = |_: &Request, _: Response| {
            let mut response = ErrorResponse::new(None);
            *response.status_mut() = status;
            Err(response)
        };
        let refused = soon(tokio_tungstenite::accept_hdr_async(stream, refuse)).await;
        assert!(refused.is_err());
    }

    pub(crate) async fn accept_stream(&self) -> TcpStream {
        soon(self.listener.accept()).await.unwrap().0
    }

    /// Accepts a worker and registers it with an id.
    pub(crate) async fn greet(&self, id: &str) -> Peer {
        let mut peer = self.accept().await;
        peer.say(
            json!({"type": "workerregistered", "worker_id": id, "reattach_token": format!("{id}-token")}),
        )
        .await;
        peer
    }

    /// Accepts a worker, and reads its registrations.
    pub(crate) async fn join(&self) -> Peer {
        let mut peer = self.greet("w-1").await;
        peer.introduction().await;
        peer
    }

    /// A connected worker, with its engine.
    pub(crate) async fn with_worker() -> (Self, Peer, Worker) {
        let engine = Self::start().await;
        let worker = engine.worker();
        let peer = engine.join().await;
        soon(worker.connected()).await;
        (engine, peer, worker)
    }
}

/// The engine's end of a connection.
pub(crate) struct Peer {
    socket: WebSocketStream<TcpStream>,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
}

impl Peer {
    pub(crate) async fn say(&mut self, message: Value) {
        self.frame(Frame::text(message.to_string())).await;
    }

    pub(crate) async fn frame(&mut self, frame: Frame) {
        soon(self.socket.send(frame)).await.unwrap();
    }

    /// The next frame that is not a ping or a pong. `None` at the end of the connection.
    pub(crate) async fn next_frame(&mut self) -> Option<Frame> {
        loop {
            match soon(self.socket.next()).await? {
                Ok(Frame::Ping(_) | Frame::Pong(_)) => {}
                Ok(frame) => return Some(frame),
                Err(_) => return None,
            }
        }
    }

    /// The next message.
    pub(crate) async fn hear(&mut self) -> Value {
        let frame = self.next_frame().await.expect("the worker says something");
        serde_json::from_str(frame.to_text().unwrap()).unwrap()
    }

    /// Waits for a WebSocket ping.
    pub(crate) async fn pinged(&mut self) {
        while !soon(self.socket.next()).await.unwrap().unwrap().is_ping() {}
    }

    /// Waits for the end of the connection.
    pub(crate) async fn end(&mut self) {
        loop {
            match self.next_frame().await {
                None | Some(Frame::Close(_)) => return,
                Some(_) => {}
            }
        }
    }

    /// All messages up to the metadata of the worker.
    pub(crate) async fn introduction(&mut self) -> Vec<Value> {
        let mut said = Vec::new();
        loop {
            let message = self.hear().await;
            let last = message["function_id"] == "engine::workers::register";
            said.push(message);
            if last {
                return said;
            }
        }
    }

    /// The next call of a function. Other messages are skipped.
    pub(crate) async fn call(&mut self, function: &str) -> Value {
        loop {
            let message = self.hear().await;
            if message["type"] == "invokefunction" && message["function_id"] == function {
                return message;
            }
        }
    }

    /// The next message of a type. Other messages are skipped.
    pub(crate) async fn message(&mut self, kind: &str) -> Value {
        loop {
            let message = self.hear().await;
            if message["type"] == kind {
                return message;
            }
        }
    }

    pub(crate) async fn answer(&mut self, call: &Value, result: Value) {
        let (id, function) = (&call["invocation_id"], &call["function_id"]);
        self.say(
            json!({"type": "invocationresult", "invocation_id": id, "function_id": function, "result": result}),
        )
        .await;
    }

    pub(crate) async fn fail(&mut self, call: &Value, code: &str, message: &str) {
        let (id, function) = (&call["invocation_id"], &call["function_id"]);
        let error = json!({"code": code, "message": message});
        self.say(
            json!({"type": "invocationresult", "invocation_id": id, "function_id": function, "error": error}),
        )
        .await;
    }

    /// Calls a function of the worker. The number becomes the invocation id.
    pub(crate) async fn invoke(&mut self, number: u128, function: &str, data: Value) {
        let id = uuid::Uuid::from_u128(number);
        self.say(
            json!({"type": "invokefunction", "invocation_id": id, "function_id": function, "data": data}),
        )
        .await;
    }

    /// The next result of the worker, with the number of its call.
    pub(crate) async fn result(&mut self) -> (u128, Value) {
        let result = self.message("invocationresult").await;
        let id: uuid::Uuid = result["invocation_id"].as_str().unwrap().parse().unwrap();
        (id.as_u128(), result)
    }
}

/// A function with only an id.
pub(crate) fn function(id: &str) -> RegisterFunction {
    RegisterFunction { id: id.to_owned(), ..RegisterFunction::default() }
}

/// Calls a function with a long timeout.
pub(crate) async fn call(worker: &Worker, function: &str, payload: Value) -> Result<Value, CallError> {
    call_within(worker, function, payload, LONG).await
}

pub(crate) async fn call_within(
    worker: &Worker,
    function: &str,
    payload: Value,
    timeout: Duration,
) -> Result<Value, CallError> {
    let payload = raw(&payload);
    let result =
        soon(worker.call(FunctionCall { function, payload: &payload, timeout, trace_parent: None })).await?;
    Ok(serde_json::from_str(result.get()).unwrap())
}

pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

/// A JSON string of this many bytes.
pub(crate) fn text(bytes: usize) -> Box<RawValue> {
    RawValue::from_string(format!("\"{}\"", "x".repeat(bytes))).unwrap()
}
