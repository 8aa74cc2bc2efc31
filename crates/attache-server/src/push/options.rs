//! What can be set about push notifications.

use std::fmt;
use std::time::Duration;

use attache_outbound::Policy;

/// Settings of push notifications. The defaults suit most.
#[derive(Debug, Clone)]
pub struct PushOptions {
    /// Which addresses webhooks may have: any public one, if nothing else is said.
    pub policy: Policy,
    /// How long a receiver may take to answer.
    pub timeout: Duration,
    /// How often a delivery is tried before it is given up.
    pub attempts: u32,
    /// How long to wait after the first failure, about; twice as long after each further one.
    pub first_wait: Duration,
    /// How long to wait at most, unless the receiver asks for more.
    pub longest_wait: Duration,
    /// How many deliveries go to one receiver at once.
    pub per_receiver: usize,
    /// How many deliveries are made at once.
    pub at_once: usize,
    /// What deliveries are signed with, if they are to be.
    pub secret: Option<SigningSecret>,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            timeout: Duration::from_secs(15),
            attempts: 16,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(15 * 60),
            per_receiver: 8,
            at_once: 256,
            secret: None,
        }
    }
}

/// A secret that the server and its receivers share, by which they know what comes from it.
#[derive(Clone)]
pub struct SigningSecret(Vec<u8>);

impl SigningSecret {
    /// A secret of these bytes.
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(secret.into())
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}
