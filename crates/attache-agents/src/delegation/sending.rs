//! Sending: a message that becomes a task, or one that goes on with it.

use attache_client::Reply;
use attache_core::Clock;
use attache_protocol::{Json, SendMessageRequest, Task, TaskId, TaskState};
use uuid::Uuid;

use super::agents::Agent;
use super::errand::{Aim, Errand};
use super::fetch::shown;
use super::input::Input;
use super::record::{self, Record};
use super::{Delegation, DelegationError};

impl Delegation {
    pub(super) async fn send(&self, input: &Input) -> Result<Json, DelegationError> {
        match input.text("taskId")? {
            Some(id) => self.go_on(id, input).await,
            None => self.begin(input).await,
        }
    }

    /// Gives an agent a new task.
    async fn begin(&self, input: &Input) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let address = input.need("agentUrl")?;
        let said = input.json("message").ok_or(DelegationError::Required("message"))?;
        let metadata = record::metadata(input.json("metadata"))?;
        let id = TaskId::from(Uuid::now_v7().to_string());
        let mut errand = Errand::new(Aim::New, id.clone(), input.text("sessionId")?, said, metadata)?;
        let request = errand.request()?;
        let agent = inner.agent(&address).await?;
        let remote_id = match &agent {
            Agent::Current(_) => None,
            Agent::Oldest(_) => {
                errand.session.get_or_insert_with(|| Uuid::now_v7().to_string());
                Some(id.clone())
            }
        };
        let now = inner.clock.now();
        let mut task = Task {
            id,
            context_id: errand.session.clone().map(Into::into),
            history: vec![request.message.clone()],
            metadata: errand.metadata.clone(),
            ..Task::default()
        };
        (task.status.state, task.status.timestamp) = (TaskState::Submitted, Some(now));
        let record = Record { task, agent_url: address, remote_id, created_at: now };
        inner.make_room_for(&record).await?;
        self.carry(agent, errand, request, record).await
    }

    /// Says something to the agent that has a task.
    async fn go_on(&self, id: String, input: &Input) -> Result<Json, DelegationError> {
        let inner = &self.0;
        let said = input.json("message").ok_or(DelegationError::Required("message"))?;
        let metadata = record::metadata(input.json("metadata"))?;
        let kept = inner.table.get(&id).await?;
        let mut record = kept.ok_or_else(|| DelegationError::TaskNotFound(id.clone()))?;
        let is_same = |one: &str, other: &str| one.trim_end_matches('/') == other.trim_end_matches('/');
        if let Some(address) = input.text("agentUrl")?.filter(|given| !is_same(given, &record.agent_url)) {
            let (given, own) = (shown(&address), shown(&record.agent_url));
            let text = format!("the task `{id}` is with the agent at `{own}`, not with the one at `{given}`");
            return Err(DelegationError::Invalid(text));
        }
        let session = record.task.context_id.as_ref().map(ToString::to_string);
        if let Some(other) = input.text("sessionId")?.filter(|given| session.as_ref() != Some(given)) {
            let own = session.map(|own| format!("in the session `{own}`"));
            let own = own.unwrap_or_else(|| "in no session".to_owned());
            return Err(DelegationError::Invalid(format!("the task `{id}` is {own}, not in `{other}`")));
        }
        if record.ended() {
            return Err(DelegationError::Over(record.state()));
        }
        let remote_id = record.remote_id.clone().ok_or(DelegationError::NotTaken(id))?;
        let errand = Errand::new(Aim::Known, remote_id, session, said, metadata)?;
        let request = errand.request()?;
        let agent = inner.agent(&record.agent_url).await?;
        record.answer(request.message.clone());
        self.carry(agent, errand, request, record).await
    }

    /// Sends a message, and records what comes of it.
    async fn carry(
        &self,
        agent: Agent,
        errand: Errand,
        request: SendMessageRequest,
        record: Record,
    ) -> Result<Json, DelegationError> {
        let inner = &self.0;
        // On its own, so that the answer is recorded whether or not the caller waits for it.
        let (this, mut pending) = (self.clone(), record.clone());
        let sending = tokio::spawn(async move {
            let inner = &this.0;
            let sent = agent.send(&inner.fetch, &errand, request, inner.options.send_limit).await;
            let now = inner.clock.now();
            match (sent, errand.aim) {
                // What is said to a task does not end it.
                (Ok(Reply::Message(message)), Aim::Known) => pending.hear(message, now),
                (Ok(reply), Aim::New | Aim::Known) => pending.learn(reply, now),
                (Err(error), aim) => {
                    tracing::info!(task = %pending.task.id, agent = shown(&pending.agent_url), %error, "a task could not be delegated");
                    // A task that the agent has stays what it is.
                    if aim == Aim::New {
                        pending.fail(&error.to_string(), now);
                        inner.table.save(pending).await?;
                    }
                    return Err(error);
                }
            }
            inner.table.save(pending).await
        });
        match tokio::time::timeout(inner.options.patience, sending).await {
            Ok(Ok(sent)) => sent?.shown(),
            Ok(Err(_)) => Err(DelegationError::Unreachable("the message could not be sent".to_owned())),
            Err(_) => {
                let id = record.task.id.clone();
                let mut now = inner.table.get(id.as_str()).await?.unwrap_or_else(|| record.clone());
                if now.task.status.state == record.task.status.state {
                    (now.task.status.state, now.task.status.message) = (TaskState::Working, None);
                    now.task.history = record.task.history;
                    now = inner.table.save(now).await?;
                }
                now.shown()
            }
        }
    }
}
