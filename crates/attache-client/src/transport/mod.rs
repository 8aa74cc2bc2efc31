//! The transport to an agent: sends requests and reads responses and events, over the selected binding.
//!
//! Bindings differ in how they encode requests and decode responses: that is in [`jsonrpc`], [`http_json`] and [`grpc`].
//! Headers, credentials, time limits and size limits are the same for all, and are here.

mod channel;
mod connection;
mod forward;
mod frames;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(not(feature = "grpc"))]
#[path = "grpc_disabled.rs"]
mod grpc;
mod http_json;
mod jsonrpc;
pub mod parsing;
mod reader;
mod sse;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use attache_outbound::retry_after;
use attache_protocol::{Error, ErrorKind, GENERATION_EXTENSION, Operation, Request};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};

pub(crate) use self::channel::Channels;
pub use self::channel::{CommandErrors, Commands, commands_ended};
pub(crate) use self::connection::{Connection, Event, Received};
use self::connection::{GrpcStream, SseStream};
pub use self::forward::{Forwarded, ForwardedResponse};
use self::grpc::Messages;
use self::reader::Reader;
pub(crate) use self::reader::{CardResponse, EmptyResponse, FromResponse, card_of, invalid_response};
use crate::ClientError;
use crate::discovery::DiscoveredAgent;
use crate::http::{Http, with_timeout};
use crate::interface::{ChannelKind, Wire};
use crate::request_auth::RequestAuth;
use crate::request_headers::{ExtensionHeader, RequestHeaders};

const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");

/// The transport to one agent. Cheap to clone.
///
/// Second attempts are boxed. They are rare, and would otherwise double the size of every request.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) http: Arc<Http>,
    pub(crate) channels: Arc<Channels>,
    pub(crate) agent: Arc<DiscoveredAgent>,
}

/// A request as a binding encodes it, without the common headers.
#[derive(Debug)]
struct Call {
    method: Method,
    url: Url,
    body: Option<Body>,
    /// The media types of a response that is not a stream, if the binding states them.
    accept: Option<&'static str>,
    reader: Reader,
}

#[derive(Debug)]
struct Body {
    bytes: Vec<u8>,
    media_type: &'static str,
}

/// Which encoding of a request to use, if the binding has two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    /// The other way to subscribe. Parts of the specification disagree on the method.
    Second,
}

impl Transport {
    /// Sends a request and reads its response.
    pub(crate) async fn call<R: FromResponse>(
        &self,
        request: &Request,
        headers: &RequestHeaders,
        limit: Duration,
    ) -> Result<R, ClientError> {
        with_timeout(limit, async {
            let auth = self.collect_auth(request).await?;
            match self.call_once(request, headers, &auth).await {
                Err(error) if self.has_other_auth(&error, request, &auth).await? => {
                    let again =
                        async { self.call_once(request, headers, &self.collect_auth(request).await?).await };
                    Box::pin(again).await
                }
                result => result,
            }
        })
        .await
    }

    async fn call_once<R: FromResponse>(
        &self,
        request: &Request,
        headers: &RequestHeaders,
        auth: &RequestAuth,
    ) -> Result<R, ClientError> {
        match self.call_in_version(request, headers, auth).await {
            Err(error) if self.may_know_older(request.operation(), &error) => {
                self.agent.unstated.set_v0_1(true);
                let result = Box::pin(self.call_in_version(request, headers, auth)).await;
                self.settle_version(error, result)
            }
            result => result,
        }
    }

    async fn call_in_version<R: FromResponse>(
        &self,
        request: &Request,
        headers: &RequestHeaders,
        auth: &RequestAuth,
    ) -> Result<R, ClientError> {
        if self.agent.endpoint.channel != ChannelKind::Http {
            let encoded = jsonrpc::encode(self.wire().version(), request)?;
            return self.exchange_one(encoded, headers, auth).await;
        }
        let call = self.write(request, Attempt::First)?;
        let accept = call.accept.map(HeaderValue::from_static);
        let (url, reader) = (call.url.clone(), call.reader);
        let builder = self.build_request(call, headers, accept, auth)?;
        let response = self.http.send(&url, builder).await?;
        self.read(&url, reader, response).await
    }

