//! The surface that all bindings share: which path is whose, and what every response has in common.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use attache_core::{BoxFuture, Caller, Identity, Permit, Principal, Reply, Seq, Service};
use attache_outbound::SetupError;
use attache_protocol::jsonrpc::Id;
use attache_protocol::{Error, ErrorKind, Extensions, Operation, Request as Asked, binding};
use bytes::Bytes;
use futures::future::{Either, TryFutureExt};
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use tokio_util::task::AbortOnDropHandle;

use crate::audit::{self, Denial};
use crate::auth::{self, Authenticator};
use crate::body::{Body, BoxBody};
use crate::card::{self, CardHost};
use crate::idle::Activity;
use crate::limits::{Admission, Thing, RequestContext};
use crate::load::{self, Arriving, Load};
use crate::origin::{Filtered, Purpose, Refusal, RequestFilter};
use crate::push::PushDispatcher;
use crate::sse::Events;
use crate::{Limits, Paths, Peer, PushOptions, ServerOptions, grpc, http_json, jsonrpc};

/// What the log calls the binding of what is answered by none.
const NO_BINDING: &str = "HTTP";

/// Everything a server answers, as a tower service: the card, the three bindings and the health check.
///
/// Cheap to clone. [`Server::into_router`](crate::Server::into_router) mounts it into an axum application.
#[derive(Clone)]
pub struct Surface(Arc<Inner>);

struct Inner {
    service: Service,
    options: ServerOptions,
    card: CardHost,
    guards: Guards,
    load: Arc<Load>,
    /// Whether the server was told to stop.
    stopping: AtomicBool,
    admission: Arc<Admission>,
    dispatcher: Option<PushDispatcher>,
    fallback: Option<Fallback>,
    fallback_access: Option<FallbackAccessOf>,
    /// What runs beside the requests, for as long as there is a surface.
    _background: Vec<AbortOnDropHandle<()>>,
}

/// What a request passes before a binding sees it.
pub(crate) struct Guards {
    pub(crate) filter: RequestFilter,
    /// Nothing, if callers are not authenticated here.
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
}

impl Guards {
    /// Whether only callers who are known are answered.
    fn authenticate(&self, head: &Parts) -> bool {
        match &self.authenticator {
            Some(authenticator) => !authenticator.admits_everyone(),
            None => outer_identity(head).principal != Principal::Anonymous,
        }
    }
}

/// Who calls, as an outer layer has found out. Nobody in particular, if there is none.
fn outer_identity(head: &Parts) -> Identity {
    let found = head.extensions.get::<Identity>().cloned();
    let principal = || head.extensions.get::<Principal>().cloned().map(Identity::from);
    found.or_else(principal).unwrap_or_default()
}

/// Who may have a path that is not the surface's own, by the head of the request.
pub(crate) type FallbackAccessOf = Box<dyn Fn(&Parts) -> FallbackAccess + Send + Sync>;

/// Who may have what a [fallback](crate::Server::fallback) answers, where callers are asked who they are.
///
/// The fallback finds it among the extensions of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallbackAccess {
    /// The fallback finds out itself, and gets the request as it came.
    Own,
    /// Everyone. The fallback does not get the credentials.
    Everyone,
    /// Who may use the bindings. The fallback does not get the credentials.
    Callers,
}

/// Answers requests to paths that are not the surface's own; nothing for those that are nobody's.
pub(crate) type Fallback =
    Box<dyn Fn(Request<BoxBody>) -> BoxFuture<'static, Option<Response<Body>>> + Send + Sync>;

