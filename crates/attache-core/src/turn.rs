//! One execution of an agent for one message.
//!
//! A turn is the agent's only way to say anything about the task, and exactly one turn writes a task at a time. The task comes into
//! being with the first thing the agent says about it; an agent that answers with a direct message never creates one.

use std::sync::Arc;

use attache_protocol::{
    ContextId, Message, Part, Role, SendMessageConfiguration, Task, TaskId, TaskPushNotificationConfig, TaskState,
    TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::service::Inner as Service;
use crate::store::Idempotency;
use crate::{
    AgentError, AgentResult, AppendError, ArtifactBuilder, Caller, Created, Lease, NewTask, Seq, Snapshot, TaskEvent,
    new_id,
};

/// One execution of an agent for one message.
pub struct Turn {
    pub(crate) shared: Arc<Shared>,
}

/// What a turn, those who wait for it and those who may cancel it have in common.
pub(crate) struct Shared {
    pub(crate) service: Arc<Service>,
    pub(crate) caller: Caller,
    pub(crate) message: Message,
    pub(crate) configuration: SendMessageConfiguration,
    pub(crate) task_id: TaskId,
    pub(crate) context_id: ContextId,
    /// The task when the message was added to it, if there was one.
    pub(crate) before: Option<Snapshot>,
    pub(crate) cancel: CancellationToken,
    pub(crate) log: tokio::sync::Mutex<Writer>,
    pub(crate) signal: Signal,
}

/// Where the turn stands in the task's log.
pub(crate) struct Writer {
    pub(crate) position: Position,
    pub(crate) last_status: Option<Timestamp>,
}

pub(crate) enum Position {
    /// There is no task yet. What is needed to create it waits here.
    Unborn { push: Option<Box<TaskPushNotificationConfig>>, idempotency: Option<Box<Idempotency>> },
    /// The log ends here, as far as this turn knows.
    Writing { seq: Seq, lease: Lease, state: TaskState },
    /// Nothing more can be said.
    Over(&'static str),
}

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
        self.shared.cancel.is_cancelled()
    }

    /// Waits until the task is canceled.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.shared.cancel.cancelled()
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
        let mut log = self.shared.log.lock().await;
        match log.position {
            Position::Over(why) => Err(AgentError::over(why)),
            Position::Writing { .. } => {
                drop(log);
                self.state(TaskState::Completed, Some(parts)).await
            }
            Position::Unborn { .. } => {
                let message = Message { task_id: None, ..self.say(parts) };
                log.position = Position::Over("the agent has answered with a message");
                drop(log);
                self.shared.signal.settle(Progress::Message(Box::new(message)));
                Ok(())
            }
        }
    }

    async fn status(&self, state: TaskState, part: Option<Part>) -> AgentResult {
        self.state(state, part.map(|part| vec![part])).await
    }

    async fn state(&self, state: TaskState, parts: Option<Vec<Part>>) -> AgentResult {
        let message = parts.map(|parts| Box::new(self.say(parts)));
        let update = TaskStatusUpdateEvent {
            task_id: self.task_id().clone(),
            context_id: self.context_id().clone(),
            status: TaskStatus { state, message, timestamp: None },
            ..TaskStatusUpdateEvent::default()
        };
        self.emit(TaskEvent::Status(Arc::new(update))).await
    }

    pub(crate) async fn say_last(&self, state: TaskState, part: Option<Part>) -> AgentResult {
        self.status(state, part).await
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

    pub(crate) async fn emit(&self, event: TaskEvent) -> AgentResult {
        self.shared.emit(event).await
    }
}

impl Shared {
    /// Writes an event to the task's log, creating the task if there is none yet.
    pub(crate) async fn emit(self: &Arc<Self>, mut event: TaskEvent) -> AgentResult {
        let mut log = self.log.lock().await;
        let now = self.service.now_after(log.last_status);
        if let TaskEvent::Status(update) = &mut event {
            Arc::make_mut(update).status.timestamp = Some(now);
            log.last_status = Some(now);
        }
        let state = event.state();
        match &mut log.position {
            Position::Over(why) => return Err(AgentError::over(why)),
            Position::Unborn { .. } => {
                if self.create(&mut log, now, Some(event)).await?.is_some() {
                    // Keys are claimed before the agent runs, so that what it says cannot be someone else's.
                    return Err(AgentError::over("the send was repeated"));
                }
            }
            Position::Writing { seq, lease, state: known } => {
                *seq = self.append(*seq, *lease, event).await?;
                *known = state.unwrap_or(*known);
            }
        }
        let Position::Writing { state, .. } = log.position else { return Ok(()) };
        if state.is_terminal() {
            log.position = Position::Over("the task has ended");
        }
        drop(log);
        if state.is_settled() {
            self.signal.settle(Progress::Task);
        }
        Ok(())
    }

    /// Makes sure that there is a task, without saying anything about it yet. If the send is a repeat, there is one
    /// already: then its id and the digest of what was sent come back.
    pub(crate) async fn materialize(self: &Arc<Self>) -> Result<Option<Known>, AgentError> {
        let mut log = self.log.lock().await;
        if !matches!(log.position, Position::Unborn { .. }) {
            return Ok(None);
        }
        let now = self.service.now_after(log.last_status);
        self.create(&mut log, now, None).await
    }

    async fn create(
        self: &Arc<Self>,
        log: &mut Writer,
        now: Timestamp,
        first: Option<TaskEvent>,
    ) -> Result<Option<Known>, AgentError> {
        let Position::Unborn { push, idempotency } = &mut log.position else { return Ok(None) };
        let task = Task {
            id: self.task_id.clone(),
            context_id: Some(self.context_id.clone()),
            status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(now) },
            history: vec![self.message.clone()],
            ..Task::default()
        };
        let state = first.as_ref().and_then(TaskEvent::state).unwrap_or(TaskState::Submitted);
        let new = NewTask {
            owner: self.caller.owner.clone(),
            events: std::iter::once(TaskEvent::Created(Arc::new(task))).chain(first).collect(),
            lease_until: self.service.lease_end(),
            idempotency: idempotency.take().map(|key| *key),
            push: push.take().map(|config| *config),
        };
        match self.service.store.create(new).await? {
            Created::New(seq, lease) => {
                log.position = Position::Writing { seq, lease, state };
                log.last_status = log.last_status.max(Some(now));
                self.service.turns.register(self, lease);
                self.signal.begin(Progress::Task);
                Ok(None)
            }
            Created::Known(task, fingerprint) => {
                log.position = Position::Over("the send was repeated");
                Ok(Some(Known { task, fingerprint }))
            }
        }
    }

    async fn append(&self, mut after: Seq, lease: Lease, event: TaskEvent) -> Result<Seq, AgentError> {
        loop {
            match self.service.store.append(&self.task_id, Some(lease), after, vec![event.clone()]).await {
                Ok(seq) => return Ok(seq),
                // Only the client's messages come in between; they do not contradict what the agent says.
                Err(AppendError::Conflict(seq)) => after = seq,
                Err(AppendError::Ended(_)) => return Err(AgentError::over("the task has ended")),
                Err(AppendError::LeaseLost) => return Err(AgentError::over("another server runs the task")),
                Err(AppendError::NotFound) => return Err(AgentError::over("the task is gone")),
                Err(AppendError::Store(error)) => return Err(error.into()),
            }
        }
    }
}
