//! Decoding responses, by binding and protocol version.

use attache_protocol::dialect::read_card;
use attache_protocol::dialect::v0_3::{answer as older, proto_json::answer as plain};
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
    Plain,
    /// HTTP+JSON of 0.3.
    Plain0_3,
    /// Messages of a protobuf package.
    Grpc(Package),
}

/// A decoded event of a stream.
pub(super) enum Told {
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
    pub(super) fn answer<R: Answered>(self, body: &[u8]) -> Result<R, ClientError> {
        match self {
            Self::JsonRpc(id) => R::current(result(id, body)?.as_bytes()),
            Self::JsonRpc0_3(id) => {
                R::older(result(id, body)?.as_bytes()).map_err(|error| unreadable("the result", &error))
            }
            Self::Plain => R::current(body),
            Self::Plain0_3 => R::plain(body).map_err(|error| unreadable("the result", &error)),
            Self::Grpc(package) => {
                R::message(package, body).map_err(|error| unreadable("the answer", &error))
            }
        }
    }

    /// Decodes a response with an error status.
    pub(super) fn refusal(self, url: &Url, status: StatusCode, body: &[u8]) -> ClientError {
        let refusal = match self {
            // Some JSON-RPC errors come with an HTTP error status.
            Self::JsonRpc(id) | Self::JsonRpc0_3(id) => match result(id, body) {
                Err(ClientError::Remote(refusal)) => Some(refusal),
                Ok(_) | Err(_) => None,
            },
            Self::Plain => RemoteError::from_http_json(status.as_u16(), body).map(Box::new),
            Self::Plain0_3 => RemoteError::from_http_json_0_3(status.as_u16(), body).map(Box::new),
            // gRPC errors are in the trailers of a successful response.
            Self::Grpc(_) => None,
        };
        refusal.map_or_else(|| status_error(url, status, body), ClientError::Remote)
    }

    /// Decodes an event of a stream.
    pub(super) fn event(self, data: &[u8]) -> Result<Told, ClientError> {
        match self {
            Self::JsonRpc(id) => told(result(id, data)?.as_bytes()),
            Self::JsonRpc0_3(id) => {
                let event = older::event(result(id, data)?.as_bytes());
                let older::Event { response, is_last } =
                    event.map_err(|error| unreadable("the event", &error))?;
                Ok(Told::Event { response, is_last })
            }
            Self::Plain0_3 => match plain::event(data) {
                Ok(Some(older::Event { response, is_last })) => Ok(Told::Event { response, is_last }),
                unclear => match (RemoteError::from_http_json_0_3(200, data), unclear) {
                    (Some(refusal), _) => Err(ClientError::Remote(Box::new(refusal))),
                    (None, Err(error)) => Err(unreadable("the event", &error)),
                    (None, Ok(_)) => Ok(Told::Unknown),
                },
            },
            Self::Grpc(package) => match read_event(package, data) {
                Ok(Some((response, is_last))) => Ok(Told::Event { response, is_last }),
                Ok(None) => Ok(Told::Unknown),
                Err(error) => Err(unreadable("the event", &error)),
            },
            Self::Plain => match told(data) {
                Ok(event @ Told::Event { .. }) => Ok(event),
                // A stream that started successfully may end with an error.
                other => match RemoteError::from_http_json(200, data) {
                    Some(refusal) => Err(ClientError::Remote(Box::new(refusal))),
                    None => other,
                },
            },
        }
    }
}

fn told(json: &[u8]) -> Result<Told, ClientError> {
    match object(json, "the event") {
        Ok(response) => Ok(Told::Event { response, is_last: false }),
        Err(error) => {
            if is_unheard_of(json) {
                Ok(Told::Unknown)
            } else {
                Err(error)
            }
        }
    }
}

/// Whether an event has members, but none of the known ones.
fn is_unheard_of(json: &[u8]) -> bool {
    let known = ["task", "message", "statusUpdate", "artifactUpdate", "status_update", "artifact_update"];
    serde_json::from_slice::<std::collections::BTreeMap<String, IgnoredAny>>(json)
        .is_ok_and(|members| !members.is_empty() && !members.keys().any(|key| known.contains(&key.as_str())))
}

/// A type that is the response to a request.
pub(crate) trait Answered: Sized {
    /// Decodes JSON of 1.0.
    fn current(json: &[u8]) -> Result<Self, ClientError>;

    /// Decodes JSON of 0.3.
    fn older(json: &[u8]) -> Result<Self, Error>;

    /// Decodes HTTP+JSON of 0.3.
    fn plain(json: &[u8]) -> Result<Self, Error>;

    /// Decodes a gRPC message.
    fn message(package: Package, message: &[u8]) -> Result<Self, Error>;
}

macro_rules! answered {
    ($( $answer:ty = $older:path, $plain:path; )+) => {
        $( impl Answered for $answer {
            fn current(json: &[u8]) -> Result<Self, ClientError> {
                object(json, "the result")
            }

            fn older(json: &[u8]) -> Result<Self, Error> {
                $older(json)
            }

            fn plain(json: &[u8]) -> Result<Self, Error> {
                $plain(json)
            }

            fn message(package: Package, message: &[u8]) -> Result<Self, Error> {
                read_answer(package, message)
            }
        } )+
    };
}

answered! {
    SendMessageResponse = older::reply, plain::reply;
    Task = older::task, plain::task;
    // HTTP+JSON of 0.3 does not have this request.
    ListTasksResponse = older::tasks, older::tasks;
    TaskPushNotificationConfig = older::webhook, plain::webhook;
    ListTaskPushNotificationConfigsResponse = older::webhooks, plain::webhooks;
}

/// A card, and the JSON that its signatures cover.
pub(crate) struct Described {
    pub(crate) card: AgentCard,
    pub(crate) json: Vec<u8>,
}

impl Answered for Described {
    fn current(json: &[u8]) -> Result<Self, ClientError> {
        Self::older(json).map_err(|error| unreadable("the card", &error))
    }

    fn older(json: &[u8]) -> Result<Self, Error> {
        Ok(Self { card: read_card(json)?, json: json.to_vec() })
    }

    fn plain(json: &[u8]) -> Result<Self, Error> {
        Self::older(json)
    }

    fn message(package: Package, message: &[u8]) -> Result<Self, Error> {
        let card: AgentCard = read_answer(package, message)?;
        // A card that cannot be encoded cannot have been signed.
        let json = serde_json::to_vec(&card).unwrap_or_default();
        Ok(Self { card, json })
    }
}

/// A response without content. Servers encode it in different ways.
pub(crate) struct Done;

impl Answered for Done {
    fn current(_: &[u8]) -> Result<Self, ClientError> {
        Ok(Self)
    }

    fn older(_: &[u8]) -> Result<Self, Error> {
        Ok(Self)
    }

    fn plain(_: &[u8]) -> Result<Self, Error> {
        Ok(Self)
    }

    fn message(_: Package, _: &[u8]) -> Result<Self, Error> {
        Ok(Self)
    }
}

/// The error for a response that cannot be decoded.
pub(crate) fn unreadable(what: &str, error: &Error) -> ClientError {
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
