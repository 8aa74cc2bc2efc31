//! Requests of callers within this process. They need no transport, no HTTP request and no credentials.
//!
//! The application has established the caller. Limits, logs and everything after admission are those of all requests.

use attache_core::{BoxFuture, Identity, Permit, Reply, ServedAgent, TraceParent};
use attache_protocol::{Error, ErrorKind, Request, binding};
use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::agents;
use crate::dispatch::{
    Access, Dispatcher, RequestContext, RequestHead, ServiceParameters, TRACE_PARENT, Target,
};
use crate::forward::JsonRpcReply;
use crate::http::body;
use crate::limits::Origin;
use crate::limits::load::InFlight;
use crate::request_log::{Incoming, RequestLine};
use crate::transport::exchange::Answer;
use crate::{HttpService, Peer};

/// The name of the binding in the logs.
const BINDING: &str = binding::JSONRPC;

/// A caller within this process, which calls an agent of the server. Made by [`HttpService::in_process`].
#[derive(Clone)]
pub struct InProcessCaller {
    http: HttpService,
    identity: Identity,
    /// The named agent, if it is not the one at the root.
    agent: Option<Box<str>>,
    headers: HeaderMap,
}

/// The reply to a request of a caller within this process. It counts as a request in progress until it is dropped.
pub struct InProcessReply {
    /// The reply.
    pub reply: Reply,
    _held: Held,
}

/// What a request holds until its response was read.
struct Held {
    in_flight: InFlight,
    permit: Option<Permit>,
    log: Option<Box<RequestLine>>,
}

impl InProcessCaller {
    pub(crate) fn new(http: HttpService, identity: Identity) -> Self {
        Self { http, identity, agent: None, headers: HeaderMap::new() }
    }

    /// Calls a named agent instead of the agent at the root.
    pub fn agent(self, name: impl Into<Box<str>>) -> Self {
        Self { agent: Some(name.into()), ..self }
    }

    /// Sets a header of all requests, such as `A2A-Version`.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets the trace that the requests belong to.
    pub fn trace_parent(self, trace_parent: &TraceParent) -> Self {
        match HeaderValue::from_str(trace_parent.as_str()) {
            Ok(value) => self.header(HeaderName::from_static(TRACE_PARENT), value),
            Err(_) => self,
        }
    }

    /// Executes a request.
    pub async fn call(&self, request: Request) -> Result<InProcessReply, Error> {
        let http = self.service()?;
        let dispatcher = http.dispatcher();
        let (context, mut held) = self.enter(dispatcher).await?;
        let parameters = ServiceParameters::read(&self.headers, None)?;
        let operation = request.operation();
        let completed = dispatcher.call(&context, parameters, Some(operation), None, || Ok(request)).await?;
        if let Reply::Events(..) = &completed.reply {
            // A stream counts against the caller's streams, no longer against its requests.
            held.permit = None;
        }
        held.log = held.log.map(|log| log.answered(200));
        Ok(InProcessReply { reply: completed.reply, _held: held })
    }

    /// Answers the bytes of a JSON-RPC request.
    pub async fn answer(&self, request: &[u8]) -> JsonRpcReply {
        self.answer_as(request, false).await.into_reply().await
    }

    /// `assume_oldest` is whether a request that can be one of protocol 0.1 is taken as such.
    async fn answer_as(&self, request: &[u8], assume_oldest: bool) -> Answer {
        let admitted = match self.service() {
            Ok(http) => self.enter(http.dispatcher()).await.map(|admitted| (http, admitted)),
            Err(error) => Err(error),
        };
        let (http, (context, held)) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return Answer::refused(request, &error),
        };
        let Held { in_flight, permit, log } = held;
        let (dispatcher, options) = (http.dispatcher(), http.options());
        let answer = if request.len() > options.max_body {
            let error = body::too_large(options.max_body);
            if let Some(record) = &context.record {
                record.error(&error);
            }
            Answer::refused(request, &error)
        } else if let Some(forwarder) = &options.forwarder {
            Answer::forwarded(forwarder.answer(dispatcher, &context, request, &self.headers, None).await)
        } else {
            let parameters = ServiceParameters::read(&self.headers, None);
            Answer::new(request, dispatcher.jsonrpc(&context, parameters, assume_oldest, request).await)
        };
        answer.holding((in_flight, permit), log)
    }

    /// The agent that is called. It is looked up for each request, because named agents can be replaced.
    fn service(&self) -> Result<HttpService, Error> {
        let Some(name) = &self.agent else { return Ok(self.http.clone()) };
        let found = self.http.agents().and_then(|agents| agents.get(name));
        found.ok_or_else(|| agents::no_such_agent(name.as_bytes()))
    }

    /// Admits a request.
    async fn enter(&self, dispatcher: &Dispatcher) -> Result<(RequestContext, Held), Error> {
        let log = dispatcher.request_log().begin(&Incoming {
            binding: BINDING,
            target: None,
            headers: &self.headers,
            is_health: false,
            agent: dispatcher.service().agent_name(),
        });
        let head = RequestHead {
            binding: Some(BINDING),
            headers: &self.headers,
            query: None,
            peer: &Peer::default(),
            origin: Origin::Local,
            target: Target(BINDING, "request"),
            access: Access::Established(self.identity.clone()),
            record: log.as_ref().map(|log| log.record()),
            base: None,
        };
        let (in_flight, admitted) = dispatcher.enter(&head).await?;
        Ok((admitted.context, Held { in_flight, permit: admitted.permit, log }))
    }
}

impl ServedAgent for InProcessCaller {
    fn v0_1_card(&self) -> Option<Bytes> {
        Some(self.service().ok()?.v0_1_card(&self.identity))
    }

    fn answer<'a>(
        &'a self,
        request: &'a [u8],
        trace_parent: Option<TraceParent>,
    ) -> BoxFuture<'a, Result<Option<Bytes>, Error>> {
        let caller = match &trace_parent {
            Some(trace_parent) => self.clone().trace_parent(trace_parent),
            None => self.clone(),
        };
        Box::pin(async move {
            match caller.answer_as(request, true).await.into_reply().await {
                JsonRpcReply::None => Ok(None),
                JsonRpcReply::One(response) => Ok(Some(response)),
                JsonRpcReply::Stream(_) => {
                    let text = "the response is a stream: call a method with one response";
                    Err(Error::new(ErrorKind::UnsupportedOperation, text))
                }
            }
        })
    }
}
