//! Options of push notifications.

use std::fmt;
use std::time::Duration;

use attache_outbound::Policy;

/// Options of push notifications. The defaults suit most servers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PushOptions {
    /// Which addresses webhooks may have: by default every public address.
    pub policy: Policy,
    /// How long a receiver may take to respond.
    pub timeout: Duration,
    /// How many attempts are made before a delivery is dead.
    pub attempts: u32,
    /// The back-off after the first failure, approximately. It doubles with each further failure.
    pub first_wait: Duration,
    /// The longest back-off, unless the receiver asks for more.
    pub longest_wait: Duration,
    /// How many deliveries run at once for one receiver.
    pub per_receiver: usize,
    /// How many deliveries run at once.
    pub at_once: usize,
    /// Signs deliveries, if set.
    pub secret: Option<SigningSecret>,
    /// The queue that shares deliveries with other server processes. Without one, this process makes the deliveries of its store.
    #[cfg(feature = "redis")]
    pub queue: Option<super::PushQueue>,
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
            #[cfg(feature = "redis")]
            queue: None,
        }
    }
}

/// A secret that the server shares with its receivers, so that they can verify notifications.
#[derive(Clone)]
pub struct SigningSecret(Vec<u8>);

impl SigningSecret {
    /// A secret with these bytes.
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
