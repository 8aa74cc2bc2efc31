//! An agent on the network, in a few lines.

use std::net::IpAddr;
use std::sync::Arc;

use attache_core::{
    Agent, Clock, Echo, MemoryStore, Options, Rights, Service, Store, SystemClock, WebhookCheck,
};
use attache_outbound::SetupError;
use attache_protocol::{AgentCard, AgentInterface, AgentSkill, SecurityRequirement, Version, binding};
use attache_signing::SigningKeys;
use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt};
use http::{Method, Request, Response, request};
use http_body_util::BodyExt;
use tokio::net::TcpListener;

use crate::auth::Authenticator;
use crate::body::{Body, BodyError, BoxBody};
use crate::card::{CardFor, CardHost};
use crate::origin::{Addresses, FallbackCors, RequestFilter};
use crate::signing::{self, Signing};
use crate::surface::{Fallback, FallbackAccessOf, Guards};
use crate::{
    Cors, FallbackAccess, Listening, PushOptions, ServerOptions, Surface, Tls, TlsError, is_loopback_url,
};

/// Why a server could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on `{address}`: {source}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Push notifications cannot be made.
    #[error("cannot make push notifications: {0}")]
    Push(#[from] SetupError),
    /// There is no certificate to begin TLS with.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server broke while running.
    #[error("the server stopped: {0}")]
    Serve(#[from] std::io::Error),
}

/// An agent, about to be put on the network.
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
    extended: Option<Extended>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    address: String,
    base_url: Option<String>,
    options: ServerOptions,
    service: Options,
    push: PushOptions,
    push_offered: Option<bool>,
    authenticator: Option<Arc<dyn Authenticator>>,
    cards: Option<BoxStream<'static, AgentCard>>,
    fallback: Option<Fallback>,
    fallback_cors: Option<FallbackCors>,
    fallback_access: Option<FallbackAccessOf>,
    signing: Option<SigningKeys>,
    tls: Option<Tls>,
}

