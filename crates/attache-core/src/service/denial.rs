//! Requests for permission that get no answer: the time is over, or the agent does not wait any more.

use std::sync::{Arc, Weak};
use std::time::Duration;

use attache_protocol::{
    Message, Role, SendMessageConfiguration, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
};

use super::Inner;
use crate::permission::{Denial, OpenQuestion, asked_request, denial_part, denial_report};
use crate::turn_state::{TurnRequest, TurnState, WriteState};
use crate::turns::TurnOrder;
use crate::{Agent, Append, AppendError, Caller, Snapshot, StoreError, TaskEvent, new_id, run};

impl Inner {
    /// Runs a turn that gives the denial to the agent, unless the caller has answered. The question is in the log.
    pub(crate) async fn deny(self: Arc<Self>, question: Weak<OpenQuestion>, limit: Duration) {
        if self.is_closing() {
            return;
        }
        match self.try_deny(&question, limit).await {
            Ok(true) => {}
            Ok(false) => self.let_go(&question, limit),
            Err(error) => {
                tracing::warn!(%error, "a request for permission could not be denied in its task");
                self.let_go(&question, limit);
            }
        }
    }

    /// Returns whether the turn was started, or is not needed.
    async fn try_deny(
        self: &Arc<Self>,
        question: &Weak<OpenQuestion>,
        limit: Duration,
    ) -> Result<bool, StoreError> {
        let Some((caller, id)) = question.upgrade().map(|open| (open.caller.clone(), open.task.clone()))
        else {
            return Ok(true);
        };
        let is_asked =
            |snapshot: &Snapshot| question.upgrade().is_some_and(|open| open.is_asked_by(&snapshot.task()));
        let load = async || Ok(self.store.load(&caller.owner, &id).await?.filter(is_asked));
        let Some(snapshot) = load().await? else {
            // A turn of this process may have the answer, and gives it to the agent.
            return Ok(self.turns.has(&id));
        };
        let turn = self.denial_turn(&caller, &snapshot.task(), Denial::new(question.clone(), limit)).await;
        match self.turns.join_queue(&id).await {
            // The turn that asked is not over yet, or the caller has just answered. The turn in the queue finds out.
            TurnOrder::Queued(queued, _) => queued.start_later(&turn),
            TurnOrder::First(first) => {
                let now = self.clock.now();
                // Another server works on the task, or it has ended.
                let Some(lease) = self.store.claim(&id, now, self.lease_end(now)).await? else {
                    return Ok(false);
                };
                match load().await {
                    Ok(Some(snapshot)) => {
                        turn.begin_writing(snapshot, lease);
                        first.start(&turn, lease);
                        self.spawn(run::run(turn, None));
                    }
                    not_asked => {
                        run::release(&*self.store, &id, lease).await;
                        drop(first);
                        return not_asked.map(|_| false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// The turn for a denial. It needs no permit: turns that wait for this one can have all of them.
    async fn denial_turn(self: &Arc<Self>, caller: &Caller, task: &Task, denial: Denial) -> Arc<TurnState> {
        let mut messages = task.history.iter().filter(|message| message.role == Role::User);
        let first = messages.next().cloned().unwrap_or_default();
        let message = messages.next_back().cloned().unwrap_or_else(|| first.clone());
        let context = task.context_id.clone().unwrap_or_default();
        let rules = self.agent.conversation(&first);
        let place = self.place_again(rules, &caller.owner, &context, &task.id, &message).await;
        let request = TurnRequest {
            caller: caller.clone(),
            message,
            configuration: SendMessageConfiguration::default(),
            metadata: None,
            task_id: task.id.clone(),
            context_id: context,
            followed: false,
            rerun: false,
            place,
            denial: Some(denial),
        };
        TurnState::new(self.clone(), request, None, WriteState::Closed("the turn has not begun"))
    }

    /// Makes the agent let go of a request that no turn can deny.
    fn let_go(&self, question: &Weak<OpenQuestion>, limit: Duration) {
        let Some(open) = question.upgrade() else { return };
        if !open.time_out(limit) {
            return;
        }
        let task = open.task.clone();
        drop(open);
        self.agent.task_ended(&task);
    }

    /// Writes to a task that its question is void. It takes other messages then, and can be canceled.
    pub(crate) async fn void_question(&self, caller: &Caller, id: &TaskId, input_id: &str, why: &str) {
        loop {
            let written = match self.store.load(&caller.owner, id).await {
                Ok(Some(snapshot)) => match self.void(&snapshot, input_id, why) {
                    Some(append) => self.store.append(id, append).await,
                    None => return,
                },
                Ok(None) => return,
                Err(error) => Err(AppendError::Store(error)),
            };
            match written {
                // Something was written meanwhile: look again.
                Err(AppendError::Conflict(_)) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(task = %id, %error, "a task could not say that its question is void");
                    return;
                }
            }
        }
    }

    /// What to write to a task that asks the question.
    fn void(&self, snapshot: &Snapshot, input_id: &str, why: &str) -> Option<Append> {
        let task = snapshot.task();
        let request = asked_request(&task, input_id)?;
        let now = self.now_after(task.status.timestamp);
        let metadata = self.options.reports.metadata(&denial_report(&request));
        let message = Message {
            message_id: new_id(),
            context_id: task.context_id.clone(),
            task_id: Some(task.id.clone()),
            role: Role::Agent,
            parts: vec![denial_part(request.title(), why, metadata.clone())],
            ..Message::default()
        };
        let update = TaskStatusUpdateEvent {
            task_id: task.id.clone(),
            context_id: task.context_id.clone().unwrap_or_default(),
            status: TaskStatus {
                state: TaskState::InputRequired,
                message: Some(Box::new(message)),
                timestamp: Some(now),
            },
            metadata,
            ..TaskStatusUpdateEvent::default()
        };
        let events = vec![TaskEvent::Status(Arc::new(update))];
        Some(Append { after: snapshot.seq, lease: None, idempotency: None, push: None, events, now })
    }
}
