//! What MCP servers send: lines of programs, and streams of events over HTTP.

use attache_agents::mcp::parsing::{KEPT_ENDS, ReadEvent, ReadLines, lines, server_events};
use bytes::Bytes;
use serde_json::Value;
use tokio::io::BufReader;

use crate::choice;
use crate::pieces::block_on;
use crate::test_server::contains;

/// How large a line or an event may be.
const LIMITS: [usize; 4] = [1 << 20, 300, 40, 0];

/// How the stream is cut.
const SIZES: [usize; 4] = [1, 3, 7, 64];

/// The codes of errors that stand for responses that were not read.
const NOT_READ: [i64; 2] = [-32_090, -32_091];

/// The first byte chooses the transport and the limit; the rest is the stream.
pub fn mcp(data: &[u8]) {
    let (choice, stream) = choice(data);
    let limit = LIMITS[choice >> 1 & 3];
    match choice & 1 {
        0 => program(stream, limit),
        _ => events(stream, limit),
    }
}

fn program(stream: &[u8], limit: usize) {
    let whole = block_on(lines(stream, limit));
    for size in SIZES {
        let read = block_on(lines(BufReader::with_capacity(size, stream), limit));
        assert_eq!(read, whole, "it matters where the pipe cuts");
    }
    let ReadLines { messages, kept } = whole;
    assert!(kept <= limit.max(KEPT_ENDS), "{kept} bytes of a line are kept");
    assert!(messages.len() <= stream.split(|byte| *byte == b'\n').count(), "more came out than went in");
    for message in &messages {
        let value: Value = serde_json::from_str(message).expect("a message is JSON");
        let code = value["error"]["code"].as_i64();
        if let (Some(id), true) = (value["id"].as_i64(), code.is_some_and(|code| NOT_READ.contains(&code))) {
            let digits = id.unsigned_abs().to_string();
            assert!(contains(stream, digits.as_bytes()), "the id of another call: {message}");
        }
    }
}

fn events(stream: &[u8], limit: usize) {
    let read = |size: usize| {
        let pieces: Vec<Bytes> = stream.chunks(size).map(Bytes::copy_from_slice).collect();
        block_on(server_events(pieces, limit))
    };
    let (all, failed) = read(1);
    for size in SIZES.into_iter().chain([stream.len().max(1)]) {
        let (some, also_failed) = read(size);
        assert_eq!(also_failed, failed, "it matters where the network cuts");
        // An error can arrive together with the events before it.
        assert!(all.starts_with(&some) && (failed || some.len() == all.len()), "{some:?} of {all:?}");
    }
    let sizes = all.iter().map(|ReadEvent { event, data, id }| {
        [event, data, id].into_iter().flatten().map(String::len).sum::<usize>()
    });
    assert!(sizes.clone().all(|size| size <= limit), "an event that is too large");
    assert!(sizes.sum::<usize>() <= stream.len(), "more came out than went in");
}
