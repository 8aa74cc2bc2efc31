//! Parsers of what MCP servers send, for fuzzing. Not part of the public API.

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::HeaderMap;
use rmcp::transport::Transport;
use tokio::io::AsyncBufRead;
use url::Url;

use super::LoginPlace;
use super::http::events;
use super::lines::Lines;
use super::login::read_login_place;

/// How much of a line is kept beyond its limit, in bytes: both of its ends.
pub const KEPT_ENDS: usize = 2 * super::lines::KEPT;

/// What was read from the output of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadLines {
    /// The messages, as JSON.
    pub messages: Vec<String>,
    /// The size of the incomplete line at the end, in bytes.
    pub kept: usize,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadEvent {
    /// Its type.
    pub event: Option<String>,
    /// Its data.
    pub data: Option<String>,
    /// Its id.
    pub id: Option<String>,
}

/// Reads the output of a program.
pub async fn lines(output: impl AsyncBufRead + Send + Unpin, max_line: usize) -> ReadLines {
    let mut lines = Lines::new(output, tokio::io::sink(), max_line, "test".to_owned());
    let mut messages = Vec::new();
    while let Some(message) = lines.receive().await {
        // A message can always be written.
        messages.push(serde_json::to_string(&message).unwrap_or_default());
    }
    ReadLines { messages, kept: lines.kept() }
}

/// The events of a stream before its first error, and whether there was one.
pub async fn server_events(
    pieces: impl IntoIterator<Item = Bytes, IntoIter: Send + 'static>,
    limit: usize,
) -> (Vec<ReadEvent>, bool) {
    let mut stream = events(stream::iter(pieces.into_iter().map(Ok)), limit);
    let mut read = Vec::new();
    while let Some(event) = stream.next().await {
        let Ok(event) = event else { return (read, true) };
        read.push(ReadEvent { event: event.event, data: event.data, id: event.id });
    }
    (read, false)
}

/// Where the metadata of a server can be, and where its callers log in according to a challenge and the metadata.
pub fn login_place(
    server: &Url,
    challenge: &HeaderMap,
    metadata: &[u8],
) -> Result<(Vec<Url>, LoginPlace), serde_json::Error> {
    read_login_place(server, challenge, metadata)
}
