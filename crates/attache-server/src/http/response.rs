//! What the HTTP responses of all bindings have in common.

use std::time::Duration;

use attache_protocol::{Error, ErrorKind, Extensions};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};

use super::body::Body;
use super::sse::SseBody;
use crate::card;
use crate::dispatch::{EventEncoder, http_error_body_for};

pub(crate) fn json_response(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A stream of server-sent events.
pub(crate) fn event_stream(events: EventEncoder, heartbeat: Duration) -> Response<Body> {
    as_event_stream(Body::events(SseBody::new(events, heartbeat)))
}

/// A response with this body of server-sent events.
pub(crate) fn as_event_stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // Asks proxies to forward events without buffering.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Adds the header that lists the active extensions.
pub(crate) fn with_extensions(mut response: Response<Body>, active: &Extensions) -> Response<Body> {
    if !active.is_empty() {
        let list = active.iter().collect::<Vec<_>>().join(", ");
        if let Ok(value) = HeaderValue::from_str(&list) {
            response.headers_mut().insert(HeaderName::from_static("a2a-extensions"), value);
        }
    }
    response
}

/// Adds the headers by which an error response says what to do next: authenticate, or try again later.
pub(crate) fn with_retry_hints(mut response: Response<Body>, error: &Error) -> Response<Body> {
    let headers = response.headers_mut();
    if error.kind() == ErrorKind::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let soon = (error.kind() == ErrorKind::Unavailable).then_some(Duration::from_secs(1));
    if let Some(wait) = error.retry_after().or(soon) {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    }
    response
}

pub(crate) fn method_not_allowed(allow: &'static str) -> Response<Body> {
    let error = Error::new(ErrorKind::InvalidRequest, format!("expected one of the methods {allow}"));
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let mut response = json_response(status, "application/json", http_error_body_for(status, &error));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// The error for a path that does not exist.
pub(crate) fn no_such_path(path: &str) -> Error {
    let path: String = path.chars().take(128).collect();
    let text = format!("there is nothing at `{path}`: the card at `{}` lists the endpoints", card::PATH);
    Error::new(ErrorKind::MethodNotFound, text)
}
