//! The surface that all bindings share: which path is whose, and what every response has in common.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use attache_core::{BoxFuture, Identity, Principal, Service};
use attache_protocol::{Error, ErrorKind, Extensions};
use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio_util::task::AbortOnDropHandle;

use crate::auth::{self, Authenticator};
use crate::body::{Body, BodyError, BoxBody};
use crate::card::{self, CardHost};
use crate::push::Courier;
use crate::sse::Events;
use crate::{Paths, ServerOptions, grpc, http_json, jsonrpc};

/// Everything a server answers, as a tower service: the card, the three bindings and the health check.
///
/// Cheap to clone. [`Server::into_router`](crate::Server::into_router) mounts it into an axum application.
#[derive(Clone)]
pub struct Surface(Arc<Inner>);

struct Inner {
    service: Service,
    options: ServerOptions,
    card: CardHost,
    authenticator: Option<Arc<dyn Authenticator>>,
    in_flight: Arc<AtomicUsize>,
    courier: Option<Courier>,
    fallback: Option<Fallback>,
    /// What runs beside the requests, for as long as there is a surface.
    _background: Vec<AbortOnDropHandle<()>>,
}

/// Answers requests to paths that are not the surface's own; nothing for those that are nobody's.
pub(crate) type Fallback =
    Box<dyn Fn(Request<BoxBody>) -> BoxFuture<'static, Option<Response<Body>>> + Send + Sync>;

/// A request that is being worked on; counted until dropped.
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Surface {
    pub(crate) fn new(
        service: Service,
        options: ServerOptions,
        courier: Option<Courier>,
        card: CardHost,
        authenticator: Option<Arc<dyn Authenticator>>,
        fallback: Option<Fallback>,
        beside: Option<BoxFuture<'static, ()>>,
    ) -> Self {
        let keeping_house = tokio::spawn(service.clone().keep_house());
        let delivering = courier.clone().map(|courier| tokio::spawn(courier.run()));
        let beside = beside.map(tokio::spawn);
        let background = [keeping_house].into_iter().chain(delivering).chain(beside);
        let _background = background.map(AbortOnDropHandle::new).collect();
        let in_flight = Arc::default();
        Self(Arc::new(Inner {
            service,
            options,
            card,
            authenticator,
            in_flight,
            courier,
            fallback,
            _background,
        }))
    }

    pub(crate) fn service(&self) -> &Service {
        &self.0.service
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.0.options
    }

    /// Takes no more messages and lets running turns and deliveries finish, for those who frame requests themselves.
    pub async fn shutdown(&self) {
        let drain = self.0.options.drain;
        tracing::info!("stopping: finishing what runs");
        let late = self.0.service.shutdown(drain).await;
        if late > 0 {
            tracing::warn!(turns = late, "turns had to be ended before they were done");
        }
        if let Some(courier) = &self.0.courier {
            // What is not delivered by then is delivered by the next process.
            let _ = tokio::time::timeout(drain, courier.drain()).await;
        }
    }

    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let in_flight = &self.0.in_flight;
        let counted = in_flight.fetch_add(1, Ordering::Relaxed) < self.0.options.max_requests;
        let in_flight = InFlight(in_flight.clone());
        let path = request.uri().path();
        if !counted {
            let error =
                Error::new(ErrorKind::Unavailable, "too many requests at once, try again in a moment");
            return match grpc::Package::of(path) {
                Some(package) => grpc::refuse(package, &error),
                None => http_json::refuse(&error, &HeaderMap::new()),
            };
        }
        let room = match self.0.card.publishes(path) {
            true => Room::Keys,
            false => Room::of(path, &self.0.options.paths),
        };
        let response = match &self.0.authenticator {
            Some(authenticator) if !room.is_open(&self.0.options) => {
                let (head, body) = request.into_parts();
                match auth::admit(&**authenticator, &head).await {
                    Ok(identity) => self.answer(room, identity, Request::from_parts(head, body)).await,
                    Err(refusal) => refusal,
                }
            }
            Some(_) => self.answer(room, Identity::default(), request).await,
            // As an outer layer has found out. Nobody in particular, if there is none.
            None => {
                let found = request.extensions();
                let identity = found.get::<Identity>().cloned();
                let identity = identity.or_else(|| found.get::<Principal>().cloned().map(Identity::from));
                self.answer(room, identity.unwrap_or_default(), request).await
            }
        };
        let (head, body) = response.into_parts();
        Response::from_parts(head, body.counted(in_flight))
    }

    async fn answer<B>(&self, room: Room, identity: Identity, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        match room {
            Room::JsonRpc => jsonrpc::call(self, identity, request).await,
            Room::Grpc(package) => grpc::call(self, package, identity, request).await,
            Room::HttpJson(rest) => http_json::call(self, identity, &rest, request).await,
            Room::Card | Room::Keys => match *request.method() {
                Method::GET | Method::HEAD => self.0.card.respond(self.0.service.card(), &identity, &request),
                _ => method_not_allowed("GET, HEAD"),
            },
            Room::Health => json_response(StatusCode::OK, "application/json", br#"{"status":"ok"}"#.to_vec()),
            Room::Elsewhere => {
                let refusal = http_json::refuse(&no_such_path(request.uri().path()), request.headers());
                let Some(fallback) = &self.0.fallback else { return refusal };
                let request = request.map(|body| BoxBody::new(body.map_err(BodyError::new)));
                fallback(request).await.unwrap_or(refusal)
            }
        }
    }
}

