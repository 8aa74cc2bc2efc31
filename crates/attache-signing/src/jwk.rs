//! Keys that verify signatures, as JSON Web Keys (RFC 7517, 7518 and 8037).

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::rsa::PublicKeyComponents;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::Algorithm;
use crate::strict::{self, StrictJsonError, shown};

/// The maximum number of keys in a set.
const MAX_KEYS: usize = 100;

/// The shortest secret, in bytes: the length of the HMAC output (RFC 7518, section 3.2).
const MIN_SECRET: usize = 32;

/// The allowed lengths of RSA moduli, in bytes: 2048 to 8192 bits.
const MODULUS: std::ops::RangeInclusive<usize> = 256..=1024;

/// Why a text is not a key, or a set of keys, that can verify signatures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwkError {
    /// The text is not strict JSON.
    #[error("the keys cannot be read: {0}")]
    StrictJsonError(#[from] StrictJsonError),
    /// The text is neither a key nor a set of keys.
    #[error("expected a JSON Web Key, such as `{{\"kty\":\"EC\",…}}`, or a set of them, `{{\"keys\":[…]}}`")]
    NotKeys,
    /// The text is not PEM with public keys.
    #[error("expected public keys as PEM, `-----BEGIN PUBLIC KEY-----`, of Ed25519, P-256 or RSA")]
    Pem,
    /// There are too many keys.
    #[error("there are more than {MAX_KEYS} keys")]
    TooMany,
    /// The key is a private key.
    #[error("the key `{0}` is a private key: publish its public part, never the key itself")]
    Private(String),
    /// The key type is not supported.
    #[error(
        "the key `{0}` has a type that is not supported: expected `EC` with `P-256`, `OKP` with `Ed25519`, `RSA` or `oct`"
    )]
    Kind(String),
    /// The key is for another purpose or another algorithm.
    #[error("the key `{kid}` is not for checking signatures of {expected}: its `{member}` says otherwise")]
    Purpose {
        /// The key.
        kid: String,
        /// The algorithm of keys of this type.
        expected: Algorithm,
        /// The member that names another purpose.
        member: &'static str,
    },
    /// A member is missing or invalid.
    #[error("the key `{kid}` is broken: its `{member}` is not {expected}")]
    Broken {
        /// The key.
        kid: String,
        /// The member.
        member: &'static str,
        /// What it should be.
        expected: &'static str,
    },
}

/// A key that verifies signatures of one algorithm.
#[derive(Clone)]
pub struct VerifyingKey {
    /// The `kid` that the owner chose, if any.
    named: Option<String>,
    thumbprint: String,
    material: KeyMaterial,
}

#[derive(Clone, PartialEq)]
pub(crate) enum KeyMaterial {
    P256 { x: [u8; 32], y: [u8; 32] },
    Ed25519 { x: [u8; 32] },
    Rsa { n: Vec<u8>, e: Vec<u8>, padding: Padding },
    Secret { k: zeroize::Zeroizing<Vec<u8>> },
}

/// The padding of RSA signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    Pkcs1,
    Pss,
}

/// Two keys are equal if they have the same id and the same material.
impl PartialEq for VerifyingKey {
    fn eq(&self, other: &Self) -> bool {
        self.kid() == other.kid() && self.material == other.material
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({} `{}`)", self.algorithm(), self.kid())
    }
}

impl VerifyingKey {
    /// A key whose id is its thumbprint.
    pub(crate) fn new(material: KeyMaterial) -> Self {
        let thumbprint = material.thumbprint();
        Self { named: None, thumbprint, material }
    }

    /// A shared secret, for `HS256`.
    pub fn shared_secret(secret: &[u8]) -> Result<Self, JwkError> {
        let k = zeroize::Zeroizing::new(secret.to_vec());
        let short = || JwkError::Broken {
            kid: "without `kid`".to_owned(),
            member: "k",
            expected: "a secret of at least 32 bytes",
        };
        if k.len() < MIN_SECRET { Err(short()) } else { Ok(Self::new(KeyMaterial::Secret { k })) }
    }

    /// The same key with an id of the owner's choice.
    pub(crate) fn named(self, kid: &str) -> Self {
        let named = Some(kid.to_owned()).filter(|kid| *kid != self.thumbprint);
        Self { named, ..self }
    }

