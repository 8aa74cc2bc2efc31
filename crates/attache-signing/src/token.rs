//! Signed tokens (RFC 7519), in the compact form of RFC 7515.
//!
//! Claims can be read only with the right key. Before verification only the stated algorithm and issuer are known; the issuer
//! selects the keys to try. Where a token says that its key is (`jku`, `jwk`, `x5u`, `x5c`) is ignored.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::strict::{self, shown};
use crate::{Algorithm, KeySet, VerifyingKey};

/// How many keys are tried for a token that names none.
const MAX_TRIED: usize = 4;

/// Why a token is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// The token cannot be parsed, or uses something that is not supported.
    #[error("{0}")]
    Unreadable(String),
    /// The key that the token names is unknown, or it names none and no known key fits.
    #[error("it was signed with a key that is not known")]
    UnknownKey,
    /// The key that the token names is for another algorithm.
    #[error("it says `{stated}`, but the key is for `{key}`")]
    OtherAlgorithm {
        /// The algorithm in the token.
        stated: Algorithm,
        /// The algorithm of the key.
        key: Algorithm,
    },
    /// The signature was made with another key or over other content.
    #[error("its signature is wrong")]
    Mismatch,
}

/// A parsed token that is not verified yet.
///
/// ```
/// use attache_signing::{KeySet, Token};
///
/// let keys = KeySet::from_json(
///     br#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#,
/// )?;
/// let forged = Token::read("eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhbGljZSJ9.AAAA")?;
/// assert!(forged.claims(&keys).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Token<'a> {
    /// The signed part.
    message: &'a str,
    signature: Vec<u8>,
    algorithm: Algorithm,
    kid: Option<String>,
    kind: Option<String>,
    claims: Map<String, Value>,
}

