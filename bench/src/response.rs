//! A reader of HTTP/1.1 responses that does as little as a load generator can get away with.
//!
//! It takes bytes as they come from a socket and hands on the body's bytes as they are found, with chunked framing removed.
//! Responses follow one another on a connection; after one is done, the next bytes begin a new one.

use std::fmt;

use memchr::{memchr, memmem};

/// More than any server here sends before the body; a head that never ends is an error, not a longer wait.
const LONGEST_HEAD: usize = 16 * 1024;

/// Where in a response the next byte belongs.
#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    Fixed { left: usize },
    ChunkSize,
    Chunk { left: usize },
    ChunkEnd,
    Trailer,
}

/// Decodes the responses of one connection.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
    status: u16,
    says_when: bool,
}

/// What one call to [`Decoder::decode`] achieved.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Bytes of the input that are dealt with. The rest must be given again, followed by more.
    pub(crate) consumed: usize,
    /// Whether a response ended there.
    pub(crate) done: bool,
}

/// The server sent something that is not an HTTP/1.1 response this reader knows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the response is malformed: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { state: State::Head, status: 0, says_when: false }
    }

    /// The status of the response last begun.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Whether the response last begun says when to try again.
    pub(crate) fn says_when(&self) -> bool {
        self.says_when
    }

    /// Decodes up to the end of one response, giving the pieces of its body to `body`.
    pub(crate) fn decode(
        &mut self,
        input: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<Progress, Malformed> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.state {
                State::Head => {
                    let Some(end) = memmem::find(rest, b"\r\n\r\n") else {
                        return if rest.len() > LONGEST_HEAD {
                            Err(Malformed("its head does not end"))
                        } else {
                            Ok(Progress { consumed: at, done: false })
                        };
                    };
                    at += end + 4;
                    self.begin(&rest[..end])?;
                }
                State::Fixed { left } => {
                    let taken = left.min(rest.len());
                    if taken > 0 {
                        body(&rest[..taken]);
                    }
                    at += taken;
                    if taken == left {
                        return Ok(self.finish(at));
                    }
                    self.state = State::Fixed { left: left - taken };
                    return Ok(Progress { consumed: at, done: false });
                }
                State::ChunkSize => {
                    let Some(end) = memchr(b'\n', rest) else {
                        return Ok(Progress { consumed: at, done: false });
                    };
                    at += end + 1;
                    self.state = match chunk_size(&rest[..end])? {
                        0 => State::Trailer,
                        left => State::Chunk { left },
                    };
                }
                State::Chunk { left } => {
                    let taken = left.min(rest.len());
                    if taken > 0 {
                        body(&rest[..taken]);
                    }
                    at += taken;
                    if taken < left {
                        self.state = State::Chunk { left: left - taken };
                        return Ok(Progress { consumed: at, done: false });
                    }
                    self.state = State::ChunkEnd;
                }
                State::ChunkEnd => {
                    if rest.len() < 2 {
                        return Ok(Progress { consumed: at, done: false });
                    }
                    if !rest.starts_with(b"\r\n") {
                        return Err(Malformed("a chunk is longer than its size says"));
                    }
                    at += 2;
                    self.state = State::ChunkSize;
                }
                State::Trailer => {
                    let Some(end) = memchr(b'\n', rest) else {
                        return Ok(Progress { consumed: at, done: false });
                    };
                    at += end + 1;
                    if matches!(&rest[..end], b"" | b"\r") {
                        return Ok(self.finish(at));
                    }
                }
            }
        }
    }

    fn begin(&mut self, head: &[u8]) -> Result<(), Malformed> {
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let first = lines.next().unwrap_or_default();
        self.status = first
            .strip_prefix(b"HTTP/1.1 ")
            .and_then(|after| number(after.get(..3)?))
            .and_then(|status| u16::try_from(status).ok())
            .ok_or(Malformed("it does not begin with an HTTP/1.1 status"))?;

        self.says_when = false;
        let mut framing = None;
        for line in lines {
            let Some(colon) = memchr(b':', line) else {
                return Err(Malformed("a header has no colon"));
            };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-length") {
                let left = number(value).ok_or(Malformed("its content-length is not a number"))?;
                framing = framing.or(Some(State::Fixed { left }));
            } else if name.eq_ignore_ascii_case(b"transfer-encoding")
                && value.eq_ignore_ascii_case(b"chunked")
            {
                framing = Some(State::ChunkSize);
            } else if name.eq_ignore_ascii_case(b"retry-after") {
                self.says_when = number(value).is_some();
            }
        }
        self.state = framing.ok_or(Malformed("it has neither a content-length nor chunks"))?;
        Ok(())
    }

    fn finish(&mut self, consumed: usize) -> Progress {
        self.state = State::Head;
        Progress { consumed, done: true }
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn chunk_size(line: &[u8]) -> Result<usize, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let digits = std::str::from_utf8(digits).unwrap_or_default();
    usize::from_str_radix(digits, 16).map_err(|_| Malformed("a chunk size is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIXED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ndate: now\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\nb;x=1\r\n, wide\r\nwor\r\n0\r\n\r\n";
    const TRAILED: &[u8] =
        b"HTTP/1.1 503 No\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\nx-why: not\r\nx-more: y\r\n\r\n";

    /// Feeds `wire` in packets of at most `size` bytes and returns each response's status and body.
    fn responses(wire: &[u8], size: usize) -> Result<Vec<(u16, String)>, Malformed> {
        let mut decoder = Decoder::new();
        let (mut found, mut body, mut pending) = (Vec::new(), Vec::new(), Vec::new());
        for packet in wire.chunks(size) {
            pending.extend_from_slice(packet);
            loop {
                let step = decoder.decode(&pending, |piece| body.extend_from_slice(piece))?;
                pending.drain(..step.consumed);
                if !step.done {
                    break;
                }
                found.push((decoder.status(), String::from_utf8(std::mem::take(&mut body)).unwrap()));
            }
        }
        assert_eq!(pending, b"", "bytes are left over");
        Ok(found)
    }

    #[test]
    fn packet_boundaries_do_not_matter() {
        let wire = [FIXED, CHUNKED, TRAILED, FIXED].concat();
        let expected = [(200, "hello"), (200, "hello, wide\r\nwor"), (503, "hi"), (200, "hello")]
            .map(|(status, body)| (status, body.to_owned()));
        for size in 1..=wire.len() {
            assert_eq!(responses(&wire, size).unwrap(), expected, "in packets of {size}");
        }
    }

    #[test]
    fn a_body_is_handed_on_before_its_response_ends() {
        let mut decoder = Decoder::new();
        let mut seen = Vec::new();
        let so_far = CHUNKED.len() - "wor\r\n0\r\n\r\n".len();
        let step = decoder.decode(&CHUNKED[..so_far], |piece| seen.extend_from_slice(piece)).unwrap();
        assert_eq!(step, Progress { consumed: so_far, done: false });
        assert_eq!(seen, b"hello, wide\r\n");
    }

    #[test]
    fn an_empty_body_is_done_with_its_head() {
        let wire = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(responses(wire, 7).unwrap(), [(200, String::new())]);
    }

    #[test]
    fn chunked_wins_over_a_content_length() {
        let wire =
            b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
        assert_eq!(responses(wire, 3).unwrap(), [(200, "x".to_owned())]);
    }

    #[test]
    fn what_is_not_a_response_is_refused() {
        for wire in [
            &b"SSH-2.0-OpenSSH\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ndate: now\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nlong\r\n",
        ] {
            assert!(responses(wire, wire.len()).is_err(), "{}", String::from_utf8_lossy(wire));
        }
        assert!(responses(&[b'x'; LONGEST_HEAD + 1], 1024).is_err());
    }
}
