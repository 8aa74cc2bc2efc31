//! The card of the remote agent, as the gateway serves it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use attache_client::Refreshed;
use attache_protocol::{AgentCapabilities, AgentCard};
use futures::{Stream, stream};

use super::Inner;

/// The card without what only holds for the remote agent itself: its addresses, its authentication, its signatures and the
/// capabilities that this server decides on.
pub(super) fn served(remote: &AgentCard) -> AgentCard {
    let mut card = remote.clone();
    card.supported_interfaces.clear();
    card.security_schemes.clear();
    card.security_requirements.clear();
    card.signatures.clear();
    for skill in &mut card.skills {
        skill.security_requirements.clear();
    }
    let extensions = std::mem::take(&mut card.capabilities.extensions);
    card.capabilities = AgentCapabilities { extensions, ..AgentCapabilities::default() };
    card
}

/// Whether the card has an interface at this address.
pub(super) fn is_at(card: &AgentCard, own_url: &str) -> bool {
    let own = own_url.trim_end_matches('/');
    card.supported_interfaces.iter().any(|interface| {
        interface.url.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Reads the card again and again, and yields it whenever it has changed. It ends with the gateway, and does not keep it: what the
/// gateway is connected to ends with it.
pub(super) fn changes(gateway: &Arc<Inner>) -> impl Stream<Item = AgentCard> + Send + 'static {
    let watch = Watch { refresh: gateway.options.refresh, gateway: Arc::downgrade(gateway), failed: false };
    stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) })
}

struct Watch {
    gateway: Weak<Inner>,
    refresh: Duration,
    /// Whether the last read failed.
    failed: bool,
}

impl Watch {
    /// The next card that differs. Nothing, once the gateway is gone.
    async fn next(&mut self) -> Option<AgentCard> {
        loop {
            tokio::time::sleep(self.refresh).await;
            let gateway = self.gateway.upgrade()?;
            let url = &*gateway.address;
            match gateway.client.refresh_card().await {
                Ok(refreshed) => {
                    if std::mem::take(&mut self.failed) {
                        tracing::info!(target: super::LOG, url, "the remote agent is reachable again");
                    }
                    if refreshed == Refreshed::Changed {
                        return Some(served(&gateway.client.card()));
                    }
                }
                // The last card stays. Each outage is logged once.
                Err(error) => {
                    if !std::mem::replace(&mut self.failed, true) {
                        let error = gateway.explain(&error);
                        tracing::warn!(target: super::LOG, url, error, "cannot read the card of the remote agent");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::{AgentExtension, AgentInterface, AgentSkill};

    use super::*;

    fn remote() -> AgentCard {
        let mut card = AgentCard::new("Old", "Does things")
            .version("0.7")
            .documentation("https://old.example/docs")
            .skill(AgentSkill::new("s", "S"))
            .extension(AgentExtension::new("urn:x"));
        card.supported_interfaces = vec![AgentInterface::new("https://old.example/a2a", "JSONRPC")];
        card.capabilities.streaming = Some(false);
        card.capabilities.push_notifications = Some(true);
        card
    }

    #[test]
    fn the_description_of_the_agent_stays_and_its_addresses_do_not() {
        let card = served(&remote());
        assert_eq!((card.name.as_str(), card.version.as_str()), ("Old", "0.7"));
        assert_eq!(card.documentation_url.as_deref(), Some("https://old.example/docs"));
        assert_eq!((card.skills.len(), card.capabilities.extensions.len()), (1, 1));
        assert!(card.supported_interfaces.is_empty());
        assert_eq!((card.capabilities.streaming, card.capabilities.push_notifications), (None, None));
    }

    #[test]
    fn an_agent_at_the_own_address_is_recognized() {
        for (own, same) in [
            ("https://old.example", true),
            ("https://old.example/", true),
            ("https://old.example/a2a", true),
            ("https://old.example/a", false),
            ("https://old.example.org", false),
        ] {
            assert_eq!(is_at(&remote(), own), same, "{own}");
        }
    }
}
