//! Streamable HTTP, with bounded responses and our own HTTP client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_client::Address;
use attache_outbound::{build_client, causes, guarded_client, restricted_client};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use parking_lot::Mutex;
use reqwest::{Client, ClientBuilder, Method, RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use url::Url;

use super::login::{Login, LoginPlace, bearer, login_place};
use super::{McpError, McpOptions};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// The headers that the transport sets itself.
const OWN_HEADERS: [&str; 7] = [
    "accept",
    "content-type",
    "mcp-session-id",
    "last-event-id",
    "mcp-protocol-version",
    "host",
    "content-length",
];

/// Why a request failed. No text contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum HttpError {
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("it requires a login: {0}")]
    Login(String),
    #[error("it responded with HTTP status {0}")]
    Status(u16),
    #[error("its response has more than {0} bytes")]
    TooLarge(usize),
    #[error("its response is invalid: {0}")]
    Invalid(String),
}

type Failure = StreamableHttpError<HttpError>;

fn fail(error: HttpError) -> Failure {
    StreamableHttpError::Client(error)
}

/// The HTTP client of a connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Http(Arc<Inner>);

struct Inner {
    client: Client,
    headers: HeaderMap,
    login: Login,
    max_body: usize,
    /// The last error, because the transport does not keep its type.
    failure: Mutex<Option<HttpError>>,
}

impl Http {
    pub(super) fn new(url: &Url, options: &McpOptions, max_body: usize) -> Result<Self, McpError> {
        let invalid = |text: String| McpError::Invalid(text);
        if let Some(policy) = &options.policy {
            policy.check_url(url.as_str()).map_err(|refused| McpError::Connect {
                server: options.server.to_string(),
                why: policy.explain(&refused),
            })?;
        }
        let headers = headers(options)?;
        if !headers.is_empty() || options.oauth.is_some() || options.login.is_some() {
            let mut address = url.clone();
            address.set_query(None);
            // This fails without TLS, unless the server is on this machine.
            address.as_str().parse::<Address>().map_err(|error| invalid(error.to_string()))?;
        }
        let (oauth, stored) = (options.oauth.as_ref(), options.login.as_ref());
        let login = Login::new(oauth, stored, url, !headers.is_empty(), options.policy.clone())
            .map_err(|error| invalid(error.to_string()))?;
        let configure = |client: ClientBuilder| client.connect_timeout(Duration::from_secs(10));
        let client = match options.policy.clone() {
            Some(policy) => guarded_client(Arc::new(policy), configure),
            None => build_client(|| configure(restricted_client())),
        };
        let client = client.map_err(|error| invalid(error.to_string()))?;
        Ok(Self(Arc::new(Inner { client, headers, login, max_body, failure: Mutex::default() })))
    }

