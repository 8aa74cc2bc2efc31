//! Deciding whether a card is trusted.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use attache_protocol::AgentCard;
use attache_protocol::dialect::read_card;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use url::{Host, Url};

use crate::canonical::{encode, projection, remove_empty};
use crate::signature::{ParsedSignature, message};
use crate::strict::{self, StrictJsonError, shown};
use crate::{Algorithm, KeySet, VerifyingKey};

/// The maximum number of signatures of a card.
const MAX_SIGNATURES: usize = 16;

/// How many keys with the same id are tried.
const MAX_CANDIDATES: usize = 4;

/// The maximum number of cached key sets.
const MAX_SETS: usize = 64;

/// The largest key set that is read, in bytes.
const MAX_KEY_SET: usize = 512 * 1024;

/// How long a key set is cached. A key that its owner has retired may be trusted for this long.
const CACHE_TIME: Duration = Duration::from_secs(5 * 60);

/// After this time a cached set that lacks a key is read again, because its owner may have added the key.
const MISSING_KEY_CACHE_TIME: Duration = Duration::from_secs(30);

/// Where an origin publishes its keys by default.
const WELL_KNOWN: &str = "/.well-known/jwks.json";

/// Why a card is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedCard {
    /// The card is not strict JSON.
    #[error("{0}")]
    StrictJsonError(#[from] StrictJsonError),
    /// The document is not a card.
    #[error("it is not a card: {0}")]
    NotACard(String),
    /// The card is not signed.
    #[error("it has no signature")]
    Unsigned,
    /// The card has too many signatures.
    #[error("it has more than {MAX_SIGNATURES} signatures")]
    TooMany,
    /// None of the signatures is valid.
    #[error("none of its signatures is good: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    NoneGood(Vec<RejectedSignature>),
}

/// A signature that was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedSignature {
    /// The key id that it states.
    pub kid: Option<String>,
    /// Why it was rejected.
    pub why: SignatureError,
}

impl fmt::Display for RejectedSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kid {
            Some(kid) => write!(f, "the signature of the key `{kid}`: {}", self.why),
            None => write!(f, "a signature without a key id: {}", self.why),
        }
    }
}

/// Why a signature was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// The signature cannot be parsed, or uses something that is not supported.
    #[error("{0}")]
    Unreadable(String),
    /// The key is not trusted.
    #[error("the key is not trusted")]
    UnknownKey,
    /// The stated algorithm is not that of the key.
    #[error("it says `{stated}`, but the key is for `{key}`")]
    OtherAlgorithm {
        /// The algorithm in the signature.
        stated: Algorithm,
        /// The algorithm of the key.
        key: Algorithm,
    },
    /// The signature names a key set at an origin that is not trusted.
    #[error("it wants the keys at `{0}`, which is not an allowed origin")]
    OtherOrigin(String),
    /// The key set of a trusted origin could not be read.
    #[error("the keys at `{url}` could not be read: {problem}")]
    Keys {
        /// The URL of the key set.
        url: String,
        /// What went wrong.
        problem: String,
    },
    /// The signature was made with another key or over another card.
    #[error("it is not a signature of this card")]
    Mismatch,
}

/// The signer of a trusted card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// The key id in the signature.
    pub kid: String,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The URL where the key is published; nothing if it was pinned.
    pub published_at: Option<String>,
}

/// A verified card and its signer.
type VerifiedCard = (AgentCard, Signer);

impl Signer {
    fn new(stated: &ParsedSignature, published_at: Option<&Url>) -> Self {
        let published_at = published_at.map(|url| shown(url.as_str()));
        Self { kid: shown(&stated.kid), algorithm: stated.algorithm, published_at }
    }
}

/// The text is not an origin that keys can be trusted from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be an origin of keys: expected something like `https://agents.example.com`")]
pub struct OriginError(String);

/// Decides whether a card is trusted: it needs a valid signature of a pinned key, or of a key that an allowed origin publishes.
///
/// Without pinned keys and allowed origins, no card is trusted. Cheap to clone; clones share their cache.
#[derive(Debug, Clone, Default)]
pub struct Verifier {
    pinned: KeySet,
    origins: Vec<Url>,
    exact: bool,
    sets: Arc<Mutex<HashMap<Url, CachedKeys>>>,
}

#[derive(Debug, Clone)]
struct CachedKeys {
    keys: KeySet,
    at: Instant,
}

impl Verifier {
    /// A verifier that trusts no card yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these keys, in addition to those that are trusted already.
    pub fn pin(mut self, keys: KeySet) -> Self {
        self.pinned.extend(keys);
        self
    }

