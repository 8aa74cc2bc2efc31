//! The state of a turn, and how the agent's events get into the log.
//!
//! The agent, the callers that wait for the turn, and requests that cancel it share this state.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use attache_protocol::{
    ContextId, JsonObject, Message, SendMessageConfiguration, Task, TaskId, TaskState, TaskStatus, Timestamp,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::conversation::{ContextAdmission, EndState};
use crate::part_writer::store_large_parts;
use crate::permission::{Denial, Roots};
use crate::redaction::{FileRedaction, TurnRedaction, WORKSPACE};
use crate::report::ToolFiles;
use crate::service::Inner as Service;
use crate::signal::{Progress, Signal};
use crate::store::Idempotency;
use crate::turns::ANOTHER_SERVER;
use crate::{
    AgentError, AgentResult, Append, AppendError, Appended, Caller, Created, Lease, NewTask, Report, Seq,
    Snapshot, TaskEvent, UsedKey, Webhook, state_name,
};

/// Why a turn without a task cannot write any more.
const ANSWERED_WITH_MESSAGE: &str = "the agent has answered with a message";

/// The state of a turn, shared by the agent, the callers that wait for it, and requests that cancel it.
pub(crate) struct TurnState {
    pub(crate) service: Arc<Service>,
    request: TurnRequest,
    /// The task when the turn began, if it existed. A turn in the queue does not hold it, because a task can be much larger than the
    /// messages in the queue.
    before: Mutex<Option<Snapshot>>,
    pub(crate) log: Mutex<TurnLog>,
    pub(crate) signal: Signal,
    cancel: OnceLock<CancellationToken>,
    pub(crate) tool_files: Mutex<ToolFiles>,
    /// The end of the log when a turn on an existing task began.
    pub(crate) began: OnceLock<Seq>,
}

/// The message of a turn, and everything that came with it.
pub(crate) struct TurnRequest {
    pub(crate) caller: Caller,
    pub(crate) message: Message,
    pub(crate) configuration: SendMessageConfiguration,
    /// The metadata of the request.
    pub(crate) metadata: Option<JsonObject>,
    pub(crate) task_id: TaskId,
    pub(crate) context_id: ContextId,
    /// Whether a stream reads the events of the task.
    pub(crate) followed: bool,
    /// Whether an earlier turn for the message died with its process.
    pub(crate) rerun: bool,
    /// The place of the turn in its conversation.
    pub(crate) place: ContextAdmission,
    /// The denial that the turn gives to the agent, instead of a message of the caller.
    pub(crate) denial: Option<Denial>,
}

impl Deref for TurnState {
    type Target = TurnRequest;

    fn deref(&self) -> &TurnRequest {
        &self.request
    }
}

/// The events of a turn that are not written yet, and the state after them.
///
/// Events that an agent emits without pausing are written together, in one append.
pub(crate) struct TurnLog {
    pub(crate) write_state: WriteState,
    /// Emitted, but not written yet.
    unwritten: Vec<TaskEvent>,
    /// Wakes the future that writes while the agent pauses. Other tasks of the agent may emit events during that time.
    driver: Option<Waker>,
    /// The state of the task after all events that were emitted.
    pub(crate) state: TaskState,
    pub(crate) last_status: Option<Timestamp>,
    /// Hides secrets and paths, if the service does.
    redaction: Option<Box<TurnRedaction>>,
}

impl TurnLog {
    pub(crate) fn new(write_state: WriteState, redaction: Option<Box<TurnRedaction>>) -> Self {
        Self {
            write_state,
            unwritten: Vec::new(),
            driver: None,
            state: TaskState::Submitted,
            last_status: None,
            redaction,
        }
    }

    /// Adds an event. A status gets its time.
    fn push(&mut self, mut event: TaskEvent, service: &Service) {
        if let TaskEvent::Status(update) = &mut event {
            let now = service.now_after(self.last_status);
            Arc::make_mut(update).status.timestamp = Some(now);
            self.last_status = Some(now);
        }
        self.state = event.state().unwrap_or(self.state);
        self.unwritten.push(event);
    }
}

