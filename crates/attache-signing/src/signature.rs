//! Creating and parsing the signatures of a card.

use attache_protocol::{AgentCard, AgentCardSignature};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use crate::secret::SigningKey;
use crate::strict::{self, StrictJsonError, shown};
use crate::{Algorithm, canonical};

/// Why a card cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The card has no unambiguous canonical form.
    #[error("the card cannot be signed: {0}")]
    Card(#[from] StrictJsonError),
    /// The system gave no random bytes.
    #[error("the card cannot be signed: the system provides no random bytes")]
    Random,
}

/// Signs a card with every key. If the canonical form of the SDKs differs from that of the specification, each key signs both:
/// a verifier needs only one valid signature.
pub(crate) fn sign<'a>(
    card: &AgentCard,
    keys: impl IntoIterator<Item = &'a SigningKey>,
    jku: Option<&str>,
) -> Result<Vec<AgentCardSignature>, SignError> {
    let mut forms = vec![canonical::cleaned(card)?, canonical::specified(card)?];
    forms.dedup();
    let mut signatures = Vec::new();
    for key in keys {
        let algorithm = key.verifying().algorithm();
        let mut header = json!({ "alg": algorithm.name(), "kid": key.verifying().kid(), "typ": "JOSE" });
        // A secret is not published in a key set.
        if let Some(jku) = jku.filter(|_| algorithm != Algorithm::Hs256) {
            header["jku"] = jku.into();
        }
        let protected = URL_SAFE_NO_PAD.encode(header.to_string());
        for form in &forms {
            let signature = key.sign(&message(&protected, form)).ok_or(SignError::Random)?;
            let signature = URL_SAFE_NO_PAD.encode(signature);
            signatures.push(AgentCardSignature { protected: protected.clone(), signature, header: None });
        }
    }
    Ok(signatures)
}

/// The bytes that are signed (RFC 7515, section 5.1).
pub(crate) fn message(protected: &str, payload: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(protected.len() + 1 + payload.len() * 4 / 3 + 4);
    message.extend_from_slice(protected.as_bytes());
    message.push(b'.');
    message.extend_from_slice(URL_SAFE_NO_PAD.encode(payload).as_bytes());
    message
}

/// A parsed signature that is not verified yet. The unprotected header is ignored, because it is not signed.
pub(crate) struct ParsedSignature {
    pub(crate) protected: String,
    pub(crate) signature: Vec<u8>,
    pub(crate) algorithm: Algorithm,
    pub(crate) kid: String,
    pub(crate) jku: Option<String>,
}

impl ParsedSignature {
    /// Parses a signature. On failure, returns the id of its key, if known, and the reason.
    pub(crate) fn read(signature: &Value) -> Result<Self, (Option<String>, String)> {
        let text = |member: &str| {
            let text = signature.get(member).and_then(Value::as_str);
            text.ok_or_else(|| (None, format!("it has no `{member}`")))
        };
        let decode = |member: &str, text: &str| {
            URL_SAFE_NO_PAD
                .decode(text)
                .map_err(|_| (None, format!("its `{member}` is not base64url without padding")))
        };
        let protected = text("protected")?;
        let header = strict::object(&decode("protected", protected)?)
            .map_err(|error| (None, format!("its protected header cannot be read: {error}")))?;
        let bytes = decode("signature", text("signature")?)?;
        let kid = stated(&header, "kid").map_err(|why| (None, why))?;
        let named = |why: String| (kid.as_deref().map(shown), why);
        // A critical header that is not supported makes the signature invalid. None is supported here.
        for member in ["crit", "b64"] {
            if header.contains_key(member) {
                return Err(named(format!("its `{member}` is not supported")));
            }
        }
        let algorithm = stated(&header, "alg").map_err(&named)?;
        let algorithm = algorithm.ok_or_else(|| named("it has no `alg`".to_owned()))?;
        let algorithm =
            algorithm.parse().map_err(|error: crate::UnknownAlgorithm| named(error.to_string()))?;
        let jku = stated(&header, "jku").map_err(&named)?;
        let kid = kid.ok_or_else(|| (None, "it has no `kid`".to_owned()))?;
        Ok(Self { protected: protected.to_owned(), signature: bytes, algorithm, kid, jku })
    }
}

fn stated(header: &Map<String, Value>, member: &str) -> Result<Option<String>, String> {
    match header.get(member) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("its `{member}` is not a text")),
    }
}
