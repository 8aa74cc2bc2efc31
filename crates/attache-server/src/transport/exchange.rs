//! One JSON-RPC request of a transport that carries frames: from the bytes of the request to the frames of its response.
//!
//! A transport reads the bytes of a request, calls [`Channel::answer`], and writes the [`Frame`]s that come out until there are no more.
//! Authentication, limits, the logs, named agents and the card are the same on all of these transports because they are applied here.
//!
//! A request has service parameters and credentials in its member `headers`, since frames have no headers. Where the connection has
//! headers too, those of the request take precedence. Each event of a stream has its number in the member `eventId` of the JSON-RPC
//! response. A client resumes a stream with that number in the header `Last-Event-ID`, as over HTTP.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::LazyLock;

use attache_core::{Identity, Permit, Quota, StreamItem};
use attache_protocol::jsonrpc::{self, Call, Id};
use attache_protocol::{Error, ErrorKind, Operation};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};

use crate::agents;
use crate::dispatch::{
    Access, Dispatcher, EventEncoder, JsonRpcResponse, RequestContext, RequestHead, ServiceParameters, Target,
};
use crate::forward::{Answered, JsonRpcFrame, JsonRpcReply};
use crate::limits::Origin;
use crate::limits::load::InFlight;
use crate::request_log::{Incoming, RequestLine};
use crate::{HttpService, Peer};

/// The method that returns the card, for clients of transports that have no paths.
pub(crate) const CARD_METHOD: &str = "GetAgentCard";

/// What a request has that must be looked at before it is parsed.
static CARD_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(CARD_METHOD));
static HEADERS_FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"headers\""));

/// What the requests of one connection have in common.
pub(crate) struct Channel {
    /// The agent at the other end of the connection. A request can name another one in its header `agent`.
    pub(crate) http: HttpService,
    /// The name of the transport in the logs.
    pub(crate) binding: &'static str,
    pub(crate) peer: Peer,
    /// What limits apply to.
    pub(crate) origin: Origin,
    /// The headers that requests have unless they have their own.
    pub(crate) headers: HeaderMap,
    /// The query of the connection's URL.
    pub(crate) query: Option<String>,
    /// The caller, where the process itself or an application around the server has established it.
    pub(crate) caller: EstablishedCaller,
    /// Whether the other end is on this machine, so that the card lists the transports of this machine.
    pub(crate) is_local: bool,
}

/// Who the caller is, as far as that was established before its first request.
#[derive(Clone)]
pub(crate) enum EstablishedCaller {
    /// This caller. Its requests need no credentials.
    Known(Identity),
    /// This caller, unless the agent authenticates callers itself.
    Outer(Identity),
}

/// What a transport adds to one request.
#[derive(Default)]
pub(crate) struct Additions {
    /// The idempotency key of a send whose client gave none, where a request can be delivered twice.
    pub(crate) delivery_key: Option<String>,
    /// How many streams the transport may have at once.
    pub(crate) streams: Option<Quota>,
}

/// One frame of a response.
pub(crate) struct Frame {
    /// A JSON-RPC response, as JSON text.
    pub(crate) payload: Vec<u8>,
    pub(crate) kind: FrameKind,
    /// The number of the event, which the payload of an event has too.
    pub(crate) event: Option<u64>,
}

/// Where in a response a frame stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// The only frame of a response that is no stream.
    Response,
    /// An event of a stream. More frames follow.
    Event,
    /// The error that ends a stream, or the only frame of a stream that did not begin.
    Failure,
    /// The end of a stream. The payload has an id and neither a result nor an error.
    End,
}

impl Frame {
    pub(crate) fn new(payload: Vec<u8>, kind: FrameKind) -> Self {
        Self { payload, kind, event: None }
    }