impl Server<Echo> {
    /// A server whose agent gives back what it gets.
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
            address: "127.0.0.1:3111".to_owned(),
            base_url: None,
            options: ServerOptions::default(),
            service: Options::default(),
            push: PushOptions::default(),
            push_offered: None,
            authenticator: None,
            cards: None,
            fallback: None,
            fallback_cors: None,
            fallback_access: None,
            signing: None,
            tls: None,
        }
    }

    /// Sets how the agent describes itself. Its interfaces, and whether it streams, are filled in where the card is silent.
    pub fn card(mut self, card: AgentCard) -> Self {
        self.card = card;
        self
    }

    /// Changes the card whenever the stream brings another one, each filled in as the first one is. Whether push notifications
    /// are offered is settled by the first card.
    pub fn card_updates(mut self, cards: impl Stream<Item = AgentCard> + Send + 'static) -> Self {
        self.cards = Some(cards.boxed());
        self
    }

    /// Answers requests to paths that are not the server's own. Where the answer is nothing, the path is nobody's.
    ///
    /// A router made with [`into_router`](Self::into_router) has no use for it: the application it goes into has its own paths.
    pub fn fallback<F, Fut, B>(mut self, answer: F) -> Self
    where
        F: Fn(Request<BoxBody>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Option<Response<B>>> + Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.fallback = Some(Box::new(move |request| {
            let answer = answer(request);
            Box::pin(async move {
                let boxed = |body: B| Body::other(BoxBody::new(body.map_err(BodyError::new)));
                answer.await.map(|response| response.map(boxed))
            })
        }));
        self
    }

    /// Says which origins an application allows at the paths that [`fallback`](Self::fallback) answers, for a method and a path,
    /// beside those that [the options](ServerOptions::cors) allow everywhere.
    pub fn fallback_cors(mut self, cors: impl Fn(&Method, &str) -> Cors + Send + Sync + 'static) -> Self {
        self.fallback_cors = Some(Box::new(cors));
        self
    }

    /// Says who may have what the [fallback](Self::fallback) answers, where callers are asked who they are: it finds out itself, if
    /// this is not given.
    pub fn fallback_access(
        mut self,
        access: impl Fn(&request::Parts) -> FallbackAccess + Send + Sync + 'static,
    ) -> Self {
        self.fallback_access = Some(Box::new(access));
        self
    }

    /// Sets the card that authenticated callers get.
    pub fn extended_card(mut self, card: AgentCard) -> Self {
        self.extended = Some(Extended::Same(Box::new(card)));
        self
    }

    /// Shows each audience a card of its own: authenticated callers get the one that is made for their rights as the extended
    /// card, and where the card is [not public](ServerOptions::public_card), as the card itself.
    pub fn card_for(mut self, card: impl Fn(&Rights) -> AgentCard + Send + Sync + 'static) -> Self {
        self.extended = Some(Extended::ByRights(Box::new(card)));
        self
    }

    /// Lets in only who is known, on every binding, and says in the card what is asked for. The card itself and the health check
    /// are for everyone unless the [options](ServerOptions) say otherwise; so is what [`fallback`](Self::fallback) answers, unless
    /// [`fallback_access`](Self::fallback_access) says otherwise.
    ///
    /// An [`Identity`](attache_core::Identity) among the extensions of a request then counts for nothing.
    pub fn authenticate(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticator = Some(Arc::new(authenticator));
        self
    }

    /// Signs the cards, the extended one on its own, and publishes the keys at `/.well-known/jwks.json`.
    ///
    /// The signatures are made anew when a card changes and when the keys do.
    pub fn signing(mut self, keys: SigningKeys) -> Self {
        self.signing = Some(keys);
        self
    }

    /// Sets where tasks are kept: in memory, if nothing else is said.
    pub fn store(self, store: impl Store) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// Like [`store`](Self::store), for a store that others use too or that was chosen while running.
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    /// Sets where the time comes from.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the address to listen on, `127.0.0.1:3111` if not given.
    pub fn bind(mut self, address: impl Into<String>) -> Self {
        self.address = address.into();
        self
    }

    /// Speaks TLS on the port, with HTTP/1.1 and HTTP/2. Nothing else is spoken there then.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the URL under which clients reach the server, if it is another than the address it listens on.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Changes paths, limits and timeouts of the server.
    pub fn options(mut self, change: impl FnOnce(&mut ServerOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Changes how messages and turns are handled.
    pub fn service_options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.service);
        self
    }

    /// Whether push notifications are offered. They are, unless this or the card says otherwise.
    pub fn push(mut self, offered: bool) -> Self {
        self.push_offered = Some(offered);
        self
    }

    /// Changes how push notifications are made.
    pub fn push_options(mut self, change: impl FnOnce(&mut PushOptions)) -> Self {
        change(&mut self.push);
        self
    }

    /// Takes the port and serves until the process is told to stop.
    pub async fn run(self) -> Result<(), ServerError> {
        Ok(self.listen().await?.run().await?)
    }

    /// Takes the port. The card advertises the port that was taken, which matters where the address said 0.
    pub async fn listen(self) -> Result<Listening, ServerError> {
        if let Some(tls) = &self.tls {
            tls.reload()?;
        }
        let fail = |address: &str, source| ServerError::Listen { address: address.to_owned(), source };
        let listener = TcpListener::bind(&self.address).await.map_err(|error| fail(&self.address, error))?;
        let local = listener.local_addr().map_err(|error| fail(&self.address, error))?;
        let base = self.base_url.clone().unwrap_or_else(|| {
            let host = if local.ip().is_unspecified() { "localhost".to_owned() } else { host(local) };
            let scheme = if self.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{host}:{}", local.port())
        });
        let tls = self.tls.clone();
        let addresses = Addresses::of(local.ip());
        self.warn_of_proxy(local.ip(), &base);
        Ok(Listening { listener, tls, surface: self.surface(&base, addresses)? })
    }

    /// The routes, for an axum application of the caller's. The base URL is needed for the card.
    ///
    /// Who calls is taken from an [`Identity`](attache_core::Identity), or a [`Principal`](attache_core::Principal), among the request's extensions, where a layer of the
    /// application puts one; where the request comes from, from a [`Peer`](crate::Peer) there. TLS, limits on connections and headers, the wait for slow headers and what happens on stopping are
    /// then the application's to decide; all other options hold.
    ///
    /// Push notifications and the care for tasks that were left behind run beside the router: call this within a runtime of
    /// tokio's.
    pub fn into_router(self, base_url: &str) -> Result<axum::Router, ServerError> {
        let (mut exact, prefixes) = self.options.paths.answered();
        exact.extend(self.signing.as_ref().map(|_| signing::PATH.to_owned()));
        let surface = self.into_surface(base_url)?;
        let mut router = axum::Router::new();
        for path in exact {
            router = router.route_service(&path, surface.clone());
        }
        for prefix in prefixes {
            router = router.route_service(&format!("{prefix}/{{*rest}}"), surface.clone());
        }
        Ok(router)
    }

    /// The surface itself, a tower service, for those who frame requests in a way of their own. The same holds as for
    /// [`into_router`](Self::into_router).
    pub fn into_surface(self, base_url: &str) -> Result<Surface, ServerError> {
        self.surface(base_url, Addresses::Any)
    }

    /// Warns of a server that is meant for this machine by its address and for others by its URL: they come through a proxy, and
    /// to the server they look like programs on this machine.
    fn warn_of_proxy(&self, address: IpAddr, base_url: &str) {
        let open = self.authenticator.as_ref().is_none_or(|authenticator| authenticator.admits_everyone());
        if open && address.to_canonical().is_loopback() && !is_loopback_url(base_url) {
            tracing::warn!(
                base_url,
                "callers are not authenticated: everyone who reaches this server through its base URL can use it"
            );
        }
    }

    fn surface(self, base_url: &str, addresses: Addresses) -> Result<Surface, ServerError> {
        let base = base_url.trim_end_matches('/');
        let filter = RequestFilter::new(addresses, base, &self.options, self.fallback_cors);
        let paths = &self.options.paths;
        let jsonrpc = paths.jsonrpc.first().map_or("/", String::as_str);
        let said = self.push_offered.or(self.card.capabilities.push_notifications);
        let push = said.unwrap_or(true);
        let mut interfaces = vec![
            AgentInterface::new(format!("{base}{jsonrpc}"), binding::JSONRPC),
            AgentInterface::new(format!("{base}{}", paths.http_json), binding::HTTP_JSON),
        ];
        if paths.grpc {
            interfaces.push(AgentInterface::new(authority(base), binding::GRPC));
        }
        // Who speaks 0.3 does not say so, and is not understood where that must be said.
        if !self.options.strict_version {
            interfaces.extend(older_interfaces(&interfaces));
        }
        let oldest_url = paths.oldest.first().map(|path| format!("{base}{path}"));
        let signing = self.signing.map(|keys| Signing::new(keys, base));
        let pure = self.options.pure_card || self.options.strict_version;
        let cards = CardHost::new(pure, oldest_url, signing.clone());
        let authenticator = self.authenticator.clone();
        let extended = self.extended.is_some();
        let complete = Arc::new(Completion { authenticator, interfaces, push, extended });
        let card = complete.fill(self.card.clone());
        let mut options = self.service;
        let (policy, own) = (self.push.policy.clone(), options.webhook_check);
        options.webhook_check = WebhookCheck::new(move |url| {
            own.check(url)?;
            policy.check_url(url).map(|_| ()).map_err(|refused| refused.to_string())
        });
        let service = Service::with_clock(self.agent, self.store, card, options, self.clock);
        let own_card = self.extended.map(|extended| extended.completed(complete.clone()));
        if let Some(own_card) = &own_card {
            let (own_card, sign) = (own_card.make.clone(), signing.map(Signing::repeatedly));
            service.set_extended_card_for(move |rights| {
                let card = own_card(rights);
                sign.as_ref().map_or_else(|| card.clone(), |sign| sign(card.clone()))
            });
        }
        let cards =
            cards.by_rights(own_card.filter(|own_card| own_card.differs).map(|own_card| own_card.make));
        let push = push.then_some(self.push);
        let following = Following { card: self.card, complete };
        // Listened for from here on: what changes before the server is up counts too.
        let new = self.cards.unwrap_or_else(|| stream::empty().boxed()).map(Some);
        let changes = self.authenticator.as_ref().map(|authenticator| authenticator.changes());
        let changes = changes.unwrap_or_else(|| stream::empty().boxed()).map(|()| None);
        let changing = following.run(service.clone(), stream::select(new, changes));
        let changing = Some(changing.boxed());
        let guards = Guards { filter, authenticator: self.authenticator };
        let fallback = (self.fallback, self.fallback_access);
        Ok(Surface::new(service, self.options, push, cards, guards, fallback, changing)?)
    }
}

