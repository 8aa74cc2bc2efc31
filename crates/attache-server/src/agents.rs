//! Several agents on one server. Each has a name, a card and tasks of its own, and answers below `/agents/NAME`.
//!
//! All agents share the listener, the store, the delivery of push notifications and the limits of the server. The store separates
//! their tasks by [`Owner::agent`](attache_core::Owner::agent), so that a caller of one agent cannot see its tasks at another.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use attache_core::{Agent, BoxAgent, Options, Rights};
use attache_outbound::SetupError;
use attache_protocol::{AgentCard, Error};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use parking_lot::Mutex;

use crate::assemble::Blueprint;
use crate::auth::Authenticator;
use crate::card::build::{CardChanges, ExtendedCard};
use crate::http::route::RequestedUri;
use crate::{CardTransports, GrpcAddress, HttpService, Limits, SchemeNames, ServerOptions};

/// The path of the list of agents. Each agent is below it.
pub(crate) const PATH: &str = "/agents";

/// The header, or gRPC metadata, that names an agent where its path cannot.
pub(crate) const HEADER: &str = "agent";

/// The longest name of an agent, in bytes.
const MAX_NAME: usize = 64;

/// An agent that a server has beside others, with its card.
///
/// ```no_run
/// use attache_core::{Echo, Turn, agent_fn};
/// use attache_protocol::AgentCard;
/// use attache_server::{NamedAgent, Server};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let greeter = agent_fn(|turn: Turn| async move { turn.reply("Hello").await });
/// Server::new(Echo)
///     .agent("greeter", NamedAgent::new(greeter).card(AgentCard::new("Greeter", "Says hello")))?
///     .run()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a named agent does nothing until a server has it"]
pub struct NamedAgent {
    pub(crate) agent: BoxAgent,
    pub(crate) card: AgentCard,
    pub(crate) extended: Option<ExtendedCard>,
    pub(crate) card_updates: Option<BoxStream<'static, AgentCard>>,
    pub(crate) card_changes: Option<CardChanges>,
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
    pub(crate) limits: Option<Limits>,
    pub(crate) card_options: CardOptions,
    pub(crate) service_changes: Option<ServiceChanges>,
}

/// How the card of one agent differs from what the options of the server say. What is not set is as for the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct CardOptions {
    scheme_names: Option<SchemeNames>,
    grpc_address: Option<GrpcAddress>,
    transports: Option<CardTransports>,
}

impl CardOptions {
    /// The options of the server, as the card of this agent follows them.
    pub(crate) fn over(self, mut server: ServerOptions) -> ServerOptions {
        let Self { scheme_names, grpc_address, transports } = self;
        server.scheme_names = scheme_names.unwrap_or(server.scheme_names);
        server.grpc_address = grpc_address.unwrap_or(server.grpc_address);
        server.card_transports = transports.unwrap_or(server.card_transports);
        server
    }
}

/// Changes how messages and turns of one agent are processed.
pub(crate) type ServiceChanges = Box<dyn FnOnce(&mut Options) + Send>;

impl NamedAgent {
    /// An agent with the authentication and the limits of the server.
    pub fn new(agent: impl Agent) -> Self {
        Self {
            agent: agent.boxed(),
            card: AgentCard::new("Agent", "An A2A agent"),
            extended: None,
            card_updates: None,
            card_changes: None,
            authenticator: None,
            limits: None,
            card_options: CardOptions::default(),
            service_changes: None,
        }
    }

    /// Checks that a name can be part of a path and of a header.
    pub fn check_name(name: &str) -> Result<(), AddAgentError> {
        check_name(name)
    }

    /// Sets the card. Interfaces, capabilities and security schemes are filled in as for [`Server::card`](crate::Server::card).
    pub fn card(mut self, card: AgentCard) -> Self {
        self.card = card;
        self
    }

    /// Replaces the card whenever the stream yields another one.
    pub fn card_updates(mut self, cards: impl Stream<Item = AgentCard> + Send + 'static) -> Self {
        self.card_updates = Some(cards.boxed());
        self
    }

    /// Changes every card of the agent before it is filled in.
    pub fn change_cards(mut self, change: impl Fn(&mut AgentCard) + Send + Sync + 'static) -> Self {
        self.card_changes = Some(Box::new(change));
        self
    }

    /// Gives each audience its own card, as [`Server::card_for`](crate::Server::card_for) does.
    pub fn card_for(mut self, card: impl Fn(&Rights) -> AgentCard + Send + Sync + 'static) -> Self {
        self.extended = Some(ExtendedCard::ByRights(Box::new(card)));
        self
    }

    /// Authenticates the callers of this agent in its own way, instead of that of the server.
    pub fn authenticate(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticator = Some(Arc::new(authenticator));
        self
    }

    /// Gives the callers of this agent limits of their own. Their requests do not count against the limits of the server, except for
    /// its total number of requests.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// What the card of this agent calls the security schemes. Unless set, [`ServerOptions::scheme_names`].
    pub fn scheme_names(mut self, names: SchemeNames) -> Self {
        self.card_options.scheme_names = Some(names);
        self
    }

    /// How the card of this agent names the gRPC interface. Unless set, [`ServerOptions::grpc_address`].
    pub fn grpc_address(mut self, address: GrpcAddress) -> Self {
        self.card_options.grpc_address = Some(address);
        self
    }

