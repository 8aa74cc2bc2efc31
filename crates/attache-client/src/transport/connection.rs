//! A stream of events over one connection.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use attache_protocol::{ErrorKind, StreamResponse};
use bytes::Bytes;
use futures::future::BoxFuture;
use reqwest::{Response, Url};

use super::channel::{ResponseFrame, Responses};
use super::grpc::Messages;
use super::reader::{DecodedEvent, Reader};
use super::sse::{Decoder, Frame, TooLarge};
use crate::http::{convert_error, with_timeout};
use crate::{ClientError, RemoteError};

/// One event of a stream.
#[derive(Debug)]
pub(crate) struct Event {
    /// The id to continue after.
    pub(crate) id: Option<Arc<str>>,
    pub(crate) response: StreamResponse,
    /// Whether the server says that this is the last event.
    pub(crate) is_last: bool,
}

/// What arrived in a stream.
#[derive(Debug)]
pub(crate) enum Received {
    Event(Event),
    /// Something that fits no event of any version, and why. The stream goes on.
    Unreadable(String),
}

/// A stream of events over one connection.
pub(crate) enum Connection {
    Sse(Box<SseStream>),
    Grpc(Box<GrpcStream>),
    Frames(Box<FrameStream>),
}

impl Connection {
    /// The next event; nothing at the end. Fails if nothing arrives within `silence`.
    pub(crate) async fn next(&mut self, silence: Duration) -> Result<Option<Received>, ClientError> {
        match self {
            Self::Sse(stream) => stream.next(silence).await,
            Self::Grpc(call) => call.next(silence).await,
            Self::Frames(stream) => stream.next(silence).await,
        }
    }
}

/// How long to wait for a server that sends its response head only with the first event. A refused subscription fails sooner.
const FIRST_RESPONSE_WAIT: Duration = Duration::from_secs(1);

/// A gRPC stream, with a message for each event.
pub(crate) struct GrpcStream {
    reader: Reader,
    progress: Progress,
}

/// A request that becomes the messages of a stream.
pub(super) type OpeningStream = BoxFuture<'static, Result<Messages, ClientError>>;

enum Progress {
    /// The server has not responded yet. Some servers respond only with their first event. The value is accessed only through
    /// `&mut`: the mutex makes the future `Sync` and is never locked.
    Opening(Mutex<OpeningStream>),
    Open(Box<Messages>),
    /// The stream could not be opened.
    Failed,
}

impl GrpcStream {
    /// Waits until the server has responded.
    pub(super) async fn open(reader: Reader, opening: OpeningStream) -> Result<Self, ClientError> {
        Ok(Self { reader, progress: Progress::Open(Box::new(opening.await?)) })
    }

    /// Waits a short time for the response, and returns a stream even if there is none yet.
    pub(super) async fn open_soon(reader: Reader, mut opening: OpeningStream) -> Result<Self, ClientError> {
        let progress = match tokio::time::timeout(FIRST_RESPONSE_WAIT, &mut opening).await {
            Ok(messages) => Progress::Open(Box::new(messages?)),
            Err(_) => Progress::Opening(Mutex::new(opening)),
        };
        Ok(Self { reader, progress })
    }

    async fn next(&mut self, silence: Duration) -> Result<Option<Received>, ClientError> {
        let message = with_timeout(silence, self.message()).await?;
        let Some(message) = message else { return Ok(None) };
        Ok(Some(match self.reader.decode_event(&message)? {
            DecodedEvent::Event { response, is_last } => {
                // gRPC has no event ids. The generation of the task serves as the id.
                let id = generation(&response).map(|number| number.to_string().into());
                Received::Event(Event { id, response, is_last })
            }
            DecodedEvent::Unreadable(why) => Received::Unreadable(why),
        }))
    }

