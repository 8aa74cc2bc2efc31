//! The connection for everything but reading entries. Commands are repeated until Redis has done them.

use attache_redis::redis::{Cmd, RedisError, Value};
use attache_redis::{Backoff, Connection, Outage, RedisUrl, connect, is_transient};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{ANSWER, CONNECT};

pub(super) struct Link {
    url: RedisUrl,
    connection: Mutex<Option<Connection>>,
    outage: Outage,
    draining: CancellationToken,
}

/// Why a command was not done.
struct Failed {
    error: RedisError,
    /// Whether it may be done later.
    passes: bool,
}

impl Link {
    pub(super) fn new(url: RedisUrl, draining: CancellationToken) -> Self {
        Self { url, connection: Mutex::default(), outage: Outage::new("share push notifications"), draining }
    }

    /// Runs a command, with as many attempts as it takes. Fails if Redis refuses it for good, or if the server stops.
    pub(super) async fn run(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut backoff = Backoff::default();
        loop {
            let Failed { error, passes } = match self.attempt(command).await {
                Ok(value) => {
                    self.outage.ended();
                    return Ok(value);
                }
                Err(failed) => failed,
            };
            if !passes || self.draining.is_cancelled() {
                return Err(error);
            }
            self.outage.failed(&error);
            tokio::select! {
                () = tokio::time::sleep(backoff.wait()) => {}
                () = self.draining.cancelled() => {}
            }
        }
    }

    async fn attempt(&self, command: &Cmd) -> Result<Value, Failed> {
        // Also after a wrong password it tries again: Redis may get that password later.
        let mut connection = self.connection().await.map_err(|error| Failed { error, passes: true })?;
        match command.query_async(&mut connection).await {
            Ok(value) => Ok(value),
            Err(error) => {
                // After such an error the connection may never answer again.
                if error.is_io_error() || error.is_unrecoverable_error() {
                    *self.connection.lock().await = None;
                }
                Err(Failed { passes: is_transient(&error), error })
            }
        }
    }

    async fn connection(&self) -> Result<Connection, RedisError> {
        let mut connection = self.connection.lock().await;
        match &*connection {
            Some(connection) => Ok(connection.clone()),
            None => Ok(connection.insert(connect(&self.url, CONNECT, ANSWER, None).await?).clone()),
        }
    }
}
