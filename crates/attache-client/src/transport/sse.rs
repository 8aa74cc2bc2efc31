//! A decoder for server-sent events. The bytes may arrive in chunks of any size.
//!
//! Lines are collected as bytes, and an event is parsed only when it is complete. So it does not matter where the network
//! splits the bytes: within a character, between the two bytes of a line end, or within a field. The size of an incomplete
//! event is limited.

use std::collections::VecDeque;
use std::sync::Arc;

/// A byte order mark at the start of a stream is ignored.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The last id in the stream so far.
    pub(crate) id: Option<Arc<str>>,
    /// The data lines, joined by line feeds.
    pub(crate) data: Vec<u8>,
}

/// An event is larger than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// Decodes events.
pub(crate) struct Decoder {
    limit: usize,
    /// The current line so far.
    line: Vec<u8>,
    /// The data of the current event so far; nothing before its first data line.
    data: Option<Vec<u8>>,
    id: Option<Arc<str>>,
    /// The last line ended with a carriage return. A line feed right after it belongs to the same line end.
    returned: bool,
    begun: bool,
}

impl Decoder {
    /// A decoder for events of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), data: None, id: None, returned: false, begun: false }
    }

    /// Decodes bytes, and adds the complete events to `frames`. After an event that is too large, the decoder cannot be used.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], frames: &mut VecDeque<Frame>) -> Result<(), TooLarge> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.returned) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\r', b'\n', bytes) else { return self.keep(bytes) };
            self.keep(&bytes[..end])?;
            self.returned = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            frames.extend(self.end_line());
        }
        Ok(())
    }

    fn keep(&mut self, piece: &[u8]) -> Result<(), TooLarge> {
        let kept = self.line.len() + self.data.as_ref().map_or(0, Vec::len);
        if piece.len() > self.limit.saturating_sub(kept) {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(piece);
        Ok(())
    }

    /// Handles a complete line. An empty line ends the event.
    fn end_line(&mut self) -> Option<Frame> {
        let whole = std::mem::take(&mut self.line);
        let mut line = whole.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            return self.data.take().map(|data| Frame { id: self.id.clone(), data });
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                let data = match &mut self.data {
                    Some(data) => {
                        data.push(b'\n');
                        data
                    }
                    none => none.insert(Vec::new()),
                };
                data.extend_from_slice(value);
            }
            b"id" if !value.contains(&0) => {
                let id = String::from_utf8_lossy(value);
                self.id = (!id.is_empty()).then(|| id.into());
            }
            // Comments, the event type, which the data contains too, and unknown fields.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;

    fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> Result<Vec<Frame>, TooLarge> {
        let (mut decoder, mut frames) = (Decoder::new(limit), VecDeque::new());
        for piece in pieces {
            decoder.feed(piece, &mut frames)?;
        }
        Ok(frames.into())
    }

    fn all(text: &str) -> Vec<(Option<String>, String)> {
        let frames = decode([text.as_bytes()], 1000).unwrap();
        let text = |data| String::from_utf8(data).unwrap();
        frames.into_iter().map(|frame| (frame.id.map(|id| id.to_string()), text(frame.data))).collect()
    }

    #[test]
    fn the_examples_of_the_specification() {
        let id = |id: &str| Some(id.to_owned());
        assert_eq!(all("data: YHOO\ndata: +2\ndata: 10\n\n"), [(None, "YHOO\n+2\n10".to_owned())]);
        assert_eq!(
            all(
                ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n"
            ),
            [
                (id("1"), "first event".to_owned()),
                (None, "second event".to_owned()),
                (None, " third event".to_owned())
            ]
        );
        assert_eq!(
            all("data\n\ndata\ndata\n\ndata:"),
            [(None, String::new()), (None, "\n".to_owned())],
            "the last one is not whole"
        );
        assert_eq!(
            all("data:test\n\ndata: test\n\n"),
            [(None, "test".to_owned()), (None, "test".to_owned())]
        );
    }

    #[test]
    fn an_id_stays_until_there_is_another() {
        let id = |id: &str| Some(id.to_owned());
        assert_eq!(
            all("id: 1\ndata: a\n\ndata: b\n\nid: 2\n\nid: \0\ndata: c\n\n"),
            [(id("1"), "a".to_owned()), (id("1"), "b".to_owned()), (id("2"), "c".to_owned())]
        );
    }

    #[test]
    fn a_byte_order_mark_is_ignored_once() {
        assert_eq!(all("\u{feff}data: a\n\n\u{feff}data: b\n\n"), [(None, "a".to_owned())]);
    }

    #[test]
    fn what_is_kept_is_bounded_whatever_it_is_and_comments_are_not_kept() {
        for piece in ["data: aaaaaaaa\n", "data: a\n", "data", ":", "x", "id: "] {
            let endless = std::iter::repeat_n(piece.as_bytes(), 1000);
            assert_eq!(decode(endless, 100), Err(TooLarge), "{piece}");
        }
        let comments = std::iter::repeat_n(&b": still here\n\n"[..], 1000);
        assert_eq!(decode(comments, 100), Ok(Vec::new()));
        let events = std::iter::repeat_n(&b"data: a\n\n"[..], 1000);
        assert_eq!(decode(events, 100).unwrap().len(), 1000);
    }

    /// Splits the bytes at these positions.
    fn cut<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
    }

    /// Tokens of the format, and some other characters.
    const PIECES: &[&str] =
        &["data", "id", "event", ":", " ", "\r", "\n", "\r\n", "\n\n", "\u{feff}", "é", "🦀", "x", "\0"];

    /// Bytes with many tokens of the format.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            9 => select(PIECES).prop_map(|text| text.as_bytes().to_vec()),
            1 => vec(any::<u8>(), 0..4),
        ];
        vec(piece, 0..60).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn where_the_network_cuts_does_not_matter(
            bytes in stream(),
            cuts in vec(any::<Index>(), 0..20),
            limit in 0..80_usize,
        ) {
            prop_assert_eq!(decode(cut(&bytes, &cuts), limit), decode([&bytes[..]], limit));
            prop_assert_eq!(decode(bytes.chunks(1), limit), decode([&bytes[..]], limit));
        }

        #[test]
        fn what_was_written_is_read(
            events in vec((0..1000_u32, vec("[^\r\n]{0,12}", 1..4), any::<bool>()), 0..8),
            ends in vec(select(&["\n", "\r\n", "\r"][..]), 1..10),
            cuts in vec(any::<Index>(), 0..20),
        ) {
            let mut ends = ends.iter().cycle();
            let mut end = || *ends.next().unwrap();
            let (mut text, mut written) = (String::new(), Vec::new());
            for (id, lines, comment) in &events {
                if *comment {
                    text += &format!(": still here{}{}", end(), end());
                }
                text += &format!("id: {id}{}event: message{}", end(), end());
                for line in lines {
                    text += &format!("data: {line}{}", end());
                }
                // A carriage return before the line feed of the next line would count as one line end.
                text += "\n\n";
                let data = lines.join("\n").into_bytes();
                written.push(Frame { id: Some(id.to_string().into()), data });
            }
            prop_assert_eq!(decode(cut(text.as_bytes(), &cuts), 1000).unwrap(), written);
        }
    }
}
