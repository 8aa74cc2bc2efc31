//! One execution of an agent for one message.
//!
//! A turn is the agent's only way to say anything about the task, and exactly one turn writes a task at a time. The task comes into
//! being with the first thing the agent says about it; an agent that answers with a direct message never creates one.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use attache_protocol::{
    ContextId, Message, Part, Role, SendMessageConfiguration, Task, TaskId, TaskPushNotificationConfig,
    TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::service::Inner as Service;
use crate::store::Idempotency;
use crate::{
    AgentError, AgentResult, Append, AppendError, Appended, ArtifactBuilder, Caller, Created, Lease, NewTask,
    Seq, Snapshot, TaskEvent, new_id,
};

/// One execution of an agent for one message.
pub struct Turn {
    pub(crate) shared: Arc<Shared>,
}

/// What a turn, those who wait for it and those who may cancel it have in common.
pub(crate) struct Shared {
    pub(crate) service: Arc<Service>,
    origin: Origin,
    /// The task when the message was added to it, if there was one.
    pub(crate) before: Option<Snapshot>,
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
    pub(crate) task_id: TaskId,
    pub(crate) context_id: ContextId,
    /// Whether someone reads the task's events as they come.
    pub(crate) followed: bool,
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
    Unborn { push: Option<Box<TaskPushNotificationConfig>>, idempotency: Option<Box<Idempotency>> },
    /// The log ends here, as far as this turn knows.
    Writing { seq: Seq, lease: Lease },
    /// Nothing more can be said.
    Over(&'static str),
}

/// How much an agent may say before it is made to pause.
const MAX_UNWRITTEN: usize = 64;

/// The task that an earlier send with the same key created.
pub(crate) struct Known {
    pub(crate) task: TaskId,
    pub(crate) fingerprint: [u8; 32],
}

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

/// What the agent is asked.
impl Turn {
    /// The message to answer.
    pub fn message(&self) -> &Message {
        &self.shared.message
    }

    /// The text of the message.
    pub fn text(&self) -> String {
        self.shared.message.text()
    }

    /// The first data part of the message, read as a `T`.
    pub fn data<T: DeserializeOwned>(&self) -> Option<Result<T, serde_json::Error>> {
        self.shared.message.parts.iter().find_map(Part::as_data).map(|data| data.read())
    }

    /// The task that this turn works on, or will create with the first thing it says.
    pub fn task_id(&self) -> &TaskId {
        &self.shared.task_id
    }

    /// The conversation that the task belongs to.
    pub fn context_id(&self) -> &ContextId {
        &self.shared.context_id
    }

    /// The task so far, this message included, if the message continues one.
    pub fn task(&self) -> Option<Task> {
        self.shared.before.as_ref().map(|snapshot| snapshot.task().into_owned())
    }

    /// Who asks: principal, tenant, protocol version and extensions.
    pub fn caller(&self) -> &Caller {
        &self.shared.caller
    }

    /// The media types that the client can take; any, if it said nothing.
    pub fn accepted_output_modes(&self) -> &[String] {
        &self.shared.configuration.accepted_output_modes
    }

    /// The tasks that the message refers to, as far as they exist for the caller.
    pub async fn referenced_tasks(&self) -> Result<Vec<Task>, AgentError> {
        let mut tasks = Vec::new();
        for id in &self.shared.message.reference_task_ids {
            let found = self.shared.service.store.load(&self.shared.caller.owner, id).await?;
            tasks.extend(found.map(|snapshot| snapshot.task().into_owned()));
        }
        Ok(tasks)
    }

    /// Whether the task was canceled.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancel().is_cancelled()
    }

    /// Waits until the task is canceled.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.shared.cancel().cancelled()
    }
}

/// What the agent says.
impl Turn {
    /// The agent is at work, and this is what it does. An empty text says only that.
    pub async fn working(&self, text: impl Into<String>) -> AgentResult {
        let text = text.into();
        self.status(TaskState::Working, (!text.is_empty()).then(|| Part::text(text))).await
    }

