//! Decoding responses, by binding and protocol version.

use attache_protocol::dialect::read_card;
use attache_protocol::dialect::v0_3::{proto_json::response as plain, response as older};
use attache_protocol::{
    AgentCard, Error, ListTaskPushNotificationConfigsResponse, ListTasksResponse, SendMessageResponse,
    StreamResponse, Task, TaskPushNotificationConfig,
};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::grpc::{Package, read_answer, read_event};
use super::jsonrpc::{Id, result};
use crate::http::status_error;
use crate::{ClientError, RemoteError};

/// How a response is decoded.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reader {
    /// A JSON-RPC envelope.
    JsonRpc(Id),
    /// A JSON-RPC envelope of 0.3.
    JsonRpc0_3(Id),
    /// HTTP+JSON: the body is the result.
    HttpJson,
    /// HTTP+JSON of 0.3.
    HttpJson0_3,
    /// Messages of a protobuf package.
    #[cfg_attr(not(feature = "grpc"), expect(dead_code, reason = "a client without gRPC makes none"))]
    Grpc(Package),
}

/// A decoded event of a stream.
pub(super) enum DecodedEvent {
    Event {
        response: StreamResponse,
        is_last: bool,
    },
    /// An event of a kind that this version does not know. It can be skipped, because known events carry everything that is
    /// required.
    Unknown,
}

impl Reader {
    /// Decodes a response with a success status.
    pub(super) fn decode<R: FromResponse>(self, body: &[u8]) -> Result<R, ClientError> {
        match self {
            Self::JsonRpc(id) => R::from_json(result(id, body)?.as_bytes()),
            Self::JsonRpc0_3(id) => R::from_json_0_3(result(id, body)?.as_bytes())
                .map_err(|error| invalid_response("the result", &error)),
            Self::HttpJson => R::from_json(body),
            Self::HttpJson0_3 => {
                R::from_http_json_0_3(body).map_err(|error| invalid_response("the result", &error))
            }
            Self::Grpc(package) => {
                R::from_grpc(package, body).map_err(|error| invalid_response("the answer", &error))
            }
        }
    }

    /// Decodes a response with an error status.
    pub(super) fn decode_error(self, url: &Url, status: StatusCode, body: &[u8]) -> ClientError {
        let refusal = match self {
            // Some JSON-RPC errors come with an HTTP error status.
            Self::JsonRpc(id) | Self::JsonRpc0_3(id) => match result(id, body) {
                Err(ClientError::Remote(refusal)) => Some(refusal),
                Ok(_) | Err(_) => None,
            },
            Self::HttpJson => RemoteError::from_http_json(status.as_u16(), body).map(Box::new),
            Self::HttpJson0_3 => RemoteError::from_http_json_0_3(status.as_u16(), body).map(Box::new),
            // gRPC errors are in the trailers of a successful response.
            Self::Grpc(_) => None,
        };
        refusal.map_or_else(|| status_error(url, status, body), ClientError::Remote)
    }

    /// Decodes an event of a stream.
    pub(super) fn decode_event(self, data: &[u8]) -> Result<DecodedEvent, ClientError> {
        match self {
            Self::JsonRpc(id) => decode_event(result(id, data)?.as_bytes()),
            Self::JsonRpc0_3(id) => {
                let event = older::event(result(id, data)?.as_bytes());
                let older::Event { response, is_last } =
                    event.map_err(|error| invalid_response("the event", &error))?;
                Ok(DecodedEvent::Event { response, is_last })
            }
            Self::HttpJson0_3 => match plain::event(data) {
                Ok(Some(older::Event { response, is_last })) => Ok(DecodedEvent::Event { response, is_last }),
                unclear => match (RemoteError::from_http_json_0_3(200, data), unclear) {
                    (Some(refusal), _) => Err(ClientError::Remote(Box::new(refusal))),
                    (None, Err(error)) => Err(invalid_response("the event", &error)),
                    (None, Ok(_)) => Ok(DecodedEvent::Unknown),
                },
            },
            Self::Grpc(package) => match read_event(package, data) {
                Ok(Some((response, is_last))) => Ok(DecodedEvent::Event { response, is_last }),
                Ok(None) => Ok(DecodedEvent::Unknown),
                Err(error) => Err(invalid_response("the event", &error)),
            },
            Self::HttpJson => match decode_event(data) {
                Ok(event @ DecodedEvent::Event { .. }) => Ok(event),
                // A stream that started successfully may end with an error.
                other => match RemoteError::from_http_json(200, data) {
                    Some(refusal) => Err(ClientError::Remote(Box::new(refusal))),
                    None => other,
                },
            },
        }
    }
}