    /// Sends a request whose response is a stream.
    pub(crate) async fn open(
        &self,
        request: &Request,
        headers: &RequestHeaders,
        limit: Duration,
    ) -> Result<Connection, ClientError> {
        let headers = &*self.stream_headers(headers);
        with_timeout(limit, async {
            let auth = self.collect_auth(request).await?;
            match self.open_either(request, headers, &auth).await {
                Err(error) if self.has_other_auth(&error, request, &auth).await? => {
                    let again = async {
                        self.open_either(request, headers, &self.collect_auth(request).await?).await
                    };
                    Box::pin(again).await
                }
                result => result,
            }
        })
        .await
    }

    async fn open_either(
        &self,
        request: &Request,
        headers: &RequestHeaders,
        auth: &RequestAuth,
    ) -> Result<Connection, ClientError> {
        match self.open_once(request, headers, Attempt::First, auth).await {
            Err(error) if self.has_other_encoding(request.operation()) && may_need_other_method(&error) => {
                Box::pin(self.open_once(request, headers, Attempt::Second, auth)).await
            }
            Err(error) if self.may_know_older(request.operation(), &error) => {
                self.agent.unstated.set_v0_1(true);
                let result = Box::pin(self.open_once(request, headers, Attempt::First, auth)).await;
                self.settle_version(error, result)
            }
            result => result,
        }
    }

    /// The format of requests.
    pub(crate) fn wire(&self) -> Wire {
        let wire = self.agent.endpoint.wire;
        if wire == Wire::JsonRpc0_3 && self.agent.unstated.is_v0_1() { Wire::JsonRpc0_1 } else { wire }
    }

    /// Whether the agent may turn out to speak 0.1.
    pub(crate) fn may_be_v0_1(&self) -> bool {
        self.agent.endpoint.wire == Wire::JsonRpc0_3 && self.agent.unstated.may_be_v0_1()
    }

    /// Whether an agent that rejected a message may know it in 0.1. It has not executed the message.
    fn may_know_older(&self, operation: Operation, error: &ClientError) -> bool {
        matches!(operation, Operation::SendMessage | Operation::SendStreamingMessage)
            && self.may_be_v0_1()
            && is_unknown_method(error)
    }

    /// The result of a message that was sent in 0.1 because 0.3 was rejected with an error. If the agent does not know 0.1 either, the
    /// first error is the better one.
    fn settle_version<T>(
        &self,
        first: ClientError,
        result: Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        match result {
            // An answer that is not one of JSON-RPC says nothing about 0.1 either.
            Err(error)
                if is_unknown_method(&error)
                    || matches!(error, ClientError::Http { .. } | ClientError::Protocol(_)) =>
            {
                self.agent.unstated.set_v0_1(false);
                Err(first)
            }
            result => result,
        }
    }

    /// Collects the credentials for a request.
    async fn collect_auth(&self, request: &Request) -> Result<RequestAuth, ClientError> {
        RequestAuth::collect(&self.http, self.agent.credential_target(), request.operation()).await
    }

    /// Whether the agent refused the credentials and others are available now. A request with refused credentials was not
    /// executed.
    async fn has_other_auth(
        &self,
        error: &ClientError,
        request: &Request,
        auth: &RequestAuth,
    ) -> Result<bool, ClientError> {
        if error.kind() != Some(ErrorKind::Unauthenticated) {
            return Ok(false);
        }
        auth.refused(&self.http, self.agent.credential_target(), request.operation()).await
    }

