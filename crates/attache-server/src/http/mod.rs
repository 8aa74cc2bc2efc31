//! HTTP: routes a request, protects the server from web pages, and lets a binding answer.

mod agent_list;
pub(crate) mod body;
mod content;
pub(crate) mod origin;
pub(crate) mod response;
pub(crate) mod route;
pub(crate) mod sse;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use attache_core::{BoxFuture, Identity, Principal};
use attache_outbound::SetupError;
use attache_protocol::jsonrpc::Id;
use attache_protocol::{Error, ErrorKind};
use bytes::Bytes;
use futures::future::{self, Either, FutureExt};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio_util::task::AbortOnDropHandle;

use self::body::{Body, BoxBody};
use self::origin::{Filtered, RejectedRequest, RequestFilter};
use self::response::{json_response, method_not_allowed, no_such_path};
use self::route::{Reserved, Route, requested_uri};
#[cfg(feature = "grpc")]
use crate::agents;
use crate::agents::Agents;
use crate::audit::Denial;
use crate::auth;
#[cfg(feature = "grpc")]
use crate::binding::grpc;
use crate::binding::{http_json, jsonrpc};
use crate::card::CardHost;
use crate::dispatch::{Access, Dispatcher, NO_BINDING, Rejection, RequestHead, Target, stated_version};
use crate::limits::load::{self, CountedBody};
use crate::push::PushDispatcher;
use crate::request_log::Incoming;
use crate::transport::exchange::EstablishedCaller;
use crate::transport::idle::Activity;
use crate::transport::websocket::{self, Opening};
use crate::{InProcessCaller, Limits, Peer, PushOptions, RequestLog, ServerOptions};

/// Everything that a server answers over HTTP, as a tower service: the card, the three bindings, WebSocket and the health check.
///
/// Cheap to clone. [`Server::into_router`](crate::Server::into_router) mounts it into an axum application.
#[derive(Clone)]
pub struct HttpService(Arc<Inner>);

struct Inner {
    dispatcher: Dispatcher,
    card: CardHost,
    filter: RequestFilter,
    push: Option<PushDispatcher>,
    fallback: Fallback,
    /// The named agents, if this is the agent at the root of a server that has some.
    agents: Option<Agents>,
    /// Aborted when the last clone of the service is dropped.
    _background_tasks: Vec<AbortOnDropHandle<()>>,
}

/// What answers paths that are not the server's own.
#[derive(Default)]
pub(crate) struct Fallback {
    pub(crate) handler: Option<FallbackHandler>,
    pub(crate) access: Option<FallbackAccessFor>,
}

/// Decides by the head of a request which access the fallback grants.
pub(crate) type FallbackAccessFor = Box<dyn Fn(&Parts) -> FallbackAccess + Send + Sync>;

/// Which callers may use a path of the [fallback](crate::Server::fallback), where the server authenticates callers.
///
/// The fallback finds it in the extensions of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallbackAccess {
    /// The fallback authenticates its callers itself, and gets the request with its credentials.
    Own,
    /// Every caller, without credentials. Credentials are removed from the request.
    Everyone,
    /// The callers that may use the bindings. Credentials are removed from the request.
    Callers,
}

/// Answers requests to paths that are not the server's own; `None` for a path that it does not know.
pub(crate) type FallbackHandler =
    Box<dyn Fn(Request<BoxBody>) -> BoxFuture<'static, Option<Response<Body>>> + Send + Sync>;

/// The caller as an outer layer of the application has established it, if it has.
fn outer_identity(head: &Parts) -> Identity {
    let found = head.extensions.get::<Identity>().cloned();
    let principal = || head.extensions.get::<Principal>().cloned().map(Identity::from);
    found.or_else(principal).unwrap_or_default()
}

/// What a server works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InProgress {
    /// The turns that run.
    pub turns: usize,
    /// The requests that are not answered to the end, among them open streams.
    pub requests: usize,
    /// How many requests have begun since the start.
    pub begun: u64,
    /// The requests for permission that wait for an answer.
    pub questions: usize,
}

impl HttpService {
    pub(crate) fn new(
        dispatcher: Dispatcher,
        push: Option<(PushOptions, String)>,
        card: CardHost,
        filter: RequestFilter,
        fallback: Fallback,
        agents: Option<Agents>,
        card_updates: BoxFuture<'static, ()>,
    ) -> Result<Self, SetupError> {
        let service = dispatcher.service();
        let admission = dispatcher.admission();
        let push =
            push.map(|(push, base)| PushDispatcher::new(service.clone(), push, admission.clone(), base));
        let push = push.transpose()?;
        let mut tasks = vec![tokio::spawn(service.clone().run_maintenance()), tokio::spawn(card_updates)];
        tasks.extend(push.clone().map(|push| tokio::spawn(push.run())));
        let _background_tasks = tasks.into_iter().map(AbortOnDropHandle::new).collect();
        Ok(Self(Arc::new(Inner { dispatcher, card, filter, push, fallback, agents, _background_tasks })))
    }

