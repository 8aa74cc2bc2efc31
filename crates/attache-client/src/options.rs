//! The options of a client.

use std::sync::Arc;
use std::time::Duration;

use attache_outbound::Policy;
#[cfg(feature = "signing")]
use attache_signing::Verifier;

use crate::{ClientError, Commands, Credentials, Interface, RootCertificates, TlsIdentity, TrustedOrigins};

/// How often an operation is repeated, and the waits in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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

/// Builder methods that set one field each.
macro_rules! setters {
    ($( $(#[$attribute:meta])* $field:ident: $type:ty => $value:expr; )+) => {
        $(
            $(#[$attribute])*
            #[must_use]
            pub fn $field(mut self, $field: $type) -> Self {
                self.$field = $value;
                self
            }
        )+
    };
}

impl Backoff {
    setters! {
        /// Sets the maximum number of consecutive retries; 0 for none.
        attempts: u32 => attempts;
        /// Sets the wait before the first retry.
        first: Duration => first;
        /// Sets the maximum wait.
        longest: Duration => longest;
    }

    /// The wait before the attempt with this number, counted from 1. It is a random time between half of the back-off and all
    /// of it, so that many clients do not retry at the same time.
    pub(crate) fn wait(&self, attempt: u32) -> Duration {
        Pace { first: self.first, longest: self.longest }.wait(attempt)
    }

    /// The wait before this attempt, after an error. It is at least as long as the server asks for. Returns nothing if that is
    /// too long.
    pub(crate) fn wait_after(&self, error: &ClientError, attempt: u32) -> Option<Duration> {
        let requested = error.retry_after().unwrap_or_default();
        (requested <= MAX_RETRY_AFTER).then(|| self.wait(attempt).max(requested))
    }
}

/// The longest `Retry-After` that is respected. If the server asks for more, the error is returned.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The maximum for all waits, regardless of the options, because the clock has a limited range.
const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// How often a task is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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
    setters! {
        /// Sets the wait before the first poll.
        first: Duration => first;
        /// Sets the maximum wait.
        longest: Duration => longest;
    }

    pub(crate) fn wait(&self, attempt: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let whole = self.first.saturating_mul(doubled).min(self.longest).min(MAX_WAIT);
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// Options of a [`Client`](crate::Client): timeouts, limits and allowed addresses. The defaults suit most programs.
///
/// ```
/// use std::time::Duration;
///
/// use attache_client::ClientOptions;
///
/// let options = ClientOptions::default().deadline(Duration::from_secs(60)).max_body(1024 * 1024);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
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
    /// apply to gRPC, Unix sockets and commands, where servers do not; over WebSocket the client asks for a sign of life.
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
    pub identity: Option<TlsIdentity>,
    /// Trusted root certificates, in addition to those of the system.
    pub roots: Vec<RootCertificates>,
    /// Redis servers with their credentials, for agents over Redis Streams. The credentials are used for the host and port of the URL
    /// only, if the user gave the address of the agent or its origin is [trusted](Self::trusted_origins), such as
    /// `redis-streams://redis.example.com:6379`. A server that is not in the list is used without credentials.
    #[cfg(feature = "redis")]
    pub redis: Vec<attache_redis::RedisUrl>,
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
    /// Whether an address may be a command (`stdio:COMMAND`), which the client starts. By default it may not, because a program may get the
    /// address from others.
    pub commands: Commands,
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
            #[cfg(feature = "redis")]
            redis: Vec::new(),
            extensions: Vec::new(),
            trusted_origins: TrustedOrigins::default(),
            policy: None,
            commands: Commands::default(),
            #[cfg(feature = "signing")]
            card_trust: None,
        }
    }
}

impl ClientOptions {
    setters! {
        /// Sets the [time to connect](field@Self::connect_timeout).
        connect_timeout: Duration => connect_timeout;
        /// Sets the [timeout of sends](field@Self::send_timeout).
        send_timeout: Duration => send_timeout;
        /// Sets the [timeout of all other requests](field@Self::call_timeout).
        call_timeout: Duration => call_timeout;
        /// Sets the [timeout of long polls](field@Self::long_poll_timeout).
        long_poll_timeout: Duration => long_poll_timeout;
        /// Sets the [time limit of whole operations](field@Self::deadline).
        deadline: Duration => Some(deadline);
        /// Sets how long a stream [may be silent](field@Self::idle_timeout).
        idle_timeout: Duration => idle_timeout;
        /// Sets the [maximum size of a response](field@Self::max_body), in bytes.
        max_body: usize => max_body;
        /// Sets the [maximum size of an event](field@Self::max_event), in bytes.
        max_event: usize => max_event;
        /// Sets the [back-off](field@Self::backoff).
        backoff: Backoff => backoff;
        /// Sets [how often a task is polled](field@Self::pace).
        pace: Pace => pace;
        /// Sets the [client certificate](field@Self::identity).
        identity: TlsIdentity => Some(identity);
        /// Sets the additional [root certificates](field@Self::roots).
        roots: Vec<RootCertificates> => roots;
        /// Sets the [Redis servers with their credentials](field@Self::redis).
        #[cfg(feature = "redis")]
        redis: Vec<attache_redis::RedisUrl> => redis;
        /// Sets the [extensions](field@Self::extensions) of every request.
        extensions: Vec<String> => extensions;
        /// Sets the [trusted origins](field@Self::trusted_origins).
        trusted_origins: TrustedOrigins => trusted_origins;
        /// Sets [which addresses may be called](field@Self::policy).
        policy: Policy => Some(policy);
        /// Sets [whether an address may be a command](field@Self::commands).
        commands: Commands => commands;
        /// Sets [which signatures a card must have](field@Self::card_trust).
        #[cfg(feature = "signing")]
        card_trust: Verifier => Some(card_trust);
    }

    /// Sets the source of credentials.
    #[must_use]
    pub fn with_credentials(mut self, credentials: impl Credentials) -> Self {
        self.credentials = Some(Arc::new(credentials));
        self
    }

    /// Adds a preferred interface, after those that are preferred already.
    #[must_use]
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
        assert!(endless.wait(u32::MAX) <= MAX_WAIT);
    }
}
