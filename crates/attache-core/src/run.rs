//! Running a turn: from its start to a defined end, whatever the agent does.

use std::any::Any;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use attache_protocol::{Part, TaskId, TaskState};
use futures::FutureExt;

use crate::agent::Kind;
use crate::conversation::ContextAdmission;
use crate::signal::Progress;
use crate::turn::MAX_UNWRITTEN;
use crate::turn_state::{TurnState, WriteState};
use crate::turns::{ANOTHER_SERVER, NextTurn};
use crate::{Agent, AgentError, AgentResult, BoxFuture, Lease, Permit, Store, TraceParent, Turn, new_id};

/// Runs a turn, then the turns of the messages that waited for it. Together they use one permit of the caller.
pub(crate) async fn run(turn: Arc<TurnState>, permit: Option<Permit>) {
    // The future owns the permit, so that it is released however the turns end.
    let _permit = permit;
    run_one(&turn).await;
    run_waiting(turn).await;
}

/// Closes a turn, then runs the turns of the messages that waited for it.
async fn run_waiting(turn: Arc<TurnState>) {
    let mut last = turn;
    while let Some((next, lease)) = close(&last).await {
        let taken = Box::pin(take_over(&next, lease)).await;
        // The next one enters first, so that it keeps its place before messages that came later.
        if taken.is_ok() {
            next.enter_context();
        }
        last.leave_context();
        match taken {
            Ok(()) => run_one(&next).await,
            Err(error) => {
                tracing::warn!(task = %next.task_id, %error, "a turn could not begin");
                // The message is in the log. If another process works on the task, that process answers the message.
                next.signal.settle(if error.is_over() { Progress::Task } else { Progress::Nothing });
            }
        }
        last = next;
    }
}

/// Withdraws a turn that could not begin, and runs the turns of the messages that waited for it.
pub(crate) fn withdraw(turn: Arc<TurnState>) {
    turn.service.clone().spawn(run_waiting(turn));
}

/// Stops a turn without writing anything, so that another process can run it again.
pub(crate) async fn hand_over(turn: &Arc<TurnState>) {
    let (lease, progress) = stop_writing(turn);
    release_lease_of(turn, lease).await;
    turn.service.turns.set_lease(&turn.task_id, None);
    turn.signal.settle(progress);
    turn.cancel().cancel();
}

/// Prepares a turn on an existing task, with the lease of the last turn or a new one. If the task has ended meanwhile, the turn is
/// settled and does not run.
pub(crate) async fn take_over(turn: &Arc<TurnState>, lease: Option<Lease>) -> AgentResult {
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
        return Err(AgentError::over(ANOTHER_SERVER));
    };
    let is_interrupted = snapshot.state.is_interrupted();
    turn.begin_writing(snapshot, lease);
    if is_interrupted && turn.denial.is_none() {
        // The agent asked for input before this turn. The task works again while the agent answers the new message.
        return Turn { inner: turn.clone() }.working("").await;
    }
    Ok(())
}

