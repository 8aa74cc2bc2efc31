//! Sends messages that create a task or continue one.

use std::time::Duration;

use attache_client::Reply;
use attache_core::Clock;
use attache_protocol::{Json, SendMessageRequest, Task, TaskId, TaskState};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::agents::AgentConnection;
use super::input::Input;
use super::record::{Record, parse_metadata};
use super::request::{DelegationRequest, Target};
use super::{Delegation, DelegationError};
use crate::address::redact;

/// How long an agent may take to accept a task if the caller does not wait for its end.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

impl Delegation {
    pub(super) async fn send(&self, input: &Input) -> Result<Json, DelegationError> {
        match input.text("taskId")? {
            Some(id) => self.continue_task(id, input).await,
            None => self.create_task(input).await,
        }
    }

    /// Sends a message that creates a task.
    async fn create_task(&self, input: &Input) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let address = input.required("agentUrl")?;
        let message = input.json("message").ok_or(DelegationError::Required("message"))?;
        let (metadata, wait) = (parse_metadata(input.json("metadata"))?, input.wait()?);
        let id = TaskId::from(Uuid::now_v7().to_string());
        let session = input.text("sessionId")?;
        let mut request = DelegationRequest::new(Target::NewTask, id.clone(), session, message, metadata)?;
        request.trace_parent = input.trace_parent;
        let message = request.to_send_message()?;
        let agent = inner.connect(&address).await?;
        let remote_id = match &agent {
            AgentConnection::Current(_) => None,
            // In protocol 0.1 the client chooses the ids of the task and of the session.
            AgentConnection::V0_1(_) => {
                request.session.get_or_insert_with(|| Uuid::now_v7().to_string());
                Some(id.clone())
            }
        };
        let now = inner.clock.now();
        let mut task = Task {
            id,
            context_id: request.session.clone().map(Into::into),
            history: vec![message.message.clone()],
            metadata: request.metadata.clone(),
            ..Task::default()
        };
        (task.status.state, task.status.timestamp) = (TaskState::Submitted, Some(now));
        let record = Record { task, agent_url: address, remote_id, created_at: now };
        inner.add_record(&record).await?;
        self.send_and_record(agent, request, message, record, wait).await
    }

    /// Sends a message to the task that an agent has.
    async fn continue_task(&self, id: String, input: &Input) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let message = input.json("message").ok_or(DelegationError::Required("message"))?;
        let (metadata, wait) = (parse_metadata(input.json("metadata"))?, input.wait()?);
        let stored = inner.table.get(&id).await?;
        let mut record = stored.ok_or_else(|| DelegationError::TaskNotFound(id.clone()))?;
        let is_same = |one: &str, other: &str| one.trim_end_matches('/') == other.trim_end_matches('/');
        if let Some(address) = input.text("agentUrl")?.filter(|given| !is_same(given, &record.agent_url)) {
            let (given, own) = (redact(&address), redact(&record.agent_url));
            let text =
                format!("the task `{id}` belongs to the agent at `{own}`, not to the agent at `{given}`");
            return Err(DelegationError::Invalid(text));
        }
        let session = record.task.context_id.as_ref().map(ToString::to_string);
        if let Some(other) = input.text("sessionId")?.filter(|given| session.as_ref() != Some(given)) {
            let own = session.map(|own| format!("in the session `{own}`"));
            let own = own.unwrap_or_else(|| "in no session".to_owned());
            return Err(DelegationError::Invalid(format!("the task `{id}` is {own}, not in `{other}`")));
        }
        if record.ended() {
            return Err(DelegationError::NotContinuable(record.state()));
        }
        let remote_id = record.remote_id.clone().ok_or(DelegationError::NotAccepted(id))?;
        let mut request =
            DelegationRequest::new(Target::ExistingTask, remote_id, session, message, metadata)?;
        request.trace_parent = input.trace_parent;
        let message = request.to_send_message()?;
        let agent = inner.connect(&record.agent_url).await?;
        record.add_message(message.message.clone());
        self.send_and_record(agent, request, message, record, wait).await
    }

    /// Sends a message, records the response, and waits until the task has ended or needs input. After `wait`, or by default after
    /// [`max_wait`](super::DelegationOptions::max_wait), returns the task as it is.
    async fn send_and_record(
        &self,
        agent: AgentConnection,
        request: DelegationRequest,
        message: SendMessageRequest,
        record: Record,
        wait: Option<Duration>,
    ) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let wait = wait.unwrap_or(inner.options.max_wait);
        let deadline = Instant::now() + wait;
        // Also a caller that does not wait for the end gets the id of the task, unless the agent responds only at the end.
        let accepted_until = match agent {
            AgentConnection::Current(_) if wait.is_zero() => Instant::now() + ACCEPT_TIMEOUT,
            AgentConnection::Current(_) | AgentConnection::V0_1(_) => deadline,
        };
        // In a background task, so that the response is recorded also if the caller does not wait for it.
        let (this, mut pending) = (self.clone(), record.clone());
        let sending = tokio::spawn(async move {
            let inner = &this.0;
            let sent = agent.send(&inner.fetcher, &request, message, inner.options.send_limit).await;
            let now = inner.clock.now();
            match (sent, request.target) {
                // A message in response does not end an existing task.
                (Ok(Reply::Message(message)), Target::ExistingTask) => {
                    pending.set_status_message(message, now);
                }
                (Ok(reply), Target::NewTask | Target::ExistingTask) => pending.apply_reply(reply, now),
                (Err(error), target) => {
                    let agent = redact(&pending.agent_url);
                    tracing::info!(task = %pending.task.id, agent, %error, "cannot delegate a task");
                    // An existing task stays as it is at the agent, so its record does too.
                    if target == Target::NewTask {
                        pending.fail(&error.to_string(), now);
                        inner.table.save(pending).await?;
                    }
                    return Err(error);
                }
            }
            inner.table.save(pending).await
        });
        match timeout_at(accepted_until, sending).await {
            Ok(Ok(sent)) => inner.settled(sent?, deadline).await.to_output(),
            Ok(Err(_)) => Err(DelegationError::Unreachable("the message could not be sent".to_owned())),
            Err(_) => {
                let id = record.task.id.clone();
                let mut current = inner.table.get(id.as_str()).await?.unwrap_or_else(|| record.clone());
                if current.task.status.state == record.task.status.state {
                    (current.task.status.state, current.task.status.message) = (TaskState::Working, None);
                    current.task.history = record.task.history;
                    current = inner.table.save(current).await?;
                }
                current.to_output()
            }
        }
    }
}
