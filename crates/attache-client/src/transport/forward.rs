//! JSON-RPC requests of others, sent to an agent as they are.
//!
//! A request keeps its method, its arguments and its protocol version, and its responses are returned as they arrive, so that both sides
//! can speak any generation of the protocol. Only the id is replaced on the way and put back, because several callers can use the same one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use attache_protocol::Operation;
use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::channel::{RequestFrame, ResponseCount, Responses};
use super::jsonrpc::Id;
use super::{A2A_VERSION, Transport};
use crate::http::with_timeout;
use crate::interface::Wire;
use crate::request_auth::RequestAuth;
use crate::{Client, ClientError};

/// The service parameters that are forwarded. Everything else belongs to the connection of the caller, its credentials above all.
const FORWARDED: [HeaderName; 7] = [
    A2A_VERSION,
    HeaderName::from_static("a2a-extensions"),
    HeaderName::from_static("x-a2a-extensions"),
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// The responses to a forwarded request. Dropping this ends the stream; the task continues.
pub struct Forwarded {
    responses: Responses,
    /// The id of the request, as JSON text.
    id: Option<String>,
    is_stream: bool,
    /// How long one response may take.
    limit: Option<Duration>,
}

impl fmt::Debug for Forwarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarded").field("is_stream", &self.is_stream).finish_non_exhaustive()
    }
}

/// A response to a forwarded request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ForwardedResponse {
    /// The JSON-RPC response.
    pub json: Bytes,
    /// The number of the event, if the agent states it.
    pub event: Option<String>,
    /// Whether the response reports an error.
    pub is_error: bool,
}

impl Forwarded {
    /// Whether the method is one that is answered with a stream.
    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// The next response; nothing at the end.
    pub async fn next(&mut self) -> Result<Option<ForwardedResponse>, ClientError> {
        let next = self.responses.next();
        let frame = match self.limit {
            Some(limit) => with_timeout(limit, next).await?,
            None => next.await?,
        };
        let Some(frame) = frame else { return Ok(None) };
        let json = match &self.id {
            Some(id) => rewritten(&frame.json, Some(id), &OF_FRAMES)
                .map(Bytes::from)
                .ok_or_else(|| ClientError::Protocol("the response is not one of JSON-RPC 2.0".to_owned()))?,
            None => frame.json,
        };
        let is_error = members(&json).is_some_and(|members| members.contains_key("error"));
        Ok(Some(ForwardedResponse { json, event: frame.event.map(|event| event.to_string()), is_error }))
    }
}

/// The members of a JSON object, as they are.
type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

fn members(json: &[u8]) -> Option<Members<'_>> {
    #[derive(Deserialize)]
    struct Object<'a>(#[serde(borrow)] BTreeMap<Cow<'a, str>, &'a RawValue>);
    // serde would not accept an array here, but an empty text is no object either.
    serde_json::from_slice::<Object<'_>>(json).ok().map(|Object(members)| members)
}

/// Members of a request and of responses that belong to the frames of a transport.
const OF_REQUESTS: [&str; 1] = ["headers"];
const OF_FRAMES: [&str; 2] = ["eventId", "final"];

/// Writes an object with another `id`, or without one, and without some members.
fn rewritten(json: &[u8], id: Option<&str>, omitted: &[&str]) -> Option<Vec<u8>> {
    let members = members(json)?;
    let mut out = Vec::with_capacity(json.len() + 32);
    out.extend_from_slice(b"{\"jsonrpc\":");
    out.extend_from_slice(members.get("jsonrpc").map_or("\"2.0\"", |it| it.get()).as_bytes());
    if let Some(id) = id {
        out.extend_from_slice(b",\"id\":");
        out.extend_from_slice(id.as_bytes());
    }
    for (name, value) in &members {
        if matches!(name.as_ref(), "jsonrpc" | "id") || omitted.contains(&name.as_ref()) {
            continue;
        }
        out.push(b',');
        out.extend_from_slice(serde_json::to_string(name).ok()?.as_bytes());
        out.push(b':');
        out.extend_from_slice(value.get().as_bytes());
    }
    out.push(b'}');
    Some(out)
}