    /// Where callers of the server log in. Nothing, if it takes a request without credentials.
    pub(super) async fn login_place(&self, url: &Url) -> Result<Option<LoginPlace>, HttpError> {
        let initialize = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "attache", "version": env!("CARGO_PKG_VERSION")}}});
        let request = self.0.client.post(url.clone()).header(ACCEPT, "application/json, text/event-stream");
        let request = request.header(CONTENT_TYPE, "application/json").body(initialize.to_string());
        let response = self.send_once(request, None).await?;
        match response.status() {
            StatusCode::UNAUTHORIZED => {}
            status if status.is_success() => return Ok(None),
            status => return Err(HttpError::Status(status.as_u16())),
        }
        Ok(Some(login_place(&self.0.client, url, response.headers()).await))
    }

    /// The last error.
    pub(super) fn failure(&self) -> Option<HttpError> {
        self.0.failure.lock().clone()
    }

    /// Sends a request. After a 401 it is sent once more with a new token.
    async fn send(&self, make: impl Fn() -> RequestBuilder) -> Result<Response, Failure> {
        let sent = self.send_with_login(make).await;
        sent.map_err(|error| {
            *self.0.failure.lock() = Some(error.clone());
            fail(error)
        })
    }

    async fn send_with_login(&self, make: impl Fn() -> RequestBuilder) -> Result<Response, HttpError> {
        let Inner { client, login, .. } = &*self.0;
        let token = login.token();
        let response = self.send_once(make(), token.as_ref()).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let token = login.renew(client, response.headers(), token.as_ref()).await?;
        let response = self.send_once(make(), Some(&token)).await?;
        match response.status() {
            StatusCode::UNAUTHORIZED => Err(HttpError::Login("it rejected a new token".to_owned())),
            _ => Ok(response),
        }
    }

    async fn send_once(
        &self,
        request: RequestBuilder,
        token: Option<&attache_client::Secret>,
    ) -> Result<Response, HttpError> {
        let mut headers = self.0.headers.clone();
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, bearer(token)?);
        }
        request.headers(headers).send().await.map_err(|error| HttpError::Unreachable(cause(&error)))
    }

    fn request(
        &self,
        method: Method,
        url: &str,
        session: Option<&str>,
        custom: &HashMap<HeaderName, HeaderValue>,
    ) -> RequestBuilder {
        let mut request = self.0.client.request(method, url);
        for (name, value) in custom {
            request = request.header(name, value);
        }
        match session {
            Some(session) => request.header(SESSION, session),
            None => request,
        }
    }

    fn record(&self, error: HttpError) -> Failure {
        *self.0.failure.lock() = Some(error.clone());
        fail(error)
    }

    fn events(&self, response: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let bytes =
            response.bytes_stream().map(|chunk| chunk.map_err(|error| std::io::Error::other(cause(&error))));
        events(bytes, self.0.max_body)
    }
}

/// The events in a stream of bytes. An event of more than `limit` bytes is an error, after which nothing is read.
pub(super) fn events(
    bytes: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    limit: usize,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let mut limiter = EventLimit::new(limit);
    let bytes = bytes.map(move |chunk| {
        let chunk = chunk?;
        limiter.count(&chunk)?;
        Ok::<Bytes, std::io::Error>(chunk)
    });
    let bytes = bytes.scan(false, |failed, chunk| {
        let is_over = std::mem::replace(failed, *failed || chunk.is_err());
        std::future::ready((!is_over).then_some(chunk))
    });
    SseStream::from_bytes_stream(bytes).boxed()
}

/// The headers of the options.
fn headers(options: &McpOptions) -> Result<HeaderMap, McpError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &options.headers {
        let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        let parsed = HeaderName::try_from(name)
            .map_err(|_| McpError::Invalid(format!("`{shown}` cannot be the name of a header")))?;
        if OWN_HEADERS.contains(&parsed.as_str()) {
            return Err(McpError::Invalid(format!("the header `{shown}` is set by the protocol")));
        }
        let mut value = HeaderValue::try_from(value.reveal()).map_err(|_| {
            McpError::Invalid(format!("the value of the header `{shown}` has invalid characters"))
        })?;
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    if let Some(token) = &options.token {
        let value = bearer(token).map_err(|error| McpError::Invalid(error.to_string()))?;
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// The innermost cause. The outermost text contains the URL.
fn cause(error: &reqwest::Error) -> String {
    causes(error).last().map_or_else(|| "the connection failed".to_owned(), ToString::to_string)
}

/// Reads a body up to a limit.
pub(super) async fn read_body(mut response: Response, limit: usize) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > limit => return Err(HttpError::TooLarge(limit)),
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) => return Err(HttpError::Unreachable(cause(&error))),
        }
    }
}

/// Limits the size of an event of a stream. An event ends with an empty line.
struct EventLimit {
    limit: usize,
    length: usize,
    is_line_empty: bool,
    is_after_return: bool,
}

impl EventLimit {
    fn new(limit: usize) -> Self {
        Self { limit, length: 0, is_line_empty: true, is_after_return: false }
    }

