//! Server-sent events: each with the number of its event as its id, many in one write when they are ready together.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use attache_core::{EventStream, StreamItem, View};
use attache_protocol::dialect::HttpDialect;
use attache_protocol::{Dialect, Error, dialect, jsonrpc};
use bytes::Bytes;
use futures::Stream;
use tokio::time::{Instant, Sleep};

/// How much is written at once to a reader that has much to catch up with.
const FRAME: usize = 64 * 1024;

/// What stands around each event.
pub(crate) enum Envelope {
    /// A JSON-RPC response to this id, in the words of 1.0 or of a dialect before it.
    JsonRpc(jsonrpc::Id, Option<(Dialect, dialect::EventWriter)>),
    /// Nothing, in the words of 1.0 or of 0.3.
    Plain(Option<HttpDialect>),
}

/// The body of a stream.
pub(crate) struct Events {
    stream: EventStream,
    waiting: VecDeque<StreamItem>,
    view: View,
    envelope: Envelope,
    prefix: Box<[u8]>,
    heartbeat: Duration,
    silence: Pin<Box<Sleep>>,
    over: bool,
}

impl Events {
    pub(crate) fn new(stream: EventStream, view: View, envelope: Envelope, heartbeat: Duration) -> Self {
        let mut prefix = Vec::new();
        if let Envelope::JsonRpc(id, _) = &envelope {
            jsonrpc::write_result_prefix(id, &mut prefix);
        }
        let prefix = prefix.into();
        let silence = Box::pin(tokio::time::sleep(heartbeat));
        Self { stream, waiting: VecDeque::new(), view, envelope, prefix, heartbeat, silence, over: false }
    }

    pub(crate) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.waiting.is_empty() && !self.over {
            match Pin::new(&mut self.stream).poll_next(cx) {
                Poll::Ready(Some(Ok(items))) => self.waiting.extend(items),
                Poll::Ready(Some(Err(error))) => {
                    self.over = true;
                    return Poll::Ready(Some(self.write_error(&error)));
                }
                Poll::Ready(None) => self.over = true,
                Poll::Pending => {
                    if self.silence.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.rest();
                    // Polled once more so that the next heartbeat wakes this task too.
                    let _ = self.silence.as_mut().poll(cx);
                    // Without an empty line after it: some clients take that for an event with no data, and fail to read it.
                    return Poll::Ready(Some(Bytes::from_static(b": still here\n")));
                }
            }
        }
        if self.waiting.is_empty() {
            return Poll::Ready(None);
        }
        let mut out = Vec::with_capacity(512);
        while out.len() < FRAME
            && let Some(item) = self.waiting.pop_front()
        {
            self.write(&item, &mut out);
        }
        self.rest();
        Poll::Ready(Some(out.into()))
    }

    fn rest(&mut self) {
        self.silence.as_mut().reset(Instant::now() + self.heartbeat);
    }

    fn write(&mut self, item: &StreamItem, out: &mut Vec<u8>) {
        if let Some(seq) = item.seq() {
            out.extend_from_slice(b"id: ");
            out.extend_from_slice(itoa::Buffer::new().format(seq.0).as_bytes());
            out.push(b'\n');
        }
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&self.prefix);
        match &mut self.envelope {
            Envelope::JsonRpc(_, None) => {
                item.write(self.view, out);
                out.extend_from_slice(jsonrpc::RESULT_SUFFIX.as_bytes());
            }
            Envelope::JsonRpc(_, Some((_, events))) => {
                match item.to_response(self.view) {
                    Some(event) => events.write(&event, out),
                    None => out.extend_from_slice(b"null"),
                }
                out.extend_from_slice(jsonrpc::RESULT_SUFFIX.as_bytes());
            }
            Envelope::Plain(None) => item.write(self.view, out),
            Envelope::Plain(Some(dialect)) => match item.to_response(self.view) {
                Some(event) => dialect.write_event(&event, out),
                None => out.extend_from_slice(b"null"),
            },
        }
        out.extend_from_slice(b"\n\n");
    }

    fn write_error(&self, error: &Error) -> Bytes {
        let mut out = b"event: error\ndata: ".to_vec();
        match &self.envelope {
            Envelope::JsonRpc(id, None) => out.extend_from_slice(&jsonrpc::error_response(id, error)),
            Envelope::JsonRpc(id, Some((dialect, _))) => {
                out.extend_from_slice(&dialect.error_response(id, error));
            }
            Envelope::Plain(None) => out.extend_from_slice(&crate::reply::http_error_body(error)),
            Envelope::Plain(Some(dialect)) => out.extend_from_slice(&dialect.error_response(error).1),
        }
        out.extend_from_slice(b"\n\n");
        out.into()
    }
}
