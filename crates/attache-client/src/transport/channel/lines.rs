//! JSON-RPC in lines: one JSON object per line in each direction.
//!
//! A stream is one line per event, and then `{"jsonrpc":"2.0","id":ID,"final":true}`. Service parameters and credentials are in the member
//! `headers` of a request.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use super::duplex::{FrameSink, FrameSource, Incoming, Loss, ResponseHead};
use crate::ClientOptions;

/// What limits a line of an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineLimits {
    /// The largest line, in bytes.
    max_line: usize,
    /// How long the rest of a line may take, from one piece to the next.
    stall: Duration,
}

impl LineLimits {
    pub(super) fn new(options: &ClientOptions) -> Self {
        Self::of(options.max_body.max(options.max_event), options.call_timeout)
    }

    pub(super) fn of(max_line: usize, stall: Duration) -> Self {
        Self { max_line, stall }
    }
}

/// Reads lines.
pub(super) struct LineSource<R> {
    reader: BufReader<R>,
    limits: LineLimits,
    /// The part of the current line that has arrived.
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> LineSource<R> {
    pub(super) fn new(reader: R, limits: LineLimits) -> Self {
        Self { reader: BufReader::new(reader), limits, line: Vec::new() }
    }

    /// The next line; nothing at the end.
    pub(super) async fn line(&mut self) -> Result<Option<Bytes>, Loss> {
        loop {
            let filling = self.reader.fill_buf();
            let chunk = if self.line.is_empty() {
                filling.await
            } else {
                tokio::time::timeout(self.limits.stall, filling).await.map_err(|_| {
                    let stall = self.limits.stall.as_secs_f64();
                    Loss::Broken(format!("the agent stopped in the middle of a line for {stall} s"))
                })?
            };
            let chunk = chunk.map_err(|error| Loss::Broken(error.to_string()))?;
            if chunk.is_empty() {
                return match self.line.is_empty() {
                    true => Ok(None),
                    false => Err(Loss::Broken(
                        "the agent closed the connection in the middle of a line".to_owned(),
                    )),
                };
            }
            let end = memchr::memchr(b'\n', chunk);
            let piece = &chunk[..end.unwrap_or(chunk.len())];
            if piece.len() > self.limits.max_line - self.line.len() {
                return Err(Loss::TooLarge { limit: self.limits.max_line });
            }
            self.line.extend_from_slice(piece);
            let consumed = piece.len() + usize::from(end.is_some());
            self.reader.consume(consumed);
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                if !line.trim_ascii().is_empty() {
                    return Ok(Some(line.into()));
                }
            }
        }
    }

    /// The next frame; nothing at the end.
    pub(super) async fn frame(&mut self) -> Result<Option<Incoming>, Loss> {
        let Some(line) = self.line().await? else { return Ok(None) };
        let frame = ResponseHead::read(&line)?.frame(line.clone());
        Ok(Some(Incoming::Frame(frame)))
    }
}

impl<R: AsyncRead + Unpin + Send> FrameSource for LineSource<R> {
    fn next(&mut self) -> BoxFuture<'_, Result<Incoming, Loss>> {
        Box::pin(async move {
            self.frame().await?.ok_or_else(|| Loss::Broken("the agent closed the connection".to_owned()))
        })
    }
}

/// Writes lines.
pub(super) struct LineSink<W>(pub(super) W);

impl<W: AsyncWrite + Unpin + Send> FrameSink for LineSink<W> {
    fn send(&mut self, mut json: Vec<u8>) -> BoxFuture<'_, Result<(), Loss>> {
        Box::pin(async move {
            // Line breaks between the members of a forwarded request would end the line.
            json.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
            json.push(b'\n');
            let written = async {
                self.0.write_all(&json).await?;
                self.0.flush().await
            };
            written.await.map_err(|error| Loss::Broken(error.to_string()))
        })
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = self.0.shutdown().await;
        })
    }
}
