//! The options of a client.

use std::sync::Arc;
use std::time::Duration;

use attache_outbound::Policy;
#[cfg(feature = "signing")]
use attache_signing::Verifier;

use crate::{ClientError, Credentials, Identity, Interface, RootCertificates, TrustedOrigins};

/// How often an operation is repeated, and the waits in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The maximum number of consecutive retries; 0 for none.
    pub attempts: u32,
    /// The wait before the first retry. It doubles with each further one.
    pub first: Duration,
    /// The maximum wait.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { attempts: 6, first: Duration::from_millis(200), longest: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The wait before the attempt with this number, counted from 1. It is a random time between half of the back-off and all
    /// of it, so that many clients do not retry at the same time.
    pub(crate) fn wait(&self, attempt: u32) -> Duration {
        Pace { first: self.first, longest: self.longest }.wait(attempt)
    }

    /// The wait before this attempt, after an error. It is at least as long as the server asks for. Returns nothing if that is
    /// too long.
    pub(crate) fn wait_after(&self, error: &ClientError, attempt: u32) -> Option<Duration> {
        let asked = error.retry_after().unwrap_or_default();
        (asked <= LONGEST_ASKED).then(|| self.wait(attempt).max(asked))
    }
}

/// The longest `Retry-After` that is respected. If the server asks for more, the error is returned.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// The maximum for all waits, regardless of the options, because the clock has a limited range.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How often a task is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The wait before the first poll. It doubles with each further one.
    pub first: Duration,
    /// The maximum wait.
    pub longest: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first: Duration::from_millis(250), longest: Duration::from_secs(15) }
    }
}

impl Pace {
    pub(crate) fn wait(&self, attempt: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let whole = self.first.saturating_mul(doubled).min(self.longest).min(A_DAY);
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// Options of a [`Client`](crate::Client): timeouts, limits and allowed addresses. The defaults suit most programs.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// How long it may take to connect, TLS included.
    pub connect_timeout: Duration,
    /// How long a send may take, until its response is complete or its stream has started. An agent may work for a long time
    /// before it responds.
    pub send_timeout: Duration,
    /// The timeout of all other requests: reading the card, reading, listing and canceling tasks, subscribing.
    pub call_timeout: Duration,
    /// How long an agent may delay its response to a [long poll](crate::Client::get_newer).
    pub long_poll_timeout: Duration,
    /// The time limit for a whole send, stream or [wait](crate::Client::wait), retries and reconnects included. None means no
    /// limit. [`Outgoing::deadline`](crate::Outgoing::deadline) sets it for one message.
    pub deadline: Option<Duration>,
    /// How long a stream may be silent before it counts as broken. Servers send something about every 15 seconds. It does not
    /// apply to gRPC, where servers do not.
    pub idle_timeout: Duration,
    /// The maximum size of a response, in bytes.
    pub max_body: usize,
    /// The maximum size of an event in a stream, in bytes.
    pub max_event: usize,
    /// The back-off for broken streams and for requests that are safe to repeat: sends with an idempotency key, and requests
    /// that only read.
    pub backoff: Backoff,
    /// How often a task is polled while the client waits for it, if the agent does not support long polls.
    pub pace: Pace,
    /// The interfaces to use, in order of preference. If empty, the first one in the card that the client supports.
    pub interfaces: Vec<Interface>,
    /// The source of credentials. They are sent if the card asks for them, to the origin of the agent's address and to [trusted
    /// origins](Self::trusted_origins). Those of an [`AddressBook`](crate::AddressBook) are sent to their addresses,
    /// independently of the card.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// The client certificate with its key, for servers that request one.
    pub identity: Option<Identity>,
    /// Trusted root certificates, in addition to those of the system.
    pub roots: Vec<RootCertificates>,
    /// The URIs of the extensions to request with every request.
    pub extensions: Vec<String>,
    /// Origins that receive [credentials](Self::credentials) in addition to that of the agent's address, if a card leads there
    /// by a redirect or by its interfaces.
    ///
    /// By default there are none, and other origins are called without credentials: agents behind gateways and cards on static
    /// hosting need that. A request that requires credentials then fails. If the address of the card comes from an untrusted
    /// source, also set a [`policy`](Self::policy) or allow [no other origin](TrustedOrigins::only).
    pub trusted_origins: TrustedOrigins,
    /// Which addresses may be called. None means all.
    ///
    /// The URL of the card, its redirects and the URL of the interface are checked, and every address that their names resolve
    /// to.
    pub policy: Option<Policy>,
    /// Which signatures a card must have. A card without a valid one is refused. None means that every card is accepted.
    ///
    /// Only the signed part of a card is used. The [extended card](crate::Client::extended_card) must be signed as well.
    #[cfg(feature = "signing")]
    pub card_trust: Option<Verifier>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(60 * 60),
            call_timeout: Duration::from_secs(30),
            long_poll_timeout: Duration::from_secs(90),
            deadline: None,
            idle_timeout: Duration::from_secs(60),
            max_body: 16 * 1024 * 1024,
            max_event: 16 * 1024 * 1024,
            backoff: Backoff::default(),
            pace: Pace::default(),
            interfaces: Vec::new(),
            credentials: None,
            identity: None,
            roots: Vec::new(),
            extensions: Vec::new(),
            trusted_origins: TrustedOrigins::default(),
            policy: None,
            #[cfg(feature = "signing")]
            card_trust: None,
        }
    }
}

impl ClientOptions {
    /// Sets the source of credentials.
    pub fn with_credentials(mut self, credentials: impl Credentials) -> Self {
        self.credentials = Some(Arc::new(credentials));
        self
    }

    /// Adds a preferred interface, after those that are preferred already.
    pub fn prefer(mut self, interface: impl Into<Interface>) -> Self {
        self.interfaces.push(interface.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_asks_to_be_left_alone_is_unless_it_asks_for_too_much() {
        let error = |retry_after| ClientError::Http {
            url: String::new(),
            status: 503,
            body: String::new(),
            retry_after: Some(Duration::from_secs(retry_after)),
        };
        let backoff = Backoff::default();
        assert_eq!(backoff.wait_after(&error(7), 1), Some(Duration::from_secs(7)));
        assert!(backoff.wait_after(&error(0), 1).is_some_and(|wait| wait >= Duration::from_millis(100)));
        assert_eq!(backoff.wait_after(&error(61), 1), None);
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff::default();
        for (attempt, whole) in [(1, 0.2), (2, 0.4), (3, 0.8), (6, 6.4), (7, 10.0), (1000, 10.0)] {
            let wait = backoff.wait(attempt).as_secs_f64();
            assert!((whole / 2.0..=whole).contains(&wait), "{attempt}: {wait}");
        }
        let endless = Pace { first: Duration::MAX, longest: Duration::MAX };
        assert!(endless.wait(u32::MAX) <= A_DAY);
    }
}