async fn run_one(turn: &Arc<TurnState>) {
    if matches!(turn.log.lock().write_state, WriteState::Closed(_)) {
        return;
    }
    if let Some(denial) = &turn.denial
        && !denial.begin(&Turn { inner: turn.clone() })
    {
        return;
    }
    if matches!(turn.place, ContextAdmission::Refused(_)) {
        if let Err(error) = write_rest(turn, Ok(())).await {
            tracing::warn!(task = %turn.task_id, %error, "a refused message could not be reported");
        }
        return;
    }
    let service = &turn.service;
    let started = tracing::enabled!(target: LOG, tracing::Level::INFO).then(Instant::now);
    let agent = AssertUnwindSafe(async {
        match turn.wait_for_context().await {
            true => service.agent.run(Turn { inner: turn.clone() }).await,
            false => Ok(()),
        }
    })
    .catch_unwind();
    // The timer is created only if the agent is not done at the first poll. The time in a queue does not count.
    let timed_out = async {
        turn.wait_for_context().await;
        Box::pin(tokio::time::sleep(service.options.turn_timeout)).await;
    };
    let outcome = async {
        tokio::select! {
            biased;
            result = agent => result.map_or_else(AgentOutcome::Panicked, AgentOutcome::Returned),
            () = timed_out => AgentOutcome::TimedOut,
            () = canceled(turn) => AgentOutcome::Canceled,
        }
    };
    let (ended, outcome) = match drive(turn, outcome).await {
        Ok(AgentOutcome::Returned(Ok(()))) => (finish(turn), None),
        Ok(AgentOutcome::Returned(Err(error))) | Err(error) => (fail(turn, error), None),
        Ok(AgentOutcome::Panicked(panic)) => (panicked(turn, panic), Some("panicked")),
        Ok(AgentOutcome::TimedOut) => {
            let limit = service.options.turn_timeout;
            tracing::warn!(task = %turn.task_id, ?limit, "the agent took too long");
            let text = format!("the agent did not finish within {} s", limit.as_secs_f64());
            (end(turn, TaskState::Failed, Some(text)), Some("timed-out"))
        }
        Ok(AgentOutcome::Canceled) => (Ok(()), Some("canceled")),
    };
    if let Err(error) = write_rest(turn, ended).await
        && !error.is_over()
    {
        tracing::error!(task = %turn.task_id, %error, "the end of a turn could not be written");
    }
    if let Some(started) = started {
        log_end(turn, outcome.unwrap_or_else(|| turn.outcome()), started.elapsed());
    }
}

/// The target of the lines about turns.
const LOG: &str = "attache::turn";

/// Logs the end of a turn, without anything that was said in it.
fn log_end(turn: &TurnState, outcome: &str, duration: Duration) {
    let caller = &turn.caller;
    tracing::info!(
        target: LOG,
        agent = turn.service.agent_name(),
        caller = caller.principal().name().unwrap_or("anonymous"),
        task = turn.task_id.as_str(),
        outcome,
        duration_ms = crate::trace::millis(duration),
        rerun = turn.rerun.then_some(true),
        traceparent = caller.trace_parent.as_ref().map(TraceParent::as_str),
        "turn ended"
    );
}

/// How the agent's future ended.
enum AgentOutcome {
    Returned(AgentResult),
    Panicked(Box<dyn Any + Send>),
    TimedOut,
    /// The turn was canceled, and the agent did not return within the grace time.
    Canceled,
}

/// Writes the events that are not in the log yet. If that fails, the task fails, because its log would lack events.
async fn write_rest(turn: &Arc<TurnState>, ended: AgentResult) -> AgentResult {
    let written = if turn.unwritten() > 0 { turn.write().await.map(|_| ()) } else { ended };
    match written {
        Err(error) if !error.is_over() => {
            fail(turn, error)?;
            Box::pin(turn.write()).await.map(|_| ())
        }
        Ok(()) | Err(_) => written,
    }
}

