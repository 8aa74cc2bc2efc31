//! Assembles what answers the requests of one agent, from what all agents of a server share.

use std::sync::Arc;

use arc_swap::ArcSwap;
use attache_core::{Agent, Clock, Namespace, Options, Retention, Service, Store};
use attache_outbound::SetupError;
use attache_protocol::AgentInterface;
use futures::FutureExt;
use futures::stream::{self, StreamExt};

use crate::agents::{self, Agents, NamedAgent};
use crate::auth::Authenticator;
use crate::card::CardHost;
use crate::card::build::{self, CardBuilder, ExtendedCard};
use crate::card::runtime::RuntimeDetails;
use crate::card::transports::FurtherTransports;
use crate::dispatch::{Dispatcher, SharedLimits};
use crate::http::Fallback;
use crate::http::origin::{Addresses, FallbackCors, RequestFilter};
use crate::signing::{self, Signing};
use crate::{HttpService, PushOptions, ServerOptions};

/// What all agents of a server share.
#[derive(Clone)]
pub(crate) struct Blueprint {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The base URL of the server, without a slash at its end.
    pub(crate) base: String,
    pub(crate) addresses: Addresses,
    /// Whether the base URL is made of the address that the server listens on.
    pub(crate) base_is_own: bool,
    pub(crate) options: ServerOptions,
    pub(crate) service: Options,
    /// Whether push notifications are offered.
    pub(crate) push: bool,
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
    pub(crate) signing: Option<signing::Keys>,
    pub(crate) limits: SharedLimits,
    /// The transport over Redis, for the card.
    #[cfg(feature = "redis")]
    pub(crate) redis: Option<Arc<crate::RedisStreams>>,
    /// The interfaces that only this machine can use. They lead to the agent at the root.
    pub(crate) local: Vec<AgentInterface>,
}

/// What only the agent at the root of a server has.
#[derive(Default)]
pub(crate) struct RootParts {
    /// Delivers the push notifications of all agents.
    pub(crate) push: Option<PushOptions>,
    pub(crate) fallback: Fallback,
    pub(crate) fallback_cors: Option<FallbackCors>,
    pub(crate) agents: Option<Agents>,
}

impl Blueprint {
    /// The agent at the root.
    pub(crate) fn root(&self, agent: NamedAgent, root: RootParts) -> Result<HttpService, SetupError> {
        self.assemble(&self.base, self.service.clone(), agent, root)
    }

    /// An agent with a name, below the path of agents.
    pub(crate) fn named(&self, name: &str, mut agent: NamedAgent) -> Result<HttpService, SetupError> {
        let base = format!("{}{}/{name}", self.base, agents::PATH);
        let mut service = self.service.clone();
        if let Some(change) = agent.service_changes.take() {
            change(&mut service);
        }
        // The agent at the root deletes old tasks, for all agents.
        let service = service.agent_name(Some(name.into())).retention(Retention::default());
        self.assemble(&base, service, agent, RootParts::default())
    }

    fn assemble(
        &self,
        base: &str,
        service_options: Options,
        agent: NamedAgent,
        root: RootParts,
    ) -> Result<HttpService, SetupError> {
        let options = &agent.card_options.over(self.options.clone());
        let filter = RequestFilter::new(self.addresses, base, options, root.fallback_cors)
            .base_is_own(self.base_is_own);
        let authenticator = agent.authenticator.or_else(|| self.authenticator.clone());
        let oldest_path = options.paths.oldest.first().cloned();
        let signing = self.signing.clone().map(|keys| Signing::new(keys, base));
        let pure = options.pure_card || options.strict_version;
        let interfaces = build::interfaces(base, options);
        let local = if service_options.agent_name.is_some() { &[][..] } else { &self.local };
        let transports = FurtherTransports::new(&interfaces, options, local);
        #[cfg(feature = "redis")]
        let transports = match &self.redis {
            Some(redis) => transports.with_redis(redis, service_options.agent_name.as_deref()),
            None => transports,
        };
        let cards = CardHost::new(pure, base, oldest_path, signing.clone(), transports);
        let reports = &service_options.reports;
        let lists_reports = agent.agent.reports() || reports.namespace != Namespace::Attache;
        let builder = Arc::new(CardBuilder {
            interfaces,
            push: self.push,
            changes: agent.card_changes,
            scheme_names: options.scheme_names.clone(),
            has_extended_card: agent.extended.is_some(),
            report_extensions: if lists_reports { reports.extensions() } else { Vec::new() },
            authenticator: authenticator.clone(),
        });
        let card = builder.build(agent.card.clone());
        let runtime_options = service_options.clone();
        let service =
            Service::with_clock(agent.agent, self.store.clone(), card, service_options, self.clock.clone());
        let runtime = RuntimeDetails::new(&service, options, &runtime_options);
        let limits = match agent.limits {
            Some(limits) => self.limits.with_callers(limits),
            None => self.limits.clone(),
        };
        let dispatcher =
            Dispatcher::new(service.clone(), options.clone(), base, authenticator.clone(), limits);
        let latest = Arc::new(ArcSwap::from_pointee(agent.card));
        let by_default = authenticator.is_some().then(|| ExtendedCard::Public(latest.clone()));
        let extended = agent.extended.or(by_default).map(|extended| extended.into_builder(builder.clone()));
        if let Some((extended, _)) = extended.clone() {
            let sign = signing.map(Signing::repeatedly);
            let admission = dispatcher.admission().clone();
            service.set_extended_card_for(move |rights| {
                let mut card = extended(rights);
                runtime.describe(Arc::make_mut(&mut card), &admission.limits());
                sign.as_ref().map_or_else(|| card.clone(), |sign| sign(card.clone()))
            });
        }
        let by_rights = extended.filter(|(_, depends_on_caller)| *depends_on_caller);
        let cards = cards.by_rights(by_rights.map(|(extended, _)| extended));
        // Subscribed here, so that changes before the server is up are not missed.
        let new_cards = agent.card_updates.unwrap_or_else(|| stream::empty().boxed()).map(Some);
        let new_schemes = authenticator.as_ref().map(|authenticator| authenticator.changes());
        let new_schemes = new_schemes.unwrap_or_else(|| stream::empty().boxed()).map(|()| None);
        let changes = stream::select(new_cards, new_schemes);
        let card_updates = build::publish_changes(latest, builder, service, changes).boxed();
        let push = root.push.map(|push| (push, self.base.clone()));
        HttpService::new(dispatcher, push, cards, filter, root.fallback, root.agents, card_updates)
    }
}
