//! The body of a response to an HTTP trigger.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use crate::ChannelItem;
use crate::engine::channels::Channels;

/// The body of a response: bytes, or a stream that the function writes.
pub struct HttpBody(Kind);

enum Kind {
    Full(Option<Bytes>),
    Stream { first: Option<Bytes>, items: mpsc::Receiver<ChannelItem>, _guard: RequestGuard },
}

/// A request that is being handled. It is counted, and its channels stay open, until it is dropped.
pub(super) struct RequestGuard {
    counter: Arc<AtomicUsize>,
    all: Arc<Channels>,
    pub(super) channels: Vec<String>,
}

impl RequestGuard {
    pub(super) fn new(counter: Arc<AtomicUsize>, all: Arc<Channels>) -> Self {
        Self { counter, all, channels: Vec::new() }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.counter.fetch_sub(1, Ordering::Relaxed);
        for id in &self.channels {
            self.all.remove(id);
        }
    }
}

impl HttpBody {
    pub(super) fn empty() -> Self {
        Self(Kind::Full(None))
    }

    pub(super) fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Kind::Full(Some(bytes.into())))
    }

    pub(super) fn stream(first: Bytes, items: mpsc::Receiver<ChannelItem>, guard: RequestGuard) -> Self {
        Self(Kind::Stream { first: Some(first), items, _guard: guard })
    }
}

impl From<String> for HttpBody {
    fn from(text: String) -> Self {
        Self::full(text)
    }
}

impl Body for HttpBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream { first, items, .. } => {
                if let Some(first) = first.take() {
                    return Poll::Ready(Some(Ok(Frame::data(first))));
                }
                loop {
                    match ready!(items.poll_recv(cx)) {
                        Some(ChannelItem::Bytes(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                        // The head has been sent already.
                        Some(ChannelItem::Text(_)) => {}
                        None => return Poll::Ready(None),
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_none(),
            Kind::Stream { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Stream { .. } => SizeHint::default(),
        }
    }
}
