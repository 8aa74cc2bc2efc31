//! The life of a turn: started, watched over, and brought to a defined end whatever the agent does.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use attache_protocol::{Part, TaskId, TaskState};
use foldhash::fast::RandomState;
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce};

use crate::agent::Kind;
use crate::shared::{Position, Shared};
use crate::signal::Progress;
use crate::turn::MAX_UNWRITTEN;
use crate::{Agent, AgentError, AgentResult, BoxFuture, Lease, Permit, RenewFailure, Store, Turn, new_id};

/// The turns that run in this process, one per task, each with the messages that wait for it to end.
#[derive(Default)]
pub(crate) struct Turns {
    running: Mutex<HashMap<TaskId, Running, RandomState>>,
    /// A lease became known, or a task has no turn any more.
    changed: Notify,
}

#[derive(Default)]
struct Running {
    /// Nothing while its message is not in the log yet.
    turn: Option<Arc<Shared>>,
    /// The lease that this process has on the task. It goes from turn to turn, so that no other process gets in between.
    lease: Option<Lease>,
    waiting: VecDeque<Arc<Ticket>>,
    /// The lease is being given back. New messages wait until that is done.
    closing: bool,
    /// The task was canceled while there was no turn to tell.
    canceled: bool,
}

impl Running {
    fn is(&self, turn: &Arc<Shared>) -> bool {
        self.turn.as_ref().is_some_and(|running| Arc::ptr_eq(running, turn))
    }
}

/// A place in line for a message whose turn comes later.
#[derive(Default)]
struct Ticket {
    /// The turn once the message is in the log, or nothing if the message was refused.
    turn: SetOnce<Option<Arc<Shared>>>,
    /// The task has ended, or another process works on it.
    over: AtomicBool,
}

impl Ticket {
    /// Tells the caller that waits for the turn to look at the task instead, also if the turn is set later.
    fn settle(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.settle_if_over();
    }

    fn settle_if_over(&self) {
        if self.over.load(Ordering::SeqCst)
            && let Some(Some(turn)) = self.turn.get()
        {
            turn.signal.settle(Progress::Task);
        }
    }
}

/// What comes after a turn that is over.
enum Next {
    /// The next in line.
    Ticket(Arc<Ticket>),
    /// Nothing. New messages wait until the turn is [removed](Turns::remove).
    Nothing,
    /// Nothing: the turn was over before it was noted.
    Unnoted,
}

/// How a message to a task that exists gets its turn.
pub(crate) enum Line<'a> {
    /// No turn runs in this process. The message needs a lease first.
    First(First<'a>),
    /// A turn runs in this process under this lease, and the message's turn comes after it.
    Behind(Behind, Lease),
}

/// The right to run the next turn of a task in this process. It is given back if no turn comes of it.
pub(crate) struct First<'a> {
    turns: &'a Turns,
    task: TaskId,
}

impl First<'_> {
    /// Notes the turn, whose message is in the log, and the lease that it has.
    pub(crate) fn start(self, turn: &Arc<Shared>, lease: Lease) {
        let mut canceled = false;
        if let Some(running) = self.turns.running.lock().get_mut(&self.task) {
            (running.turn, running.lease) = (Some(turn.clone()), Some(lease));
            canceled = running.canceled;
        }
        self.turns.changed.notify_waiters();
        if canceled {
            turn.log.lock().position = Position::Over("the task has ended");
            turn.signal.settle(Progress::Task);
        }
    }
}

impl Drop for First<'_> {
    fn drop(&mut self) {
        let mut running = self.turns.running.lock();
        if running.get(&self.task).is_some_and(|running| running.turn.is_none()) {
            running.remove(&self.task);
            drop(running);
            self.turns.changed.notify_waiters();
        }
    }
}

/// A place in line. It is given up if no turn comes of it.
pub(crate) struct Behind(Arc<Ticket>);

impl Behind {
    /// Notes the turn, whose message is in the log.
    pub(crate) fn start_later(self, turn: &Arc<Shared>) {
        // Nothing else sets it before this is dropped.
        let _ = self.0.turn.set(Some(turn.clone()));
        self.0.settle_if_over();
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        let _ = self.0.turn.set(None);
    }
}

impl Turns {
    /// Notes a turn that takes its time, also while there is no task yet.
    pub(crate) fn note(&self, turn: &Arc<Shared>) {
        let running = || Running { turn: Some(turn.clone()), ..Running::default() };
        self.running.lock().entry(turn.task_id.clone()).or_insert_with(running);
    }

