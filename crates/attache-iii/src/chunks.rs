//! The output of a streaming function, as the chunks of an artifact.

use std::time::Duration;

use attache_core::{AgentResult, ArtifactStream, Turn};
use attache_protocol::Part;
use serde_json::Value;

use crate::{ChannelItem, FunctionInfo};

/// The chunks of an artifact.
pub(crate) struct Chunks<'a> {
    artifact: ArtifactStream<'a>,
    /// The media type of bytes that are not text.
    media_type: Option<String>,
    /// The bytes of an incomplete character.
    unfinished: Vec<u8>,
    /// The latest chunk. It is held back for a moment: if no other chunk follows, it is marked as the last one.
    held: Option<Part>,
    begun: bool,
}

impl<'a> Chunks<'a> {
    /// Starts an artifact. Bytes are text unless the function's first output mode is another media type.
    pub(crate) fn new(turn: &'a Turn, function: &FunctionInfo) -> Self {
        let mode =
            function.metadata_value("a2a.outputModes").and_then(|modes| modes.get(0)).and_then(Value::as_str);
        let media_type = mode.filter(|mode| !is_text(mode)).map(str::to_owned);
        Self {
            artifact: turn.artifact(&*function.id).stream(),
            media_type,
            unfinished: Vec::new(),
            held: None,
            begun: false,
        }
    }

    /// Whether there was any output.
    pub(crate) fn begun(&self) -> bool {
        self.begun
    }

    /// Adds an item.
    pub(crate) async fn add(&mut self, item: ChannelItem) -> AgentResult {
        self.begun = true;
        let part = match (item, &self.media_type) {
            (ChannelItem::Text(text), _) => Part::text(text),
            (ChannelItem::Bytes(bytes), Some(media_type)) => Part::raw(bytes).media_type(media_type),
            (ChannelItem::Bytes(bytes), None) => {
                self.unfinished.extend_from_slice(&bytes);
                let text = take_text(&mut self.unfinished);
                if text.is_empty() {
                    return Ok(());
                }
                Part::text(text)
            }
        };
        self.push(part).await
    }

    async fn push(&mut self, part: Part) -> AgentResult {
        match self.held.replace(part) {
            Some(earlier) => self.artifact.chunk(earlier).await,
            None => Ok(()),
        }
    }

    /// How long a chunk is held back. It is short enough that clients do not notice.
    pub(crate) const HOLD: Duration = Duration::from_millis(10);

    /// Whether a chunk is held back.
    pub(crate) fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Sends the chunk that is held back.
    pub(crate) async fn release(&mut self) -> AgentResult {
        match self.held.take() {
            Some(part) => self.artifact.chunk(part).await,
            None => Ok(()),
        }
    }

    /// Ends the artifact.
    pub(crate) async fn finish(mut self) -> AgentResult {
        if !self.unfinished.is_empty() {
            let rest = String::from_utf8_lossy(&self.unfinished).into_owned();
            self.push(Part::text(rest)).await?;
        }
        match self.held.take() {
            Some(last) => self.artifact.last(last).await,
            None => Ok(()),
        }
    }
}

fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/") || media_type == "text" || media_type == "application/json"
}

/// Removes the text from the bytes, up to an incomplete character. Invalid bytes are replaced.
fn take_text(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    loop {
        match std::str::from_utf8(bytes) {
            Ok(rest) => {
                text.push_str(rest);
                bytes.clear();
                return text;
            }
            Err(error) => {
                let (good, bad) = (error.valid_up_to(), error.error_len());
                text.push_str(&String::from_utf8_lossy(&bytes[..good]));
                bytes.drain(..good + bad.unwrap_or(0));
                if bad.is_none() {
                    return text;
                }
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_survives_being_cut_anywhere(text in ".{0,40}", cuts in prop::collection::vec(0usize..200, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut unread = Vec::new();
            let mut joined = String::new();
            for pair in cuts.windows(2) {
                unread.extend_from_slice(&bytes[pair[0]..pair[1]]);
                joined.push_str(&take_text(&mut unread));
            }
            prop_assert!(unread.is_empty());
            prop_assert_eq!(joined, text);
        }
    }

    #[test]
    fn what_can_never_be_text_is_replaced() {
        let mut bytes = b"a\xffb\xe2\x82".to_vec();
        assert_eq!(take_text(&mut bytes), "a\u{fffd}b");
        assert_eq!(bytes, b"\xe2\x82");
    }
}
