//! The turns that run in this process: one per task at a time, each with the messages that wait for it to end.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use attache_protocol::{TaskId, TaskState};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce};

use crate::signal::Progress;
use crate::turn_state::{TurnState, WriteState};
use crate::{Lease, RenewFailure};

/// Why a turn cannot go on when another process has the lease.
pub(crate) const ANOTHER_SERVER: &str = "another server runs the task";

/// The turns that run in this process, by task.
#[derive(Default)]
pub(crate) struct Turns {
    by_task: Mutex<HashMap<TaskId, TaskTurns, RandomState>>,
    /// Notified when the lease of a task is set, and when a task has no turn any more.
    changed: Notify,
}

/// The running turn of a task, and the messages in the queue behind it.
#[derive(Default)]
struct TaskTurns {
    /// `None` until the message of the first turn is in the log.
    running: Option<Arc<TurnState>>,
    /// The lease that this process has on the task. Each turn passes it to the next one, so that no other process can claim the task
    /// in between.
    lease: Option<Lease>,
    queue: VecDeque<Arc<QueuedMessage>>,
    /// The lease is being released. New messages wait until that is done.
    closing: bool,
    /// The task was canceled. A turn that is registered later must not run.
    canceled: bool,
}

impl TaskTurns {
    fn is_running(&self, turn: &Arc<TurnState>) -> bool {
        self.running.as_ref().is_some_and(|running| Arc::ptr_eq(running, turn))
    }
}

/// A message in the queue for a turn.
#[derive(Default)]
pub(crate) struct QueuedMessage {
    /// The turn once the message is in the log, or `None` if the message was rejected.
    turn: SetOnce<Option<Arc<TurnState>>>,
    /// The task has ended, or another process works on it.
    is_over: AtomicBool,
}

impl QueuedMessage {
    /// Waits until it is known whether the message was written to the log.
    pub(crate) async fn turn(&self) -> Option<&Arc<TurnState>> {
        self.turn.wait().await.as_ref()
    }

    /// Makes the caller that waits for the turn read the task instead. This holds for a turn that is set later, too.
    fn settle(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.settle_if_over();
    }

    fn settle_if_over(&self) {
        if self.is_over.load(Ordering::SeqCst)
            && let Some(Some(turn)) = self.turn.get()
        {
            turn.signal.settle(Progress::Task);
        }
    }
}

/// What follows a turn that is over.
pub(crate) enum NextTurn {
    /// The turn of this message.
    Queued(Arc<QueuedMessage>),
    /// No turn. New messages wait until the last one is [removed](Turns::remove).
    None,
    /// No turn: the last one was over before it was registered.
    NotRegistered,
}

/// How a message to an existing task gets its turn.
pub(crate) enum TurnOrder<'a> {
    /// No turn runs in this process. The message needs a lease first.
    First(FirstTurn<'a>),
    /// A turn runs in this process under this lease. The turn of the message follows it.
    Queued(QueuedTurn, Lease),
}

/// The right to run the next turn of a task in this process. Dropping it gives the right back, unless the turn was started.
pub(crate) struct FirstTurn<'a> {
    turns: &'a Turns,
    task: TaskId,
}

impl FirstTurn<'_> {
    /// Registers the turn, whose message is in the log, with its lease.
    pub(crate) fn start(self, turn: &Arc<TurnState>, lease: Lease) {
        let mut canceled = false;
        if let Some(task) = self.turns.by_task.lock().get_mut(&self.task) {
            (task.running, task.lease) = (Some(turn.clone()), Some(lease));
            canceled = task.canceled;
        }
        self.turns.changed.notify_waiters();
        if canceled {
            turn.log.lock().write_state = WriteState::Closed("the task has ended");
            turn.signal.settle(Progress::Task);
        }
    }
}

impl Drop for FirstTurn<'_> {
    fn drop(&mut self) {
        let mut by_task = self.turns.by_task.lock();
        if by_task.get(&self.task).is_some_and(|task| task.running.is_none()) {
            by_task.remove(&self.task);
            drop(by_task);
            self.turns.changed.notify_waiters();
        }
    }
}

/// A position in the queue of a task. Dropping it leaves the queue, unless a turn was set.
pub(crate) struct QueuedTurn(Arc<QueuedMessage>);

impl QueuedTurn {
    /// Sets the turn, whose message is in the log.
    pub(crate) fn start_later(self, turn: &Arc<TurnState>) {
        // Only this value sets the turn, so the call cannot fail.
        let _ = self.0.turn.set(Some(turn.clone()));
        self.0.settle_if_over();
    }
}

impl Drop for QueuedTurn {
    fn drop(&mut self) {
        let _ = self.0.turn.set(None);
    }
}

impl Turns {
    /// Registers a turn that did not finish at its first poll. Its task may not exist yet.
    pub(crate) fn register_running(&self, turn: &Arc<TurnState>) {
        let running = || TaskTurns { running: Some(turn.clone()), ..TaskTurns::default() };
        self.by_task.lock().entry(turn.task_id.clone()).or_insert_with(running);
    }

    /// Registers the turn that has just created its task.
    pub(crate) fn register_created(&self, turn: &Arc<TurnState>, lease: Lease) {
        let mut by_task = self.by_task.lock();
        let task = by_task.entry(turn.task_id.clone()).or_default();
        (task.running, task.lease) = (Some(turn.clone()), Some(lease));
        drop(by_task);
        self.changed.notify_waiters();
    }

