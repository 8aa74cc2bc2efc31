//! [`Server`]: an agent on the network, in a few lines.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use attache_core::{
    ARTIFACTS_PATH, Agent, Artifacts, Clock, Echo, MemoryStore, Options, Rights, Store, SystemClock,
    WebhookCheck,
};
use attache_outbound::SetupError;
use attache_protocol::{AgentCard, AgentInterface, AgentSkill, binding};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http::{Method, Request, Response, request};
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::agents::{self, AddAgentError, Agents, NamedAgent};
use crate::assemble::{Blueprint, RootParts};
use crate::auth::Authenticator;
use crate::card::build::{CardChanges, ExtendedCard};
use crate::dispatch::SharedLimits;
use crate::forward::{Forward, Forwarder};
use crate::http::body::{Body, BodyError, BoxBody};
use crate::http::origin::{Addresses, FallbackCors};
use crate::http::{Fallback, FallbackAccessFor, FallbackHandler};
use crate::signing;
use crate::transport::Listener;
use crate::transport::stdio::Pipe;
use crate::{
    Cors, FallbackAccess, HttpService, Limits, Listening, LocalAddress, PushOptions, ServerOptions, Tls,
    TlsError, is_loopback_url,
};

/// Why a server could not start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The server cannot listen on the address.
    #[error("cannot listen on `{address}`: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Redis cannot be used.
    #[cfg(feature = "redis")]
    #[error("cannot use Redis at `{url}`: {source}")]
    Redis {
        /// The URL, without credentials.
        url: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The client for push notifications could not be set up.
    #[error("cannot set up push notifications: {0}")]
    Push(#[from] SetupError),
    /// The store of tasks is shared, and that of artifacts is not.
    #[error(
        "the store of tasks is shared by several servers, and the content of artifacts is not: a client would not find it at another server"
    )]
    ArtifactsNotShared,
    /// A named agent cannot be added.
    #[error(transparent)]
    Agent(#[from] AddAgentError),
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server failed while it was running.
    #[error("the server stopped: {0}")]
    Serve(#[from] std::io::Error),
}

/// Puts an agent on the network.
///
/// ```no_run
/// # use attache_server::Server;
/// # async fn example() -> Result<(), attache_server::ServerError> {
/// Server::echo().bind("127.0.0.1:8080").run().await
/// # }
/// ```
#[must_use = "a server does nothing until it is run"]
pub struct Server<A> {
    agent: A,
    card: AgentCard,
    extended: Option<ExtendedCard>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    addresses: Vec<String>,
    pipe: Option<PipeKind>,
    base_url: Option<String>,
    options: ServerOptions,
    service: Options,
    push: PushOptions,
    push_offered: Option<bool>,
    authenticator: Option<Arc<dyn Authenticator>>,
    root_authenticator: Option<Arc<dyn Authenticator>>,
    root_limits: Option<Limits>,
    card_updates: Option<BoxStream<'static, AgentCard>>,
    card_changes: Option<CardChanges>,
    fallback: Option<FallbackHandler>,
    fallback_cors: Option<FallbackCors>,
    fallback_access: Option<FallbackAccessFor>,
    signing: Option<signing::Keys>,
    tls: Option<Tls>,
    agents: Option<BTreeMap<String, NamedAgent>>,
    #[cfg(feature = "redis")]
    redis: Option<crate::RedisStreams>,
}

impl Server<Echo> {
    /// A server whose agent returns every message to its sender.
    pub fn echo() -> Self {
        let skill = AgentSkill::new("echo", "Echo").description("Gives back what it gets").example("Hello");
        Self::new(Echo).card(
            AgentCard::new("Echo", "Gives back what it gets")
                .skill(skill)
                .input_modes(["*/*"])
                .output_modes(["*/*"]),
        )
    }
}

impl<A: Agent> Server<A> {
    /// A server for an agent, with a store in memory.
    pub fn new(agent: A) -> Self {
        Self {
            agent,
            card: AgentCard::new("Agent", "An A2A agent"),
            extended: None,
            store: Arc::new(MemoryStore::new()),
            clock: Arc::new(SystemClock),
            addresses: Vec::new(),
            pipe: None,
            base_url: None,
            options: ServerOptions::default(),
            service: Options::default(),
            push: PushOptions::default(),
            push_offered: None,
            authenticator: None,
            root_authenticator: None,
            root_limits: None,
            card_updates: None,
            card_changes: None,
            fallback: None,
            fallback_cors: None,
            fallback_access: None,
            signing: None,
            tls: None,
            agents: None,
            #[cfg(feature = "redis")]
            redis: None,
        }
    }

    /// Sets the card. Interfaces and capabilities are filled in where the card has none.
    pub fn card(mut self, card: AgentCard) -> Self {
        self.card = card;
        self
    }

    /// Replaces the card whenever the stream yields another one. Each is filled in as the first one is. Only the first card decides
    /// whether push notifications are offered.
    pub fn card_updates(mut self, cards: impl Stream<Item = AgentCard> + Send + 'static) -> Self {
        self.card_updates = Some(cards.boxed());
        self
    }

    /// Changes every card before it is filled in: the card, its updates, and those of audiences. For what an operator says about an
    /// agent that others have written.
    pub fn change_cards(mut self, change: impl Fn(&mut AgentCard) + Send + Sync + 'static) -> Self {
        self.card_changes = Some(Box::new(change));
        self
    }

    /// Adds an agent with a name. It answers below `/agents/NAME` on every binding, with a card and tasks of its own. gRPC clients
    /// whose library does not use paths name it in the metadata `agent`. `GET /agents` lists the cards.
    pub fn agent(mut self, name: &str, agent: NamedAgent) -> Result<Self, AddAgentError> {
        agents::check_name(name)?;
        let agents = self.agents.get_or_insert_default();
        match agents.insert(name.to_owned(), agent) {
            None => Ok(self),
            Some(_) => Err(AddAgentError::Twice(name.to_owned())),
        }
    }

    /// Reserves the path `/agents` for named agents, though there are none yet: [`HttpService::agents`] adds them while the server
    /// runs.
    pub fn named_agents(mut self) -> Self {
        self.agents.get_or_insert_default();
        self
    }

    /// Answers requests to paths that are not the server's own. If it returns `None`, the path does not exist.
    ///
    /// It has no effect on [`into_router`](Self::into_router): there the application around the router has paths of its own.
    pub fn fallback<F, Fut, B>(mut self, handler: F) -> Self
    where
        F: Fn(Request<BoxBody>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<Response<B>>> + Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.fallback = Some(Box::new(move |request| {
            let response = handler(request);
            Box::pin(async move {
                let boxed = |body: B| Body::other(BoxBody::new(body.map_err(BodyError::new)));
                response.await.map(|response| response.map(boxed))
            })
        }));
        self
    }

    /// Sets which origins may call the paths of the [`fallback`](Self::fallback), by method and path, in addition to those that
    /// [the options](ServerOptions::cors) allow everywhere.
    pub fn fallback_cors(mut self, cors: impl Fn(&Method, &str) -> Cors + Send + Sync + 'static) -> Self {
        self.fallback_cors = Some(Box::new(cors));
        self
    }

    /// Sets which callers may use the paths of the [fallback](Self::fallback), where the server authenticates callers. By default
    /// the fallback authenticates its callers itself.
    pub fn fallback_access(
        mut self,
        access: impl Fn(&request::Parts) -> FallbackAccess + Send + Sync + 'static,
    ) -> Self {
        self.fallback_access = Some(Box::new(access));
        self
    }

    /// Sets the extended card, for authenticated callers. By default it is the card itself. In both cases it has the
    /// [runtime extension](crate::RUNTIME_EXTENSION) as well.
    pub fn extended_card(mut self, card: AgentCard) -> Self {
        self.extended = Some(ExtendedCard::Same(Box::new(card)));
        self
    }

    /// Gives each audience its own card. Authenticated callers get the card for their rights as the extended card and, where the card
    /// is [not public](ServerOptions::public_card), as the card itself.
    pub fn card_for(mut self, card: impl Fn(&Rights) -> AgentCard + Send + Sync + 'static) -> Self {
        self.extended = Some(ExtendedCard::ByRights(Box::new(card)));
        self
    }

    /// Authenticates callers on every binding, and lists the security schemes in the card. The card and the health check need no
    /// credentials unless the [options](ServerOptions) say otherwise. Neither do the paths of the [`fallback`](Self::fallback), unless
    /// [`fallback_access`](Self::fallback_access) says otherwise.
    ///
    /// An [`Identity`](attache_core::Identity) in the extensions of a request is then ignored.
    pub fn authenticate(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticator = Some(Arc::new(authenticator));
        self
    }

    /// Authenticates the callers of the agent at the root in its own way. The named agents keep the authentication of the server.
    pub fn authenticate_root(mut self, authenticator: impl Authenticator) -> Self {
        self.root_authenticator = Some(Arc::new(authenticator));
        self
    }

    /// Gives the callers of the agent at the root limits of their own, as [`NamedAgent::limits`] does for a named agent.
    /// [`HttpService::set_limits`] then changes these, and [`Agents::set_limits`] those of the named agents.
    pub fn limit_root(mut self, limits: Limits) -> Self {
        self.root_limits = Some(limits);
        self
    }

    /// Signs the card and the extended card, and publishes the keys at `/.well-known/jwks.json`.
    ///
    /// The signatures are renewed when a card or the keys change.
    #[cfg(feature = "signing")]
    pub fn signing(mut self, keys: crate::SigningKeys) -> Self {
        self.signing = Some(keys);
        self
    }

    /// Sets the store for tasks. The default is a store in memory.
    pub fn store(self, store: impl Store) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// Like [`store`](Self::store), for a store that is shared or that was chosen at run time.
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// Sets the clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Adds an address to listen on: `HOST:PORT`, or `unix:PATH` for a Unix socket. Without any, and without
    /// [`stdio`](Self::stdio), it is `127.0.0.1:3111`. A server can listen on several at the same time. The card describes the first
    /// one that is no Unix socket.
    pub fn bind(mut self, address: impl Into<String>) -> Self {
        self.addresses.push(address.into());
        self
    }

    /// Answers JSON-RPC in lines on standard input and output, for the process that started this one. The server stops when that
    /// process has ended or has closed standard input. Nothing else may write to standard output.
    ///
    /// ```no_run
    /// # use attache_server::Server;
    /// # async fn example() -> Result<(), attache_server::ServerError> {
    /// Server::echo().stdio().run().await
    /// # }
    /// ```
    pub fn stdio(mut self) -> Self {
        self.pipe = Some(PipeKind::Stdio);
        self
    }

    /// The same on a stream that is open already, such as a socket that the process has inherited.
    pub fn lines(mut self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        self.pipe = Some(PipeKind::Stream(Pipe::of(stream)));
        self
    }

    /// Answers requests from Redis Streams too, and lists that in the card after the other interfaces. Callers are authenticated as on
    /// every binding, by fields of their entries. It has no effect on [`into_router`](Self::into_router) and
    /// [`into_http_service`](Self::into_http_service), which do not listen.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, redis: crate::RedisStreams) -> Self {
        self.redis = Some(redis);
        self
    }

    /// Requires TLS on the port, with HTTP/1.1 and HTTP/2.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the URL under which clients reach the server, if it differs from the address that it listens on.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Changes paths, limits and timeouts of the server.
    pub fn options(mut self, change: impl FnOnce(&mut ServerOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Changes how messages and turns are processed.
    pub fn service_options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.service);
        self
    }

    /// Stores large content of artifacts, and serves it below `/artifacts`. Without it, all content is in the events of tasks.
    ///
    /// A [shared](Store::is_shared) store of tasks needs a [shared](attache_core::ArtifactStore::is_shared) store of artifacts.
    pub fn artifacts(mut self, artifacts: Artifacts) -> Self {
        self.service.artifacts = Some(artifacts);
        self
    }

    /// Forwards JSON-RPC requests instead of giving them to the agent. The bindings that do not carry JSON-RPC are turned off.
    pub fn forward(mut self, forward: impl Forward) -> Self {
        self.options.forwarder = Some(Forwarder::new(forward));
        let paths = &mut self.options.paths;
        (paths.http_json, paths.http_json_v0_3, paths.grpc) = (None, None, false);
        self
    }

    /// Sets whether push notifications are offered. They are by default, unless the card says otherwise.
    pub fn push(mut self, offered: bool) -> Self {
        self.push_offered = Some(offered);
        self
    }

    /// Changes how push notifications are sent.
    pub fn push_options(mut self, change: impl FnOnce(&mut PushOptions)) -> Self {
        change(&mut self.push);
        self
    }

    /// Binds the addresses and serves until the process receives a signal to stop, or until the client on standard input and output has
    /// ended.
    pub async fn run(self) -> Result<(), ServerError> {
        Ok(self.listen().await?.run().await?)
    }

    /// Binds the addresses. The card advertises the port that was bound, which matters where an address has port 0.
    pub async fn listen(mut self) -> Result<Listening, ServerError> {
        if let Some(tls) = &self.tls {
            tls.reload()?;
        }
        if self.addresses.is_empty() && self.pipe.is_none() {
            self.addresses.push(DEFAULT_ADDRESS.to_owned());
        }
        let mut listeners = Vec::with_capacity(self.addresses.len());
        for address in &self.addresses {
            let fail = |source| ServerError::Listen { address: address.clone(), source };
            listeners.push(Listener::bind(address).await.map_err(fail)?);
        }
        let fail = |source| ServerError::Listen { address: self.addresses.join(", "), source };
        let bound: Vec<_> =
            listeners.iter().map(Listener::local_address).collect::<Result<_, _>>().map_err(fail)?;
        let (own_url, addresses) = own_url(&bound, self.tls.is_some());
        if self.tls.is_some() && !bound.iter().any(|address| matches!(address, LocalAddress::Tcp(_))) {
            let text = "a Unix socket has no TLS: leave the certificate out, or listen on HOST:PORT";
            return Err(fail(std::io::Error::new(std::io::ErrorKind::InvalidInput, text)));
        }
        let base = self.base_url.clone().unwrap_or(own_url);
        if let Addresses::Only(address) = addresses {
            self.warn_of_proxy(address, &base);
        }
        let is_stdio = matches!(self.pipe, Some(PipeKind::Stdio));
        let pipe = match self.pipe.take() {
            None => None,
            Some(PipeKind::Stream(pipe)) => Some(pipe),
            Some(PipeKind::Stdio) => Some(Pipe::stdio().map_err(ServerError::Serve)?),
        };
        let tls = self.tls.clone();
        #[cfg(feature = "redis")]
        let redis = self.redis.clone();
        let http = self.http_service(&base, addresses, true, local_interfaces(&bound, is_stdio))?;
        #[cfg(feature = "redis")]
        let redis = match redis {
            Some(redis) => {
                let url = redis.url.to_string();
                let started = crate::transport::redis::start(redis, http.clone()).await;
                Some(started.map_err(|source| ServerError::Redis { url, source })?)
            }
            None => None,
        };
        Ok(Listening {
            listeners,
            pipe,
            tls,
            http,
            #[cfg(feature = "redis")]
            redis,
        })
    }

    /// The routes, for an axum application. The card needs the base URL.
    ///
    /// The caller is taken from an [`Identity`](attache_core::Identity) or a [`Principal`](attache_core::Principal) in the
    /// extensions of the request, where a layer of the application puts one. The peer is taken from a [`Peer`](crate::Peer) there. The
    /// application decides about TLS, limits on connections and headers, slow clients and shutdown. All other options apply.
    ///
    /// Push notifications and the recovery of tasks run as background tasks: call this within a tokio runtime.
    pub fn into_router(self, base_url: &str) -> Result<axum::Router, ServerError> {
        let (mut exact, prefixes) = self.options.paths.answered();
        exact.extend(self.signing.as_ref().map(|_| signing::PATH.to_owned()));
        let mut prefixes = prefixes;
        if self.agents.is_some() {
            exact.push(agents::PATH.to_owned());
            prefixes.push(agents::PATH.to_owned());
        }
        if self.service.artifacts.is_some() {
            prefixes.push(ARTIFACTS_PATH.to_owned());
        }
        let service = self.into_http_service(base_url)?;
        let mut router = axum::Router::new();
        for path in exact {
            router = router.route_service(&path, service.clone());
        }
        for prefix in prefixes {
            router = router.route_service(&format!("{prefix}/{{*rest}}"), service.clone());
        }
        Ok(router)
    }

    /// The tower service itself, for applications that serve HTTP in their own way. The same applies as for
    /// [`into_router`](Self::into_router).
    pub fn into_http_service(self, base_url: &str) -> Result<HttpService, ServerError> {
        self.http_service(base_url, Addresses::Any, false, Vec::new())
    }

    /// Warns of a server that listens on loopback but has a public URL: its callers come through a proxy, and look like programs on
    /// this machine.
    fn warn_of_proxy(&self, address: IpAddr, base_url: &str) {
        let open = self.authenticator.as_ref().is_none_or(|authenticator| authenticator.admits_everyone());
        if open && address.to_canonical().is_loopback() && !is_loopback_url(base_url) {
            tracing::warn!(
                base_url,
                "callers are not authenticated: everyone who reaches this server through its base URL can use it"
            );
        }
    }

    /// `listens` is whether the server listens itself. Otherwise the application says what the base URL is. `local` are the interfaces
    /// that only this machine can use.
    fn http_service(
        self,
        base_url: &str,
        addresses: Addresses,
        listens: bool,
        local: Vec<AgentInterface>,
    ) -> Result<HttpService, ServerError> {
        let base = base_url.trim_end_matches('/');
        let push = self.push_offered.or(self.card.capabilities.push_notifications).unwrap_or(true);
        let mut service = self.service;
        if self.store.is_shared() && service.artifacts.as_ref().is_some_and(|own| !own.store.is_shared()) {
            return Err(ServerError::ArtifactsNotShared);
        }
        let (policy, own) = (self.push.policy.clone(), service.webhook_check);
        service.webhook_check = WebhookCheck::new(move |url| {
            own.check(url)?;
            policy.check_url(url).map(|_| ()).map_err(|refused| policy.explain(&refused))
        });
        let limits = SharedLimits::new(&self.options);
        let blueprint = Blueprint {
            store: self.store,
            clock: self.clock,
            base: base.to_owned(),
            addresses,
            base_is_own: self.base_url.is_none() && listens,
            options: self.options,
            service,
            push,
            authenticator: self.authenticator,
            signing: self.signing,
            limits,
            #[cfg(feature = "redis")]
            redis: self.redis.filter(|_| listens).map(Arc::new),
            local,
        };
        let agents = self.agents.map(|named| {
            let agents = Agents::new(blueprint.clone());
            named.into_iter().try_for_each(|(name, agent)| agents.put(&name, agent)).map(|()| agents)
        });
        #[cfg(feature = "redis")]
        if let Some(queue) = self.push.queue.as_ref().filter(|_| push)
            && let Some(flaw) = queue.flaw()
        {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, flaw);
            return Err(ServerError::Redis { url: queue.url.to_string(), source });
        }
        let root = RootParts {
            push: push.then_some(self.push),
            fallback: Fallback { handler: self.fallback, access: self.fallback_access },
            fallback_cors: self.fallback_cors,
            agents: agents.transpose()?,
        };
        let agent = NamedAgent {
            agent: self.agent.boxed(),
            card: self.card,
            extended: self.extended,
            card_updates: self.card_updates,
            card_changes: self.card_changes,
            authenticator: self.root_authenticator,
            limits: self.root_limits,
            card_options: crate::agents::CardOptions::default(),
            service_changes: None,
        };
        Ok(blueprint.root(agent, root)?)
    }
}