    /// The named agents, if the server [has some](crate::Server::agent) or [may have some](crate::Server::named_agents). They can be
    /// changed while the server runs.
    pub fn agents(&self) -> Option<&Agents> {
        self.0.agents.as_ref()
    }

    pub(crate) fn dispatcher(&self) -> &Dispatcher {
        &self.0.dispatcher
    }

    pub(crate) fn options(&self) -> &ServerOptions {
        self.0.dispatcher.options()
    }

    pub(crate) fn first_byte_timeout(&self) -> Duration {
        self.0.dispatcher.admission().limits().first_byte_timeout
    }

    /// Accepts no more messages, and lets running turns and deliveries finish. For applications that serve requests themselves.
    pub async fn shutdown(&self) {
        let dispatcher = &self.0.dispatcher;
        let drain = self.options().drain;
        dispatcher.set_stopping();
        tracing::info!("stopping: waiting for running turns and deliveries");
        let named = self.named();
        future::join_all(named.values().chain([self]).map(Self::end_turns)).await;
        if let Some(push) = &self.0.push {
            // The next process delivers what is left after that.
            let _ = tokio::time::timeout(drain, push.drain()).await;
        }
    }

    /// Lets the running turns of this agent finish, and ends those that take too long.
    pub(crate) async fn end_turns(&self) {
        let late = self.0.dispatcher.service().shutdown(self.options().drain).await;
        if late > 0 {
            tracing::warn!(turns = late, "turns were ended before they had finished");
        }
    }

    fn named(&self) -> Arc<BTreeMap<String, Self>> {
        self.0.agents.as_ref().map(Agents::all).unwrap_or_default()
    }

    /// How long running turns, deliveries and connections may each take to finish when the server stops.
    pub fn drain(&self) -> Duration {
        self.options().drain
    }

    /// What the server works on at the moment.
    pub fn in_progress(&self) -> InProgress {
        let named = self.named();
        let services = || named.values().chain([self]).map(|http| http.0.dispatcher.service());
        let turns = services().map(attache_core::Service::running_turns).sum();
        let questions = services().map(attache_core::Service::open_questions).sum();
        let load = self.0.dispatcher.load();
        InProgress { turns, requests: load.requests(), begun: load.begun(), questions }
    }

    /// A caller within this process, which the process has established.
    pub fn in_process(&self, identity: Identity) -> InProcessCaller {
        InProcessCaller::new(self.clone(), identity)
    }

