//! Channels: JSON-RPC frames to an agent and back, over transports other than HTTP.
//!
//! A [`Channel`] takes a request and returns its responses as they arrive. What the frames mean is decided by the callers, so the same
//! channel serves the client's own requests and requests that are [forwarded](super::forward) unchanged.
//!
//! | transport | module |
//! |---|---|
//! | Unix socket | [`unix`], with [`lines`] |
//! | standard input and output of a command | [`stdio`], with [`lines`] |
//! | WebSocket | [`websocket`] |
//! | gRPC envelope | [`envelope`] |
//! | Redis Streams | `redis` |
//! | HTTP, for forwarded requests only | [`http_post`] |
//!
//! A transport that is one connection for many requests implements [`Dial`](duplex::Dial) and gets its channel from the
//! [`multiplexer`]. Any other implements [`Channel`] itself.

mod duplex;
#[cfg(feature = "grpc")]
mod envelope;
pub(super) mod http_post;
mod lines;
mod multiplexer;
pub(super) mod parsing;
#[cfg(feature = "redis")]
mod redis;
mod stdio;
#[cfg(unix)]
mod unix;
mod websocket;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};

use self::multiplexer::Multiplexer;
pub use self::stdio::{CommandErrors, Commands, commands_ended};
use crate::ClientError;
use crate::http::Http;
use crate::interface::ChannelKind;

/// A JSON-RPC request.
#[derive(Debug, Clone)]
pub(crate) struct RequestFrame {
    /// The id, which is unique in this process. A notification has none, and gets no response.
    pub(crate) id: Option<u64>,
    /// The request: a JSON object without the member `headers`.
    pub(crate) json: Vec<u8>,
    /// The service parameters: version, extensions, idempotency key, last event.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The credentials.
    pub(crate) auth: Vec<(HeaderName, HeaderValue)>,
    pub(crate) responses: ResponseCount,
}

/// How many responses a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseCount {
    One,
    /// A response for each event.
    Stream,
}

/// A JSON-RPC response.
#[derive(Debug, Clone)]
pub(crate) struct ResponseFrame {
    pub(crate) json: Bytes,
    /// The number of the event, if the transport states it.
    pub(crate) event: Option<Arc<str>>,
}

/// The responses to one request, in order. Dropping this ends the stream; the task continues.
pub(crate) struct Responses(Box<dyn ResponseSource>);

/// A source of the responses to one request.
pub(crate) trait ResponseSource: Send + Sync {
    /// The next response; nothing at the end.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ResponseFrame>, ClientError>>;
}

impl Responses {
    pub(crate) fn new(source: impl ResponseSource + 'static) -> Self {
        Self(Box::new(source))
    }

    /// The next response; nothing at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<ResponseFrame>, ClientError> {
        self.0.next().await
    }

    /// No response, as a notification has it.
    pub(crate) fn none() -> Self {
        Self::new(Fixed(None))
    }

    /// One response.
    pub(crate) fn one(frame: ResponseFrame) -> Self {
        Self::new(Fixed(Some(frame)))
    }
}

/// A response that has arrived already.
struct Fixed(Option<ResponseFrame>);

impl ResponseSource for Fixed {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<ResponseFrame>, ClientError>> {
        Box::pin(std::future::ready(Ok(self.0.take())))
    }
}

impl fmt::Debug for Responses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses").finish_non_exhaustive()
    }
}

/// Carries JSON-RPC requests to one agent.
pub(crate) trait Channel: Send + Sync + 'static {
    /// Sends a request. The future has no time limit of its own, except for connecting.
    fn exchange(&self, request: RequestFrame) -> BoxFuture<'_, Result<Responses, ClientError>>;

    /// Leaves the member `headers` out of later requests, or puts it in again. Some servers reject requests with a member that JSON-RPC
    /// does not have. Returns whether the channel has such a member.
    fn omit_headers(&self, _: bool) -> bool {
        false
    }
}

/// The channels of a client, by address and by the card that names it. A channel is made when it is first needed, and serves all later
/// requests.
#[derive(Default)]
pub(crate) struct Channels(Mutex<HashMap<ChannelKey, Arc<dyn Channel>>>);

/// The kind of a channel, its address and the URL of the card.
type ChannelKey = (ChannelKind, String, String);

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").finish_non_exhaustive()
    }
}

impl Channels {
    /// The channel to an address that the card at `card_url` names.
    pub(crate) fn to(
        &self,
        http: &Arc<Http>,
        kind: ChannelKind,
        url: &Url,
        card_url: &Url,
    ) -> Result<Arc<dyn Channel>, ClientError> {
        let mut channels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, url.as_str().to_owned(), card_url.as_str().to_owned());
        if let Some(channel) = channels.get(&key) {
            return Ok(channel.clone());
        }
        let channel = open(http, kind, url, card_url)?;
        channels.insert(key, channel.clone());
        Ok(channel)
    }
}

fn open(
    http: &Arc<Http>,
    kind: ChannelKind,
    url: &Url,
    #[cfg_attr(not(feature = "redis"), expect(unused_variables, reason = "used for Redis only"))]
    card_url: &Url,
) -> Result<Arc<dyn Channel>, ClientError> {
    Ok(match kind {
        ChannelKind::Http => Arc::new(http_post::HttpPost::new(http.clone(), url.clone())),
        ChannelKind::WebSocket => {
            let dial = websocket::WebSocketDialer::new(http.clone(), url.clone());
            Arc::new(Multiplexer::new(dial, &http.options))
        }
        #[cfg(unix)]
        ChannelKind::Unix => {
            Arc::new(Multiplexer::new(unix::UnixDialer::new(url, &http.options), &http.options))
        }
        #[cfg(not(unix))]
        ChannelKind::Unix => {
            return Err(ClientError::Setup("Unix sockets are not supported on this system".to_owned()));
        }
        ChannelKind::Stdio => {
            Arc::new(Multiplexer::new(stdio::CommandDialer::new(url, &http.options)?, &http.options))
        }
        #[cfg(feature = "grpc")]
        ChannelKind::GrpcEnvelope => Arc::new(envelope::Envelope::new(http.clone(), url.clone())),
        #[cfg(not(feature = "grpc"))]
        ChannelKind::GrpcEnvelope => return Err(ClientError::Setup(crate::error::WITHOUT_GRPC.to_owned())),
        #[cfg(feature = "redis")]
        ChannelKind::RedisStreams => Arc::new(redis::RedisChannel::new(url, card_url, &http.options)?),
        #[cfg(not(feature = "redis"))]
        ChannelKind::RedisStreams => return Err(ClientError::Setup(crate::error::WITHOUT_REDIS.to_owned())),
    })
}
