//! Agents of protocol 0.1. They know no ids of messages, no contexts in events, and no immediate responses. But the gateway chooses the
//! ids of its tasks, so that it can look for the task of a message whose response is lost.

use attache_client::ClientError;
use attache_protocol::{ContextId, TaskId, Version};
use futures::FutureExt;

use super::fault::{Fault, is_temporary};
use super::outage::Outage;
use super::session::{Next, Session};

impl Session<'_> {
    /// Sends the message, unless it is known or can be found out that the remote agent has it.
    pub(super) async fn begin(&mut self) -> Result<Next, Fault> {
        if self.turn.is_rerun() {
            if self.is_accepted() {
                return Ok(Next::Reread);
            }
            if let Some(next) = self.find_task().boxed().await? {
                return Ok(next);
            }
        }
        match self.send().await {
            Err(Fault::Client(error)) if !self.is_accepted() && is_lost_response(&error) => {
                match self.find_task().boxed().await? {
                    Some(next) => Ok(next),
                    None => Err(Fault::Client(error)),
                }
            }
            result => result,
        }
    }

    /// Looks for the task of the message at an agent that may speak 0.1. Waits while the agent cannot be reached. Nothing, if the agent
    /// does not have the message.
    async fn find_task(&mut self) -> Result<Option<Next>, Fault> {
        self.sent_message().await?;
        let Some(id) = self.chosen_task.clone() else { return Ok(None) };
        let mut outage = Outage::new(self.gateway, self.turn);
        loop {
            match self.gateway.client.get(id.clone()).await {
                // The task still has the question. If it asks another one, the answer is given twice.
                Ok(task) if self.continues && task.status.state.is_interrupted() => return Ok(None),
                Ok(task) => {
                    let ends = task.status.state.is_terminal();
                    self.accept(&task.id, task.context_id.as_ref(), ends).await?;
                    return self.apply_task(task, true).await.map(Some);
                }
                Err(error) if is_temporary(&error) => outage.pause_after(error).await?,
                Err(error) => {
                    tracing::debug!(target: super::LOG, %error, "the remote agent does not have the task of a message");
                    return Ok(None);
                }
            }
        }
    }

    /// The context of a task at an agent of 0.1, whose events do not have it: what the message said.
    pub(super) fn session_of(&self, task: &TaskId) -> Option<ContextId> {
        let known = || self.link.context.clone().unwrap_or_else(|| task.as_str().into());
        self.speaks_v0_1().then(known)
    }

    pub(super) fn speaks_v0_1(&self) -> bool {
        self.gateway.client.protocol_version() == Version::V0_1
    }
}

/// Whether the request has been sent, and its response did not arrive.
fn is_lost_response(error: &ClientError) -> bool {
    if let ClientError::Interrupted { cause, .. } = error {
        return is_lost_response(cause);
    }
    matches!(error, ClientError::Broken(_) | ClientError::Timeout { .. })
}
