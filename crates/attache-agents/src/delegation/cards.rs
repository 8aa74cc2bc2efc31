//! The cards of other agents: finds them, and keeps them in the store.

use std::sync::Arc;
use std::time::Duration;

use attache_core::Store;
use attache_iii::CardOverrides;
use attache_protocol::dialect::{read_card, v0_1_card};
use attache_protocol::{AgentCard, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::timeout;
use url::Url;

use super::fetch::{Fetcher, or_tolerantly};
use super::{DelegationError, encode};
use crate::address::{redact, redact_url};

/// The scope of cards in the store.
const SCOPE: &str = "a2a";

/// The prefix of the keys of discovered cards.
const DISCOVERED: &str = "discovered:";

/// The key of the last card that was created for this agent.
const OWN_CARD: &str = "agent_card";

/// The key of the members that were set in it.
const OWN_MEMBERS: &str = "agent_card_members";

/// The timeout for finding a card.
const FIND_TIMEOUT: Duration = Duration::from_secs(15);

/// How much is shown of the reason why a document is not a card, in characters. It can repeat what the agent sent.
const MAX_REASON: usize = 300;

/// How many discovered cards are kept.
const MAX_CARDS: usize = 1000;

/// The paths of cards below the address of an agent: since protocol 0.3, and before.
const CURRENT_CARD: &str = "/.well-known/agent-card.json";
const V0_1_CARD: &str = "/.well-known/agent.json";

/// The usual path of the JSON-RPC endpoint in protocol 0.1.
pub(super) const V0_1_RPC: &str = "/a2a/rpc";

/// A card that was found.
pub(super) struct FoundCard {
    /// The URL of the card.
    pub(super) url: Url,
    pub(super) protocol: CardProtocol,
    raw: Map<String, Value>,
    card: AgentCard,
}

/// The protocol version of a card.
pub(super) enum CardProtocol {
    /// 1.0 or 0.3.
    Current,
    /// 0.1, with the URL of the JSON-RPC endpoint.
    V0_1(Url),
}

/// A discovered card in the store.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCard {
    card: Value,
    discovered_at: i64,
    url: String,
}

/// The cards in the store.
pub(super) struct CardStore {
    store: Arc<dyn Store>,
}

impl CardStore {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Finds the card of an agent, and stores it.
    pub(super) async fn discover(
        &self,
        fetcher: &Fetcher,
        address: &str,
        now: Timestamp,
    ) -> Result<Value, DelegationError> {
        let url = fetcher.check(address)?;
        let card = find(fetcher, &url).await?.into_documented();
        let stored = StoredCard { card, discovered_at: now.to_millis(), url: redact(address) };
        self.put(&format!("{DISCOVERED}{}", agent_key(&url)), &stored).await?;
        self.prune().await?;
        Ok(stored.card)
    }

    /// Stores the card that was created for this agent, and the members that were set in it.
    pub(super) async fn put_own(&self, card: &Value, members: &CardOverrides) -> Result<(), DelegationError> {
        self.put(OWN_MEMBERS, members).await?;
        self.put(OWN_CARD, card).await
    }

    /// The members that were set in the card of this agent.
    pub(super) async fn own_members(&self) -> Result<Option<CardOverrides>, DelegationError> {
        let stored = self.store.values().get(SCOPE, OWN_MEMBERS).await?;
        Ok(stored.and_then(|stored| stored.read().ok()))
    }

    async fn put(&self, key: &str, value: &impl Serialize) -> Result<(), DelegationError> {
        let value = encode(value)?;
        self.store.values().change(SCOPE, key, Box::new(move |_| Some(value.clone()))).await?;
        Ok(())
    }

    /// Removes the oldest discovered cards if there are too many.
    async fn prune(&self) -> Result<(), DelegationError> {
        let mut cards = self.discovered().await?;
        cards.sort_by_key(|(_, stored)| stored.discovered_at);
        for (key, _) in cards.iter().take(cards.len().saturating_sub(MAX_CARDS)) {
            self.store.values().change(SCOPE, key, Box::new(|_| None)).await?;
        }
        Ok(())
    }

    async fn discovered(&self) -> Result<Vec<(String, StoredCard)>, DelegationError> {
        let values = self.store.values().list(SCOPE).await?;
        let cards = values.into_iter().filter(|(key, _)| key.starts_with(DISCOVERED));
        Ok(cards.filter_map(|(key, value)| Some((key, value.read().ok()?))).collect())
    }

    /// The discovered cards.
    pub(super) async fn list(&self) -> Result<Vec<Value>, DelegationError> {
        Ok(self.discovered().await?.into_iter().map(|(_, stored)| stored.card).collect())
    }

