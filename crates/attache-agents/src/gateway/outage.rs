//! The pauses while a remote agent cannot be reached.

use std::time::Duration;

use attache_client::ClientError;
use attache_core::Turn;

use super::Inner;
use super::fault::{Fault, is_temporary};

/// The pause after the first failure. It doubles with each further one, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The failures in a row to reach the remote agent.
pub(super) struct Outage<'a> {
    gateway: &'a Inner,
    turn: &'a Turn,
    failures: u32,
}

impl<'a> Outage<'a> {
    pub(super) fn new(gateway: &'a Inner, turn: &'a Turn) -> Self {
        Self { gateway, turn, failures: 0 }
    }

    /// The remote task has made progress.
    pub(super) fn end(&mut self) {
        self.failures = 0;
    }

    /// Waits after an error that can pass, and returns any other error.
    pub(super) async fn pause_after(&mut self, error: ClientError) -> Result<(), Fault> {
        if !is_temporary(&error) {
            return Err(error.into());
        }
        if self.failures == 0 {
            self.log(&error);
        }
        self.pause().await;
        Ok(())
    }

    /// Waits a random time between half of the pause and all of it, so that many turns do not come back at the same time.
    pub(super) async fn pause(&mut self) {
        let whole = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures)).min(MAX_PAUSE);
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(whole.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }

    pub(super) fn log(&self, error: &ClientError) {
        let (task, url) = (self.turn.task_id(), &*self.gateway.address);
        tracing::info!(target: super::LOG, %task, url, %error, "cannot follow a remote task at the moment");
    }
}
