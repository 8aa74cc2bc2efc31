//! How long something may take altogether, however many requests it is made of.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::ClientError;

/// When something must be done by, if there is such a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<(Instant, Duration)>);

impl Deadline {
    pub(crate) fn after(limit: Option<Duration>) -> Self {
        // A time that is too far away to be told is never.
        Self(limit.and_then(|limit| Some((Instant::now().checked_add(limit)?, limit))))
    }

    /// Waits for what must be done by then.
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