/// The same addresses for those who speak 0.3.
fn older_interfaces(current: &[AgentInterface]) -> Vec<AgentInterface> {
    let older = current.iter().filter_map(|interface| {
        let url = match interface.protocol_binding.as_str() {
            // Its clients know the rest of the path.
            binding::HTTP_JSON => interface.url.strip_suffix("/v1")?,
            _ => &interface.url,
        };
        Some(AgentInterface {
            protocol_version: Version::V0_3.to_string(),
            ..AgentInterface::new(url, interface.protocol_binding.as_str())
        })
    });
    older.collect()
}

/// The card for authenticated callers.
enum Extended {
    /// The same for all of them.
    Same(Box<AgentCard>),
    /// One for each audience.
    ByRights(Box<dyn Fn(&Rights) -> AgentCard + Send + Sync>),
}

/// What makes the card of an authenticated caller, completed.
struct OwnCard {
    make: CardFor,
    /// Whether it depends on the caller.
    differs: bool,
}

impl Extended {
    fn completed(self, complete: Arc<Completion>) -> OwnCard {
        match self {
            Self::Same(card) => {
                OwnCard { make: Arc::new(move |_| Arc::new(complete.fill((*card).clone()))), differs: false }
            }
            Self::ByRights(make) => {
                OwnCard { make: Arc::new(move |rights| Arc::new(complete.fill(make(rights)))), differs: true }
            }
        }
    }
}

