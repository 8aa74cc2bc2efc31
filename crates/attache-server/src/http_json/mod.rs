//! The HTTP+JSON binding.

mod query;
mod route;

use attache_core::Reply;
use attache_protocol::dialect::{HttpDialect, HttpRequest};
use attache_protocol::{Error, ErrorKind, Extensions, MEDIA_TYPE, json};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};

use self::route::{Matched, Route};
use crate::body::{self, Body, BodyError};
use crate::limits::RequestContext;
use crate::params::{Params, Shape};
use crate::sse::{Envelope, Events};
use crate::surface::{
    Surface, challenge, event_stream, json_response, method_not_allowed, no_such_path, with_extensions,
};

/// Answers a request below the binding's path; `path` is what follows it.
pub(crate) async fn call<B>(
    surface: &Surface,
    context: RequestContext,
    path: &str,
    head: &Parts,
    body: B,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = BodyError>,
{
    let route = match route::find(&head.method, path) {
        Matched::Route(route) => route,
        Matched::OtherMethod(allow) => return method_not_allowed(allow),
        Matched::Nothing => return refuse(&no_such_path(head.uri.path()), &head.headers),
    };
    match answer(surface, context, route, head, body).await {
        Ok(response) => response,
        Err(Refusal { error, older: None }) => refuse(&error, &head.headers),
        Err(Refusal { error, older: Some(dialect) }) => {
            let (status, body) = dialect.error_response(&error);
            refuse_with(&error, status, "application/json", body)
        }
    }
}

/// A refusal, with the words to say it in.
struct Refusal {
    error: Error,
    older: Option<HttpDialect>,
}

async fn answer<B>(
    surface: &Surface,
    context: RequestContext,
    route: Route,
    head: &Parts,
    body: B,
) -> Result<Response<Body>, Refusal>
where
    B: http_body::Body<Data = Bytes, Error = BodyError>,
{
    let (options, headers) = (surface.options(), &head.headers);
    let plain = |error| Refusal { error, older: None };
    let params = Params::read(headers, head.uri.query()).map_err(plain)?;
    if !params.allows_older(options.strict_version) {
        params.version(Shape::Current, options.strict_version).map_err(plain)?;
    }
    let older = |asked: &HttpRequest<'_>| {
        if params.states_older() {
            HttpDialect::stated(asked)
        } else if params.allows_older(options.strict_version) {
            HttpDialect::of(asked)
        } else {
            None
        }
    };
    let query = query::pairs(head.uri.query().unwrap_or_default());
    let pairs = query.as_deref().unwrap_or_default();
    let body = match body::read(body, options.max_body, options.body_timeout).await {
        Ok(body) => body,
        Err(error) => {
            return Err(Refusal { error, older: older(&route.asked(pairs, headers, b"")) });
        }
    };
    let older = older(&route.asked(pairs, headers, &body));
    let reply = async {
        let version = match older {
            Some(older) => older.dialect().version(),
            None => params.version(Shape::Current, options.strict_version)?,
        };
        let service = surface.service();
        let identity = context.identity.clone();
        let mut caller = service.admit(identity, version, &params.extensions, params.idempotency_key)?;
        if json::is_deeper_than(&body, options.max_depth) {
            return Err(Error::new(
                ErrorKind::InvalidRequest,
                format!("the body nests deeper than {}", options.max_depth),
            ));
        }
        let pairs = query?;
        let request = match older {
            Some(dialect) => dialect.read(&route.asked(&pairs, headers, &body))?,
            None => route.request(&pairs, &body)?,
        };
        caller.dialect = older.map(HttpDialect::dialect);
        let active = caller.extensions.clone();
        let reply = surface.carry_out(&context, caller, request, params.resume).await?;
        Ok((reply, active))
    };
    let reply = reply.await;
    match reply {
        Ok((reply, active)) => Ok(respond(surface, reply, older, &active, headers)),
        Err(error) => Err(Refusal { error, older }),
    }
}

fn respond(
    surface: &Surface,
    reply: Reply,
    older: Option<HttpDialect>,
    active: &Extensions,
    headers: &HeaderMap,
) -> Response<Body> {
    let mut response = if let Reply::Events(stream, view) = reply {
        event_stream(Events::new(stream, view, Envelope::Plain(older), surface.options().heartbeat))
    } else {
        let mut out = Vec::with_capacity(1024);
        let media_type = match older {
            None => {
                crate::reply::write(&reply, &mut out);
                media_type(headers)
            }
            Some(dialect) => {
                dialect.write(&crate::reply::answer(&reply), &mut out);
                "application/json"
            }
        };
        json_response(StatusCode::OK, media_type, out)
    };
    response = with_extensions(response, active);
    if older.is_some()
        && let Some(list) = response.headers().get("a2a-extensions").cloned()
    {
        response.headers_mut().insert("x-a2a-extensions", list);
    }
    response
}

/// The media type to answer in: A2A's own for those who use it, plain JSON for everyone else.
fn media_type(headers: &HeaderMap) -> &'static str {
    let names_own = |value: &http::HeaderValue| value.to_str().is_ok_and(|text| text.contains(MEDIA_TYPE));
    if headers.get_all(ACCEPT).iter().any(names_own) || headers.get(CONTENT_TYPE).is_some_and(names_own) {
        MEDIA_TYPE
    } else {
        "application/json"
    }
}

/// A response that refuses a request.
pub(crate) fn refuse(error: &Error, headers: &HeaderMap) -> Response<Body> {
    let body = crate::reply::http_error_body(error);
    refuse_with(error, error.kind().http_status(), media_type(headers), body)
}

/// The same with a status that HTTP has for it and the protocol does not.
pub(crate) fn refuse_as(status: StatusCode, error: &Error, headers: &HeaderMap) -> Response<Body> {
    let body = crate::reply::http_error_body_for(status, error);
    refuse_with(error, status.as_u16(), media_type(headers), body)
}

fn refuse_with(error: &Error, status: u16, media_type: &'static str, body: Vec<u8>) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    challenge(json_response(status, media_type, body), error)
}