    fn read(jwk: &Map<String, Value>) -> Result<Self, JwkError> {
        let text = |member| jwk.get(member).and_then(Value::as_str);
        let named = text("kid").map(str::to_owned);
        let shown_kid = named.as_deref().map_or_else(|| "without `kid`".to_owned(), shown);
        if jwk.contains_key("d") {
            return Err(JwkError::Private(shown_kid));
        }
        let broken = |member, expected| JwkError::Broken { kid: shown_kid.clone(), member, expected };
        let bytes = |member| {
            let decoded = text(member).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
            decoded.ok_or_else(|| broken(member, "base64url without padding"))
        };
        let coordinate =
            |member| bytes(member)?.try_into().map_err(|_| broken(member, "32 bytes in base64url"));
        let material = match (text("kty"), text("crv")) {
            (Some("EC"), Some("P-256")) => KeyMaterial::P256 { x: coordinate("x")?, y: coordinate("y")? },
            (Some("OKP"), Some("Ed25519")) => KeyMaterial::Ed25519 { x: coordinate("x")? },
            (Some("RSA"), _) => {
                let without_zeros =
                    |bytes: Vec<u8>| -> Vec<u8> { bytes.into_iter().skip_while(|byte| *byte == 0).collect() };
                let (n, e) = (without_zeros(bytes("n")?), without_zeros(bytes("e")?));
                if !MODULUS.contains(&n.len()) {
                    return Err(broken("n", "a number of 2048 to 8192 bits"));
                }
                // The default is PKCS #1, which every implementation supports.
                let padding = if text("alg") == Some("PS256") { Padding::Pss } else { Padding::Pkcs1 };
                KeyMaterial::Rsa { n, e, padding }
            }
            (Some("oct"), _) => {
                let k = zeroize::Zeroizing::new(bytes("k")?);
                if k.len() < MIN_SECRET {
                    return Err(broken("k", "a secret of at least 32 bytes"));
                }
                KeyMaterial::Secret { k }
            }
            _ => return Err(JwkError::Kind(shown_kid)),
        };
        let key = Self::new(material);
        let expected = key.algorithm();
        let purpose = |member| JwkError::Purpose { kid: shown_kid.clone(), expected, member };
        if let Some(alg) = jwk.get("alg") {
            let stated = alg.as_str().map(str::parse::<Algorithm>);
            let matches = matches!(stated, Some(Ok(stated)) if stated == expected);
            matches.then_some(()).ok_or_else(|| purpose("alg"))?;
        }
        if jwk.get("use").is_some_and(|purpose| purpose != "sig") {
            return Err(purpose("use"));
        }
        let verifies = |ops: &Value| ops.as_array().is_some_and(|ops| ops.iter().any(|op| op == "verify"));
        if jwk.get("key_ops").is_some_and(|ops| !verifies(ops)) {
            return Err(purpose("key_ops"));
        }
        if expected != Algorithm::Hs256 && key.material.parsed().is_none() {
            let member = if text("kty") == Some("RSA") { "e" } else { "x" };
            return Err(broken(member, "that of a key"));
        }
        Ok(Self { named, ..key })
    }

    /// The id of the key: either chosen by its owner or its thumbprint (RFC 7638).
    pub fn kid(&self) -> &str {
        self.named.as_deref().unwrap_or(&self.thumbprint)
    }

    /// The only algorithm that the key may be used for.
    pub fn algorithm(&self) -> Algorithm {
        match self.material {
            KeyMaterial::P256 { .. } => Algorithm::Es256,
            KeyMaterial::Ed25519 { .. } => Algorithm::EdDsa,
            KeyMaterial::Rsa { padding: Padding::Pkcs1, .. } => Algorithm::Rs256,
            KeyMaterial::Rsa { padding: Padding::Pss, .. } => Algorithm::Ps256,
            KeyMaterial::Secret { .. } => Algorithm::Hs256,
        }
    }

    /// Whether a signature with this `kid` means this key.
    pub(crate) fn has_id(&self, kid: &str) -> bool {
        self.kid() == kid || self.thumbprint == kid
    }

    /// Whether the owner chose an id for the key.
    pub(crate) fn has_own_id(&self) -> bool {
        self.named.is_some()
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.material.verifies(message, signature)
    }

    /// The public JWK; nothing for a secret, which is never published.
    fn to_jwk(&self) -> Option<Value> {
        if self.algorithm() == Algorithm::Hs256 {
            return None;
        }
        let mut jwk = self.material.members();
        jwk.insert("kid".to_owned(), self.kid().into());
        jwk.insert("alg".to_owned(), self.algorithm().name().into());
        jwk.insert("use".to_owned(), "sig".into());
        Some(Value::Object(jwk))
    }
}

