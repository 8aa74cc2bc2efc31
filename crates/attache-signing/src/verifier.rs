//! Whether a card is trusted.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use attache_protocol::AgentCard;
use attache_protocol::dialect::read_card;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use url::{Host, Url};

use crate::canonical::{projection, without_empty, written};
use crate::signature::{Stated, message};
use crate::strict::{self, NotStrict, shown};
use crate::{Algorithm, KeySet, VerifyingKey};

/// How many signatures a card may have.
const MAX_SIGNATURES: usize = 16;

/// How many keys of one name are tried.
const MAX_NAMESAKES: usize = 4;

/// How many sets of keys are remembered.
const MAX_SETS: usize = 64;

/// How long a set of keys is remembered. For so long a key that its owner retired may still be trusted.
const GOOD_FOR: Duration = Duration::from_secs(5 * 60);

/// How soon a set that lacks a key is read again, for its owner may have added one.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// Where an origin publishes its keys if nothing else is said.
const WELL_KNOWN: &str = "/.well-known/jwks.json";

/// Why a card is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// Readers could disagree about what it says, or it says nothing.
    #[error("{0}")]
    NotStrict(#[from] NotStrict),
    /// It is not a card.
    #[error("it is not a card: {0}")]
    NotACard(String),
    /// It is not signed.
    #[error("it has no signature")]
    Unsigned,
    /// It has too many signatures to check.
    #[error("it has more than {MAX_SIGNATURES} signatures")]
    TooMany,
    /// None of its signatures is good.
    #[error("none of its signatures is good: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NoneGood(Vec<Rejected>),
}

/// A signature that is not good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// What it calls its key.
    pub kid: Option<String>,
    /// What is wrong.
    pub why: Why,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kid {
            Some(kid) => write!(f, "that of the key `{kid}`: {}", self.why),
            None => write!(f, "one without a key: {}", self.why),
        }
    }
}

/// What is wrong with a signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// It cannot be read, or asks for something that is not known.
    #[error("{0}")]
    Unreadable(String),
    /// Its key is not among those that are trusted.
    #[error("the key is not one that is trusted")]
    UnknownKey,
    /// It says another algorithm than its key is for.
    #[error("it says `{stated}`, but the key is for `{key}`")]
    OtherAlgorithm {
        /// What it says.
        stated: Algorithm,
        /// What the key is for.
        key: Algorithm,
    },
    /// It names a set of keys at an origin that is not trusted.
    #[error("it wants the keys at `{0}`, which is not an allowed origin")]
    OtherOrigin(String),
    /// The keys of an origin that is trusted could not be read.
    #[error("the keys at `{url}` could not be read: {problem}")]
    Keys {
        /// Where they are.
        url: String,
        /// What happened.
        problem: String,
    },
    /// It was made with another key, or over another card.
    #[error("it is not a signature of this card")]
    Mismatch,
}

/// Who signed a card that is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// What the signature calls its key.
    pub kid: String,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Where the key was found; nothing if it was pinned.
    pub published_at: Option<String>,
}

/// A card, and who signed it.
type Trusted = (AgentCard, Signer);

impl Signer {
    fn new(stated: &Stated, published_at: Option<&Url>) -> Self {
        let published_at = published_at.map(|url| shown(url.as_str()));
        Self { kid: shown(&stated.kid), algorithm: stated.algorithm, published_at }
    }
}

/// Why something is not an origin that keys can be trusted from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be an origin of keys: expected something like `https://agents.example.com`")]
pub struct OriginError(String);

/// Decides whether a card is trusted: if it has a good signature of a key that was pinned, or that an allowed origin publishes.
///
/// Without either, no card is trusted. Cheap to clone; all clones share what they remember.
#[derive(Debug, Clone, Default)]
pub struct Verifier {
    pinned: KeySet,
    origins: Vec<Url>,
    exact: bool,
    sets: Arc<Mutex<HashMap<Url, Remembered>>>,
}

#[derive(Debug, Clone)]
struct Remembered {
    keys: KeySet,
    at: Instant,
}

impl Verifier {
    /// A verifier that trusts nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these keys, besides those that are trusted already.
    pub fn pin(mut self, keys: KeySet) -> Self {
        self.pinned.extend(keys);
        self
    }

