//! What can be set about the client.

use std::time::Duration;

use attache_outbound::Policy;

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
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let whole = self.first.saturating_mul(doubled).min(self.longest);
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
    /// How long a stream may be silent before it counts as broken. Servers say something every 15 seconds or so.
    pub idle_timeout: Duration,
    /// The largest answer, in bytes.
    pub max_body: usize,
    /// The largest event of a stream, in bytes.
    pub max_event: usize,
    /// How broken streams are taken up again, and how sends with an idempotency key are repeated.
    pub backoff: Backoff,
    /// The URIs of the extensions to ask for with every request.
    pub extensions: Vec<String>,
    /// Whether a card may lead to another server than the one it is on (another scheme, host or port), by a redirect or by its
    /// interfaces.
    ///
    /// It may by default: agents behind gateways and cards on static hosting do. Where the address of the card comes from
    /// someone who is not trusted, set a [`policy`](Self::policy) as well or say no here.
    pub allow_other_origins: bool,
    /// Which addresses may be called; any, if there is none.
    ///
    /// The URL of the card, where it redirects to and the URL of the interface are checked, and every address that their names
    /// resolve to.
    pub policy: Option<Policy>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            send_timeout: Duration::from_secs(60 * 60),
            call_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            max_body: 16 * 1024 * 1024,
            max_event: 16 * 1024 * 1024,
            backoff: Backoff::default(),
            extensions: Vec::new(),
            allow_other_origins: true,
            policy: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff::default();
        for (attempt, whole) in [(1, 0.2), (2, 0.4), (3, 0.8), (6, 6.4), (7, 10.0), (1000, 10.0)] {
            let wait = backoff.wait(attempt).as_secs_f64();
            assert!((whole / 2.0..=whole).contains(&wait), "{attempt}: {wait}");
        }
    }
}
