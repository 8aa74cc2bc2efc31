//! The cards of other agents: found, kept in the store, and listed.

use std::sync::Arc;
use std::time::Duration;

use attache_core::Store;
use attache_protocol::dialect::{read_card, v0_1_card};
use attache_protocol::{AgentCard, Json, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::timeout;
use url::Url;

use super::DelegationError;
use super::fetch::{Fetch, shown};

/// Where cards are kept.
const SCOPE: &str = "a2a";

/// What the keys of cards begin with.
const DISCOVERED: &str = "discovered:";

/// The key of the card that was made last of this agent.
const OWN: &str = "agent_card";

/// How long finding a card may take.
const LIMIT: Duration = Duration::from_secs(15);

/// How many cards are kept.
const MOST: usize = 1000;

/// Where cards are, below the address of an agent: since 0.3, and before.
const CURRENT: &str = "/.well-known/agent-card.json";
const OLDEST: &str = "/.well-known/agent.json";

/// The path at which agents of the oldest protocol answer.
pub(super) const OLDEST_RPC: &str = "/a2a/rpc";

/// A card that was found.
pub(super) struct Found {
    /// Where.
    pub(super) place: Url,
    /// Which protocol it is written for.
    pub(super) speaks: Speaks,
    raw: Map<String, Value>,
    card: AgentCard,
}

/// Which protocol a card is written for.
pub(super) enum Speaks {
    /// 1.0, or 0.3.
    Current,
    /// 0.1, at this address.
    Oldest(Url),
}

/// A card as it is kept.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    card: Value,
    discovered_at: i64,
    url: String,
}

/// The cards that are kept.
pub(super) struct Cards {
    store: Arc<dyn Store>,
}

impl Cards {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Finds the card of an agent and keeps it.
    pub(super) async fn discover(
        &self,
        fetch: &Fetch,
        address: &str,
        now: Timestamp,
    ) -> Result<Value, DelegationError> {
        let url = fetch.check(address)?;
        let card = find(fetch, &url).await?.documented();
        let kept = Kept { card, discovered_at: now.to_millis(), url: shown(address) };
        self.put(&format!("{DISCOVERED}{}", name(&url)), &kept).await?;
        self.prune().await?;
        Ok(kept.card)
    }

    /// Keeps the card that was made of this agent.
    pub(super) async fn keep_own(&self, card: &Value) -> Result<(), DelegationError> {
        self.put(OWN, card).await
    }

    async fn put(&self, key: &str, value: &impl Serialize) -> Result<(), DelegationError> {
        let value = Json::new(value).map_err(|error| DelegationError::Unreadable(error.to_string()))?;
        self.store.values().change(SCOPE, key, Box::new(move |_| Some(value.clone()))).await?;
        Ok(())
    }

    /// Forgets the cards that were found longest ago, where there are too many.
    async fn prune(&self) -> Result<(), DelegationError> {
        let mut kept = self.kept().await?;
        kept.sort_by_key(|(_, kept)| kept.discovered_at);
        for (key, _) in kept.iter().take(kept.len().saturating_sub(MOST)) {
            self.store.values().change(SCOPE, key, Box::new(|_| None)).await?;
        }
        Ok(())
    }

    async fn kept(&self) -> Result<Vec<(String, Kept)>, DelegationError> {
        let values = self.store.values().list(SCOPE).await?;
        let cards = values.into_iter().filter(|(key, _)| key.starts_with(DISCOVERED));
        Ok(cards.filter_map(|(key, value)| Some((key, value.read().ok()?))).collect())
    }

    /// The cards that were found.
    pub(super) async fn list(&self) -> Result<Vec<Value>, DelegationError> {
        Ok(self.kept().await?.into_iter().map(|(_, kept)| kept.card).collect())
    }

    /// Where the agent is whose card names this address, if its card was found before.
    pub(super) async fn home_of(&self, address: &Url) -> Result<Option<String>, DelegationError> {
        let is_named = |card: &Value| {
            let interfaces = card["supportedInterfaces"].as_array().into_iter().flatten();
            let older = card["additionalInterfaces"].as_array().into_iter().flatten();
            let named = std::iter::once(card).chain(interfaces).chain(older);
            named.filter_map(|place| place["url"].as_str()).any(|url| same(url, address))
        };
        Ok(self.kept().await?.into_iter().find(|(_, kept)| is_named(&kept.card)).map(|(_, kept)| kept.url))
    }
}

fn same(url: &str, address: &Url) -> bool {
    Url::parse(url).is_ok_and(|url| name(&url) == name(address) && url.scheme() == address.scheme())
}

/// What an agent is known by: agents can share a host.
fn name(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}{}", url.host_str().unwrap_or_default(), url.path().trim_end_matches('/'))
}

/// Where the card of an agent may be, the likeliest first.
///
/// Callers name agents by where they answer as well as by where they are, so the usual path of the oldest protocol is left out;
/// who names that path means that protocol.
fn places(address: &Url) -> Vec<Url> {
    let path = address.path().trim_end_matches('/');
    let at = |path: String| {
        let mut place = address.clone();
        place.set_path(&path);
        place.set_query(None);
        place
    };
    if path.ends_with(".json") {
        return vec![address.clone()];
    }
    if let Some(base) = path.strip_suffix(OLDEST_RPC) {
        return [OLDEST, CURRENT].map(|known| at(format!("{base}{known}"))).into();
    }
    let mut places = vec![at(format!("{path}{CURRENT}")), at(format!("{path}{OLDEST}"))];
    if !path.is_empty() {
        places.extend([CURRENT, OLDEST].map(|known| at(known.to_owned())));
    }
    places
}

