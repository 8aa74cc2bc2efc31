//! JSON-RPC over HTTP: one request in a body, the response in a body or as server-sent events.

use attache_protocol::jsonrpc::{self, Id};
use attache_protocol::{Error, ErrorClass};
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};

use crate::dispatch::{Dispatcher, JsonRpcResponse, RequestContext, ServiceParameters};
use crate::http::body::{self, Body, BodyError};
use crate::http::response::{
    event_stream, json_response, method_not_allowed, with_extensions, with_retry_hints,
};
use crate::http::route::is_same_path;

/// Answers a request to the JSON-RPC endpoint.
pub(crate) async fn call<B>(
    dispatcher: &Dispatcher,
    context: &RequestContext,
    head: &Parts,
    body: B,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = BodyError>,
{
    if head.method != Method::POST {
        return method_not_allowed("POST");
    }
    let options = dispatcher.options();
    let body = match body::read(body, options.max_body, options.body_timeout).await {
        Ok(body) => body,
        Err(error) => return error_response(&Id::NULL, &error),
    };
    if let Some(forwarder) = &options.forwarder {
        return forwarder.over_http(dispatcher, context, &body, &head.headers).await;
    }
    let parameters = ServiceParameters::read(&head.headers, head.uri.query());
    let is_oldest = options.paths.oldest.iter().any(|path| is_same_path(path, head.uri.path()));
    match dispatcher.jsonrpc(context, parameters, is_oldest, &body).await {
        JsonRpcResponse::None => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        JsonRpcResponse::Result { body, extensions } => {
            with_extensions(json_response(StatusCode::OK, "application/json", body), &extensions)
        }
        JsonRpcResponse::Error { body, error } => error_response_with(&error, body),
        JsonRpcResponse::Events { id: _, events, extensions } => {
            with_extensions(event_stream(events, options.heartbeat), &extensions)
        }
    }
}

/// An error response to a request. JSON-RPC errors travel in successful HTTP responses, except those that HTTP itself must know.
pub(crate) fn error_response(id: &Id, error: &Error) -> Response<Body> {
    error_response_with(error, jsonrpc::error_response(id, error))
}

fn error_response_with(error: &Error, body: Vec<u8>) -> Response<Body> {
    let status = match error.kind().class() {
        ErrorClass::Denied | ErrorClass::Transport => error.kind().http_status(),
        ErrorClass::Protocol => 200,
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    with_retry_hints(json_response(status, "application/json", body), error)
}