    async fn open_once(
        &self,
        request: &Request,
        headers: &RequestHeaders,
        attempt: Attempt,
        auth: &RequestAuth,
    ) -> Result<Connection, ClientError> {
        if self.agent.endpoint.channel != ChannelKind::Http {
            return self.open_frames(request, headers, auth).await;
        }
        let call = self.write(request, attempt)?;
        let accept = call.accept.map(|accept| {
            HeaderValue::try_from(format!("text/event-stream, {accept}"))
                .unwrap_or(HeaderValue::from_static("text/event-stream"))
        });
        let (url, reader) = (call.url.clone(), call.reader);
        let builder = self.build_request(call, headers, accept, auth)?;
        if matches!(reader, Reader::Grpc(..)) {
            let opening = Box::pin(self.clone().messages(url, reader, builder));
            let called = match request.operation() {
                Operation::SubscribeToTask => GrpcStream::open_soon(reader, opening).await?,
                Operation::SendMessage
                | Operation::SendStreamingMessage
                | Operation::GetTask
                | Operation::ListTasks
                | Operation::CancelTask
                | Operation::CreateTaskPushNotificationConfig
                | Operation::GetTaskPushNotificationConfig
                | Operation::ListTaskPushNotificationConfigs
                | Operation::DeleteTaskPushNotificationConfig
                | Operation::GetExtendedAgentCard => GrpcStream::open(reader, opening).await?,
            };
            return Ok(Connection::Grpc(Box::new(called)));
        }
        let response = self.http.send(&url, builder).await?;
        if response.status().is_success() && is_event_stream(&response) {
            let stream = SseStream::new(url, reader, response, self.http.options.max_event);
            return Ok(Connection::Sse(Box::new(stream)));
        }
        // Most likely an error.
        let _: EmptyResponse = self.read(&url, reader, response).await?;
        Err(ClientError::Protocol("a single response instead of a stream of events".to_owned()))
    }

    /// Sends a gRPC request, and returns the messages once the server has responded.
    async fn messages(
        self,
        url: Url,
        reader: Reader,
        builder: RequestBuilder,
    ) -> Result<Messages, ClientError> {
        let response = self.http.send(&url, builder).await?;
        if response.status().is_success() {
            return Messages::new(url, response, self.http.options.max_event);
        }
        Err(self.read_error(&url, reader, response).await)
    }

    fn write(&self, request: &Request, attempt: Attempt) -> Result<Call, ClientError> {
        let endpoint = &self.agent.endpoint;
        match self.wire() {
            Wire::JsonRpc => jsonrpc::encode_1_0(&endpoint.url, request),
            Wire::JsonRpc0_3 => jsonrpc::encode_0_3(&endpoint.url, request),
            Wire::JsonRpc0_1 => jsonrpc::encode_0_1(&endpoint.url, request),
            Wire::HttpJson => http_json::encode_1_0(&endpoint.url, request, attempt),
            Wire::HttpJson0_3 => {
                http_json::encode_0_3(&endpoint.url, request, attempt, self.agent.sdk.file_encoding())
            }
            Wire::Grpc | Wire::Grpc0_3 => {
                grpc::write(&endpoint.url, endpoint.wire.version(), self.agent.sdk, request)
            }
        }
    }

    /// How long a stream may be silent before it counts as broken.
    pub(crate) fn idle_timeout(&self) -> Duration {
        // Nothing is sent on these channels while nothing happens. They notice by themselves if the agent has gone.
        if self.agent.endpoint.channel != ChannelKind::Http {
            return Duration::MAX;
        }
        match self.agent.endpoint.wire {
            Wire::JsonRpc | Wire::JsonRpc0_3 | Wire::JsonRpc0_1 | Wire::HttpJson | Wire::HttpJson0_3 => {
                self.http.options.idle_timeout
            }
            // gRPC servers send nothing while nothing happens. HTTP/2 pings check the connection instead.
            Wire::Grpc | Wire::Grpc0_3 => Duration::MAX,
        }
    }

