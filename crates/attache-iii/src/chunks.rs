//! The output of a streaming function, as the chunks of an artifact.

use std::time::Duration;

use attache_core::{AgentResult, TextStream, Turn};
use attache_protocol::Part;
use serde_json::Value;

use crate::{ChannelItem, FunctionInfo};

/// The chunks of an artifact.
pub(crate) struct Chunks<'a> {
    stream: TextStream<'a>,
    /// The media type of bytes that are not text.
    media_type: Option<String>,
    begun: bool,
    bytes: usize,
    max_bytes: usize,
}

/// What an item counts beside its content, in bytes, so that a flood of empty items reaches the limit, too.
const ITEM_SIZE: usize = 256;

impl<'a> Chunks<'a> {
    /// Starts an artifact. Bytes are text unless the function's first output mode is another media type.
    pub(crate) fn new(turn: &'a Turn, function: &FunctionInfo, max_bytes: usize) -> Self {
        let mode =
            function.metadata_value("a2a.outputModes").and_then(|modes| modes.get(0)).and_then(Value::as_str);
        let media_type = mode.filter(|mode| !is_text(mode)).map(str::to_owned);
        let stream = TextStream::new(turn.artifact(&*function.id).stream());
        Self { stream, media_type, begun: false, bytes: 0, max_bytes }
    }

    /// Counts an item. If there are too many bytes, returns the limit.
    pub(crate) fn count(&mut self, item: &ChannelItem) -> Result<(), usize> {
        let size = match item {
            ChannelItem::Text(text) => text.len(),
            ChannelItem::Bytes(bytes) => bytes.len(),
        };
        self.bytes = self.bytes.saturating_add(size).saturating_add(ITEM_SIZE);
        if self.bytes > self.max_bytes { Err(self.max_bytes) } else { Ok(()) }
    }

    /// Whether there was any output.
    pub(crate) fn begun(&self) -> bool {
        self.begun
    }

    /// Adds an item.
    pub(crate) async fn add(&mut self, item: ChannelItem) -> AgentResult {
        self.begun = true;
        match (item, &self.media_type) {
            (ChannelItem::Text(text), _) => self.stream.push(Part::text(text)).await,
            (ChannelItem::Bytes(bytes), Some(media_type)) => {
                self.stream.push(Part::raw(bytes).media_type(media_type)).await
            }
            (ChannelItem::Bytes(bytes), None) => self.stream.write_bytes(&bytes).await,
        }
    }

    /// How long a chunk is held back.
    pub(crate) const HOLD: Duration = TextStream::HOLD;

    /// Whether a chunk is held back.
    pub(crate) fn holds(&self) -> bool {
        self.stream.is_holding()
    }

    /// Sends the chunk that is held back.
    pub(crate) async fn release(&mut self) -> AgentResult {
        self.stream.flush().await
    }

    /// Ends the artifact.
    pub(crate) async fn finish(self) -> AgentResult {
        self.stream.finish().await
    }
}

fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/") || media_type == "text" || media_type == "application/json"
}
