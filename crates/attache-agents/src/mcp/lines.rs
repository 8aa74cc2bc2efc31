//! JSON-RPC in lines, over the standard input and output of a program.

use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ErrorCode, ErrorData, NumberOrString, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Mutex;

use crate::child::LogLimit;

/// The code of errors that stand for a response that was too large.
pub(super) const TOO_LARGE: ErrorCode = ErrorCode(-32_090);

/// The code of errors that stand for a response that cannot be read.
pub(super) const UNREADABLE: ErrorCode = ErrorCode(-32_091);

/// How much of a line that is too long is kept at both ends, in bytes, to find the request that it answers.
pub(super) const KEPT: usize = 256;

/// How many lines in a row may not be messages. Then the program is not an MCP server.
const MAX_GARBAGE: usize = 1_000;

/// The pipes of a program.
pub(super) struct Lines<R, W> {
    input: Arc<Mutex<Option<W>>>,
    output: R,
    line: Vec<u8>,
    /// The last bytes of a line that is too long.
    tail: Option<Vec<u8>>,
    max_line: usize,
    garbage: usize,
    /// Bounds what is logged about lines that are not messages.
    limit: LogLimit,
    server: String,
}

impl<R, W> Lines<R, W> {
    pub(super) fn new(output: R, input: W, max_line: usize, server: String) -> Self {
        let input = Arc::new(Mutex::new(Some(input)));
        let (line, limit) = (Vec::new(), LogLimit::default());
        Self { input, output, line, tail: None, max_line, garbage: 0, limit, server }
    }

    /// How much of an incomplete line is kept, in bytes.
    pub(super) fn kept(&self) -> usize {
        self.line.len() + self.tail.as_ref().map_or(0, Vec::len)
    }

    /// Takes a line that is complete.
    fn take(&mut self) -> Option<ServerJsonRpcMessage> {
        let line = std::mem::take(&mut self.line);
        if let Some(tail) = self.tail.take() {
            return self.too_long(&line, &tail);
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            return None;
        }
        match serde_json::from_slice(text) {
            Ok(message) => {
                self.garbage = 0;
                Some(message)
            }
            Err(error) => self.unreadable(text, &error),
        }
    }

    /// The error for the call whose response is too large. Other calls go on.
    fn too_long(&self, head: &[u8], tail: &[u8]) -> Option<ServerJsonRpcMessage> {
        let (server, limit) = (&self.server, self.max_line);
        let id = find_id(head, tail);
        tracing::warn!(target: "attache::mcp", server, limit, ?id, "an MCP server sent a line that is too long");
        Some(ServerJsonRpcMessage::error(ErrorData::new(TOO_LARGE, "too large", None), Some(id?)))
    }

    /// A line that is not a message is logged. If it answers a call, the call fails at once.
    fn unreadable(&mut self, line: &[u8], error: &serde_json::Error) -> Option<ServerJsonRpcMessage> {
        self.garbage += 1;
        let shown: String =
            String::from_utf8_lossy(line).chars().filter(|c| !c.is_control()).take(200).collect();
        let server = &self.server;
        if let Some(report) = self.limit.report() {
            tracing::warn!(target: "attache::mcp", server, "lines that are not messages: {report}");
        }
        if self.limit.has_room_for(shown.len()) {
            tracing::warn!(target: "attache::mcp", server, %error, line = shown, "an MCP server wrote a line that is not a message");
        }
        let value: Value = serde_json::from_slice(line).ok()?;
        let id = match (value.get("id")?, value.get("method")) {
            (Value::Number(id), None) => NumberOrString::Number(id.as_i64()?),
            _ => return None,
        };
        Some(ServerJsonRpcMessage::error(ErrorData::new(UNREADABLE, "unreadable", None), Some(id)))
    }
}

/// Finds the id of a response in its first or last bytes, where all known servers write it.
fn find_id(head: &[u8], tail: &[u8]) -> Option<RequestId> {
    let number = |text: &str| {
        let digits: String = text.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().map(NumberOrString::Number)
    };
    let head = String::from_utf8_lossy(&head[..head.len().min(KEPT)]).into_owned();
    // A result before the id can contain anything.
    let before_result = head.split("\"result\"").next().unwrap_or_default();
    if let Some((_, rest)) = before_result.split_once("\"id\":") {
        return number(rest);
    }
    let tail = String::from_utf8_lossy(tail).into_owned();
    let (_, rest) = tail.rsplit_once("\"id\":")?;
    rest.trim_end().ends_with('}').then(|| number(rest)).flatten()
}

