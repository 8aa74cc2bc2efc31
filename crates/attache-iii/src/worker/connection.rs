//! Keeps the worker connected: one session after another, with back-off between them, until the worker is closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::session::{self, SessionEnd};
use super::{Connection, Inner, Rejection};
use crate::wire::Reattach;

/// Connects to the engine again and again, until the worker is closed.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut backoff = Backoff::new(inner.options.reconnect_min, inner.options.reconnect_max);
    let mut log = LinkLog::NeverConnected;
    let mut previous: Option<Reattach> = None;
    loop {
        let connected = tokio::select! {
            () = inner.closing.cancelled() => break,
            result = session::connect(&inner) => result,
        };
        let ended = match connected {
            Ok((socket, registered)) => {
                let begun = Instant::now();
                let ended = session::run(&inner, socket, &registered, previous.take(), &mut log).await;
                previous = Some(Reattach {
                    previous_worker_id: registered.worker_id,
                    reattach_token: registered.reattach_token,
                });
                if begun.elapsed() >= inner.options.reconnect_max {
                    backoff.reset();
                }
                ended
            }
            Err(ended) => ended,
        };
        let delay = match ended {
            SessionEnd::Lost(why) => {
                log.lost(&inner, &why);
                backoff.next()
            }
            SessionEnd::Rejected(rejection) => {
                log.rejected(&inner, rejection);
                backoff.max_delay()
            }
            SessionEnd::Closed => break,
        };
        tokio::select! {
            () = inner.closing.cancelled() => break,
            () = tokio::time::sleep(delay) => {}
        }
    }
    inner.calls.disconnect();
    inner.state.send_replace(Connection::Closed);
    // Handlers may hold the worker that holds them. Dropping the registry breaks the cycle.
    let registry = std::mem::take(&mut *inner.registry.lock());
    drop(registry);
}

/// What was logged about the connection, so that each change is logged once.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkLog {
    /// There was no connection yet, and nothing was logged.
    NeverConnected,
    /// There was no connection yet, and this was logged.
    Unreachable,
    /// The worker is connected.
    Connected,
    /// The connection was lost.
    Lost,
    /// The engine rejected the worker.
    Rejected(Rejection),
}

impl LinkLog {
    fn lost(&mut self, inner: &Inner, why: &str) {
        match self {
            Self::NeverConnected => {
                let engine = inner.dialer.address();
                tracing::warn!(engine, why, "cannot connect to the engine; retrying");
                *self = Self::Unreachable;
            }
            Self::Connected => {
                tracing::warn!(
                    engine = inner.dialer.address(),
                    why,
                    "lost the connection to the engine; reconnecting"
                );
                *self = Self::Lost;
            }
            // A rejected worker stays rejected until the engine accepts it.
            Self::Rejected(_) => return,
            Self::Unreachable | Self::Lost => {}
        }
        inner.state.send_if_modified(|state| {
            let changed = *state != Connection::Connecting;
            *state = Connection::Connecting;
            changed
        });
    }

    fn rejected(&mut self, inner: &Inner, rejection: Rejection) {
        if *self == Self::Rejected(rejection.clone()) {
            return;
        }
        tracing::error!(
            engine = inner.dialer.address(),
            code = rejection.code,
            reason = rejection.message,
            hint = hint(&rejection.code),
            "the engine rejected this worker; retrying"
        );
        inner.state.send_replace(Connection::Rejected(rejection.clone()));
        *self = Self::Rejected(rejection);
    }

    /// How long a connection must last until it counts as connected. The engine may reject a worker shortly after the connection.
    pub(super) fn confirm_after(&self) -> Duration {
        match self {
            Self::NeverConnected | Self::Unreachable | Self::Connected | Self::Lost => Duration::ZERO,
            Self::Rejected(_) => Duration::from_secs(1),
        }
    }

    /// Records that the worker is connected.
    pub(super) fn connected(&mut self, inner: &Inner, worker_id: &str) {
        let (engine, functions) = (inner.dialer.address(), inner.registry.lock().functions());
        match self {
            Self::NeverConnected | Self::Unreachable => {
                tracing::info!(engine, worker_id, functions, "connected to the engine");
            }
            Self::Connected | Self::Lost | Self::Rejected(_) => {
                tracing::info!(
                    engine,
                    worker_id,
                    functions,
                    "reconnected to the engine; functions registered again"
                );
            }
        }
        *self = Self::Connected;
        inner.state.send_replace(Connection::Connected { worker_id: worker_id.to_owned() });
    }
}

fn hint(code: &str) -> &'static str {
    match code {
        "WORKER_NAMESPACE_CONFLICT" => "give this worker another name, or stop the worker that has this name",
        "AUTH_ERROR" | "401" | "403" => "check the token, and the `rbac` settings of the engine's listener",
        _ => "see the engine's log",
    }
}

/// The back-off between attempts: it doubles each time, with jitter.
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min.min(max) }
    }

    pub(super) fn next(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        with_jitter(delay)
    }

    fn max_delay(&self) -> Duration {
        with_jitter(self.max)
    }

    pub(super) fn reset(&mut self) {
        self.next = self.min.min(self.max);
    }
}

/// Adds jitter of up to a fifth.
fn with_jitter(delay: Duration) -> Duration {
    delay.mul_f64(fastrand::f64().mul_add(0.4, 0.8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_the_maximum_and_can_be_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5));
        let assert_about = |delay: Duration, millis: u64| {
            let (low, high) = (millis * 8 / 10, millis * 12 / 10);
            let delay = u64::try_from(delay.as_millis()).unwrap();
            assert!((low..=high).contains(&delay), "{delay} is not about {millis}");
        };
        for millis in [250, 500, 1000, 2000, 4000, 5000, 5000] {
            assert_about(backoff.next(), millis);
        }
        assert_about(backoff.max_delay(), 5000);
        backoff.reset();
        assert_about(backoff.next(), 250);
    }
}
