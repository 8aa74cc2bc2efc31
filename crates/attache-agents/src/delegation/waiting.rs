//! Waiting for the end of a delegated task.

use std::time::Duration;

use attache_client::Reply;
use attache_core::Clock;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::agents::AgentConnection;
use super::record::Record;
use super::{DelegationError, Inner};

/// The pause between two requests to an agent that cannot be waited for. It doubles up to the maximum.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How long the last request after the deadline may take.
const LAST_LOOK: Duration = Duration::from_secs(2);

impl Inner {
    /// Waits until a task has ended or needs input. At the deadline, or if the agent cannot be asked, returns the task as it is known.
    pub(super) async fn settled(&self, mut record: Record, deadline: Instant) -> Record {
        let mut pause = MIN_PAUSE;
        while !record.is_settled() && Instant::now() < deadline {
            match timeout_at(deadline, self.next_state(&record, pause)).await {
                Ok(Ok(next)) => record = next,
                Ok(Err(error)) => {
                    tracing::debug!(task = %record.task.id, %error, "cannot wait for a delegated task");
                    break;
                }
                // The agent may have made progress meanwhile.
                Err(_) => {
                    let last = timeout(LAST_LOOK, self.refresh(record.clone())).await;
                    return last.ok().and_then(Result::ok).unwrap_or(record);
                }
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
        record
    }

    /// The task after a pause, or when it has ended or needs input.
    async fn next_state(&self, record: &Record, pause: Duration) -> Result<Record, DelegationError> {
        let Some(remote_id) = &record.remote_id else {
            // The message is still being sent, in another task of this process.
            sleep(pause).await;
            return Ok(self.table.get(record.task.id.as_str()).await?.unwrap_or_else(|| record.clone()));
        };
        let agent = self.connect(&record.agent_url).await?;
        if let AgentConnection::V0_1(_) = agent {
            sleep(pause).await;
        }
        let task = agent.wait(&self.fetcher, remote_id).await?;
        let mut record = record.clone();
        record.apply_reply(Reply::Task(task), self.clock.now());
        self.table.save(record).await
    }
}