pub(crate) enum WriteState {
    /// The task does not exist yet. These belong to its creation.
    NoTask { push: Option<Box<Webhook>>, idempotency: Option<Box<Idempotency>> },
    /// The task exists. The log ends here, as far as this turn knows.
    Writing { seq: Seq, lease: Lease },
    /// The turn cannot write any more, for this reason.
    Closed(&'static str),
}

/// The result of a write.
pub(crate) enum WriteOutcome {
    /// The events are in the log.
    Done,
    /// The task was not created: an earlier send used the same key.
    Repeat(UsedKey),
    /// The task was not created: another task has its id.
    Taken,
}

impl TurnState {
    pub(crate) fn new(
        service: Arc<Service>,
        request: TurnRequest,
        before: Option<Snapshot>,
        write_state: WriteState,
    ) -> Arc<Self> {
        let options = &service.options;
        let redaction = options.redaction.as_ref().filter(|redaction| !redaction.is_empty());
        let redaction = redaction.map(|redaction| {
            let mut redaction = TurnRedaction::new(redaction, options.reports);
            // An agent can know the workspace from an earlier turn.
            if let ContextAdmission::Admitted(place) = &request.place {
                place.known_paths().for_each(|path| redaction.hide_path(path, WORKSPACE));
            }
            Box::new(redaction)
        });
        Arc::new(Self {
            service,
            request,
            before: Mutex::new(before),
            log: Mutex::new(TurnLog::new(write_state, redaction)),
            signal: Signal::default(),
            cancel: OnceLock::new(),
            tool_files: Mutex::default(),
            began: OnceLock::new(),
        })
    }

    /// Lets the turn write to an existing task.
    pub(crate) fn begin_writing(&self, before: Snapshot, lease: Lease) {
        let mut log = self.log.lock();
        log.last_status = before.task().status.timestamp;
        log.write_state = WriteState::Writing { seq: before.seq, lease };
        drop(log);
        let _ = self.began.set(before.seq);
        *self.before.lock() = Some(before);
    }

    /// Waits until the turn may run in its context. Returns `false` if the task is canceled first.
    pub(crate) async fn wait_for_context(&self) -> bool {
        let ContextAdmission::Admitted(place) = &self.place else { return true };
        let granted = place.enter();
        tokio::select! {
            biased;
            () = async { granted.wait().await; } => true,
            () = self.cancel().cancelled() => false,
        }
    }

    /// Joins the turns of the context that could run.
    pub(crate) fn enter_context(&self) {
        if let ContextAdmission::Admitted(place) = &self.place {
            place.enter();
        }
    }

    /// Whether another turn of the context has to end first.
    pub(crate) fn must_wait(&self) -> bool {
        match &self.place {
            ContextAdmission::Admitted(place) => place.enter().get().is_none(),
            ContextAdmission::None | ContextAdmission::Refused(_) => false,
        }
    }

    /// Says whether the task has settled, so that the turn is about to end.
    pub(crate) fn set_context_ending(&self, ending: bool) {
        if let ContextAdmission::Admitted(place) = &self.place {
            place.seat().set_ending(ending);
        }
    }

    /// Lets the next turn of the context run.
    pub(crate) fn leave_context(&self) {
        if let ContextAdmission::Admitted(place) = &self.place {
            place.seat().leave();
        }
    }

    /// The names of the workspace, as far as they are known.
    pub(crate) fn workspace_roots(&self) -> Roots {
        match &self.place {
            ContextAdmission::Admitted(place) => place.roots(),
            ContextAdmission::None | ContextAdmission::Refused(_) => Roots::default(),
        }
    }

    /// The state that a turn ends the task with, where the agent says that it is done.
    pub(crate) fn end_state(&self, state: TaskState) -> TaskState {
        match &self.place {
            ContextAdmission::Admitted(place)
                if state == TaskState::Completed
                    && place.rules.contexts.end_state == EndState::InputRequired =>
            {
                TaskState::InputRequired
            }
            ContextAdmission::Admitted(_) | ContextAdmission::None | ContextAdmission::Refused(_) => state,
        }
    }

    pub(crate) fn cancel(&self) -> &CancellationToken {
        self.cancel.get_or_init(CancellationToken::new)
    }

    /// Whether the agent has ended the task in this turn, and no write has failed because another process ended it first.
    pub(crate) fn has_ended_task(&self) -> bool {
        let log = self.log.lock();
        log.state.is_terminal() && matches!(log.write_state, WriteState::Writing { .. })
    }

    /// How the turn has ended, in one word, for the log.
    pub(crate) fn outcome(&self) -> &'static str {
        if self.cancel.get().is_some_and(CancellationToken::is_cancelled) {
            return "canceled";
        }
        let log = self.log.lock();
        match log.write_state {
            WriteState::Closed(ANSWERED_WITH_MESSAGE) => "message",
            WriteState::Closed(_) => "stopped",
            WriteState::NoTask { .. } | WriteState::Writing { .. } => state_name(log.state),
        }
    }

    /// The task when the turn began, if it existed.
    pub(crate) fn before(&self) -> Option<Snapshot> {
        self.before.lock().clone()
    }

