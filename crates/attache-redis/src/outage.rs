//! What is logged while Redis does not answer, and how long to wait between attempts.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::RedisError;

/// How often an outage that goes on is logged.
const AGAIN: Duration = Duration::from_secs(60);

/// Logs the beginning and the end of an outage, and once a minute that it goes on.
#[derive(Debug)]
pub struct Outage {
    /// What cannot be done, such as `read requests`.
    what: &'static str,
    began: Mutex<Option<Began>>,
}

#[derive(Debug)]
struct Began {
    at: Instant,
    logged: Instant,
}

impl Outage {
    /// `what` cannot be done during the outage.
    pub const fn new(what: &'static str) -> Self {
        Self { what, began: Mutex::new(None) }
    }

    /// An attempt failed. Returns whether that was logged.
    pub fn failed(&self, error: &RedisError) -> bool {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match &mut *began {
            Some(began) if now.duration_since(began.logged) < AGAIN => return false,
            Some(began) => {
                began.logged = now;
                let for_s = now.duration_since(began.at).as_secs();
                tracing::warn!(what = self.what, %error, for_s, "Redis still fails, trying again");
            }
            None => {
                *began = Some(Began { at: now, logged: now });
                tracing::warn!(what = self.what, %error, "Redis fails, trying again");
            }
        }
        true
    }

    /// An attempt succeeded. Returns whether that ended an outage.
    pub fn ended(&self) -> bool {
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        match began.take() {
            Some(began) => {
                let after_s = began.at.elapsed().as_secs();
                tracing::info!(what = self.what, after_s, "Redis works again");
                true
            }
            None => false,
        }
    }
}

/// Growing waiting times between attempts.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    /// The first and the longest wait.
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    /// The wait before the next attempt: between half of the back-off and all of it.
    pub fn wait(&mut self) -> Duration {
        let whole = Self::FIRST.saturating_mul(1 << self.0.min(10)).min(Self::LONGEST);
        self.0 = self.0.saturating_add(1);
        whole.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Begins again with the first wait.
    pub fn reset(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use redis::ErrorKind;

    use super::*;

    #[test]
    fn an_outage_is_logged_when_it_begins_and_when_it_ends() {
        let outage = Outage::new("test");
        let error = RedisError::from((ErrorKind::Io, "broken"));
        assert!(!outage.ended());
        assert_eq!(
            [outage.failed(&error), outage.failed(&error), outage.failed(&error)],
            [true, false, false]
        );
        assert_eq!([outage.ended(), outage.ended()], [true, false]);
        assert!(outage.failed(&error));
    }

    #[test]
    fn waits_grow_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..20).map(|_| backoff.wait()).collect();
        assert!(waits[0] <= Backoff::FIRST && waits.iter().all(|wait| *wait <= Backoff::LONGEST));
        assert!(waits[19] >= Backoff::LONGEST / 2);
        backoff.reset();
        assert!(backoff.wait() <= Backoff::FIRST);
    }
}
