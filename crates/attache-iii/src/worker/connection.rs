//! Staying connected: one session after the other, with pauses that grow, for as long as the worker lives.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::session::{self, Ended};
use super::{Connection, Inner, Refusal};
use crate::wire::Reattach;

/// Joins the engine, again and again, until the worker is closed.
pub(super) async fn run(inner: Arc<Inner>) {
    let mut pauses = Pauses::new(inner.options.reconnect_min, inner.options.reconnect_max);
    let mut outage = Outage::NotYet;
    let mut previous: Option<Reattach> = None;
    loop {
        let joined = tokio::select! {
            () = inner.closing.cancelled() => break,
            joined = session::join(&inner) => joined,
        };
        let ended = match joined {
            Ok((socket, registered)) => {
                let begun = Instant::now();
                let ended = session::attend(&inner, socket, &registered, previous.take(), &mut outage).await;
                previous = Some(Reattach {
                    previous_worker_id: registered.worker_id,
                    reattach_token: registered.reattach_token,
                });
                if begun.elapsed() >= inner.options.reconnect_max {
                    pauses.reset();
                }
                ended
            }
            Err(ended) => ended,
        };
        let pause = match ended {
            Ended::Lost(why) => {
                outage.lost(&inner, &why);
                pauses.next()
            }
            Ended::Rejected(refusal) => {
                outage.rejected(&inner, refusal);
                pauses.longest()
            }
            Ended::Closed => break,
        };
        tokio::select! {
            () = inner.closing.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    inner.calls.down();
    inner.state.send_replace(Connection::Closed);
    // Handlers may hold the worker that holds them.
    let registry = std::mem::take(&mut *inner.registry.lock());
    drop(registry);
}

/// What has been said about the engine being away, so that it is said once.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// There has been no connection yet, and nothing to complain about.
    NotYet,
    /// There has been no connection yet, and that has been said.
    Unreached,
    /// There is none: the engine is there.
    Over,
    /// The engine is away.
    Lost,
    /// The engine does not want this worker.
    Rejected(Refusal),
}

impl Outage {
    fn lost(&mut self, inner: &Inner, why: &str) {
        match self {
            Self::NotYet => {
                let engine = inner.dialer.place();
                tracing::warn!(engine, why, "the engine cannot be reached; trying until it can");
                *self = Self::Unreached;
            }
            Self::Over => {
                tracing::warn!(engine = inner.dialer.place(), why, "lost the engine; reconnecting");
                *self = Self::Lost;
            }
            // Whoever was rejected stays so until let in.
            Self::Rejected(_) => return,
            Self::Unreached | Self::Lost => {}
        }
        inner.state.send_if_modified(|state| {
            let changed = *state != Connection::Connecting;
            *state = Connection::Connecting;
            changed
        });
    }

    fn rejected(&mut self, inner: &Inner, refusal: Refusal) {
        if *self == Self::Rejected(refusal.clone()) {
            return;
        }
        tracing::error!(
            engine = inner.dialer.place(),
            code = refusal.code,
            reason = refusal.message,
            hint = hint(&refusal.code),
            "the engine rejects this worker; asking again from time to time"
        );
        inner.state.send_replace(Connection::Rejected(refusal.clone()));
        *self = Self::Rejected(refusal);
    }

    /// How long a connection must last to be believed: who was rejected may be so again, a moment after having been let in.
    pub(super) fn doubt(&self) -> Duration {
        match self {
            Self::NotYet | Self::Unreached | Self::Over | Self::Lost => Duration::ZERO,
            Self::Rejected(_) => Duration::from_secs(1),
        }
    }

    /// The engine is there.
    pub(super) fn over(&mut self, inner: &Inner, worker_id: &str) {
        let (engine, functions) = (inner.dialer.place(), inner.registry.lock().functions());
        match self {
            Self::NotYet | Self::Unreached => {
                tracing::info!(engine, worker_id, functions, "joined the engine");
            }
            Self::Over | Self::Lost | Self::Rejected(_) => {
                tracing::info!(
                    engine,
                    worker_id,
                    functions,
                    "back at the engine; functions registered again"
                );
            }
        }
        *self = Self::Over;
        inner.state.send_replace(Connection::Connected { worker_id: worker_id.to_owned() });
    }
}

fn hint(code: &str) -> &'static str {
    match code {
        "WORKER_NAMESPACE_CONFLICT" => "give this worker another name, or stop the one that has it",
        "AUTH_ERROR" | "401" | "403" => "check the token, and the `rbac` settings of the engine's listener",
        _ => "see the engine's log",
    }
}

/// How long to wait before the next attempt: twice as long each time, and never quite the same.
pub(super) struct Pauses {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Pauses {
    pub(super) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min.min(max) }
    }

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        around(pause)
    }

    fn longest(&self) -> Duration {
        around(self.max)
    }

    pub(super) fn reset(&mut self) {
        self.next = self.min.min(self.max);
    }
}

/// Up to a fifth more or less.
fn around(pause: Duration) -> Duration {
    pause.mul_f64(fastrand::f64().mul_add(0.4, 0.8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
        let mut pauses = Pauses::new(Duration::from_millis(250), Duration::from_secs(5));
        let about = |pause: Duration, millis: u64| {
            let (low, high) = (millis * 8 / 10, millis * 12 / 10);
            let pause = u64::try_from(pause.as_millis()).unwrap();
            assert!((low..=high).contains(&pause), "{pause} is not about {millis}");
        };
        for millis in [250, 500, 1000, 2000, 4000, 5000, 5000] {
            about(pauses.next(), millis);
        }
        about(pauses.longest(), 5000);
        pauses.reset();
        about(pauses.next(), 250);
    }
}
