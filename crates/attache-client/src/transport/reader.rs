//! Decoding responses, by binding and protocol version.

use attache_protocol::dialect::read_card;
use attache_protocol::dialect::v0_1::response as oldest;
use attache_protocol::dialect::v0_3::proto_json::{FileEncoding, response as plain};
use attache_protocol::dialect::v0_3::response as older;
use attache_protocol::tolerant::{Event, ReadTolerantly, Source, Tolerated};
use attache_protocol::{
    AgentCard, Error, ListTaskPushNotificationConfigsResponse, ListTasksResponse, SendMessageResponse,
    StreamResponse, Task, TaskPushNotificationConfig,
};
use reqwest::{StatusCode, Url};
use serde::Deserialize;

use super::grpc::{FileForm, Package, read_answer, read_event};
use super::jsonrpc::{self, Id, result};
use crate::http::status_error;
use crate::{ClientError, RemoteError};

/// How a response is decoded.
///
/// The reader of the version comes first. What it cannot read is read [tolerantly](attache_protocol::tolerant): by its own shape,
/// whatever version the server named, and with harmless values replaced. If that is not possible either, the error is that of the
/// first reader.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reader {
    /// A JSON-RPC envelope.
    JsonRpc(Id),
    /// A JSON-RPC envelope of 0.3.
    JsonRpc0_3(Id),
    /// A JSON-RPC envelope of 0.1.
    JsonRpc0_1(Id),
    /// HTTP+JSON: the body is the result.
    HttpJson,
    /// HTTP+JSON of 0.3, with files in the encoding of the server's SDK.
    HttpJson0_3(FileEncoding),
    /// Messages of a protobuf package, with files in the form of the server's SDK.
    #[cfg_attr(not(feature = "grpc"), expect(dead_code, reason = "a client without gRPC makes none"))]
    Grpc(Package, FileForm),
}

/// A decoded event of a stream.
pub(super) enum DecodedEvent {
    Event {
        response: StreamResponse,
        is_last: bool,
    },
    /// The event fits none of the known kinds, and why.
    Unreadable(String),
}

impl From<Event> for DecodedEvent {
    fn from(Event { response, is_last }: Event) -> Self {
        Self::Event { response, is_last }
    }
}

impl Reader {
    /// Decodes a response with a success status.
    pub(super) fn decode<R: FromResponse>(self, body: &[u8]) -> Result<R, ClientError> {
        match self {
            Self::JsonRpc(id) => R::from_json(result(id, body)?.as_bytes()),
            Self::JsonRpc0_3(id) => R::from_json_0_3(result(id, body)?.as_bytes())
                .map_err(|error| invalid_response("the result", &error)),
            Self::JsonRpc0_1(id) => R::from_json_0_1(result(id, body)?.as_bytes())
                .map_err(|error| invalid_response("the result", &error)),
            Self::HttpJson => R::from_json(body),
            Self::HttpJson0_3(files) => {
                let mut response =
                    R::from_http_json_0_3(body).map_err(|error| invalid_response("the result", &error))?;
                response.decode_files(files);
                Ok(response)
            }
            Self::Grpc(package, files) => {
                R::from_grpc(package, files, body).map_err(|error| invalid_response("the answer", &error))
            }
        }
    }

    /// Decodes a response with an error status.
    pub(super) fn decode_error(self, url: &Url, status: StatusCode, body: &[u8]) -> ClientError {
        let refusal = match self {
            // Some JSON-RPC errors come with an HTTP error status.
            Self::JsonRpc(id) | Self::JsonRpc0_3(id) | Self::JsonRpc0_1(id) => match result(id, body) {
                Err(ClientError::Remote(refusal)) => Some(refusal),
                Ok(_) | Err(_) => None,
            },
            Self::HttpJson => RemoteError::from_http_json(status.as_u16(), body).map(Box::new),
            Self::HttpJson0_3(_) => RemoteError::from_http_json_0_3(status.as_u16(), body).map(Box::new),
            // gRPC errors are in the trailers of a successful response.
            Self::Grpc(..) => None,
        };
        refusal.map_or_else(|| status_error(url, status, body), ClientError::Remote)
    }

