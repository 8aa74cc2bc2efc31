//! What comes back, read in the words of the binding and the generation that were spoken.

use attache_grpc::{DecodeResponse, Event as Called, Package};
use attache_protocol::dialect::read_card;
use attache_protocol::dialect::v0_3::{proto_json::response as plain, response as older};
use attache_protocol::{
    AgentCard, Error, ListTaskPushNotificationConfigsResponse, ListTasksResponse, SendMessageResponse,
    StreamResponse, Task, TaskPushNotificationConfig,
};
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::jsonrpc::{Id, result};
use crate::http::status_error;
use crate::{ClientError, RemoteError};

/// How what comes back is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reader {
    /// In the envelope of JSON-RPC.
    JsonRpc(Id),
    /// The same in the words of 0.3.
    JsonRpc0_3(Id),
    /// As it is.
    Plain,
    /// The same in the words of 0.3.
    Plain0_3,
    /// In the messages of a protobuf package.
    Grpc(Package),
}

/// What an event of a stream says.
pub(super) enum Told {
    Event {
        response: StreamResponse,
        is_last: bool,
    },
    /// Something that the protocol did not have yet. What matters is said in words that are known as well.
    Unknown,
}

impl Reader {
    /// Reads an answer that came with a status of success.
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

    /// Why there is no answer, from one that came with another status.
    pub(super) fn refusal(self, url: &Url, status: StatusCode, body: &[u8]) -> ClientError {
        let refusal = match self {
            // Some refusals have a status of their own besides their code.
            Self::JsonRpc(id) | Self::JsonRpc0_3(id) => match result(id, body) {
                Err(ClientError::Remote(refusal)) => Some(refusal),
                Ok(_) | Err(_) => None,
            },
            Self::Plain => RemoteError::from_http_json(status.as_u16(), body).map(Box::new),
            Self::Plain0_3 => RemoteError::from_http_json_0_3(status.as_u16(), body).map(Box::new),
            // Its refusals are trailers of a response that succeeds.
            Self::Grpc(_) => None,
        };
        refusal.map_or_else(|| status_error(url, status, body), ClientError::Remote)
    }

    /// Reads an event of a stream.
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
            Self::Grpc(package) => match Called::read(package, data) {
                Ok(Some(Called { response, is_last })) => Ok(Told::Event { response, is_last }),
                Ok(None) => Ok(Told::Unknown),
                Err(error) => Err(unreadable("the event", &error)),
            },
            Self::Plain => match told(data) {
                Ok(event @ Told::Event { .. }) => Ok(event),
                // A stream that began with success may end with a refusal.
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

/// Whether an event has members, and none of those that events have today.
fn is_unheard_of(json: &[u8]) -> bool {
    let known = ["task", "message", "statusUpdate", "artifactUpdate", "status_update", "artifact_update"];
    serde_json::from_slice::<std::collections::BTreeMap<String, IgnoredAny>>(json)
        .is_ok_and(|members| !members.is_empty() && !members.keys().any(|key| known.contains(&key.as_str())))
}

/// What can be the answer to a request.
pub(crate) trait Answered: Sized {
    /// Reads it as 1.0 has it.
    fn current(json: &[u8]) -> Result<Self, ClientError>;

    /// Reads it as 0.3 had it.
    fn older(json: &[u8]) -> Result<Self, Error>;

    /// Reads it as 0.3 had it over HTTP+JSON.
    fn plain(json: &[u8]) -> Result<Self, Error>;

    /// Reads it as a message of gRPC's.
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
                DecodeResponse::decode(package, message)
            }
        } )+
    };
}

answered! {
    SendMessageResponse = older::reply, plain::reply;
    Task = older::task, plain::task;
    // It cannot be asked for over HTTP+JSON.
    ListTasksResponse = older::tasks, older::tasks;
    TaskPushNotificationConfig = older::webhook, plain::webhook;
    ListTaskPushNotificationConfigsResponse = older::webhooks, plain::webhooks;
}

/// A card, and what its signatures are over.
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
        let card: AgentCard = DecodeResponse::decode(package, message)?;
        // A card that cannot be written cannot have been signed either.
        let json = serde_json::to_vec(&card).unwrap_or_default();
        Ok(Self { card, json })
    }
}

/// The answer that something is done. Servers have several ways to say nothing else.
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

/// The error for an answer that makes no sense, by what is wrong with it.
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

/// Reads an object. Other values are refused here, where serde would take an array for a list of members.
pub(super) fn object<'a, T: Deserialize<'a>>(text: &'a [u8], what: &str) -> Result<T, ClientError> {
    let protocol = |why: &str| ClientError::Protocol(format!("{what} cannot be read: {why}"));
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(protocol("expected a JSON object"));
    }
    serde_json::from_slice(text).map_err(|error| protocol(&error.to_string()))
}
