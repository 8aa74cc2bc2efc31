//! How many requests the server processes, and how many of them only wait for their bodies.
//!
//! A client can keep a request open at no cost by not sending its body. Such requests are counted separately, so that they do not displace
//! complete ones.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use attache_protocol::{Error, ErrorKind};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::http::body::BodyError;
use crate::transport::idle::Activity;

/// Counts the requests of a server.
#[derive(Debug)]
pub(crate) struct Load {
    /// The limit on requests that are processed at once. As many again may wait for their bodies.
    limit: usize,
    /// All requests.
    requests: AtomicUsize,
    /// Requests that wait for their bodies.
    waiting: AtomicUsize,
    /// How many requests have begun since the start.
    begun: AtomicU64,
}

impl Load {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            requests: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
        })
    }

    /// Counts a request. `None` if the limit is reached.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<InFlight> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let before = self.requests.fetch_add(1, Ordering::Relaxed);
        let request = InFlight(self.clone());
        // A request beyond the limit is dropped here, which uncounts it.
        (before.saturating_sub(self.waiting.load(Ordering::Relaxed)) < self.limit).then_some(request)
    }

    /// The number of requests, with those that wait for their bodies.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// How many requests have begun since the start.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Counts a request that waits for its body. `None` if the limit is reached.
    fn wait(self: &Arc<Self>, connection: Option<&Arc<Activity>>) -> Option<Waiting> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting::new(self.clone(), connection.cloned());
        (before < self.limit).then_some(waiting)
    }
}

impl Load {
    /// Counts a request of which only a part has arrived, on a connection that carries frames. `None` if the limit is reached.
    pub(crate) fn wait_for_rest(self: &Arc<Self>) -> Option<(InFlight, Waiting)> {
        // Counted among all requests too, as a request over HTTP is while it waits for its body.
        self.requests.fetch_add(1, Ordering::Relaxed);
        let request = InFlight(self.clone());
        self.wait(None).map(|waiting| (request, waiting))
    }
}

/// A request that is being processed; counted until dropped.
pub(crate) struct InFlight(Arc<Load>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that waits for its body; counted until dropped.
pub(crate) struct Waiting {
    load: Arc<Load>,
    connection: Option<Arc<Activity>>,
}

impl Waiting {
    fn new(load: Arc<Load>, connection: Option<Arc<Activity>>) -> Self {
        if let Some(connection) = &connection {
            connection.body_awaited();
        }
        Self { load, connection }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.load.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(connection) = &self.connection {
            connection.body_arrived();
        }
    }
}

/// When a client should try again. The server cannot know when a request ends.
const SOON: Duration = Duration::from_secs(1);

/// The error for a request beyond the limit.
pub(crate) fn too_many() -> Error {
    let error = Error::new(ErrorKind::Unavailable, "too many requests at once, try again in a moment");
    error.retry_in(SOON)
}

/// The error for a request on a connection beyond the limit.
pub(crate) fn too_many_connections() -> Error {
    let error = Error::new(ErrorKind::Unavailable, "too many connections at once, try again in a moment");
    error.retry_in(SOON)
}

pin_project! {
    /// A request body that is counted as waiting from the first time that no data is available until its end.
    pub(crate) struct CountedBody<B> {
        #[pin]
        body: B,
        load: Arc<Load>,
        connection: Option<Arc<Activity>>,
        waiting: Option<Waiting>,
    }
}

impl<B> CountedBody<B> {
    /// `connection` is the connection of this server that the request came over, if it did.
    pub(crate) fn new(body: B, load: Arc<Load>, connection: Option<Arc<Activity>>) -> Self {
        Self { body, load, connection, waiting: None }
    }
}

impl<B> http_body::Body for CountedBody<B>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut this = self.project();
        match this.body.as_mut().poll_frame(cx) {
            Poll::Pending => {
                if this.waiting.is_none() {
                    *this.waiting = this.load.wait(this.connection.as_ref());
                    if this.waiting.is_none() {
                        return Poll::Ready(Some(Err(BodyError::new(too_many()))));
                    }
                }
                Poll::Pending
            }
            Poll::Ready(frame) => {
                if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
                    *this.waiting = None;
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::new)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::Waker;

    use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
    use http_body::Body;
    use http_body_util::StreamBody;

    use super::*;

    type Piece = Result<Frame<Bytes>, Infallible>;
    type Pieces = CountedBody<StreamBody<UnboundedReceiver<Piece>>>;

    /// Polls a body once.
    fn poll(body: &mut Pieces) -> Poll<Option<Result<Bytes, String>>> {
        let mut cx = Context::from_waker(Waker::noop());
        let text = |frame: Result<Frame<Bytes>, BodyError>| {
            frame.map(|frame| frame.into_data().unwrap()).map_err(|error| error.to_string())
        };
        Pin::new(body).poll_frame(&mut cx).map(|frame| frame.map(text))
    }

    fn arriving(load: &Arc<Load>) -> (UnboundedSender<Piece>, Pieces) {
        let (sender, body) = unbounded();
        (sender, CountedBody::new(StreamBody::new(body), load.clone(), None))
    }

    #[test]
    fn requests_that_wait_for_their_bodies_take_no_place_of_those_that_are_complete() {
        let load = Load::new(1);
        let _slow = load.begin().unwrap();
        let (_sender, mut slow) = arriving(&load);
        assert!(load.begin().is_none(), "nobody knows yet that its body is not there");
        assert!(poll(&mut slow).is_pending());
        let complete = load.begin().unwrap();
        assert!(load.begin().is_none());
        drop(complete);
        drop(slow);
        assert!(load.begin().is_none(), "it is worked on again");
    }

    #[test]
    fn a_body_that_arrives_in_pieces_is_awaited_until_its_end() {
        let load = Load::new(1);
        let _slow = load.begin().unwrap();
        let (sender, mut slow) = arriving(&load);
        assert!(poll(&mut slow).is_pending());
        sender.unbounded_send(Ok(Frame::data(Bytes::from_static(b"one")))).unwrap();
        assert_eq!(poll(&mut slow), Poll::Ready(Some(Ok(Bytes::from_static(b"one")))));
        assert!(load.begin().is_some());
        drop(sender);
        assert_eq!(poll(&mut slow), Poll::Ready(None));
        assert!(load.begin().is_none());
    }

    #[test]
    fn as_many_requests_wait_for_their_bodies_as_are_worked_on_and_no_more() {
        let load = Load::new(1);
        let ((_one, mut first), (_other, mut second)) = (arriving(&load), arriving(&load));
        assert!(poll(&mut first).is_pending());
        let refused = Poll::Ready(Some(Err(too_many().to_string())));
        assert_eq!(poll(&mut second), refused);
        drop(first);
        assert!(poll(&mut second).is_pending());
    }
}