/// The address to listen on if none is given.
const DEFAULT_ADDRESS: &str = "127.0.0.1:3111";

/// Where a client is connected already.
enum PipeKind {
    Stdio,
    Stream(Pipe),
}

/// The URL of a server by the addresses that it listens on, and which addresses these are. The first TCP address counts.
fn own_url(bound: &[LocalAddress], has_tls: bool) -> (String, Addresses) {
    let scheme = if has_tls { "https" } else { "http" };
    let tcp: Vec<_> = bound
        .iter()
        .filter_map(|address| match address {
            LocalAddress::Tcp(address) => Some(*address),
            LocalAddress::Unix(_) => None,
        })
        .collect();
    // Clients of a Unix socket name any host; `localhost` is what most of them send.
    let Some(first) = tcp.first() else { return ("http://localhost".to_owned(), Addresses::Any) };
    let addresses = match tcp.iter().all(|address| address.ip() == first.ip()) {
        true => Addresses::of(first.ip()),
        false => Addresses::Any,
    };
    let host = if first.ip().is_unspecified() { "localhost".to_owned() } else { host(*first) };
    (format!("{scheme}://{host}:{}", first.port()), addresses)
}

/// The interfaces that only this machine can use.
fn local_interfaces(bound: &[LocalAddress], is_stdio: bool) -> Vec<AgentInterface> {
    let sockets = bound.iter().filter_map(|address| match address {
        LocalAddress::Tcp(_) => None,
        LocalAddress::Unix(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            Some(AgentInterface::new(format!("unix://{}", path.display()), binding::UNIX))
        }
    });
    let stdio = is_stdio.then(|| AgentInterface::new("stdio://attache", binding::STDIO));
    sockets.chain(stdio).collect()
}

fn host(address: std::net::SocketAddr) -> String {
    if address.is_ipv6() { format!("[{}]", address.ip()) } else { address.ip().to_string() }
}