    fn count(&mut self, chunk: &[u8]) -> std::io::Result<()> {
        for byte in chunk {
            // A line ends with a line feed, a carriage return, or both.
            let is_second_byte_of_end = *byte == b'\n' && self.is_after_return;
            self.is_after_return = *byte == b'\r';
            match byte {
                b'\n' if is_second_byte_of_end => {}
                b'\n' | b'\r' if self.is_line_empty => self.length = 0,
                b'\n' | b'\r' => self.is_line_empty = true,
                _ => {
                    self.is_line_empty = false;
                    self.length += 1;
                }
            }
            if self.length > self.limit {
                return Err(std::io::Error::other(HttpError::TooLarge(self.limit)));
            }
        }
        Ok(())
    }
}

fn is_type(response: &Response, wanted: &str) -> bool {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| {
        value.split(';').next().is_some_and(|value| value.trim().eq_ignore_ascii_case(wanted))
    })
}

impl StreamableHttpClient for Http {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let body = Bytes::from(serde_json::to_vec(&message)?);
        let make = || {
            self.request(Method::POST, &uri, session_id.as_deref(), &custom_headers)
                .header(ACCEPT, "application/json, text/event-stream")
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone())
        };
        let response = self.send(make).await?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session_id.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let session =
            response.headers().get(SESSION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if status.is_success() && is_type(&response, "text/event-stream") {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response), session));
        }
        let is_json = is_type(&response, "application/json");
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        let body = read_body(response, self.0.max_body).await.map_err(|error| self.record(error))?;
        match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
            Ok(JsonRpcMessage::Error(error))
                if status == StatusCode::BAD_REQUEST
                    && session_id.is_some()
                    && error.error.message.to_ascii_lowercase().contains("session") =>
            {
                // The protocol wants 404, and common servers respond with 400.
                Err(StreamableHttpError::SessionExpired)
            }
            Ok(error @ JsonRpcMessage::Error(_)) if is_json => {
                Ok(StreamableHttpPostResponse::Json(error, session))
            }
            _ if !status.is_success() => Err(self.record(HttpError::Status(status.as_u16()))),
            Ok(message) if is_json => Ok(StreamableHttpPostResponse::Json(message, session)),
            // What is not a request has no answer, whatever the body is.
            _ if !is_request => Ok(StreamableHttpPostResponse::Accepted),
            Ok(_) => {
                let text = "expected the content type `application/json` or `text/event-stream`";
                Err(self.record(HttpError::Invalid(text.to_owned())))
            }
            Err(error) => Err(self.record(HttpError::Invalid(error.to_string()))),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        // The server may not support it, and the session ends by itself.
        self.send(|| self.request(Method::DELETE, &uri, Some(&session_id), &custom_headers)).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let make = || {
            let request = self
                .request(Method::GET, &uri, session_id.as_deref(), &custom_headers)
                .header(ACCEPT, "text/event-stream");
            match &last_event_id {
                Some(id) => request.header(LAST_EVENT, id),
                None => request,
            }
        };
        let response = self.send(make).await?;
        match response.status() {
            status if status.is_success() && is_type(&response, "text/event-stream") => {
                Ok(self.events(response))
            }
            // Most servers without such a stream say 405, some say 404 or something else.
            _ => Err(StreamableHttpError::ServerDoesNotSupportSse),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_bounded_and_a_stream_is_not() {
        let mut limit = EventLimit::new(10);
        for end in ["\r\n\r\n", "\n\n", "\r\r", "\r\n\n"].into_iter().cycle().take(100) {
            assert!(limit.count(b"data: abcd").is_ok());
            assert!(limit.count(end.as_bytes()).is_ok());
        }
        assert!(EventLimit::new(10).count(b"data: abcde").is_err());
        assert!(limit.count(b"data: ab\n").is_ok());
        assert!(limit.count(b"data: ab\n").is_err());
    }
}
