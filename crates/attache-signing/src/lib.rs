//! Signed agent cards.
//!
//! A signature of a card is a JWS. Its payload is the card in the [canonical form](canonical) of RFC 8785, without its
//! signatures.
//!
//! - [`SigningKeys`] are the keys of a server: a file with several keys. Active and retiring keys sign, retired ones do not.
//! - [`Verifier`] decides whether a card is trusted. It has pinned keys and origins whose key sets it may read. What a card
//!   states about its own key is only a hint where to look, never a reason to trust the card.
//! - [`Token`] is a signed token in the compact form of JWS. Its claims can be read only with the right key.
//!
//! Each key has one algorithm. The `alg` of a signature must match it, and selects nothing.
//!
//! ```
//! use attache_protocol::{AgentCard, Timestamp};
//! use attache_signing::{Algorithm, SigningKeys, Verifier};
//!
//! let keys = SigningKeys::in_memory(Algorithm::Es256, Timestamp::UNIX_EPOCH)?;
//! let card = keys.current().sign(&AgentCard::new("Recipes", "Finds something to cook"), None)?;
//!
//! let verifier = Verifier::new().pin(keys.current().public_keys());
//! let json = serde_json::to_vec(&card)?;
//! assert_eq!(verifier.verify_pinned(&json)?, card);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod algorithm;
pub mod canonical;
mod jwk;
mod keys;
mod pem;
mod secret;
mod signature;
mod strict;
mod token;
mod verifier;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use jwk::{JwkError, KeySet, VerifyingKey};
pub use keys::{CurrentKeys, KeyInfo, KeyState, KeysError, SigningKeys};
pub use signature::SignError;
pub use strict::StrictJsonError;
pub use token::{BadToken, Token};
pub use verifier::{OriginError, RejectedSignature, SignatureError, Signer, UntrustedCard, Verifier};
