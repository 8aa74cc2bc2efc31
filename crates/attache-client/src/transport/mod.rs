//! The way to an agent: requests out, answers and events back, over the binding that its card led to.
//!
//! What differs between bindings is how a request is written and how what comes back is read. [`jsonrpc`], [`http_json`] and
//! [`grpc`] know that and nothing else; headers, credentials, time and size are the same for all, and are here.

mod connection;
mod grpc;
mod http_json;
mod jsonrpc;
pub mod parsing;
mod reader;
mod sse;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use attache_grpc::Package;
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

/// The way to one agent. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) http: Arc<Http>,
    pub(crate) known: Arc<Known>,
}

/// A request as a binding writes it, without what goes beside it.
#[derive(Debug)]
struct Call {
    method: Method,
    url: Url,
    body: Option<Body>,
    /// What an answer that is not a stream looks like, where that is said.
    accept: Option<&'static str>,
    reader: Reader,
}

#[derive(Debug)]
struct Body {
    bytes: Vec<u8>,
    media_type: &'static str,
}

/// The ways to write a request that a binding knows more than one of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    /// The way to subscribe that the specification has in one place and not in another.
    Second,
}

impl Transport {
    /// Makes a request and reads its answer.
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

    /// Makes a request whose answer is a stream.
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

    /// What proves who asks.
    async fn prove(&self, request: &Request) -> Result<Proof, ClientError> {
        Proof::gather(&self.http, self.known.asking(), request.operation()).await
    }

    /// Whether the agent did not take a proof, and there is another one now. A request that it did not take was not carried out.
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
        // A refusal, most likely.
        let _: Done = self.read(&url, reader, response).await?;
        Err(ClientError::Protocol("a single answer where a stream of events was asked for".to_owned()))
    }

    /// The messages that answer a call, once the server has begun to.
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
            Wire::Grpc => grpc::write(&endpoint.url, Package::V1_0, request),
            Wire::Grpc0_3 => grpc::write(&endpoint.url, Package::V0_3, request),
        }
    }

    /// How long a stream may be silent before it counts as broken.
    pub(crate) fn patience(&self) -> Duration {
        match self.known.endpoint.wire {
            Wire::JsonRpc | Wire::JsonRpc0_3 | Wire::HttpJson | Wire::HttpJson0_3 => {
                self.http.options.idle_timeout
            }
            // Servers say nothing while nothing happens. The connection is asked for signs of life instead.
            Wire::Grpc | Wire::Grpc0_3 => Duration::MAX,
        }
    }

    /// What goes beside a request for a stream. Over gRPC its events have no ids, but the count of changes serves as well.
    fn numbering<'a>(&self, beside: &'a Beside) -> Cow<'a, Beside> {
        match self.known.endpoint.wire {
            Wire::Grpc => Cow::Owned(beside.asking(GENERATION_EXTENSION)),
            Wire::JsonRpc | Wire::JsonRpc0_3 | Wire::HttpJson | Wire::HttpJson0_3 | Wire::Grpc0_3 => {
                Cow::Borrowed(beside)
            }
        }
    }

    /// Whether there is another way to make a request.
    fn has_second(&self, operation: Operation) -> bool {
        matches!(self.known.endpoint.wire, Wire::HttpJson | Wire::HttpJson0_3)
            && operation == Operation::SubscribeToTask
    }

    /// Adds what goes beside a request.
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

/// Whether a refusal may mean that what was asked is done with another method here.
fn is_no_such_way(error: &ClientError) -> bool {
    match error {
        ClientError::Http { status, .. } => matches!(status, 404 | 405 | 501),
        ClientError::Remote(remote) => remote.code == 405,
        // Something else is there, which answers in its own way.
        ClientError::Protocol(_) => true,
        ClientError::Setup(_)
        | ClientError::Invalid(_)
        | ClientError::Refused { .. }
        | ClientError::OtherOrigin { .. }
        | ClientError::Withheld { .. }
        | ClientError::NoInterface { .. }
        | ClientError::Credentials { .. }
        | ClientError::Login { .. }
        | ClientError::Revocation { .. }
        | ClientError::Tokens(_)
        | ClientError::Untrusted { .. }
        | ClientError::Connect { .. }
        | ClientError::Broken(_)
        | ClientError::Timeout { .. }
        | ClientError::TooLarge { .. }
        | ClientError::Interrupted { .. } => false,
    }
}

fn is_event_stream(response: &Response) -> bool {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("text/event-stream")
}