    /// The address of the agent whose discovered card has an interface at this URL.
    pub(super) async fn agent_with_interface(
        &self,
        interface: &Url,
    ) -> Result<Option<String>, DelegationError> {
        let has_interface = |card: &Value| {
            let interfaces = card["supportedInterfaces"].as_array().into_iter().flatten();
            let older = card["additionalInterfaces"].as_array().into_iter().flatten();
            let all = std::iter::once(card).chain(interfaces).chain(older);
            all.filter_map(|object| object["url"].as_str()).any(|url| is_same_endpoint(url, interface))
        };
        let mut cards = self.discovered().await?.into_iter().map(|(_, stored)| stored);
        Ok(cards.find(|stored| has_interface(&stored.card)).map(|stored| stored.url))
    }
}

fn is_same_endpoint(url: &str, other: &Url) -> bool {
    Url::parse(url).is_ok_and(|url| agent_key(&url) == agent_key(other) && url.scheme() == other.scheme())
}

/// The key of an agent: host, port and path, since agents can share a host.
fn agent_key(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}{}", url.host_str().unwrap_or_default(), url.path().trim_end_matches('/'))
}

/// The URLs where the card of an agent can be, the most likely first.
///
/// The address can be the base URL of the agent, or one of its endpoints. The path [`V0_1_RPC`] means that the caller wants protocol 0.1,
/// so the card of that version is tried first, below the path without it.
fn card_urls(address: &Url) -> Vec<Url> {
    let path = address.path().trim_end_matches('/');
    let at = |path: String| {
        let mut url = address.clone();
        url.set_path(&path);
        url.set_query(None);
        url
    };
    if path.ends_with(".json") {
        return vec![address.clone()];
    }
    if let Some(base) = path.strip_suffix(V0_1_RPC) {
        return [V0_1_CARD, CURRENT_CARD].map(|known| at(format!("{base}{known}"))).into();
    }
    let mut urls = vec![at(format!("{path}{CURRENT_CARD}")), at(format!("{path}{V0_1_CARD}"))];
    if !path.is_empty() {
        urls.extend([CURRENT_CARD, V0_1_CARD].map(|known| at(known.to_owned())));
    }
    urls
}

/// Finds the card of an agent.
pub(super) async fn find(fetcher: &Fetcher, address: &Url) -> Result<FoundCard, DelegationError> {
    let finding = async {
        let (mut first_reason, mut denied) = (None, None);
        for url in card_urls(address) {
            let (status, body) = fetcher.get(&url).await?;
            denied = denied.or(fetcher.denied(&url, status));
            let card =
                if status.is_success() { FoundCard::parse(url, &body) } else { Err(status.to_string()) };
            match card {
                Ok(card) => return card.trusted(fetcher, &body),
                Err(reason) => first_reason = first_reason.or(Some(reason)),
            }
        }
        Err(denied.unwrap_or_else(|| DelegationError::NoCard(first_reason.unwrap_or_default())))
    };
    timeout(FIND_TIMEOUT, finding).await.unwrap_or(Err(DelegationError::TimedOut(FIND_TIMEOUT)))
}

impl FoundCard {
    pub(super) fn parse(url: Url, body: &[u8]) -> Result<Self, String> {
        let invalid = |reason: &dyn std::fmt::Display| {
            let reason: String = reason.to_string().chars().take(MAX_REASON).collect();
            format!("`{}` is not a card: {reason}", redact_url(&url))
        };
        let raw: Map<String, Value> = serde_json::from_slice(body).map_err(|error| invalid(&error))?;
        let card =
            read_card(body).or_else(|error| or_tolerantly(error, body)).map_err(|error| invalid(&error))?;
        let Some(first) = card.supported_interfaces.first() else {
            return Err(invalid(&"it names no interface"));
        };
        // Members that a card of protocol 0.1 does not have.
        let newer = ["supportedInterfaces", "protocolVersion", "preferredTransport", "securitySchemes"];
        let is_v0_1 = !newer.iter().any(|member| raw.contains_key(*member))
            && (raw.contains_key("authentication") || first.url.ends_with(V0_1_RPC));
        let protocol = if is_v0_1 {
            CardProtocol::V0_1(url.join(&first.url).map_err(|error| invalid(&error))?)
        } else {
            CardProtocol::Current
        };
        Ok(Self { url, protocol, raw, card })
    }

    /// Verifies the signatures, if there are any and the keys that they must be of are known.
    fn trusted(self, fetcher: &Fetcher, body: &[u8]) -> Result<Self, DelegationError> {
        match fetcher.card_trust().filter(|_| self.is_signed()) {
            Some(trust) => match trust.verify_pinned(body) {
                Ok(_) => Ok(self),
                Err(error) => {
                    Err(DelegationError::Untrusted(format!("`{}`: {error}", redact_url(&self.url))))
                }
            },
            None => Ok(self),
        }
    }

    /// Whether the card has signatures.
    pub(super) fn is_signed(&self) -> bool {
        self.raw
            .get("signatures")
            .is_some_and(|signatures| signatures.as_array().is_none_or(|list| !list.is_empty()))
    }

