//! Serves the A2A server through the HTTP of an engine: requests arrive as calls of a function, and responses are its results.
//!
//! All routes go to the HTTP service of the server, JSON-RPC too: `docs/decisions/0029-engine-routes-use-the-http-service.md` says why.
//!
//! The engine has no wildcards and gives a function the parts of a request. So each path is registered as its own trigger, and
//! the request is assembled again. A stream is sent through the channel that the engine provides for the response. The engine
//! sends the head with the first bytes, so the stream starts with a comment.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::wire::{ChannelRef, RegisterFunction};
use crate::worker::{ChannelWriter, Invocation, Registration, Worker};
use crate::{CallError, ChannelItem};

/// How long the body of a request may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// How long the first bytes may take. If a body is declared as JSON but is invalid, engines before 0.12 keep the channel open and
/// empty.
const FIRST_BYTES: Duration = Duration::from_secs(2);

/// The largest body that is read, in bytes.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// The characters that are percent-encoded in a query.
const IN_QUERY: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'&').add(b'+').add(b'<').add(b'=').add(b'>');

/// A function that serves some routes.
struct RouteGroup {
    function: &'static str,
    description: &'static str,
    /// Method and path, in the syntax of the engine.
    routes: &'static [(&'static str, &'static str)],
}

const ROUTES: [RouteGroup; 4] = [
    RouteGroup {
        function: "a2a::well_known",
        description: "The A2A agent card, as it is served",
        routes: &[("GET", ".well-known/agent-card.json"), ("GET", ".well-known/agent.json")],
    },
    RouteGroup {
        function: "a2a::jsonrpc",
        description: "A2A over JSON-RPC",
        routes: &[("POST", "a2a"), ("POST", "a2a/rpc")],
    },
    RouteGroup {
        function: "a2a::http_json",
        description: "A2A over HTTP+JSON",
        routes: &[
            ("POST", "v1/message:send"),
            ("POST", "v1/message:stream"),
            ("GET", "v1/tasks"),
            ("GET", "v1/tasks/:id"),
            ("POST", "v1/tasks/:id"),
            ("POST", "v1/tasks/:id/pushNotificationConfigs"),
            ("GET", "v1/tasks/:id/pushNotificationConfigs"),
            ("GET", "v1/tasks/:id/pushNotificationConfigs/:config"),
            ("DELETE", "v1/tasks/:id/pushNotificationConfigs/:config"),
            ("GET", "v1/extendedAgentCard"),
            ("GET", "v1/card"),
        ],
    },
    RouteGroup {
        function: "a2a::http_json_0_3",
        description: "A2A 0.3 over HTTP+JSON",
        routes: &[
            ("POST", "0.3/v1/message:send"),
            ("POST", "0.3/v1/message:stream"),
            ("GET", "0.3/v1/tasks"),
            ("GET", "0.3/v1/tasks/:id"),
            ("POST", "0.3/v1/tasks/:id"),
            ("POST", "0.3/v1/tasks/:id/pushNotificationConfigs"),
            ("GET", "0.3/v1/tasks/:id/pushNotificationConfigs"),
            ("GET", "0.3/v1/tasks/:id/pushNotificationConfigs/:config"),
            ("DELETE", "0.3/v1/tasks/:id/pushNotificationConfigs/:config"),
            ("GET", "0.3/v1/card"),
        ],
    },
];

/// A service that answers every HTTP request. Each `tower` service that cannot fail is one.
pub trait HttpService: Clone + Send + Sync + 'static {
    /// The body of a response.
    type Body: http_body::Body<Data = Bytes, Error: std::fmt::Display + Send> + Send + 'static;

    /// Answers one request.
    fn answer(self, request: Request<Full<Bytes>>) -> impl Future<Output = Response<Self::Body>> + Send;
}

impl<S, B> HttpService for S
where
    S: tower_service::Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes, Error: std::fmt::Display + Send> + Send + 'static,
{
    type Body = B;

    async fn answer(mut self, request: Request<Full<Bytes>>) -> Response<B> {
        let Ok(response) = self.call(request).await;
        response
    }
}

/// Registers the A2A server with an engine: the card, JSON-RPC with its streams, and HTTP+JSON.
pub fn serve_through(worker: &Worker, service: impl HttpService) -> Vec<Registration> {
    register_routes(&ROUTES, worker, service)
}

