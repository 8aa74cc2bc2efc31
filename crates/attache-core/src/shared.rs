//! What a turn, those who wait for it and those who may cancel it have in common, and how what the agent says gets into the log.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use attache_protocol::{
    ContextId, JsonObject, Message, SendMessageConfiguration, Task, TaskId, TaskState, TaskStatus, Timestamp,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::run::ELSEWHERE;
use crate::service::Inner as Service;
use crate::signal::{Progress, Signal};
use crate::store::Idempotency;
use crate::{
    AgentError, AgentResult, Append, AppendError, Appended, Caller, Created, UsedKey, Lease, NewTask, Seq,
    Snapshot, TaskEvent, Webhook,
};

/// What a turn, those who wait for it and those who may cancel it have in common.
pub(crate) struct Shared {
    pub(crate) service: Arc<Service>,
    origin: Origin,
    /// The task when the turn began, if there was one. A turn that waits for another holds none: a task can be much larger than the
    /// messages that wait for it.
    before: Mutex<Option<Snapshot>>,
    pub(crate) log: Mutex<Writer>,
    pub(crate) signal: Signal,
    cancel: OnceLock<CancellationToken>,
    /// Where the log was when a turn on an existing task began.
    pub(crate) began: OnceLock<Seq>,
}

/// What a turn is for.
pub(crate) struct Origin {
    pub(crate) caller: Caller,
    pub(crate) message: Message,
    pub(crate) configuration: SendMessageConfiguration,
    /// What is said about the request.
    pub(crate) metadata: Option<JsonObject>,
    pub(crate) task_id: TaskId,
    pub(crate) context_id: ContextId,
    /// Whether someone reads the task's events as they come.
    pub(crate) followed: bool,
    /// Whether an earlier turn for the message died.
    pub(crate) rerun: bool,
}

impl Deref for Shared {
    type Target = Origin;

    fn deref(&self) -> &Origin {
        &self.origin
    }
}

/// What the agent has said, and how much of it is in the log.
///
/// What an agent says without pausing in between is written together: one append for all of it.
pub(crate) struct Writer {
    pub(crate) position: Position,
    /// Said, but not written yet.
    unwritten: Vec<TaskEvent>,
    /// Whom to wake for writing while the agent pauses: it may have others speak for it.
    driver: Option<Waker>,
    /// Where the task stands after all that was said.
    pub(crate) state: TaskState,
    pub(crate) last_status: Option<Timestamp>,
}

impl Writer {
    pub(crate) fn new(position: Position) -> Self {
        Self { position, unwritten: Vec::new(), driver: None, state: TaskState::Submitted, last_status: None }
    }
}

pub(crate) enum Position {
    /// There is no task yet. What is needed to create it waits here.
    Unborn { push: Option<Box<Webhook>>, idempotency: Option<Box<Idempotency>> },
    /// The log ends here, as far as this turn knows.
    Writing { seq: Seq, lease: Lease },
    /// Nothing more can be said.
    Over(&'static str),
}

/// What became of what the agent has said.
pub(crate) enum Written {
    /// It is in the log.
    Done,
    /// An earlier send with the same key did it all before.
    Repeat(UsedKey),
    /// There is another task with the id that this one was to have.
    Taken,
}

impl Shared {
    pub(crate) fn new(
        service: Arc<Service>,
        origin: Origin,
        before: Option<Snapshot>,
        position: Position,
    ) -> Arc<Self> {
        Arc::new(Self {
            service,
            origin,
            before: Mutex::new(before),
            log: Mutex::new(Writer::new(position)),
            signal: Signal::default(),
            cancel: OnceLock::new(),
            began: OnceLock::new(),
        })
    }

    /// Lets the agent write to a task that exists.
    pub(crate) fn begin_writing(&self, before: Snapshot, lease: Lease) {
        let mut log = self.log.lock();
        log.last_status = before.task().status.timestamp;
        log.position = Position::Writing { seq: before.seq, lease };
        drop(log);
        let _ = self.began.set(before.seq);
        *self.before.lock() = Some(before);
    }

    pub(crate) fn cancel(&self) -> &CancellationToken {
        self.cancel.get_or_init(CancellationToken::new)
    }

    /// Whether the agent has ended the task in this turn, and no write has failed because another process ended it first.
    pub(crate) fn has_ended_task(&self) -> bool {
        let log = self.log.lock();
        log.state.is_terminal() && matches!(log.position, Position::Writing { .. })
    }

    /// The task when the turn began, if there was one.
    pub(crate) fn before(&self) -> Option<Snapshot> {
        self.before.lock().clone()
    }

    /// Notes an event, to be written when the agent pauses. Returns how many wait.
    pub(crate) fn emit(&self, mut event: TaskEvent) -> Result<usize, AgentError> {
        check(&event)?;
        let mut log = self.log.lock();
        if let Position::Over(why) = log.position {
            return Err(AgentError::over(why));
        }
        if log.state.is_terminal() || self.cancel.get().is_some_and(CancellationToken::is_cancelled) {
            return Err(AgentError::over("the task has ended"));
        }
        if let TaskEvent::Status(update) = &mut event {
            let now = self.service.now_after(log.last_status);
            Arc::make_mut(update).status.timestamp = Some(now);
            log.last_status = Some(now);
        }
        log.state = event.state().unwrap_or(log.state);
        log.unwritten.push(event);
        let waiting = log.unwritten.len();
        let driver = log.driver.take();
        drop(log);
        if let Some(driver) = driver {
            driver.wake();
        }
        Ok(waiting)
    }

