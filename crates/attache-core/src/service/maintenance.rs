//! What goes on beside the requests: taking care of tasks that were left behind, and forgetting those that are old.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use attache_protocol::{
    Message, Role, SendMessageConfiguration, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};

use super::Service;
use crate::run;
use crate::shared::{Origin, Position, Shared};
use crate::signal::Progress;
use crate::{Abandoned, Agent, Append, AppendError, Caller, Seq, Snapshot, StoreError, TaskEvent, new_id};

/// How many tasks are looked after at a time.
const BATCH: usize = 256;

/// How long a task with a new status may be nobody's: whoever has just added a message to it is about to begin its turn.
const MOMENT: Duration = Duration::from_secs(1);

/// What became of tasks that were left behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// How many turns were begun again.
    pub rerun: usize,
    /// How many tasks were failed.
    pub failed: usize,
}

impl Service {
    /// Takes care of tasks for as long as it is polled: those whose turn died are [recovered](Self::recover), and those that
    /// have ended are forgotten as the options say.
    pub async fn run_maintenance(self) {
        loop {
            self.maintain().await;
            tokio::time::sleep(self.0.options.lease).await;
        }
    }

    async fn maintain(&self) {
        match self.recover().await {
            Ok(recovered) if recovered == Recovered::default() => {}
            Ok(Recovered { rerun, failed }) => {
                tracing::info!(rerun, failed, "took care of tasks whose turn had died");
            }
            Err(error) => tracing::warn!(%error, "tasks whose turn died could not be recovered"),
        }
        match self.prune().await {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "forgot old tasks"),
            Err(error) => tracing::warn!(%error, "old tasks could not be forgotten"),
        }
    }

    /// Takes care of tasks whose turn died with its process: it is run again if the agent is
    /// [restartable](crate::Agent::restartable), and otherwise the task fails and says why.
    pub async fn recover(&self) -> Result<Recovered, StoreError> {
        let mut recovered = Recovered::default();
        let (mut waiting, mut waited) = (HashMap::<TaskId, Seq>::new(), false);
        // A server that stops leaves what it finds to the others.
        while !self.0.closing.load(Ordering::Relaxed) {
            let (before, now) = (recovered, self.0.clock.now());
            for abandoned in self.0.store.abandoned(now, BATCH).await? {
                let (id, seq) = (abandoned.task.task().id.clone(), abandoned.task.seq);
                if self.0.turns.has(&id) {
                    // Its turn is here and alive, whatever the clock says.
                    continue;
                }
                if is_new(&abandoned.task, now) && !(waited && waiting.get(&id) == Some(&seq)) {
                    // Those that come after the wait are looked at next time.
                    if !waited {
                        waiting.insert(id, seq);
                    }
                } else if self.0.agent.restartable() {
                    recovered.rerun += usize::from(self.rerun(abandoned).await);
                } else {
                    recovered.failed += usize::from(self.fail_abandoned(abandoned).await?);
                }
            }
            if recovered == before {
                if waiting.is_empty() || waited {
                    break;
                }
                tokio::time::sleep(MOMENT).await;
                waited = true;
            }
        }
        Ok(recovered)
    }

    /// Begins the turn of a task again. Whether that could be done.
    async fn rerun(&self, Abandoned { owner, task: before }: Abandoned) -> bool {
        let task = before.task();
        let asked = task.history.iter().rev().find(|message| message.role == Role::User);
        let origin = Origin {
            caller: Caller { owner, ..Caller::default() },
            message: asked.cloned().unwrap_or_default(),
            configuration: SendMessageConfiguration::default(),
            metadata: None,
            task_id: task.id.clone(),
            context_id: task.context_id.clone().unwrap_or_default(),
            followed: false,
            rerun: true,
        };
        let turn = Shared::new(
            self.0.clone(),
            origin,
            Some(before.clone()),
            Position::Over("the turn has not begun"),
        );
        turn.signal.begin(Progress::Task);
        if !self.0.turns.start(&turn) {
            return false;
        }
        if let Err(error) = run::take_over(&turn, None).await {
            tracing::debug!(task = %turn.task_id, %error, "a task is looked after by someone else");
            run::give_up(turn);
            return false;
        }
        let begins = !matches!(turn.log.lock().position, Position::Over(_));
        self.0.spawn(run::run(turn, None));
        begins
    }

    /// Fails a task whose turn died. Whether it was still to be failed.
    async fn fail_abandoned(
        &self,
        Abandoned { owner: _, task: left }: Abandoned,
    ) -> Result<bool, StoreError> {
        let task = left.task();
        let now = self.0.clock.now();
        // Whoever has the lease writes: two servers that find the task do not both.
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
            // Someone was quicker. What they made of the task is looked at next time.
            Err(error) => error,
        };
        tracing::debug!(task = %task.id, error = %failed, "a task whose turn had died went on without it");
        self.0.store.release(&task.id, lease).await?;
        Ok(false)
    }

    /// Forgets tasks that have ended, as the options say. How many they were.
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

/// Whether a task got its status only a moment ago.
fn is_new(task: &Snapshot, now: Timestamp) -> bool {
    let since = task.task().status.timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
    now.as_nanos() - since.as_nanos() < MOMENT.as_nanos() as i128
}