    /// Decodes an event of a stream.
    pub(super) fn decode_event(self, data: &[u8]) -> Result<DecodedEvent, ClientError> {
        match self {
            Self::JsonRpc(id) => {
                let event = jsonrpc::event(id, data).map(|response| Event { response, is_last: false });
                if let Some(event) = event.filter(IsComplete::is_complete) {
                    return Ok(event.into());
                }
                let json = result(id, data)?.as_bytes();
                Ok(event_or_reason(json, Source::Other, event_1_0(json)))
            }
            Self::JsonRpc0_3(id) => {
                let json = result(id, data)?.as_bytes();
                let event = older::event(json).map_err(|error| invalid_response("the event", &error));
                Ok(event_or_reason(json, Source::Other, event))
            }
            Self::JsonRpc0_1(id) => {
                let json = result(id, data)?.as_bytes();
                let event = oldest::event(json).map_err(|error| invalid_response("the event", &error));
                Ok(event_or_reason(json, Source::Other, event))
            }
            Self::HttpJson => {
                let event = event_or_reason(data, Source::Other, event_1_0(data));
                // A stream that started successfully may end with an error.
                or_refusal(event, || RemoteError::from_http_json(200, data))
            }
            Self::HttpJson0_3(files) => {
                let event = plain::event(data).map_err(|error| invalid_response("the event", &error));
                let unknown = || ClientError::Protocol("the event is of an unknown kind".to_owned());
                let event = event.and_then(|event| event.ok_or_else(unknown));
                let mut event = event_or_reason(data, Source::HttpJson0_3, event);
                if let DecodedEvent::Event { response, .. } = &mut event {
                    files.decode(response.parts_mut());
                }
                or_refusal(event, || RemoteError::from_http_json_0_3(200, data))
            }
            Self::Grpc(package, files) => Ok(match read_event(package, files, data) {
                Ok(Some((response, is_last))) => DecodedEvent::Event { response, is_last },
                Ok(None) => DecodedEvent::Unreadable("the event is of an unknown kind".to_owned()),
                Err(error) => DecodedEvent::Unreadable(reason("the event", &error)),
            }),
        }
    }
}

fn event_1_0(json: &[u8]) -> Result<Event, ClientError> {
    object(json, "the event").map(|response| Event { response, is_last: false })
}

/// The event as the reader of the version or the tolerant one has read it, or why both cannot read it.
fn event_or_reason(json: &[u8], source: Source, event: Result<Event, ClientError>) -> DecodedEvent {
    match or_tolerantly(event, source, json) {
        Ok(event) => event.into(),
        Err(ClientError::Protocol(why)) => DecodedEvent::Unreadable(why),
        Err(error) => DecodedEvent::Unreadable(error.to_string()),
    }
}

/// An event that cannot be read may be an error that ends the stream.
fn or_refusal(
    event: DecodedEvent,
    refusal: impl FnOnce() -> Option<RemoteError>,
) -> Result<DecodedEvent, ClientError> {
    match event {
        event @ DecodedEvent::Event { .. } => Ok(event),
        unreadable @ DecodedEvent::Unreadable(_) => match refusal() {
            Some(refusal) => Err(ClientError::Remote(Box::new(refusal))),
            None => Ok(unreadable),
        },
    }
}

/// Whether a value has what a response must have. Objects of another version have only unknown members, and are read as empty ones.
trait IsComplete {
    fn is_complete(&self) -> bool;
}

impl IsComplete for Task {
    fn is_complete(&self) -> bool {
        !self.id.is_empty()
    }
}

impl IsComplete for SendMessageResponse {
    fn is_complete(&self) -> bool {
        match self {
            Self::Task(task) => task.is_complete(),
            Self::Message(message) => !message.parts.is_empty(),
        }
    }
}

impl IsComplete for Event {
    fn is_complete(&self) -> bool {
        match &self.response {
            StreamResponse::Task(task) => task.is_complete(),
            StreamResponse::Message(message) => !message.parts.is_empty(),
            StreamResponse::StatusUpdate(update) => !update.task_id.is_empty(),
            StreamResponse::ArtifactUpdate(update) => !update.task_id.is_empty(),
        }
    }
}

impl IsComplete for ListTasksResponse {
    fn is_complete(&self) -> bool {
        self.tasks.iter().all(IsComplete::is_complete)
    }
}

impl IsComplete for TaskPushNotificationConfig {
    fn is_complete(&self) -> bool {
        !self.url.is_empty()
    }
}

impl IsComplete for ListTaskPushNotificationConfigsResponse {
    fn is_complete(&self) -> bool {
        self.configs.iter().all(IsComplete::is_complete)
    }
}

impl IsComplete for AgentCard {
    fn is_complete(&self) -> bool {
        true
    }
}

/// The value, if it could be read completely. Otherwise what the tolerant reader makes of the JSON, if it can read it.
fn or_tolerantly<T, E>(strict: Result<T, E>, source: Source, json: &[u8]) -> Result<T, E>
where
    T: ReadTolerantly + IsComplete,
{
    if strict.as_ref().is_ok_and(IsComplete::is_complete) {
        return strict;
    }
    let Ok(Tolerated { value, deviations }) = T::read_tolerantly(source, json) else { return strict };
    for deviation in deviations {
        tracing::debug!(deviation, "a response does not follow the protocol");
    }
    Ok(value)
}

/// A type that is the response to a request.
pub(crate) trait FromResponse: Sized {
    /// Decodes JSON of 1.0.
    fn from_json(json: &[u8]) -> Result<Self, ClientError>;

    /// Decodes JSON of 0.3.
    fn from_json_0_3(json: &[u8]) -> Result<Self, Error>;

    /// Decodes JSON of 0.1.
    fn from_json_0_1(json: &[u8]) -> Result<Self, Error>;

    /// Decodes HTTP+JSON of 0.3.
    fn from_http_json_0_3(json: &[u8]) -> Result<Self, Error>;

