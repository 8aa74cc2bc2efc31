//! The frames of a gRPC body. Each message has a prefix: one byte for the compression and four bytes for the length.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

const PREFIX: usize = 5;

/// Encodes a message with its prefix.
pub(crate) fn framed(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut out = Vec::with_capacity(PREFIX + length);
    out.push(0);
    // No message in memory is as large as four gigabytes. If one were, its reader would reject it.
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&message.encode_to_vec());
    out
}

/// The rest of the body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// A message is larger than the limit.
    TooLarge,
    /// A message is compressed, although the client does not accept compression, or the first byte of its prefix is invalid.
    Compressed,
}

/// Splits a body into its messages. It only buffers the bytes that were not yet returned as messages.
#[derive(Debug)]
pub struct Frames {
    rest: BytesMut,
    max_size: usize,
}

impl Frames {
    /// `max_size` is the limit for a message, in bytes.
    pub fn new(max_size: usize) -> Self {
        Self { rest: BytesMut::new(), max_size }
    }

    /// Adds the next chunk of the body.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.rest.extend_from_slice(chunk);
    }

    /// The next message, if it is complete.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some((&[compressed, a, b, c, d], _)) = self.rest.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        if compressed != 0 {
            return Err(FrameError::Compressed);
        }
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > self.max_size {
            return Err(FrameError::TooLarge);
        }
        if self.rest.len() - PREFIX < length {
            return Ok(None);
        }
        self.rest.advance(PREFIX);
        Ok(Some(self.rest.split_to(length).freeze()))
    }

    /// Whether there are bytes of an incomplete message.
    pub fn is_incomplete(&self) -> bool {
        !self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_do_not_depend_on_the_chunks_of_the_body(
            texts in prop::collection::vec("[a-z]{0,9}", 0..5),
            size in 1_usize..20,
        ) {
            let body: Vec<u8> = texts.iter().flat_map(framed).collect();
            let mut frames = Frames::new(64);
            let mut read = Vec::new();
            for chunk in body.chunks(size) {
                frames.feed(chunk);
                while let Some(message) = frames.next_message().unwrap() {
                    read.push(String::decode(message).unwrap());
                }
            }
            prop_assert_eq!(read, texts);
            prop_assert!(!frames.is_incomplete());
        }
    }

    #[test]
    fn a_message_that_is_too_large_is_rejected_before_it_arrives() {
        let mut frames = Frames::new(10);
        frames.feed(&[0, 0, 0, 0]);
        assert_eq!(frames.next_message(), Ok(None));
        frames.feed(&[11]);
        assert_eq!(frames.next_message(), Err(FrameError::TooLarge));
        frames = Frames::new(10);
        frames.feed(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(frames.next_message(), Err(FrameError::TooLarge));
    }

    #[test]
    fn a_compressed_message_is_rejected() {
        let mut frames = Frames::new(10);
        frames.feed(&[1, 0, 0, 0, 0]);
        assert_eq!(frames.next_message(), Err(FrameError::Compressed));
    }

    #[test]
    fn a_body_that_ends_within_a_message_is_detected() {
        let mut frames = Frames::new(10);
        frames.feed(&[0, 0, 0, 0, 2, b'x']);
        assert_eq!(frames.next_message(), Ok(None));
        assert!(frames.is_incomplete());
    }
}
