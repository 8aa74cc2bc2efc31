//! Bytes for one connection, over HTTP/1, HTTP/2, WebSocket or in lines: almost right, or not at all.

use fastrand::Rng;

/// Bodies that the server takes, for the paths that they belong to.
const SEND: &str = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"},{"data":{"a":[1,2.5e3,null,"\u00e9"]}}]}}}"#;
const STREAM: &str = r#"{"jsonrpc":"2.0","id":"s","method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}}}"#;
const OLD: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tasks/send","params":{"id":"t","message":{"role":"user","parts":[{"type":"text","text":"hi"}]}}}"#;
const CANCEL: &str = r#"{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"s"}}"#;
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

/// What one TCP connection sends.
pub(super) fn bytes(random: &mut Rng) -> Vec<u8> {
    match random.u8(..8) {
        0..=2 => {
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
        3 | 4 => frames(random),
        5 | 6 => websocket(random),
        _ => noise(random, 4096),
    }
}

/// What one connection to a Unix socket sends: JSON-RPC in lines.
pub(super) fn lines(random: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.usize(1..20) {
        let mut line = message(random);
        for _ in 0..random.usize(..3) {
            change(&mut line, random);
        }
        bytes.append(&mut line);
        bytes.push(b'\n');
    }
    bytes
}

/// A line that must be answered.
pub(super) fn valid_line() -> Vec<u8> {
    format!("{SEND}\n").into_bytes()
}

/// A JSON-RPC message that the server takes, or noise.
fn message(random: &mut Rng) -> Vec<u8> {
    let text = match random.u8(..8) {
        0..=2 => SEND,
        3 => STREAM,
        4 => OLD,
        5 => CANCEL,
        6 => "",
        _ => return noise(random, 300),
    };
    text.as_bytes().to_vec()
}

/// The request that opens a WebSocket.
fn opening(further: &str) -> Vec<u8> {
    let fixed = "host: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\na2a-version: 1.0";
    format!("GET /ws HTTP/1.1\r\n{fixed}\r\n{further}\r\n").into_bytes()
}

/// The opening of a WebSocket, and a request that must be answered.
pub(super) fn valid_websocket() -> [Vec<u8>; 2] {
    let mut frames = Vec::new();
    websocket_frame(
        &mut frames,
        0x81,
        Some([1, 2, 3, 4]),
        SEND.len() as u64,
        Width::Shortest,
        SEND.as_bytes(),
    );
    [opening(""), frames]
}

/// The end of a WebSocket, without a reason.
pub(super) fn websocket_end() -> Vec<u8> {
    let mut frame = Vec::new();
    websocket_frame(&mut frame, 0x88, Some([0; 4]), 0, Width::Shortest, &[]);
    frame
}

/// The opening of a WebSocket, and frames that make more or less sense.
fn websocket(random: &mut Rng) -> Vec<u8> {
    let header = "sec-websocket-protocol: ";
    let further = match random.u8(..6) {
        0 => format!("{header}a2a\r\n"),
        1 => format!("{header}a2a, a2a.header.a2a-version.MS4w\r\n"),
        2 => format!("{header}a2a.header.{}\r\n", "A".repeat(random.usize(..300))),
        3 => format!("sec-websocket-extensions: permessage-deflate; x={}\r\n", random.u32(..)),
        _ => String::new(),
    };
    let mut bytes = opening(&further);
    if random.u8(..6) == 0 {
        change(&mut bytes, random);
    }
    for _ in 0..random.usize(1..=40) {
        let mask = (random.u8(..8) > 0).then(|| random.u32(..).to_be_bytes());
        match random.u8(..10) {
            0..=3 => {
                let mut text = message(random);
                if random.u8(..3) == 0 {
                    change(&mut text, random);
                }
                let width = [Width::Shortest, Width::Two, Width::Eight][random.usize(..3)];
                websocket_frame(&mut bytes, 0x81, mask, text.len() as u64, width, &text);
            }
            // Pings, pongs and empty frames, many at once.
            4 => {
                let head = [0x89, 0x8a, 0x81, 0x82][random.usize(..4)];
                for _ in 0..random.usize(..200) {
                    let text = &SEND.as_bytes()[..random.usize(..126)];
                    websocket_frame(&mut bytes, head, mask, text.len() as u64, Width::Shortest, text);
                }
            }
            // A message in many fragments, which may never end.
            5 | 6 => {
                let text = message(random);
                let size = random.usize(1..64);
                for (number, piece) in text.chunks(size).enumerate() {
                    let head = if number == 0 { 0x01 } else { 0x00 };
                    let is_last = random.bool() && (number + 1) * size >= text.len();
                    let head = head | if is_last { 0x80 } else { 0 };
                    websocket_frame(&mut bytes, head, mask, piece.len() as u64, Width::Shortest, piece);
                }
            }
            // A close, with a code or without one.
            7 => {
                let content = noise(random, 4);
                websocket_frame(&mut bytes, 0x88, mask, content.len() as u64, Width::Shortest, &content);
            }
            // A length that is not that of the content.
            8 => {
                let length = [0, 126, 65_536, 1 << 30, 1 << 40, u64::MAX][random.usize(..6)];
                let text = message(random);
                websocket_frame(&mut bytes, 0x81, mask, length, Width::Eight, &text);
            }
            // Anything.
            _ => {
                let (head, content) = (random.u8(..), noise(random, 300));
                websocket_frame(&mut bytes, head, mask, content.len() as u64, Width::Shortest, &content);
            }
        }
    }
    if random.u8(..4) == 0 {
        change(&mut bytes, random);
    }
    bytes
}

/// In how many bytes a frame has its length.
#[derive(Clone, Copy)]
enum Width {
    Shortest,
    Two,
    Eight,
}

/// Writes a frame of a WebSocket: its flags and type, its mask, the length that it announces, and its content.
fn websocket_frame(
    bytes: &mut Vec<u8>,
    head: u8,
    mask: Option<[u8; 4]>,
    length: u64,
    width: Width,
    content: &[u8],
) {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    bytes.push(head);
    match (width, u8::try_from(length), u16::try_from(length)) {
        (Width::Shortest, Ok(length @ 0..=125), _) => bytes.push(masked | length),
        (Width::Shortest | Width::Two, _, Ok(length)) => {
            bytes.push(masked | 126);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
        (Width::Shortest | Width::Two | Width::Eight, _, _) => {
            bytes.push(masked | 127);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
    }
    let mask = mask.inspect(|mask| bytes.extend_from_slice(mask)).unwrap_or_default();
    bytes.extend(content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
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

    #[test]
    fn every_protocol_is_sent() {
        let mut random = Rng::with_seed(1);
        let sent: Vec<_> = (0..200).map(|_| bytes(&mut random)).collect();
        for beginning in ["POST /a2a HTTP/1.1", "PRI * HTTP/2.0", "GET /ws HTTP/1.1"] {
            let count = sent.iter().filter(|bytes| bytes.starts_with(beginning.as_bytes())).count();
            assert!(count > 10, "{beginning}: {count}");
        }
    }

    #[test]
    fn a_frame_of_a_websocket_announces_its_length_as_it_is_told() {
        let frame = |length, width, mask| {
            let mut bytes = Vec::new();
            websocket_frame(&mut bytes, 0x81, mask, length, width, b"ab");
            bytes
        };
        assert_eq!(frame(2, Width::Shortest, None), [0x81, 2, b'a', b'b']);
        assert_eq!(frame(2, Width::Two, None), [0x81, 126, 0, 2, b'a', b'b']);
        assert_eq!(frame(126, Width::Shortest, None)[..4], [0x81, 126, 0, 126]);
        assert_eq!(
            frame(2, Width::Shortest, Some([1, 2, 3, 4])),
            [0x81, 0x82, 1, 2, 3, 4, b'a' ^ 1, b'b' ^ 2]
        );
        assert_eq!(frame(1 << 30, Width::Shortest, None)[..10], [0x81, 127, 0, 0, 0, 0, 0x40, 0, 0, 0]);
    }
}
