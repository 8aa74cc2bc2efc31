//! One execution of an agent for one message.
//!
//! An agent changes its task through its turn only, and one turn at a time writes a task. The first event creates the task. An agent
//! that replies with a direct message creates no task.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use attache_protocol::{
    ContextId, JsonObject, Message, Part, Role, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
};
use serde::de::DeserializeOwned;
use tokio_util::sync::WaitForCancellationFuture;

use crate::conversation::{
    Context as ConversationContext, ContextAdmission, Input, InputRules, Reader, is_refused, refusal,
};
use crate::signal::Progress;
use crate::turn_state::TurnState;
use crate::{
    AgentError, AgentResult, ArtifactBuilder, Caller, ContentPlace, ListQuery, PartWriter, TaskEvent,
    TraceParent, View, new_id,
};

/// One execution of an agent for one message.
pub struct Turn {
    pub(crate) inner: Arc<TurnState>,
}

/// How many pages of tasks are read to find the earlier ones. Only refused messages make further pages necessary.
const MAX_PAGES: usize = 20;

/// How many events an agent may emit before it has to pause.
pub(crate) const MAX_UNWRITTEN: usize = 256;

/// What the agent gets.
impl Turn {
    /// The message to answer.
    pub fn message(&self) -> &Message {
        &self.inner.message
    }

    /// The text of the message.
    pub fn text(&self) -> String {
        self.inner.message.text()
    }

    /// The first data part of the message, deserialized as a `T`.
    pub fn data<T: DeserializeOwned>(&self) -> Option<Result<T, serde_json::Error>> {
        self.inner.message.parts.iter().find_map(Part::as_data).map(|data| data.read())
    }

    /// The id of the task that this turn works on, or will create with its first event.
    pub fn task_id(&self) -> &TaskId {
        &self.inner.task_id
    }

    /// The conversation that the task belongs to.
    pub fn context_id(&self) -> &ContextId {
        &self.inner.context_id
    }

    /// The context: its workspace, and what the agent keeps for it.
    pub fn context(&self) -> ConversationContext {
        ConversationContext::new(self.inner.clone())
    }

    /// The message as an agent reads it: text, and media with their manifest. Files of the workspace are read, and remote URLs if the
    /// [rules](crate::InputRules) allow it.
    pub async fn input(&self) -> Result<Input, AgentError> {
        let default = InputRules::default();
        let rules = match &self.inner.place {
            ContextAdmission::Admitted(place) => &place.rules.input,
            ContextAdmission::None | ContextAdmission::Refused(_) => &default,
        };
        let workspace = match Reader::needs_workspace(self.message()) {
            true => self.context().workspace_if_any().await?,
            false => None,
        };
        let reader = Reader { rules, peer: self.inner.service.options.peer };
        reader.read(self.message(), workspace).await.map_err(AgentError::public)
    }

    /// The task when the turn began, with this message, if the message continues a task.
    pub fn task(&self) -> Option<Task> {
        self.inner.before().map(|snapshot| snapshot.task().into_owned())
    }

    /// Who calls: principal, tenant, rights, metadata from the authenticator, protocol version and extensions.
    pub fn caller(&self) -> &Caller {
        &self.inner.caller
    }

    /// The trace that the request belongs to, for calls that the agent makes. A turn that [runs again](Self::is_rerun) after a
    /// restart has none.
    pub fn trace_parent(&self) -> Option<TraceParent> {
        self.inner.caller.trace_parent
    }

    /// The media types that the client accepts. Empty means any.
    pub fn accepted_output_modes(&self) -> &[String] {
        &self.inner.configuration.accepted_output_modes
    }

    /// The metadata of the request.
    pub fn metadata(&self) -> Option<&JsonObject> {
        self.inner.metadata.as_ref()
    }

    /// The tasks that the message refers to, as far as they belong to the caller.
    pub async fn referenced_tasks(&self) -> Result<Vec<Task>, AgentError> {
        let mut tasks = Vec::new();
        for id in &self.inner.message.reference_task_ids {
            let found = self.inner.service.store.load(&self.inner.caller.owner, id).await?;
            tasks.extend(found.map(|snapshot| snapshot.task().into_owned()));
        }
        Ok(tasks)
    }

