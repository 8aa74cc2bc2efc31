//! WebSocket, from both sides: the request that opens a connection, its messages, and the frames of an agent.

use std::collections::BTreeMap;

use attache_client::parsing;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderValue;
use serde_json::value::RawValue;

use crate::frames::{Response, check, expect};
use crate::test_server::{CallerKind, SECRET, ask_over_connection, contains, has_credential};
use crate::{choice, line};

const OPENING: &str = "GET /a2a HTTP/1.1\r\nHost: localhost:4600\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

const HEADER_SUBPROTOCOL: &str = "a2a.header.";

const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// The first byte chooses the caller, what the rest is, and how it is cut. The first line has subprotocols. Then there is a message in
/// each line, or the bytes of the connection.
pub fn websocket(data: &[u8]) {
    let (choice, rest) = choice(data);
    let (offered, rest) = line(rest);
    let caller = if choice & 1 == 0 { CallerKind::Alice } else { CallerKind::Guarded };
    let is_raw = choice & 2 != 0;
    let mut opening = OPENING.as_bytes().to_vec();
    // What HTTP has no such header for does not come as far as this.
    let offered = HeaderValue::from_bytes(offered.trim_ascii()).ok().filter(|value| !value.is_empty());
    if let Some(value) = &offered {
        opening.extend_from_slice(&[b"Sec-WebSocket-Protocol: ", value.as_bytes(), b"\r\n"].concat());
    }
    opening.extend_from_slice(b"\r\n");
    let messages: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let sent = match is_raw {
        true => rest.to_vec(),
        false => messages.iter().flat_map(|message| framed(message)).collect(),
    };
    let size = if choice & 4 == 0 { sent.len().max(1) } else { 5 };
    let mut pieces = vec![&opening[..]];
    pieces.extend(sent.chunks(size));
    let answer = ask_over_connection(caller, &pieces);
    let shown = || String::from_utf8_lossy(&answer);
    let leaked = contains(&answer, SECRET.as_bytes()) && !contains(data, SECRET.as_bytes());
    assert!(!leaked, "somebody else's task: {}", shown());
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.unwrap_or_else(|| panic!("no head: {}", shown())) + 4);
    if !head.starts_with(b"HTTP/1.1 101 ") {
        assert!(head.starts_with(b"HTTP/1.1 4"), "{}", shown());
        return;
    }
    let offered = offered.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
    let admitted = caller == CallerKind::Alice
        || has_credential(rest)
        || messages.iter().any(|message| has_credential(message))
        || subprotocols_have_credential(offered);
    let expected: Vec<_> = messages.iter().map(|message| expect(message)).collect();
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for message in received(body) {
        let frame = parsing::websocket_message(&message).unwrap_or_else(|| panic!("no frame: {}", shown()));
        let Response { id, has_result, has_error } = check(&frame.json);
        assert_eq!((frame.has_result, frame.has_error), (has_result, has_error));
        assert_eq!(outer_id(&message), id, "two ids: {}", shown());
        if !is_raw {
            // The answer to a message with headers alone has no id.
            let is_known = expected.iter().any(|one| one.accepts(&id));
            assert!(is_known || id == "null", "nothing has this id: {}", shown());
            let is_card = || expected.iter().any(|one| one.id == id && one.asks_for_card);
            assert!(admitted || !has_result || is_card(), "admitted without a credential: {}", shown());
        }
        *answers.entry(id).or_default() += 1;
    }
    // A connection can end after a message with headers alone.
    let begins_with_headers = messages.first().is_some_and(|first| contains(first, b"headers"));
    for one in expected.iter().filter(|_| !is_raw && !begins_with_headers) {
        let same = expected.iter().filter(|other| other.id == one.id && other.must_be_answered);
        let count = one.ids().filter_map(|id| answers.get(id)).sum::<usize>();
        assert!(count >= same.count(), "a request without an answer, {one:?}: {}", shown());
    }
    for message in messages.into_iter().chain([rest]) {
        if let Some(frame) = parsing::websocket_message(&Bytes::copy_from_slice(message)) {
            assert!(frame.json.len() <= message.len(), "more came out than went in");
            parsing::answers(&frame.json);
        }
    }
}

/// A message of a client, with a mask that changes nothing.
fn framed(message: &[u8]) -> Vec<u8> {
    let kind = if std::str::from_utf8(message).is_ok() { TEXT } else { BINARY };
    let mut frame = vec![0x80 | kind];
    match u16::try_from(message.len()) {
        Ok(length @ ..=125) => frame.push(0x80 | length as u8),
        Ok(length) => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
        Err(_) => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(message.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(message);
    frame
}

/// The messages of the server. It does not mask them, and sends each in one frame.
fn received(mut bytes: &[u8]) -> Vec<Bytes> {
    let mut messages = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        let (length, rest) = match second {
            127 => split_number::<8>(rest),
            126 => split_number::<2>(rest),
            length => (usize::from(*length), rest),
        };
        let Some((message, after)) = rest.split_at_checked(length) else { break };
        assert!(first & 0x80 != 0, "a message in several frames");
        if [TEXT, BINARY].contains(&(first & 0x0f)) {
            messages.push(Bytes::copy_from_slice(message));
        }
        bytes = after;
    }
    messages
}

/// The number in the first bytes, and the rest.
fn split_number<const N: usize>(bytes: &[u8]) -> (usize, &[u8]) {
    let (number, rest) = bytes.split_at(N.min(bytes.len()));
    (number.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)), rest)
}

/// The id in the envelope of a response.
fn outer_id(message: &[u8]) -> String {
    let members: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(message).expect("it was read before");
    assert_eq!(members.keys().map(String::as_str).collect::<Vec<_>>(), ["final", "id", "payload"]);
    members["id"].get().to_owned()
}

/// Whether a header that is named in a subprotocol has a credential.
fn subprotocols_have_credential(offered: &[u8]) -> bool {
    let text = String::from_utf8_lossy(offered);
    text.split(',').any(|name| {
        let header = name.trim().strip_prefix(HEADER_SUBPROTOCOL).and_then(|header| header.rsplit_once('.'));
        let value = header.and_then(|(_, value)| URL_SAFE_NO_PAD.decode(value).ok());
        value.is_some_and(|value| has_credential(&value))
    })
}