    /// The end of the stream that answers the request with this id.
    fn end(id: &Id) -> Self {
        Self::new(format!(r#"{{"jsonrpc":"2.0","id":{}}}"#, id.as_json()).into_bytes(), FrameKind::End)
    }

    /// Whether no frame of this response follows.
    pub(crate) fn is_last(&self) -> bool {
        match self.kind {
            FrameKind::Response | FrameKind::Failure | FrameKind::End => true,
            FrameKind::Event => false,
        }
    }
}

/// The beginning of every JSON-RPC response.
const BEFORE_ID: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

impl Frame {
    /// The id of the request, as JSON text. Frames of some transports repeat it outside the payload.
    pub(crate) fn id(&self) -> Cow<'_, [u8]> {
        let Some(rest) = self.payload.strip_prefix(BEFORE_ID) else {
            // Another agent has written the response.
            return Cow::Owned(Call::peek_id(&self.payload).as_json().into());
        };
        let mut is_escaped = false;
        let end = match rest.first() {
            Some(b'"') => rest[1..]
                .iter()
                .position(|byte| match (is_escaped, byte) {
                    (true, _) => {
                        is_escaped = false;
                        false
                    }
                    (false, b'\\') => {
                        is_escaped = true;
                        false
                    }
                    (false, byte) => *byte == b'"',
                })
                .map(|at| at + 2),
            Some(_) | None => rest.iter().position(|byte| matches!(byte, b',' | b'}')),
        };
        Cow::Borrowed(end.map_or(b"null", |end| &rest[..end]))
    }
}

/// The response to one request. It counts against the limits, and is logged when it is dropped.
pub(crate) struct Answer {
    state: State,
    /// What the last frame reported, if that was an error of this server.
    failure: Option<ErrorKind>,
    log: Option<Box<RequestLine>>,
    /// Held until the response was written. Streams have a permit of their own.
    _guards: Option<(InFlight, Option<Permit>)>,
}

enum State {
    Ready(Frame),
    Events { id: Id, encoder: Box<EventEncoder>, waiting: VecDeque<StreamItem> },
    Forwarded { id: Id, frames: BoxStream<'static, Result<JsonRpcFrame, Error>>, _permits: Vec<Permit> },
    Over,
}

impl Answer {
    /// An error that belongs to no request.
    pub(crate) fn error(id: &Id, error: &Error) -> Self {
        let payload = jsonrpc::error_response(id, error);
        Self::of(State::Ready(Frame::new(payload, FrameKind::Response)))
    }

    /// The error of a request that is not processed.
    pub(crate) fn refused(request: &[u8], error: &Error) -> Self {
        Self::new(request, JsonRpcResponse::error(&Call::peek_id(request), error.clone()))
    }

    /// The same with what is held until it was written.
    pub(crate) fn holding(
        self,
        (in_flight, permit): (InFlight, Option<Permit>),
        log: Option<Box<RequestLine>>,
    ) -> Self {
        // A stream counts against the caller's streams, no longer against its requests.
        let permit = permit.filter(|_| !self.is_stream());
        Self { _guards: Some((in_flight, permit)), log: log.map(answered), ..self }
    }

    /// The response for a caller that is no transport.
    pub(crate) async fn into_reply(mut self) -> JsonRpcReply {
        if !self.is_stream() {
            return self
                .next()
                .await
                .map_or(JsonRpcReply::None, |frame| JsonRpcReply::One(frame.payload.into()));
        }
        let frames = stream::unfold(self, |mut answer| async move {
            let Frame { payload, kind, event } = answer.next().await?;
            let is_error = match kind {
                FrameKind::End => return None,
                FrameKind::Failure => true,
                FrameKind::Event | FrameKind::Response => false,
            };
            let event = event.map(|event| event.to_string());
            Some((Ok(JsonRpcFrame { json: payload.into(), event, is_error }), answer))
        });
        JsonRpcReply::Stream(frames.boxed())
    }

    fn of(state: State) -> Self {
        Self { state, failure: None, log: None, _guards: None }
    }

    pub(crate) fn new(request: &[u8], response: JsonRpcResponse) -> Self {
        match response {
            JsonRpcResponse::None => Self::of(State::Over),
            JsonRpcResponse::Result { body, .. } => {
                Self::of(State::Ready(Frame::new(body, FrameKind::Response)))
            }
            JsonRpcResponse::Error { body, error } => {
                let kind = of_whole(Call::parse(request).is_ok_and(|call| is_streaming(&call)));
                Self { failure: Some(error.kind()), ..Self::of(State::Ready(Frame::new(body, kind))) }
            }
            JsonRpcResponse::Events { id, events, .. } => {
                Self::of(State::Events { id, encoder: Box::new(events), waiting: VecDeque::new() })
            }
        }
    }