    async fn message(&mut self) -> Result<Option<Bytes>, ClientError> {
        if let Progress::Opening(opening) = &mut self.progress {
            match opening.get_mut().unwrap_or_else(PoisonError::into_inner).await {
                Ok(messages) => self.progress = Progress::Open(Box::new(messages)),
                Err(error) => {
                    self.progress = Progress::Failed;
                    // At this point a failed connection counts as a broken stream.
                    let lost = matches!(error, ClientError::Connect { .. });
                    return Err(if lost { ClientError::Broken(error.to_string()) } else { error });
                }
            }
        }
        match &mut self.progress {
            Progress::Open(messages) => messages.next().await.map_err(cut_off),
            Progress::Opening(_) | Progress::Failed => Ok(None),
        }
    }
}

/// Converts the end of a stream. A proxy that loses the agent reports the same status as an agent that shuts down, but only the
/// agent adds a reason.
pub(super) fn cut_off(error: ClientError) -> ClientError {
    let unavailable = |it: &&RemoteError| it.kind == Some(ErrorKind::Unavailable) && it.reason.is_none();
    match error.remote().filter(unavailable) {
        Some(remote) => ClientError::Broken(remote.message.clone()),
        None => error,
    }
}

fn generation(response: &StreamResponse) -> Option<u64> {
    match response {
        StreamResponse::Task(task) => task.generation,
        StreamResponse::StatusUpdate(update) => update.generation,
        StreamResponse::ArtifactUpdate(update) => update.generation,
        StreamResponse::Message(_) => None,
    }
}

/// A stream over a channel, with a frame for each event.
pub(crate) struct FrameStream {
    reader: Reader,
    responses: Responses,
    /// The first frame, if it has arrived already.
    first: Option<ResponseFrame>,
}

impl FrameStream {
    /// Waits a short time for the first frame, so that a refused request fails here. Returns a stream even if there is none yet.
    pub(super) async fn open(reader: Reader, mut responses: Responses) -> Result<Self, ClientError> {
        let first = match tokio::time::timeout(FIRST_RESPONSE_WAIT, responses.next()).await {
            Ok(first) => first?,
            Err(_) => None,
        };
        if let Some(ResponseFrame { json, .. }) = &first {
            // An error instead of an event. An event that cannot be read is reported when it is read.
            if let Err(error @ ClientError::Remote(_)) = reader.decode_event(json) {
                return Err(error);
            }
        }
        Ok(Self { reader, responses, first })
    }

    async fn next(&mut self, silence: Duration) -> Result<Option<Received>, ClientError> {
        let frame = match self.first.take() {
            Some(first) => Some(first),
            None => with_timeout(silence, self.responses.next()).await?,
        };
        let Some(ResponseFrame { json, event }) = frame else { return Ok(None) };
        Ok(Some(match self.reader.decode_event(&json)? {
            DecodedEvent::Event { response, is_last } => {
                let id = event.or_else(|| generation(&response).map(|number| number.to_string().into()));
                Received::Event(Event { id, response, is_last })
            }
            DecodedEvent::Unreadable(why) => Received::Unreadable(why),
        }))
    }
}

/// A stream of server-sent events.
pub(crate) struct SseStream {
    url: Url,
    reader: Reader,
    response: Response,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    max_event: usize,
    too_large: bool,
}

impl SseStream {
    pub(super) fn new(url: Url, reader: Reader, response: Response, max_event: usize) -> Self {
        let decoder = Decoder::new(max_event);
        Self { url, reader, response, decoder, frames: VecDeque::new(), max_event, too_large: false }
    }

    async fn next(&mut self, silence: Duration) -> Result<Option<Received>, ClientError> {
        loop {
            if let Some(Frame { id, data }) = self.frames.pop_front() {
                return Ok(Some(match self.reader.decode_event(&data)? {
                    DecodedEvent::Event { response, is_last } => {
                        Received::Event(Event { id, response, is_last })
                    }
                    DecodedEvent::Unreadable(why) => Received::Unreadable(why),
                }));
            }
            if self.too_large {
                return Err(ClientError::TooLarge { limit: self.max_event });
            }
            let (url, response) = (&self.url, &mut self.response);
            let chunk = async { response.chunk().await.map_err(|error| convert_error(url, &error)) };
            let Some(chunk) = with_timeout(silence, chunk).await? else { return Ok(None) };
            self.too_large = self.decoder.feed(&chunk, &mut self.frames) == Err(TooLarge);
        }
    }
}