impl KeyMaterial {
    /// The members that define the key.
    fn members(&self) -> Map<String, Value> {
        let encode = |bytes: &[u8]| Value::String(URL_SAFE_NO_PAD.encode(bytes));
        let members = match self {
            Self::P256 { x, y } => {
                vec![("kty", "EC".into()), ("crv", "P-256".into()), ("x", encode(x)), ("y", encode(y))]
            }
            Self::Ed25519 { x } => vec![("kty", "OKP".into()), ("crv", "Ed25519".into()), ("x", encode(x))],
            Self::Rsa { n, e, .. } => vec![("kty", "RSA".into()), ("n", encode(n)), ("e", encode(e))],
            Self::Secret { k } => vec![("kty", "oct".into()), ("k", encode(k))],
        };
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// RFC 7638: the hash of these members, ordered by name. The hash of a secret of 32 random bytes does not reveal the
    /// secret.
    fn thumbprint(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(crate::canonical::encode(&self.members())))
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        if let Self::Secret { k } = self {
            return hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, k), message, signature).is_ok();
        }
        self.parsed().is_some_and(|key| key.verify_sig(message, signature).is_ok())
    }

    /// The public key as the cryptography library needs it; nothing if it is not a valid key.
    fn parsed(&self) -> Option<ParsedPublicKey> {
        match self {
            Self::P256 { x, y } => {
                let point = [&[4], x.as_slice(), y].concat();
                ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).ok()
            }
            Self::Ed25519 { x } => ParsedPublicKey::new(&ED25519, x).ok(),
            Self::Rsa { n, e, padding } => {
                let parameters = match padding {
                    Padding::Pkcs1 => &RSA_PKCS1_2048_8192_SHA256,
                    Padding::Pss => &RSA_PSS_2048_8192_SHA256,
                };
                PublicKeyComponents { n, e }.to_parsed_public_key(parameters).ok()
            }
            Self::Secret { .. } => None,
        }
    }
}

/// Keys that verify signatures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeySet(Vec<VerifyingKey>);

impl KeySet {
    /// Reads one key or a set of keys that the user configured. Every key must be usable.
    pub fn from_json(json: &[u8]) -> Result<Self, JwkError> {
        let keys = parse_keys(json)?.iter().map(VerifyingKey::read).collect::<Result<_, _>>()?;
        Ok(Self(keys))
    }

    /// Reads public keys that the user configured, as PEM. Every key must be usable. Its id is its thumbprint.
    pub fn from_pem(pem: &[u8]) -> Result<Self, JwkError> {
        let keys = serde_json::json!({ "keys": crate::pem::keys(pem)? });
        Self::from_json(keys.to_string().as_bytes())
    }

    /// Reads a published set of keys. Keys that cannot be used here are skipped. Secrets are skipped too, because a published
    /// secret is not secret.
    pub fn from_published(json: &[u8]) -> Result<Self, JwkError> {
        let keys =
            parse_keys(json)?.iter().filter_map(|jwk| VerifyingKey::read(jwk).ok()).collect::<Vec<_>>();
        Ok(Self(keys.into_iter().filter(|key| key.algorithm() != Algorithm::Hs256).collect()))
    }

    /// The public set, without secrets.
    pub fn to_json(&self) -> Value {
        json!({ "keys": self.0.iter().filter_map(VerifyingKey::to_jwk).collect::<Vec<_>>() })
    }