    /// Registers a turn, unless its task has one.
    pub(crate) fn try_register(&self, turn: &Arc<TurnState>) -> bool {
        match self.by_task.lock().entry(turn.task_id.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(TaskTurns { running: Some(turn.clone()), ..TaskTurns::default() });
                true
            }
        }
    }

    /// Joins the queue for a turn of the task. Waits while it is not known whether this process has the lease.
    pub(crate) async fn join_queue(&self, task: &TaskId) -> TurnOrder<'_> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.by_task.lock().entry(task.clone()) {
                Entry::Vacant(free) => {
                    free.insert(TaskTurns::default());
                    return TurnOrder::First(FirstTurn { turns: self, task: task.clone() });
                }
                Entry::Occupied(mut task) => {
                    let task = task.get_mut();
                    if let Some(lease) = task.lease
                        && !task.closing
                    {
                        let message = Arc::<QueuedMessage>::default();
                        task.queue.push_back(message.clone());
                        return TurnOrder::Queued(QueuedTurn(message), lease);
                    }
                }
            }
            changed.await;
        }
    }

    pub(crate) fn set_lease(&self, task: &TaskId, lease: Option<Lease>) {
        if let Some(task) = self.by_task.lock().get_mut(task) {
            task.lease = lease;
        }
        self.changed.notify_waiters();
    }

    /// What follows a turn that is over.
    pub(crate) fn next(&self, turn: &Arc<TurnState>) -> NextTurn {
        let mut by_task = self.by_task.lock();
        let Some(task) = by_task.get_mut(&turn.task_id).filter(|task| task.is_running(turn)) else {
            return NextTurn::NotRegistered;
        };
        match task.queue.pop_front() {
            Some(message) => NextTurn::Queued(message),
            None => {
                task.closing = true;
                NextTurn::None
            }
        }
    }

    /// Registers `next` as the running turn instead of `last`.
    pub(crate) fn replace(&self, last: &Arc<TurnState>, next: &Arc<TurnState>) {
        if let Some(task) = self.by_task.lock().get_mut(&last.task_id).filter(|task| task.is_running(last)) {
            task.running = Some(next.clone());
        }
    }

    pub(crate) fn remove(&self, turn: &Arc<TurnState>) {
        let mut by_task = self.by_task.lock();
        if by_task.get(&turn.task_id).is_some_and(|task| task.is_running(turn)) {
            by_task.remove(&turn.task_id);
            drop(by_task);
            self.changed.notify_waiters();
        }
    }

    /// Cancels the turn of a task that has ended, and settles the messages in the queue.
    pub(crate) fn cancel(&self, task: &TaskId) {
        self.settle_queue(task);
        let turn = self.by_task.lock().get_mut(task).and_then(|task| {
            task.canceled = true;
            task.running.clone()
        });
        if let Some(turn) = turn {
            turn.set_context_ending(true);
            turn.signal.settle(Progress::Task);
            turn.cancel().cancel();
        }
    }

    /// Settles the messages that wait for a turn of a task that has ended, even if the running turn takes longer.
    pub(crate) fn settle_queue(&self, task: &TaskId) {
        if let Some(task) = self.by_task.lock().get(task) {
            task.queue.iter().for_each(|message| message.settle());
        }
    }

    /// Stops the turns whose leases were not renewed. `leases` are those that the store was asked to renew.
    pub(crate) fn handle_renew_failures(
        &self,
        leases: &[(TaskId, Lease)],
        failures: Vec<(TaskId, RenewFailure)>,
    ) {
        for (task, failure) in failures {
            let Some((_, lease)) = leases.iter().find(|(leased, _)| *leased == task) else { continue };
            match failure {
                RenewFailure::LeaseLost => self.stop_without_lease(&task, *lease),
                RenewFailure::Ended(state) => self.cancel_ended_elsewhere(&task, *lease, state),
            }
        }
    }

    /// Stops the turn of a task whose lease this process has lost. Another process works on the task, with all messages that are in
    /// the log.
    fn stop_without_lease(&self, task: &TaskId, lease: Lease) {
        let turn = {
            let mut by_task = self.by_task.lock();
            let task = by_task.get_mut(task).filter(|task| task.lease == Some(lease) && !task.closing);
            task.and_then(|task| {
                task.lease = None;
                task.queue.drain(..).for_each(|message| message.settle());
                task.running.clone()
            })
        };
        if let Some(turn) = turn {
            tracing::warn!(task = %turn.task_id, "the lease of a task is lost: another process works on it");
            turn.log.lock().write_state = WriteState::Closed(ANOTHER_SERVER);
            turn.signal.settle(Progress::Task);
            turn.cancel().cancel();
        }
    }

    /// Cancels the turn of a task that another process has ended. A turn that has ended the task itself may go on.
    fn cancel_ended_elsewhere(&self, task: &TaskId, lease: Lease, state: TaskState) {
        let turn = {
            let by_task = self.by_task.lock();
            let task = by_task.get(task).filter(|task| task.lease == Some(lease) && !task.closing);
            task.and_then(|task| task.running.clone())
        };
        if let Some(turn) = turn
            && !turn.has_ended_task()
            && !turn.cancel().is_cancelled()
        {
            tracing::debug!(%task, %state, "another process has ended the task: its turn is canceled");
            self.cancel(task);
        }
    }

    /// The leases that this process has.
    pub(crate) fn leases(&self) -> Vec<(TaskId, Lease)> {
        let by_task = self.by_task.lock();
        let held = by_task.iter().filter(|(_, task)| !task.closing);
        held.filter_map(|(id, task)| Some((id.clone(), task.lease?))).collect()
    }

    pub(crate) fn has(&self, task: &TaskId) -> bool {
        self.by_task.lock().contains_key(task)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_task.lock().len()
    }

    pub(crate) fn running(&self) -> Vec<Arc<TurnState>> {
        self.by_task.lock().values().filter_map(|task| task.running.clone()).collect()
    }
}