    /// The other tasks of the conversation, as far as they belong to the caller: the latest ones, at most `limit`, oldest first. Tasks of
    /// messages that were refused are not part of the conversation.
    pub async fn earlier_tasks(&self, limit: usize) -> Result<Vec<Task>, AgentError> {
        let mut query = ListQuery {
            context: Some(self.inner.context_id.clone()),
            state: None,
            since: None,
            after: None,
            // The listing may include the task of this turn.
            limit: limit.saturating_add(1),
            view: View { generation: false, ..View::FULL },
        };
        let mut tasks: Vec<Task> = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.inner.service.store.list(&self.inner.caller.owner, &query).await?;
            let found = page.tasks.iter().map(|snapshot| snapshot.task().into_owned());
            // The conversation does not know the messages that were refused.
            let found = found.filter(|task| task.id != self.inner.task_id && !is_refused(task));
            tasks.extend(found.take(limit - tasks.len()));
            query.after = page.next.filter(|_| tasks.len() < limit);
            if query.after.is_none() {
                break;
            }
        }
        tasks.reverse();
        Ok(tasks)
    }

    /// Whether an earlier turn for this message died with its process. The events of that turn are in the [task](Self::task).
    pub fn is_rerun(&self) -> bool {
        self.inner.rerun
    }

    /// Whether the task was canceled.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancel().is_cancelled()
    }

    /// Waits until the task is canceled.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.inner.cancel().cancelled()
    }
}

/// What the agent does to its task.
impl Turn {
    /// Sets the state to working, with a text about the progress. An empty text sets the state only.
    pub async fn working(&self, text: impl Into<String>) -> AgentResult {
        let text = text.into();
        self.status(TaskState::Working, (!text.is_empty()).then(|| Part::text(text))).await
    }

    /// Like [`working`](Self::working), with metadata for programs that show progress. Readers of streams receive the metadata.
    pub async fn working_with(&self, text: impl Into<String>, metadata: JsonObject) -> AgentResult {
        let text = text.into();
        let parts = (!text.is_empty()).then(|| vec![Part::text(text)]);
        self.update(TaskState::Working, parts, Some(metadata)).await
    }

