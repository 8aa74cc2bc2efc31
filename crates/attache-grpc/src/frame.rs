//! Messages in a body: each has a byte before it that tells whether it is compressed, and four with its length.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

const PREFIX: usize = 5;

/// A message as it goes into a body.
pub(crate) fn framed(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut out = Vec::with_capacity(PREFIX + length);
    out.push(0);
    // Nothing that is held in memory as one message comes near to four gigabytes; what does is refused by its reader.
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&message.encode_to_vec());
    out
}

/// Why a body cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// A message is larger than allowed.
    TooLarge,
    /// A message is compressed, which nobody asked for, or begins with something else that makes no sense.
    Compressed,
}

/// Cuts a body into its messages. Holds no more than what it was fed and not yet asked for.
#[derive(Debug)]
pub struct Frames {
    rest: BytesMut,
    largest: usize,
}

impl Frames {
    /// For messages of up to so many bytes.
    pub fn new(largest: usize) -> Self {
        Self { rest: BytesMut::new(), largest }
    }

    /// Takes the next piece of the body.
    pub fn feed(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
    }

    /// The next message, once all of it is there.
    pub fn cut(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Some((&[compressed, a, b, c, d], _)) = self.rest.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        if compressed != 0 {
            return Err(FrameError::Compressed);
        }
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > self.largest {
            return Err(FrameError::TooLarge);
        }
        if self.rest.len() - PREFIX < length {
            return Ok(None);
        }
        self.rest.advance(PREFIX);
        Ok(Some(self.rest.split_to(length).freeze()))
    }

    /// Whether a message has begun that is not whole.
    pub fn is_within(&self) -> bool {
        !self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_are_the_same_however_their_body_is_cut(
            texts in prop::collection::vec("[a-z]{0,9}", 0..5),
            piece in 1_usize..20,
        ) {
            let body: Vec<u8> = texts.iter().flat_map(framed).collect();
            let mut frames = Frames::new(64);
            let mut read = Vec::new();
            for piece in body.chunks(piece) {
                frames.feed(piece);
                while let Some(message) = frames.cut().unwrap() {
                    read.push(String::decode(message).unwrap());
                }
            }
            prop_assert_eq!(read, texts);
            prop_assert!(!frames.is_within());
        }
    }

    #[test]
    fn a_message_that_is_too_large_is_refused_before_it_is_there() {
        let mut frames = Frames::new(10);
        frames.feed(&[0, 0, 0, 0]);
        assert_eq!(frames.cut(), Ok(None));
        frames.feed(&[11]);
        assert_eq!(frames.cut(), Err(FrameError::TooLarge));
        frames = Frames::new(10);
        frames.feed(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(frames.cut(), Err(FrameError::TooLarge));
    }

    #[test]
    fn a_message_that_is_compressed_is_refused() {
        let mut frames = Frames::new(10);
        frames.feed(&[1, 0, 0, 0, 0]);
        assert_eq!(frames.cut(), Err(FrameError::Compressed));
    }

    #[test]
    fn a_body_that_ends_within_a_message_is_noticed() {
        let mut frames = Frames::new(10);
        frames.feed(&[0, 0, 0, 0, 2, b'x']);
        assert_eq!(frames.cut(), Ok(None));
        assert!(frames.is_within());
    }
}
