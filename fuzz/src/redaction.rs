//! Safe mode: what an agent writes has no secret in it, in however many pieces it writes it.

use std::cell::RefCell;

use attache_core::{Agent, AgentResult, Identity, Redaction, Turn};
use attache_protocol::{AgentCard, Part};
use attache_server::{HttpService, Server};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::test_server::{JSON, contains, read, surface};

/// Texts that are hidden. One begins as another ends, and one is a part of another.
const SECRETS: [&str; 4] = ["hunter22hunter", "hunter22", "r22hunter2x", "\u{e9}t\u{e9}-secret"];

/// A directory that is hidden.
const FOLDER: &str = "/srv/attache-fuzz/project";

/// A message has a limited number of parts.
const MAX_PIECES: usize = 500;

/// After so many questions everything begins anew.
const QUESTIONS: u32 = 64;

/// A byte from 0x80 on stands for a beginning of something hidden, 0 to 0x1f is where a piece ends, and others stand for themselves.
pub fn redaction(data: &[u8]) {
    let mut pieces = vec![String::new()];
    for byte in data {
        let count = pieces.len();
        match (byte, pieces.last_mut()) {
            (0..0x20, _) if count >= MAX_PIECES => {}
            (0..0x20, _) | (_, None) => pieces.push(String::new()),
            (0x20..0x80, Some(piece)) => piece.push(char::from(*byte)),
            (_, Some(piece)) => {
                let hidden = [SECRETS[0], SECRETS[1], SECRETS[2], SECRETS[3], FOLDER];
                let number = usize::from(byte - 0x80);
                let text = hidden[number % hidden.len()];
                // Rarely a part, mostly the whole: a part needs its other half.
                let end = if number < 64 { text.len() } else { number % text.len() };
                piece.push_str(&text[..text.floor_char_boundary(end)]);
            }
        }
    }
    let text = pieces.concat();
    let written = written(&pieces);
    let shown = || format!("{pieces:?} became {written:?}");
    for secret in SECRETS {
        assert!(!written.text.contains(secret), "a secret in the text: {}", shown());
        assert!(!has_text(&written.data, secret), "a secret in data: {}", shown());
        assert!(!contains(&written.file, secret.as_bytes()), "a secret in a file: {}", shown());
    }
    if pieces.len() > 1 {
        let whole = self::written(std::slice::from_ref(&text));
        assert_eq!(written.text, whole.text, "it matters where a piece ends: {pieces:?}");
    }
    if !SECRETS.iter().any(|secret| text.contains(secret)) && !text.contains(FOLDER) {
        assert_eq!(written.text, text, "changed without a reason: {pieces:?}");
    }
}

/// Whether a text is in a string or a key.
fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(own) => own.contains(text),
        Value::Array(items) => items.iter().any(|item| has_text(item, text)),
        Value::Object(members) => {
            members.iter().any(|(name, item)| name.contains(text) || has_text(item, text))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// What clients get of the artifacts of a turn.
#[derive(Debug, Default)]
struct Written {
    text: String,
    data: Value,
    file: Vec<u8>,
}

/// Lets the agent write pieces, and reads what a client gets.
fn written(pieces: &[String]) -> Written {
    thread_local! {
        static SERVER: RefCell<Option<(HttpService, Runtime, u32)>> = const { RefCell::new(None) };
    }
    let parts: Vec<Value> = pieces.iter().map(|piece| json!({ "text": piece })).collect();
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": parts});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let mut request = Request::new(Full::new(Bytes::from(body.to_string())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static("/a2a");
    request.headers_mut().insert(http::header::CONTENT_TYPE, JSON);
    request.headers_mut().insert("a2a-version", HeaderValue::from_static("1.0"));
    request.extensions_mut().insert(Identity::named("alice"));
    let answer = SERVER.with_borrow_mut(|server| {
        if server.as_ref().is_some_and(|(_, _, asked)| *asked == QUESTIONS) {
            *server = None;
        }
        let (http, runtime, asked) = server.get_or_insert_with(build);
        *asked += 1;
        runtime.block_on(async { read(http.handle(request).await).await })
    });
    let value: Value = serde_json::from_slice(&answer.body).expect("responses are JSON");
    let task = &value["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{value}");
    let mut written = Written::default();
    for part in task["artifacts"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|artifact| artifact["parts"].as_array().cloned().unwrap_or_default())
    {
        if let Some(text) = part["text"].as_str() {
            written.text.push_str(text);
        } else if let Some(raw) = part["raw"].as_str() {
            written.file = STANDARD.decode(raw).expect("it is base64");
        } else {
            written.data = part["data"].clone();
        }
    }
    written
}

fn build() -> (HttpService, Runtime, u32) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing that could be missing");
    let redaction = Redaction::new().secrets(SECRETS.map(str::to_owned)).path(FOLDER, "<project>");
    let server = Server::new(Writer)
        .card(AgentCard::new("Writer", "Writes what it is sent, in the same pieces"))
        .push(false)
        .service_options(|options| options.redaction = Some(redaction));
    let http = runtime.block_on(async { surface(server) });
    (http, runtime, 0)
}

/// Writes the pieces of a message as chunks of one artifact, and all of them as data and as a file.
struct Writer;

impl Agent for Writer {
    async fn run(&self, turn: Turn) -> AgentResult {
        let pieces: Vec<String> =
            turn.message().parts.iter().filter_map(|part| part.as_text().map(str::to_owned)).collect();
        let mut text = turn.artifact("text").stream();
        for piece in &pieces {
            text.chunk(piece.as_str()).await?;
        }
        text.last("").await?;
        let all = pieces.concat();
        // Not UTF-8, so that it is no text for anybody.
        let file = [b"\xff\x00", all.as_bytes(), b"\xff"].concat();
        turn.artifact("data").parts([Part::data(&json!({"list": [{(&all): all}]}))?]).await?;
        turn.artifact("file").parts([Part::raw(file)]).await?;
        turn.complete().await
    }
}
