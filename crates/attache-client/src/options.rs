//! What can be set about the client.

use std::sync::Arc;
use std::time::Duration;

use attache_outbound::Policy;
use attache_signing::Verifier;

use crate::{ClientError, Credentials, Identity, Interface, RootCertificates, TrustedOrigins};

/// How often something is tried again, and how long to wait before each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// How often in a row; 0 for never.
    pub attempts: u32,
    /// How long before the first time. The wait doubles with every further one.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { attempts: 6, first: Duration::from_millis(200), longest: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// How long to wait before the attempt of this number, counted from 1: between half of the wait and the whole, by chance,
    /// so that many clients do not come back at once.
    pub(crate) fn wait(&self, attempt: u32) -> Duration {
        Pace { first: self.first, longest: self.longest }.wait(attempt)
    }

    /// How long to wait before the attempt of this number after an error: at least as long as the other side asks for. Nothing if
    /// that is longer than anybody should wait.
    pub(crate) fn wait_after(&self, error: &ClientError, attempt: u32) -> Option<Duration> {
        let asked = error.retry_after().unwrap_or_default();
        (asked <= LONGEST_ASKED).then(|| self.wait(attempt).max(asked))
    }
}

/// How long a client lets itself be told to wait. Who is told to wait for longer gets the error instead.
const LONGEST_ASKED: Duration = Duration::from_secs(60);

/// What nobody waits longer than, whatever is set: the clock has an end.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How often something that takes its time is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// How long before the first look. The wait doubles with every further one.
    pub first: Duration,
    /// The longest wait.
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

/// Settings of a [`Client`](crate::Client): timeouts, limits, and where it may go. The defaults suit most.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// How long a connection may take to come about, TLS included.
    pub connect_timeout: Duration,
    /// How long a send may take, until its whole answer is there or its stream has begun. An agent may work for long before it
    /// answers.
    pub send_timeout: Duration,
    /// How long everything else may take: reading the card, reading, listing and canceling tasks, subscribing.
    pub call_timeout: Duration,
    /// How long an agent may hold back the answer when it is asked for a task [once it has changed](crate::Client::get_newer).
    pub long_poll_timeout: Duration,
    /// How long a send, a stream or a [wait](crate::Client::wait) may take altogether, with everything that is repeated and
    /// taken up again; as long as it takes, if there is none. [`Outgoing::deadline`](crate::Outgoing::deadline) sets it for one
    /// message.
    pub deadline: Option<Duration>,
    /// How long a stream may be silent before it counts as broken. Servers say something every 15 seconds or so; but not those of
    /// gRPC's, where this does not count.
    pub idle_timeout: Duration,
    /// The largest answer, in bytes.
    pub max_body: usize,
    /// The largest event of a stream, in bytes.
    pub max_event: usize,
    /// How broken streams are taken up again, and how requests are repeated that it is safe to repeat: sends with an idempotency
    /// key, and what only reads.
    pub backoff: Backoff,
    /// How often a task is looked at that is waited for, where the agent cannot tell when it changes.
    pub pace: Pace,
    /// Which interfaces to use, the best first. If there are none, the first of the card's that is spoken here.
    pub interfaces: Vec<Interface>,
    /// Where credentials come from. They are sent if the card asks for them, to the origin of the agent's address and to those that are
    /// [trusted](Self::trusted_origins); those of an [`AddressBook`](crate::AddressBook) to their addresses, whatever cards ask for.
    pub credentials: Option<Arc<dyn Credentials>>,
    /// The certificate that is shown to servers that ask for one, together with its key.
    pub identity: Option<Identity>,
    /// Certificates that those of servers may lead to, besides those that the system knows.
    pub roots: Vec<RootCertificates>,
    /// The URIs of the extensions to ask for with every request.
    pub extensions: Vec<String>,
    /// Which origins get [credentials](Self::credentials) besides that of the agent's address, where a card leads there by a redirect
    /// or by its interfaces.
    ///
    /// By default there are none, and other origins are called without credentials: agents behind gateways and cards on static
    /// hosting need that. A request that needs credentials fails instead. Where the address of the card comes from someone who is not
    /// trusted, set a [`policy`](Self::policy) as well, or let a card lead to [no other origin](TrustedOrigins::only).
    pub trusted_origins: TrustedOrigins,
    /// Which addresses may be called; any, if there is none.
    ///
    /// The URL of the card, where it redirects to and the URL of the interface are checked, and every address that their names
    /// resolve to.
    pub policy: Option<Policy>,
    /// Whose signature a card must have. A card without a good one is refused; if nothing is set, every card is taken.
    ///
    /// Of a card that is taken, only what was signed is used. The [extended card](crate::Client::extended_card) must be signed as
    /// well.
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
            card_trust: None,
        }
    }
}

impl ClientOptions {
    /// The same settings with credentials.
    pub fn with_credentials(mut self, credentials: impl Credentials) -> Self {
        self.credentials = Some(Arc::new(credentials));
        self
    }

    /// The same settings with a preference for an interface, after those that are preferred already.
    pub fn prefer(mut self, interface: impl Into<Interface>) -> Self {
        self.interfaces.push(interface.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_after_is_respected_unless_it_is_too_long() {
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
