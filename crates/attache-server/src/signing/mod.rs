//! Signed cards. Without the feature `signing`, the types are there and have no values.

#[cfg(not(feature = "signing"))]
mod off;
#[cfg(feature = "signing")]
mod on;

#[cfg(not(feature = "signing"))]
pub(crate) use self::off::{CurrentKeys, Keys, Signing};
#[cfg(feature = "signing")]
pub(crate) use self::on::{CurrentKeys, Keys, Signing};

/// Where the verification keys are published.
pub(crate) const PATH: &str = "/.well-known/jwks.json";