    /// Notes the turn that has just created its task.
    pub(crate) fn register(&self, turn: &Arc<Shared>, lease: Lease) {
        let mut turns = self.running.lock();
        let running = turns.entry(turn.task_id.clone()).or_default();
        (running.turn, running.lease) = (Some(turn.clone()), Some(lease));
        drop(turns);
        self.changed.notify_waiters();
    }

    /// Puts a message to a task in line for a turn. Waits while it is not known whether this process has the lease.
    pub(crate) async fn line_up(&self, task: &TaskId) -> Line<'_> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.running.lock().entry(task.clone()) {
                Entry::Vacant(free) => {
                    free.insert(Running::default());
                    return Line::First(First { turns: self, task: task.clone() });
                }
                Entry::Occupied(mut running) => {
                    let running = running.get_mut();
                    if let Some(lease) = running.lease
                        && !running.closing
                    {
                        let ticket = Arc::<Ticket>::default();
                        running.waiting.push_back(ticket.clone());
                        return Line::Behind(Behind(ticket), lease);
                    }
                }
            }
            changed.await;
        }
    }

    /// Whether the turn may start now; otherwise nothing comes of it.
    pub(crate) fn start(&self, turn: &Arc<Shared>) -> bool {
        match self.running.lock().entry(turn.task_id.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(Running { turn: Some(turn.clone()), ..Running::default() });
                true
            }
        }
    }

    fn set_lease(&self, task: &TaskId, lease: Option<Lease>) {
        if let Some(running) = self.running.lock().get_mut(task) {
            running.lease = lease;
        }
        self.changed.notify_waiters();
    }

    /// What comes after a turn that is over.
    fn next(&self, turn: &Arc<Shared>) -> Next {
        let mut turns = self.running.lock();
        let Some(running) = turns.get_mut(&turn.task_id).filter(|running| running.is(turn)) else {
            return Next::Unnoted;
        };
        match running.waiting.pop_front() {
            Some(ticket) => Next::Ticket(ticket),
            None => {
                running.closing = true;
                Next::Nothing
            }
        }
    }

    /// Lets the next turn take the place of the one before.
    fn replace(&self, before: &Arc<Shared>, next: &Arc<Shared>) {
        if let Some(running) = self.running.lock().get_mut(&before.task_id).filter(|it| it.is(before)) {
            running.turn = Some(next.clone());
        }
    }

    fn remove(&self, turn: &Arc<Shared>) {
        let mut turns = self.running.lock();
        if turns.get(&turn.task_id).is_some_and(|running| running.is(turn)) {
            turns.remove(&turn.task_id);
            drop(turns);
            self.changed.notify_waiters();
        }
    }

    /// Tells the turn of a task, and those who wait for it, that the task is canceled.
    pub(crate) fn cancel(&self, task: &TaskId) {
        self.ended(task);
        let turn = self.running.lock().get_mut(task).and_then(|running| {
            running.canceled = true;
            running.turn.clone()
        });
        if let Some(turn) = turn {
            turn.signal.settle(Progress::Task);
            turn.cancel().cancel();
        }
    }

    /// Breaks off the turn of a task whose lease this process has lost. Another process works on the task, with all messages that
    /// are in the log.
    fn lose(&self, task: &TaskId, lease: Lease) {
        let turn = {
            let mut turns = self.running.lock();
            let running = turns.get_mut(task).filter(|it| it.lease == Some(lease) && !it.closing);
            running.and_then(|running| {
                running.lease = None;
                running.waiting.drain(..).for_each(|ticket| ticket.settle());
                running.turn.clone()
            })
        };
        if let Some(turn) = turn {
            tracing::warn!(task = %turn.task_id, "the lease of a task is lost: another process works on it");
            turn.log.lock().position = Position::Over(ELSEWHERE);
            turn.signal.settle(Progress::Task);
            turn.cancel().cancel();
        }
    }

    /// Cancels the turn of a task that another process has ended. A turn that has ended the task itself may go on.
    fn ended_elsewhere(&self, task: &TaskId, lease: Lease, state: TaskState) {
        let running = {
            let turns = self.running.lock();
            let running = turns.get(task).filter(|it| it.lease == Some(lease) && !it.closing);
            running.and_then(|running| running.turn.clone())
        };
        if let Some(turn) = running
            && !turn.has_ended_task()
            && !turn.cancel().is_cancelled()
        {
            tracing::debug!(%task, %state, "another process has ended the task: its turn is canceled");
            self.cancel(task);
        }
    }

    /// Tells those who wait for a turn that the task has ended, however long the turn that runs still takes.
    pub(crate) fn ended(&self, task: &TaskId) {
        if let Some(running) = self.running.lock().get(task) {
            running.waiting.iter().for_each(|ticket| ticket.settle());
        }
    }

    /// Stops the turns whose leases could not be renewed. `leases` are those that were to be renewed.
    pub(crate) fn handle_renew_failures(
        &self,
        leases: &[(TaskId, Lease)],
        failures: Vec<(TaskId, RenewFailure)>,
    ) {
        for (task, failure) in failures {
            let Some((_, lease)) = leases.iter().find(|(leased, _)| *leased == task) else { continue };
            match failure {
                RenewFailure::LeaseLost => self.lose(&task, *lease),
                RenewFailure::Ended(state) => self.ended_elsewhere(&task, *lease, state),
            }
        }
    }

    pub(crate) fn leases(&self) -> Vec<(TaskId, Lease)> {
        let turns = self.running.lock();
        let held = turns.iter().filter(|(_, running)| !running.closing);
        held.filter_map(|(task, running)| Some((task.clone(), running.lease?))).collect()
    }

    pub(crate) fn has(&self, task: &TaskId) -> bool {
        self.running.lock().contains_key(task)
    }

    pub(crate) fn len(&self) -> usize {
        self.running.lock().len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Shared>> {
        self.running.lock().values().filter_map(|running| running.turn.clone()).collect()
    }
}

