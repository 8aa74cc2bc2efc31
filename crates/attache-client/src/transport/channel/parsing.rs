//! Parsers of frames, for fuzzing. Not part of the public API.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncRead;

use super::duplex::{Incoming, IncomingFrame};
use super::lines::{LineLimits, LineSource};
#[cfg(feature = "redis")]
pub use super::redis::read_replies as redis_replies;
use super::websocket;

/// A frame of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The id of the request, if it is one that this client could have sent.
    pub id: Option<u64>,
    /// The JSON-RPC response.
    pub json: Bytes,
    /// The number of the event.
    pub event: Option<Arc<str>>,
    /// Whether it is the last frame of the response.
    pub is_final: bool,
    /// Whether the response has a result.
    pub has_result: bool,
    /// Whether the response has an error.
    pub has_error: bool,
}

impl From<IncomingFrame> for Frame {
    fn from(frame: IncomingFrame) -> Self {
        let IncomingFrame { id, json, event, is_final, has_result, has_error } = frame;
        Self { id, json, event, is_final, has_result, has_error }
    }
}

/// The frames in a stream of lines, and whether the stream was read to its end. It needs a tokio runtime.
pub async fn lines(stream: impl AsyncRead + Unpin, max_line: usize) -> (Vec<Frame>, bool) {
    let mut source = LineSource::new(stream, LineLimits::of(max_line, Duration::from_secs(60)));
    let mut frames = Vec::new();
    loop {
        match source.frame().await {
            Ok(Some(Incoming::Frame(frame))) => frames.push(frame.into()),
            Ok(Some(Incoming::Alive)) => {}
            Ok(None) => return (frames, true),
            Err(_) => return (frames, false),
        }
    }
}

/// The frame in a message of a WebSocket, if it is one.
pub fn websocket_message(message: &Bytes) -> Option<Frame> {
    match websocket::read(message) {
        Ok(Incoming::Frame(frame)) => Some(frame.into()),
        Ok(Incoming::Alive) | Err(_) => None,
    }
}
