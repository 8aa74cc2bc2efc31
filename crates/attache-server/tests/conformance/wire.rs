//! A connection that carries JSON-RPC, and the one over HTTP.

use std::time::Duration;

use attache_core::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// How long the next frame of a response may take.
const MAX_WAIT: Duration = Duration::from_secs(60);

pub(super) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(MAX_WAIT, what).await.expect("it happens in time")
}

/// One frame of a response.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) payload: Value,
    pub(crate) last: bool,
}

impl Got {
    /// Whether it is the frame that ends a stream.
    pub(crate) fn is_end(&self) -> bool {
        self.last && self.payload.get("result").is_none() && self.payload.get("error").is_none()
    }
}

/// A connection. The member `headers` of a request is sent as the transport sends service parameters and credentials.
pub(crate) trait Wire: Send {
    fn send(&mut self, request: Value) -> BoxFuture<'_, ()>;
    /// The next frame of any response. `None` if the connection has ended.
    fn next(&mut self) -> BoxFuture<'_, Option<Got>>;
}

/// Sends a request and reads its response to the end.
pub(crate) async fn exchange(wire: &mut dyn Wire, request: Value) -> Vec<Value> {
    let mut frames = Vec::new();
    soon(wire.send(request)).await;
    loop {
        let got = soon(wire.next()).await.expect("the connection stays open");
        let last = got.last;
        if !got.is_end() {
            frames.push(got.payload);
        }
        if last {
            return frames;
        }
    }
}

/// A request without its headers, and the headers.
pub(crate) fn split_headers(mut request: Value) -> (String, Vec<(String, String)>) {
    let headers = request.as_object_mut().and_then(|members| members.remove("headers"));
    let headers = headers.and_then(|headers| headers.as_object().cloned()).unwrap_or_default();
    let headers =
        headers.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned())).collect();
    (request.to_string(), headers)
}

/// Requests that each have a connection or a call of their own.
pub(crate) struct Calls {
    pub(crate) sender: mpsc::UnboundedSender<Got>,
    pub(crate) receiver: mpsc::UnboundedReceiver<Got>,
}

impl Calls {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self { sender, receiver }
    }
}

/// A fault of the transport, as the frame that others would have.
pub(crate) fn denied() -> Got {
    Got { payload: json!({"error": {"code": -32050}}), last: true }
}

/// Requests and server-sent events over HTTP.
pub(crate) struct HttpWire {
    url: String,
    client: reqwest::Client,
    calls: Calls,
}

impl HttpWire {
    pub(crate) fn new(client: reqwest::Client, url: String) -> Self {
        Self { url, client, calls: Calls::new() }
    }
}

impl Wire for HttpWire {
    fn send(&mut self, request: Value) -> BoxFuture<'_, ()> {
        let id = request["id"].clone();
        let (body, headers) = split_headers(request);
        let request = self.client.post(&self.url).header("Content-Type", "application/json").body(body);
        let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let frames = self.calls.sender.clone();
        tokio::spawn(async move {
            let mut response = request.send().await.unwrap();
            if response.status() == 401 {
                let _ = frames.send(denied());
                return;
            }
            if response.headers()["content-type"] != "text/event-stream" {
                let payload = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
                let _ = frames.send(Got { payload, last: true });
                return;
            }
            let mut text = Vec::new();
            while let Ok(Some(bytes)) = response.chunk().await {
                text.extend_from_slice(&bytes);
                while let Some(end) = text.windows(2).position(|two| two == b"\n\n") {
                    let event: Vec<u8> = text.drain(..end + 2).collect();
                    let event = String::from_utf8(event).unwrap();
                    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                    let mut payload: Value = serde_json::from_str(field("data: ").unwrap()).unwrap();
                    if let Some(number) = field("id: ") {
                        payload["eventId"] = json!(number.parse::<u64>().unwrap());
                    }
                    let _ = frames.send(Got { payload, last: false });
                }
            }
            let _ = frames.send(Got { payload: json!({"jsonrpc": "2.0", "id": id}), last: true });
        });
        Box::pin(async {})
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Got>> {
        Box::pin(self.calls.receiver.recv())
    }
}
