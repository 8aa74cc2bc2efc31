//! Signed agent cards.
//!
//! A signature of a card is a JWS whose payload is the card itself, in the [canonical form](canonical) of RFC 8785, without its
//! signatures.
//!
//! - [`SigningKeys`] are the keys of a server: a file with several of them, of which some sign and others no longer do.
//! - [`Verifier`] decides whether a card is trusted. It knows keys that were pinned and origins whose key sets may be read. What a
//!   card says about its own key is a hint where to look, never a reason to trust it.
//! - [`Token`] is a signed token in the compact form of JWS, whose claims are there for whoever has the key.
//! - [`private`] has what files with secrets in them are read and written with.
//!
//! An algorithm belongs to its key: what a signature says about itself is compared with that and chooses nothing.
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
pub mod private;
mod secret;
mod signature;
mod strict;
mod token;
mod verifier;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use jwk::{JwkError, KeySet, VerifyingKey};
pub use keys::{CurrentKeys, KeyInfo, KeyState, KeysError, SigningKeys};
pub use private::Stamp;
pub use signature::SignError;
pub use strict::NotStrict;
pub use token::{BadToken, Token};
pub use verifier::{OriginError, Rejected, Signer, Untrusted, Verifier, Why};