    /// The same service for a caller that is already known, such as the process itself. Its requests need no credentials.
    pub fn for_caller(&self, identity: Identity) -> HttpServiceFor {
        HttpServiceFor { http: self.clone(), identity }
    }

    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let (head, body) = request.into_parts();
        self.respond(Peer::of(&head.extensions), None, head, body).await
    }

    /// Answers one request that came over a connection of this server.
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
        self.respond(peer, Some(connection), head, body)
    }

    /// Lets the agent answer that the request is for.
    fn respond<B>(
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
        match self.named_agent(&mut head) {
            Ok(None) => Either::Left(self.respond_as_agent(peer, connection, head, body)),
            Ok(Some(http)) => Either::Right(
                async move { http.respond_as_agent(peer, connection, head, body).await }.boxed(),
            ),
            Err(response) => Either::Right(future::ready(*response).boxed()),
        }
    }

    /// The named agent that a request is for: by its path, or for gRPC by its metadata.
    fn named_agent(&self, head: &mut Parts) -> Result<Option<Self>, Box<Response<Body>>> {
        let Some(agents) = &self.0.agents else { return Ok(None) };
        if let Some(found) = agents.take_path(head) {
            return Ok(Some(found));
        }
        #[cfg(feature = "grpc")]
        if let Some(package) = grpc::package_of(head.uri.path())
            && let Some(name) = head.headers.get(agents::HEADER)
        {
            let found = name.to_str().ok().and_then(|name| agents.get(name));
            let missing = || Box::new(grpc::error_response(package, &agents::no_such_agent(name.as_bytes())));
            return found.map(Some).ok_or_else(missing);
        }
        Ok(None)
    }

    fn respond_as_agent<B>(
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
        let dispatcher = &self.0.dispatcher;
        let stores_artifacts = dispatcher.service().stores_artifacts();
        let reserved = Reserved { agents: self.0.agents.is_some(), artifacts: stores_artifacts };
        let route = Route::find(&head, &self.options().paths, &self.0.card, reserved);
        let base = match stores_artifacts {
            true => Some(self.0.filter.place(&head, &peer))
                .filter(|place| place.host.is_some())
                .map(|place| self.0.card.base_url(place).into()),
            false => None,
        };
        let filtered = match head.extensions.get::<KnownCaller>() {
            Some(_) => Filtered::Accepted(None),
            None => {
                let has_body = !body.is_end_stream() && body.size_hint().exact() != Some(0);
                // No page in a browser can open a Unix socket, and a name without a dot is no public one: gRPC clients have invented ones.
                let is_invented =
                    |host: &str| peer.process.is_some() && !host.contains('.') && !host.contains(':');
                let answers_to = |host: &str| is_invented(host) || self.authenticates(&head);
                self.0.filter.check(route.purpose(), &head, has_body, answers_to)
            }
        };
        let fallback_access = self.fallback_access(&route, &head);
        let access = self.access(&route, fallback_access, &head);
        let spare = connection.as_ref().is_some_and(|connection| connection.is_spare());
        let in_flight = dispatcher.begin().filter(|_| !spare);
        let body = CountedBody::new(body, dispatcher.load().clone(), connection);
        let address = dispatcher.admission().address(peer.address, &head.headers);
        let line = dispatcher.request_log().begin(&Incoming {
            binding: route.binding().unwrap_or(NO_BINDING),
            target: Some((&head.method, requested_uri(&head))),
            headers: &head.headers,
            is_health: route.is_health(),
            agent: dispatcher.service().agent_name(),
        });
        let record = line.as_ref().map(|line| line.record().clone());
        // The credentials of a WebSocket connection can be in the names of subprotocols.
        let of_connection = matches!(access, Access::Optional)
            .then(|| websocket::connection_headers(&head.headers).ok())
            .flatten()
            .map(|(headers, _)| Box::new(headers));
        let answer = async move {
            let admitted = {
                let request_head = RequestHead {
                    binding: route.binding(),
                    headers: of_connection.as_deref().unwrap_or(&head.headers),
                    query: head.uri.query(),
                    peer: &peer,
                    origin: address.into(),
                    target: Target(head.method.as_str(), requested_uri(&head).path()),
                    access,
                    record: record.as_ref(),
                    base,
                };
                let grant = match filtered {
                    Filtered::Accepted(grant) => grant,
                    Filtered::Preflight(response) => return *response,
                    Filtered::Rejected(rejected) => {
                        return self.reject_by_headers(&route, &request_head, &head, &rejected);
                    }
                };
                // Health checks are answered also when the server is full.
                let admitted = match in_flight.is_some() || route.is_health() {
                    true => dispatcher.admit(&request_head).await,
                    false => {
                        let error = if spare { load::too_many_connections() } else { load::too_many() };
                        let status = error.kind().http_status();
                        dispatcher.log_denial(&request_head, &Principal::Anonymous, error.message(), status);
                        Err(Rejection::Limited(error))
                    }
                };
                match admitted {
                    Ok(admitted) => Ok((admitted, grant)),
                    Err(rejection) => {
                        if let Some(record) = &record {
                            record.denied(&rejection.error());
                        }
                        Err((self.reject(&route, &head, &peer, &rejection), grant))
                    }
                }
            };
            let (admitted, grant) = match admitted {
                Ok(admitted) => admitted,
                Err((response, grant)) => return self.0.filter.finish(response, grant),
            };
            let context = admitted.context;
            // The rarer routes are boxed, so that they do not enlarge the future of the usual ones.
            let response = match route {
                Route::JsonRpc => jsonrpc::call(dispatcher, &context, &head, body).await,
                Route::HttpJson(rest, generation) => {
                    Box::pin(http_json::call(dispatcher, &context, (&rest, generation), &head, body)).await
                }
                Route::WebSocket => self.open_websocket(&mut head, &peer, address),
                #[cfg(feature = "grpc")]
                Route::Grpc(package) => {
                    let request = Request::from_parts(head, body);
                    Box::pin(grpc::call(dispatcher, package, context, request)).await
                }
                #[cfg(feature = "grpc")]
                Route::Envelope => {
                    let (request, is_local) = (Request::from_parts(head, body), false);
                    Box::pin(grpc::envelope::call(self, context, is_local, request)).await
                }
                Route::Card | Route::Keys => match head.method {
                    Method::GET | Method::HEAD => {
                        let place = self.0.filter.place(&head, &peer);
                        self.0.card.respond(dispatcher.service().card(), &context.identity, &head, place)
                    }
                    _ => method_not_allowed("GET, HEAD"),
                },
                Route::Agents => match head.method {
                    Method::GET | Method::HEAD => {
                        let place = self.0.filter.place(&head, &peer);
                        agent_list::respond(&self.named(), &head, place)
                    }
                    _ => method_not_allowed("GET, HEAD"),
                },
                Route::Content(place) => match head.method {
                    Method::GET | Method::HEAD => {
                        Box::pin(content::respond(dispatcher, &context, place, &head)).await
                    }
                    _ => method_not_allowed("GET, HEAD"),
                },
                Route::Health => {
                    json_response(StatusCode::OK, "application/json", br#"{"status":"healthy"}"#.to_vec())
                }
                Route::Ready => self.readiness(),
                Route::Fallback => {
                    if let Some(access) = fallback_access {
                        if let (Some(authenticator), true) =
                            (dispatcher.authenticator(), access != FallbackAccess::Own)
                        {
                            auth::hide_credentials(authenticator, &mut head);
                        }
                        head.extensions.insert(access);
                    }
                    head.extensions.insert(peer);
                    Box::pin(self.fall_back(Request::from_parts(head, BoxBody::new(body)))).await
                }
            };
            self.0.filter.finish(response, grant).map(|body| body.counted(in_flight, admitted.permit))
        };
        async move {
            let response = answer.await;
            match line {
                Some(line) => {
                    let line = line.answered(response.status().as_u16());
                    response.map(|body| body.logged(line))
                }
                None => response,
            }
        }
    }

    /// Answers an admitted request that opens a WebSocket connection.
    fn open_websocket(&self, head: &mut Parts, peer: &Peer, address: Option<IpAddr>) -> Response<Body> {
        let caller = match head.extensions.get() {
            Some(KnownCaller(identity)) => EstablishedCaller::Known(identity.clone()),
            None => EstablishedCaller::Outer(outer_identity(head)),
        };
        let is_local = self.0.filter.place(head, peer).is_local();
        websocket::open(Opening { http: self, head, peer, origin: address.into(), caller, is_local })
    }

    /// The JSON of the card for a client of a transport that carries frames.
    pub(crate) fn card_for_frames(
        &self,
        identity: &Identity,
        headers: &HeaderMap,
        query: Option<&str>,
        is_local: bool,
    ) -> Bytes {
        self.0.card.for_frames(
            self.0.dispatcher.service().card(),
            identity,
            stated_version(headers, query),
            is_local,
        )
    }

    /// The JSON of the card in protocol 0.1.
    pub(crate) fn v0_1_card(&self, identity: &Identity) -> Bytes {
        self.0.card.v0_1(self.0.dispatcher.service().card(), identity)
    }

    /// Whether only authenticated callers are answered.
    fn authenticates(&self, head: &Parts) -> bool {
        match self.0.dispatcher.authenticator() {
            Some(authenticator) => !authenticator.admits_everyone(),
            None => outer_identity(head).principal != Principal::Anonymous,
        }
    }

    /// Which checks a request has to pass.
    fn access(&self, route: &Route, fallback: Option<FallbackAccess>, head: &Parts) -> Access {
        if let Some(KnownCaller(identity)) = head.extensions.get() {
            return Access::Established(identity.clone());
        }
        let public = route.is_public(self.options()) && fallback != Some(FallbackAccess::Callers);
        match self.0.dispatcher.authenticator() {
            _ if route.is_health() && public => Access::Health,
            Some(_) if matches!(route, Route::WebSocket) => Access::Optional,
            Some(_) if public => Access::Public,
            Some(_) => Access::Authenticated,
            None => Access::Established(outer_identity(head)),
        }
    }

    /// Which callers may use a path of the fallback, where the server authenticates callers.
    fn fallback_access(&self, route: &Route, head: &Parts) -> Option<FallbackAccess> {
        let (Route::Fallback, Some(_), Some(access)) =
            (route, self.0.dispatcher.authenticator(), &self.0.fallback.access)
        else {
            return None;
        };
        Some(access(head))
    }

    /// Whether the server accepts messages: until it begins to stop.
    fn readiness(&self) -> Response<Body> {
        let (status, text) = match self.0.dispatcher.is_stopping() {
            false => (StatusCode::OK, r#"{"status":"ready"}"#),
            true => (StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"stopping"}"#),
        };
        json_response(status, "application/json", text.as_bytes().to_vec())
    }

    /// The address that connections are counted for, and how many it may have. `None` if its connections are not limited.
    pub(crate) fn connection_limit(&self, peer: IpAddr) -> Option<(IpAddr, NonZeroUsize)> {
        self.0.dispatcher.admission().connection_limit(peer)
    }

    /// Logs that a connection was closed because its address has too many.
    pub(crate) fn deny_connection(&self, peer: IpAddr) {
        self.0.dispatcher.admission().deny(&Denial {
            principal: &Principal::Anonymous,
            tenant: None,
            address: Some(peer.to_canonical()),
            binding: "TCP",
            agent: None,
            operation: &"connect",
            task: None,
            reason: "too many connections from this address",
            status: ErrorKind::ResourceExhausted.http_status(),
        });
    }

    /// Answers a request to a path that is not the server's own.
    async fn fall_back(&self, request: Request<BoxBody>) -> Response<Body> {
        let not_found = http_json::error_response(&no_such_path(request.uri().path()), request.headers());
        match &self.0.fallback.handler {
            Some(handler) => handler(request).await.unwrap_or(not_found),
            None => not_found,
        }
    }

    /// The response to a request that was not admitted, in the format of its binding.
    fn reject(&self, route: &Route, head: &Parts, peer: &Peer, rejection: &Rejection) -> Response<Body> {
        match (rejection, self.0.dispatcher.authenticator()) {
            (Rejection::Denied(denied), Some(authenticator)) => {
                auth::error_response(authenticator, denied, head, peer)
            }
            (Rejection::Denied(_) | Rejection::Limited(_), _) => {
                self.error_response(route, head, &rejection.error(), None)
            }
        }
    }

    /// An error in the format of the binding. `status` is for errors with a status that HTTP has and the protocol does not.
    fn error_response(
        &self,
        route: &Route,
        head: &Parts,
        error: &Error,
        status: Option<StatusCode>,
    ) -> Response<Body> {
        match route {
            Route::JsonRpc => {
                let mut response = jsonrpc::error_response(&Id::NULL, error);
                if let Some(status) = status {
                    *response.status_mut() = status;
                }
                response
            }
            #[cfg(feature = "grpc")]
            Route::Grpc(package) => grpc::error_response(*package, error),
            #[cfg(feature = "grpc")]
            Route::Envelope => grpc::error_response(grpc::Package::V1_0, error),
            Route::HttpJson(..)
            | Route::WebSocket
            | Route::Card
            | Route::Keys
            | Route::Agents
            | Route::Content(_)
            | Route::Health
            | Route::Ready
            | Route::Fallback => match status {
                Some(status) => http_json::error_response_as(status, error, &head.headers),
                None => http_json::error_response(error, &head.headers),
            },
        }
    }

    /// The response to a request that its headers disqualify, in the format of its binding.
    fn reject_by_headers(
        &self,
        route: &Route,
        request: &RequestHead<'_>,
        head: &Parts,
        RejectedRequest { status, error }: &RejectedRequest,
    ) -> Response<Body> {
        self.0.dispatcher.log_denial(request, &Principal::Anonymous, error.message(), status.as_u16());
        if let Some(record) = request.record {
            record.denied(error);
        }
        self.error_response(route, head, error, Some(*status))
    }

    /// The limits on callers as they are now.
    pub fn limits(&self) -> Limits {
        (**self.0.dispatcher.admission().limits()).clone()
    }

    /// Changes which requests are logged, from the next request on.
    pub fn set_request_log(&self, log: RequestLog) {
        self.0.dispatcher.request_log().set(log);
    }

    /// Changes the limits on callers. The new limits apply to requests that arrive from now on.
    pub fn set_limits(&self, limits: Limits) {
        self.0.dispatcher.admission().set_limits(limits);
    }
}

impl<B> tower_service::Service<Request<B>> for HttpService
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
        let http = self.clone();
        Box::pin(async move { Ok(http.handle(request).await) })
    }
}

/// The caller of a request, as only this crate can set it.
#[derive(Clone)]
struct KnownCaller(Identity);

/// An [`HttpService`] for one known caller, as a tower service. Cheap to clone.
#[derive(Clone)]
pub struct HttpServiceFor {
    http: HttpService,
    identity: Identity,
}

impl<B> tower_service::Service<Request<B>> for HttpServiceFor
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
        request.extensions_mut().insert(KnownCaller(self.identity.clone()));
        self.http.call(request)
    }
}
