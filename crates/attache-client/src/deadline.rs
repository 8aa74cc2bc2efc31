//! A time limit for an operation that may need several requests.

use std::time::Duration;

use futures::FutureExt;
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
    ///
    /// This is no `async fn`: that would reserve the space of `what` twice.
    pub(crate) fn keep<T>(
        self,
        what: impl Future<Output = Result<T, ClientError>>,
    ) -> impl Future<Output = Result<T, ClientError>> {
        match self.0 {
            None => what.left_future(),
            Some((at, limit)) => timeout_at(at, what)
                .map(move |result| result.unwrap_or(Err(ClientError::Timeout { limit })))
                .right_future(),
        }
    }
}
