//! One connection that carries frames in both directions, and what a transport says about its connections.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::value::RawValue;

use crate::{ClientError, ConnectFailure};

/// Why a connection does not carry requests any more.
#[derive(Debug, Clone)]
pub(super) enum Loss {
    /// It broke.
    Broken(String),
    /// The agent sent a frame that is too large.
    TooLarge { limit: usize },
    /// The agent sent something that is not a frame.
    Protocol(String),
    /// The command ended before its first response.
    Ended { command: String, how: String },
}

impl Loss {
    pub(super) fn into_error(self) -> ClientError {
        match self {
            Self::Broken(why) => ClientError::Broken(why),
            Self::TooLarge { limit } => ClientError::TooLarge { limit },
            Self::Protocol(why) => ClientError::Protocol(why),
            Self::Ended { command, how } => {
                ClientError::Connect { url: command, why: ConnectFailure::Ended(how) }
            }
        }
    }
}

/// What arrives on a connection.
#[derive(Debug)]
pub(super) enum Incoming {
    Frame(IncomingFrame),
    /// A sign of life.
    Alive,
}

/// A frame with what its envelope says.
#[derive(Debug)]
pub(super) struct IncomingFrame {
    /// The id of the request; nothing if it is null or none of ours.
    pub(super) id: Option<u64>,
    pub(super) json: Bytes,
    /// The number of the event, if there is one.
    pub(super) event: Option<Arc<str>>,
    /// Whether this is the last frame of the request.
    pub(super) is_final: bool,
    pub(super) has_result: bool,
    pub(super) has_error: bool,
}

/// The members of a JSON-RPC response that decide where it goes.
#[derive(serde::Deserialize)]
pub(super) struct ResponseHead<'a> {
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default, rename = "final")]
    is_final: bool,
    #[serde(default, rename = "eventId", borrow)]
    event: Option<&'a RawValue>,
    #[serde(default, borrow)]
    result: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
}

impl ResponseHead<'_> {
    /// Reads the members of a response.
    pub(super) fn read(json: &[u8]) -> Result<ResponseHead<'_>, Loss> {
        // serde would accept an array of the members.
        if json.trim_ascii_start().first() != Some(&b'{') {
            return Err(Loss::Protocol("a frame is not a JSON object".to_owned()));
        }
        serde_json::from_slice(json)
            .map_err(|error| Loss::Protocol(format!("a frame is not a JSON-RPC response: {error}")))
    }

    /// The frame with this content.
    pub(super) fn frame(&self, json: Bytes) -> IncomingFrame {
        IncomingFrame {
            id: self.id.and_then(|id| id.get().parse().ok()),
            event: self.event.and_then(event_number),
            is_final: self.is_final,
            has_result: self.result.is_some(),
            has_error: self.error.is_some(),
            json,
        }
    }
}

/// The number of an event, which is a number or a string.
pub(super) fn event_number(event: &RawValue) -> Option<Arc<str>> {
    let text = event.get().trim_matches('"');
    (!text.is_empty() && text != "null" && text.len() <= 64).then(|| text.into())
}

/// The receiving half of a connection.
pub(super) trait FrameSource: Send {
    /// What arrives next. Fails at the end.
    fn next(&mut self) -> BoxFuture<'_, Result<Incoming, Loss>>;
}

/// The sending half of a connection. Dropping it closes the connection.
pub(super) trait FrameSink: Send {
    fn send(&mut self, json: Vec<u8>) -> BoxFuture<'_, Result<(), Loss>>;

    /// Asks the peer for a sign of life.
    fn ping(&mut self) -> BoxFuture<'_, Result<(), Loss>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Says goodbye, if the transport has a word for it.
    fn close(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Both halves of a connection.
pub(super) struct Duplex {
    pub(super) source: Box<dyn FrameSource>,
    pub(super) sink: Box<dyn FrameSink>,
}

/// What is specific to a transport.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traits {
    /// Whether credentials are sent with the first bytes of a connection, and not with each request.
    pub(super) auth_per_connection: bool,
    /// Whether there can be several connections, and each can be closed at any time. A command ends with its connection.
    pub(super) is_replaceable: bool,
    /// Whether a silent peer must answer pings.
    pub(super) has_pings: bool,
}

/// Connects to an agent.
pub(super) trait Dial: Send + Sync + 'static {
    const TRAITS: Traits;

    /// Connects, with these credentials if they belong to the connection.
    fn dial<'a>(
        &'a self,
        auth: &'a [(HeaderName, HeaderValue)],
    ) -> BoxFuture<'a, Result<Duplex, ClientError>>;
}
