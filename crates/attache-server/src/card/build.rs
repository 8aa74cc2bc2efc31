//! Builds the served card: fills in what its author left out, such as interfaces and security schemes.

use std::sync::Arc;

use arc_swap::ArcSwap;
use attache_core::{Rights, Service};
use attache_protocol::{AgentCard, AgentInterface, SecurityRequirement, Version, binding};
use futures::{Stream, StreamExt};

use super::CardFor;
use crate::auth::Authenticator;
use crate::options::GRPC_PREFIX;
use crate::{GrpcAddress, Paths, SchemeNames, ServerOptions};

/// The interfaces of a server, in the order of preference: 1.0 first, then 0.3 unless the server requires a stated version.
pub(crate) fn interfaces(base: &str, options: &ServerOptions) -> Vec<AgentInterface> {
    let Paths { jsonrpc, grpc, .. } = &options.paths;
    let mut interfaces = Vec::new();
    if let Some(path) = jsonrpc.first() {
        interfaces.push(AgentInterface::new(format!("{base}{path}"), binding::JSONRPC));
    }
    if let Some(prefix) = options.paths.http_json_prefix() {
        interfaces.push(AgentInterface::new(format!("{base}{prefix}"), binding::HTTP_JSON));
    }
    let grpc = match options.grpc_address {
        _ if cfg!(not(feature = "grpc")) || !*grpc => None,
        GrpcAddress::Url => Some(format!("{base}{GRPC_PREFIX}")),
        GrpcAddress::HostPort => Some(authority(base)),
        GrpcAddress::Hidden => None,
    };
    interfaces.extend(grpc.map(|url| AgentInterface::new(url, binding::GRPC)));
    // Clients of 0.3 do not state their version.
    if !options.strict_version {
        let older = options.paths.http_json_v0_3_prefix().map(|prefix| format!("{base}{prefix}"));
        interfaces.extend(older_interfaces(&interfaces, older.as_deref()));
    }
    interfaces
}

/// Replaces the base URL of interfaces by another one, which names the host that a client asked for.
pub(crate) fn move_interfaces(card: &mut AgentCard, from: &str, to: &str) {
    for interface in &mut card.supported_interfaces {
        let url = &interface.url;
        let rest = url.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        if let Some(rest) = rest {
            interface.url = format!("{to}{rest}");
        } else if interface.protocol_binding == binding::GRPC && *url == authority(from) {
            interface.url = authority(to);
        }
    }
}

/// The same interfaces for clients of 0.3. HTTP+JSON has a URL of its own: a client that finds one URL for two versions may speak the
/// wrong one there.
fn older_interfaces(current: &[AgentInterface], http_json: Option<&str>) -> Vec<AgentInterface> {
    let older = current.iter().filter_map(|interface| {
        let url = match interface.protocol_binding.as_str() {
            binding::HTTP_JSON => http_json?,
            _ => &interface.url,
        };
        Some(AgentInterface {
            protocol_version: Version::V0_3.to_string(),
            ..AgentInterface::new(url, interface.protocol_binding.as_str())
        })
    });
    older.collect()
}

/// `host:port` of a URL, as gRPC addresses are written.
pub(super) fn authority(base: &str) -> String {
    let (scheme, rest) = base.split_once("://").unwrap_or(("http", base));
    let authority = rest.split('/').next().unwrap_or(rest);
    let port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match (port, scheme) {
        (true, _) => authority.to_owned(),
        (false, "https") => format!("{authority}:443"),
        (false, _) => format!("{authority}:80"),
    }
}

/// The card for authenticated callers.
pub(crate) enum ExtendedCard {
    /// The public card.
    Public(Arc<ArcSwap<AgentCard>>),
    /// The same for all callers.
    Same(Box<AgentCard>),
    /// One for each set of rights.
    ByRights(Box<dyn Fn(&Rights) -> AgentCard + Send + Sync>),
}

impl ExtendedCard {
    /// What builds the card of a caller, and whether the card depends on the caller.
    pub(crate) fn into_builder(self, builder: Arc<CardBuilder>) -> (CardFor, bool) {
        match self {
            Self::Public(card) => {
                (Arc::new(move |_| Arc::new(builder.build((**card.load()).clone()))), false)
            }
            Self::Same(card) => (Arc::new(move |_| Arc::new(builder.build((*card).clone()))), false),
            Self::ByRights(card) => (Arc::new(move |rights| Arc::new(builder.build(card(rights)))), true),
        }
    }
}

/// Changes every card, regardless of its source.
pub(crate) type CardChanges = Box<dyn Fn(&mut AgentCard) + Send + Sync>;

/// Fills in what the author of a card left out.
pub(crate) struct CardBuilder {
    pub(crate) interfaces: Vec<AgentInterface>,
    pub(crate) push: bool,
    /// What the operator changes in every card.
    pub(crate) changes: Option<CardChanges>,
    pub(crate) scheme_names: SchemeNames,
    pub(crate) has_extended_card: bool,
    /// Where the security schemes come from. They can change at run time.
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
}

impl CardBuilder {
    pub(crate) fn build(&self, mut card: AgentCard) -> AgentCard {
        if let Some(change) = &self.changes {
            change(&mut card);
        }
        if card.supported_interfaces.is_empty() {
            card.supported_interfaces.clone_from(&self.interfaces);
        }
        card.capabilities.streaming.get_or_insert(true);
        card.capabilities.push_notifications = Some(self.push);
        if let Some(authenticator) = &self.authenticator {
            // Exactly what the server enforces.
            card.security_schemes = authenticator.schemes().into_iter().collect();
            card.security_requirements = authenticator.requirements();
        }
        for skill in &mut card.skills {
            name_schemes(&mut skill.security_requirements, &card.security_requirements);
        }
        card.fill_skill_modes();
        self.scheme_names.apply(&mut card);
        // Every authenticated caller can get an extended card.
        let authenticates = || self.authenticator.as_ref().is_some_and(|callers| !callers.admits_everyone());
        if self.has_extended_card || authenticates() {
            card.capabilities.extended_agent_card.get_or_insert(true);
        }
        card
    }
}

/// Replaces the requirement of scopes for any scheme by requirements for each scheme that the server enforces.
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

/// Publishes the latest card of its author anew whenever its author changes it (`Some`) or the security schemes change (`None`).
pub(crate) async fn publish_changes(
    latest: Arc<ArcSwap<AgentCard>>,
    builder: Arc<CardBuilder>,
    service: Service,
    mut changes: impl Stream<Item = Option<AgentCard>> + Unpin,
) {
    while let Some(change) = changes.next().await {
        if let Some(card) = change {
            latest.store(Arc::new(card));
        }
        service.set_card(builder.build((**latest.load()).clone()));
    }
}
