//! The HTTP+JSON binding.

pub(crate) mod operation_path;
mod query;

use attache_core::Reply;
use attache_protocol::dialect::{HttpDialect, HttpRequest};
use attache_protocol::{Error, ErrorKind, MEDIA_TYPE, json};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use self::operation_path::{Matched, OperationPath};
use crate::dispatch::{
    Completed, Dispatcher, Envelope, EventEncoder, Generation, RequestContext, ServiceParameters,
    http_error_body, http_error_body_for, to_dialect,
};
use crate::http::body::{self, Body, BodyError};
use crate::http::response::{
    event_stream, json_response, method_not_allowed, no_such_path, with_extensions, with_retry_hints,
};

/// Answers a request below the binding's path; `path` is the rest of the path, and the generation of clients that the path is for.
pub(crate) async fn call<B>(
    dispatcher: &Dispatcher,
    context: &RequestContext,
    (path, generation): (&str, Generation),
    head: &Parts,
    body: B,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = BodyError>,
{
    let path = match operation_path::find(&head.method, path) {
        Matched::Operation(path) => path,
        Matched::OtherMethod(allow) => return method_not_allowed(allow),
        Matched::Nothing => return error_response(&no_such_path(head.uri.path()), &head.headers),
    };
    match answer(dispatcher, context, (path, generation), head, body).await {
        Ok(response) => response,
        Err(Failure { error, dialect: None }) => error_response(&error, &head.headers),
        Err(Failure { error, dialect: Some(dialect) }) => {
            let (status, body) = dialect.error_response(&error);
            error_response_with(&error, status, "application/json", body)
        }
    }
}

/// An error, and the dialect that it is reported in.
struct Failure {
    error: Error,
    dialect: Option<HttpDialect>,
}

async fn answer<B>(
    dispatcher: &Dispatcher,
    context: &RequestContext,
    (path, generation): (OperationPath, Generation),
    head: &Parts,
    body: B,
) -> Result<Response<Body>, Failure>
where
    B: http_body::Body<Data = Bytes, Error = BodyError>,
{
    let (options, headers) = (dispatcher.options(), &head.headers);
    let current = |error| Failure { error, dialect: None };
    let parameters = ServiceParameters::read(headers, head.uri.query()).map_err(current)?;
    let allows_older = parameters.allows_older(options.strict_version);
    if !allows_older {
        parameters.version(Generation::Current, options.strict_version).map_err(current)?;
    }
    let states_older = parameters.states_older() || generation == Generation::Older && allows_older;
    let dialect_of = |request: &HttpRequest<'_>| match (states_older, allows_older) {
        (true, _) => HttpDialect::stated(request),
        (false, true) => HttpDialect::of(request),
        (false, false) => None,
    };
    let query = query::pairs(head.uri.query().unwrap_or_default());
    let pairs = query.as_deref().unwrap_or_default();
    let body = match body::read(body, options.max_body, options.body_timeout).await {
        Ok(body) => body,
        Err(error) => {
            return Err(Failure { error, dialect: dialect_of(&path.http_request(pairs, headers, b"")) });
        }
    };
    let dialect = dialect_of(&path.http_request(pairs, headers, &body));
    let operation = path.operation();
    let parse = || {
        if json::is_deeper_than(&body, options.max_depth) {
            let text = format!("the body nests deeper than {}", options.max_depth);
            return Err(Error::new(ErrorKind::InvalidRequest, text));
        }
        let pairs = query?;
        match dialect {
            Some(dialect) => dialect.read(&path.http_request(&pairs, headers, &body)),
            None => path.request(&pairs, &body),
        }
    };
    let model = dialect.map(HttpDialect::dialect);
    match dispatcher.call(context, parameters, Some(operation), model, parse).await {
        Ok(completed) => Ok(respond(dispatcher, completed, dialect, headers)),
        Err(error) => Err(Failure { error, dialect }),
    }
}

fn respond(
    dispatcher: &Dispatcher,
    completed: Completed,
    dialect: Option<HttpDialect>,
    headers: &HeaderMap,
) -> Response<Body> {
    let Completed { reply, extensions } = completed;
    let mut response = if let Reply::Events(events, view) = reply {
        let events = EventEncoder::new(events, view, Envelope::Plain(dialect));
        event_stream(events, dispatcher.options().heartbeat)
    } else {
        let mut out = Vec::with_capacity(1024);
        let media_type = match dialect {
            None => {
                reply.write(&mut out);
                media_type(headers)
            }
            Some(dialect) => {
                dialect.write(&to_dialect(&reply), &mut out);
                "application/json"
            }
        };
        json_response(StatusCode::OK, media_type, out)
    };
    response = with_extensions(response, &extensions);
    if dialect.is_some()
        && let Some(list) = response.headers().get("a2a-extensions").cloned()
    {
        response.headers_mut().insert("x-a2a-extensions", list);
    }
    response
}

/// The media type of the response: A2A's own for clients that use it, plain JSON for all others.
fn media_type(headers: &HeaderMap) -> &'static str {
    let names_own = |value: &http::HeaderValue| value.to_str().is_ok_and(|text| text.contains(MEDIA_TYPE));
    if headers.get_all(ACCEPT).iter().any(names_own) || headers.get(CONTENT_TYPE).is_some_and(names_own) {
        MEDIA_TYPE
    } else {
        "application/json"
    }
}

/// An error response.
pub(crate) fn error_response(error: &Error, headers: &HeaderMap) -> Response<Body> {
    error_response_with(error, error.kind().http_status(), media_type(headers), http_error_body(error))
}

/// An error response with a status that HTTP has and the protocol does not.
pub(crate) fn error_response_as(status: StatusCode, error: &Error, headers: &HeaderMap) -> Response<Body> {
    error_response_with(error, status.as_u16(), media_type(headers), http_error_body_for(status, error))
}

fn error_response_with(
    error: &Error,
    status: u16,
    media_type: &'static str,
    body: Vec<u8>,
) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_retry_hints(json_response(status, media_type, body), error)
}