/// Why a turn cannot go on when another process has the lease.
pub(crate) const ELSEWHERE: &str = "another server runs the task";

/// Runs a turn and then those that waited for it. They have one place among the caller's turns.
pub(crate) async fn run(turn: Arc<Shared>, permit: Option<Permit>) {
    // Held by the future itself, so that it is free whichever way the turns end.
    let _permit = permit;
    run_one(&turn).await;
    run_waiting(turn).await;
}

/// Closes a turn, and runs those that wait for it.
async fn run_waiting(turn: Arc<Shared>) {
    let mut last = turn;
    while let Some((next, lease)) = close(&last).await {
        match Box::pin(take_over(&next, lease)).await {
            Ok(()) => run_one(&next).await,
            Err(error) => {
                tracing::warn!(task = %next.task_id, %error, "a message could not get its turn");
                // Its message is in the log: where another process works on the task, it is that one's to answer.
                next.signal.settle(if error.is_over() { Progress::Task } else { Progress::Nothing });
            }
        }
        last = next;
    }
}

/// Withdraws a turn that could not begin, and lets those that waited for it try.
pub(crate) fn give_up(turn: Arc<Shared>) {
    turn.service.clone().spawn(run_waiting(turn));
}

/// Breaks a turn off without a word about it, so that another process can run it again.
pub(crate) async fn leave(turn: &Arc<Shared>) {
    let (lease, progress) = put_down(turn);
    release_of(turn, lease).await;
    turn.service.turns.set_lease(&turn.task_id, None);
    turn.signal.settle(progress);
    turn.cancel().cancel();
}

/// Readies a turn on a task that exists, with the lease of the turn before or a new one. A task that ended meanwhile leaves nothing to
/// do.
pub(crate) async fn take_over(turn: &Arc<Shared>, lease: Option<Lease>) -> AgentResult {
    let service = &turn.service;
    let lease = match lease {
        Some(lease) => Some(lease),
        None => {
            let now = service.clock.now();
            service.store.claim(&turn.task_id, now, service.lease_end(now)).await?
        }
    };
    service.turns.set_lease(&turn.task_id, lease);
    let Some(snapshot) = service.store.load(&turn.caller.owner, &turn.task_id).await? else {
        return Err(AgentError::over("the task is gone"));
    };
    if snapshot.state.is_terminal() {
        turn.signal.settle(Progress::Task);
        return Ok(());
    }
    let Some(lease) = lease else {
        return Err(AgentError::over(ELSEWHERE));
    };
    let asks = snapshot.state.is_interrupted();
    turn.begin_writing(snapshot, lease);
    if asks {
        // The question was asked before this message had its turn; it does not stand while the message is answered.
        return Turn { shared: turn.clone() }.working("").await;
    }
    Ok(())
}