impl<R, W> Transport<RoleClient> for Lines<R, W>
where
    R: AsyncBufRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let input = self.input.clone();
        async move {
            let mut line = serde_json::to_vec(&item)?;
            line.push(b'\n');
            let mut input = input.lock().await;
            let closed = || io::Error::new(io::ErrorKind::NotConnected, "the program has ended");
            let input = input.as_mut().ok_or_else(closed)?;
            input.write_all(&line).await?;
            input.flush().await
        }
    }

    /// Can be dropped at any time: what was read is kept for the next call.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if self.garbage >= MAX_GARBAGE {
                let server = &self.server;
                tracing::warn!(target: "attache::mcp", server, "the program does not write messages of MCP; it is stopped");
                return None;
            }
            let chunk = match self.output.fill_buf().await {
                Ok([]) => return None,
                Ok(chunk) => chunk,
                Err(error) => {
                    tracing::debug!(target: "attache::mcp", %error, "the output of an MCP server cannot be read");
                    return None;
                }
            };
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(chunk.len(), |end| end + 1);
            let piece = &chunk[..end.unwrap_or(count)];
            if self.tail.is_none() && self.line.len() + piece.len() <= self.max_line {
                self.line.extend_from_slice(piece);
            } else {
                // Only both ends are kept.
                let tail = self
                    .tail
                    .get_or_insert_with(|| self.line[self.line.len().saturating_sub(KEPT)..].to_vec());
                let missing = KEPT.saturating_sub(self.line.len());
                self.line.extend_from_slice(&piece[..piece.len().min(missing)]);
                self.line.truncate(KEPT);
                self.line.shrink_to_fit();
                tail.extend_from_slice(&piece[piece.len().saturating_sub(KEPT)..]);
                let excess = tail.len().saturating_sub(KEPT);
                tail.drain(..excess);
            }
            self.output.consume(count);
            if end.is_some()
                && let Some(message) = self.take()
            {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // A write that is stuck holds the lock. The process is killed, which ends the write.
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::JsonRpcMessage;

    use super::*;

    async fn received(output: &str, max_line: usize) -> Vec<ServerJsonRpcMessage> {
        let mut lines = Lines::new(output.as_bytes(), tokio::io::sink(), max_line, "test".into());
        let mut messages = Vec::new();
        while let Some(message) = lines.receive().await {
            messages.push(message);
        }
        messages
    }

    fn errors(messages: &[ServerJsonRpcMessage]) -> Vec<(i32, String)> {
        let errors = messages.iter().filter_map(|message| match message {
            JsonRpcMessage::Error(error) => Some((error.error.code.0, error.id.as_ref()?.to_string())),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Response(_) | JsonRpcMessage::Notification(_) => {
                None
            }
        });
        errors.collect()
    }

    #[tokio::test]
    async fn lines_that_are_not_messages_are_skipped() {
        let output = "hello\n\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n[]\n{\"a\":\n";
        let messages = received(output, 1000).await;
        assert_eq!(messages.len(), 1);
        assert!(matches!(messages[0], JsonRpcMessage::Response(_)));
    }

    #[tokio::test]
    async fn a_response_that_cannot_be_read_fails_its_call_at_once() {
        let messages = received("{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":\"wrong\"}\n", 1000).await;
        assert_eq!(errors(&messages), [(UNREADABLE.0, "7".to_owned())]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_fails_its_call_wherever_the_id_is() {
        let long = "x".repeat(5_000);
        let first = format!("{{\"jsonrpc\":\"2.0\",\"id\":12,\"result\":{{\"t\":\"{long}\"}}}}\n");
        let last = format!("{{\"result\":{{\"t\":\"{long}\"}},\"jsonrpc\":\"2.0\",\"id\":13}}\n");
        let good = "{\"jsonrpc\":\"2.0\",\"id\":14,\"result\":{}}\n";
        for limit in [10, 100, 1_000] {
            let messages = received(&format!("{first}{last}{good}"), limit).await;
            let expected = [(TOO_LARGE.0, "12".to_owned()), (TOO_LARGE.0, "13".to_owned())];
            assert_eq!(errors(&messages)[..2], expected, "{limit}");
        }
    }

    #[tokio::test]
    async fn the_id_of_a_line_that_is_too_long_is_found_in_any_pieces() {
        let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":12,\"result\":\"{}\"}}\n", "x".repeat(1_000));
        for size in [1, 7, 5_000] {
            let output = tokio::io::BufReader::with_capacity(size, long.as_bytes());
            let mut lines = Lines::new(output, tokio::io::sink(), 10, "test".into());
            let message = lines.receive().await.unwrap();
            assert_eq!(errors(&[message]), [(TOO_LARGE.0, "12".to_owned())], "{size}");
        }
    }

    #[tokio::test]
    async fn a_program_that_never_writes_a_message_is_given_up() {
        assert_eq!(MAX_GARBAGE, 1_000);
        let message = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n";
        let count = async |lines: usize| received(&("hello\n".repeat(lines) + message), 1000).await.len();
        assert_eq!((count(999).await, count(1_000).await), (1, 0));
    }
}
