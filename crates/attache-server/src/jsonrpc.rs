//! The JSON-RPC binding.

use std::borrow::Cow;

use attache_core::Reply;
use attache_protocol::jsonrpc::{self, Call, Id, InvalidCall, ParsedRequest};
use attache_protocol::{Dialect, Error, ErrorKind, Extensions, Operation, Request as Operands, json};
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, StatusCode};

use crate::body::{self, Body, BodyError};
use crate::limits::RequestContext;
use crate::params::{Params, Shape};
use crate::sse::{Envelope, Events};
use crate::surface::{Surface, event_stream, json_response, method_not_allowed, same_path, with_extensions};

/// Answers a request to the JSON-RPC endpoint.
pub(crate) async fn call<B>(surface: &Surface, context: RequestContext, head: &Parts, body: B) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = BodyError>,
{
    if head.method != Method::POST {
        return method_not_allowed("POST");
    }
    let options = surface.options();
    let body = match body::read(body, options.max_body, options.body_timeout).await {
        Ok(body) => body,
        Err(error) => return refuse(&Id::NULL, &error),
    };
    match answer(surface, context, head, &body).await {
        Ok(response) => response,
        Err(Refusal { id, error, older: None }) => refuse(&id, &error),
        Err(Refusal { id, error, older: Some(dialect) }) => {
            refuse_with(&error, dialect.error_response(&id, &error))
        }
    }
}

/// A refusal, with the id to answer to and the words to say it in.
struct Refusal {
    id: Id,
    error: Error,
    older: Option<Dialect>,
}

async fn answer(
    surface: &Surface,
    context: RequestContext,
    head: &Parts,
    body: &[u8],
) -> Result<Response<Body>, Refusal> {
    let (options, headers) = (surface.options(), &head.headers);
    let plain = |id, error| Refusal { id, error, older: None };
    // What can be refused without understanding the body is; the id is echoed where there is one.
    let early = |error| plain(Call::peek_id(body), error);
    let params = Params::read(headers, head.uri.query()).map_err(early)?;
    if !params.allows_older(options.strict_version) {
        params.version(Shape::Current, options.strict_version).map_err(early)?;
    }
    if json::is_deeper_than(body, options.max_depth) {
        let text = format!("the body nests deeper than {}", options.max_depth);
        return Err(plain(Id::NULL, Error::new(ErrorKind::InvalidRequest, text)));
    }
    let oldest = options.paths.oldest.iter().any(|path| same_path(path, head.uri.path()));
    let allows_older = params.allows_older(options.strict_version);
    let Asked { id, what } =
        Asked::read(body, allows_older, oldest).map_err(|refused| plain(refused.id, refused.error))?;
    let older = match &what {
        What::Request(dialect, _) => *dialect,
        // Who says that it speaks 0.3 gets that and nothing beside it.
        What::Older(Dialect::Either, ..) if params.states_older() => Some(Dialect::V0_3),
        What::Older(dialect, ..) if allows_older => Some(*dialect),
        // That there is no such method is told in the words of who asks.
        What::Unknown(method) if allows_older && (params.states_older() || method.contains('/')) => {
            Some(Dialect::V0_3)
        }
        What::Older(..) | What::Arguments(..) | What::Unknown(_) => None,
    };
    // All but the waiting, so that what is waited for is small.
    let begin = || {
        let version = match older {
            Some(dialect) => dialect.version(),
            None => params.version(Shape::Current, options.strict_version)?,
        };
        let service = surface.service();
        let request = match what {
            // What is asked is known before it is let in, but a refusal to let it in comes first.
            What::Request(_, request) => Ok(request),
            What::Arguments(operation, arguments) => operation.parse(arguments),
            What::Older(_, method, arguments) if let Some(dialect) = older => {
                dialect.read(&method, arguments)
            }
            What::Unknown(method) if let Some(dialect) = older => dialect.read(&method, b"{}"),
            What::Older(_, method, _) | What::Unknown(method) => {
                let known = Operation::ALL.iter().map(|operation| operation.name());
                return Err(Error::method_not_found(&method, known));
            }
        };
        let identity = context.identity.clone();
        let mut caller = service.admit(identity, version, &params.extensions, params.idempotency_key)?;
        caller.dialect = older;
        let active = caller.extensions.clone();
        Ok((surface.carry_out(&context, caller, request?, params.resume), active))
    };
    let reply = match begin() {
        Ok((carrying_out, active)) => carrying_out.await.map(|reply| (reply, active)),
        Err(error) => Err(error),
    };
    match (reply, id) {
        // Whoever sends no id wants no answer, not even a refusal.
        (_, None) => Ok(no_answer()),
        (Ok((reply, active)), Some(id)) => Ok(respond(surface, &id, reply, older, &active)),
        (Err(error), Some(id)) => Err(Refusal { id, error, older }),
    }
}

