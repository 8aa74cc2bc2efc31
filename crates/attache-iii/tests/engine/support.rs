//! An engine on its own port, and workers that exchange raw frames with it.

use std::sync::Arc;
use std::time::Duration;

use attache_core::MemoryStore;
use attache_iii::engine::{Engine, EngineOptions};
use attache_iii::{CallError, FunctionCall, Functions};
use futures::{SinkExt, StreamExt};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use uuid::Uuid;

/// How long to wait for something that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Setup {
    pub(crate) engine: Engine,
    pub(crate) address: String,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// An engine with the default options.
pub(crate) async fn engine() -> Setup {
    engine_with(|_| {}).await
}

pub(crate) async fn engine_with(set: impl FnOnce(&mut EngineOptions)) -> Setup {
    let mut options = EngineOptions::default().with(|options| options.listen = "127.0.0.1:0".into());
    set(&mut options);
    let engine = Engine::new(Arc::new(MemoryStore::default()), options);
    let listening = engine.listen().await.unwrap();
    let address = listening.address().to_string();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(listening.run_until(async move {
        let _ = stopped.await;
    }));
    Setup { engine, address, stop, running }
}

impl Setup {
    /// A connected worker.
    pub(crate) async fn worker(&self) -> Worker {
        let (mut worker, welcome) = self.join().await;
        assert_eq!(welcome["type"], "workerregistered");
        worker.id = welcome["worker_id"].as_str().unwrap().to_owned();
        worker
    }

    /// A connected worker, and the first message of the engine.
    pub(crate) async fn join(&self) -> (Worker, Value) {
        let mut worker = Worker { socket: self.socket("/").await, id: String::new() };
        let welcome = worker.next().await;
        (worker, welcome)
    }

    pub(crate) async fn socket(&self, path: &str) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
        let url = format!("ws://{}{path}", self.address);
        let without_delay = true;
        // Accepts frames of 16 MiB and messages of 64 MiB, like most SDKs.
        tokio_tungstenite::connect_async_with_config(url, None, without_delay).await.unwrap().0
    }

    /// A worker whose functions are registered.
    pub(crate) async fn worker_with(&self, functions: &[&str]) -> Worker {
        let mut worker = self.worker().await;
        for id in functions {
            worker.send(json!({ "type": "registerfunction", "id": id })).await;
        }
        worker.settle().await;
        worker
    }

    /// Calls a function from this process.
    pub(crate) async fn call(&self, function: &str, payload: Value) -> Result<Value, CallError> {
        call(&self.engine, function, payload, SOON).await
    }

    /// Stops the engine and waits for it.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.running.await.unwrap();
    }
}

pub(crate) async fn call(
    engine: &Engine,
    function: &str,
    payload: Value,
    timeout: Duration,
) -> Result<Value, CallError> {
    let payload = to_raw_value(&payload).unwrap();
    let call = FunctionCall { function, payload: &payload, timeout, trace_parent: None };
    engine.call(call).await.map(|result: Box<RawValue>| serde_json::from_str(result.get()).unwrap())
}

pub(crate) struct Worker {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub(crate) id: String,
}

impl Worker {
    pub(crate) async fn send(&mut self, frame: Value) {
        self.send_text(&frame.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, frame: &str) {
        self.socket.send(Message::text(frame)).await.unwrap();
    }

    /// The next frame. `None` if the connection has ended.
    pub(crate) async fn next_if_any(&mut self) -> Option<Value> {
        loop {
            let message = tokio::time::timeout(SOON, self.socket.next()).await.expect("a frame");
            match message {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
                Some(Ok(other)) => assert!(other.is_ping() || other.is_pong()),
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Value {
        self.next_if_any().await.expect("the connection stays")
    }

    /// Waits until the engine has processed all frames that were sent.
    pub(crate) async fn settle(&mut self) {
        self.send(json!({ "type": "ping" })).await;
        assert_eq!(self.next().await, json!({ "type": "pong" }));
    }

    /// Calls a function without waiting for the result.
    pub(crate) async fn invoke(&mut self, id: Uuid, function: &str, data: Value) {
        let call =
            json!({ "type": "invokefunction", "invocation_id": id, "function_id": function, "data": data });
        self.send(call).await;
    }

    /// Calls a function of another worker, and waits for the result frame.
    pub(crate) async fn call(&mut self, function: &str, data: Value) -> Value {
        let id = Uuid::new_v4();
        self.invoke(id, function, data).await;
        let result = self.next().await;
        assert_eq!((&result["type"], &result["invocation_id"]), (&json!("invocationresult"), &json!(id)));
        result
    }

    /// The result of a call.
    pub(crate) async fn result(&mut self, function: &str, data: Value) -> Value {
        let mut result = self.call(function, data).await;
        assert_eq!(result.get("error"), None, "{result}");
        result["result"].take()
    }

    /// The error code of a call.
    pub(crate) async fn error(&mut self, function: &str, data: Value) -> String {
        let result = self.call(function, data).await;
        result["error"]["code"].as_str().unwrap_or_else(|| panic!("an error: {result}")).to_owned()
    }

    /// The next call for this worker.
    pub(crate) async fn work(&mut self) -> Value {
        let call = self.next().await;
        assert_eq!(call["type"], "invokefunction", "{call}");
        call
    }

    /// Sends the result of a call.
    pub(crate) async fn answer(&mut self, call: &Value, result: Value) {
        let (id, function) = (&call["invocation_id"], &call["function_id"]);
        let answer = json!({ "type": "invocationresult", "invocation_id": id, "function_id": function, "result": result });
        self.send(answer).await;
    }

    /// Answers all calls with `answer` until the connection ends.
    pub(crate) fn run(mut self, answer: impl Fn(&Value) -> Value + Send + 'static) -> JoinHandle<()> {
        tokio::spawn(async move {
            while let Some(frame) = self.next_if_any().await {
                if frame["type"] == "invokefunction" {
                    let result = answer(&frame);
                    self.answer(&frame, result).await;
                }
            }
        })
    }
}