    /// Trusts the keys that an origin (scheme, host and port) publishes: at the URL on this origin that a signature names, or
    /// at `/.well-known/jwks.json` if it names none.
    ///
    /// Everyone who can publish a file at that origin can sign cards. The origin must be `https` or on this machine.
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

    /// Accepts only signatures that cover empty values, as the specification requires.
    ///
    /// The signatures of the SDKs for Python and JavaScript do not cover them. An attacker who changes such a card in transit
    /// could add or remove empty values, such as a security requirement without scopes. A card without empty values is trusted
    /// either way.
    pub fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Verifies a card with the pinned keys only. Returns the signed part of the card.
    pub fn verify_pinned(&self, json: &[u8]) -> Result<AgentCard, UntrustedCard> {
        let checked = ParsedCard::read(json, self.exact)?;
        self.against_pinned(&checked).map(|(card, _)| card).map_err(|rejected| {
            UntrustedCard::NoneGood(rejected.into_iter().map(|(_, rejected)| rejected).collect())
        })
    }

    /// Verifies a card. Returns the signed part of the card.
    ///
    /// `fetch` reads a URL. It is called only for URLs at allowed origins and must not follow a redirect to another origin. Its
    /// result is cached for some time after `now`.
    pub async fn verify<F, Fut, E>(
        &self,
        json: &[u8],
        now: Instant,
        fetch: F,
    ) -> Result<AgentCard, UntrustedCard>
    where
        F: Fn(Url) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, E>>,
        E: fmt::Display,
    {
        self.verify_signer(json, now, fetch).await.map(|(card, _)| card)
    }

    /// Verifies a card, and also returns its signer.
    pub async fn verify_signer<F, Fut, E>(
        &self,
        json: &[u8],
        now: Instant,
        fetch: F,
    ) -> Result<(AgentCard, Signer), UntrustedCard>
    where
        F: Fn(Url) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, E>>,
        E: fmt::Display,
    {
        let checked = ParsedCard::read(json, self.exact)?;
        let rejected = match self.against_pinned(&checked) {
            Ok(trusted) => return Ok(trusted),
            Err(rejected) => rejected,
        };
        let mut reasons = Vec::new();
        for (signature, mut rejected) in rejected {
            if let Some(stated) = signature.filter(|_| rejected.why == SignatureError::UnknownKey) {
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
        Err(UntrustedCard::NoneGood(reasons))
    }

    /// Tries the pinned keys. On failure, returns why each signature was rejected.
    fn against_pinned<'a>(
        &self,
        checked: &'a ParsedCard,
    ) -> Result<VerifiedCard, Vec<(Option<&'a ParsedSignature>, RejectedSignature)>> {
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
                Err(why) => {
                    rejected.push((Some(stated), RejectedSignature { kid: Some(shown(&stated.kid)), why }))
                }
            }
        }
        Err(rejected)
    }

    /// Tries the keys that are published at the URL in the signature, or at all allowed origins if it names none.
    async fn against_published<F, Fut, E>(
        &self,
        checked: &ParsedCard,
        stated: &ParsedSignature,
        now: Instant,
        fetch: &F,
    ) -> Result<(usize, Url), SignatureError>
    where
        F: Fn(Url) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, E>>,
        E: fmt::Display,
    {
        let places = match &stated.jku {
            _ if self.origins.is_empty() => return Err(SignatureError::UnknownKey),
            Some(jku) => vec![self.allowed(jku).ok_or_else(|| SignatureError::OtherOrigin(shown(jku)))?],
            None => self.origins.iter().filter_map(|origin| origin.join(WELL_KNOWN).ok()).collect(),
        };
        let mut why = SignatureError::UnknownKey;
        for place in places {
            let tried = match self.keys_at(place.clone(), &stated.kid, now, fetch).await {
                Ok(keys) => checked.good(stated, &keys),
                Err(why) => Err(why),
            };
            match tried {
                Ok(payload) => return Ok((payload, place)),
                Err(SignatureError::UnknownKey) => {}
                Err(other) => why = other,
            }
        }
        Err(why)
    }

    /// The URL that a signature names, if it is at an allowed origin.
    fn allowed(&self, jku: &str) -> Option<Url> {
        let mut url = Url::parse(jku).ok().filter(|url| !has_credentials(url))?;
        url.set_fragment(None);
        self.origins.iter().any(|origin| origin.origin() == url.origin()).then_some(url)
    }

    async fn keys_at<F, Fut, E>(
        &self,
        url: Url,
        kid: &str,
        now: Instant,
        fetch: &F,
    ) -> Result<KeySet, SignatureError>
    where
        F: Fn(Url) -> Fut,
        Fut: Future<Output = Result<Vec<u8>, E>>,
        E: fmt::Display,
    {
        if let Some(CachedKeys { keys, at }) = self.sets.lock().get(&url) {
            let age = now.saturating_duration_since(*at);
            let has_it = keys.iter().any(|key| key.has_id(kid));
            if age < if has_it { CACHE_TIME } else { MISSING_KEY_CACHE_TIME } {
                return Ok(keys.clone());
            }
        }
        let unreadable = |problem| SignatureError::Keys { url: shown(url.as_str()), problem };
        let json = fetch(url.clone()).await.map_err(|error| unreadable(error.to_string()))?;
        if json.len() > MAX_KEY_SET {
            return Err(unreadable(format!("the document is longer than {MAX_KEY_SET} bytes")));
        }
        let keys = KeySet::from_published(&json).map_err(|error| unreadable(error.to_string()))?;
        let mut sets = self.sets.lock();
        if sets.len() >= MAX_SETS {
            let oldest = sets.iter().min_by_key(|(_, set)| set.at).map(|(url, _)| url.clone());
            oldest.and_then(|oldest| sets.remove(&oldest));
        }
        sets.insert(url, CachedKeys { keys: keys.clone(), at: now });
        Ok(keys)
    }
}

