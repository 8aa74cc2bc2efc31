//! One execution of an agent for one message.
//!
//! A turn is the agent's only way to say anything about the task, and exactly one turn writes a task at a time. The task comes into
//! being with the first thing the agent says about it; an agent that answers with a direct message never creates one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use attache_protocol::{
    ContextId, JsonObject, Message, Part, Role, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use serde::de::DeserializeOwned;
use tokio_util::sync::WaitForCancellationFuture;

use crate::shared::Shared;
use crate::signal::Progress;
use crate::{AgentError, AgentResult, ArtifactBuilder, Caller, ListQuery, TaskEvent, View, new_id};

/// One execution of an agent for one message.
pub struct Turn {
    pub(crate) shared: Arc<Shared>,
}

/// How much an agent may say before it is made to pause.
pub(crate) const MAX_UNWRITTEN: usize = 256;

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
        self.shared.before().map(|snapshot| snapshot.task().into_owned())
    }

    /// Who calls: principal, tenant, rights, metadata from the authenticator, protocol version and extensions.
    pub fn caller(&self) -> &Caller {
        &self.shared.caller
    }

    /// The media types that the client can take; any, if it said nothing.
    pub fn accepted_output_modes(&self) -> &[String] {
        &self.shared.configuration.accepted_output_modes
    }

    /// What is said about the request that brought the message.
    pub fn metadata(&self) -> Option<&JsonObject> {
        self.shared.metadata.as_ref()
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

    /// The other tasks of the conversation, as far as they belong to the caller: the latest ones, at most `limit`, oldest first.
    pub async fn earlier_tasks(&self, limit: usize) -> Result<Vec<Task>, AgentError> {
        let query = ListQuery {
            context: Some(self.shared.context_id.clone()),
            state: None,
            since: None,
            after: None,
            // This one may be among them.
            limit: limit.saturating_add(1),
            view: View { generation: false, ..View::FULL },
        };
        let page = self.shared.service.store.list(&self.shared.caller.owner, &query).await?;
        let tasks = page.tasks.iter().map(|snapshot| snapshot.task().into_owned());
        let mut tasks: Vec<Task> = tasks.filter(|task| task.id != self.shared.task_id).take(limit).collect();
        tasks.reverse();
        Ok(tasks)
    }

    /// Whether an earlier turn for this message died with its process. What it said is in the [task](Self::task).
    pub fn is_rerun(&self) -> bool {
        self.shared.rerun
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