    /// Adds an event, which is written when the agent pauses. Returns the number of unwritten events.
    pub(crate) fn emit(&self, event: TaskEvent) -> Result<usize, AgentError> {
        check(&event)?;
        let mut log = self.log.lock();
        if let WriteState::Closed(why) = log.write_state {
            return Err(AgentError::over(why));
        }
        if log.state.is_terminal() || self.cancel.get().is_some_and(CancellationToken::is_cancelled) {
            return Err(AgentError::over("the task has ended"));
        }
        match &mut log.redaction {
            None => log.push(event, &self.service),
            Some(redaction) => {
                for event in redaction.apply(event) {
                    log.push(event, &self.service);
                }
            }
        }
        let unwritten = log.unwritten.len();
        let driver = log.driver.take();
        drop(log);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(unwritten)
    }

    /// Hides secrets and paths in a message that is not part of the log.
    pub(crate) fn redact_message(&self, message: &mut Message) {
        if let Some(redaction) = &self.log.lock().redaction {
            redaction.message(message);
        }
    }

    /// Hides secrets and paths in the next piece of a thought. `has_text` is whether people read it too.
    pub(crate) fn redact_thinking(&self, piece: &mut String, has_text: bool) {
        if let Some(redaction) = &mut self.log.lock().redaction {
            *piece = redaction.thinking(piece, has_text);
        }
    }

    /// Hides secrets and paths in a report, whose texts are not cut yet.
    pub(crate) fn redact_report(&self, report: &mut Report) {
        if let Some(redaction) = &self.log.lock().redaction {
            redaction.report(report);
        }
    }

    /// Hides secrets and paths in a value.
    pub(crate) fn redact_value(&self, value: &mut Value) {
        if let Some(redaction) = &self.log.lock().redaction {
            redaction.value(value);
        }
    }

    /// What hides secrets and paths in a file, if something does.
    pub(crate) fn file_redaction(&self) -> Option<FileRedaction> {
        self.log.lock().redaction.as_ref().map(|redaction| redaction.file())
    }

    pub(crate) fn hide_path(&self, directory: &Path, replacement: &str) {
        if let Some(redaction) = &mut self.log.lock().redaction {
            redaction.hide_path(directory, replacement);
        }
    }

    /// If all events are written, registers the driver to be woken by the next event and returns `true`.
    pub(crate) fn wait_for_events(&self, driver: &Waker) -> bool {
        let mut log = self.log.lock();
        let all_written = log.unwritten.is_empty();
        log.driver = all_written.then(|| driver.clone());
        all_written
    }

    /// Removes the registered driver: it is awake.
    pub(crate) fn clear_driver(&self) {
        self.log.lock().driver = None;
    }

    /// Whether an idempotency key will be stored with the first events.
    pub(crate) fn has_unwritten_key(&self) -> bool {
        matches!(self.log.lock().write_state, WriteState::NoTask { idempotency: Some(_), .. })
    }

    /// Closes a turn that has no task and has emitted no event. Returns `false` for any other turn, which is not closed. A message with an
    /// idempotency key always gets a task, in which the key is stored.
    pub(crate) fn close_without_task(&self) -> bool {
        let mut log = self.log.lock();
        let without_task = matches!(log.write_state, WriteState::NoTask { idempotency: None, .. })
            && log.unwritten.is_empty();
        if without_task {
            log.write_state = WriteState::Closed(ANSWERED_WITH_MESSAGE);
        }
        without_task
    }

    /// The number of unwritten events.
    pub(crate) fn unwritten(&self) -> usize {
        self.log.lock().unwritten.len()
    }

    /// Writes the unwritten events. Creates the task first if it does not exist, even without events.
    ///
    /// Only the driver of the turn calls this, so that a task has one writer.
    pub(crate) async fn write(self: &Arc<Self>) -> Result<WriteOutcome, AgentError> {
        let written = self.try_write().await;
        if written.as_ref().is_err_and(|error| !error.is_over()) {
            // The events are lost, so the task is not in the state that they set.
            self.log.lock().state = TaskState::Submitted;
        }
        written
    }