/// Finds the card of an agent.
pub(super) async fn find(fetch: &Fetch, address: &Url) -> Result<Found, DelegationError> {
    let finding = async {
        let (mut why, mut denied) = (None, None);
        for place in places(address) {
            let (status, body) = fetch.get(&place).await?;
            denied = denied.or(fetch.denied(&place, status));
            let read = if status.is_success() { Found::read(place, &body) } else { Err(status.to_string()) };
            match read {
                Ok(found) => return Ok(found),
                Err(reason) => why = why.or(Some(reason)),
            }
        }
        Err(denied.unwrap_or_else(|| DelegationError::NoCard(why.unwrap_or_default())))
    };
    timeout(LIMIT, finding).await.unwrap_or(Err(DelegationError::TimedOut(LIMIT)))
}

impl Found {
    fn read(place: Url, body: &[u8]) -> Result<Self, String> {
        let is_none = |why: &dyn std::fmt::Display| format!("`{place}` is not a card: {why}");
        let raw: Map<String, Value> = serde_json::from_slice(body).map_err(|error| is_none(&error))?;
        let card = read_card(body).map_err(|error| is_none(&error))?;
        let Some(first) = card.supported_interfaces.first() else {
            return Err(is_none(&"it does not say where the agent answers"));
        };
        let marks = ["supportedInterfaces", "protocolVersion", "preferredTransport", "securitySchemes"];
        let is_oldest = !marks.iter().any(|mark| raw.contains_key(*mark))
            && (raw.contains_key("authentication") || first.url.ends_with(OLDEST_RPC));
        let speaks = if is_oldest {
            Speaks::Oldest(place.join(&first.url).map_err(|error| is_none(&error))?)
        } else {
            Speaks::Current
        };
        Ok(Self { place, speaks, raw, card })
    }

    /// The card as it came, with what callers look for where it has nothing of the kind: `url`, `capabilities.tools`,
    /// `authentication.schemes`.
    fn documented(self) -> Value {
        let url = self.card.supported_interfaces.first().map_or("", |interface| &interface.url);
        let mut raw = Value::Object(self.raw);
        fill(&mut raw, written(&self.card, url));
        raw
    }
}

/// A card in the words of protocol 0.1.
pub(super) fn written(card: &AgentCard, url: &str) -> Value {
    serde_json::to_value(v0_1_card(card, url)).unwrap_or_default()
}

/// Puts members where there are none.
fn fill(into: &mut Value, from: Value) {
    let (Value::Object(into), Value::Object(from)) = (into, from) else { return };
    for (key, value) in from {
        match into.get_mut(&key) {
            Some(there) => fill(there, value),
            None => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_is_searched_at_the_known_paths() {
        let places = |address: &str| -> Vec<String> {
            super::places(&Url::parse(address).unwrap()).iter().map(|url| url.path().to_owned()).collect()
        };
        assert_eq!(places("https://a.example"), [CURRENT, OLDEST]);
        assert_eq!(places("https://a.example/a2a/rpc"), [OLDEST, CURRENT]);
        assert_eq!(places("https://a.example/x/a2a/rpc/"), [format!("/x{OLDEST}"), format!("/x{CURRENT}")]);
        assert_eq!(places("https://a.example/cards/7.json"), ["/cards/7.json"]);
        assert_eq!(
            places("https://a.example/x"),
            [format!("/x{CURRENT}"), format!("/x{OLDEST}"), CURRENT.to_owned(), OLDEST.to_owned()]
        );
    }

    fn read(card: &Value) -> Result<Found, String> {
        Found::read(
            Url::parse("https://a.example/.well-known/agent.json").unwrap(),
            card.to_string().as_bytes(),
        )
    }

    #[test]
    fn a_card_tells_the_protocol_version_of_its_agent() {
        use serde_json::json;
        let oldest =
            json!({"name": "a", "url": "https://a.example/rpc", "authentication": {"schemes": ["bearer"]}});
        assert!(matches!(read(&oldest).unwrap().speaks, Speaks::Oldest(url) if url.path() == "/rpc"));
        for current in [
            json!({"name": "a", "url": "https://a.example/rpc"}),
            json!({"name": "a", "url": "https://a.example/a2a/rpc", "protocolVersion": "0.3.0"}),
            json!({"name": "a", "supportedInterfaces": [{"url": "https://a.example", "protocolBinding": "JSONRPC"}]}),
        ] {
            assert!(matches!(read(&current).unwrap().speaks, Speaks::Current), "{current}");
        }
        for none in [json!({}), json!([]), json!({"name": "a"})] {
            assert!(read(&none).is_err(), "{none}");
        }
    }

    #[test]
    fn a_current_card_has_the_members_that_callers_expect() {
        use serde_json::json;
        let card = json!({
            "name": "a", "capabilities": {"streaming": true}, "skills": [{"id": "s", "name": "S"}],
            "supportedInterfaces": [{"url": "https://a.example/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        });
        let shown = read(&card).unwrap().documented();
        assert_eq!(shown["url"], "https://a.example/a2a");
        assert_eq!(shown["capabilities"]["tools"], json!(["s"]));
        assert_eq!(shown["capabilities"]["streaming"], true);
        assert_eq!(shown["authentication"]["schemes"], json!([]));
        assert_eq!(shown["supportedInterfaces"], card["supportedInterfaces"]);
    }
}