impl Client {
    /// Sends a JSON-RPC request as it is, with the service parameters among `headers` and the credentials of this client.
    ///
    /// The agent must have an interface for JSON-RPC. The member `headers` of the request, which carries service parameters where a
    /// transport has no headers, is left out: pass what it has in `headers`. A stream that breaks is not resumed: the caller does that,
    /// with the number of the last [event](ForwardedResponse::event) in the header `Last-Event-ID`.
    pub async fn forward(&self, request: &[u8], headers: &HeaderMap) -> Result<Forwarded, ClientError> {
        let invalid = || ClientError::Invalid("the request is not a JSON object".to_owned());
        let members = members(request).ok_or_else(invalid)?;
        let method: String =
            members.get("method").and_then(|it| serde_json::from_str(it.get()).ok()).unwrap_or_default();
        let transport = self.transport();
        let operation = Operation::of_method(&method);
        let is_stream = operation.is_some_and(Operation::is_streaming);
        let caller = members.get("id").map(|id| id.get().to_owned());
        let own = Id::next().number();
        // A notification has no id.
        let new_id = caller.as_ref().map(|_| own.to_string());
        let json = rewritten(request, new_id.as_deref(), &OF_REQUESTS).ok_or_else(invalid)?;
        let options = self.options();
        let limit = match operation {
            Some(Operation::SendMessage | Operation::SendStreamingMessage) => options.send_timeout,
            Some(_) | None => options.long_poll_timeout,
        };
        let service_parameters = headers.iter().filter(|(name, _)| FORWARDED.contains(name));
        let frame = RequestFrame {
            id: caller.is_some().then_some(own),
            json,
            headers: service_parameters.map(|(name, value)| (name.clone(), value.clone())).collect(),
            auth: Vec::new(),
            responses: if is_stream { ResponseCount::Stream } else { ResponseCount::One },
        };
        let responses =
            with_timeout(limit, transport.forward(frame, operation.unwrap_or(Operation::GetTask))).await?;
        let limit = (!is_stream).then_some(limit);
        Ok(Forwarded { responses, id: caller, is_stream, limit })
    }
}

impl Transport {
    async fn forward(&self, mut frame: RequestFrame, operation: Operation) -> Result<Responses, ClientError> {
        let endpoint = &self.agent.endpoint;
        if !matches!(endpoint.wire, Wire::JsonRpc | Wire::JsonRpc0_3) {
            let text = "requests can only be forwarded to an interface for JSON-RPC, and the agent has none";
            return Err(ClientError::Invalid(text.to_owned()));
        }
        let target = self.agent.credential_target();
        let auth = RequestAuth::collect(&self.http, target, operation).await?;
        let mut url = endpoint.url.clone();
        if !auth.query.is_empty() {
            url.query_pairs_mut().extend_pairs(auth.query.iter().map(|(name, key)| (name, key.reveal())));
        }
        frame.auth.clone_from(&auth.headers);
        let channel = self.channels.to(&self.http, endpoint.channel, &url, &self.agent.card_url)?;
        let error = match channel.exchange(frame.clone()).await {
            Ok(responses) => return Ok(responses),
            Err(error) => error,
        };
        let is_refused = error.kind() == Some(attache_protocol::ErrorKind::Unauthenticated);
        if !is_refused || !auth.refused(&self.http, target, operation).await? {
            return Err(error);
        }
        frame.auth = RequestAuth::collect(&self.http, target, operation).await?.headers;
        channel.exchange(frame).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_id_of_a_message_changes() {
        let json = br#"{"id": "a", "method":"GetTask","jsonrpc":"2.0","params":{"id":"t", "n": 1.0},"headers":{"x":"y"}}"#;
        let replaced = rewritten(json, Some("7"), &OF_REQUESTS).unwrap();
        let expected = r#"{"jsonrpc":"2.0","id":7,"method":"GetTask","params":{"id":"t", "n": 1.0}}"#;
        assert_eq!(String::from_utf8(replaced).unwrap(), expected);
        for bad in ["", "[]", "7", "{", r#""x""#] {
            assert!(rewritten(bad.as_bytes(), Some("7"), &OF_FRAMES).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_notification_is_forwarded_without_an_id_and_without_headers() {
        let json = br#"{"jsonrpc":"2.0","method":"SendMessage","headers":{"Authorization":"Bearer s3cret"}}"#;
        let replaced = rewritten(json, None, &OF_REQUESTS).unwrap();
        assert_eq!(String::from_utf8(replaced).unwrap(), r#"{"jsonrpc":"2.0","method":"SendMessage"}"#);
    }
}