fn has_credentials(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// A parsed card that is not verified yet.
struct ParsedCard {
    signatures: Vec<Result<ParsedSignature, RejectedSignature>>,
    payloads: Vec<Payload>,
}

/// Bytes that may have been signed, and the card that they encode.
struct Payload {
    bytes: Vec<u8>,
    card: AgentCard,
}

impl ParsedCard {
    fn read(json: &[u8], exact: bool) -> Result<Self, UntrustedCard> {
        let mut members = strict::object(json)?;
        let signatures = match members.remove("signatures") {
            Some(Value::Array(signatures)) if !signatures.is_empty() => signatures,
            _ => return Err(UntrustedCard::Unsigned),
        };
        if signatures.len() > MAX_SIGNATURES {
            return Err(UntrustedCard::TooMany);
        }
        let payloads = payloads(json, members, exact)?;
        let unreadable = |(kid, why)| RejectedSignature { kid, why: SignatureError::Unreadable(why) };
        let signatures =
            signatures.iter().map(|signature| ParsedSignature::read(signature).map_err(unreadable));
        Ok(Self { signatures: signatures.collect(), payloads })
    }

    /// Finds the payload that one of these keys signed.
    fn good(&self, stated: &ParsedSignature, keys: &KeySet) -> Result<usize, SignatureError> {
        let candidates = || keys.iter().filter(|key| key.has_id(&stated.kid)).take(MAX_CANDIDATES);
        let first = candidates().next().ok_or(SignatureError::UnknownKey)?;
        let fits = |key: &&VerifyingKey| key.algorithm() == stated.algorithm;
        if !candidates().any(|key| fits(&key)) {
            return Err(SignatureError::OtherAlgorithm { stated: stated.algorithm, key: first.algorithm() });
        }
        let messages = self.payloads.iter().map(|payload| message(&stated.protected, &payload.bytes));
        let signed =
            |message: Vec<u8>| candidates().filter(fits).any(|key| key.verifies(&message, &stated.signature));
        messages.map(signed).position(|signed| signed).ok_or(SignatureError::Mismatch)
    }
}

/// The payloads that may have been signed: the document as it is; its members of 1.0, if it has others; and those without empty
/// values. The card is always read from the payload that was signed.
fn payloads(json: &[u8], members: Map<String, Value>, exact: bool) -> Result<Vec<Payload>, UntrustedCard> {
    let not_a_card = |problem: String| UntrustedCard::NotACard(shown(&problem));
    let whole = read_card(json).map_err(|error| not_a_card(error.to_string()))?;
    let mut payloads = vec![Payload { bytes: encode(&members), card: whole }];
    // A card of 0.3 is not a valid card of 1.0, so it has only its own form.
    if let Ok(card) = serde_json::from_slice::<AgentCard>(json) {
        let projection = projection(&card)?;
        let specified = encode(&projection);
        if !exact {
            let cleaned = encode(&remove_empty(projection));
            payloads
                .extend([Payload { bytes: specified, card: card.clone() }, Payload { bytes: cleaned, card }]);
        } else {
            payloads.push(Payload { bytes: specified, card });
        }
    }
    payloads.dedup_by(|later, earlier| later.bytes == earlier.bytes);
    Ok(payloads)
}
