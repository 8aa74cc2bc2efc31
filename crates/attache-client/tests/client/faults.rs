//! Peers that fail in the middle of something, over WebSocket, the gRPC envelope, and the output of a command: the client reports it within
//! its time limits, and the next request works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use attache_client::{Client, ClientError, ClientOptions, CommandErrors, Commands, Outgoing, Reply};
use attache_grpc::envelope::JsonRpcEnvelope;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::{SinkExt, StreamExt, stream};
use http_body_util::BodyExt;
use prost::Message as _;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::support::{quick, soon};

/// What a peer does with the first message that is sent to it. All others are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It writes a part of a frame, and then nothing.
    HalfAFrame,
    /// It writes a frame that is larger than the client accepts.
    TooLarge,
    /// It answers, and ends.
    Ends,
    /// It reads nothing any more.
    StopsReading,
}

/// The largest frame that the clients of these tests accept.
const LIMIT: usize = 50_000;

/// A message that fits into no buffer between client and peer.
const LARGE: usize = 16 * 1024 * 1024;

fn options() -> ClientOptions {
    let options = quick().max_body(LIMIT).max_event(LIMIT).idle_timeout(Duration::from_millis(500));
    options.commands(Commands::Allowed(CommandErrors::Log))
}

/// A peer, and whether it has failed already.
#[derive(Clone)]
struct Peer {
    fault: Fault,
    has_failed: Arc<AtomicBool>,
}

impl Peer {
    fn new(fault: Fault) -> Self {
        Self { fault, has_failed: Arc::default() }
    }

    /// The fault to commit, if this request is for that.
    fn fails(&self, request: &Value) -> Option<Fault> {
        let is_due = request["method"] == "SendMessage" && !self.has_failed.swap(true, Ordering::SeqCst);
        is_due.then_some(self.fault)
    }

    /// Whether a peer that stops reading does so after this request: the last one before the first message.
    fn stops(&self, request: &Value) -> bool {
        let is_last = request["method"] == "GetExtendedAgentCard";
        self.fault == Fault::StopsReading && is_last && !self.has_failed.swap(true, Ordering::SeqCst)
    }
}

/// The answer of a peer that has no card.
fn answer(request: &Value) -> Value {
    let task = json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}});
    let error =
        |code: i32| json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": "no"}});
    match request["method"].as_str() {
        Some("SendMessage") => json!({"jsonrpc": "2.0", "id": request["id"], "result": task}),
        Some("GetExtendedAgentCard") => error(-32007),
        _ => error(-32601),
    }
}

/// A peer over WebSocket. Returns its address.
async fn websocket(fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = Peer::new(fault);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(over_websocket(socket, peer.clone()));
        }
    });
    format!("ws://{address}/ws")
}

async fn over_websocket(mut socket: TcpStream, peer: Peer) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    let Some((_, key)) = fields.find(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-key")) else {
        let _ = socket.write_all(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        return None;
    };
    let accept = derive_accept_key(key.as_bytes());
    let head = format!(
        "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.ok()?;
    let mut socket = WebSocketStream::from_raw_socket(socket, Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let request: Value = serde_json::from_str(&text).unwrap();
        let envelope = json!({"id": request["id"], "payload": answer(&request), "final": true}).to_string();
        match peer.fails(&request) {
            Some(Fault::HalfAFrame) => {
                // A text frame of 4,096 bytes, of which a few follow.
                socket.get_mut().write_all(b"\x81\x7e\x10\x00{\"id\":").await.ok()?;
                return std::future::pending().await;
            }
            Some(Fault::TooLarge) => {
                socket.send(Message::text("x".repeat(4 * LIMIT))).await.ok()?;
            }
            Some(Fault::Ends) => {
                socket.send(Message::text(envelope)).await.ok()?;
                return None;
            }
            Some(Fault::StopsReading) | None => socket.send(Message::text(envelope)).await.ok()?,
        }
        if peer.stops(&request) {
            return std::future::pending().await;
        }
    }
    None
}

/// A peer over the gRPC envelope. Returns its address.
async fn envelope(fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let peer = Peer::new(fault);
    let app = axum::Router::new().fallback(move |request: Request| over_envelope(request, peer.clone()));
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("grpc-jsonrpc://{address}")
}

async fn over_envelope(request: Request, peer: Peer) -> Response {
    let (head, body) = request.into_parts();
    if head.method == Method::GET {
        return StatusCode::NOT_FOUND.into_response();
    }
    if peer.fault == Fault::StopsReading && peer.has_failed.load(Ordering::SeqCst) {
        return std::future::pending().await;
    }
    let body = body.collect().await.unwrap().to_bytes();
    let request = JsonRpcEnvelope::decode(&body[5..]).unwrap();
    let request: Value = serde_json::from_slice(&request.payload).unwrap();
    peer.stops(&request);
    let framed = |payload: String| {
        let message = JsonRpcEnvelope { payload: payload.into(), r#final: true }.encode_to_vec();
        let mut frame = vec![0];
        frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(&message);
        frame
    };
    let whole = framed(answer(&request).to_string());
    let body = match peer.fails(&request) {
        Some(Fault::HalfAFrame) => {
            let half = Bytes::copy_from_slice(&whole[..whole.len() / 2]);
            let half = stream::iter([Ok::<_, std::io::Error>(half)]).chain(stream::pending());
            return response(Body::from_stream(half));
        }
        Some(Fault::TooLarge) => framed("x".repeat(4 * LIMIT)),
        Some(Fault::Ends) => {
            // The connection breaks after the message, before the call has a status.
            let broken = stream::iter([Ok(Bytes::from(whole)), Err(std::io::Error::other("killed"))]);
            return response(Body::from_stream(broken));
        }
        Some(Fault::StopsReading) | None => whole,
    };
    let frames = [
        Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(body))),
        Ok(http_body::Frame::trailers(
            [("grpc-status".parse().unwrap(), "0".parse().unwrap())].into_iter().collect(),
        )),
    ];
    response(Body::new(http_body_util::StreamBody::new(stream::iter(frames))))
}

