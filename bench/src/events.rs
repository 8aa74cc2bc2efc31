//! Finds the events in a server-sent event stream.
//!
//! An event here is a `data:` line. A2A events are JSON on one line, so that is also an event of the stream; ids, comments and
//! keep-alives are not counted.

use memchr::memchr;

/// Splits a stream that arrives in pieces into its events.
#[derive(Default)]
pub(crate) struct EventScanner {
    /// The beginning of a line whose end has not arrived.
    partial: Vec<u8>,
}

impl EventScanner {
    /// Gives the data of every event that ends in `piece` to `event`.
    pub(crate) fn feed(&mut self, mut piece: &[u8], mut event: impl FnMut(&[u8])) {
        while let Some(end) = memchr(b'\n', piece) {
            let (line, rest) = (&piece[..end], &piece[end + 1..]);
            piece = rest;
            if self.partial.is_empty() {
                data_of(line).map(&mut event);
            } else {
                self.partial.extend_from_slice(line);
                data_of(&self.partial).map(&mut event);
                self.partial.clear();
            }
        }
        self.partial.extend_from_slice(piece);
    }
}

fn data_of(line: &[u8]) -> Option<&[u8]> {
    line.strip_prefix(b"data:").map(<[u8]>::trim_ascii)
}

/// Splits a whole stream into the frames it was written in, each with its closing blank line.
pub(crate) fn frames(stream: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut begun = 0;
    let mut line = 0;
    for end in memchr::memchr_iter(b'\n', stream) {
        if matches!(&stream[line..end], b"" | b"\r") {
            frames.push(&stream[begun..=end]);
            begun = end + 1;
        }
        line = end + 1;
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] =
        b": hello\n\nid: 1\ndata: {\"a\":1}\n\nevent: x\r\ndata:{\"b\":2}\r\n\r\ndata: 3\n\n";

    #[test]
    fn events_are_found_wherever_the_stream_is_cut() {
        for size in 1..=STREAM.len() {
            let mut scanner = EventScanner::default();
            let mut events = Vec::new();
            for piece in STREAM.chunks(size) {
                scanner.feed(piece, |data| events.push(String::from_utf8_lossy(data).into_owned()));
            }
            assert_eq!(events, ["{\"a\":1}", "{\"b\":2}", "3"], "in pieces of {size}");
        }
    }

    #[test]
    fn an_unfinished_line_is_not_an_event_yet() {
        let mut scanner = EventScanner::default();
        let mut events = 0;
        scanner.feed(b"data: half", |_| events += 1);
        assert_eq!(events, 0);
        scanner.feed(b" and half\n", |data| {
            assert_eq!(data, b"half and half");
            events += 1;
        });
        assert_eq!(events, 1);
    }

    #[test]
    fn frames_put_together_are_the_stream() {
        let frames = frames(STREAM);
        assert_eq!(frames.len(), 4);
        assert_eq!(frames.concat(), STREAM);
    }
}
