//! JSON-RPC: the envelopes of requests and responses.

use std::sync::atomic::{AtomicU64, Ordering};

use attache_protocol::dialect::{v0_1::request as oldest, v0_3::request as older};
use attache_protocol::{Request, StreamResponse, Version};
use reqwest::{Method, Url};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::reader::{Reader, object};
use super::{Body, Call, unsupported, unwritable};
use crate::{ClientError, RemoteError};

/// The id of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(u64);

impl Id {
    /// The id of the first request.
    pub(super) const FIRST: Self = Self(1);

    /// The number.
    pub(super) fn number(self) -> u64 {
        self.0
    }

    /// An id that is unique in this process.
    pub(super) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A request as a channel carries it.
pub(super) struct Encoded {
    pub(super) id: Id,
    pub(super) json: Vec<u8>,
    pub(super) reader: Reader,
}

/// Encodes a request of 1.0, 0.3 or 0.1 without HTTP.
pub(super) fn encode(version: Version, request: &Request) -> Result<Encoded, ClientError> {
    let id = Id::next();
    if version == Version::V0_3 {
        let older::MethodCall { method, params } = older::write(request).map_err(unsupported)?;
        return Ok(Encoded { id, json: envelope(id, method, &params)?, reader: Reader::JsonRpc0_3(id) });
    }
    if version == Version::V0_1 {
        let older::MethodCall { method, params } = oldest::write(request).map_err(unsupported)?;
        return Ok(Encoded { id, json: envelope(id, method, &params)?, reader: Reader::JsonRpc0_1(id) });
    }
    let json = envelope(id, request.operation().name(), request)?;
    Ok(Encoded { id, json, reader: Reader::JsonRpc(id) })
}

/// Encodes a call of a method without arguments that is not an operation of the protocol.
pub(super) fn encode_method(method: &'static str) -> Result<Encoded, ClientError> {
    let id = Id::next();
    let json = envelope(id, method, &serde_json::Map::new())?;
    Ok(Encoded { id, json, reader: Reader::JsonRpc(id) })
}

/// Encodes a request of 1.0.
pub(super) fn encode_1_0(url: &Url, request: &Request) -> Result<Call, ClientError> {
    let id = Id::next();
    call(url, id, request.operation().name(), request, Reader::JsonRpc(id))
}

/// Encodes a request of 0.3.
pub(super) fn encode_0_3(url: &Url, request: &Request) -> Result<Call, ClientError> {
    let older::MethodCall { method, params } = older::write(request).map_err(unsupported)?;
    let id = Id::next();
    call(url, id, method, &params, Reader::JsonRpc0_3(id))
}

/// Encodes a request of 0.1.
pub(super) fn encode_0_1(url: &Url, request: &Request) -> Result<Call, ClientError> {
    let older::MethodCall { method, params } = oldest::write(request).map_err(unsupported)?;
    let id = Id::next();
    call(url, id, method, &params, Reader::JsonRpc0_1(id))
}

fn call<P: Serialize>(
    url: &Url,
    id: Id,
    method: &'static str,
    params: &P,
    reader: Reader,
) -> Result<Call, ClientError> {
    let bytes = envelope(id, method, params)?;
    let media_type = "application/json";
    let body = Some(Body { bytes, media_type });
    Ok(Call { method: Method::POST, url: url.clone(), body, accept: Some(media_type), reader })
}

fn envelope<P: Serialize>(Id(id): Id, method: &'static str, params: &P) -> Result<Vec<u8>, ClientError> {
    #[derive(Serialize)]
    struct Envelope<'a, P> {
        jsonrpc: &'static str,
        id: u64,
        method: &'static str,
        params: &'a P,
    }
    serde_json::to_vec(&Envelope { jsonrpc: "2.0", id, method, params }).map_err(unwritable)
}

/// The event in a response that is as the specification says, read in one pass. Of any other response, [`result`] finds out what it is.
pub(super) fn event(Id(id): Id, body: &[u8]) -> Option<StreamResponse> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        jsonrpc: &'a str,
        id: u64,
        #[serde(default)]
        error: Option<IgnoredAny>,
        result: StreamResponse,
    }

    // serde would accept an array of the members.
    body.trim_ascii_start().starts_with(b"{").then_some(())?;
    let envelope: Envelope<'_> = serde_json::from_slice(body).ok()?;
    let is_answer = envelope.jsonrpc == "2.0" && envelope.id == id && envelope.error.is_none();
    is_answer.then_some(envelope.result)
}