fn decode_event(json: &[u8]) -> Result<DecodedEvent, ClientError> {
    match object(json, "the event") {
        Ok(response) => Ok(DecodedEvent::Event { response, is_last: false }),
        Err(error) => {
            if is_unknown_event(json) {
                Ok(DecodedEvent::Unknown)
            } else {
                Err(error)
            }
        }
    }
}

/// Whether an event has members, but none of the known ones.
fn is_unknown_event(json: &[u8]) -> bool {
    let known = ["task", "message", "statusUpdate", "artifactUpdate", "status_update", "artifact_update"];
    serde_json::from_slice::<std::collections::BTreeMap<String, IgnoredAny>>(json)
        .is_ok_and(|members| !members.is_empty() && !members.keys().any(|key| known.contains(&key.as_str())))
}

/// A type that is the response to a request.
pub(crate) trait FromResponse: Sized {
    /// Decodes JSON of 1.0.
    fn from_json(json: &[u8]) -> Result<Self, ClientError>;

    /// Decodes JSON of 0.3.
    fn from_json_0_3(json: &[u8]) -> Result<Self, Error>;

    /// Decodes HTTP+JSON of 0.3.
    fn from_http_json_0_3(json: &[u8]) -> Result<Self, Error>;

    /// Decodes a gRPC message.
    fn from_grpc(package: Package, message: &[u8]) -> Result<Self, Error>;
}

macro_rules! impl_from_response {
    ($( $answer:ty = $older:path, $plain:path; )+) => {
        $( impl FromResponse for $answer {
            fn from_json(json: &[u8]) -> Result<Self, ClientError> {
                object(json, "the result")
            }

            fn from_json_0_3(json: &[u8]) -> Result<Self, Error> {
                $older(json)
            }

            fn from_http_json_0_3(json: &[u8]) -> Result<Self, Error> {
                $plain(json)
            }

            fn from_grpc(package: Package, message: &[u8]) -> Result<Self, Error> {
                read_answer(package, message)
            }
        } )+
    };
}

impl_from_response! {
    SendMessageResponse = older::reply, plain::reply;
    Task = older::task, plain::task;
    // HTTP+JSON of 0.3 does not have this request.
    ListTasksResponse = older::tasks, older::tasks;
    TaskPushNotificationConfig = older::webhook, plain::webhook;
    ListTaskPushNotificationConfigsResponse = older::webhooks, plain::webhooks;
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
        Ok(Self { card: read_card(json)?, json: json.to_vec() })
    }

    fn from_http_json_0_3(json: &[u8]) -> Result<Self, Error> {
        Self::from_json_0_3(json)
    }

    fn from_grpc(package: Package, message: &[u8]) -> Result<Self, Error> {
        let card: AgentCard = read_answer(package, message)?;
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

    fn from_http_json_0_3(_: &[u8]) -> Result<Self, Error> {
        Ok(Self)
    }

    fn from_grpc(_: Package, _: &[u8]) -> Result<Self, Error> {
        Ok(Self)
    }
}

/// The error for a response that cannot be decoded.
pub(crate) fn invalid_response(what: &str, error: &Error) -> ClientError {
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
    ClientError::Protocol(format!("{what} cannot be read: {why}"))
}

/// Parses an object. Other values are rejected here, because serde would accept an array of the members.
pub(super) fn object<'a, T: Deserialize<'a>>(text: &'a [u8], what: &str) -> Result<T, ClientError> {
    let protocol = |why: &str| ClientError::Protocol(format!("{what} cannot be read: {why}"));
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(protocol("expected a JSON object"));
    }
    serde_json::from_slice(text).map_err(|error| protocol(&error.to_string()))
}