    /// The response of another agent.
    pub(crate) fn forwarded(Answered { id, is_streaming, reply, permits }: Answered) -> Self {
        Self::of(match reply {
            JsonRpcReply::None => State::Over,
            // A stream that was refused has one frame.
            JsonRpcReply::One(body) => State::Ready(Frame::new(body.into(), of_whole(is_streaming))),
            JsonRpcReply::Stream(frames) => State::Forwarded { id, frames, _permits: permits },
        })
    }

    /// The next frame of a response of another agent.
    async fn next_forwarded(&mut self) -> Option<Frame> {
        let State::Forwarded { id, frames, .. } = &mut self.state else { return None };
        let (frame, is_over) = match frames.next().await {
            Some(Ok(JsonRpcFrame { json, is_error: true, .. })) => {
                (Frame::new(json.into(), FrameKind::Failure), true)
            }
            Some(Ok(JsonRpcFrame { json, event, is_error: false })) => {
                let mut payload = Vec::from(json);
                // Only a number is certain to be valid JSON.
                let event = event.and_then(|event| event.parse().ok());
                if let Some(event) = event {
                    add_number(&mut payload, event);
                }
                (Frame { payload, kind: FrameKind::Event, event }, false)
            }
            Some(Err(error)) => (Frame::new(jsonrpc::error_response(id, &error), FrameKind::Failure), true),
            None => (Frame::end(id), true),
        };
        if is_over {
            self.state = State::Over;
        }
        Some(frame)
    }

    /// Whether the response is a stream that has begun and not ended.
    pub(crate) fn is_stream(&self) -> bool {
        self.stream_id().is_some()
    }

    /// The id of the request, if the response is a stream that has begun and not ended.
    pub(crate) fn stream_id(&self) -> Option<&Id> {
        match &self.state {
            State::Events { id, .. } | State::Forwarded { id, .. } => Some(id),
            State::Ready(_) | State::Over => None,
        }
    }

    /// Whether the next frame is there already.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis Streams need it"))]
    pub(crate) fn has_next(&self) -> bool {
        match &self.state {
            State::Events { waiting, .. } => !waiting.is_empty(),
            State::Ready(_) => true,
            State::Forwarded { .. } | State::Over => false,
        }
    }

    /// What the last frame reported, if that was an error of this server.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only Redis Streams need it"))]
    pub(crate) fn failure(&self) -> Option<ErrorKind> {
        self.failure
    }

    /// Ends a stream that has not ended, and returns its last frame.
    pub(crate) fn end(&mut self) -> Option<Frame> {
        let end = self.stream_id().map(Frame::end)?;
        self.state = State::Over;
        self.log(&end);
        Some(end)
    }

    fn log(&mut self, frame: &Frame) {
        if let Some(log) = &mut self.log {
            log.written(frame.payload.len());
        }
    }

    /// The next frame. `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let frame = self.next_frame().await?;
        self.log(&frame);
        Some(frame)
    }

