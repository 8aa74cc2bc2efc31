//! Maintenance: recovering tasks whose turn died with its process, and deleting old tasks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use attache_protocol::{
    Message, Role, SendMessageConfiguration, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};

use super::Service;
use crate::run;
use crate::signal::Progress;
use crate::turn_state::{TurnRequest, TurnState, WriteState};
use crate::{
    Abandoned, Agent, Append, AppendError, Caller, Seq, Snapshot, StoreError, Swept, TaskEvent, new_id,
};

/// How many tasks the store returns or deletes at a time.
const BATCH: usize = 256;

/// How often content is swept if no tasks were deleted: every so many rounds of maintenance.
const ARTIFACT_ROUNDS: u32 = 20;

/// How long a task with a new status may be without a lease: the process that has just added a message is about to start its turn.
const STARTUP_TIME: Duration = Duration::from_secs(1);

/// The result of a recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The number of turns that run again.
    pub rerun: usize,
    /// The number of tasks that were failed.
    pub failed: usize,
}

impl Service {
    /// Runs maintenance until the future is dropped: [recovers](Self::recover) tasks whose turn died, ends contexts that an operator has
    /// closed, and [deletes](Self::prune) old tasks.
    pub async fn run_maintenance(self) {
        let mut rounds = 0;
        loop {
            let pruned = self.sweep().await;
            // The agent at the root removes content, for all agents.
            if self.stores_artifacts() && self.agent_name().is_none() {
                if pruned > 0 || rounds % ARTIFACT_ROUNDS == 0 {
                    self.remove_content().await;
                }
                rounds += 1;
            }
            tokio::time::sleep(self.0.options.lease).await;
        }
    }

    async fn remove_content(&self) {
        match self.sweep_artifacts().await {
            Ok(swept) if swept == Swept::default() => {}
            Ok(Swept { tasks, expired, bytes }) => {
                tracing::info!(tasks, expired, bytes, "removed the content of artifacts");
            }
            Err(error) => tracing::warn!(%error, "the content of artifacts could not be removed"),
        }
    }

    /// Returns the number of tasks that were deleted.
    async fn sweep(&self) -> usize {
        match self.recover().await {
            Ok(recovered) if recovered == Recovered::default() => {}
            Ok(Recovered { rerun, failed }) => {
                tracing::info!(rerun, failed, "recovered tasks whose turn had died");
            }
            Err(error) => tracing::warn!(%error, "tasks whose turn died could not be recovered"),
        }
        if let Err(error) = self.end_closed_contexts().await {
            tracing::warn!(%error, "contexts that were closed could not be ended");
        }
        match self.prune().await {
            Ok(0) => 0,
            Ok(count) => {
                tracing::info!(count, "deleted old tasks");
                count
            }
            Err(error) => {
                tracing::warn!(%error, "old tasks could not be deleted");
                0
            }
        }
    }

    /// Ends the contexts in memory that an operator has closed in the store.
    async fn end_closed_contexts(&self) -> Result<(), StoreError> {
        for key in self.0.contexts.open_keys() {
            if self.0.records.get(&key).await?.is_some_and(|record| record.closed.is_some()) {
                self.0.contexts.close(&key);
            }
        }
        Ok(())
    }

