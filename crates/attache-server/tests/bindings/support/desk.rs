//! A server without a network: requests are handed to it, so that time can be virtual and callers can be anywhere.

use std::net::SocketAddr;

use attache_core::{Agent, Identity};
use attache_grpc::{ErrorStatus, call_result, to_proto, v1_0::proto};
use attache_protocol::SendMessageRequest;
use attache_server::{Body, HttpService, Limits, Peer, Server};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use prost::Message;
use serde_json::{Value, json};

use super::Binding;

/// Where callers are who are nowhere in particular.
const ELSEWHERE: &str = "203.0.113.7";

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestOperation {
    Send,
    Stream,
    List,
}

impl TestOperation {
    /// What it is called.
    fn name(self) -> &'static str {
        match self {
            Self::Send => "SendMessage",
            Self::Stream => "SendStreamingMessage",
            Self::List => "ListTasks",
        }
    }
}

/// A server without a network.
#[derive(Clone)]
pub(crate) struct Desk(pub(crate) HttpService);

/// Who asks, and from where.
#[derive(Debug, Clone)]
pub(crate) struct From {
    name: Option<&'static str>,
    address: &'static str,
    headers: Vec<(&'static str, &'static str)>,
}

/// Someone who is known by name.
pub(crate) fn named(name: &'static str) -> From {
    From { name: Some(name), ..at(ELSEWHERE) }
}

/// Someone who did not say who they are.
pub(crate) fn at(address: &'static str) -> From {
    From { name: None, address, headers: Vec::new() }
}

impl From {
    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// What came back, as far as it is about limits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    /// The status in HTTP's numbers, or gRPC's code.
    pub(crate) status: i64,
    pub(crate) reason: String,
    pub(crate) retry_after: Option<String>,
    /// What the details say about trying again.
    pub(crate) retry_delay: Option<String>,
    pub(crate) body: Value,
}

impl Desk {
    pub(crate) fn new<A: Agent>(server: Server<A>, limits: Limits) -> Self {
        let server = server.options(|options| options.limits = limits);
        Self(server.into_http_service("http://desk").unwrap())
    }

    /// Asks, and leaves the body of the response where it is.
    pub(crate) async fn open(
        &self,
        binding: Binding,
        from: &From,
        operation: TestOperation,
        params: &Value,
    ) -> Response<Body> {
        let (method, path, content_type, body) = match binding {
            Binding::JsonRpc => {
                let call = json!({"jsonrpc": "2.0", "id": 1, "method": operation.name(), "params": params});
                ("POST", "/a2a".to_owned(), "application/json", call.to_string().into_bytes())
            }
            Binding::HttpJson => {
                let (method, path) = match operation {
                    TestOperation::Send => ("POST", "/v1/message:send"),
                    TestOperation::Stream => ("POST", "/v1/message:stream"),
                    TestOperation::List => ("GET", "/v1/tasks"),
                };
                let body = if method == "POST" { params.to_string() } else { String::new() };
                (method, path.to_owned(), "application/json", body.into_bytes())
            }
            Binding::Grpc => {
                let path = format!("/lf.a2a.v1.A2AService/{}", operation.name());
                ("POST", path, "application/grpc", frame(operation, params))
            }
        };
        let mut request = Request::builder().method(method).uri(path).header("a2a-version", "1.0");
        for (name, value) in &from.headers {
            request = request.header(*name, *value);
        }
        let address = SocketAddr::new(from.address.parse().unwrap(), 4711);
        request = request
            .header("content-type", content_type)
            .extension(Peer { address: Some(address), ..Peer::default() });
        if let Some(name) = from.name {
            request = request.extension(Identity::named(name));
        }
        self.0.handle(request.body(Full::new(Bytes::from(body))).unwrap()).await
    }

    /// Asks.
    pub(crate) async fn ask(
        &self,
        binding: Binding,
        from: &From,
        operation: TestOperation,
        params: &Value,
    ) -> Outcome {
        outcome(self.open(binding, from, operation, params).await).await
    }

    /// Asks for nothing much.
    pub(crate) async fn list(&self, binding: Binding, from: &From) -> Outcome {
        self.ask(binding, from, TestOperation::List, &json!({})).await
    }
}

/// A message of gRPC, with the length before it.
fn frame(operation: TestOperation, params: &Value) -> Vec<u8> {
    let message = match operation {
        TestOperation::Send | TestOperation::Stream => {
            let request: SendMessageRequest = serde_json::from_value(params.clone()).unwrap();
            let message: proto::SendMessageRequest = to_proto(request).unwrap();
            message.encode_to_vec()
        }
        TestOperation::List => proto::ListTasksRequest::default().encode_to_vec(),
    };
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &message].concat()
}

/// Reads a response to its end.
pub(crate) async fn outcome(response: Response<Body>) -> Outcome {
    let (head, body) = response.into_parts();
    let retry_after = head.headers.get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let collected = body.collect().await.unwrap();
    let grpc = head.headers.get("content-type").is_some_and(|value| value == "application/grpc");
    if grpc {
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let refused = [&head.headers, &trailers].into_iter().find_map(call_result).expect("a status").err();
        let details: Vec<Value> = refused.iter().flat_map(|refusal| &refusal.details).map(value).collect();
        let status = refused.as_ref().map_or(0, |refusal: &ErrorStatus| i64::from(refusal.code));
        let message = refused.map_or(Value::Null, |refusal| json!(refusal.message));
        return Outcome { retry_after, body: message, ..told(status, &details) };
    }
    let bytes = collected.to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let error = &body["error"];
    let details = error["data"].as_array().or_else(|| error["details"].as_array());
    let told = told(i64::from(head.status.as_u16()), details.map_or(&[], Vec::as_slice));
    Outcome { retry_after, body, ..told }
}

fn value(detail: &attache_protocol::Json) -> Value {
    serde_json::from_str(detail.as_str()).unwrap()
}

fn told(status: i64, details: &[Value]) -> Outcome {
    let of = |name: &str, member: &str| {
        let detail = details.iter().find(|detail| detail["@type"].as_str().unwrap().ends_with(name))?;
        detail[member].as_str().map(str::to_owned)
    };
    Outcome {
        status,
        reason: of("ErrorInfo", "reason").unwrap_or_default(),
        retry_after: None,
        retry_delay: of("RetryInfo", "retryDelay"),
        body: Value::Null,
    }
}