    /// The headers of a request for a stream. gRPC events have no ids, so the generation of the task is requested instead.
    fn stream_headers<'a>(&self, headers: &'a RequestHeaders) -> Cow<'a, RequestHeaders> {
        match self.agent.endpoint.wire {
            Wire::Grpc => Cow::Owned(headers.with_extension(GENERATION_EXTENSION)),
            Wire::JsonRpc
            | Wire::JsonRpc0_3
            | Wire::JsonRpc0_1
            | Wire::HttpJson
            | Wire::HttpJson0_3
            | Wire::Grpc0_3 => Cow::Borrowed(headers),
        }
    }

    /// Whether the request has a second encoding.
    fn has_other_encoding(&self, operation: Operation) -> bool {
        matches!(self.agent.endpoint.wire, Wire::HttpJson | Wire::HttpJson0_3)
            && self.agent.endpoint.channel == ChannelKind::Http
            && operation == Operation::SubscribeToTask
    }

    /// Builds the HTTP request with the common headers.
    fn build_request(
        &self,
        call: Call,
        headers: &RequestHeaders,
        accept: Option<HeaderValue>,
        auth: &RequestAuth,
    ) -> Result<RequestBuilder, ClientError> {
        let wire = self.wire();
        let mut url = call.url;
        if !auth.query.is_empty() {
            if matches!(call.reader, Reader::Grpc(..)) {
                let text = "the agent asks for a key in the query of its URL, which gRPC does not support: \
                            prefer another of its interfaces";
                return Err(ClientError::Invalid(text.to_owned()));
            }
            let pairs = auth.query.iter().map(|(name, key)| (name, key.reveal()));
            url.query_pairs_mut().extend_pairs(pairs);
        }
        let extension_header = extension_header(wire);
        let mut builder = match call.reader {
            Reader::Grpc(..) => self.http.grpc_request(call.method, &url)?,
            Reader::JsonRpc(_)
            | Reader::JsonRpc0_3(_)
            | Reader::JsonRpc0_1(_)
            | Reader::HttpJson
            | Reader::HttpJson0_3(_) => self.http.request(call.method, &url),
        };
        builder = builder.header(A2A_VERSION, wire.version().to_string());
        if let Some(accept) = accept {
            builder = builder.header(ACCEPT, accept);
        }
        for (name, value) in headers.pairs(extension_header).chain(auth.headers.iter().cloned()) {
            builder = builder.header(name, value);
        }
        if let Some(Body { bytes, media_type }) = call.body {
            builder = builder.header(CONTENT_TYPE, media_type).body(bytes);
        }
        Ok(builder)
    }

    async fn read<R: FromResponse>(
        &self,
        url: &Url,
        reader: Reader,
        response: Response,
    ) -> Result<R, ClientError> {
        if response.status().is_success() {
            if matches!(reader, Reader::Grpc(..)) {
                let messages = Messages::new(url.clone(), response, self.http.options.max_body)?;
                return reader.decode(&messages.only().await?);
            }
            return reader.decode(&self.http.body(url, response).await?);
        }
        Err(self.read_error(url, reader, response).await)
    }

    /// Reads a response with an error status.
    async fn read_error(&self, url: &Url, reader: Reader, response: Response) -> ClientError {
        let (status, wait) = (response.status(), retry_after(response.headers(), SystemTime::now()));
        let body = self.http.body(url, response).await.unwrap_or_default();
        reader.decode_error(url, status, &body).with_retry_after(wait)
    }
}

/// The name of the header for extensions in a wire format.
fn extension_header(wire: Wire) -> ExtensionHeader {
    match wire {
        Wire::JsonRpc | Wire::HttpJson | Wire::Grpc => ExtensionHeader::Current,
        Wire::JsonRpc0_3 | Wire::JsonRpc0_1 | Wire::HttpJson0_3 | Wire::Grpc0_3 => ExtensionHeader::Both,
    }
}

/// Whether an error may mean that the server expects the other method. A response that is not the protocol's may come from another
/// endpoint.
fn may_need_other_method(error: &ClientError) -> bool {
    matches!(error, ClientError::Http { status: 404 | 405 | 501, .. } | ClientError::Protocol(_))
        || error.remote().is_some_and(|remote| remote.code == 405)
}

/// Whether the agent does not know a method. Some agents of 0.1 say so by an invalid request.
fn is_unknown_method(error: &ClientError) -> bool {
    matches!(error.kind(), Some(ErrorKind::MethodNotFound | ErrorKind::InvalidRequest))
}

/// The error for a request that the version of the interface does not have.
fn unsupported(error: Error) -> ClientError {
    ClientError::Invalid(format!("the request cannot be sent to this agent: {error}"))
}

/// The error for a request that is not valid JSON.
fn unwritable(error: serde_json::Error) -> ClientError {
    ClientError::Invalid(format!("the request cannot be written as JSON: {error}"))
}

fn is_event_stream(response: &Response) -> bool {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("text/event-stream")
}