/// Registers a service with an engine as one function that answers HTTP requests at these routes. A route is a method and a path, as
/// engines write them: without the leading slash.
pub fn serve_routes_through(
    worker: &Worker,
    function: &'static str,
    description: &'static str,
    routes: &'static [(&'static str, &'static str)],
    service: impl HttpService,
) -> Vec<Registration> {
    register_routes(&[RouteGroup { function, description, routes }], worker, service)
}

fn register_routes(groups: &[RouteGroup], worker: &Worker, service: impl HttpService) -> Vec<Registration> {
    let mut registered = Vec::new();
    for RouteGroup { function, description, routes } in groups {
        let (service, channels) = (service.clone(), worker.clone());
        let offered = RegisterFunction {
            id: (*function).to_owned(),
            description: Some((*description).to_owned()),
            metadata: Some(json!({"internal": true})),
            ..RegisterFunction::default()
        };
        registered.push(worker.register(offered, move |invocation: Invocation| {
            let (service, channels) = (service.clone(), channels.clone());
            async move {
                let request: HttpInvocation = invocation.read()?;
                let response = request.response.clone();
                let request = request.into_request(&channels).await?;
                respond(service.answer(request).await, response, &channels).await
            }
        }));
        for (method, path) in *routes {
            let config = json!({"api_path": path, "http_method": method});
            registered.push(worker.register_trigger("http", *function, config));
        }
    }
    registered
}

/// A request, in the parts that an engine sends.
#[derive(Debug, Deserialize)]
struct HttpInvocation {
    #[serde(default)]
    query_params: BTreeMap<String, String>,
    #[serde(default)]
    path_params: BTreeMap<String, String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    path: String,
    method: String,
    #[serde(default)]
    body: Option<Box<RawValue>>,
    #[serde(default)]
    request_body: Option<ChannelRef>,
    #[serde(default)]
    response: Option<ChannelRef>,
}

impl HttpInvocation {
    async fn into_request(self, worker: &Worker) -> Result<Request<Full<Bytes>>, CallError> {
        let mut request = self.to_request()?;
        if let (None, Some(channel)) = (self.body_in_call(), &self.request_body)
            && has_body(request.headers(), request.method())
        {
            *request.body_mut() = Full::new(read_body(worker, channel).await?);
        }
        Ok(request)
    }

    /// The request with the body that is in the call.
    fn to_request(&self) -> Result<Request<Full<Bytes>>, CallError> {
        let unreadable =
            |what: &str| CallError::remote("invalid_request", format!("the {what} cannot be read"));
        let uri: Uri = self.uri().parse().map_err(|_| unreadable("path"))?;
        let method: Method = self.method.to_ascii_uppercase().parse().map_err(|_| unreadable("method"))?;
        let body = self.body_in_call().map(|body| Bytes::copy_from_slice(body.get().as_bytes()));
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.header_map();
        Ok(request)
    }

    fn body_in_call(&self) -> Option<&RawValue> {
        self.body.as_deref().filter(|body| body.get() != "null")
    }

    /// The requested path. Path parameters arrive encoded, values of the query arrive decoded.
    fn uri(&self) -> String {
        let mut uri = String::new();
        for segment in self.path.trim_matches('/').split('/') {
            uri.push('/');
            let parameter = segment.strip_prefix(':').and_then(|name| self.path_params.get(name));
            uri.push_str(parameter.map_or(segment, String::as_str));
        }
        for (i, (key, value)) in self.query_params.iter().enumerate() {
            uri.push(if i == 0 { '?' } else { '&' });
            uri.extend(utf8_percent_encode(key, IN_QUERY));
            uri.push('=');
            uri.extend(utf8_percent_encode(value, IN_QUERY));
        }
        uri
    }

    fn header_map(&self) -> HeaderMap {
        let readable = self.headers.iter().filter_map(|(name, value)| {
            let (name, value) = (HeaderName::try_from(name), HeaderValue::from_str(value));
            name.ok().zip(value.ok())
        });
        // The length belongs to the body as the engine received it, and the body in the call may have another one.
        readable.filter(|(name, _)| name != CONTENT_LENGTH || self.body.is_none()).collect()
    }
}

/// Parses a call of an engine as the request that it stands for, with the body that is in the call. For fuzzing.
pub(crate) fn read_invocation(call: &str) -> Result<Request<Full<Bytes>>, CallError> {
    let invocation: HttpInvocation = serde_json::from_str(call)
        .map_err(|error| CallError::remote("deserialization_error", error.to_string()))?;
    invocation.to_request()
}

fn has_body(headers: &HeaderMap, method: &Method) -> bool {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let announced = length.is_some_and(|length| length != "0") || headers.contains_key(TRANSFER_ENCODING);
    announced && method != Method::GET
}