impl Surface {
    pub(crate) fn new(
        service: Service,
        options: ServerOptions,
        push: Option<PushOptions>,
        card: CardHost,
        guards: Guards,
        (fallback, fallback_access): (Option<Fallback>, Option<FallbackAccessOf>),
        background_task: Option<BoxFuture<'static, ()>>,
    ) -> Result<Self, SetupError> {
        let admission = Arc::new(Admission::new(options.limits.clone()));
        let dispatcher = push.map(|push| PushDispatcher::new(service.clone(), push, admission.clone())).transpose()?;
        let maintenance = tokio::spawn(service.clone().run_maintenance());
        let delivering = dispatcher.clone().map(|dispatcher| tokio::spawn(dispatcher.run()));
        let background_task = background_task.map(tokio::spawn);
        let sweeping = tokio::spawn(admission.clone().run_maintenance());
        let background = [maintenance, sweeping].into_iter().chain(delivering).chain(background_task);
        let _background = background.map(AbortOnDropHandle::new).collect();
        let load = Load::new(options.max_requests);
        Ok(Self(Arc::new(Inner {
            service,
            options,
            card,
            guards,
            load,
            stopping: AtomicBool::new(false),
            admission,
            dispatcher,
            fallback,
            fallback_access,
            _background,
        })))
    }

    pub(crate) fn service(&self) -> &Service {
        &self.0.service
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        &self.0.options
    }

    pub(crate) fn first_byte_timeout(&self) -> Duration {
        self.0.admission.limits().first_byte_timeout
    }

    /// Takes no more messages and lets running turns and deliveries finish, for those who frame requests themselves.
    pub async fn shutdown(&self) {
        let drain = self.0.options.drain;
        self.0.stopping.store(true, Ordering::Relaxed);
        tracing::info!("stopping: finishing what runs");
        let late = self.0.service.shutdown(drain).await;
        if late > 0 {
            tracing::warn!(turns = late, "turns had to be ended before they were done");
        }
        if let Some(dispatcher) = &self.0.dispatcher {
            // What is not delivered by then is delivered by the next process.
            let _ = tokio::time::timeout(drain, dispatcher.drain()).await;
        }
    }

