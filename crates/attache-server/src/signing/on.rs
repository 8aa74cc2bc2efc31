//! Signs the served cards.

use std::collections::VecDeque;
use std::sync::Arc;

use attache_protocol::AgentCard;
pub(crate) use attache_signing::CurrentKeys;
pub(crate) use attache_signing::SigningKeys as Keys;
use parking_lot::Mutex;

use super::PATH;

/// How many signed cards are cached: there may be one for each audience.
const MAX_SIGNED: usize = 16;

/// Signs cards and publishes the keys.
#[derive(Clone)]
pub(crate) struct Signing {
    keys: Keys,
    /// The base URL of the server.
    base_url: Arc<str>,
}

impl Signing {
    pub(crate) fn new(keys: Keys, base_url: &str) -> Self {
        Self { keys, base_url: base_url.into() }
    }

    /// The keys that sign now. The same pointer until they change.
    pub(crate) fn keys(&self) -> Arc<CurrentKeys> {
        self.keys.current()
    }

    /// Whether there are public keys to publish. Keys with a shared secret have none.
    pub(crate) fn publishes_keys(&self) -> bool {
        !self.keys().public_keys().is_empty()
    }

    /// The document with the public keys.
    pub(crate) fn published(keys: &CurrentKeys) -> serde_json::Value {
        serde_json::to_value(keys.public_keys().to_json()).unwrap_or_default()
    }

    /// Signs the card. `base_url` is that of the server as the client knows it, where it finds the keys. If signing fails, the card is served without a signature, which clients can detect.
    pub(crate) fn sign(&self, keys: &CurrentKeys, card: &AgentCard, base_url: &str) -> AgentCard {
        keys.sign(card, Some(&format!("{base_url}{PATH}"))).unwrap_or_else(|error| {
            tracing::error!(agent = card.name, %error, "the card is served without a signature");
            AgentCard { signatures: Vec::new(), ..card.clone() }
        })
    }

    /// A function that signs a card once, until the card or the keys change.
    pub(crate) fn repeatedly(self) -> impl Fn(Arc<AgentCard>) -> Arc<AgentCard> + Send + Sync {
        let latest = Mutex::new(VecDeque::<(Arc<CurrentKeys>, Arc<AgentCard>, Arc<AgentCard>)>::new());
        move |card| {
            let now = self.keys();
            let mut latest = latest.lock();
            let same = |plain: &Arc<AgentCard>| Arc::ptr_eq(plain, &card) || *plain == card;
            let known = latest.iter().find(|(keys, plain, _)| Arc::ptr_eq(keys, &now) && same(plain));
            if let Some((_, _, signed)) = known {
                return signed.clone();
            }
            let signed = Arc::new(self.sign(&now, &card, &self.base_url));
            latest.truncate(MAX_SIGNED - 1);
            latest.push_front((now, card, signed.clone()));
            signed
        }
    }
}
