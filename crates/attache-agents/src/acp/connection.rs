//! JSON-RPC over the standard input and output of a program, one message per line.
//!
//! Messages of the program are handled in the order in which they arrive, by one task. What is sent goes through a queue, so that a
//! caller that stops waiting never leaves half a line behind.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::wire::{Incoming, RpcError, code};

/// How many bytes may wait until the program reads them.
const MAX_QUEUED: usize = 64 * 1024 * 1024;

/// How many lines in a row may not be messages. Then the program is not a coding agent.
const MAX_GARBAGE: usize = 1_000;

/// How many lines that are no messages go to the log.
const MAX_WARNINGS: usize = 20;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The program responded with an error.
    #[error("{0}")]
    Rpc(#[from] RpcError),
    /// The connection is closed.
    #[error("the connection to the coding agent is closed")]
    Closed,
    /// The response is not what the protocol says.
    #[error("the response is invalid: {0}")]
    Invalid(#[from] serde_json::Error),
}

/// Handles what the program sends by itself. Must not block.
pub(super) trait Handler: Send + Sync + 'static {
    /// Handles a notification. `size` is the length of its line.
    fn notification(&self, method: &str, params: &RawValue, size: usize);

    /// Handles a request. `size` is the length of its line.
    fn request(&self, method: &str, params: &RawValue, size: usize, responder: Responder);
}

/// A way to send to the program. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connection(Arc<Inner>);

struct Inner {
    lines: mpsc::UnboundedSender<Vec<u8>>,
    queued: AtomicUsize,
    next: AtomicU64,
    /// The calls without a response. `None` when the connection is closed.
    pending: Mutex<Option<HashMap<u64, oneshot::Sender<Response>>>>,
    closed: CancellationToken,
    /// Why the connection was closed, if the program broke a rule.
    fault: OnceLock<String>,
}

type Response = Result<Box<RawValue>, RpcError>;

#[derive(Serialize)]
struct Outgoing<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
}

impl<T> Default for Outgoing<'_, T> {
    fn default() -> Self {
        Self { jsonrpc: "2.0", id: None, method: None, params: None, result: None, error: None }
    }
}

impl Connection {
    /// Reads and writes messages until the program closes its output or breaks a rule.
    pub(super) fn open(
        input: impl AsyncWrite + Unpin + Send + 'static,
        output: impl AsyncBufRead + Unpin + Send + 'static,
        max_line: usize,
        handler: Arc<impl Handler>,
    ) -> Self {
        let (lines, queue) = mpsc::unbounded_channel();
        let connection = Self(Arc::new(Inner {
            lines,
            queued: AtomicUsize::new(0),
            next: AtomicU64::new(1),
            pending: Mutex::new(Some(HashMap::new())),
            closed: CancellationToken::new(),
            fault: OnceLock::new(),
        }));
        tokio::spawn(write(input, queue, connection.clone()));
        let reading = connection.clone();
        tokio::spawn(async move {
            let closed = reading.0.closed.clone();
            tokio::select! {
                read = read(output, max_line, &reading, &*handler) => {
                    if let Err(error) = read {
                        reading.close_for(error.to_string());
                    }
                }
                () = closed.cancelled() => {}
            }
            reading.close();
        });
        connection
    }

    /// Sends a request. The response can be awaited later, or not at all.
    pub(super) fn start<T: Serialize>(
        &self,
        method: &'static str,
        params: &T,
    ) -> Result<PendingCall, CallError> {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        match &mut *self.0.pending.lock() {
            Some(pending) => pending.insert(number, sender),
            None => return Err(CallError::Closed),
        };
        let call = PendingCall { number, receiver, connection: self.clone() };
        let id = Value::from(number);
        self.send(&Outgoing {
            id: Some(&id),
            method: Some(method),
            params: Some(params),
            ..Outgoing::default()
        })?;
        Ok(call)
    }

    /// Sends a request, and waits for the result.
    pub(super) async fn call<T: Serialize, R: DeserializeOwned>(
        &self,
        method: &'static str,
        params: &T,
    ) -> Result<R, CallError> {
        self.start(method, params)?.result().await
    }

    /// Sends a notification. A closed connection is no error: the program is gone.
    pub(super) fn notify<T: Serialize>(&self, method: &'static str, params: &T) {
        if let Err(error) =
            self.send(&Outgoing { method: Some(method), params: Some(params), ..Outgoing::default() })
        {
            tracing::debug!(target: "attache::acp", %error, method, "a notification was not sent");
        }
    }

