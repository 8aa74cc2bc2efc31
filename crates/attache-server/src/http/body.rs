//! Bodies: read with limits, and written from bytes, events or gRPC frames.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use attache_core::Permit;
use attache_protocol::{Error, ErrorKind};
use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use super::sse::SseBody;
use crate::limits::load::InFlight;
use crate::request_log::RequestLine;
use crate::transport::idle::Busy;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BodyError(Box<dyn std::error::Error + Send + Sync>);

impl BodyError {
    pub(crate) fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(error.into())
    }

    /// The error that the client gets.
    fn into_error(self) -> Error {
        // An error of this server is reported as it is.
        let broken_off = |_| Error::new(ErrorKind::InvalidRequest, "the body broke off");
        self.0.downcast::<Error>().map_or_else(broken_off, |error| *error)
    }
}

/// A body of any kind.
pub type BoxBody = UnsyncBoxBody<Bytes, BodyError>;

/// The body of a response.
pub struct Body {
    kind: Kind,
    shape: Shape,
    /// Held until the body is written.
    guards: (Option<InFlight>, Option<Permit>, Option<Busy>),
    /// Logged when the body is written.
    line: Option<Box<RequestLine>>,
}

/// How long a body lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As long as it takes to send it.
    Whole,
    /// As long as there are events.
    Stream,
}

enum Kind {
    Full(Option<Bytes>),
    Events(Box<SseBody>),
    #[cfg(feature = "grpc")]
    Grpc(tonic::body::Body),
    Other(BoxBody),
}

impl Body {
    fn new(kind: Kind) -> Self {
        Self { kind, shape: Shape::Whole, guards: (None, None, None), line: None }
    }

    /// A body of bytes.
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        Self::new(Kind::Full(Some(bytes.into())))
    }

    /// No body.
    pub(crate) fn empty() -> Self {
        Self::new(Kind::Full(None))
    }

    pub(crate) fn events(events: SseBody) -> Self {
        Self { shape: Shape::Stream, ..Self::new(Kind::Events(Box::new(events))) }
    }

    #[cfg(feature = "grpc")]
    pub(crate) fn grpc(shape: Shape, body: tonic::body::Body) -> Self {
        Self { shape, ..Self::new(Kind::Grpc(body)) }
    }

    pub(crate) fn other(body: BoxBody) -> Self {
        Self::new(Kind::Other(body))
    }

    /// A body that lasts as long as there are events.
    pub(crate) fn stream(body: BoxBody) -> Self {
        Self { shape: Shape::Stream, ..Self::other(body) }
    }

    /// Counts the request as in flight until the body is written. The permit is kept as long, unless the body is a stream.
    pub(crate) fn counted(mut self, in_flight: Option<InFlight>, permit: Option<Permit>) -> Self {
        self.guards.0 = in_flight;
        self.guards.1 = permit.filter(|_| self.is_whole());
        self
    }

    /// Whether the body lasts no longer than it takes to send it.
    pub(crate) fn is_whole(&self) -> bool {
        self.shape == Shape::Whole
    }

    /// Logs the request when the body is written.
    pub(crate) fn logged(mut self, line: Box<RequestLine>) -> Self {
        self.line = Some(line);
        self
    }

    /// Counts the connection as busy until the body is written.
    pub(crate) fn until_written(mut self, busy: Busy) -> Self {
        self.guards.2 = Some(busy);
        self
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = match &mut self.kind {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Events(events) => {
                events.poll_bytes(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            #[cfg(feature = "grpc")]
            Kind::Grpc(body) => Pin::new(body).poll_frame(cx).map_err(BodyError::new),
            Kind::Other(body) => Pin::new(body).poll_frame(cx),
        };
        if let (Poll::Ready(Some(Ok(frame))), Some(line)) = (&polled, &mut self.line) {
            line.written(frame.data_ref().map_or(0, Bytes::len));
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Full(bytes) => bytes.is_none(),
            Kind::Events(_) => false,
            #[cfg(feature = "grpc")]
            Kind::Grpc(body) => body.is_end_stream(),
            Kind::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Events(_) => SizeHint::default(),
            #[cfg(feature = "grpc")]
            Kind::Grpc(body) => body.size_hint(),
            Kind::Other(body) => body.size_hint(),
        }
    }
}

/// Reads a whole body of up to `limit` bytes within `timeout`.
pub(crate) async fn read<B>(body: B, limit: usize, timeout: Duration) -> Result<Bytes, Error>
where
    B: http_body::Body<Data = Bytes, Error = BodyError>,
{
    read_announced(body, limit, timeout, |_| 0).await
}

/// The error for a body that is larger than the limit.
pub(crate) fn too_large(limit: usize) -> Error {
    Error::new(ErrorKind::PayloadTooLarge, format!("the body is larger than {limit} bytes"))
        .with("limit", limit)
}

/// The same for a body whose first bytes announce how long it is: one that announces too much is refused at once.
pub(crate) async fn read_announced<B>(
    body: B,
    limit: usize,
    timeout: Duration,
    announced_by: fn(&[u8]) -> usize,
) -> Result<Bytes, Error>
where
    B: http_body::Body<Data = Bytes, Error = BodyError>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    // No more memory is reserved than was announced and is allowed.
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(limit);
    let mut body = std::pin::pin!(body);
    let whole = async {
        let mut first = Bytes::new();
        let mut rest: Option<BytesMut> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(BodyError::into_error)?;
            let Ok(data) = frame.into_data() else { continue };
            let read = rest.as_ref().map_or(first.len(), BytesMut::len);
            if read + data.len() > limit || read == 0 && announced_by(&data) > limit {
                return Err(too_large(limit));
            }
            if read == 0 {
                first = data;
            } else {
                let rest = rest.get_or_insert_with(|| {
                    let mut whole = BytesMut::with_capacity(announced.max(first.len() + data.len()));
                    whole.extend_from_slice(&first);
                    whole
                });
                rest.extend_from_slice(&data);
            }
        }
        Ok(rest.map_or(first, BytesMut::freeze))
    };
    // Created lazily: most bodies arrive with their head, and a timer costs more than that.
    let late = async { tokio::time::sleep(timeout).await };
    tokio::select! {
        biased;
        result = whole => result,
        () = late => {
            let text = format!("the body did not arrive within {} s", timeout.as_secs_f64());
            Err(Error::new(ErrorKind::InvalidRequest, text))
        }
    }
}
