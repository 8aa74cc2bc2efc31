//! The life of a turn: started, watched over, and brought to a defined end whatever the agent does.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use attache_protocol::{Part, TaskId, TaskState};
use foldhash::fast::RandomState;
use futures::FutureExt;
use parking_lot::Mutex;

use crate::agent::Kind;
use crate::shared::{Position, Shared};
use crate::signal::Progress;
use crate::turn::MAX_UNWRITTEN;
use crate::{AgentError, AgentResult, BoxFuture, Lease, Place, Turn, new_id, step};

/// The turns that run in this process, one per task, each with the messages that wait for it to end.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<TaskId, Running, RandomState>>);

struct Running {
    turn: Arc<Shared>,
    lease: Option<Lease>,
    waiting: VecDeque<Arc<Shared>>,
}

impl Turns {
    /// Notes a turn that takes its time, also while there is no task yet.
    pub(crate) fn note(&self, turn: &Arc<Shared>) {
        let running = || Running { turn: turn.clone(), lease: None, waiting: VecDeque::new() };
        self.0.lock().entry(turn.task_id.clone()).or_insert_with(running);
    }

    /// Notes the turn that has just created its task.
    pub(crate) fn register(&self, turn: &Arc<Shared>, lease: Lease) {
        let mut turns = self.0.lock();
        let waiting = turns.remove(&turn.task_id).map(|known| known.waiting).unwrap_or_default();
        turns.insert(turn.task_id.clone(), Running { turn: turn.clone(), lease: Some(lease), waiting });
    }

    /// Whether the turn may start now; otherwise it waits for the one that runs.
    pub(crate) fn start_or_wait(&self, turn: &Arc<Shared>) -> bool {
        let mut turns = self.0.lock();
        if let Some(running) = turns.get_mut(&turn.task_id) {
            running.waiting.push_back(turn.clone());
            return false;
        }
        let running = Running { turn: turn.clone(), lease: None, waiting: VecDeque::new() };
        turns.insert(turn.task_id.clone(), running);
        true
    }

    /// Whether the turn may start now; otherwise nothing comes of it.
    pub(crate) fn start(&self, turn: &Arc<Shared>) -> bool {
        match self.0.lock().entry(turn.task_id.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(Running { turn: turn.clone(), lease: None, waiting: VecDeque::new() });
                true
            }
        }
    }

    fn set_lease(&self, task: &TaskId, lease: Lease) {
        if let Some(running) = self.0.lock().get_mut(task) {
            running.lease = Some(lease);
        }
    }

    /// Takes note that the turn is over; what comes back runs next.
    fn next(&self, turn: &Arc<Shared>) -> Option<Arc<Shared>> {
        let mut turns = self.0.lock();
        let running = turns.get_mut(&turn.task_id).filter(|running| Arc::ptr_eq(&running.turn, turn))?;
        match running.waiting.pop_front() {
            Some(next) => {
                running.turn = next.clone();
                running.lease = None;
                Some(next)
            }
            None => {
                turns.remove(&turn.task_id);
                None
            }
        }
    }

    /// Tells the turn of a task, and those who wait for it, that the task is canceled.
    pub(crate) fn cancel(&self, task: &TaskId) {
        self.ended(task);
        let running = self.0.lock().get(task).map(|running| running.turn.clone());
        if let Some(turn) = running {
            turn.signal.settle(Progress::Task);
            turn.cancel().cancel();
        }
    }

    /// Tells those who wait for a turn that the task has ended, however long the turn that runs still takes.
    pub(crate) fn ended(&self, task: &TaskId) {
        if let Some(running) = self.0.lock().get(task) {
            running.waiting.iter().for_each(|turn| turn.signal.settle(Progress::Task));
        }
    }

    pub(crate) fn leases(&self) -> Vec<(TaskId, Lease)> {
        let turns = self.0.lock();
        turns.iter().filter_map(|(task, running)| Some((task.clone(), running.lease?))).collect()
    }

    pub(crate) fn has(&self, task: &TaskId) -> bool {
        self.0.lock().contains_key(task)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Shared>> {
        self.0.lock().values().map(|running| running.turn.clone()).collect()
    }
}

/// Runs a turn and then those that waited for it. They have one place among the caller's turns.
pub(crate) async fn run(turn: Arc<Shared>, place: Option<Place>) {
    // Held by the future itself, so that it is free whichever way the turns end.
    let _place = place;
    let mut current = turn;
    loop {
        run_one(&current).await;
        let Some(next) = current.service.turns.next(&current) else { return };
        current = next;
        if let Err(error) = Box::pin(take_over(&current)).await {
            tracing::warn!(task = %current.task_id, %error, "a message could not get its turn");
            close(&current, Progress::Nothing).await;
        }
    }
}

/// Withdraws a turn that could not begin, and lets those that waited for it try.
pub(crate) async fn give_up(turn: &Arc<Shared>) {
    close(turn, Progress::Nothing).await;
    if let Some(next) = turn.service.turns.next(turn) {
        next.service.clone().spawn(run(next, None));
    }
}

/// Breaks a turn off without a word about it, so that another process can run it again.
pub(crate) async fn leave(turn: &Arc<Shared>) {
    close(turn, Progress::Nothing).await;
    turn.cancel().cancel();
}

/// Readies a turn on a task that exists. A task that ended meanwhile leaves nothing to do.
pub(crate) async fn take_over(turn: &Arc<Shared>) -> AgentResult {
    let service = &turn.service;
    let now = service.clock.now();
    let lease = service.store.claim(&turn.task_id, now, service.lease_end(now)).await?;
    let Some(snapshot) = service.store.load(&turn.caller.owner, &turn.task_id).await? else {
        return Err(AgentError::over("the task is gone"));
    };
    if snapshot.state.is_terminal() {
        close(turn, Progress::Task).await;
        return Ok(());
    }
    let Some(lease) = lease else {
        return Err(AgentError::over("another server runs the task"));
    };
    service.turns.set_lease(&turn.task_id, lease);
    {
        let mut log = turn.log.lock();
        log.last_status = snapshot.task().status.timestamp;
        log.position = Position::Writing { seq: snapshot.seq, lease };
    }
    let _ = turn.began.set(snapshot.seq);
    let asks = snapshot.state.is_interrupted();
    turn.set_before(Some(snapshot));
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
    close(turn, Progress::Nothing).await;
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
            // What it does is its own, also if it sends messages itself.
            if let Poll::Ready(result) = step::alone(|| agent.as_mut().poll(cx)) {
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

/// Makes sure that nobody waits for a turn that is over, and that the task can have another one.
async fn close(turn: &Arc<Shared>, otherwise: Progress) {
    let position = std::mem::replace(&mut turn.log.lock().position, Position::Over("the turn is over"));
    let progress = match position {
        // A task that has ended keeps no lease.
        Position::Writing { .. } if turn.log.lock().state.is_terminal() => Progress::Task,
        Position::Writing { lease, .. } => {
            if let Err(error) = turn.service.store.release(&turn.task_id, lease).await {
                tracing::warn!(task = %turn.task_id, %error, "a lease could not be given back; it will run out");
            }
            Progress::Task
        }
        Position::Unborn { .. } | Position::Over(_) => otherwise,
    };
    turn.signal.settle(progress);
}