    fn send<T: Serialize>(&self, message: &Outgoing<'_, T>) -> Result<(), CallError> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let size = line.len();
        if self.0.queued.fetch_add(size, Ordering::Relaxed) + size > MAX_QUEUED {
            self.close_for("the program does not read its input".to_owned());
        }
        if self.0.closed.is_cancelled() {
            return Err(CallError::Closed);
        }
        self.0.lines.send(line).map_err(|_| CallError::Closed)
    }

    /// Closes the connection. Calls that wait fail.
    pub(super) fn close(&self) {
        self.0.closed.cancel();
        // Dropping the senders wakes the callers.
        drop(self.0.pending.lock().take());
    }

    fn close_for(&self, fault: String) {
        tracing::warn!(target: "attache::acp", fault, "the connection to a coding agent is closed");
        // The first fault is the cause of the others.
        let _ = self.0.fault.set(fault);
        self.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.closed.is_cancelled()
    }

    pub(super) async fn closed(&self) {
        self.0.closed.cancelled().await;
    }

    /// Waits until the connection is closed, without keeping it.
    pub(super) fn when_closed(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.closed.clone().cancelled_owned()
    }

    /// Which rule the program has broken, if the connection was closed for that.
    pub(super) fn fault(&self) -> Option<&str> {
        self.0.fault.get().map(String::as_str)
    }
}

/// A request without a response.
pub(super) struct PendingCall {
    number: u64,
    receiver: oneshot::Receiver<Response>,
    connection: Connection,
}

impl PendingCall {
    /// Waits for the result. It can be awaited again if the future is dropped.
    pub(super) async fn result<R: DeserializeOwned>(&mut self) -> Result<R, CallError> {
        let result = (&mut self.receiver).await.map_err(|_| CallError::Closed)??;
        Ok(serde_json::from_str(result.get())?)
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if let Some(pending) = &mut *self.connection.0.pending.lock() {
            pending.remove(&self.number);
        }
    }
}

/// Responds to a request of the program, once.
pub(super) struct Responder {
    id: Value,
    connection: Connection,
}

impl Responder {
    pub(super) fn respond<T: Serialize>(self, result: Result<T, RpcError>) {
        let id = Some(&self.id);
        let sent = match &result {
            Ok(result) => self.connection.send(&Outgoing { id, result: Some(result), ..Outgoing::default() }),
            Err(error) => {
                self.connection.send(&Outgoing::<()> { id, error: Some(error), ..Outgoing::default() })
            }
        };
        if let Err(error) = sent {
            tracing::debug!(target: "attache::acp", %error, "a response was not sent");
        }
    }
}

async fn write(
    mut input: impl AsyncWrite + Unpin,
    mut queue: mpsc::UnboundedReceiver<Vec<u8>>,
    connection: Connection,
) {
    let closed = connection.0.closed.clone();
    let writing = async {
        while let Some(line) = queue.recv().await {
            if input.write_all(&line).await.is_err() || input.flush().await.is_err() {
                // The program has closed its input. What it still writes is read.
                break;
            }
            connection.0.queued.fetch_sub(line.len(), Ordering::Relaxed);
        }
    };
    tokio::select! {
        () = writing => {}
        () = closed.cancelled() => {}
    }
}

/// Reads messages until the program closes its output.
async fn read(
    mut output: impl AsyncBufRead + Unpin,
    max_line: usize,
    connection: &Connection,
    handler: &impl Handler,
) -> io::Result<()> {
    let mut line = Vec::new();
    let (mut warnings, mut garbage) = (0, 0);
    loop {
        let chunk = output.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(());
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(chunk.len(), |end| end + 1);
        if line.len() + count > max_line {
            return Err(io::Error::other(format!(
                "the coding agent wrote a line of more than {max_line} bytes"
            )));
        }
        line.extend_from_slice(&chunk[..count]);
        output.consume(count);
        if end.is_none() {
            continue;
        }
        let text = line.trim_ascii();
        if !text.is_empty() {
            match serde_json::from_slice::<Incoming>(text) {
                Ok(message) => {
                    garbage = 0;
                    dispatch(message, text.len(), connection, handler);
                }
                Err(_) if garbage + 1 >= MAX_GARBAGE => {
                    let text =
                        format!("the coding agent wrote {MAX_GARBAGE} lines in a row that are no messages");
                    return Err(io::Error::other(text));
                }
                // Package managers print notices to the standard output. They must not end a conversation.
                Err(error) if warnings < MAX_WARNINGS => {
                    (warnings, garbage) = (warnings + 1, garbage + 1);
                    let shown: String = String::from_utf8_lossy(text).chars().take(200).collect();
                    tracing::warn!(target: "attache::acp", %error, line = shown, "a coding agent wrote a line that is no message");
                }
                Err(_) => garbage += 1,
            }
        }
        line.clear();
        // A long line must not occupy memory for ever.
        line.shrink_to(64 * 1024);
    }
}