/// Yields to the runtime once, so that other ready tasks run first.
fn yield_once<T>(cx: &mut Context<'_>) -> Poll<T> {
    let again = pin!(tokio::task::yield_now()).poll(cx);
    if again.is_ready() {
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}

/// How many times in a row a write may be delayed while the agent keeps emitting.
const MAX_DELAYS: u8 = 16;

/// Polls the agent, and writes its events whenever it pauses. During a write the agent may emit more events, up to a limit. A slow
/// store then gets them in one write. Returns an error if a write failed.
async fn drive<T>(turn: &Arc<TurnState>, agent: impl Future<Output = T>) -> Result<T, AgentError> {
    let mut agent = pin!(agent);
    let mut finished = None;
    let mut writing: Option<BoxFuture<'_, AgentResult>> = None;
    // A client that does not want to wait gets its task at the agent's first pause, even if the agent has emitted no event.
    // So does one that has to wait for its context, because its task can be read and canceled meanwhile.
    // And a message with an idempotency key gets one, so that a repeat finds it.
    let mut task_wanted =
        turn.configuration.return_immediately || turn.must_wait() || turn.has_unwritten_key();
    // How many events were delayed, and how often. The first events are written at once.
    let (mut delayed, mut delays) = (0, MAX_DELAYS);
    poll_fn(|cx| {
        if let Some(write) = &mut writing
            && let Poll::Ready(written) = write.as_mut().poll(cx)
        {
            writing = None;
            written?;
        }
        if finished.is_none() && (writing.is_none() || turn.unwritten() < MAX_UNWRITTEN) {
            turn.clear_driver();
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
        let unwritten = turn.unwritten();
        if unwritten > delayed && delays < MAX_DELAYS {
            // An agent that streams emits more events at its next poll. All of them then go into one write. For an agent that really
            // waits, the next poll adds no event, and the write is delayed by one round of the scheduler.
            (delayed, delays) = (unwritten, delays + 1);
            return yield_once(cx);
        }
        (delayed, delays) = (0, 0);
        while std::mem::take(&mut task_wanted) || !turn.wait_for_events(cx.waker()) {
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

/// Waits for a cancel, and then for the grace time in which the agent may clean up.
async fn canceled(turn: &TurnState) {
    turn.cancel().cancelled().await;
    Box::pin(tokio::time::sleep(turn.service.options.cancel_grace)).await;
}

/// Completes the task if the agent has returned and has neither ended it nor asked for input.
fn finish(turn: &Arc<TurnState>) -> AgentResult {
    let settled = {
        let log = turn.log.lock();
        matches!(log.write_state, WriteState::Closed(_)) || log.state.is_settled()
    };
    if settled { Ok(()) } else { end(turn, TaskState::Completed, None) }
}

fn fail(turn: &Arc<TurnState>, error: AgentError) -> AgentResult {
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

fn panicked(turn: &Arc<TurnState>, panic: Box<dyn Any + Send>) -> AgentResult {
    let text = match panic.downcast::<&str>() {
        Ok(text) => (*text).to_owned(),
        Err(panic) => panic.downcast::<String>().map_or_else(|_| "no message".to_owned(), |text| *text),
    };
    let id: String = new_id();
    tracing::error!(task = %turn.task_id, error_id = id, panic = text, "the agent panicked");
    end(turn, TaskState::Failed, Some(format!("the agent failed (error id {id})")))
}

/// Emits the last status of a turn, unless the task has ended already.
fn end(turn: &Arc<TurnState>, state: TaskState, text: Option<String>) -> AgentResult {
    Turn { inner: turn.clone() }.status(state, text.map(Part::text)).into_result()
}

/// Closes the log for a turn. Returns the lease that the turn still has, and the progress to report to the waiting callers.
fn stop_writing(turn: &TurnState) -> (Option<Lease>, Progress) {
    let mut log = turn.log.lock();
    match std::mem::replace(&mut log.write_state, WriteState::Closed("the turn is over")) {
        // A task that has ended has no lease.
        WriteState::Writing { .. } if log.state.is_terminal() => (None, Progress::Task),
        WriteState::Writing { lease, .. } => (Some(lease), Progress::Task),
        WriteState::NoTask { .. } | WriteState::Closed(_) => (None, Progress::Nothing),
    }
}

/// Releases a lease, so that any process can work on the task.
pub(crate) async fn release(store: &dyn Store, task: &TaskId, lease: Lease) {
    if let Err(error) = store.release(task, lease).await {
        tracing::warn!(%task, %error, "a lease could not be released; it will expire");
    }
}

async fn release_lease_of(turn: &TurnState, lease: Option<Lease>) {
    if let Some(lease) = lease {
        release(&*turn.service.store, &turn.task_id, lease).await;
    }
}

/// Closes a turn and reports it to the waiting callers. Returns the next turn with the lease that it gets. If there is none, the
/// lease is released.
async fn close(turn: &Arc<TurnState>) -> Option<(Arc<TurnState>, Option<Lease>)> {
    let (lease, progress) = stop_writing(turn);
    turn.set_context_ending(true);
    let turns = &turn.service.turns;
    loop {
        match turns.next(turn) {
            NextTurn::Queued(message) => {
                turn.signal.settle(progress.clone());
                if let Some(next) = message.turn().await {
                    turns.replace(turn, next);
                    return Some((next.clone(), lease));
                }
            }
            NextTurn::None => {
                release_lease_of(turn, lease).await;
                turns.remove(turn);
                break;
            }
            NextTurn::NotRegistered => {
                release_lease_of(turn, lease).await;
                break;
            }
        }
    }
    turn.leave_context();
    turn.signal.settle(progress);
    None
}