    async fn next_frame(&mut self) -> Option<Frame> {
        let (id, encoder, waiting) = match &mut self.state {
            State::Over => return None,
            State::Forwarded { .. } => return self.next_forwarded().await,
            State::Ready(_) => {
                let State::Ready(frame) = std::mem::replace(&mut self.state, State::Over) else {
                    return None;
                };
                return Some(frame);
            }
            State::Events { id, encoder, waiting } => (id, encoder, waiting),
        };
        let last = loop {
            if let Some(item) = waiting.pop_front() {
                let event = item.seq().map(|seq| seq.0);
                return Some(Frame { payload: numbered(encoder, &item), kind: FrameKind::Event, event });
            }
            match encoder.events.next().await {
                Some(Ok(items)) => waiting.extend(items),
                Some(Err(error)) => {
                    self.failure = Some(error.kind());
                    break Frame::new(encoder.error(&error), FrameKind::Failure);
                }
                None => break Frame::end(id),
            }
        };
        self.state = State::Over;
        Some(last)
    }
}

/// The line of a request whose response is ready. Frames have no status.
fn answered(log: Box<RequestLine>) -> Box<RequestLine> {
    log.answered(200)
}

/// The kind of the only frame of a response.
fn of_whole(is_streaming: bool) -> FrameKind {
    match is_streaming {
        true => FrameKind::Failure,
        false => FrameKind::Response,
    }
}

/// Whether a request is answered with a stream, in any version of the protocol.
pub(crate) fn is_streaming(call: &Call<'_>) -> bool {
    Operation::of_method(&call.method).is_some_and(Operation::is_streaming)
}

/// An event as a JSON-RPC response, with its number.
fn numbered(encoder: &mut EventEncoder, item: &StreamItem) -> Vec<u8> {
    let mut payload = Vec::with_capacity(512);
    encoder.write(item, &mut payload);
    if let Some(seq) = item.seq() {
        add_number(&mut payload, seq.0);
    }
    payload
}

/// Adds the number of an event to a JSON-RPC response.
fn add_number(payload: &mut Vec<u8>, event: u64) {
    if payload.pop_if(|last| *last == b'}').is_some() {
        payload.extend_from_slice(b",\"eventId\":");
        payload.extend_from_slice(itoa::Buffer::new().format(event).as_bytes());
        payload.push(b'}');
    }
}

impl Channel {
    /// The requests of a client on this machine, which identifies itself in each of them.
    pub(crate) fn local(http: HttpService, binding: &'static str, peer: Peer) -> Self {
        Self {
            http,
            binding,
            peer,
            origin: Origin::Local,
            headers: HeaderMap::new(),
            query: None,
            caller: EstablishedCaller::Outer(Identity::default()),
            is_local: true,
        }
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: &[u8]) -> Answer {
        self.answer_with(request, &self.headers, Additions::default()).await
    }

    /// Answers one request, which has these headers unless it has its own.
    pub(crate) async fn answer_with(
        &self,
        request: &[u8],
        headers: &HeaderMap,
        additions: Additions,
    ) -> Answer {
        let merged = merged_headers(headers, request, self.http.options().max_headers);
        let named =
            merged.as_ref().map_err(Error::clone).and_then(|headers| named_agent(&self.http, headers));
        // A request that cannot be processed is limited, counted and logged like every other one.
        let (named, unusable) = match named {
            Ok(named) => (named, None),
            Err(error) => (None, Some(error)),
        };
        let headers = merged.unwrap_or(Cow::Borrowed(headers));
        let http = named.as_ref().unwrap_or(&self.http);
        let dispatcher = http.dispatcher();
        let log = dispatcher.request_log().begin(&Incoming {
            binding: self.binding,
            target: None,
            headers: &headers,
            is_health: false,
            agent: dispatcher.service().agent_name(),
        });
        let asks_for_card = asks_for_card(request);
        let mut access = self.access(dispatcher, asks_for_card);
        // Such a request is only charged and logged: its answer is an error.
        if unusable.is_some() && matches!(access, Access::Authenticated) {
            access = Access::Public;
        }
        let head = RequestHead {
            binding: Some(self.binding),
            headers: &headers,
            query: self.query.as_deref(),
            peer: &self.peer,
            origin: self.origin,
            target: Target(self.binding, if asks_for_card { CARD_METHOD } else { "request" }),
            access,
            record: log.as_ref().map(|log| log.record()),
            base: None,
        };
        let (in_flight, admitted) = match dispatcher.enter(&head).await {
            Ok(entered) => entered,
            Err(error) => return Answer { log: log.map(answered), ..Answer::refused(request, &error) },
        };
        let answer = match unusable {
            None => {
                let place = (&*headers, self.query.as_deref(), self.is_local);
                answer_admitted(http, &admitted.context, place, request, additions).await
            }
            Some(error) => {
                if let Some(record) = head.record {
                    record.error(&error);
                }
                Answer::refused(request, &error)
            }
        };
        answer.holding((in_flight, admitted.permit), log)
    }

    /// Checks the credentials that the requests of the connection have.
    pub(crate) async fn check(&self) -> Result<(), Error> {
        let named = named_agent(&self.http, &self.headers)?;
        let dispatcher = named.as_ref().unwrap_or(&self.http).dispatcher();
        let head = RequestHead {
            binding: Some(self.binding),
            headers: &self.headers,
            query: self.query.as_deref(),
            peer: &self.peer,
            origin: self.origin,
            target: Target(self.binding, "headers"),
            access: self.access(dispatcher, false),
            record: None,
            base: None,
        };
        dispatcher.admit(&head).await.map(drop).map_err(|rejection| rejection.error())
    }