    async fn try_write(self: &Arc<Self>) -> Result<WriteOutcome, AgentError> {
        let (mut events, state, new, writing) = {
            let mut log = self.log.lock();
            let events = std::mem::take(&mut log.unwritten);
            match &mut log.write_state {
                WriteState::Closed(why) => return Err(AgentError::over(why)),
                WriteState::NoTask { push, idempotency } => {
                    let new = (push.clone(), idempotency.clone());
                    (events, log.state, Some(new), None)
                }
                WriteState::Writing { seq, lease } => {
                    let writing = (*seq, *lease);
                    (events, log.state, None, Some(writing))
                }
            }
        };
        if let Some(artifacts) = &self.service.options.artifacts {
            store_large_parts(artifacts, &self.request, &mut events).await?;
        }
        let written = match (new, writing) {
            (Some((push, idempotency)), _) => match self.create(events, push, idempotency).await? {
                Created::New { seq, lease, settled } => {
                    if !state.is_terminal() {
                        self.service.turns.register_created(self, lease);
                    }
                    (seq, lease, settled)
                }
                Created::KeyUsed(used) => {
                    self.log.lock().write_state = WriteState::Closed("the send was repeated");
                    return Ok(WriteOutcome::Repeat(used));
                }
                Created::Taken => {
                    self.log.lock().write_state = WriteState::Closed("the id is taken");
                    return Ok(WriteOutcome::Taken);
                }
            },
            (None, Some((seq, lease))) if !events.is_empty() => {
                let Appended { seq, settled } = self.append(seq, lease, events).await?;
                (seq, lease, settled)
            }
            (None, _) => return Ok(WriteOutcome::Done),
        };
        let (seq, lease, settled) = written;
        self.log.lock().write_state = WriteState::Writing { seq, lease };
        self.set_context_ending(state.is_settled());
        if state.is_terminal() {
            self.service.turns.settle_queue(&self.task_id);
        }
        match settled {
            Some(task) => self.signal.settle_with(task),
            None => self.signal.begin(Progress::Task),
        }
        Ok(WriteOutcome::Done)
    }

    async fn create(
        &self,
        emitted: Vec<TaskEvent>,
        push: Option<Box<Webhook>>,
        idempotency: Option<Box<Idempotency>>,
    ) -> Result<Created, AgentError> {
        // A task is created no later than its first status.
        let first = emitted.iter().find_map(|event| match event {
            TaskEvent::Status(update) => update.status.timestamp,
            TaskEvent::Created(_) | TaskEvent::Message(_) | TaskEvent::Artifact(_) => None,
        });
        let now = first.unwrap_or_else(|| self.service.now_after(None));
        let task = Task {
            id: self.task_id.clone(),
            context_id: Some(self.context_id.clone()),
            status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(now) },
            history: vec![self.message.clone()],
            metadata: self.metadata.clone().filter(|_| self.caller.dialect_rules().task_metadata),
            ..Task::default()
        };
        let mut events = emitted;
        events.insert(0, TaskEvent::Created(Arc::new(task)));
        let new = NewTask {
            owner: self.caller.owner.clone(),
            events,
            now,
            followed: self.followed,
            lease_until: self.service.lease_end(now),
            idempotency: idempotency.map(|key| *key),
            push: push.map(|webhook| *webhook),
        };
        Ok(self.service.store.create(new).await?)
    }

    async fn append(
        &self,
        mut after: Seq,
        lease: Lease,
        events: Vec<TaskEvent>,
    ) -> Result<Appended, AgentError> {
        loop {
            let now = self.service.clock.now();
            let append = Append {
                after,
                lease: Some(lease),
                idempotency: None,
                push: None,
                events: events.clone(),
                now,
            };
            match self.service.store.append(&self.task_id, append).await {
                Ok(appended) => return Ok(appended),
                // Only messages of the client can be appended in between. They do not contradict the events of the agent.
                Err(AppendError::Conflict(seq)) => after = seq,
                Err(AppendError::Ended(_)) => return Err(self.over("the task has ended")),
                Err(AppendError::LeaseLost) => return Err(self.over(ANOTHER_SERVER)),
                Err(AppendError::KeyUsed(_)) => return Err(self.over("the send was repeated")),
                Err(error @ AppendError::TooManyWebhooks) => return Err(error.into()),
                Err(AppendError::NotFound) => return Err(self.over("the task is gone")),
                Err(AppendError::Store(error)) => return Err(error.into()),
            }
        }
    }

    /// Closes the turn: the task has ended, or another turn writes it.
    fn over(&self, why: &'static str) -> AgentError {
        self.log.lock().write_state = WriteState::Closed(why);
        self.signal.settle(Progress::Task);
        AgentError::over(why)
    }
}

/// Rejects events whose names are too long to be stored. This is a fault of the agent, but the client learns why its task failed.
fn check(event: &TaskEvent) -> AgentResult {
    let checked = match event {
        TaskEvent::Artifact(update) => update.artifact.validate(),
        TaskEvent::Status(update) => update.status.message.as_ref().map_or(Ok(()), |m| m.validate_content()),
        TaskEvent::Message(message) => message.validate_content(),
        TaskEvent::Created(_) => Ok(()),
    };
    checked.map_err(|error| AgentError::public(format!("the agent's answer cannot be stored: {error}")))
}