/// The card as its author wrote it, to be completed anew when it or what is asked of callers changes.
struct Following {
    card: AgentCard,
    complete: Arc<Completion>,
}

impl Following {
    /// Completes what comes: another card, or nothing if what is asked of callers has changed.
    async fn run(mut self, service: Service, mut news: impl Stream<Item = Option<AgentCard>> + Unpin) {
        while let Some(card) = news.next().await {
            self.card = card.unwrap_or(self.card);
            service.set_card(self.complete.fill(self.card.clone()));
        }
    }
}

/// What a card says where its author says nothing.
struct Completion {
    interfaces: Vec<AgentInterface>,
    push: bool,
    extended: bool,
    /// Who asks callers who they are, if they are asked. What is asked for may change.
    authenticator: Option<Arc<dyn Authenticator>>,
}

impl Completion {
    fn fill(&self, mut card: AgentCard) -> AgentCard {
        if card.supported_interfaces.is_empty() {
            card.supported_interfaces.clone_from(&self.interfaces);
        }
        card.capabilities.streaming.get_or_insert(true);
        card.capabilities.push_notifications = Some(self.push);
        if let Some(authenticator) = &self.authenticator {
            // Exactly what is enforced.
            card.security_schemes = authenticator.schemes().into_iter().collect();
            card.security_requirements = authenticator.requirements();
        }
        for skill in &mut card.skills {
            Self::name_schemes(&mut skill.security_requirements, &card.security_requirements);
        }
        if self.extended {
            card.capabilities.extended_agent_card.get_or_insert(true);
        }
        card
    }

    /// Says for which schemes scopes are needed, where they are needed whatever the scheme is.
    fn name_schemes(requirements: &mut Vec<SecurityRequirement>, enforced: &[SecurityRequirement]) {
        let any = SecurityRequirement::ANY_SCHEME;
        let Some(scopes) = requirements.iter().find_map(|requirement| requirement.schemes.get(any)).cloned()
        else {
            return;
        };
        requirements.retain(|requirement| !requirement.schemes.contains_key(any));
        requirements.extend(enforced.iter().map(|requirement| SecurityRequirement {
            schemes: requirement.schemes.keys().map(|name| (name.clone(), scopes.clone())).collect(),
        }));
    }
}

fn host(address: std::net::SocketAddr) -> String {
    if address.is_ipv6() { format!("[{}]", address.ip()) } else { address.ip().to_string() }
}

/// `host:port` of a URL, as gRPC addresses are written.
fn authority(base: &str) -> String {
    let (scheme, rest) = base.split_once("://").unwrap_or(("http", base));
    let authority = rest.split('/').next().unwrap_or(rest);
    let port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match (port, scheme) {
        (true, _) => authority.to_owned(),
        (false, "https") => format!("{authority}:443"),
        (false, _) => format!("{authority}:80"),
    }
}