    /// Builds an artifact. It replaces an earlier artifact of the same name.
    pub fn artifact(&self, name: impl Into<String>) -> ArtifactBuilder<'_> {
        ArtifactBuilder::new(self, name.into())
    }

    /// Whether large content is stored apart from the events of the task.
    pub fn stores_artifacts(&self) -> bool {
        self.inner.service.options.artifacts.is_some()
    }

    /// Writes the content of a file piece by piece. The result is a part for an artifact or a message of this turn.
    ///
    /// Content above the [limit](crate::Artifacts::inline_limit) goes to the artifact store as it is written, if the server has one, and
    /// does not stay in memory.
    pub fn part_writer(&self, filename: impl Into<String>, media_type: impl Into<String>) -> PartWriter {
        let filled = |text: String| Some(text).filter(|text| !text.is_empty());
        let place = ContentPlace {
            owner: self.inner.caller.owner.clone(),
            task: self.inner.task_id.clone(),
            filename: filled(filename.into()),
            media_type: filled(media_type.into()),
        };
        let redaction = self.inner.file_redaction();
        PartWriter::new(self.inner.service.options.artifacts.clone(), place, redaction)
    }

    /// Completes the task.
    pub async fn complete(&self) -> AgentResult {
        self.status(TaskState::Completed, None).await
    }

    /// Completes the task with a status message. Results belong in artifacts.
    pub async fn complete_with(&self, part: impl Into<Part>) -> AgentResult {
        self.status(TaskState::Completed, Some(part.into())).await
    }

    /// Like [`complete_with`](Self::complete_with), with several parts.
    pub async fn complete_with_parts(&self, parts: Vec<Part>) -> AgentResult {
        self.state(TaskState::Completed, Some(parts)).await
    }

    /// Asks the client for input. The client's answer starts the next turn.
    pub async fn ask(&self, part: impl Into<Part>) -> AgentResult {
        self.status(TaskState::InputRequired, Some(part.into())).await
    }

    /// Like [`ask`](Self::ask), with several parts.
    pub async fn ask_with(&self, parts: Vec<Part>) -> AgentResult {
        self.state(TaskState::InputRequired, Some(parts)).await
    }

    /// Asks for credentials. They may come with a message, which starts the next turn. They may also come on another way, in which
    /// case this turn can wait for them.
    pub async fn require_auth(&self, part: impl Into<Part>) -> AgentResult {
        self.status(TaskState::AuthRequired, Some(part.into())).await
    }

    /// Rejects the task: the agent will not do it.
    pub async fn reject(&self, part: impl Into<Part>) -> AgentResult {
        self.status(TaskState::Rejected, Some(part.into())).await
    }

    /// Like [`reject`](Self::reject), with several parts.
    pub async fn reject_with(&self, parts: Vec<Part>) -> AgentResult {
        self.state(TaskState::Rejected, Some(parts)).await
    }

    /// Fails the task: the agent could not do it.
    pub async fn fail(&self, part: impl Into<Part>) -> AgentResult {
        self.status(TaskState::Failed, Some(part.into())).await
    }

    /// Like [`fail`](Self::fail), with several parts.
    pub async fn fail_with(&self, parts: Vec<Part>) -> AgentResult {
        self.state(TaskState::Failed, Some(parts)).await
    }

    /// Replies with a direct message, without a task.
    ///
    /// If the task exists already, it is completed with the message as its status. It exists if the message continues a task, or if
    /// the client did not want to wait.
    pub async fn reply(&self, part: impl Into<Part>) -> AgentResult {
        self.reply_with(vec![part.into()]).await
    }

    /// Like [`reply`](Self::reply), with several parts.
    pub async fn reply_with(&self, parts: Vec<Part>) -> AgentResult {
        if !self.inner.close_without_task() {
            return self.state(TaskState::Completed, Some(parts)).await;
        }
        let mut message = Message { task_id: None, ..self.agent_message(parts) };
        self.inner.redact_message(&mut message);
        self.inner.signal.settle(Progress::Message(Box::new(message)));
        Ok(())
    }

    /// Says the next piece of a message with this id, in the state working.
    pub(crate) fn say(&self, id: &str, part: Part) -> Emitted {
        let message = Message { message_id: id.into(), ..self.agent_message(vec![part]) };
        self.update_with(TaskState::Working, Some(Box::new(message)), None)
    }

    /// Fails the task of a message that was refused before an agent could read it.
    pub(crate) fn refuse(&self, text: &str) -> AgentResult {
        let message = Message { metadata: refusal(), ..self.agent_message(vec![Part::text(text)]) };
        self.update_with(TaskState::Failed, Some(Box::new(message)), None).into_result()
    }

    pub(crate) fn status(&self, state: TaskState, part: Option<Part>) -> Emitted {
        self.state(state, part.map(|part| vec![part]))
    }

    fn state(&self, state: TaskState, parts: Option<Vec<Part>>) -> Emitted {
        self.update(state, parts, None)
    }

    pub(crate) fn update(
        &self,
        state: TaskState,
        parts: Option<Vec<Part>>,
        metadata: Option<JsonObject>,
    ) -> Emitted {
        let message = parts.map(|parts| Box::new(self.agent_message(parts)));
        self.update_with(state, message, metadata)
    }

    pub(crate) fn update_with(
        &self,
        state: TaskState,
        message: Option<Box<Message>>,
        metadata: Option<JsonObject>,
    ) -> Emitted {
        let state = self.inner.end_state(state);
        let update = TaskStatusUpdateEvent {
            task_id: self.task_id().clone(),
            context_id: self.context_id().clone(),
            status: TaskStatus { state, message, timestamp: None },
            metadata,
            ..TaskStatusUpdateEvent::default()
        };
        self.emit(TaskEvent::Status(Arc::new(update)))
    }

    fn agent_message(&self, parts: Vec<Part>) -> Message {
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
        Emitted::new(self.inner.emit(event))
    }
}

/// The result of emitting an event.
///
/// The event is added before this future is polled. An agent that emits many events without a pause is made to pause here, so that
/// they are written and readers can keep up.
pub struct Emitted {
    result: Option<AgentResult>,
    pause: bool,
}

impl Emitted {
    /// Whether the event was not added.
    pub(crate) fn is_failed(&self) -> bool {
        self.result.as_ref().is_some_and(AgentResult::is_err)
    }

    /// The result without the pause, for the driver of the turn, which writes the event itself.
    pub(crate) fn into_result(mut self) -> AgentResult {
        self.result.take().unwrap_or(Ok(()))
    }

    /// `unwritten` is the number of unwritten events.
    pub(crate) fn new(unwritten: Result<usize, AgentError>) -> Self {
        let pause = unwritten.as_ref().is_ok_and(|count| *count >= MAX_UNWRITTEN);
        Self { result: Some(unwritten.map(|_| ())), pause }
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
