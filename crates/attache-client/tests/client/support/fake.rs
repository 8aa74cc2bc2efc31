//! A scripted HTTP server.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json as value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a server does with a request.
pub(crate) enum Reaction {
    /// Writes this and closes the connection.
    Bytes(Vec<u8>),
    /// Writes this and keeps the connection open.
    Hang(Vec<u8>),
    /// Writes the first part once, then repeats the second.
    Endless(Vec<u8>, Vec<u8>),
}

/// A request that the server received.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    head: String,
    pub(crate) body: Value,
}

impl ReceivedRequest {
    pub(crate) fn is_for_card(&self) -> bool {
        self.head.starts_with("GET ") && self.path().split('?').next().unwrap().ends_with(".json")
    }

    /// The HTTP method and the path.
    pub(crate) fn target(&self) -> String {
        self.head.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// A server on a free port.
pub(crate) struct Fake {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Fake {
    /// A server with a card. The test responds to the calls.
    pub(crate) async fn agent(answer: impl Fn(&ReceivedRequest) -> Reaction + Send + Sync + 'static) -> Self {
        Self::server(move |asked| if asked.is_for_card() { card(asked) } else { answer(asked) }).await
    }

    /// A server without a card. The test responds to everything.
    pub(crate) async fn server(
        answer: impl Fn(&ReceivedRequest) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (answer, asked) = (Arc::new(answer), Arc::new(Mutex::new(Vec::new())));
        let log = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (answer, log) = (answer.clone(), log.clone());
                tokio::spawn(async move {
                    let Some(request) = read(&mut socket).await else { return };
                    log.lock().unwrap().push(request.clone());
                    react(&mut socket, answer(&request)).await;
                });
            }
        });
        Self { url, asked }
    }

    /// The requests for the card.
    pub(crate) fn card_requests(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().iter().filter(|asked| asked.is_for_card()).cloned().collect()
    }

    /// The other requests.
    pub(crate) fn calls(&self) -> Vec<ReceivedRequest> {
        self.asked.lock().unwrap().iter().filter(|asked| !asked.is_for_card()).cloned().collect()
    }
}

async fn read(socket: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.ok()?);
    }
    let mut asked = ReceivedRequest { head: String::from_utf8(head).unwrap(), body: Value::Null };
    let length = asked.header("content-length").and_then(|length| length.parse().ok());
    if let Some(length) = length.filter(|length| *length > 0) {
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.ok()?;
        asked.body = serde_json::from_slice(&body).unwrap();
    }
    Some(asked)
}

async fn react(socket: &mut TcpStream, what: Reaction) {
    // The client may close the connection at any time.
    match what {
        Reaction::Bytes(bytes) => {
            let _ = socket.write_all(&bytes).await;
            let _ = socket.shutdown().await;
        }
        Reaction::Hang(bytes) => {
            let _ = socket.write_all(&bytes).await;
            let _ = socket.read_u8().await;
        }
        Reaction::Endless(first, again) => {
            let mut written = socket.write_all(&first).await;
            while written.is_ok() {
                written = socket.write_all(&again).await;
            }
        }
    }
}

/// A card whose interface is on this server.
pub(crate) fn card(asked: &ReceivedRequest) -> Reaction {
    card_with(asked, "JSONRPC", &value!({}))
}

/// The same with another binding and further members.
pub(crate) fn card_with(asked: &ReceivedRequest, binding: &str, members: &Value) -> Reaction {
    let url = format!("http://{}/rpc", asked.header("host").unwrap());
    let interface = value!({"url": url, "protocolBinding": binding, "protocolVersion": "1.0"});
    let mut card =
        value!({"name": "Fake", "capabilities": {"streaming": true}, "supportedInterfaces": [interface]});
    card.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    json(200, &card)
}

/// A response with a JSON body.
pub(crate) fn json(status: u16, body: &Value) -> Reaction {
    let body = body.to_string();
    let head =
        format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
    Reaction::Bytes(format!("{head}\r\nConnection: close\r\n\r\n{body}").into_bytes())
}

/// A response with a result for this request.
pub(crate) fn rpc_result(asked: &ReceivedRequest, result: &Value) -> Reaction {
    json(200, &value!({"jsonrpc": "2.0", "id": asked.body["id"], "result": result}))
}

/// The head of a stream.
pub(crate) const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

/// A stream of these events with a proper end.
pub(crate) fn sse(asked: &ReceivedRequest, events: &[Value]) -> Vec<u8> {
    let mut out = STREAM.to_vec();
    for event in events {
        let response = value!({"jsonrpc": "2.0", "id": asked.body["id"], "result": event});
        out.extend_from_slice(format!("data: {response}\n\n").as_bytes());
    }
    out
}

/// The same without an envelope.
pub(crate) fn plain_sse(events: &[Value]) -> Vec<u8> {
    let mut out = STREAM.to_vec();
    for event in events {
        out.extend_from_slice(format!("data: {event}\n\n").as_bytes());
    }
    out
}