    /// Puts an artifact together. An artifact of the same name replaces an earlier one.
    pub fn artifact(&self, name: impl Into<String>) -> ArtifactBuilder<'_> {
        ArtifactBuilder::new(self, name.into())
    }

    /// The task is done.
    pub async fn complete(&self) -> AgentResult {
        self.status(TaskState::Completed, None).await
    }

    /// The task is done, and this is to be said about it. Results belong in artifacts.
    pub async fn complete_with(&self, part: impl Into<Part>) -> AgentResult {
        self.status(TaskState::Completed, Some(part.into())).await
    }

    /// The agent needs an answer from the client before it can go on. The answer starts the next turn.
    pub async fn ask(&self, part: impl Into<Part>) -> AgentResult {
        self.status(TaskState::InputRequired, Some(part.into())).await
    }

    /// The agent needs credentials, and this says which. They may come with a message, which starts the next turn, or another
    /// way, in which case this turn can go on waiting for them.
    pub async fn require_auth(&self, part: impl Into<Part>) -> AgentResult {
        self.status(TaskState::AuthRequired, Some(part.into())).await
    }

    /// The agent will not do this.
    pub async fn reject(&self, part: impl Into<Part>) -> AgentResult {
        self.status(TaskState::Rejected, Some(part.into())).await
    }

    /// The agent could not do this.
    pub async fn fail(&self, part: impl Into<Part>) -> AgentResult {
        self.status(TaskState::Failed, Some(part.into())).await
    }

    /// Answers with a direct message and no task.
    ///
    /// Where there is a task already, because the message continues one or the client did not want to wait, the task is
    /// completed with the message as its status.
    pub async fn reply(&self, part: impl Into<Part>) -> AgentResult {
        self.reply_with(vec![part.into()]).await
    }

    /// Like [`reply`](Self::reply), with several parts.
    pub async fn reply_with(&self, parts: Vec<Part>) -> AgentResult {
        if !self.shared.leave_unborn() {
            return self.state(TaskState::Completed, Some(parts)).await;
        }
        let message = Message { task_id: None, ..self.say(parts) };
        self.shared.signal.settle(Progress::Message(Box::new(message)));
        Ok(())
    }

    pub(crate) fn status(&self, state: TaskState, part: Option<Part>) -> Emitted {
        self.state(state, part.map(|part| vec![part]))
    }

    fn state(&self, state: TaskState, parts: Option<Vec<Part>>) -> Emitted {
        let message = parts.map(|parts| Box::new(self.say(parts)));
        let update = TaskStatusUpdateEvent {
            task_id: self.task_id().clone(),
            context_id: self.context_id().clone(),
            status: TaskStatus { state, message, timestamp: None },
            ..TaskStatusUpdateEvent::default()
        };
        self.emit(TaskEvent::Status(Arc::new(update)))
    }

    fn say(&self, parts: Vec<Part>) -> Message {
        Message {
            message_id: new_id(),
            context_id: Some(self.context_id().clone()),
            task_id: Some(self.task_id().clone()),
            role: Role::Agent,
            parts,
            ..Message::default()
        }
    }

    pub(crate) fn emit(&self, event: TaskEvent) -> Emitted {
        Emitted::new(self.shared.emit(event))
    }
}

/// What an agent says is noted at once. An agent that says much without a pause is made to pause, so that it is written and
/// its readers can keep up.
pub struct Emitted {
    result: Option<AgentResult>,
    pause: bool,
}

impl Emitted {
    /// What became of it, for those who will see to the writing themselves.
    pub(crate) fn noted(mut self) -> AgentResult {
        self.result.take().unwrap_or(Ok(()))
    }

    pub(crate) fn new(noted: Result<usize, AgentError>) -> Self {
        let pause = noted.as_ref().is_ok_and(|waiting| *waiting >= MAX_UNWRITTEN);
        Self { result: Some(noted.map(|_| ())), pause }
    }
}

impl Future for Emitted {
    type Output = AgentResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<AgentResult> {
        if std::mem::take(&mut self.pause) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.result.take().unwrap_or(Ok(())))
    }
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
            before,
            log: Mutex::new(Writer::new(position)),
            signal: Signal::default(),
            cancel: OnceLock::new(),
            began: OnceLock::new(),
        })
    }

    pub(crate) fn cancel(&self) -> &CancellationToken {
        self.cancel.get_or_init(CancellationToken::new)
    }

    /// Notes an event, to be written when the agent pauses. Returns how many wait.
    pub(crate) fn emit(&self, mut event: TaskEvent) -> Result<usize, AgentError> {
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
    fn leave_unborn(&self) -> bool {
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
    pub(crate) async fn write(self: &Arc<Self>) -> Result<Option<Known>, AgentError> {
        let written = self.try_write().await;
        if written.as_ref().is_err_and(|error| !error.is_over()) {
            // What was said is lost, so the task does not stand where it was said to.
            self.log.lock().state = TaskState::Submitted;
        }
        written
    }

    async fn try_write(self: &Arc<Self>) -> Result<Option<Known>, AgentError> {
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
                Created::Known(task, fingerprint) => {
                    self.log.lock().position = Position::Over("the send was repeated");
                    return Ok(Some(Known { task, fingerprint }));
                }
            },
            (None, Some((seq, lease))) if !events.is_empty() => {
                let Appended { seq, settled } = self.append(seq, lease, events).await?;
                (seq, lease, settled)
            }
            (None, _) => return Ok(None),
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
        Ok(None)
    }

    async fn create(
        &self,
        said: Vec<TaskEvent>,
        push: Option<Box<TaskPushNotificationConfig>>,
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
            ..Task::default()
        };
        let mut events = Vec::with_capacity(said.len() + 1);
        events.push(TaskEvent::Created(Arc::new(task)));
        events.extend(said);
        let new = NewTask {
            owner: self.caller.owner.clone(),
            events,
            followed: self.followed,
            lease_until: self.service.lease_end(now),
            idempotency: idempotency.map(|key| *key),
            push: push.map(|config| *config),
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
            let append = Append { after, lease: Some(lease), idempotency: None, events: events.clone() };
            match self.service.store.append(&self.task_id, append).await {
                Ok(appended) => return Ok(appended),
                // Only the client's messages come in between; they do not contradict what the agent says.
                Err(AppendError::Conflict(seq)) => after = seq,
                Err(AppendError::Ended(_)) => return Err(self.over("the task has ended")),
                Err(AppendError::LeaseLost) => return Err(self.over("another server runs the task")),
                Err(AppendError::Known(..)) => return Err(self.over("the send was repeated")),
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