/// The result in a response, as JSON text. Some servers omit a result that is `null`.
pub(super) fn result(Id(id): Id, body: &[u8]) -> Result<&str, ClientError> {
    #[derive(Deserialize)]
    struct Envelope<'a> {
        #[serde(default)]
        jsonrpc: Option<String>,
        #[serde(default, borrow)]
        id: Option<&'a RawValue>,
        #[serde(default, borrow)]
        result: Option<&'a RawValue>,
        #[serde(default, borrow)]
        error: Option<&'a RawValue>,
    }

    let protocol = |why: String| Err(ClientError::Protocol(why));
    let envelope: Envelope<'_> = object(body, "the response")?;
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return protocol("the response is not one of JSON-RPC 2.0".to_owned());
    }
    let answers = envelope.id.map(RawValue::get);
    match (envelope.error, envelope.result) {
        // A server that could not parse the request does not know its id.
        (Some(error), _) if answers.is_none() || answers == Some(id.to_string().as_str()) => {
            match RemoteError::from_jsonrpc(error.get()) {
                Ok(error) => Err(ClientError::Remote(Box::new(error))),
                Err(error) => protocol(format!("the error cannot be read: {error}")),
            }
        }
        (None, result) if answers == Some(id.to_string().as_str()) => {
            Ok(result.map_or("null", RawValue::get))
        }
        (Some(_) | None, _) => {
            let answers: String = answers.unwrap_or("null").chars().take(40).collect();
            protocol(format!("the response answers request {answers}, but request {id} was made"))
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::{ErrorKind, Task};

    use super::*;

    fn read(body: &str) -> Result<Task, ClientError> {
        Reader::JsonRpc(Id(7)).decode(body.as_bytes())
    }

    #[test]
    fn an_answer_is_taken_only_for_the_request_it_answers() {
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":7,"result":{"id":"t"}}"#).unwrap().id.as_str(), "t");
        assert_eq!(
            read(r#"{"result":{"id":"t"},"error":null,"id":7,"jsonrpc":"2.0","x":1}"#).unwrap().id.as_str(),
            "t"
        );
        for body in [
            r#"{"jsonrpc":"2.0","id":8,"result":{"id":"t"}}"#,
            r#"{"jsonrpc":"2.0","id":"7","result":{"id":"t"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"result":{"id":"t"}}"#,
            r#"{"jsonrpc":"2.0","result":{"id":"t"}}"#,
            r#"{"jsonrpc":"2.0","id":8,"error":{"code":-32001,"message":"m"}}"#,
            r#"{"jsonrpc":"1.0","id":7,"result":{"id":"t"}}"#,
            r#"{"id":7,"result":{"id":"t"}}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":null}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":[]}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":"no"}"#,
            r#"["2.0",7,{"id":"t"}]"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"id":"t"}"#,
            "<html>",
            "",
        ] {
            let error = read(body).unwrap_err();
            assert!(matches!(error, ClientError::Protocol(_)), "{body}: {error}");
        }
    }

    #[test]
    fn an_event_is_read_in_one_pass_only_if_its_response_is_as_specified() {
        let message = r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}"#;
        let read = |body: String| event(Id(7), body.as_bytes());
        let envelope = |start: &str| format!(r#"{{{start},"result":{message}}}"#);
        assert!(matches!(read(envelope(r#""jsonrpc":"2.0","id":7"#)), Some(StreamResponse::Message(_))));
        assert!(read(envelope(r#""jsonrpc":"2.0","x":[1],"error":null,"id":7"#)).is_some());
        for start in [
            r#""jsonrpc":"2.0","id":8"#,
            r#""jsonrpc":"2.0","id":"7""#,
            r#""jsonrpc":"2.0""#,
            r#""jsonrpc":"1.0","id":7"#,
            r#""id":7"#,
            r#""jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"m"}"#,
            r#""jsonrpc":"2.0","id":7,"result":null"#,
        ] {
            assert_eq!(read(envelope(start)), None, "{start}");
        }
        assert_eq!(read(format!(r#"["2.0",7,null,{message}]"#)), None);
    }

    #[test]
    fn a_refusal_may_come_without_an_id() {
        for id in ["7", "null"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32700,"message":"m"}}}}"#);
            assert_eq!(read(&body).unwrap_err().kind(), Some(ErrorKind::Parse));
        }
    }
}
