//! A stream of events, for as long as its connection holds.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use attache_protocol::{ErrorKind, StreamResponse};
use bytes::Bytes;
use futures::future::BoxFuture;
use reqwest::{Response, Url};

use super::grpc::Messages;
use super::reader::{Reader, Told};
use super::sse::{Decoder, Frame, TooLarge};
use crate::http::{explain, within};
use crate::{ClientError, RemoteError};

/// One event of a stream.
#[derive(Debug)]
pub(crate) struct Event {
    /// What to go on from after it.
    pub(crate) id: Option<Arc<str>>,
    pub(crate) response: StreamResponse,
    /// Whether the server says that no other follows.
    pub(crate) is_last: bool,
}

/// A stream, for as long as its connection holds.
pub(crate) enum Connection {
    Sse(Box<Sse>),
    Grpc(Box<Called>),
}

impl Connection {
    /// The next event; nothing at the end. Silence is heard for so long.
    pub(crate) async fn next(&mut self, silence: Duration) -> Result<Option<Event>, ClientError> {
        match self {
            Self::Sse(stream) => stream.next(silence).await,
            Self::Grpc(call) => call.next(silence).await,
        }
    }
}

/// How long a server that begins a stream with its first event is waited for. What refuses a subscription comes sooner.
const BEGINNING: Duration = Duration::from_secs(1);

/// A stream of gRPC's: a message for each event.
pub(crate) struct Called {
    reader: Reader,
    progress: Progress,
}

/// What becomes the messages of a stream.
pub(super) type Opening = BoxFuture<'static, Result<Messages, ClientError>>;

enum Progress {
    /// The server has not said anything yet, which some do only together with their first event.
    /// Only ever reached through `&mut`: the mutex is what makes a future shareable, and is never locked.
    Opening(Mutex<Opening>),
    Open(Box<Messages>),
    /// It could not be opened.
    Failed,
}

impl Called {
    /// A stream that has begun.
    pub(super) async fn begun(reader: Reader, opening: Opening) -> Result<Self, ClientError> {
        Ok(Self { reader, progress: Progress::Open(Box::new(opening.await?)) })
    }

    /// A stream that has begun, or may do so at any time.
    pub(super) async fn beginning(reader: Reader, mut opening: Opening) -> Result<Self, ClientError> {
        let progress = match tokio::time::timeout(BEGINNING, &mut opening).await {
            Ok(messages) => Progress::Open(Box::new(messages?)),
            Err(_) => Progress::Opening(Mutex::new(opening)),
        };
        Ok(Self { reader, progress })
    }

    async fn next(&mut self, silence: Duration) -> Result<Option<Event>, ClientError> {
        loop {
            let message = within(silence, self.message()).await?;
            let Some(message) = message else { return Ok(None) };
            match self.reader.event(&message)? {
                Told::Event { response, is_last } => {
                    // What counts the changes of a task numbers its events, and nothing else does here.
                    let id = generation(&response).map(|number| number.to_string().into());
                    return Ok(Some(Event { id, response, is_last }));
                }
                Told::Unknown => tracing::debug!("an event of a kind that is not known is passed over"),
            }
        }
    }

    async fn message(&mut self) -> Result<Option<Bytes>, ClientError> {
        if let Progress::Opening(opening) = &mut self.progress {
            match opening.get_mut().unwrap_or_else(PoisonError::into_inner).await {
                Ok(messages) => self.progress = Progress::Open(Box::new(messages)),
                Err(error) => {
                    self.progress = Progress::Failed;
                    // By now this is how a stream breaks.
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

/// What ends a stream, for which those in between who lose the agent have the same word as an agent that is about to stop. Only the
/// agent gives its reason.
fn cut_off(error: ClientError) -> ClientError {
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

/// A stream of server-sent events.
pub(crate) struct Sse {
    url: Url,
    reader: Reader,
    response: Response,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    max_event: usize,
    too_large: bool,
}

impl Sse {
    pub(super) fn new(url: Url, reader: Reader, response: Response, max_event: usize) -> Self {
        let decoder = Decoder::new(max_event);
        Self { url, reader, response, decoder, frames: VecDeque::new(), max_event, too_large: false }
    }

    async fn next(&mut self, silence: Duration) -> Result<Option<Event>, ClientError> {
        loop {
            while let Some(Frame { id, data }) = self.frames.pop_front() {
                match self.reader.event(&data)? {
                    Told::Event { response, is_last } => return Ok(Some(Event { id, response, is_last })),
                    Told::Unknown => tracing::debug!("an event of a kind that is not known is passed over"),
                }
            }
            if self.too_large {
                return Err(ClientError::TooLarge { limit: self.max_event });
            }
            let (url, response) = (&self.url, &mut self.response);
            let chunk = async { response.chunk().await.map_err(|error| explain(url, &error)) };
            let Some(chunk) = within(silence, chunk).await? else { return Ok(None) };
            self.too_large = self.decoder.feed(&chunk, &mut self.frames) == Err(TooLarge);
        }
    }
}