fn response(body: Body) -> Response {
    Response::builder().header("content-type", "application/grpc+proto").body(body).unwrap()
}

/// A peer that is a command. Returns its address, and the folder of the file by which it knows that it has failed.
fn command(fault: Fault) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let failing = match fault {
        Fault::HalfAFrame => r#"printf "{\"jsonrpc\""; sleep 1000"#.to_owned(),
        Fault::TooLarge => format!("head -c {} /dev/zero | tr '\\0' x; echo", 4 * LIMIT),
        Fault::Ends => r#"echo "$task"; kill -9 $$"#.to_owned(),
        Fault::StopsReading => r#"echo "$task""#.to_owned(),
    };
    let stopping = match fault {
        Fault::StopsReading => r#"if [ ! -e "$0" ]; then touch "$0"; sleep 1000; fi"#,
        Fault::HalfAFrame | Fault::TooLarge | Fault::Ends => ":",
    };
    let script = format!(
        r#"while read -r line; do
id=$(echo "$line" | head -c 1000 | sed "s/.*\"id\":\([0-9]*\).*/\1/")
task="{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"task\":{{\"id\":\"t\",\"contextId\":\"c\",\"status\":{{\"state\":\"TASK_STATE_COMPLETED\"}}}}}}}}"
case "$line" in
*SendMessage*) if [ -e "$0" ]; then echo "$task"; else touch "$0"; {failing}; fi;;
*GetExtendedAgentCard*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{{\"code\":-32007,\"message\":\"no\"}}}}"; {stopping};;
*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{{\"code\":-32601,\"message\":\"no\"}}}}";;
esac
done"#
    );
    let file = folder.path().join("has-failed");
    let words = ["sh", "-c", &script, file.to_str().unwrap()];
    let address = words.map(|word| format!("'{}'", word.replace('\'', "'\\''"))).join(" ");
    (folder, format!("stdio:{address}"))
}

/// A client of a peer with this fault, over each transport.
async fn clients(fault: Fault, options: ClientOptions) -> (TempDir, Vec<(&'static str, Client)>) {
    let (folder, command) = command(fault);
    let mut clients = Vec::new();
    for (name, address) in
        [("websocket", websocket(fault).await), ("envelope", envelope(fault).await), ("command", command)]
    {
        let client = soon(Client::connect_with(&address, options.clone())).await;
        clients.push((name, client.unwrap_or_else(|error| panic!("{name}: {error}"))));
    }
    (folder, clients)
}

async fn is_answered(name: &str, client: &Client) {
    let reply = soon(client.send(Outgoing::new("again").idempotency_key("again"))).await;
    let Reply::Task(task) = reply.unwrap_or_else(|error| panic!("{name}: {error}")) else { panic!("{name}") };
    assert_eq!(task.id.as_str(), "t", "{name}");
}

#[tokio::test]
async fn half_a_frame_and_then_silence_fails_the_request_within_its_limits() {
    let options = options().send_timeout(Duration::from_secs(3)).call_timeout(Duration::from_secs(5));
    let (_folder, clients) = clients(Fault::HalfAFrame, options).await;
    for (name, client) in clients {
        let error = soon(client.send("hello")).await.unwrap_err();
        assert!(matches!(error, ClientError::Broken(_) | ClientError::Timeout { .. }), "{name}: {error}");
        if name != "command" {
            is_answered(name, &client).await;
        }
    }
}

#[tokio::test]
async fn a_frame_that_is_too_large_fails_the_request_and_is_not_kept() {
    let (_folder, clients) = clients(Fault::TooLarge, options()).await;
    for (name, client) in clients {
        let error = soon(client.send("hello")).await.unwrap_err();
        let ClientError::TooLarge { limit } = error else { panic!("{name}: {error}") };
        assert!((LIMIT..LIMIT + 2048).contains(&limit), "{name}: {limit}");
        is_answered(name, &client).await;
    }
}

#[tokio::test]
async fn after_a_peer_was_killed_the_next_request_reaches_a_new_one() {
    let (_folder, clients) = clients(Fault::Ends, options()).await;
    for (name, client) in clients {
        let first = soon(client.send(Outgoing::new("hello").idempotency_key("first"))).await;
        assert!(first.is_ok(), "{name}: {first:?}");
        is_answered(name, &client).await;
    }
}

#[tokio::test]
async fn a_peer_that_reads_nothing_fails_the_request_within_its_limits() {
    let options = options().send_timeout(Duration::from_secs(3));
    let (_folder, clients) = clients(Fault::StopsReading, options).await;
    for (name, client) in clients {
        let error = soon(client.send("x".repeat(LARGE))).await.unwrap_err();
        assert!(matches!(error, ClientError::Broken(_) | ClientError::Timeout { .. }), "{name}: {error}");
    }
}