/// What a path leads to.
enum Room {
    JsonRpc,
    Grpc(grpc::Package),
    /// The HTTP+JSON binding, with the rest of the path.
    HttpJson(String),
    Card,
    /// The keys that cards are signed with.
    Keys,
    Health,
    Elsewhere,
}

impl Room {
    fn of(path: &str, paths: &Paths) -> Self {
        if paths.jsonrpc.iter().chain(&paths.oldest).any(|own| same_path(own, path)) {
            return Self::JsonRpc;
        }
        if let Some(package) = grpc::Package::of(path).filter(|_| paths.grpc) {
            return Self::Grpc(package);
        }
        match path {
            card::PATH | card::OLDEST_PATH => Self::Card,
            "/health" => Self::Health,
            path => match path.strip_prefix(paths.http_json.as_str()) {
                Some(rest) if rest.starts_with('/') => Self::HttpJson(rest.to_owned()),
                Some(_) | None => Self::Elsewhere,
            },
        }
    }

    /// Whether it is for everyone, even where callers are asked who they are. What is added must say.
    fn is_open(&self, options: &ServerOptions) -> bool {
        match self {
            Self::JsonRpc | Self::Grpc(_) | Self::HttpJson(_) => false,
            Self::Card => options.public_card,
            Self::Health => options.public_health,
            Self::Keys | Self::Elsewhere => true,
        }
    }
}

/// Whether two paths are the same, with or without a slash at the end.
pub(crate) fn same_path(own: &str, path: &str) -> bool {
    own == path || path.strip_suffix('/').is_some_and(|path| own == path)
}

pub(crate) fn no_such_path(path: &str) -> Error {
    let path: String = path.chars().take(128).collect();
    let text = format!("there is nothing at `{path}`: the card at `{}` says what is where", card::PATH);
    Error::new(ErrorKind::MethodNotFound, text)
}

/// Whether a body is declared as JSON. Where nothing is declared, it is taken for JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return true };
    if value == "application/json" {
        return true;
    }
    let essence =
        value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.starts_with("application/") && essence.ends_with("+json")
}

pub(crate) fn json_response(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn event_stream(events: Events) -> Response<Body> {
    let mut response = Response::new(Body::events(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    // Asks proxies to pass events on as they come.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Says which of the extensions that were asked for are active.
pub(crate) fn with_extensions(mut response: Response<Body>, active: &Extensions) -> Response<Body> {
    if !active.is_empty() {
        let list = active.iter().collect::<Vec<_>>().join(", ");
        if let Ok(value) = HeaderValue::from_str(&list) {
            response.headers_mut().insert(HeaderName::from_static("a2a-extensions"), value);
        }
    }
    response
}

/// Adds what HTTP wants to know about some refusals.
pub(crate) fn challenge(mut response: Response<Body>, error: &Error) -> Response<Body> {
    let headers = response.headers_mut();
    if error.kind() == ErrorKind::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::ResourceExhausted) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub(crate) fn method_not_allowed(allow: &'static str) -> Response<Body> {
    let error = Error::new(ErrorKind::InvalidRequest, format!("expected one of the methods {allow}"));
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let body = crate::reply::http_error_body_for(status, &error);
    let mut response = json_response(status, "application/json", body);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

impl<B> tower_service::Service<Request<B>> for Surface
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let surface = self.clone();
        Box::pin(async move { Ok(surface.handle(request).await) })
    }
}
