//! Encryption of secrets that leave the store.

use std::error::Error;
use std::fmt;

/// Encrypts secrets under keys that several processes can share.
///
/// The keyring of `attache-store` is one.
pub trait Seal: Send + Sync {
    /// Encrypts a secret for one purpose. It opens for the same purpose only.
    fn seal(&self, purpose: &[u8], secret: &[u8]) -> Result<Vec<u8>, SealError>;

    /// Decrypts a secret that was sealed for this purpose. Fails if the key is not known here, or the secret was changed.
    fn open(&self, purpose: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError>;
}

/// A secret could not be sealed or opened. The message has no part of the secret.
#[derive(Debug)]
pub struct SealError(Box<dyn Error + Send + Sync>);

impl SealError {
    /// An error with this cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for SealError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
