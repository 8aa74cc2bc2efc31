//! Calls that asked a question and wait for the answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_protocol::TaskId;
use parking_lot::Mutex;

use super::connection::OpenCall;
use super::question::Question;

/// A call with its question. Dropping it cancels both.
pub(super) struct Waiting {
    pub(super) call: OpenCall,
    pub(super) question: Question,
}

/// The waiting calls, by their tasks.
#[derive(Default)]
pub(super) struct Sessions(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    by_task: HashMap<TaskId, (u64, Waiting)>,
    /// Tells a call from a later one for the same task.
    next: u64,
}

impl Sessions {
    /// Keeps a call for the answer, for a limited time. If too many calls wait, the oldest one is canceled.
    pub(super) fn put(&self, task: TaskId, waiting: Waiting, limit: Duration, max: usize) {
        let mut dropped = Vec::new();
        let number = {
            let mut state = self.0.lock();
            state.next += 1;
            let number = state.next;
            dropped.extend(state.by_task.insert(task.clone(), (number, waiting)));
            while state.by_task.len() > max {
                let oldest = state.by_task.iter().min_by_key(|(_, (number, _))| *number);
                let Some(oldest) = oldest.map(|(task, _)| task.clone()) else { break };
                dropped.extend(state.by_task.remove(&oldest));
            }
            number
        };
        // Outside of the lock, because it wakes other tasks.
        drop(dropped);
        // The timer must not keep calls alive when the agent is gone.
        let sessions = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            let Some(sessions) = sessions.upgrade() else { return };
            let expired = {
                let mut state = sessions.lock();
                let is_same = state.by_task.get(&task).is_some_and(|(other, _)| *other == number);
                if is_same { state.by_task.remove(&task) } else { None }
            };
            drop(expired);
        });
    }

    /// The call that waits for the answer to its question.
    pub(super) fn take(&self, task: &TaskId) -> Option<Waiting> {
        Some(self.0.lock().by_task.remove(task)?.1)
    }
}