    /// The card as the agent sent it, completed with the members that callers expect: `url`, `capabilities.tools` and
    /// `authentication.schemes`.
    pub(super) fn into_documented(self) -> Value {
        let url = self.card.supported_interfaces.first().map_or("", |interface| &interface.url);
        let mut raw = Value::Object(self.raw);
        add_missing(&mut raw, v0_1_json(&self.card, url));
        raw
    }
}

/// A card as JSON of protocol 0.1.
pub(super) fn v0_1_json(card: &AgentCard, url: &str) -> Value {
    serde_json::to_value(v0_1_card(card, url)).unwrap_or_default()
}

/// Adds the members that are missing, also in nested objects.
fn add_missing(into: &mut Value, from: Value) {
    let (Value::Object(into), Value::Object(from)) = (into, from) else { return };
    for (key, value) in from {
        match into.get_mut(&key) {
            Some(existing) => add_missing(existing, value),
            None => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_card_is_searched_at_the_known_paths() {
        let paths = |address: &str| -> Vec<String> {
            card_urls(&Url::parse(address).unwrap()).iter().map(|url| url.path().to_owned()).collect()
        };
        let below_x = [format!("/x{CURRENT_CARD}"), format!("/x{V0_1_CARD}")];
        assert_eq!(paths("https://a.example"), [CURRENT_CARD, V0_1_CARD]);
        assert_eq!(paths("https://a.example/a2a/rpc"), [V0_1_CARD, CURRENT_CARD]);
        assert_eq!(paths("https://a.example/x/a2a/rpc/"), [&*below_x[1], &below_x[0]]);
        assert_eq!(paths("https://a.example/cards/7.json"), ["/cards/7.json"]);
        assert_eq!(paths("https://a.example/x"), [&*below_x[0], &below_x[1], CURRENT_CARD, V0_1_CARD]);
    }

    fn parse(card: &Value) -> Result<FoundCard, String> {
        FoundCard::parse(
            Url::parse("https://a.example/.well-known/agent.json").unwrap(),
            card.to_string().as_bytes(),
        )
    }

    #[test]
    fn a_card_tells_the_protocol_version_of_its_agent() {
        let v0_1 =
            json!({"name": "a", "url": "https://a.example/rpc", "authentication": {"schemes": ["bearer"]}});
        assert!(matches!(parse(&v0_1).unwrap().protocol, CardProtocol::V0_1(url) if url.path() == "/rpc"));
        for current in [
            json!({"name": "a", "url": "https://a.example/rpc"}),
            json!({"name": "a", "url": "https://a.example/a2a/rpc", "protocolVersion": "0.3.0"}),
            json!({"name": "a", "supportedInterfaces": [{"url": "https://a.example", "protocolBinding": "JSONRPC"}]}),
        ] {
            assert!(matches!(parse(&current).unwrap().protocol, CardProtocol::Current), "{current}");
        }
        for invalid in [json!({}), json!([]), json!({"name": "a"})] {
            assert!(parse(&invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn why_a_document_is_no_card_is_short_and_has_no_secret_of_the_address() {
        let url = Url::parse("https://u:s3cret@a.example/card.json?key=s3cret").unwrap();
        let long = json!("x".repeat(100_000)).to_string();
        let reason = FoundCard::parse(url, long.as_bytes()).err().unwrap();
        assert!(reason.starts_with("`https://a.example/card.json` is not a card: "), "{reason}");
        assert!(reason.len() < 400, "{}", reason.len());
    }

    #[test]
    fn a_card_with_harmless_mistakes_is_read() {
        let sloppy = json!({"name": "a", "url": "https://a.example/rpc", "version": 1.5, "provider": "me",
            "authentication": {"schemes": ["bearer"]}});
        let found = parse(&sloppy).unwrap();
        assert!(matches!(found.protocol, CardProtocol::V0_1(url) if url.path() == "/rpc"));
        let unknown_requirements = json!({"name": "a", "url": "https://a.example/rpc", "security": "none"});
        assert!(parse(&unknown_requirements).is_err());
    }

    #[test]
    fn a_current_card_has_the_members_that_callers_expect() {
        let card = json!({
            "name": "a", "capabilities": {"streaming": true}, "skills": [{"id": "s", "name": "S"}],
            "supportedInterfaces": [{"url": "https://a.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        });
        let documented = parse(&card).unwrap().into_documented();
        assert_eq!(documented["url"], "https://a.example/a2a");
        assert_eq!(documented["capabilities"]["tools"], json!(["s"]));
        assert_eq!(documented["capabilities"]["streaming"], true);
        assert_eq!(documented["authentication"]["schemes"], json!([]));
        assert_eq!(documented["supportedInterfaces"], card["supportedInterfaces"]);
    }
}