fn dispatch(message: Incoming, size: usize, connection: &Connection, handler: &impl Handler) {
    let params = || message.params.as_deref().unwrap_or(RawValue::NULL);
    match (&message.method, message.id) {
        (Some(method), Some(id)) => {
            let responder = Responder { id, connection: connection.clone() };
            handler.request(method, params(), size, responder);
        }
        (Some(method), None) => handler.notification(method, params(), size),
        (None, Some(id)) => {
            let waiting = id.as_u64().and_then(|id| connection.0.pending.lock().as_mut()?.remove(&id));
            let response = match message.error {
                Some(error) => Err(error),
                None => Ok(message.result.unwrap_or_else(|| RawValue::NULL.to_owned())),
            };
            if let Some(waiting) = waiting {
                // The caller may have stopped waiting.
                let _ = waiting.send(response);
            }
        }
        (None, None) => {
            tracing::debug!(target: "attache::acp", code = code::INVALID_REQUEST, "a message without a method and an id");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, BufReader};

    use super::*;

    struct Nothing;

    impl Handler for Nothing {
        fn notification(&self, _: &str, _: &RawValue, _: usize) {}

        fn request(&self, _: &str, _: &RawValue, _: usize, responder: Responder) {
            responder.respond(Ok(json!({"fine": true})));
        }
    }

    fn open(max_line: usize) -> (Connection, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1024);
        let (output, input) = tokio::io::split(ours);
        (Connection::open(input, BufReader::new(output), max_line, Arc::new(Nothing)), theirs)
    }

    #[tokio::test]
    async fn a_response_finds_its_call_and_garbage_is_skipped() {
        let (connection, mut peer) = open(1000);
        let mut call = connection.start("hello", &json!({})).unwrap();
        peer.write_all(b"npm notice\n{\"id\":99,\"result\":1}\n{}\n{\"id\":1,\"result\":{\"a\":2}}\n")
            .await
            .unwrap();
        assert_eq!(call.result::<Value>().await.unwrap(), json!({"a": 2}));
        peer.write_all(b"{\"id\":\"x\",\"method\":\"do\"}\n").await.unwrap();
        let mut sent = [0; 40];
        peer.read_exact(&mut sent).await.unwrap();
        assert!(String::from_utf8_lossy(&sent).starts_with(r#"{"jsonrpc":"2.0","id":1,"method":"hello""#));
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_closes_the_connection() {
        let (connection, mut peer) = open(100);
        let mut call = connection.start("hello", &json!({})).unwrap();
        // The write fails once the other side has stopped reading.
        let _ = peer.write_all(&[b'x'; 500]).await;
        assert!(matches!(call.result::<Value>().await, Err(CallError::Closed)));
        assert_eq!(connection.fault(), Some("the coding agent wrote a line of more than 100 bytes"));
        assert!(matches!(connection.start("hello", &json!({})), Err(CallError::Closed)));
    }

    #[tokio::test]
    async fn a_flood_of_lines_that_are_no_messages_closes_the_connection() {
        let (connection, mut peer) = open(1000);
        let mut call = connection.start("hello", &json!({})).unwrap();
        let notices = "npm notice\n".repeat(MAX_GARBAGE - 1);
        peer.write_all(format!("{notices}{{\"id\":1,\"result\":1}}\n").as_bytes()).await.unwrap();
        assert_eq!(call.result::<u64>().await.unwrap(), 1);
        let mut call = connection.start("hello", &json!({})).unwrap();
        // The write fails once the other side has stopped reading.
        let _ = peer.write_all("npm notice\n".repeat(MAX_GARBAGE + 50).as_bytes()).await;
        assert!(matches!(call.result::<Value>().await, Err(CallError::Closed)));
        assert_eq!(
            connection.fault(),
            Some("the coding agent wrote 1000 lines in a row that are no messages")
        );
    }

    #[tokio::test]
    async fn calls_fail_when_the_program_closes_its_output() {
        let (connection, peer) = open(100);
        let mut call = connection.start("hello", &json!({})).unwrap();
        drop(peer);
        assert!(matches!(call.result::<Value>().await, Err(CallError::Closed)));
        assert_eq!(connection.fault(), None);
    }
}
