//! How the progress of a turn reaches the callers that wait for it.

use attache_protocol::Message;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Snapshot;

/// What a turn has produced.
#[derive(Debug, Clone)]
pub(crate) enum Progress {
    /// A task.
    Task,
    /// A direct message.
    Message(Box<Message>),
    /// Neither: the turn is over.
    Nothing,
}

/// Wakes waiting callers at two moments: when a task or message exists, and when it has settled.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<SignalState>,
    changed: Notify,
}

#[derive(Default)]
struct SignalState {
    begun: Option<Progress>,
    settled: Option<Progress>,
    final_task: Option<Snapshot>,
}

impl Signal {
    pub(crate) fn begin(&self, progress: Progress) {
        self.state.lock().begun.get_or_insert(progress);
        self.changed.notify_waiters();
    }

    pub(crate) fn settle(&self, progress: Progress) {
        let mut state = self.state.lock();
        state.begun.get_or_insert_with(|| progress.clone());
        state.settled.get_or_insert(progress);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Settles with a task, and keeps the task as it was at that moment.
    pub(crate) fn settle_with(&self, task: Snapshot) {
        {
            let mut state = self.state.lock();
            if state.settled.is_none() {
                state.final_task = Some(task);
            }
        }
        self.settle(Progress::Task);
    }

    /// The task at the moment when it settled, if this turn settled it.
    pub(crate) fn final_task(&self) -> Option<Snapshot> {
        self.state.lock().final_task.clone()
    }

    /// Waits until a task or a message exists.
    pub(crate) async fn begun(&self) -> Progress {
        self.wait(|state| state.begun.clone()).await
    }

    /// Waits until the task has settled or a message exists.
    pub(crate) async fn settled(&self) -> Progress {
        self.wait(|state| state.settled.clone()).await
    }

    async fn wait(&self, look: impl Fn(&SignalState) -> Option<Progress>) -> Progress {
        loop {
            if let Some(progress) = look(&self.state.lock()) {
                return progress;
            }
            let mut wake = std::pin::pin!(self.changed.notified());
            wake.as_mut().enable();
            if look(&self.state.lock()).is_none() {
                wake.await;
            }
        }
    }
}