    fn access(&self, dispatcher: &Dispatcher, asks_for_card: bool) -> Access {
        match (&self.caller, dispatcher.authenticator()) {
            (EstablishedCaller::Known(identity), _) | (EstablishedCaller::Outer(identity), None) => {
                Access::Established(identity.clone())
            }
            (EstablishedCaller::Outer(_), Some(_)) if asks_for_card && dispatcher.options().public_card => {
                Access::Public
            }
            (EstablishedCaller::Outer(_), Some(_)) => Access::Authenticated,
        }
    }
}

/// Answers a request that was admitted. `place` has its headers, the query of its URL, and whether the client is on this machine.
pub(crate) async fn answer_admitted(
    http: &HttpService,
    context: &RequestContext,
    (headers, query, is_local): (&HeaderMap, Option<&str>, bool),
    request: &[u8],
    additions: Additions,
) -> Answer {
    if asks_for_card(request)
        && let Ok(call) = Call::parse(request)
    {
        let response = match call.id {
            None => JsonRpcResponse::None,
            Some(id) => {
                let mut body = Vec::with_capacity(2048);
                let card = http.card_for_frames(&context.identity, headers, query, is_local);
                jsonrpc::write_response(&id, &mut body, |out| out.extend_from_slice(&card));
                JsonRpcResponse::Result { body, extensions: Default::default() }
            }
        };
        return Answer::new(request, response);
    }
    if let Some(forwarder) = &http.options().forwarder {
        let answered = forwarder.answer(http.dispatcher(), context, request, headers, additions.streams);
        return Answer::forwarded(answered.await);
    }
    let parameters = ServiceParameters::read(headers, query).map(|parameters| parameters.with(additions));
    Answer::new(request, http.dispatcher().jsonrpc(context, parameters, false, request).await)
}

/// Whether a request calls the method for the card.
pub(crate) fn asks_for_card(request: &[u8]) -> bool {
    CARD_FINDER.find(request).is_some() && Call::parse(request).is_ok_and(|call| call.method == CARD_METHOD)
}

/// The named agent that a request is for, if it names one.
pub(crate) fn named_agent(http: &HttpService, headers: &HeaderMap) -> Result<Option<HttpService>, Error> {
    let (Some(agents), Some(name)) = (http.agents(), headers.get(agents::HEADER)) else { return Ok(None) };
    let found = name.to_str().ok().and_then(|name| agents.get(name));
    found.map(Some).ok_or_else(|| agents::no_such_agent(name.as_bytes()))
}

/// The headers of the connection, replaced by those that the request has itself.
fn merged_headers<'a>(
    connection: &'a HeaderMap,
    request: &[u8],
    limit: usize,
) -> Result<Cow<'a, HeaderMap>, Error> {
    let Some(own) = own_headers(request, limit)? else { return Ok(Cow::Borrowed(connection)) };
    let mut merged = connection.clone();
    for (name, value) in own {
        if let Some(name) = name {
            merged.try_insert(name, value).map_err(|_| too_large(limit))?;
        }
    }
    Ok(Cow::Owned(merged))
}

fn too_large(limit: usize) -> Error {
    let text = format!("`headers` must have at most {limit} bytes");
    Error::new(ErrorKind::PayloadTooLarge, text).with("limit", limit)
}

/// The headers in the member `headers` of a request, at most `limit` bytes of names and values. A request that is no JSON object has
/// none: what is wrong with it is reported later.
pub(crate) fn own_headers(request: &[u8], limit: usize) -> Result<Option<HeaderMap>, Error> {
    // Most requests have none, and are not parsed twice.
    if HEADERS_FINDER.find(request).is_none() {
        return Ok(None);
    }
    #[derive(Deserialize)]
    struct WithHeaders {
        #[serde(default)]
        headers: Option<Headers>,
    }
    match serde_json::from_slice(request) {
        Ok(WithHeaders { headers: None }) => Ok(None),
        Ok(WithHeaders { headers: Some(Headers(headers)) }) => {
            let size = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
            match headers.iter().map(size).sum::<usize>() > limit {
                true => Err(too_large(limit)),
                false => Ok(Some(headers)),
            }
        }
        Err(error) if error.is_data() => {
            // The text of the error can quote a value, which can be a credential.
            let text = "`headers` must be an object of strings that are valid in headers, each name once";
            Err(Error::new(ErrorKind::InvalidRequest, text))
        }
        Err(_) => Ok(None),
    }
}

