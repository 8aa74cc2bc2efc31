//! The HTTP+JSON binding.

mod query;
mod route;

use attache_core::{Owner, Reply};
use attache_protocol::{Error, ErrorKind, Extensions, MEDIA_TYPE, Request as Asked, json};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Request, Response, StatusCode};

use self::route::{Matched, Route};
use crate::body::{self, Body};
use crate::params::{Params, Shape};
use crate::sse::{Envelope, Events};
use crate::surface::{
    Surface, challenge, event_stream, is_json, json_response, method_not_allowed, no_such_path,
    with_extensions,
};

/// Answers a request below the binding's path; `path` is what follows it.
pub(crate) async fn call<B>(
    surface: &Surface,
    owner: Owner,
    path: &str,
    request: Request<B>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
{
    let (head, body) = request.into_parts();
    let route = match route::find(&head.method, path) {
        Matched::Route(route) => route,
        Matched::OtherMethod(allow) => return method_not_allowed(allow),
        Matched::Nothing => return refuse(&no_such_path(head.uri.path()), &head.headers),
    };
    match answer(surface, owner, route, &head.headers, head.uri.query(), body).await {
        Ok((reply, active)) => respond(surface, reply, &active, &head.headers),
        Err(error) => refuse(&error, &head.headers),
    }
}

async fn answer<B>(
    surface: &Surface,
    owner: Owner,
    route: Route,
    headers: &HeaderMap,
    query: Option<&str>,
    body: B,
) -> Result<(Reply, Extensions), Error>
where
    B: http_body::Body<Data = Bytes>,
{
    let options = surface.options();
    let params = Params::read(headers, query)?;
    let version = params.version(Shape::Current, options.strict_version)?;
    let service = surface.service();
    let caller = service.admit(owner, version, &params.extensions, params.idempotency_key)?;
    let body = body::read(body, options.max_body, options.body_timeout).await?;
    if !body.is_empty() && !is_json(headers) {
        let text = format!("expected the content type `{MEDIA_TYPE}` or `application/json`");
        return Err(Error::new(ErrorKind::ContentTypeNotSupported, text));
    }
    if json::is_deeper_than(&body, options.max_depth) {
        return Err(Error::new(
            ErrorKind::InvalidRequest,
            format!("the body nests deeper than {}", options.max_depth),
        ));
    }
    let request: Asked = route.request(query.unwrap_or_default(), &body)?;
    let active = caller.extensions.clone();
    let reply = service.call(caller, request, params.resume).await?;
    Ok((reply, active))
}

fn respond(surface: &Surface, reply: Reply, active: &Extensions, headers: &HeaderMap) -> Response<Body> {
    let response = if let Reply::Events(stream, view) = reply {
        event_stream(Events::new(stream, view, Envelope::Plain, surface.options().heartbeat))
    } else {
        let mut out = Vec::with_capacity(1024);
        crate::reply::write(&reply, &mut out);
        json_response(StatusCode::OK, media_type(headers), out)
    };
    with_extensions(response, active)
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
    let status =
        StatusCode::from_u16(error.kind().http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    challenge(json_response(status, media_type(headers), crate::reply::http_error_body(error)), error)
}