    /// Decodes a gRPC message.
    fn from_grpc(package: Package, files: FileForm, message: &[u8]) -> Result<Self, Error>;

    /// Decodes the files that HTTP+JSON of 0.3 has in this encoding.
    fn decode_files(&mut self, _: FileEncoding) {}
}

macro_rules! impl_from_response {
    ($( $answer:ty = $older:path, $oldest:path, $plain:path $(, $parts:ident)?; )+) => {
        $( impl FromResponse for $answer {
            fn from_json(json: &[u8]) -> Result<Self, ClientError> {
                or_tolerantly(object(json, "the result"), Source::Other, json)
            }

            fn from_json_0_3(json: &[u8]) -> Result<Self, Error> {
                or_tolerantly($older(json), Source::Other, json)
            }

            fn from_json_0_1(json: &[u8]) -> Result<Self, Error> {
                or_tolerantly($oldest(json), Source::Other, json)
            }

            fn from_http_json_0_3(json: &[u8]) -> Result<Self, Error> {
                or_tolerantly($plain(json), Source::HttpJson0_3, json)
            }

            fn from_grpc(package: Package, files: FileForm, message: &[u8]) -> Result<Self, Error> {
                read_answer(package, files, message)
            }

            $( fn decode_files(&mut self, files: FileEncoding) {
                files.decode(self.$parts());
            } )?
        } )+
    };
}

impl_from_response! {
    SendMessageResponse = older::reply, oldest::reply, plain::reply, parts_mut;
    Task = older::task, oldest::task, plain::task, parts_mut;
    // Neither 0.1 nor HTTP+JSON of 0.3 has this request.
    ListTasksResponse = older::tasks, older::tasks, older::tasks;
    TaskPushNotificationConfig = older::webhook, oldest::webhook, plain::webhook;
    // 0.1 does not have this request.
    ListTaskPushNotificationConfigsResponse = older::webhooks, older::webhooks, plain::webhooks;
}

/// Reads a card of any version.
pub(crate) fn card_of(json: &[u8]) -> Result<AgentCard, Error> {
    or_tolerantly(read_card(json), Source::Other, json)
}

/// A card, and the JSON that its signatures cover.
pub(crate) struct CardResponse {
    pub(crate) card: AgentCard,
    pub(crate) json: Vec<u8>,
}

impl FromResponse for CardResponse {
    fn from_json(json: &[u8]) -> Result<Self, ClientError> {
        Self::from_json_0_3(json).map_err(|error| invalid_response("the card", &error))
    }

    fn from_json_0_3(json: &[u8]) -> Result<Self, Error> {
        Ok(Self { card: card_of(json)?, json: json.to_vec() })
    }

    fn from_json_0_1(json: &[u8]) -> Result<Self, Error> {
        Self::from_json_0_3(json)
    }

    fn from_http_json_0_3(json: &[u8]) -> Result<Self, Error> {
        Self::from_json_0_3(json)
    }

    fn from_grpc(package: Package, files: FileForm, message: &[u8]) -> Result<Self, Error> {
        let card: AgentCard = read_answer(package, files, message)?;
        // A card that cannot be encoded cannot have been signed.
        let json = serde_json::to_vec(&card).unwrap_or_default();
        Ok(Self { card, json })
    }
}

/// A response without content. Servers encode it in different ways.
pub(crate) struct EmptyResponse;

impl FromResponse for EmptyResponse {
    fn from_json(_: &[u8]) -> Result<Self, ClientError> {
        Ok(Self)
    }

    fn from_json_0_3(_: &[u8]) -> Result<Self, Error> {
        Ok(Self)
    }

    fn from_json_0_1(_: &[u8]) -> Result<Self, Error> {
        Ok(Self)
    }

    fn from_http_json_0_3(_: &[u8]) -> Result<Self, Error> {
        Ok(Self)
    }

    fn from_grpc(_: Package, _: FileForm, _: &[u8]) -> Result<Self, Error> {
        Ok(Self)
    }
}

/// The error for a response that cannot be decoded.
pub(crate) fn invalid_response(what: &str, error: &Error) -> ClientError {
    ClientError::Protocol(reason(what, error))
}

/// Why a response cannot be decoded.
fn reason(what: &str, error: &Error) -> String {
    let why = match error.field_violations() {
        [] => error.message().to_owned(),
        violations => {
            let why = violations.iter().map(|it| match it.field.as_str() {
                "" => it.description.clone(),
                field => format!("`{field}`: {}", it.description),
            });
            why.collect::<Vec<_>>().join("; ")
        }
    };
    format!("{what} cannot be read: {why}")
}

/// Parses an object. Other values are rejected here, because serde would accept an array of the members.
pub(super) fn object<'a, T: Deserialize<'a>>(text: &'a [u8], what: &str) -> Result<T, ClientError> {
    let protocol = |why: &str| ClientError::Protocol(format!("{what} cannot be read: {why}"));
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(protocol("expected a JSON object"));
    }
    serde_json::from_slice(text).map_err(|error| protocol(&error.to_string()))
}