/// An object of strings as headers. A name that is there twice is an error, since a request has one credential.
struct Headers(HeaderMap);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Headers, A::Error> {
                use serde::de::Error as _;
                let mut headers = HeaderMap::new();
                while let Some((name, value)) = members.next_entry::<Cow<'_, str>, Cow<'_, str>>()? {
                    let name = HeaderName::from_bytes(name.as_bytes()).map_err(A::Error::custom)?;
                    let value = HeaderValue::from_str(&value).map_err(A::Error::custom)?;
                    // A map of headers holds a limited number of them.
                    let earlier = headers.try_insert(name, value).map_err(A::Error::custom)?;
                    if earlier.is_some() {
                        return Err(A::Error::custom("a name is there twice"));
                    }
                }
                Ok(Headers(headers))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_headers_of_its_connection_unless_it_has_its_own() {
        let mut connection = HeaderMap::new();
        connection.insert("authorization", HeaderValue::from_static("Bearer one"));
        connection.insert("a2a-version", HeaderValue::from_static("1.0"));
        let merged = |request: &str| {
            let headers = merged_headers(&connection, request.as_bytes(), 100).unwrap();
            ["authorization", "a2a-version"].map(|name| headers.get(name).cloned())
        };
        let (one, other, version) = ("Bearer one", "Bearer two", Some(HeaderValue::from_static("1.0")));
        assert_eq!(merged("{}"), [Some(HeaderValue::from_static(one)), version.clone()]);
        assert_eq!(
            merged(r#"{"headers": {"Authorization": "Bearer two"}}"#),
            [Some(HeaderValue::from_static(other)), version]
        );
    }

    #[test]
    fn headers_that_are_no_object_of_strings_are_an_error_and_never_ignored() {
        for request in [
            r#"{"headers": 1}"#,
            r#"{"headers": ["Authorization"]}"#,
            r#"{"headers": {"Authorization": 1}}"#,
            r#"{"headers": {"Authorization": "a", "authorization": "b"}}"#,
            r#"{"headers": {"a b": "c"}}"#,
            r#"{"headers": {"a": "b\n"}}"#,
        ] {
            let error = own_headers(request.as_bytes(), 100).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{request}");
        }
        let whole = own_headers(br#"{"headers": "Bearer s3cret"}"#, 100).unwrap_err();
        assert!(!whole.message().contains("s3cret"), "{whole}");
        for request in ["", "[", "[1]", "{\"headers\"", r#"{"headers": null}"#] {
            assert!(own_headers(request.as_bytes(), 100).unwrap().is_none(), "{request}");
        }
    }

    #[test]
    fn headers_of_a_frame_have_the_limit_of_headers() {
        let request = |count: usize| {
            let members: Vec<_> = (0..count).map(|i| format!("\"x{i:05}\":\"\"")).collect();
            format!("{{\"headers\":{{{}}}}}", members.join(","))
        };
        assert_eq!(own_headers(request(10).as_bytes(), 60).unwrap().unwrap().len(), 10);
        let error = own_headers(request(11).as_bytes(), 60).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PayloadTooLarge);
        // More than a map of headers can hold.
        assert!(own_headers(request(40_000).as_bytes(), usize::MAX).is_err());
    }

    #[test]
    fn a_frame_knows_the_id_of_its_request() {
        for id in ["1", "-2.5", "null", r#""a""#, r#""""#, r#""a\"},b""#, r#""\\""#] {
            for rest in [",\"result\":{}}", ",\"error\":{\"code\":1}}", "}"] {
                let payload = format!(r#"{{"jsonrpc":"2.0","id":{id}{rest}"#).into_bytes();
                let frame = Frame::new(payload, FrameKind::Response);
                assert_eq!(&*frame.id(), id.as_bytes());
                let payload = format!(r#"{{"id":{id},"jsonrpc":"2.0"{rest}"#).into_bytes();
                assert_eq!(&*Frame::new(payload, FrameKind::Response).id(), id.as_bytes());
            }
        }
        assert_eq!(&*Frame::new(b"{}".to_vec(), FrameKind::Response).id(), b"null");
    }
}
