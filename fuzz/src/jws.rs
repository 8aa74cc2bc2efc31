//! Signatures of cards, and the keys they are checked with.

use attache_protocol::AgentCard;
use attache_signing::{Algorithm, KeySet, Verifier, canonical};

use crate::line;

/// The public keys that verify [`SIGNED`]. The private ones were deleted.
const KEYS: &str = include_str!("jws/keys.json");

/// The one card that they signed.
const SIGNED: &str = include_str!("jws/signed.json");

/// Read as a set of keys, as a signed card, and as a card below the keys that it is to be checked with.
pub fn jws(data: &[u8]) {
    keys(data);
    card(data);
    let (first, rest) = line(data);
    if let Ok(keys) = KeySet::from_json(first) {
        // An attacker who chooses the keys can sign with them; one without keys cannot.
        let trusted = Verifier::new().pin(keys.clone()).verify_pinned(rest).is_ok();
        assert!(!trusted || keys.iter().next().is_some(), "trusted without a key");
    }
}

fn keys(data: &[u8]) {
    let Ok(published) = KeySet::from_published(data) else { return };
    assert!(published.iter().all(|key| key.algorithm() != Algorithm::Hs256), "a secret that everybody knows");
    let again = KeySet::from_published(published.to_json().to_string().as_bytes());
    let again = again.expect("keys that were read can be published");
    let names = |keys: &KeySet| -> Vec<_> {
        keys.iter().map(|key| (key.kid().to_owned(), key.algorithm())).collect()
    };
    assert_eq!(names(&again), names(&published), "keys change when they are published");
}

/// A card is trusted only if it says what was signed.
fn card(data: &[u8]) {
    let keys = KeySet::from_json(KEYS.as_bytes()).expect("they are keys");
    let said = |card: &AgentCard| canonical::cleaned(card).expect("it was signed so");
    let Ok(card) = Verifier::new().pin(keys.clone()).verify_pinned(data) else {
        assert!(
            Verifier::new().pin(keys).exact().verify_pinned(data).is_err(),
            "trusted by those who are strict"
        );
        return;
    };
    let signed: AgentCard = serde_json::from_str(SIGNED).expect("it is a card");
    assert_eq!(said(&card), said(&signed), "nobody signed this: {card:?}");
    assert!(Verifier::new().verify_pinned(data).is_err(), "trusted without a key");
}
