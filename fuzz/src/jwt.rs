//! Signed tokens of callers: only tokens with a valid signature are accepted.

use std::cell::OnceCell;

use attache_server::auth::{Authenticator, Head, JwtCallers, JwtIssuer, Verdict};
use attache_signing::{KeySet, Token};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::changed;

/// The public keys that verify [`GOOD`]. The private ones were deleted.
const KEYS: &str = include_str!("jwt/keys.json");

/// The only tokens that they signed. They are good until 2100.
const GOOD: [&str; 2] = [include_str!("jwt/eddsa.txt"), include_str!("jwt/es256.txt")];

/// Tried as a token in three ways: as it is, and as the difference from each of the good ones.
pub fn jwt(data: &[u8]) {
    thread_local! {
        static DOOR: OnceCell<(KeySet, JwtCallers)> = const { OnceCell::new() };
    }
    DOOR.with(|entry| {
        let (keys, callers) = entry.get_or_init(|| {
            let keys = KeySet::from_json(KEYS.as_bytes()).expect("they are keys");
            let issuer = JwtIssuer::new("https://login.example.com").audience("attache").keys(keys.clone());
            (keys, JwtCallers::new([issuer]).expect("it is an issuer"))
        });
        let [one, other] = GOOD;
        for token in [String::from_utf8_lossy(data).into_owned(), changed(one, data), changed(other, data)] {
            read(keys, &token);
            enter(callers, &token);
        }
    });
}

/// What a token says counts only if it is one that was signed, to the letter.
fn read(keys: &KeySet, text: &str) {
    let token = match Token::read(text) {
        Ok(token) => token,
        Err(error) => {
            let said = error.to_string();
            assert!(
                said.len() < 500 && !said.contains('\n'),
                "more is said than anybody wants to read: {said}"
            );
            return;
        }
    };
    let _ = (token.algorithm(), token.kid(), token.kind(), token.stated_issuer());
    assert!(token.claims(keys).is_err() || GOOD.contains(&text), "nobody signed this: {text}");
    assert!(token.claims(&KeySet::default()).is_err(), "it is believed without a key");
}

fn enter(callers: &JwtCallers, text: &str) {
    // What HTTP has no such header for does not come as far as this.
    let Ok(value) = HeaderValue::try_from(format!("Bearer {text}")) else { return };
    let headers = HeaderMap::from_iter([(AUTHORIZATION, value)]);
    match callers.authenticate(Head { headers: &headers, query: None, peer: None }) {
        Verdict::Known(identity) => {
            assert!(GOOD.contains(&text.trim()), "let in without a token: {text}");
            assert_eq!(identity.principal.to_string(), "https://login.example.com#ann");
        }
        Verdict::Denied(_) => assert!(!GOOD.contains(&text), "kept out with a token: {text}"),
        Verdict::Later(_) => panic!("keys that are known are waited for"),
    }
}
