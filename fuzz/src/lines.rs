//! JSON-RPC in lines, as Unix sockets and standard input and output carry it, from both sides.

use std::collections::BTreeMap;

use attache_client::parsing;

use crate::choice;
use crate::frames::{Expected, Response, check, expect};
use crate::pieces::{Pieces, block_on};
use crate::test_server::{CallerKind, SECRET, ask_in_lines, contains, has_credential};

/// How long a line may be.
const LIMITS: [usize; 2] = [1 << 20, 200];

/// How the stream is cut.
const SIZES: [usize; 4] = [usize::MAX, 1, 7, 64];

/// The first byte chooses the caller, the longest line and the size of the pieces; the rest is the stream.
pub fn lines(data: &[u8]) {
    let (choice, stream) = choice(data);
    let caller = if choice & 1 == 0 { CallerKind::Unnamed } else { CallerKind::Guarded };
    let limit = LIMITS[choice >> 1 & 1];
    let size = SIZES[choice >> 2 & 3].min(stream.len().max(1));
    let pieces: Vec<&[u8]> = stream.chunks(size).collect();
    let answer = ask_in_lines(caller, limit, &pieces);
    let shown = || String::from_utf8_lossy(&answer);
    assert!(contains(stream, SECRET.as_bytes()) || !contains(&answer, SECRET.as_bytes()), "{}", shown());
    assert!(answer.is_empty() || answer.ends_with(b"\n"), "half a line: {}", shown());
    let admitted = caller == CallerKind::Unnamed || stream.split(|byte| *byte == b'\n').any(has_credential);
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    let lines: Vec<&[u8]> = answer.split_inclusive(|byte| *byte == b'\n').collect();
    let (expected, is_certain) = expected(stream, limit);
    for line in &lines {
        let Response { id, has_result, .. } = check(line);
        assert!(expected.iter().any(|one| one.accepts(&id)), "nothing has this id: {}", shown());
        let is_card = || expected.iter().any(|one| one.id == id && one.asks_for_card);
        assert!(admitted || !has_result || is_card(), "admitted without a credential: {}", shown());
        *answers.entry(id).or_default() += 1;
    }
    for one in expected.iter().filter(|_| is_certain) {
        let same = expected.iter().filter(|other| other.id == one.id && other.must_be_answered);
        let count = one.ids().filter_map(|id| answers.get(id)).sum::<usize>();
        assert!(count >= same.count(), "a request without an answer, {one:?}: {}", shown());
    }
    // Our own client reads what our server writes.
    assert_eq!(frames(&[&answer], 1 << 20).0.len(), lines.len(), "{}", shown());
    read(stream, limit);
}

/// What the lines of a stream are answered with, and whether that is certain.
fn expected(stream: &[u8], limit: usize) -> (Vec<Expected>, bool) {
    let mut expected = Vec::new();
    for line in stream.split(|byte| *byte == b'\n') {
        let is_empty = line.trim_ascii().is_empty();
        if line.len() > limit {
            // The end of the connection. It depends on the pieces whether the limit counts for an empty line.
            expected.push(Expected::broken(!is_empty));
            return (expected, !is_empty);
        }
        if !is_empty {
            expected.push(expect(line));
        }
    }
    (expected, true)
}

/// Reads a stream as the client reads that of an agent.
fn read(stream: &[u8], limit: usize) {
    let whole = frames(&[stream], limit);
    for size in [1, 3, 64] {
        let pieces: Vec<&[u8]> = stream.chunks(size).collect();
        assert_eq!(frames(&pieces, limit), whole, "it matters where the network cuts");
    }
    let kept: usize = whole.0.iter().map(|frame| frame.json.len()).sum();
    assert!(kept <= stream.len(), "more came out than went in");
    assert!(whole.0.iter().all(|frame| frame.json.len() <= limit), "a line that is too long");
    for frame in &whole.0 {
        parsing::answers(&frame.json);
    }
}

fn frames(pieces: &[&[u8]], limit: usize) -> (Vec<parsing::Frame>, bool) {
    block_on(parsing::lines(Pieces(pieces.to_vec()), limit))
}
