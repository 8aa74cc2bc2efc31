//! The requests of the works, as the bytes that go over the wire.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde_json::{Value, json};

/// Stands where each message's own id will go, in hexadecimal.
const SERIAL: &str = "0000000000000000";

/// Where every server has its card.
pub(crate) const CARD_PATH: &str = "/.well-known/agent-card.json";

/// The line in which requests state their version.
const CURRENT: &str = "A2A-Version: 1.0\r\n";

/// Numbers messages over the whole run, so that no server sees the same message twice.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A request, complete with its HTTP head. Every writing of a message carries an id of its own.
#[derive(Clone)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    serial_at: Option<usize>,
}

impl Request {
    /// The id of a message before it is written.
    pub(crate) const MESSAGE_ID: &str = "bench-0000000000000000";

    /// A small text message, answered when its task is finished.
    pub(crate) fn send(text: &str) -> Self {
        Self::rpc("SendMessage", &message(json!([{ "text": text }])))
    }

    /// The same from someone with a bearer token.
    pub(crate) fn send_with(token: &str, text: &str) -> Self {
        let headers = format!("A2A-Version: 1.0\r\nAuthorization: Bearer {token}\r\n");
        Self::rpc_of(&headers, "SendMessage", &message(json!([{ "text": text }])))
    }

    /// The same as clients of 0.3 send it, who do not say which version they speak.
    pub(crate) fn send_in_0_3(text: &str) -> Self {
        let parts = json!([{ "kind": "text", "text": text }]);
        let message =
            json!({ "kind": "message", "messageId": Self::MESSAGE_ID, "role": "user", "parts": parts });
        Self::rpc_of("", "message/send", &json!({ "message": message }))
    }

    /// A small text message, answered with a stream.
    pub(crate) fn stream(text: &str) -> Self {
        Self::rpc("SendStreamingMessage", &message(json!([{ "text": text }])))
    }

    /// A message with `data` in its second part.
    pub(crate) fn send_data(data: &Value) -> Self {
        Self::rpc("SendMessage", &message(json!([{ "text": "data" }, { "data": data }])))
    }

    /// A message that calls a function with a small payload, answered when the function has returned.
    pub(crate) fn call(function: &str, text: &str) -> Self {
        let call = json!({ "function_id": function, "payload": { "text": text } });
        Self::rpc("SendMessage", &message(json!([{ "data": call }])))
    }

    pub(crate) fn get_task(id: &str) -> Self {
        Self::rpc("GetTask", &json!({ "id": id }))
    }

    pub(crate) fn list_tasks(page_size: u32) -> Self {
        Self::rpc("ListTasks", &json!({ "pageSize": page_size }))
    }

    /// Asks whether the server is well.
    pub(crate) fn health() -> Self {
        Self::get("/health")
    }

    /// Asks for the card.
    pub(crate) fn card() -> Self {
        Self::get(CARD_PATH)
    }

    fn get(path: &str) -> Self {
        Self { bytes: head("GET", path, CURRENT, 0).into_bytes(), serial_at: None }
    }

    /// Tells the bare server what to answer to `work`.
    pub(crate) fn teach(work: &str, answer: &[u8]) -> Self {
        let mut bytes = head("PUT", &format!("/__answer/{work}"), CURRENT, answer.len()).into_bytes();
        bytes.extend_from_slice(answer);
        Self { bytes, serial_at: None }
    }

    fn rpc(method: &str, params: &Value) -> Self {
        Self::rpc_of(CURRENT, method, params)
    }

    /// A request to a path of another API than the protocol's.
    pub(crate) fn post(path: &str, body: &Value) -> Self {
        let body = body.to_string();
        let mut bytes = head("POST", path, "", body.len()).into_bytes();
        bytes.extend_from_slice(body.as_bytes());
        Self { bytes, serial_at: None }
    }

    /// A request of another transport, as its bytes.
    pub(crate) fn of_bytes(bytes: Vec<u8>) -> Self {
        let serial_at = memchr::memmem::find(&bytes, SERIAL.as_bytes());
        Self { bytes, serial_at }
    }

    /// What follows the head, before a message has its own id.
    pub(crate) fn body(&self) -> &[u8] {
        let end = memchr::memmem::find(&self.bytes, b"\r\n\r\n");
        end.map_or(&self.bytes, |end| &self.bytes[end + 4..])
    }

    /// With more lines in its head.
    fn rpc_of(lines: &str, method: &str, params: &Value) -> Self {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let mut bytes = head("POST", "/a2a", lines, body.len()).into_bytes();
        bytes.extend_from_slice(body.as_bytes());
        Self::of_bytes(bytes)
    }

    /// Replaces what is in `buffer` with this request, its message under an id that was not used before.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        self.append(buffer);
    }

    /// The same after what is in `buffer`.
    pub(crate) fn append(&self, buffer: &mut Vec<u8>) {
        let begin = buffer.len();
        buffer.extend_from_slice(&self.bytes);
        if let Some(at) = self.serial_at.map(|at| begin + at) {
            let serial = NEXT.fetch_add(1, Relaxed);
            for (place, byte) in buffer[at..at + SERIAL.len()].iter_mut().enumerate() {
                let digit = (serial >> (60 - 4 * place)) & 0xf;
                *byte = b"0123456789abcdef"[digit as usize];
            }
        }
    }
}

fn head(method: &str, path: &str, lines: &str, length: usize) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    head.push_str("content-type: application/json\r\naccept: application/json, text/event-stream\r\n");
    head.push_str(lines);
    // Writing to a string cannot fail.
    let _ = write!(head, "content-length: {length}\r\n\r\n");
    head
}

fn message(parts: Value) -> Value {
    json!({ "message": { "messageId": Request::MESSAGE_ID, "role": "ROLE_USER", "parts": parts } })
}

/// Structured JSON of at least `size` bytes: many small objects with members of every kind.
pub(crate) fn structured_data(size: usize) -> Value {
    let mut rows = Vec::new();
    let mut length = 0;
    while length < size {
        let n = rows.len();
        let row = json!({
            "id": n,
            "name": format!("item {n}"),
            "price": n as f64 * 0.25,
            "available": n % 3 == 0,
            "note": null,
            "tags": ["alpha", "beta"],
            "place": { "shelf": n % 40, "row": n % 7 },
        });
        length += row.to_string().len() + 1;
        rows.push(row);
    }
    json!({ "rows": rows })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_message_has_an_id_of_its_own() {
        let requests =
            [Request::send("hello"), Request::send_in_0_3("hello"), Request::call("demo::echo", "hello")];
        let ids: HashSet<String> = (0..100)
            .map(|nth| {
                let mut buffer = b"what was there before".to_vec();
                requests[nth % 3].write(&mut buffer);
                let wire = String::from_utf8(buffer).unwrap();
                let (_, body) = wire.split_once("\r\n\r\n").unwrap();
                let body: Value = serde_json::from_str(body).unwrap();
                body["params"]["message"]["messageId"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(ids.len(), 100);
    }

    #[test]
    fn the_content_length_is_that_of_the_body() {
        for request in [Request::send("größer"), Request::get_task("t"), Request::teach("send", b"12345")] {
            let wire = String::from_utf8(request.bytes).unwrap();
            let (head, body) = wire.split_once("\r\n\r\n").unwrap();
            assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        }
    }

    #[test]
    fn structured_data_is_as_large_as_asked_and_hardly_larger() {
        let length = structured_data(1 << 20).to_string().len();
        assert!((1 << 20..(1 << 20) + 1024).contains(&length), "{length}");
    }
}
