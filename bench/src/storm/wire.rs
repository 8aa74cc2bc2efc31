//! Bytes for one connection: almost right, or not at all.

use fastrand::Rng;

/// Bodies that the server takes, for the paths that they belong to.
const SEND: &str = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"},{"data":{"a":[1,2.5e3,null,"\u00e9"]}}]}}}"#;
const STREAM: &str = r#"{"jsonrpc":"2.0","id":"s","method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#;
const OLD: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tasks/send","params":{"id":"t","message":{"role":"user","parts":[{"type":"text","text":"hi"}]}}}"#;
const REST: &str = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]},"configuration":{"historyLength":3}}"#;

/// A request with a body.
fn post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\na2a-version: 1.0\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A request that must be answered.
pub(super) fn valid_send() -> Vec<u8> {
    post("/a2a", SEND)
}

fn valid(random: &mut Rng) -> Vec<u8> {
    let get =
        |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\n\r\n").into_bytes();
    match random.u8(..8) {
        0 => valid_send(),
        1 => post("/a2a", STREAM),
        2 => post("/a2a/rpc", OLD),
        3 => post("/v1/message:send", REST),
        4 => post("/v1/message:stream", REST),
        5 => get("/.well-known/agent-card.json"),
        6 => get("/v1/tasks?pageSize=3&pageToken=AAAA"),
        _ => {
            let chunks =
                format!("4\r\n{}\r\n{:x};x=y\r\n{}\r\n0\r\n\r\n", &SEND[..4], SEND.len() - 4, &SEND[4..]);
            format!("POST /a2a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{chunks}").into_bytes()
        }
    }
}

/// What one connection sends.
pub(super) fn bytes(random: &mut Rng) -> Vec<u8> {
    match random.u8(..8) {
        0..=3 => {
            let mut bytes = Vec::new();
            // Several requests at once, on one connection.
            for _ in 0..random.usize(1..4) {
                let mut request = valid(random);
                for _ in 0..random.usize(..6) {
                    change(&mut request, random);
                }
                bytes.append(&mut request);
            }
            bytes
        }
        4..=6 => frames(random),
        _ => noise(random, 4096),
    }
}

fn noise(random: &mut Rng, most: usize) -> Vec<u8> {
    let length = random.usize(1..most);
    (0..length).map(|_| random.u8(..)).collect()
}

/// Changes a few bytes.
fn change(bytes: &mut Vec<u8>, random: &mut Rng) {
    if bytes.is_empty() {
        return;
    }
    let at = random.usize(..bytes.len());
    let to = at + random.usize(..=(bytes.len() - at).min(32));
    match random.u8(..8) {
        0 => bytes[at] ^= 1 << random.u8(..8),
        1 => drop(bytes.drain(at..to)),
        2 => {
            let again = bytes[at..to].to_vec();
            bytes.splice(at..at, again.repeat(random.usize(1..50)));
        }
        3 => drop(bytes.splice(at..at, *b"\r\n")),
        4 => drop(bytes.splice(at..at, noise(random, 16))),
        5 => drop(bytes.splice(at..at, "[".repeat(random.usize(1..5000)).into_bytes())),
        6 => bytes.truncate(at),
        _ => {
            let header = format!("\r\nx-{}: {}", random.u16(..), "y".repeat(random.usize(..20_000)));
            bytes.splice(at..at, header.into_bytes());
        }
    }
}

/// The preface of HTTP/2, and frames that make more or less sense.
fn frames(random: &mut Rng) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, 4, 0, 0, &[]);
    for _ in 0..random.usize(1..60) {
        let stream = if random.bool() { random.u32(..8) * 2 + 1 } else { random.u32(..) };
        match random.u8(..10) {
            // HEADERS: a POST to /a2a in static indexes and literals, with the end of the stream or not.
            0..=3 => {
                let mut block = vec![0x83, 0x86, 0x44, 0x04];
                block.extend_from_slice(b"/a2a");
                block.extend_from_slice(&[0x41, 0x09]);
                block.extend_from_slice(b"localhost");
                block.extend_from_slice(&[0x5f, 0x10]);
                block.extend_from_slice(b"application/json");
                if random.bool() {
                    change(&mut block, random);
                }
                frame(&mut bytes, 1, 4 | random.u8(..2), stream, &block);
            }
            // DATA
            4 | 5 => {
                frame(&mut bytes, 0, random.u8(..2), stream, &SEND.as_bytes()[..random.usize(..SEND.len())])
            }
            // SETTINGS, PING, WINDOW_UPDATE, RST_STREAM and CONTINUATION with content of the right size.
            6 => {
                let content = [0, random.u8(..9), random.u8(..), random.u8(..), random.u8(..), random.u8(..)];
                frame(&mut bytes, 4, 0, 0, &content);
            }
            7 => frame(&mut bytes, 6, 0, 0, &random.u64(..).to_be_bytes()),
            8 => {
                let kind = if random.bool() { 8 } else { 3 };
                frame(&mut bytes, kind, 0, stream, &random.u32(..).to_be_bytes());
            }
            // Anything.
            _ => {
                let (kind, flags, content) = (random.u8(..12), random.u8(..), noise(random, 200));
                frame(&mut bytes, kind, flags, stream, &content);
            }
        }
    }
    if random.bool() {
        change(&mut bytes, random);
    }
    bytes
}

fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, content: &[u8]) {
    bytes.extend_from_slice(&(content.len() as u32).to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_sends_the_same_bytes() {
        let sent = |seed| {
            let mut random = Rng::with_seed(seed);
            (0..50).map(|_| bytes(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(sent(3), sent(3));
        assert_ne!(sent(3), sent(4));
    }
}
