//! Waiting for a task without a stream.

use attache_protocol::{GENERATION_EXTENSION, GetTaskRequest, Request, Task, TaskId};
use tokio::time::Instant;

use crate::deadline::Deadline;
use crate::operations::require_id;
use crate::{Client, ClientError};

impl Client {
    /// Waits until a task has ended or needs input from the client.
    ///
    /// An agent that counts the changes of its tasks, as Attaché does, responds when the task changes. Other agents are polled
    /// at a [pace](crate::ClientOptions::pace) that slows down. Without a [deadline](crate::ClientOptions::deadline) there is
    /// no time limit.
    pub async fn wait(&self, task: impl Into<TaskId>) -> Result<Task, ClientError> {
        self.wait_until(task, |task| task.status.state.is_settled()).await
    }

    /// Waits until a task meets a condition or has ended.
    ///
    /// ```no_run
    /// # async fn example(agent: attache_client::Client) -> Result<(), attache_client::ClientError> {
    /// let task = agent.wait_until("task-7", |task| !task.artifacts.is_empty()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_until(
        &self,
        task: impl Into<TaskId>,
        mut is_met: impl FnMut(&Task) -> bool,
    ) -> Result<Task, ClientError> {
        let id = task.into();
        let waiting = async {
            let mut looked = Instant::now();
            let mut task = self.read_task(id.clone(), None).await?;
            let mut pauses = 0;
            while !task.status.state.is_terminal() && !is_met(&task) {
                let seen = task.generation;
                if seen.is_none() || pauses > 0 {
                    // The time that the agent delayed its response counts as a part of the pause.
                    pauses += 1;
                    let pause = self.options().pace.wait(pauses).saturating_sub(looked.elapsed());
                    tokio::time::sleep(pause).await;
                }
                looked = Instant::now();
                match self.read_task(id.clone(), seen).await {
                    Ok(now) => task = now,
                    // The task has not changed within the long poll.
                    Err(ClientError::Timeout { .. }) if seen.is_some() => {}
                    Err(error) => return Err(error),
                }
                pauses = if task.generation > seen { 0 } else { pauses.max(1) };
            }
            Ok(task)
        };
        Deadline::after(self.options().deadline).keep(waiting).await
    }

    /// The task, as soon as its [generation](Task::generation) is greater than `than`.
    ///
    /// An agent that does not count changes returns the current task immediately. Other agents may also do so after some time.
    pub async fn get_newer(&self, task: impl Into<TaskId>, than: u64) -> Result<Task, ClientError> {
        self.read_task(task.into(), Some(than)).await
    }

    async fn read_task(&self, id: TaskId, seen: Option<u64>) -> Result<Task, ClientError> {
        let options = self.options();
        let limit = if seen.is_some() { options.long_poll_timeout } else { options.call_timeout };
        let headers = self.request_headers([GENERATION_EXTENSION], None)?;
        let query = GetTaskRequest { id, current_generation: seen, ..GetTaskRequest::default() };
        self.call(&self.transport(), Request::GetTask(query), &headers, limit).await.and_then(require_id)
    }
}