/// A request, as far as it can be understood without knowing its version.
struct Asked<'a> {
    id: Option<Id>,
    what: What<'a>,
}

enum What<'a> {
    Request(Option<Dialect>, Operands),
    Arguments(Operation, &'a [u8]),
    Older(Dialect, Cow<'a, str>, &'a [u8]),
    Unknown(Cow<'a, str>),
}

impl<'a> Asked<'a> {
    /// `older` if it may be in an older dialect, `oldest` where the address tells that the oldest one is meant.
    fn read(body: &'a [u8], older: bool, oldest: bool) -> Result<Self, InvalidCall> {
        if let Some(ParsedRequest { id, request, dialect }) = ParsedRequest::parse(body, older) {
            return Ok(Self { id: Some(id), what: What::Request(dialect, request) });
        }
        let Call { id, method, params } = Call::parse(body)?;
        let what = match Operation::from_name(&method) {
            Some(operation) => What::Arguments(operation, params),
            None => {
                match if oldest { Dialect::of_v0_1(&method, params) } else { Dialect::of(&method, params) }
                {
                    Some(dialect) => What::Older(dialect, method, params),
                    None => What::Unknown(method),
                }
            }
        };
        Ok(Self { id, what })
    }
}

fn respond(
    surface: &Surface,
    id: &Id,
    reply: Reply,
    older: Option<Dialect>,
    active: &Extensions,
) -> Response<Body> {
    let response = if let Reply::Events(stream, view) = reply {
        let envelope = Envelope::JsonRpc(id.clone(), older.map(|dialect| (dialect, dialect.events())));
        event_stream(Events::new(stream, view, envelope, surface.options().heartbeat))
    } else {
        let mut out = Vec::with_capacity(1024);
        jsonrpc::write_result_prefix(id, &mut out);
        match older {
            None => crate::reply::write(&reply, &mut out),
            Some(dialect) => dialect.write(&crate::reply::answer(&reply), &mut out),
        }
        out.extend_from_slice(jsonrpc::RESULT_SUFFIX.as_bytes());
        json_response(StatusCode::OK, "application/json", out)
    };
    with_extensions(response, active)
}

fn no_answer() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// JSON-RPC errors travel in successful responses, except those that HTTP itself must know about.
pub(crate) fn refuse(id: &Id, error: &Error) -> Response<Body> {
    refuse_with(error, jsonrpc::error_response(id, error))
}

fn refuse_with(error: &Error, body: Vec<u8>) -> Response<Body> {
    let status = match error.kind() {
        ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::PayloadTooLarge
        | ErrorKind::ResourceExhausted
        | ErrorKind::Unavailable => {
            StatusCode::from_u16(error.kind().http_status()).unwrap_or(StatusCode::OK)
        }
        ErrorKind::TaskNotFound
        | ErrorKind::TaskNotCancelable
        | ErrorKind::PushNotificationNotSupported
        | ErrorKind::UnsupportedOperation
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::InvalidAgentResponse
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported
        | ErrorKind::TaskGenerationMismatch
        | ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::MethodNotFound
        | ErrorKind::InvalidParams
        | ErrorKind::Internal => StatusCode::OK,
    };
    crate::surface::challenge(json_response(status, "application/json", body), error)
}