    /// The keys.
    pub fn iter(&self) -> impl Iterator<Item = &VerifyingKey> {
        self.0.iter()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<VerifyingKey> for KeySet {
    fn from_iter<I: IntoIterator<Item = VerifyingKey>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl Extend<VerifyingKey> for KeySet {
    fn extend<I: IntoIterator<Item = VerifyingKey>>(&mut self, keys: I) {
        self.0.extend(keys);
    }
}

impl IntoIterator for KeySet {
    type Item = VerifyingKey;
    type IntoIter = std::vec::IntoIter<VerifyingKey>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

fn parse_keys(json: &[u8]) -> Result<Vec<Map<String, Value>>, JwkError> {
    let mut document = strict::object(json)?;
    let keys = match document.remove("keys") {
        Some(Value::Array(keys)) => keys,
        None if document.contains_key("kty") => vec![Value::Object(document)],
        Some(_) | None => return Err(JwkError::NotKeys),
    };
    if keys.len() > MAX_KEYS {
        return Err(JwkError::TooMany);
    }
    keys.into_iter().map(|key| key.as_object().cloned().ok_or(JwkError::NotKeys)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(jwk: &Value) -> Result<VerifyingKey, JwkError> {
        let set = KeySet::from_json(jwk.to_string().as_bytes())?;
        Ok(set.into_iter().next().expect("one key was given"))
    }

    /// The key of RFC 8037, appendix A.
    fn ed25519() -> Value {
        json!({ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" })
    }

    #[test]
    fn the_name_of_a_key_is_its_thumbprint_as_in_the_examples_of_the_rfcs() {
        let rsa = json!({
            "kty": "RSA",
            "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
            "e": "AQAB",
            "alg": "RS256",
        });
        assert_eq!(one(&rsa).unwrap().kid(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
        assert_eq!(one(&ed25519()).unwrap().kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    /// An RSA key whose modulus has this many bytes.
    fn rsa(bytes: usize) -> Value {
        json!({ "kty": "RSA", "n": URL_SAFE_NO_PAD.encode(vec![0xff_u8; bytes]), "e": "AQAB" })
    }

    #[test]
    fn a_set_has_up_to_100_keys_and_a_key_2048_to_8192_bits() {
        let keys = json!({ "keys": vec![ed25519(); 100] }).to_string();
        for read in [KeySet::from_json, KeySet::from_published] {
            assert_eq!(read(keys.as_bytes()).unwrap().iter().count(), 100);
        }
        assert!(one(&rsa(256)).is_ok() && one(&rsa(1024)).is_ok());
    }

    #[test]
    fn an_unusable_key_is_refused_with_the_reason() {
        let with = |member: &str, value: Value| {
            let mut jwk = ed25519();
            jwk[member] = value;
            one(&jwk).unwrap_err().to_string()
        };
        for (member, value, reason) in [
            ("d", json!("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"), "is a private key"),
            ("crv", json!("Ed448"), "a type that is not supported"),
            ("kty", json!("oct"), "its `k` is not base64url"),
            ("alg", json!("HS256"), "its `alg` says otherwise"),
            ("alg", json!(7), "its `alg` says otherwise"),
            ("use", json!("enc"), "its `use` says otherwise"),
            ("key_ops", json!(["sign"]), "its `key_ops` says otherwise"),
            ("x", json!("AAAA"), "its `x` is not 32 bytes"),
            ("x", json!("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo="), "its `x` is not base64url"),
        ] {
            let error = with(member, value.clone());
            assert!(error.contains(reason), "{member} {value}: {error}");
        }
        for (jwk, reason) in [
            (json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" }), "2048 to 8192 bits"),
            (rsa(255), "2048 to 8192 bits"),
            (rsa(1025), "2048 to 8192 bits"),
            (json!({ "kty": "oct", "k": "c2hvcnQ" }), "at least 32 bytes"),
            (
                json!({ "kty": "EC", "crv": "P-256", "x": "A".repeat(43), "y": "A".repeat(43) }),
                "`x` is not that",
            ),
            (json!({ "keys": {} }), "expected a JSON Web Key"),
            (json!({ "keys": [7] }), "expected a JSON Web Key"),
            (json!({ "keys": vec![ed25519(); 101] }), "more than 100 keys"),
        ] {
            let error = one(&jwk).unwrap_err().to_string();
            assert!(error.contains(reason), "{jwk}: {error}");
        }
    }

    #[test]
    fn unusable_published_keys_and_published_secrets_are_skipped() {
        let secret = json!({ "kty": "oct", "kid": "s", "k": URL_SAFE_NO_PAD.encode([7; 32]) });
        let other = json!({ "kty": "EC", "crv": "P-521" });
        let set = json!({ "keys": [secret, other, ed25519()], "more": 1 }).to_string();
        let set = KeySet::from_published(set.as_bytes()).unwrap();
        assert_eq!(set.iter().map(VerifyingKey::algorithm).collect::<Vec<_>>(), [Algorithm::EdDsa]);
        let pinned = KeySet::from_json(secret.to_string().as_bytes()).unwrap();
        assert_eq!((pinned.iter().count(), pinned.to_json()), (1, json!({ "keys": [] })));
    }
}