    /// The surface for requests of someone who is known already, such as this process itself: they are not asked who they are.
    pub fn for_known(&self, identity: Identity) -> SurfaceForKnown {
        SurfaceForKnown { surface: self.clone(), identity }
    }

    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let (head, body) = request.into_parts();
        self.receive(Peer::of(&head.extensions), None, head, body).await
    }

    /// Answers one request of a peer, over a connection of ours.
    pub(crate) fn handle_from<B>(
        &self,
        peer: Peer,
        connection: Arc<Activity>,
        request: Request<B>,
    ) -> impl Future<Output = Response<Body>> + Send
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let (head, body) = request.into_parts();
        self.receive(peer, Some(connection), head, body)
    }

    fn receive<B>(
        &self,
        peer: Peer,
        connection: Option<Arc<Activity>>,
        mut head: Parts,
        body: B,
    ) -> impl Future<Output = Response<Body>> + Send
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let room = match self.0.card.publishes(head.uri.path()) {
            true => Room::Keys,
            false => Room::of(head.uri.path(), &self.0.options.paths),
        };
        let filtered = match head.extensions.get::<Known>() {
            Some(_) => Filtered::Pass(None),
            None => {
                let has_body = !body.is_end_stream() && body.size_hint().exact() != Some(0);
                let authenticated = || self.0.guards.authenticate(&head);
                self.0.guards.filter.check(room.purpose(), &head, has_body, authenticated)
            }
        };
        let access = self.fallback_access(&room, &head);
        let spare = connection.as_ref().is_some_and(|connection| connection.is_spare());
        let in_flight = self.0.load.begin().filter(|_| !spare);
        let body = Arriving::new(body, self.0.load.clone(), connection);
        let address = self.0.admission.address(peer.address, &head.headers);
        async move {
            let grant = match filtered {
                Filtered::Pass(grant) => grant,
                Filtered::Preflight(response) => return *response,
                Filtered::Refused(refusal) => return self.refuse_unread(&room, address, &head, &refusal),
            };
            let finish = |response| self.0.guards.filter.finish(response, grant);
            // Whether the server is well is said also, and above all, when it is full.
            let admitted = match in_flight.is_some() || room.is_health() {
                true => self.admit(&room, access, address, &head, &peer).await,
                false => {
                    let error = if spare { load::too_many_connections() } else { load::too_many() };
                    Err(self.turn_away(&room, &Principal::Anonymous, address, &head, &error))
                }
            };
            let (context, permit) = match admitted {
                Ok(admitted) => admitted,
                Err(refusal) => return finish(refusal),
            };
            // What is asked for less often does not make the future of what is asked for most any larger.
            let response = match room {
                Room::JsonRpc => jsonrpc::call(self, context, &head, body).await,
                Room::HttpJson(rest) => Box::pin(http_json::call(self, context, &rest, &head, body)).await,
                Room::Grpc(package) => {
                    Box::pin(grpc::call(self, package, context, Request::from_parts(head, body))).await
                }
                Room::Card | Room::Keys => match head.method {
                    Method::GET | Method::HEAD => {
                        self.0.card.respond(self.0.service.card(), &context.identity, &head)
                    }
                    _ => method_not_allowed("GET, HEAD"),
                },
                Room::Health => {
                    json_response(StatusCode::OK, "application/json", br#"{"status":"ok"}"#.to_vec())
                }
                Room::Ready => self.readiness(),
                Room::Elsewhere => {
                    if let Some(access) = access {
                        if let (Some(authenticator), true) =
                            (&self.0.guards.authenticator, access != FallbackAccess::Own)
                        {
                            auth::hide_credentials(&**authenticator, &mut head);
                        }
                        head.extensions.insert(access);
                    }
                    head.extensions.insert(peer);
                    let body = BoxBody::new(body);
                    Box::pin(self.fall_back(Request::from_parts(head, body))).await
                }
            };
            finish(response).map(|body| body.counted(in_flight, permit))
        }
    }

    /// Who may have a path that is not the surface's own, where callers are asked who they are.
    fn fallback_access(&self, room: &Room, head: &Parts) -> Option<FallbackAccess> {
        let (Room::Elsewhere, Some(_), Some(access)) =
            (room, &self.0.guards.authenticator, &self.0.fallback_access)
        else {
            return None;
        };
        Some(access(head))
    }

    /// Whether the server takes messages: until it was told to stop.
    fn readiness(&self) -> Response<Body> {
        let (status, text) = match self.0.stopping.load(Ordering::Relaxed) {
            false => (StatusCode::OK, r#"{"status":"ready"}"#),
            true => (StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"stopping"}"#),
        };
        json_response(status, "application/json", text.as_bytes().to_vec())
    }

    /// The address that connections are counted for, with how many it may have. Nothing if it may have any number.
    pub(crate) fn connection_limit(&self, peer: IpAddr) -> Option<(IpAddr, NonZeroUsize)> {
        self.0.admission.connection_limit(peer)
    }

    /// Logs that a connection was closed since its address has too many.
    pub(crate) fn deny_connection(&self, peer: IpAddr) {
        self.0.admission.deny(&Denial {
            principal: &Principal::Anonymous,
            tenant: None,
            address: Some(peer.to_canonical()),
            binding: "TCP",
            operation: &"connect",
            task: None,
            reason: "too many connections from this address",
            status: ErrorKind::ResourceExhausted.http_status(),
        });
    }

    /// Answers a request to a path that is not the surface's own.
    async fn fall_back(&self, request: Request<BoxBody>) -> Response<Body> {
        let refusal = http_json::refuse(&no_such_path(request.uri().path()), request.headers());
        let Some(fallback) = &self.0.fallback else { return refusal };
        fallback(request).await.unwrap_or(refusal)
    }

    /// Lets someone in, if they are not too many or too fast and are who they have to be. Comes with the place that the request
    /// takes among theirs.
    async fn admit(
        &self,
        room: &Room,
        access: Option<FallbackAccess>,
        address: Option<IpAddr>,
        head: &Parts,
        peer: &Peer,
    ) -> Result<(RequestContext, Option<Permit>), Response<Body>> {
        let admission = &self.0.admission;
        let turn_away =
            |principal: &Principal, error: Error| self.turn_away(room, principal, address, head, &error);
        let from = match room {
            // Whether the server is well is not a matter of how often one asks.
            Room::Health | Room::Ready => None,
            Room::JsonRpc | Room::Grpc(_) | Room::HttpJson(_) | Room::Card | Room::Keys | Room::Elsewhere => {
                admission.check_address(address).map_err(|error| turn_away(&Principal::Anonymous, error))?
            }
        };
        let known = head.extensions.get::<Known>();
        let identity = match &self.0.guards.authenticator {
            _ if let Some(Known(identity)) = known => identity.clone(),
            Some(authenticator)
                if !room.is_open(&self.0.options) || access == Some(FallbackAccess::Callers) =>
            {
                auth::admit(&**authenticator, head, peer).await.map_err(|denied| {
                    let status = denied.error().kind().http_status();
                    self.deny(room, &Principal::Anonymous, address, head, denied.reason(), status);
                    auth::refuse(&**authenticator, &denied, head, peer)
                })?
            }
            Some(_) => Identity::default(),
            None => outer_identity(head),
        };
        let turn_away = |error: Error| turn_away(&identity.principal, error);
        let account = admission.check_principal(&identity.principal, from).map_err(turn_away)?;
        let permit = match room.binding() {
            Some(_) => admission.acquire(account.as_ref(), Thing::Requests).await.map_err(turn_away)?,
            None => None,
        };
        let binding = room.binding().unwrap_or(NO_BINDING);
        Ok((RequestContext { identity, address, binding, account }, permit))
    }

    /// Refuses a request before it was looked at.
    fn turn_away(
        &self,
        room: &Room,
        principal: &Principal,
        address: Option<IpAddr>,
        head: &Parts,
        error: &Error,
    ) -> Response<Body> {
        self.deny(room, principal, address, head, error.message(), error.kind().http_status());
        match room {
            Room::JsonRpc => jsonrpc::refuse(&Id::NULL, error),
            Room::Grpc(package) => grpc::refuse(*package, error),
            Room::HttpJson(_) | Room::Card | Room::Keys | Room::Health | Room::Ready | Room::Elsewhere => {
                http_json::refuse(error, &head.headers)
            }
        }
    }

    /// Refuses a request for what its headers say, in the words of the binding that it is for.
    fn refuse_unread(
        &self,
        room: &Room,
        address: Option<IpAddr>,
        head: &Parts,
        Refusal { status, error }: &Refusal,
    ) -> Response<Body> {
        self.deny(room, &Principal::Anonymous, address, head, error.message(), status.as_u16());
        match room {
            Room::JsonRpc => {
                let mut response = jsonrpc::refuse(&Id::NULL, error);
                *response.status_mut() = *status;
                response
            }
            Room::Grpc(package) => grpc::refuse(*package, error),
            Room::HttpJson(_) | Room::Card | Room::Keys | Room::Health | Room::Ready | Room::Elsewhere => {
                http_json::refuse_as(*status, error, &head.headers)
            }
        }
    }

    /// Logs that a request was refused before it was looked at.
    fn deny(
        &self,
        room: &Room,
        principal: &Principal,
        address: Option<IpAddr>,
        head: &Parts,
        reason: &str,
        status: u16,
    ) {
        self.0.admission.deny(&Denial {
            principal,
            tenant: None,
            address,
            binding: room.binding().unwrap_or(NO_BINDING),
            operation: &format_args!("{} {}", head.method, head.uri.path()),
            task: None,
            reason,
            status,
        });
    }

    /// Carries out what someone who was let in asks for.
    pub(crate) fn carry_out(
        &self,
        context: &RequestContext,
        mut caller: Caller,
        request: Asked,
        resume: Option<Seq>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send {
        let admission = &self.0.admission;
        let operation = request.operation();
        let tenant = request.tenant().map(Arc::<str>::from);
        caller.turns = admission.quota(context.account.as_ref(), Thing::Turns);
        let carrying_out = match operation {
            Operation::SendStreamingMessage | Operation::SubscribeToTask => {
                let streaming = async move {
                    let permit = admission.acquire(context.account.as_ref(), Thing::Streams).await?;
                    let reply = self.0.service.call(caller, request, resume).await?;
                    Ok(match (reply, permit) {
                        (Reply::Events(events, view), Some(permit)) => {
                            Reply::Events(events.holding(permit), view)
                        }
                        (reply, _) => reply,
                    })
                };
                Either::Left(Box::pin(streaming))
            }
            Operation::SendMessage
            | Operation::GetTask
            | Operation::ListTasks
            | Operation::CancelTask
            | Operation::CreateTaskPushNotificationConfig
            | Operation::GetTaskPushNotificationConfig
            | Operation::ListTaskPushNotificationConfigs
            | Operation::DeleteTaskPushNotificationConfig
            | Operation::GetExtendedAgentCard => Either::Right(self.0.service.call(caller, request, resume)),
        };
        carrying_out.inspect_err(move |error| {
            let denial = Denial {
                principal: &context.identity.principal,
                tenant: tenant.as_deref(),
                address: context.address,
                binding: context.binding,
                operation: &operation.name(),
                task: audit::task_of(error),
                reason: error.message(),
                status: error.kind().http_status(),
            };
            if audit::denies(error) {
                admission.deny(&denial);
            } else if error.kind() == ErrorKind::TaskNotFound {
                audit::not_found(&denial);
            }
        })
    }

    /// The limits on callers as they are now.
    pub fn limits(&self) -> Limits {
        (**self.0.admission.limits()).clone()
    }

    /// Changes the limits on callers. They hold for requests that come from now on.
    pub fn set_limits(&self, limits: Limits) {
        self.0.admission.set_limits(limits);
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
    /// Whether the server takes messages.
    Ready,
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
            "/ready" => Self::Ready,
            path => match path.strip_prefix(paths.http_json.as_str()) {
                Some(rest) if rest.starts_with('/') => Self::HttpJson(rest.to_owned()),
                Some(_) | None => Self::Elsewhere,
            },
        }
    }

    /// The binding that answers there, if it is one.
    fn binding(&self) -> Option<&'static str> {
        match self {
            Self::JsonRpc => Some(binding::JSONRPC),
            Self::Grpc(_) => Some(binding::GRPC),
            Self::HttpJson(_) => Some(binding::HTTP_JSON),
            Self::Card | Self::Keys | Self::Health | Self::Ready | Self::Elsewhere => None,
        }
    }

    /// Whether it is for whoever watches over the server.
    fn is_health(&self) -> bool {
        match self {
            Self::Health | Self::Ready => true,
            Self::JsonRpc | Self::Grpc(_) | Self::HttpJson(_) | Self::Card | Self::Keys | Self::Elsewhere => {
                false
            }
        }
    }

    /// What a request there is answered with, as far as web pages are concerned.
    fn purpose(&self) -> Purpose {
        match self {
            Self::JsonRpc | Self::HttpJson(_) => Purpose::Json,
            Self::Grpc(_) => Purpose::Grpc,
            Self::Card | Self::Keys => Purpose::Document,
            Self::Health | Self::Ready => Purpose::Health,
            Self::Elsewhere => Purpose::Fallback,
        }
    }

    /// Whether it is for everyone, even where callers are asked who they are. What is added must say.
    fn is_open(&self, options: &ServerOptions) -> bool {
        match self {
            Self::JsonRpc | Self::Grpc(_) | Self::HttpJson(_) => false,
            Self::Card => options.public_card,
            Self::Health | Self::Ready => options.public_health,
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

/// Who sends a request, as only this crate can say.
#[derive(Clone)]
struct Known(Identity);

/// A [`Surface`] for requests of someone who is known already, as a tower service. Cheap to clone.
#[derive(Clone)]
pub struct SurfaceForKnown {
    surface: Surface,
    identity: Identity,
}

impl<B> tower_service::Service<Request<B>> for SurfaceForKnown
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

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(Known(self.identity.clone()));
        self.surface.call(request)
    }
}
