//! JSON-RPC in lines: one JSON object per line in, one per line out.
//!
//! A stream is one line per event, and then `{"jsonrpc":"2.0","id":ID,"final":true}`. The error that ends a stream has the member
//! `final` itself. Requests on one connection are processed at the same time, so that a task can be canceled while another request
//! waits for it.
//!
//! A line that has begun must be complete in the time for a body. Until then it counts as a request that waits for its body, so that
//! clients that send half a line do not use more memory than those that send half a body.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use attache_protocol::{Error, ErrorKind};
use bytes::{Buf, Bytes, BytesMut};
use futures::stream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::exchange::{Channel, Frame, FrameKind};
use super::idle::Member;
use super::multiplex::{Received, answer_all};
use super::outgoing::{Unwritten, outgoing};
use crate::limits::load::{self, InFlight, Waiting};

/// How much is read from a connection at once.
const READ: usize = 16 * 1024;

/// How much is written to a connection at once, if so much waits.
const WRITE: usize = 64 * 1024;

/// Serves one connection until the client closes it or the server stops.
///
/// `gone` completes when the client has closed both directions, as far as the stream can tell.
pub(super) async fn serve<S>(stream: S, channel: &Channel, member: &Member, gone: impl Future<Output = ()>)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (reader, writer) = tokio::io::split(stream);
    let (lines, unwritten) = outgoing(encode);
    let reader = LineReader::new(reader, channel);
    let received =
        stream::unfold(
            reader,
            |mut reader| async move { reader.next().await.map(|received| (received, reader)) },
        );
    let mut writing = pin!(write(writer, unwritten));
    tokio::select! {
        biased;
        () = answer_all(channel, Some(member), received, gone, lines) => {}
        // The client does not read any more: its requests and streams end. Tasks go on.
        () = &mut writing => return,
    }
    if !member.is_evicted() {
        tokio::select! {
            () = writing => {}
            () = member.closing() => {}
        }
    }
}

/// A frame as a line.
fn encode(frame: Frame) -> Vec<u8> {
    let mut line = frame.payload;
    match frame.kind {
        FrameKind::Response | FrameKind::Event => {}
        FrameKind::Failure | FrameKind::End => {
            if line.pop_if(|last| *last == b'}').is_some() {
                line.extend_from_slice(b",\"final\":true}");
            }
        }
    }
    line.push(b'\n');
    line
}

/// Writes lines until there are no more, or the client does not accept them. Lines that wait together are written together.
async fn write(mut writer: impl AsyncWrite + Unpin, mut unwritten: mpsc::Receiver<Unwritten<Vec<u8>>>) {
    while let Some(Unwritten { frame: mut lines, .. }) = unwritten.recv().await {
        while lines.len() < WRITE
            && let Ok(line) = unwritten.try_recv()
        {
            lines.extend_from_slice(&line.frame);
        }
        if writer.write_all(&lines).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

/// Reads lines of limited length.
struct LineReader<'a, R> {
    reader: R,
    channel: &'a Channel,
    read: BytesMut,
    /// How much of `read` has no line break in it.
    searched: usize,
    limit: usize,
    timeout: Duration,
    /// The line that has begun: when it must be complete, and its count.
    begun: Option<(Instant, (InFlight, Waiting))>,
    is_over: bool,
}

impl<'a, R: AsyncRead + Unpin> LineReader<'a, R> {
    fn new(reader: R, channel: &'a Channel) -> Self {
        let options = channel.http.options();
        let (limit, timeout) = (options.max_body, options.body_timeout);
        let (read, searched) = (BytesMut::new(), 0);
        Self { reader, channel, read, searched, limit, timeout, begun: None, is_over: false }
    }

    /// The next line. `None` at the end of the connection.
    async fn next(&mut self) -> Option<Received> {
        loop {
            if let Some(line) = self.line() {
                self.begun = None;
                return Some(match line.trim_ascii().is_empty() {
                    true => Received::Nothing,
                    false => self.within(line),
                });
            }
            if self.is_over {
                return None;
            }
            if self.read.len() > self.limit {
                self.is_over = true;
                return Some(Received::Broken(too_long(self.limit)));
            }
            self.read.reserve(READ);
            let is_empty = self.read.is_empty();
            let mut reading = pin!(self.reader.read_buf(&mut self.read));
            // The rest of a line is often there already. Then there is nothing to wait for, and nothing to count.
            let read = match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
                Poll::Ready(read) => read,
                Poll::Pending if is_empty => reading.await,
                Poll::Pending => {
                    if self.begun.is_none() {
                        match self.channel.http.dispatcher().load().wait_for_rest() {
                            Some(waiting) => self.begun = Some((Instant::now() + self.timeout, waiting)),
                            None => {
                                self.is_over = true;
                                return Some(Received::Broken(load::too_many()));
                            }
                        }
                    }
                    let until = self.begun.as_ref().map_or_else(Instant::now, |(until, _)| *until);
                    match tokio::time::timeout_at(until, reading).await {
                        Ok(read) => read,
                        Err(_) => {
                            self.is_over = true;
                            return Some(Received::Broken(too_slow(self.timeout)));
                        }
                    }
                }
            };
            let count = read.ok()?;
            if count == 0 {
                // The last line may have no line break.
                self.is_over = true;
                let rest = self.read.split().freeze();
                self.searched = 0;
                self.begun = None;
                return (!rest.trim_ascii().is_empty()).then(|| self.within(rest));
            }
        }
    }

    /// The next line of what was read.
    fn line(&mut self) -> Option<Bytes> {
        let Some(at) = memchr::memchr(b'\n', &self.read[self.searched..]) else {
            self.searched = self.read.len();
            return None;
        };
        let line = self.read.split_to(self.searched + at);
        self.read.advance(1);
        self.searched = 0;
        Some(line.freeze())
    }

    fn within(&mut self, line: Bytes) -> Received {
        match line.len() > self.limit {
            false => Received::Request(line),
            true => {
                self.is_over = true;
                Received::Broken(too_long(self.limit))
            }
        }
    }
}

fn too_long(limit: usize) -> Error {
    let text = format!("the line is longer than {limit} bytes");
    Error::new(ErrorKind::PayloadTooLarge, text).with("limit", limit)
}

fn too_slow(timeout: Duration) -> Error {
    let text = format!("the line did not arrive within {} s", timeout.as_secs_f64());
    Error::new(ErrorKind::InvalidRequest, text)
}
