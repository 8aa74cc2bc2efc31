//! Processes that asked a question and wait for the answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_protocol::TaskId;
use parking_lot::Mutex;

use super::process::Process;

/// The waiting processes, by their tasks.
#[derive(Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    by_task: HashMap<TaskId, (u64, Process)>,
    /// Tells a process from a later one for the same task.
    next: u64,
}

impl Sessions {
    /// Keeps a process for the answer, until it ends by itself. With a limit, it is stopped after that time.
    pub(super) fn put(&self, task: TaskId, process: Process, limit: Option<Duration>) {
        let ended = process.when_ended();
        let number = {
            let mut waiting = self.0.lock();
            waiting.next += 1;
            let number = waiting.next;
            waiting.by_task.insert(task.clone(), (number, process));
            number
        };
        let sessions = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let has_ended = tokio::select! {
                () = async {
                    match limit {
                        Some(limit) => tokio::time::sleep(limit).await,
                        None => std::future::pending().await,
                    }
                } => false,
                () = ended => true,
            };
            let Some(sessions) = sessions.upgrade() else { return };
            let expired = {
                let mut waiting = sessions.lock();
                let is_same = waiting.by_task.get(&task).is_some_and(|(other, _)| *other == number);
                if is_same { waiting.by_task.remove(&task) } else { None }
            };
            // Without the process, the context is free for other tasks. The answer starts a new one.
            let Some((_, process)) = expired.filter(|_| !has_ended) else { return };
            process.stop().await;
        });
    }

    /// Stops the process that has waited longest, if there is one.
    pub(super) fn stop_oldest(&self) {
        let oldest = {
            let mut waiting = self.0.lock();
            let task =
                waiting.by_task.iter().min_by_key(|(_, (number, _))| *number).map(|(task, _)| task.clone());
            task.and_then(|task| waiting.by_task.remove(&task))
        };
        if let Some((_, process)) = oldest {
            tokio::spawn(process.stop());
        }
    }

    /// The process that waits for the answer to its question, unless it has ended.
    pub(super) fn take(&self, task: &TaskId) -> Option<Process> {
        let (_, process) = self.0.lock().by_task.remove(task)?;
        process.is_running().then_some(process)
    }
}