    /// Trusts the keys that an origin (scheme, host and port) publishes, wherever on it a signature says they are, or at
    /// `/.well-known/jwks.json` if it does not say.
    ///
    /// Whoever can publish anything at that origin can sign cards. It must be `https`, or on this machine.
    pub fn allow_origin(mut self, origin: &str) -> Result<Self, OriginError> {
        let wrong = || OriginError(shown(origin));
        let url = Url::parse(origin).map_err(|_| wrong())?;
        let here = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => return Err(wrong()),
        };
        let safe = url.scheme() == "https" || url.scheme() == "http" && here;
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        if !safe || !bare || has_credentials(&url) {
            return Err(wrong());
        }
        self.origins.push(url);
        Ok(self)
    }

    /// Takes only signatures that cover the card with its empty values, as the specification has it.
    ///
    /// The signatures of the SDKs for Python and JavaScript do not: whoever changes such a card on its way could add or remove what
    /// is empty, such as a requirement of a scheme without scopes. A card that has nothing empty is trusted either way.
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Whether a card is trusted because of the keys that were pinned. If so, the card, and of it only what was signed.
    pub fn verify_pinned(&self, json: &[u8]) -> Result<AgentCard, Untrusted> {
        let checked = Checked::read(json, self.exact)?;
        self.against_pinned(&checked).map(|(card, _)| card).map_err(|rejected| {
            Untrusted::NoneGood(rejected.into_iter().map(|(_, rejected)| rejected).collect())
        })
    }

    /// Whether a card is trusted. If so, the card, and of it only what was signed.
    ///
    /// `fetch` gets what is at an address. It is only asked for addresses at allowed origins and must not follow a redirect to
    /// another one. What it gets is remembered for a while from `now` on.
    pub async fn verify<F, Fut, E>(&self, json: &[u8], now: Instant, fetch: F) -> Result<AgentCard, Untrusted>
    where
        F: Fn(Url) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, E>>,
        E: fmt::Display,
    {
        self.verify_signer(json, now, fetch).await.map(|(card, _)| card)
    }

    /// The same, and who signed it.
    pub async fn verify_signer<F, Fut, E>(
        &self,
        json: &[u8],
        now: Instant,
        fetch: F,
    ) -> Result<(AgentCard, Signer), Untrusted>
    where
        F: Fn(Url) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, E>>,
        E: fmt::Display,
    {
        let checked = Checked::read(json, self.exact)?;
        let rejected = match self.against_pinned(&checked) {
            Ok(trusted) => return Ok(trusted),
            Err(rejected) => rejected,
        };
        let mut reasons = Vec::new();
        for (signature, mut rejected) in rejected {
            if let Some(stated) = signature.filter(|_| rejected.why == Why::UnknownKey) {
                match self.against_published(&checked, stated, now, &fetch).await {
                    Ok((payload, place)) => {
                        return Ok((
                            checked.payloads[payload].card.clone(),
                            Signer::new(stated, Some(&place)),
                        ));
                    }
                    Err(why) => rejected.why = why,
                }
            }
            reasons.push(rejected);
        }
        Err(Untrusted::NoneGood(reasons))
    }

    /// Tries the pinned keys. Otherwise, why each signature is not good.
    fn against_pinned<'a>(
        &self,
        checked: &'a Checked,
    ) -> Result<Trusted, Vec<(Option<&'a Stated>, Rejected)>> {
        let mut rejected = Vec::new();
        for signature in &checked.signatures {
            let stated = match signature {
                Ok(stated) => stated,
                Err(unreadable) => {
                    rejected.push((None, unreadable.clone()));
                    continue;
                }
            };
            match checked.good(stated, &self.pinned) {
                Ok(payload) => {
                    return Ok((checked.payloads[payload].card.clone(), Signer::new(stated, None)));
                }
                Err(why) => rejected.push((Some(stated), Rejected { kid: Some(shown(&stated.kid)), why })),
            }
        }
        Err(rejected)
    }

    /// Tries the keys that are published where the signature says, or at all origins if it does not say.
    async fn against_published<F, Fut, E>(
        &self,
        checked: &Checked,
        stated: &Stated,
        now: Instant,
        fetch: &F,
    ) -> Result<(usize, Url), Why>
    where
        F: Fn(Url) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, E>>,
        E: fmt::Display,
    {
        let places = match &stated.jku {
            _ if self.origins.is_empty() => return Err(Why::UnknownKey),
            Some(jku) => vec![self.allowed(jku).ok_or_else(|| Why::OtherOrigin(shown(jku)))?],
            None => self.origins.iter().filter_map(|origin| origin.join(WELL_KNOWN).ok()).collect(),
        };
        let mut why = Why::UnknownKey;
        for place in places {
            let tried = match self.keys_at(place.clone(), &stated.kid, now, fetch).await {
                Ok(keys) => checked.good(stated, &keys),
                Err(why) => Err(why),
            };
            match tried {
                Ok(payload) => return Ok((payload, place)),
                Err(Why::UnknownKey) => {}
                Err(other) => why = other,
            }
        }
        Err(why)
    }

    /// The address that a signature names, if it is at an allowed origin.
    fn allowed(&self, jku: &str) -> Option<Url> {
        let mut url = Url::parse(jku).ok().filter(|url| !has_credentials(url))?;
        url.set_fragment(None);
        self.origins.iter().any(|origin| origin.origin() == url.origin()).then_some(url)
    }

    async fn keys_at<F, Fut, E>(&self, url: Url, kid: &str, now: Instant, fetch: &F) -> Result<KeySet, Why>
    where
        F: Fn(Url) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, E>>,
        E: fmt::Display,
    {
        if let Some(Remembered { keys, at }) = self.sets.lock().get(&url) {
            let age = now.saturating_duration_since(*at);
            let has_it = keys.iter().any(|key| key.is_called(kid));
            if age < if has_it { GOOD_FOR } else { READ_AGAIN } {
                return Ok(keys.clone());
            }
        }
        let unreadable = |problem| Why::Keys { url: shown(url.as_str()), problem };
        let json = fetch(url.clone()).await.map_err(|error| unreadable(error.to_string()))?;
        let keys = KeySet::from_published(&json).map_err(|error| unreadable(error.to_string()))?;
        let mut sets = self.sets.lock();
        if sets.len() >= MAX_SETS {
            let oldest = sets.iter().min_by_key(|(_, set)| set.at).map(|(url, _)| url.clone());
            oldest.and_then(|oldest| sets.remove(&oldest));
        }
        sets.insert(url, Remembered { keys: keys.clone(), at: now });
        Ok(keys)
    }
}

fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// A card that is to be checked.
struct Checked {
    signatures: Vec<Result<Stated, Rejected>>,
    payloads: Vec<Payload>,
}

/// What may have been signed, and the card that it is.
struct Payload {
    bytes: Vec<u8>,
    card: AgentCard,
}

impl Checked {
    fn read(json: &[u8], exact: bool) -> Result<Self, Untrusted> {
        let mut members = strict::object(json)?;
        let signatures = match members.remove("signatures") {
            Some(Value::Array(signatures)) if !signatures.is_empty() => signatures,
            _ => return Err(Untrusted::Unsigned),
        };
        if signatures.len() > MAX_SIGNATURES {
            return Err(Untrusted::TooMany);
        }
        let payloads = payloads(json, members, exact)?;
        let unreadable = |(kid, why)| Rejected { kid, why: Why::Unreadable(why) };
        let signatures = signatures.iter().map(|signature| Stated::read(signature).map_err(unreadable));
        Ok(Self { signatures: signatures.collect(), payloads })
    }

    /// The payload that is signed with one of these keys.
    fn good(&self, stated: &Stated, keys: &KeySet) -> Result<usize, Why> {
        let namesakes = || keys.iter().filter(|key| key.is_called(&stated.kid)).take(MAX_NAMESAKES);
        let first = namesakes().next().ok_or(Why::UnknownKey)?;
        let fits = |key: &&VerifyingKey| key.algorithm() == stated.algorithm;
        if !namesakes().any(|key| fits(&key)) {
            return Err(Why::OtherAlgorithm { stated: stated.algorithm, key: first.algorithm() });
        }
        let messages = self.payloads.iter().map(|payload| message(&stated.protected, &payload.bytes));
        let signed =
            |message: Vec<u8>| namesakes().filter(fits).any(|key| key.verifies(&message, &stated.signature));
        messages.map(signed).position(|signed| signed).ok_or(Why::Mismatch)
    }
}

/// What may have been signed: the document as it is; its members of 1.0, where others are beside them; and those without what is
/// empty. Whichever it was, the card is what it says and nothing beside it.
fn payloads(json: &[u8], members: Map<String, Value>, exact: bool) -> Result<Vec<Payload>, Untrusted> {
    let not_a_card = |problem: String| Untrusted::NotACard(shown(&problem));
    let whole = read_card(json).map_err(|error| not_a_card(error.to_string()))?;
    let mut payloads = vec![Payload { bytes: written(&members), card: whole }];
    // A card of 0.3 that was read as such is no card of 1.0, and has no form but its own.
    if let Ok(card) = serde_json::from_slice::<AgentCard>(json) {
        let projection = projection(&card)?;
        let specified = written(&projection);
        if !exact {
            let cleaned = written(&without_empty(projection));
            payloads
                .extend([Payload { bytes: specified, card: card.clone() }, Payload { bytes: cleaned, card }]);
        } else {
            payloads.push(Payload { bytes: specified, card });
        }
    }
    payloads.dedup_by(|later, earlier| later.bytes == earlier.bytes);
    Ok(payloads)
}
