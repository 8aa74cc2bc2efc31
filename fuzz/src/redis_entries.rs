//! Redis Streams, from both sides: entries with requests, entries with responses, replies of Redis, and addresses.

use attache_client::parsing;
use attache_redis::redis::parse_redis_value;
use attache_redis::{Entry, RedisUrl, StreamsAddress, claimed, entries, field, pending_ids};
use attache_server::parse_entry;
use http::HeaderValue;

use crate::choice;

/// The limits of an entry and of its headers, in bytes.
const LIMITS: [(usize, usize); 2] = [(1 << 20, 1 << 16), (300, 60)];

const RESPONSES: &[u8] = b"responses";
const MAX_NAME: usize = 512;

const CORRELATION: &str = "c-1";

const PASSWORD: &str = "correct-h0rse-battery";

/// The first byte chooses what the rest is. A field is a line with a name, `=` and a value. Entries are separated by an empty line.
pub fn redis_entries(data: &[u8]) {
    let (choice, rest) = choice(data);
    let limits = LIMITS[choice >> 2 & 1];
    match choice & 3 {
        0 => request(&fields(rest), limits),
        1 => responses(rest, limits.0),
        2 => reply(rest),
        _ => addresses(&String::from_utf8_lossy(rest)),
    }
}

fn fields(text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let field = |line: &[u8]| {
        let end = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
        (line[..end].to_vec(), line.get(end + 1..).unwrap_or_default().to_vec())
    };
    lines.map(field).collect()
}

/// A request that is accepted keeps the rules of the stream, and has at most one credential of each kind.
fn request(fields: &[(Vec<u8>, Vec<u8>)], (max_entry, max_headers): (usize, usize)) {
    let mut left = fields.to_vec();
    let entry = match parse_entry(&mut left, max_entry, max_headers) {
        Ok(entry) => entry,
        Err(reason) => {
            assert!(!reason.is_empty(), "refused without a reason");
            assert_eq!(left, fields, "a refused entry keeps its fields");
            return;
        }
    };
    let size: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(size <= max_entry, "too large");
    let is_shared = entry.reply_stream == RESPONSES;
    assert!(is_shared || entry.reply_stream.starts_with(b"responses:"), "the stream of another application");
    assert!(entry.reply_stream.len() <= MAX_NAME && (1..=MAX_NAME).contains(&entry.correlation.len()));
    assert!(!(is_shared && entry.is_live), "the shared stream does not end with a client");
    let named = |name: &str| -> Vec<_> {
        fields.iter().filter(|(own, _)| own == name.as_bytes()).map(|(_, value)| value).collect()
    };
    assert_eq!(named(field::PAYLOAD), [&entry.payload], "another payload");
    assert!(named(field::HEADERS).len() <= 1, "two sets of headers");
    let sizes = entry.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    assert!(sizes.sum::<usize>() <= max_headers, "too many headers");
    assert_eq!(entry.headers.len(), entry.headers.keys_len(), "a header with two values");
    let is_credential = |(name, value): &&(Vec<u8>, Vec<u8>)| {
        name.eq_ignore_ascii_case(b"authorization") && HeaderValue::from_bytes(value).is_ok()
    };
    assert!(fields.iter().filter(is_credential).count() <= 1, "two credentials");
}

/// The client takes only responses to its own request, in their order.
fn responses(text: &[u8], limit: usize) {
    let mut all = vec![Vec::new()];
    for line in text.split(|byte| *byte == b'\n') {
        match (line.is_empty(), all.last_mut()) {
            (false, Some(entry)) => entry.extend(fields(line)),
            (_, _) => all.push(Vec::new()),
        }
    }
    let all: Vec<Entry> =
        all.into_iter().map(|fields| Entry { id: "1-0".to_owned(), fields: Some(fields) }).collect();
    let own = all.iter().filter(|entry| entry.get(field::CORRELATION_ID) == Some(CORRELATION.as_bytes()));
    let mut payloads = own.filter_map(|entry| entry.get(field::PAYLOAD));
    let (taken, _) = parsing::redis_replies(all.iter().cloned(), CORRELATION, limit);
    for response in &taken {
        assert!(response.len() <= limit, "a response that is too large");
        assert!(payloads.any(|payload| payload == response), "the response to another request");
        parsing::answers(response);
    }
}

/// Whatever Redis returns, reading it comes to an end, and no more comes out than went in.
fn reply(bytes: &[u8]) {
    let Ok(value) = parse_redis_value(bytes) else { return };
    for found in [entries(value.clone()), claimed(value.clone())] {
        let size: usize = found.iter().flatten().map(|entry| entry.size() + entry.id.len()).sum();
        assert!(size <= bytes.len(), "more came out than went in");
    }
    let pending = pending_ids(value);
    assert!(pending.map_or(0, |rows| rows.iter().map(|(id, _)| id.len()).sum()) <= bytes.len());
}

/// An address is the same after a second parse. No text of ours repeats a password.
fn addresses(text: &str) {
    for scheme in ["redis", "rediss"] {
        let with_password = format!("{scheme}://ops:{PASSWORD}@{text}");
        let shown = match with_password.parse::<RedisUrl>() {
            Ok(url) => format!("{url} {url:?} {:?} {}", url.server(), url.is_local()),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!shown.contains(PASSWORD), "{shown}");
        let streams = format!("{scheme}-streams://ops:{PASSWORD}@{text}");
        let shown = match streams.parse::<StreamsAddress>() {
            Ok(address) => format!("{address} {address:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(text.contains(['@', '?', '/', '#']) || !shown.contains(PASSWORD), "{shown}");
    }
    let _ = text.parse::<RedisUrl>();
    for text in [text.to_owned(), format!("redis-streams://{text}")] {
        let Ok(address) = text.parse::<StreamsAddress>() else { continue };
        let again = address.to_string().parse::<StreamsAddress>();
        assert_eq!(again.as_ref(), Ok(&address), "{address}");
    }
}
