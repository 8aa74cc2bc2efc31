//! The operations of an agent.

use std::sync::Arc;

use attache_protocol::{
    AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, Request, StreamResponse,
    Task, TaskId, TaskPushNotificationConfig,
};

use crate::card_trust;
use crate::deadline::Deadline;
use crate::http::with_timeout;
use crate::listing::Page;
use crate::request_headers::RequestHeaders;
use crate::stream::{Follower, Opening};
use crate::transport::{CardResponse, EmptyResponse};
use crate::{Client, ClientError, Events, Listing, Outgoing, Reply};

impl Client {
    /// Sends a message and waits for the response. The message is text, a part, several parts, a message, or an [`Outgoing`]
    /// with options.
    ///
    /// The agent responds when the task has ended or needs input, unless it is asked to [return
    /// immediately](Outgoing::return_immediately).
    pub async fn send(&self, message: impl Into<Outgoing>) -> Result<Reply, ClientError> {
        let outgoing = message.into();
        let (headers, deadline) = self.prepare(&outgoing)?;
        let request = Request::SendMessage(Box::new(outgoing.into_request(None)));
        let (transport, limit) = (self.transport(), self.options().send_timeout);
        match deadline.keep(self.call(&transport, request, &headers, limit)).await? {
            Reply::Task(task) => require_id(task).map(Reply::Task),
            Reply::Message(message) => Ok(Reply::Message(message)),
        }
    }

    /// Sends a message and streams the events.
    ///
    /// A stream that breaks is resumed, within the [limits](crate::ClientOptions::backoff). If the agent does not support
    /// streams, the response is the only event.
    pub async fn stream(&self, message: impl Into<Outgoing>) -> Result<Events, ClientError> {
        let outgoing = message.into();
        if self.card().capabilities.streaming != Some(true) {
            return self.send(outgoing).await.map(|reply| {
                Events::one(match reply {
                    Reply::Task(task) => StreamResponse::Task(task),
                    Reply::Message(message) => StreamResponse::Message(message),
                })
            });
        }
        let (headers, deadline) = self.prepare(&outgoing)?;
        let transport = self.transport();
        let request = outgoing.into_request(transport.agent.endpoint.tenant.clone());
        Follower::open(transport, Opening::send(request), headers, deadline).await.map(Events::follow)
    }

    /// Responds to a task that needs input, and waits for the result. See [`Outgoing::answering`] for streams and options.
    pub async fn answer(&self, task: &Task, message: impl Into<Outgoing>) -> Result<Reply, ClientError> {
        self.send(message.into().answering(task)).await
    }

    /// Follows a task that has not ended: first the current task, then its events.
    pub async fn subscribe(&self, task: impl Into<TaskId>) -> Result<Events, ClientError> {
        let (headers, deadline) = (self.request_headers([], None)?, Deadline::after(self.options().deadline));
        let opening = Opening::Subscribe(task.into());
        Follower::open(self.transport(), opening, headers, deadline).await.map(Events::follow)
    }

    /// Reads the current task.
    pub async fn get(&self, task: impl Into<TaskId>) -> Result<Task, ClientError> {
        self.get_with(GetTaskRequest { id: task.into(), ..GetTaskRequest::default() }).await
    }

    /// Reads the current task with the requested history. The client sets the tenant.
    pub async fn get_with(&self, query: GetTaskRequest) -> Result<Task, ClientError> {
        self.request(Request::GetTask(query)).await.and_then(require_id)
    }

    /// Asks the agent to cancel a task. The returned task may not have ended yet.
    pub async fn cancel(&self, task: impl Into<TaskId>) -> Result<Task, ClientError> {
        let request = CancelTaskRequest { id: task.into(), ..CancelTaskRequest::default() };
        self.request(Request::CancelTask(request)).await.and_then(require_id)
    }

    /// Reads a page of the caller's tasks, latest status first. The client sets the tenant.
    pub async fn list(&self, query: ListTasksRequest) -> Result<ListTasksResponse, ClientError> {
        self.request(Request::ListTasks(query)).await
    }