async fn run_one(turn: &Arc<Shared>) {
    if matches!(turn.log.lock().position, Position::Over(_)) {
        return;
    }
    let service = &turn.service;
    let agent =
        AssertUnwindSafe(async { service.agent.run(Turn { shared: turn.clone() }).await }).catch_unwind();
    // What is not needed for an agent that answers at once is not set up for it.
    let timed_out = async { Box::pin(tokio::time::sleep(service.options.turn_timeout)).await };
    let outcome = async {
        tokio::select! {
            biased;
            result = agent => result.map_or_else(Outcome::Panicked, Outcome::Returned),
            () = timed_out => Outcome::TimedOut,
            () = abandoned(turn) => Outcome::Abandoned,
        }
    };
    let ended = match drive(turn, outcome).await {
        Ok(Outcome::Returned(Ok(()))) => finish(turn),
        Ok(Outcome::Returned(Err(error))) | Err(error) => fail(turn, error),
        Ok(Outcome::Panicked(panic)) => panicked(turn, panic),
        Ok(Outcome::TimedOut) => {
            let limit = service.options.turn_timeout;
            tracing::warn!(task = %turn.task_id, ?limit, "the agent took too long");
            let text = format!("the agent did not finish within {} s", limit.as_secs_f64());
            end(turn, TaskState::Failed, Some(text))
        }
        Ok(Outcome::Abandoned) => Ok(()),
    };
    if let Err(error) = write_rest(turn, ended).await
        && !error.is_over()
    {
        tracing::error!(task = %turn.task_id, %error, "the end of a turn could not be written");
    }
}

/// How the agent's part of a turn ended.
enum Outcome {
    Returned(AgentResult),
    Panicked(Box<dyn Any + Send>),
    TimedOut,
    Abandoned,
}

/// Writes what was said last. If that cannot be kept, the task fails rather than lack a piece.
async fn write_rest(turn: &Arc<Shared>, ended: AgentResult) -> AgentResult {
    let written = if turn.unwritten() > 0 { turn.write().await.map(|_| ()) } else { ended };
    match written {
        Err(error) if !error.is_over() => {
            fail(turn, error)?;
            Box::pin(turn.write()).await.map(|_| ())
        }
        Ok(()) | Err(_) => written,
    }
}