    /// Which cards of this agent list the transports that are not part of the specification. Unless set,
    /// [`ServerOptions::card_transports`].
    pub fn card_transports(mut self, transports: CardTransports) -> Self {
        self.card_options.transports = Some(transports);
        self
    }

    /// Changes how messages and turns of this agent are processed. What is not changed is as for the server.
    pub fn service_options(mut self, change: impl FnOnce(&mut Options) + Send + 'static) -> Self {
        self.service_changes = Some(Box::new(change));
        self
    }
}

/// Why an agent was not added to a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddAgentError {
    /// The name cannot be part of a path.
    #[error(
        "`{0}` is not a name of an agent: expected up to {MAX_NAME} letters, digits, `-` and `_`, beginning with a letter or digit"
    )]
    Name(String),
    /// The server already has an agent with this name.
    #[error("there are two agents with the name `{0}`")]
    Twice(String),
    /// The agent could not be set up.
    #[error("the agent cannot be set up: {0}")]
    Setup(#[from] SetupError),
}

/// Checks that a name can be part of a path and of a header.
pub(crate) fn check_name(name: &str) -> Result<(), AddAgentError> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    match begins && name.len() <= MAX_NAME && name.bytes().all(is_inner) {
        true => Ok(()),
        false => Err(AddAgentError::Name(name.to_owned())),
    }
}

/// The named agents of a running server. Cheap to clone: all clones are one list.
#[derive(Clone)]
pub struct Agents(Arc<Inner>);

struct Inner {
    blueprint: Blueprint,
    by_name: ArcSwap<BTreeMap<String, HttpService>>,
    /// Held while the list changes. Readers do not wait for it.
    changing: Mutex<()>,
}

impl Agents {
    pub(crate) fn new(blueprint: Blueprint) -> Self {
        let (by_name, changing) = (ArcSwap::default(), Mutex::default());
        Self(Arc::new(Inner { blueprint, by_name, changing }))
    }

    /// Adds an agent, or replaces the one of that name. Turns of the replaced agent run to their end. Call it within a tokio runtime.
    pub fn put(&self, name: &str, agent: NamedAgent) -> Result<(), AddAgentError> {
        check_name(name)?;
        let service = self.0.blueprint.named(name, agent)?;
        let _changing = self.0.changing.lock();
        let mut agents = BTreeMap::clone(&self.0.by_name.load());
        agents.insert(name.to_owned(), service);
        self.0.by_name.store(Arc::new(agents));
        Ok(())
    }

    /// Removes an agent. Its paths do not exist any more. Its running turns are given the time that the server gives them when it
    /// stops. Its tasks stay in the store. Returns whether there was such an agent.
    pub fn remove(&self, name: &str) -> bool {
        let removed = {
            let _changing = self.0.changing.lock();
            let mut agents = BTreeMap::clone(&self.0.by_name.load());
            let removed = agents.remove(name);
            self.0.by_name.store(Arc::new(agents));
            removed
        };
        match removed {
            Some(service) => {
                tokio::spawn(async move { service.end_turns().await });
                true
            }
            None => false,
        }
    }

    /// The names of all agents, sorted.
    pub fn names(&self) -> Vec<String> {
        self.0.by_name.load().keys().cloned().collect()
    }

    /// The card of an agent, as the server completes it.
    pub fn card(&self, name: &str) -> Option<Arc<AgentCard>> {
        self.get(name).map(|http| http.dispatcher().service().card())
    }

    /// Changes the limits on callers that the agents without limits of their own share. The new limits apply to requests that arrive
    /// from now on.
    pub fn set_limits(&self, limits: Limits) {
        self.0.blueprint.limits.set_callers(limits);
    }

    pub(crate) fn get(&self, name: &str) -> Option<HttpService> {
        self.0.by_name.load().get(name).cloned()
    }

    /// All agents, sorted by name.
    pub(crate) fn all(&self) -> Arc<BTreeMap<String, HttpService>> {
        self.0.by_name.load_full()
    }

    /// The agent whose path a request has. The path of the request is then the rest, as if the agent were alone on the server.
    pub(crate) fn take_path(&self, head: &mut Parts) -> Option<HttpService> {
        let rest = head.uri.path().strip_prefix(PATH)?.strip_prefix('/')?;
        let (name, rest) = rest.split_once('/').map_or((rest, ""), |(name, rest)| (name, rest));
        let found = self.get(name)?;
        let target = match head.uri.query() {
            Some(query) => format!("/{rest}?{query}"),
            None => format!("/{rest}"),
        };
        let mut parts = head.uri.clone().into_parts();
        parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
        let uri = Uri::from_parts(parts).ok()?;
        head.extensions.insert(RequestedUri(std::mem::replace(&mut head.uri, uri)));
        Some(found)
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Agents").field(&self.names()).finish()
    }
}

/// The error for a request that names an agent which does not exist.
pub(crate) fn no_such_agent(name: &[u8]) -> Error {
    let name: String = String::from_utf8_lossy(name).chars().take(MAX_NAME).collect();
    Error::invalid_params(HEADER, format!("there is no agent `{name}`: `GET {PATH}` lists the agents"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_part_of_a_path_and_of_a_header() {
        for name in ["a", "Research-2", "0_x", &"a".repeat(64)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "-a", "_a", "a.b", "..", "a/b", "a b", "é", "a%20b", &"a".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