    /// All tasks of the caller that match the query, latest status first. Pages are requested as they are read.
    ///
    /// ```no_run
    /// # async fn example(agent: attache_client::Client) -> Result<(), attache_client::ClientError> {
    /// let mut tasks = agent.tasks(Default::default());
    /// while let Some(task) = tasks.next().await {
    ///     eprintln!("{}", task?.id);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn tasks(&self, query: ListTasksRequest) -> Listing<Task> {
        let client = self.clone();
        Listing::new(query.page_token.clone(), move |page_token| {
            let (client, query) = (client.clone(), ListTasksRequest { page_token, ..query.clone() });
            async move {
                let page = client.list(query).await?;
                Ok(Page { items: page.tasks, next: page.next_page_token })
            }
        })
    }

    /// Registers a webhook for notifications about a task. The returned webhook has its id.
    pub async fn create_webhook(
        &self,
        task: impl Into<TaskId>,
        webhook: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, ClientError> {
        let webhook = TaskPushNotificationConfig { task_id: Some(task.into()), ..webhook };
        self.request(Request::CreateTaskPushNotificationConfig(webhook)).await
    }

    /// Reads a webhook of a task.
    pub async fn webhook(
        &self,
        task: impl Into<TaskId>,
        id: impl Into<String>,
    ) -> Result<TaskPushNotificationConfig, ClientError> {
        let request =
            GetTaskPushNotificationConfigRequest { tenant: None, task_id: task.into(), id: id.into() };
        self.request(Request::GetTaskPushNotificationConfig(request)).await
    }

    /// The webhooks of a task. Pages are requested as they are read.
    pub fn webhooks(&self, task: impl Into<TaskId>) -> Listing<TaskPushNotificationConfig> {
        let (client, task_id) = (self.clone(), task.into());
        Listing::new(None, move |page_token| {
            let client = client.clone();
            let task_id = task_id.clone();
            let query = ListTaskPushNotificationConfigsRequest { task_id, page_token, ..Default::default() };
            async move {
                let page: ListTaskPushNotificationConfigsResponse =
                    client.request(Request::ListTaskPushNotificationConfigs(query)).await?;
                Ok(Page { items: page.configs, next: page.next_page_token })
            }
        })
    }

    /// Deletes a webhook of a task. Deleting an unknown one succeeds.
    pub async fn delete_webhook(
        &self,
        task: impl Into<TaskId>,
        id: impl Into<String>,
    ) -> Result<(), ClientError> {
        let request =
            DeleteTaskPushNotificationConfigRequest { tenant: None, task_id: task.into(), id: id.into() };
        self.request(Request::DeleteTaskPushNotificationConfig(request)).await.map(|EmptyResponse| ())
    }

    /// Reads the extended card for this caller. From then on it is the [card](Self::card) of this client. Requests still go
    /// where the public card says.
    pub async fn extended_card(&self) -> Result<Arc<AgentCard>, ClientError> {
        let (transport, headers) = (self.transport(), self.request_headers([], None)?);
        let request = Request::GetExtendedAgentCard(GetExtendedAgentCardRequest::default());
        let limit = self.options().call_timeout;
        let CardResponse { card, json } = self.call(&transport, request, &headers, limit).await?;
        let verifying = card_trust::verify(&transport.http, &transport.agent.endpoint.url, &json);
        let card = Arc::new(with_timeout(limit, verifying).await?.map_or(card, |(signed, _)| signed));
        self.keep_extended(&transport, &card);
        Ok(card)
    }

    fn prepare(&self, outgoing: &Outgoing) -> Result<(RequestHeaders, Deadline), ClientError> {
        let extensions = outgoing.extensions.iter().map(String::as_str);
        let headers = self
            .request_headers(extensions, outgoing.idempotency_key.as_deref())?
            .with_trace_parent(outgoing.trace_parent.as_deref())?;
        Ok((headers, Deadline::after(outgoing.deadline.or(self.options().deadline))))
    }
}

/// Rejects a task without an id, because no request could name it.
pub(crate) fn require_id(task: Task) -> Result<Task, ClientError> {
    if task.id.is_empty() { Err(ClientError::Protocol("the task has no id".to_owned())) } else { Ok(task) }
}
