//! How those who wait for a turn hear of it.

use attache_protocol::Message;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Snapshot;

/// What those who wait for a turn wait for.
#[derive(Debug, Clone)]
pub(crate) enum Progress {
    /// There is a task.
    Task,
    /// The agent answered directly.
    Message(Box<Message>),
    /// The turn is over and left nothing.
    Nothing,
}

/// Tells waiters about the two moments that matter: something exists, and it has settled.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<SignalState>,
    changed: Notify,
}

#[derive(Default)]
struct SignalState {
    begun: Option<Progress>,
    settled: Option<Progress>,
    left: Option<Snapshot>,
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

    /// Tells waiters that the task has settled, and keeps it as it was then.
    pub(crate) fn settle_with(&self, task: Snapshot) {
        {
            let mut state = self.state.lock();
            if state.settled.is_none() {
                state.left = Some(task);
            }
        }
        self.settle(Progress::Task);
    }

    /// The task as it was when it settled, if that was the turn's doing.
    pub(crate) fn left(&self) -> Option<Snapshot> {
        self.state.lock().left.clone()
    }

    /// Waits until there is a task or a message.
    pub(crate) async fn begun(&self) -> Progress {
        self.wait(|state| state.begun.clone()).await
    }

    /// Waits until the task has settled or there is a message.
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