/// Comes back when everyone else has had a turn.
fn pause<T>(cx: &mut Context<'_>) -> Poll<T> {
    let again = pin!(tokio::task::yield_now()).poll(cx);
    if again.is_ready() {
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}

/// How often what an agent says may be held back while it keeps saying more.
const MAX_HELD: u8 = 16;

/// Runs the agent, and writes what it has said whenever it pauses. While that is being written it may say more, up to a limit:
/// a store that takes its time gets all of it at once. An error is one of writing.
async fn drive<T>(turn: &Arc<Shared>, agent: impl Future<Output = T>) -> Result<T, AgentError> {
    let mut agent = pin!(agent);
    let mut finished = None;
    let mut writing: Option<BoxFuture<'_, AgentResult>> = None;
    // A client that does not want to wait gets its task at the agent's first pause, whether or not anything was said.
    let mut owed = turn.configuration.return_immediately;
    // How much was held back, and how often. What is said first is written at once.
    let (mut waiting, mut held) = (0, MAX_HELD);
    poll_fn(|cx| {
        if let Some(write) = &mut writing
            && let Poll::Ready(written) = write.as_mut().poll(cx)
        {
            writing = None;
            written?;
        }
        if finished.is_none() && (writing.is_none() || turn.unwritten() < MAX_UNWRITTEN) {
            turn.wake_up();
            if let Poll::Ready(result) = agent.as_mut().poll(cx) {
                finished = Some(result);
            }
        }
        if writing.is_some() {
            return Poll::Pending;
        }
        if let Some(result) = finished.take() {
            return Poll::Ready(Ok(result));
        }
        let said = turn.unwritten();
        if said > waiting && held < MAX_HELD {
            // An agent in full flow says more as soon as it is asked again: one write for all of it. One that really waits
            // has said nothing new by then, and what it said is written a turn of the scheduler later.
            (waiting, held) = (said, held + 1);
            return pause(cx);
        }
        (waiting, held) = (0, 0);
        while std::mem::take(&mut owed) || !turn.rest(cx.waker()) {
            let write = async {
                match turn.write().await {
                    Err(error) if !error.is_over() => Err(error),
                    Ok(_) | Err(_) => Ok(()),
                }
            };
            let write: &mut BoxFuture<'_, AgentResult> = writing.insert(Box::pin(write));
            match write.as_mut().poll(cx) {
                Poll::Ready(written) => {
                    writing = None;
                    written?;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits until a canceled turn has had its time to clean up.
async fn abandoned(turn: &Shared) {
    turn.cancel().cancelled().await;
    Box::pin(tokio::time::sleep(turn.service.options.cancel_grace)).await;
}

/// An agent that returns without a word about the end has done its work.
fn finish(turn: &Arc<Shared>) -> AgentResult {
    let settled = {
        let log = turn.log.lock();
        matches!(log.position, Position::Over(_)) || log.state.is_settled()
    };
    if settled { Ok(()) } else { end(turn, TaskState::Completed, None) }
}

fn fail(turn: &Arc<Shared>, error: AgentError) -> AgentResult {
    match error.into_kind() {
        Kind::Over(why) => {
            tracing::debug!(task = %turn.task_id, why, "the agent stopped");
            Ok(())
        }
        Kind::Public(text) => end(turn, TaskState::Failed, Some(text.into_owned())),
        Kind::Internal(error) => {
            let id: String = new_id();
            tracing::error!(task = %turn.task_id, error_id = id, error = %error, "the agent failed");
            end(turn, TaskState::Failed, Some(format!("the agent failed (error id {id})")))
        }
    }
}

fn panicked(turn: &Arc<Shared>, panic: Box<dyn Any + Send>) -> AgentResult {
    let text = match panic.downcast::<&str>() {
        Ok(text) => (*text).to_owned(),
        Err(panic) => panic.downcast::<String>().map_or_else(|_| "no message".to_owned(), |text| *text),
    };
    let id: String = new_id();
    tracing::error!(task = %turn.task_id, error_id = id, panic = text, "the agent panicked");
    end(turn, TaskState::Failed, Some(format!("the agent failed (error id {id})")))
}

/// Writes the last status of a turn, unless the task has ended without it.
fn end(turn: &Arc<Shared>, state: TaskState, text: Option<String>) -> AgentResult {
    Turn { shared: turn.clone() }.status(state, text.map(Part::text)).noted()
}

/// Ends what a turn can write. The lease that it still has, and what those who wait for the turn are told.
fn put_down(turn: &Shared) -> (Option<Lease>, Progress) {
    let mut log = turn.log.lock();
    match std::mem::replace(&mut log.position, Position::Over("the turn is over")) {
        // A task that has ended keeps no lease.
        Position::Writing { .. } if log.state.is_terminal() => (None, Progress::Task),
        Position::Writing { lease, .. } => (Some(lease), Progress::Task),
        Position::Unborn { .. } | Position::Over(_) => (None, Progress::Nothing),
    }
}

/// Gives a lease back, so that any process can work on the task.
pub(crate) async fn release(store: &dyn Store, task: &TaskId, lease: Lease) {
    if let Err(error) = store.release(task, lease).await {
        tracing::warn!(%task, %error, "a lease could not be given back; it will run out");
    }
}

async fn release_of(turn: &Shared, lease: Option<Lease>) {
    if let Some(lease) = lease {
        release(&*turn.service.store, &turn.task_id, lease).await;
    }
}

/// Tells those who wait for a turn that it is over. The turn that runs next with the lease that it gets; if there is none, the task
/// can be worked on by any process.
async fn close(turn: &Arc<Shared>) -> Option<(Arc<Shared>, Option<Lease>)> {
    let (lease, progress) = put_down(turn);
    let turns = &turn.service.turns;
    loop {
        match turns.next(turn) {
            Next::Ticket(ticket) => {
                turn.signal.settle(progress.clone());
                if let Some(next) = ticket.turn.wait().await {
                    turns.replace(turn, next);
                    return Some((next.clone(), lease));
                }
            }
            Next::Nothing => {
                release_of(turn, lease).await;
                turns.remove(turn);
                break;
            }
            Next::Unnoted => {
                release_of(turn, lease).await;
                break;
            }
        }
    }
    turn.signal.settle(progress);
    None
}
