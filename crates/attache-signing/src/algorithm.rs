//! The signature algorithms, by their JOSE names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The algorithm of a signature of a card or a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// ECDSA on P-256. Every SDK supports it.
    #[serde(rename = "ES256")]
    Es256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
    /// RSA with PKCS #1 v1.5 padding.
    #[serde(rename = "RS256")]
    Rs256,
    /// RSA with PSS padding.
    #[serde(rename = "PS256")]
    Ps256,
    /// HMAC with a secret that both sides know. The secret is never published.
    #[serde(rename = "HS256")]
    Hs256,
}

/// The name of an algorithm that is not supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an algorithm for signatures here: expected `ES256`, `EdDSA`, `RS256`, `PS256` or `HS256`"
)]
pub struct UnknownAlgorithm(String);

impl Algorithm {
    /// All algorithms, the preferred one first.
    pub const ALL: [Self; 5] = [Self::Es256, Self::EdDsa, Self::Rs256, Self::Ps256, Self::Hs256];

    /// The name in JOSE.
    pub fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
            Self::Hs256 => "HS256",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        // RFC 9864 has a separate name, `Ed25519`, for the only curve of `EdDSA` that is supported here.
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        let found = found.or((name == "Ed25519").then_some(Self::EdDsa));
        found.ok_or_else(|| UnknownAlgorithm(crate::strict::shown(name)))
    }
}