async fn read_body(worker: &Worker, channel: &ChannelRef) -> Result<Bytes, CallError> {
    let mut items = worker.open_reader(channel).await?;
    let mut body = BytesMut::new();
    let Ok(first) = timeout(FIRST_BYTES, items.recv()).await else { return Ok(Bytes::new()) };
    let whole = async {
        let mut next = first;
        while let Some(item) = next {
            match &item {
                ChannelItem::Bytes(bytes) => body.extend_from_slice(bytes),
                ChannelItem::Text(text) => body.extend_from_slice(text.as_bytes()),
            }
            if body.len() > MAX_BODY {
                let text = format!("the body is larger than {MAX_BODY} bytes");
                return Err(CallError::remote("payload_too_large", text));
            }
            next = items.recv().await;
        }
        Ok(())
    };
    timeout(BODY_TIME, whole).await.map_err(|_| CallError::TimedOut)??;
    Ok(body.freeze())
}

/// Sends a response to the engine: as the function's result, or in pieces if it is a stream.
async fn respond<B>(
    answer: Response<B>,
    channel: Option<ChannelRef>,
    worker: &Worker,
) -> Result<Box<RawValue>, CallError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display + Send,
{
    let streams = answer
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    match channel {
        Some(channel) if streams => {
            let writer = worker.open_writer(&channel).await?;
            stream(answer, writer).await?;
            Ok(RawValue::NULL.to_owned())
        }
        Some(_) | None => whole(answer).await,
    }
}

fn shown_headers(headers: &HeaderMap) -> BTreeMap<&str, &str> {
    headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect()
}

async fn whole<B>(answer: Response<B>) -> Result<Box<RawValue>, CallError>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Display + Send,
{
    #[derive(Serialize)]
    struct Answer<'a> {
        status_code: u16,
        headers: BTreeMap<&'a str, &'a str>,
        body: &'a str,
    }
    let (head, body) = answer.into_parts();
    let broken = |error: &dyn std::fmt::Display| CallError::remote("broken_answer", error.to_string());
    let body = body.collect().await.map_err(|error| broken(&error))?.to_bytes();
    let body = std::str::from_utf8(&body).map_err(|error| broken(&error))?;
    let answer = Answer { status_code: head.status.as_u16(), headers: shown_headers(&head.headers), body };
    to_raw_value(&answer).map_err(|error| broken(&error))
}

/// Writes a stream to the channel of a response, until the stream ends or the reader is gone.
async fn stream<B>(answer: Response<B>, mut writer: ChannelWriter) -> Result<(), CallError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: std::fmt::Display + Send,
{
    let (head, body) = answer.into_parts();
    let status: Value = json!({"type": "set_status", "status_code": head.status.as_u16()});
    writer.send_text(status.to_string()).await?;
    let headers: Value = json!({"type": "set_headers", "headers": shown_headers(&head.headers)});
    writer.send_text(headers.to_string()).await?;
    writer.send_bytes(Bytes::from_static(b": ok\n\n")).await?;
    let mut body = std::pin::pin!(body);
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = writer.closed() => return Ok(()),
        };
        match frame {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    writer.send_bytes(data).await?;
                }
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "a stream broke off");
                break;
            }
            None => break,
        }
    }
    writer.close().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http_invocation(path: &str, params: &[(&str, &str)], query: &[(&str, &str)]) -> HttpInvocation {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        HttpInvocation {
            query_params: map(query),
            path_params: map(params),
            headers: BTreeMap::new(),
            path: path.to_owned(),
            method: "GET".to_owned(),
            body: None,
            request_body: None,
            response: None,
        }
    }

    #[test]
    fn a_path_is_put_together_as_it_was() {
        assert_eq!(
            http_invocation("v1/tasks/:id", &[("id", "abc:cancel")], &[]).uri(),
            "/v1/tasks/abc:cancel"
        );
        assert_eq!(http_invocation("/v1/tasks/:id", &[("id", "a%2Fb")], &[]).uri(), "/v1/tasks/a%2Fb");
        assert_eq!(http_invocation("v1/message:send", &[], &[]).uri(), "/v1/message:send");
        assert_eq!(
            http_invocation("v1/tasks", &[], &[("contextId", "a b&c=ü"), ("pageSize", "5")]).uri(),
            "/v1/tasks?contextId=a%20b%26c%3D%C3%BC&pageSize=5"
        );
    }
}
