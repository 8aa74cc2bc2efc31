//! The transport to an agent: sends requests and reads responses and events, over the selected binding.
//!
//! Bindings differ in how they encode requests and decode responses: that is in [`jsonrpc`], [`http_json`] and [`grpc`].
//! Headers, credentials, time limits and size limits are the same for all, and are here.

mod connection;
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
use attache_protocol::{ErrorKind, GENERATION_EXTENSION, Operation, Request};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url};

use self::connection::{Called, Sse};
pub(crate) use self::connection::{Connection, Event};
use self::grpc::Messages;
use self::reader::Reader;
pub(crate) use self::reader::{Answered, Described, Done, unreadable};
use crate::ClientError;
use crate::beside::{Beside, Naming};
use crate::credentials::Proof;
use crate::discovery::Known;
use crate::http::{Http, within};
use crate::interface::Wire;

const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");

/// The transport to one agent. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) http: Arc<Http>,
    pub(crate) known: Arc<Known>,
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
    pub(crate) async fn call<R: Answered>(
        &self,
        request: &Request,
        beside: &Beside,
        limit: Duration,
    ) -> Result<R, ClientError> {
        within(limit, async {
            let proof = self.prove(request).await?;
            match self.call_once(request, beside, &proof).await {
                Err(error) if self.is_renewed(&error, request, &proof).await? => {
                    self.call_once(request, beside, &self.prove(request).await?).await
                }
                answered => answered,
            }
        })
        .await
    }

    async fn call_once<R: Answered>(
        &self,
        request: &Request,
        beside: &Beside,
        proof: &Proof,
    ) -> Result<R, ClientError> {
        let call = self.write(request, Attempt::First)?;
        let accept = call.accept.map(HeaderValue::from_static);
        let (url, reader) = (call.url.clone(), call.reader);
        let builder = self.complete(call, beside, accept, proof)?;
        let response = self.http.send(&url, builder).await?;
        self.read(&url, reader, response).await
    }

    /// Sends a request whose response is a stream.
    pub(crate) async fn open(
        &self,
        request: &Request,
        beside: &Beside,
        limit: Duration,
    ) -> Result<Connection, ClientError> {
        let beside = &*self.numbering(beside);
        within(limit, async {
            let proof = self.prove(request).await?;
            match self.open_either(request, beside, &proof).await {
                Err(error) if self.is_renewed(&error, request, &proof).await? => {
                    self.open_either(request, beside, &self.prove(request).await?).await
                }
                answered => answered,
            }
        })
        .await
    }

    async fn open_either(
        &self,
        request: &Request,
        beside: &Beside,
        proof: &Proof,
    ) -> Result<Connection, ClientError> {
        match self.open_once(request, beside, Attempt::First, proof).await {
            Err(error) if self.has_second(request.operation()) && is_no_such_way(&error) => {
                self.open_once(request, beside, Attempt::Second, proof).await
            }
            answered => answered,
        }
    }

    /// Collects the credentials for a request.
    async fn prove(&self, request: &Request) -> Result<Proof, ClientError> {
        Proof::gather(&self.http, self.known.asking(), request.operation()).await
    }

    /// Whether the agent refused the credentials and others are available now. A request with refused credentials was not
    /// executed.
    async fn is_renewed(
        &self,
        error: &ClientError,
        request: &Request,
        proof: &Proof,
    ) -> Result<bool, ClientError> {
        if error.kind() != Some(ErrorKind::Unauthenticated) {
            return Ok(false);
        }
        proof.refused(&self.http, self.known.asking(), request.operation()).await
    }

    async fn open_once(
        &self,
        request: &Request,
        beside: &Beside,
        attempt: Attempt,
        proof: &Proof,
    ) -> Result<Connection, ClientError> {
        let call = self.write(request, attempt)?;
        let accept = call.accept.map(|accept| {
            HeaderValue::try_from(format!("text/event-stream, {accept}"))
                .unwrap_or(HeaderValue::from_static("text/event-stream"))
        });
        let (url, reader) = (call.url.clone(), call.reader);
        let builder = self.complete(call, beside, accept, proof)?;
        if matches!(reader, Reader::Grpc(_)) {
            let opening = Box::pin(self.clone().messages(url, reader, builder));
            let called = match request.operation() {
                Operation::SubscribeToTask => Called::beginning(reader, opening).await?,
                Operation::SendMessage
                | Operation::SendStreamingMessage
                | Operation::GetTask
                | Operation::ListTasks
                | Operation::CancelTask
                | Operation::CreateTaskPushNotificationConfig
                | Operation::GetTaskPushNotificationConfig
                | Operation::ListTaskPushNotificationConfigs
                | Operation::DeleteTaskPushNotificationConfig
                | Operation::GetExtendedAgentCard => Called::begun(reader, opening).await?,
            };
            return Ok(Connection::Grpc(Box::new(called)));
        }
        let response = self.http.send(&url, builder).await?;
        if response.status().is_success() && is_event_stream(&response) {
            let stream = Sse::new(url, reader, response, self.http.options.max_event);
            return Ok(Connection::Sse(Box::new(stream)));
        }
        // Most likely an error.
        let _: Done = self.read(&url, reader, response).await?;
        Err(ClientError::Protocol("a single answer where a stream of events was asked for".to_owned()))
    }

    /// Sends a gRPC request, and returns the messages once the server has responded.
    async fn messages(
        self,
        url: Url,
        reader: Reader,
        builder: RequestBuilder,
    ) -> Result<Messages, ClientError> {
        let response = self.http.send(&url, builder).await?;
        let status = response.status();
        if status.is_success() {
            return Messages::new(url, response, self.http.options.max_event);
        }
        let wait = retry_after(response.headers(), SystemTime::now());
        let body = self.http.body(&url, response).await.unwrap_or_default();
        Err(reader.refusal(&url, status, &body).with_retry_after(wait))
    }

    fn write(&self, request: &Request, attempt: Attempt) -> Result<Call, ClientError> {
        let endpoint = &self.known.endpoint;
        match endpoint.wire {
            Wire::JsonRpc => jsonrpc::current(&endpoint.url, request),
            Wire::JsonRpc0_3 => jsonrpc::older(&endpoint.url, request),
            Wire::HttpJson => http_json::current(&endpoint.url, request, attempt),
            Wire::HttpJson0_3 => http_json::older(&endpoint.url, request, attempt),
            Wire::Grpc | Wire::Grpc0_3 => grpc::write(&endpoint.url, endpoint.wire.version(), request),
        }
    }

    /// How long a stream may be silent before it counts as broken.
    pub(crate) fn patience(&self) -> Duration {
        match self.known.endpoint.wire {
            Wire::JsonRpc | Wire::JsonRpc0_3 | Wire::HttpJson | Wire::HttpJson0_3 => {
                self.http.options.idle_timeout
            }
            // gRPC servers send nothing while nothing happens. HTTP/2 pings check the connection instead.
            Wire::Grpc | Wire::Grpc0_3 => Duration::MAX,
        }
    }

    /// The headers of a request for a stream. gRPC events have no ids, so the generation of the task is requested instead.
    fn numbering<'a>(&self, beside: &'a Beside) -> Cow<'a, Beside> {
        match self.known.endpoint.wire {
            Wire::Grpc => Cow::Owned(beside.asking(GENERATION_EXTENSION)),
            Wire::JsonRpc | Wire::JsonRpc0_3 | Wire::HttpJson | Wire::HttpJson0_3 | Wire::Grpc0_3 => {
                Cow::Borrowed(beside)
            }
        }
    }

    /// Whether the request has a second encoding.
    fn has_second(&self, operation: Operation) -> bool {
        matches!(self.known.endpoint.wire, Wire::HttpJson | Wire::HttpJson0_3)
            && operation == Operation::SubscribeToTask
    }

    /// Builds the HTTP request with the common headers.
    fn complete(
        &self,
        call: Call,
        beside: &Beside,
        accept: Option<HeaderValue>,
        proof: &Proof,
    ) -> Result<RequestBuilder, ClientError> {
        let wire = self.known.endpoint.wire;
        let mut url = call.url;
        if !proof.query.is_empty() {
            if matches!(call.reader, Reader::Grpc(_)) {
                let text = "the agent asks for a key in the query of its URL, which gRPC has no place for: \
                            prefer another of its interfaces";
                return Err(ClientError::Invalid(text.to_owned()));
            }
            let pairs = proof.query.iter().map(|(name, key)| (name, key.reveal()));
            url.query_pairs_mut().extend_pairs(pairs);
        }
        let naming = match wire {
            Wire::JsonRpc | Wire::HttpJson | Wire::Grpc => Naming::Current,
            Wire::JsonRpc0_3 | Wire::HttpJson0_3 | Wire::Grpc0_3 => Naming::Both,
        };
        let mut builder = match call.reader {
            Reader::Grpc(_) => self.http.call(call.method, &url)?,
            Reader::JsonRpc(_) | Reader::JsonRpc0_3(_) | Reader::Plain | Reader::Plain0_3 => {
                self.http.request(call.method, &url)
            }
        };
        builder = builder.header(A2A_VERSION, wire.version().to_string());
        if let Some(accept) = accept {
            builder = builder.header(ACCEPT, accept);
        }
        for (name, value) in beside.headers(naming).chain(proof.headers.iter().cloned()) {
            builder = builder.header(name, value);
        }
        if let Some(Body { bytes, media_type }) = call.body {
            builder = builder.header(CONTENT_TYPE, media_type).body(bytes);
        }
        Ok(builder)
    }

    async fn read<R: Answered>(
        &self,
        url: &Url,
        reader: Reader,
        response: Response,
    ) -> Result<R, ClientError> {
        let status = response.status();
        if status.is_success() {
            if matches!(reader, Reader::Grpc(_)) {
                let messages = Messages::new(url.clone(), response, self.http.options.max_body)?;
                return reader.answer(&messages.only().await?);
            }
            return reader.answer(&self.http.body(url, response).await?);
        }
        let wait = retry_after(response.headers(), SystemTime::now());
        let body = self.http.body(url, response).await.unwrap_or_default();
        Err(reader.refusal(url, status, &body).with_retry_after(wait))
    }
}

/// Whether an error may mean that the server expects the other method.
fn is_no_such_way(error: &ClientError) -> bool {
    match error {
        ClientError::Http { status, .. } => matches!(status, 404 | 405 | 501),
        ClientError::Remote(remote) => remote.code == 405,
        // Another endpoint responded in its own format.
        ClientError::Protocol(_) => true,
        ClientError::Setup(_)
        | ClientError::Invalid(_)
        | ClientError::Refused { .. }
        | ClientError::OtherOrigin { .. }
        | ClientError::Withheld { .. }
        | ClientError::NoInterface { .. }
        | ClientError::Credentials { .. }
        | ClientError::Connect { .. }
        | ClientError::Broken(_)
        | ClientError::Timeout { .. }
        | ClientError::TooLarge { .. }
        | ClientError::Interrupted { .. } => false,
        #[cfg(feature = "oauth")]
        ClientError::Login { .. } | ClientError::Revocation { .. } | ClientError::Tokens(_) => false,
        #[cfg(feature = "signing")]
        ClientError::Untrusted { .. } => false,
    }
}

fn is_event_stream(response: &Response) -> bool {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("text/event-stream")
}
