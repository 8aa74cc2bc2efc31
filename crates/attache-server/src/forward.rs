//! Forwarding: a server that answers JSON-RPC requests with the responses of another agent.
//!
//! Such a server has no tasks of its own. It listens, limits and authenticates callers as every server does, on all transports that carry
//! JSON-RPC. Requests and responses pass through it unchanged, in every generation of the protocol.

use std::fmt;
use std::sync::Arc;

use attache_core::{BoxFuture, Permit, Quota};
use attache_protocol::Error;
use attache_protocol::jsonrpc::{Call, Id, error_response};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;

use crate::dispatch::{Dispatcher, RequestContext};
use crate::http::body::{Body, BodyError, BoxBody};
use crate::http::response::{as_event_stream, json_response};
use crate::transport::exchange;

/// Answers JSON-RPC requests in place of an agent of this server.
pub trait Forward: Send + Sync + 'static {
    /// Answers a request: a JSON object, with the headers that it came with. An error becomes a JSON-RPC error.
    fn forward<'a>(
        &'a self,
        request: &'a [u8],
        headers: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<JsonRpcReply, Error>>;
}

/// What a JSON-RPC request is answered with.
pub enum JsonRpcReply {
    /// None, as a notification has it.
    None,
    /// One response.
    One(Bytes),
    /// A stream of responses.
    Stream(BoxStream<'static, Result<JsonRpcFrame, Error>>),
}

impl fmt::Debug for JsonRpcReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::One(_) => "One",
            Self::Stream(_) => "Stream",
        })
    }
}

/// One response of a stream.
#[derive(Debug, Clone)]
pub struct JsonRpcFrame {
    /// The JSON-RPC response.
    pub json: Bytes,
    /// The number of the event, if the agent states it.
    pub event: Option<String>,
    /// Whether the response reports an error, which ends the stream.
    pub is_error: bool,
}

/// A forwarded request with its answer.
pub(crate) struct Answered {
    /// The id of the request, for errors that come later.
    pub(crate) id: Id,
    /// Whether the request asks for a stream.
    pub(crate) is_streaming: bool,
    pub(crate) reply: JsonRpcReply,
    /// Held until a stream ends.
    pub(crate) permits: Vec<Permit>,
}

/// What forwards the requests of a server.
#[derive(Clone)]
pub(crate) struct Forwarder(Arc<dyn Forward>);

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Forwarder")
    }
}

impl Forwarder {
    pub(crate) fn new(forward: impl Forward) -> Self {
        Self(Arc::new(forward))
    }

    /// Answers a request. A stream takes the permits that every stream takes.
    pub(crate) async fn answer(
        &self,
        dispatcher: &Dispatcher,
        context: &RequestContext,
        request: &[u8],
        headers: &HeaderMap,
        streams: Option<Quota>,
    ) -> Answered {
        let (mut is_streaming, mut permits) = (false, Vec::new());
        let (id, reply) = match Call::parse(request) {
            Err(invalid) => (invalid.id, Err(invalid.error)),
            Ok(call) => {
                is_streaming = exchange::is_streaming(&call);
                let permitted = match is_streaming {
                    true => dispatcher.stream_permits(context, streams.as_ref()).await,
                    false => Ok(Vec::new()),
                };
                let reply = match permitted {
                    Ok(taken) => {
                        permits = taken;
                        self.0.forward(request, headers).await
                    }
                    Err(error) => Err(error),
                };
                match call.id {
                    Some(id) => (id, reply),
                    None => (Id::NULL, Ok(JsonRpcReply::None)),
                }
            }
        };
        let reply = reply.unwrap_or_else(|error| JsonRpcReply::One(error_response(&id, &error).into()));
        Answered { id, is_streaming, reply, permits }
    }

    /// Answers a request over HTTP.
    pub(crate) async fn over_http(
        &self,
        dispatcher: &Dispatcher,
        context: &RequestContext,
        request: &[u8],
        headers: &HeaderMap,
    ) -> Response<Body> {
        let heartbeat = dispatcher.options().heartbeat;
        let Answered { id, reply, permits, .. } =
            self.answer(dispatcher, context, request, headers, None).await;
        match reply {
            JsonRpcReply::None => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            JsonRpcReply::One(body) => json_response(StatusCode::OK, "application/json", body.into()),
            JsonRpcReply::Stream(frames) => {
                let state = (frames, id, false, permits);
                let events = stream::unfold(state, move |(mut frames, id, is_over, permits)| async move {
                    if is_over {
                        return None;
                    }
                    let (bytes, is_over) = match tokio::time::timeout(heartbeat, frames.next()).await {
                        Err(_) => (Bytes::from_static(b": still here\n"), false),
                        Ok(Some(Ok(frame))) => (event(&frame), frame.is_error),
                        Ok(Some(Err(error))) => (error_event(&id, &error), true),
                        Ok(None) => return None,
                    };
                    Some((Ok::<_, BodyError>(Frame::data(bytes)), (frames, id, is_over, permits)))
                });
                as_event_stream(Body::stream(BoxBody::new(StreamBody::new(events.boxed()))))
            }
        }
    }
}

/// A response as a server-sent event.
fn event(frame: &JsonRpcFrame) -> Bytes {
    let mut out = Vec::with_capacity(frame.json.len() + 32);
    if let Some(number) = frame.event.as_ref().filter(|number| !number.contains(['\r', '\n', '\0'])) {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(number.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    // JSON has line breaks only between its parts.
    out.extend(frame.json.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    out.extend_from_slice(b"\n\n");
    out.into()
}

fn error_event(id: &Id, error: &Error) -> Bytes {
    let mut out = b"event: error\ndata: ".to_vec();
    out.extend_from_slice(&error_response(id, error));
    out.extend_from_slice(b"\n\n");
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_one_event_with_its_number() {
        let frame = |event: Option<&str>| JsonRpcFrame {
            json: Bytes::from_static(b"{\n\"id\":1}"),
            event: event.map(str::to_owned),
            is_error: false,
        };
        assert_eq!(event(&frame(Some("7"))), "id: 7\ndata: { \"id\":1}\n\n");
        assert_eq!(event(&frame(Some("7\ndata: x"))), "data: { \"id\":1}\n\n");
        assert_eq!(event(&frame(None)), "data: { \"id\":1}\n\n");
    }
}