    /// Recovers tasks whose turn died with its process. The turn runs again if the agent is
    /// [restartable](crate::Agent::restartable). Otherwise the task fails, with a message that says why.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let mut recovered = Recovered::default();
        let (mut waiting, mut waited) = (HashMap::<TaskId, Seq>::new(), false);
        // A server that stops leaves these tasks to other servers.
        while !self.0.closing.load(Ordering::Relaxed) {
            let (before, now) = (recovered, self.0.clock.now());
            for abandoned in self.0.store.abandoned(self.0.options.agent_name.as_deref(), now, BATCH).await? {
                let (id, seq) = (abandoned.task.task().id.clone(), abandoned.task.seq);
                if self.0.turns.has(&id) {
                    // Its turn runs in this process, even if its lease has expired.
                    continue;
                }
                if is_new(&abandoned.task, now) && !(waited && waiting.get(&id) == Some(&seq)) {
                    // Tasks that are found after the wait are checked in the next sweep.
                    if !waited {
                        waiting.insert(id, seq);
                    }
                } else if self.0.restarts(Some(&abandoned.task), &Message::default()) {
                    recovered.rerun += usize::from(self.rerun(abandoned).await);
                } else {
                    recovered.failed += usize::from(self.fail_abandoned(abandoned).await?);
                }
            }
            if recovered == before {
                if waiting.is_empty() || waited {
                    break;
                }
                tokio::time::sleep(STARTUP_TIME).await;
                waited = true;
            }
        }
        Ok(recovered)
    }

    /// Runs the turn of a task again. Returns whether it was started.
    async fn rerun(&self, Abandoned { owner, task: before }: Abandoned) -> bool {
        let task = before.task();
        let last_message = task.history.iter().rev().find(|message| message.role == Role::User);
        let first = task.history.iter().find(|message| message.role == Role::User).or(last_message);
        let rules = first.and_then(|first| self.0.agent.conversation(first));
        let context = task.context_id.clone().unwrap_or_default();
        let none = Message::default();
        let place =
            self.0.place_again(rules, &owner, &context, &task.id, last_message.unwrap_or(&none)).await;
        let request = TurnRequest {
            caller: Caller { owner, ..Caller::default() },
            message: last_message.cloned().unwrap_or_default(),
            configuration: SendMessageConfiguration::default(),
            metadata: None,
            task_id: task.id.clone(),
            context_id: task.context_id.clone().unwrap_or_default(),
            followed: false,
            rerun: true,
            place,
            denial: None,
        };
        let turn = TurnState::new(
            self.0.clone(),
            request,
            Some(before.clone()),
            WriteState::Closed("the turn has not begun"),
        );
        turn.signal.begin(Progress::Task);
        if !self.0.turns.try_register(&turn) {
            return false;
        }
        if let Err(error) = run::take_over(&turn, None).await {
            tracing::debug!(task = %turn.task_id, %error, "another process has recovered the task");
            run::withdraw(turn);
            return false;
        }
        let starts = !matches!(turn.log.lock().write_state, WriteState::Closed(_));
        self.0.spawn(run::run(turn, None));
        starts
    }

    /// Fails a task whose turn died. Returns `false` if the task was recovered by another process.
    async fn fail_abandoned(
        &self,
        Abandoned { owner: _, task: left }: Abandoned,
    ) -> Result<bool, StoreError> {
        let task = left.task();
        let now = self.0.clock.now();
        // Only the holder of the lease writes, so that two servers do not fail the same task.
        let Some(lease) = self.0.store.claim(&task.id, now, self.0.lease_end(now)).await? else {
            return Ok(false);
        };
        let now = self.0.now_after(task.status.timestamp);
        let message = Message {
            message_id: new_id(),
            context_id: task.context_id.clone(),
            task_id: Some(task.id.clone()),
            role: Role::Agent,
            parts: vec!["the server stopped while the agent was at work: send the message again".into()],
            ..Message::default()
        };
        let update = TaskStatusUpdateEvent {
            task_id: task.id.clone(),
            context_id: task.context_id.clone().unwrap_or_default(),
            status: TaskStatus {
                state: TaskState::Failed,
                message: Some(Box::new(message)),
                timestamp: Some(now),
            },
            ..TaskStatusUpdateEvent::default()
        };
        let events = vec![TaskEvent::Status(Arc::new(update))];
        let append =
            Append { after: left.seq, lease: Some(lease), idempotency: None, push: None, events, now };
        let failed = match self.0.store.append(&task.id, append).await {
            Ok(_) => return Ok(true),
            Err(AppendError::Store(error)) => return Err(error),
            // Another process was faster. The next sweep checks the task again.
            Err(error) => error,
        };
        tracing::debug!(task = %task.id, error = %failed, "another process continued the task");
        self.0.store.release(&task.id, lease).await?;
        Ok(false)
    }

    /// Deletes tasks that have ended, as the options say. Returns their number.
    pub async fn prune(&self) -> Result<usize, StoreError> {
        let retention = &self.0.options.retention;
        let mut count = 0;
        while retention.max_age.is_some() || retention.max_tasks.is_some() {
            let pruned = self.0.store.prune(retention, self.0.clock.now(), BATCH).await?;
            count += pruned;
            if pruned < BATCH {
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(count)
    }
}

/// Whether the status of a task is so new that its turn may be about to start.
fn is_new(task: &Snapshot, now: Timestamp) -> bool {
    let since = task.task().status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
    now.as_nanos() - since.as_nanos() < STARTUP_TIME.as_nanos() as i128
}
