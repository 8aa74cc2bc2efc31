//! A time limit for an operation that may need several requests.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::ClientError;

/// When an operation must be complete, if there is a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<(Instant, Duration)>);

impl Deadline {
    pub(crate) fn after(limit: Option<Duration>) -> Self {
        // A limit that the clock cannot represent is no limit.
        Self(limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit))))
    }

    /// Runs a future, and fails when the deadline has passed.
    pub(crate) async fn keep<T>(
        self,
        what: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        match self.0 {
            None => what.await,
            Some((at, limit)) => timeout_at(at, what).await.unwrap_or(Err(ClientError::Timeout { limit })),
        }
    }
}