impl<'a> Token<'a> {
    /// Parses a token. The caller limits its length.
    pub fn read(text: &'a str) -> Result<Self, BadToken> {
        let unreadable = |why: &str| BadToken::Unreadable(why.to_owned());
        let (message, signature) = text.rsplit_once('.').ok_or_else(|| unreadable("it is not a JWT"))?;
        let (header, claims) = message.split_once('.').ok_or_else(|| unreadable("it is not a JWT"))?;
        let decode = |part: &str, what: &str| {
            let decoded = URL_SAFE_NO_PAD.decode(part);
            decoded.map_err(|_| BadToken::Unreadable(format!("its {what} is not base64url without padding")))
        };
        let object = |part: &str, what: &str| {
            let object = strict::object(&decode(part, what)?);
            object.map_err(|error| BadToken::Unreadable(format!("its {what} cannot be read: {error}")))
        };
        let header = object(header, "header")?;
        let stated = |member: &str| match header.get(member) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(BadToken::Unreadable(format!("its `{member}` is not a text"))),
        };
        // A critical header that is not supported makes the token invalid. None is supported here.
        for member in ["crit", "b64", "zip", "enc"] {
            if header.contains_key(member) {
                let why = format!("its `{member}` is not supported");
                return Err(BadToken::Unreadable(why));
            }
        }
        let algorithm = stated("alg")?.ok_or_else(|| unreadable("it has no `alg`"))?;
        let algorithm: Algorithm =
            algorithm.parse().map_err(|error: crate::UnknownAlgorithm| unreadable(&error.to_string()))?;
        let (kid, kind) = (stated("kid")?, stated("typ")?);
        let signature = decode(signature, "signature")?;
        Ok(Self { message, signature, algorithm, kid, kind, claims: object(claims, "payload")? })
    }

    /// The algorithm that the token states.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The key id that the token states.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// The type that the token states: `typ`, in lower case and without `application/`.
    pub fn kind(&self) -> Option<String> {
        let kind = self.kind.as_deref()?.to_ascii_lowercase();
        Some(kind.strip_prefix("application/").map_or_else(|| kind.clone(), str::to_owned))
    }

    /// The issuer that the token states. It is not verified: use it only to select the keys to try.
    pub fn stated_issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }

    /// The claims, if one of the keys signed the token.
    ///
    /// If the token names a key, only that key and keys without an id of their own are tried. Otherwise all keys are tried.
    pub fn claims(&self, keys: &KeySet) -> Result<&Map<String, Value>, BadToken> {
        let called = |key: &&VerifyingKey| match &self.kid {
            Some(kid) => key.has_id(kid) || !key.has_own_id(),
            None => true,
        };
        let fits = |key: &&VerifyingKey| key.algorithm() == self.algorithm;
        let mut candidates = keys.iter().filter(called).filter(fits).take(MAX_TRIED).peekable();
        if candidates.peek().is_none() {
            // The id is known but the algorithm differs: reading the keys again would not help.
            let namesake = self.kid.as_deref().and_then(|kid| keys.iter().find(|key| key.has_id(kid)));
            return Err(namesake.map_or(BadToken::UnknownKey, |key| BadToken::OtherAlgorithm {
                stated: self.algorithm,
                key: key.algorithm(),
            }));
        }
        if candidates.any(|key| key.verifies(self.message.as_bytes(), &self.signature)) {
            return Ok(&self.claims);
        }
        let named = |kid: &String| keys.iter().any(|key| key.has_id(kid));
        Err(if self.kid.as_ref().is_some_and(named) { BadToken::Mismatch } else { BadToken::UnknownKey })
    }

    /// Shortens and escapes a foreign text, so that it can be shown on one line.
    pub fn shown(text: &str) -> String {
        shown(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn keys(jwk: &Value) -> KeySet {
        KeySet::from_json(jwk.to_string().as_bytes()).unwrap()
    }

    /// RFC 7515, appendix A.3.
    const ES256: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

    fn es256() -> Value {
        json!({
            "kty": "EC",
            "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        })
    }

    /// RFC 7515, appendix A.1, with HS256.
    const HS256: &str = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";

    fn hs256() -> Value {
        let k = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        json!({ "kty": "oct", "k": k })
    }

    #[test]
    fn the_tokens_of_the_rfcs_are_good_with_their_keys_and_no_others() {
        let claims = json!({"iss": "joe", "exp": 1_300_819_380, "http://example.com/is_root": true});
        for (text, own, other) in [(ES256, es256(), hs256()), (HS256, hs256(), es256())] {
            let token = Token::read(text).unwrap();
            assert_eq!(token.stated_issuer(), Some("joe"));
            assert_eq!(Value::Object(token.claims(&keys(&own)).unwrap().clone()), claims);
            assert_eq!(token.claims(&keys(&other)), Err(BadToken::UnknownKey));
        }
        assert_eq!(Token::read(HS256).unwrap().kind().as_deref(), Some("jwt"));
    }

    #[test]
    fn a_key_has_one_name_and_one_algorithm() {
        let with_header = |header: Value| {
            let (_, rest) = ES256.split_once('.').unwrap();
            format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header.to_string()))
        };
        let mut named = es256();
        named["kid"] = json!("a");
        let tried = |header: Value| {
            let text = with_header(header);
            Token::read(&text).unwrap().claims(&keys(&named)).unwrap_err()
        };
        assert_eq!(tried(json!({"alg": "ES256", "kid": "a"})), BadToken::Mismatch);
        assert_eq!(tried(json!({"alg": "ES256", "kid": "b"})), BadToken::UnknownKey);
        let other = BadToken::OtherAlgorithm { stated: Algorithm::Hs256, key: Algorithm::Es256 };
        assert_eq!(tried(json!({"alg": "HS256", "kid": "a"})), other);
    }

    #[test]
    fn an_invalid_token_is_refused_with_the_reason() {
        let encode = |value: &str| URL_SAFE_NO_PAD.encode(value);
        let with = |header: &str, claims: &str| format!("{}.{}.AAAA", encode(header), encode(claims));
        for (text, reason) in [
            (String::new(), "it is not a JWT"),
            ("a.b".to_owned(), "it is not a JWT"),
            ("a.b.c".to_owned(), "its header is not base64url"),
            (with("[]", "{}"), "its header cannot be read: it is not a JSON object"),
            (with(r#"{"alg":"none"}"#, "{}"), "`none` is not an algorithm"),
            (with(r#"{"alg":"ES256","alg":"HS256"}"#, "{}"), "`alg` is there twice"),
            (with(r#"{"alg":7}"#, "{}"), "its `alg` is not a text"),
            (with("{}", "{}"), "it has no `alg`"),
            (with(r#"{"alg":"ES256","crit":["exp"]}"#, "{}"), "its `crit` is not supported"),
            (with(r#"{"alg":"ES256"}"#, r#"{"sub":"a","sub":"b"}"#), "`sub` is there twice"),
            (format!("{ES256}="), "its signature is not base64url"),
            (format!("{ES256}.AAAA"), "its payload is not base64url"),
        ] {
            let error = Token::read(&text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn four_keys_are_tried_for_a_token_and_no_more() {
        let verifies = |others: u8| {
            let other = |number: u8| VerifyingKey::shared_secret(&[number; 32]).unwrap();
            let set: KeySet = (0..others).map(other).chain(keys(&hs256())).collect();
            Token::read(HS256).unwrap().claims(&set).map(|_| ())
        };
        assert_eq!((verifies(3), verifies(4)), (Ok(()), Err(BadToken::UnknownKey)));
    }
}