    /// Whether nothing waits to be written. If so, the driver is woken as soon as something does.
    pub(crate) fn rest(&self, driver: &Waker) -> bool {
        let mut log = self.log.lock();
        let nothing = log.unwritten.is_empty();
        log.driver = nothing.then(|| driver.clone());
        nothing
    }

    /// The driver is awake and looks by itself.
    pub(crate) fn wake_up(&self) {
        self.log.lock().driver = None;
    }

    /// Ends a turn that has said nothing about a task, and so needs none. Whether it was one.
    pub(crate) fn leave_unborn(&self) -> bool {
        let mut log = self.log.lock();
        let unborn = matches!(log.position, Position::Unborn { .. }) && log.unwritten.is_empty();
        if unborn {
            log.position = Position::Over("the agent has answered with a message");
        }
        unborn
    }

    /// How much waits to be written.
    pub(crate) fn unwritten(&self) -> usize {
        self.log.lock().unwritten.len()
    }

    /// Writes what was said, creating the task if there is none yet; with nothing said, that is all it does.
    ///
    /// Only whoever drives the turn calls this, so that there is one writer. If the send is a repeat, there is a task
    /// already: then its id and the digest of what was sent come back.
    pub(crate) async fn write(self: &Arc<Self>) -> Result<Written, AgentError> {
        let written = self.try_write().await;
        if written.as_ref().is_err_and(|error| !error.is_over()) {
            // What was said is lost, so the task does not stand where it was said to.
            self.log.lock().state = TaskState::Submitted;
        }
        written
    }

    async fn try_write(self: &Arc<Self>) -> Result<Written, AgentError> {
        let (events, state, unborn, writing) = {
            let mut log = self.log.lock();
            let events = std::mem::take(&mut log.unwritten);
            match &mut log.position {
                Position::Over(why) => return Err(AgentError::over(why)),
                Position::Unborn { push, idempotency } => {
                    let unborn = (push.clone(), idempotency.clone());
                    (events, log.state, Some(unborn), None)
                }
                Position::Writing { seq, lease } => {
                    let writing = (*seq, *lease);
                    (events, log.state, None, Some(writing))
                }
            }
        };
        let written = match (unborn, writing) {
            (Some((push, idempotency)), _) => match self.create(events, push, idempotency).await? {
                Created::New { seq, lease, settled } => {
                    if !state.is_terminal() {
                        self.service.turns.register(self, lease);
                    }
                    (seq, lease, settled)
                }
                Created::KeyUsed(known) => {
                    self.log.lock().position = Position::Over("the send was repeated");
                    return Ok(Written::Repeat(known));
                }
                Created::Taken => {
                    self.log.lock().position = Position::Over("the id is taken");
                    return Ok(Written::Taken);
                }
            },
            (None, Some((seq, lease))) if !events.is_empty() => {
                let Appended { seq, settled } = self.append(seq, lease, events).await?;
                (seq, lease, settled)
            }
            (None, _) => return Ok(Written::Done),
        };
        let (seq, lease, settled) = written;
        self.log.lock().position = Position::Writing { seq, lease };
        if state.is_terminal() {
            self.service.turns.ended(&self.task_id);
        }
        match settled {
            Some(task) => self.signal.settle_with(task),
            None => self.signal.begin(Progress::Task),
        }
        Ok(Written::Done)
    }

    async fn create(
        &self,
        said: Vec<TaskEvent>,
        push: Option<Box<Webhook>>,
        idempotency: Option<Box<Idempotency>>,
    ) -> Result<Created, AgentError> {
        // A task is not younger than the first thing said about it.
        let first = said.iter().find_map(|event| match event {
            TaskEvent::Status(update) => update.status.timestamp,
            TaskEvent::Created(_) | TaskEvent::Message(_) | TaskEvent::Artifact(_) => None,
        });
        let now = first.unwrap_or_else(|| self.service.now_after(None));
        let task = Task {
            id: self.task_id.clone(),
            context_id: Some(self.context_id.clone()),
            status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(now) },
            history: vec![self.message.clone()],
            metadata: self.metadata.clone().filter(|_| self.caller.allowances().task_metadata),
            ..Task::default()
        };
        let mut events = said;
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
                // Only the client's messages come in between; they do not contradict what the agent says.
                Err(AppendError::Conflict(seq)) => after = seq,
                Err(AppendError::Ended(_)) => return Err(self.over("the task has ended")),
                Err(AppendError::LeaseLost) => return Err(self.over(ELSEWHERE)),
                Err(AppendError::KeyUsed(_)) => return Err(self.over("the send was repeated")),
                Err(error @ AppendError::TooManyWebhooks) => return Err(error.into()),
                Err(AppendError::NotFound) => return Err(self.over("the task is gone")),
                Err(AppendError::Store(error)) => return Err(error.into()),
            }
        }
    }

    /// The task went on, or ended, without this turn.
    fn over(&self, why: &'static str) -> AgentError {
        self.log.lock().position = Position::Over(why);
        self.signal.settle(Progress::Task);
        AgentError::over(why)
    }
}

/// Refuses what an agent says under names that are too long to be stored with every event. It is the agent's fault, but the client
/// learns why its task failed.
fn check(event: &TaskEvent) -> AgentResult {
    let checked = match event {
        TaskEvent::Artifact(update) => update.artifact.validate(),
        TaskEvent::Status(update) => update.status.message.as_ref().map_or(Ok(()), |m| m.validate_content()),
        TaskEvent::Message(message) => message.validate_content(),
        TaskEvent::Created(_) => Ok(()),
    };
    checked.map_err(|error| AgentError::public(format!("the agent's answer cannot be stored: {error}")))
}
