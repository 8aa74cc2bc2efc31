//! What can be asked of an agent.

use std::sync::Arc;

use attache_protocol::{
    AgentCard, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest, GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse, ListTasksRequest, ListTasksResponse, Request, StreamResponse,
    Task, TaskId, TaskPushNotificationConfig,
};

use crate::beside::Beside;
use crate::deadline::Deadline;
use crate::discovery;
use crate::http::within;
use crate::listing::Page;
use crate::stream::{Follower, Opening};
use crate::transport::{Described, Done};
use crate::{Client, ClientError, Events, Listing, Outgoing, Reply};

impl Client {
    /// Sends a message and waits for the answer: text, a part, several parts, a message, or an [`Outgoing`] with more to it.
    ///
    /// Unless it is asked to [return immediately](Outgoing::return_immediately), the agent answers when the task has ended or
    /// needs something.
    pub async fn send(&self, message: impl Into<Outgoing>) -> Result<Reply, ClientError> {
        let outgoing = message.into();
        let (beside, deadline) = self.prepare(&outgoing)?;
        let request = Request::SendMessage(Box::new(outgoing.into_request(None)));
        let (transport, limit) = (self.transport(), self.options().send_timeout);
        match deadline.keep(self.call(&transport, request, &beside, limit)).await? {
            Reply::Task(task) => sound(task).map(Reply::Task),
            Reply::Message(message) => Ok(Reply::Message(message)),
        }
    }

    /// Sends a message and follows what happens.
    ///
    /// A stream that breaks is taken up again by itself, within [bounds](crate::ClientOptions::backoff). From an agent that does
    /// not stream, the answer comes as the only event.
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
        let (beside, deadline) = self.prepare(&outgoing)?;
        let transport = self.transport();
        let request = outgoing.into_request(transport.known.endpoint.tenant.clone());
        Follower::open(transport, Opening::send(request), beside, deadline).await.map(Events::follow)
    }

    /// Answers what a task asks for, and waits for what comes of it. See [`Outgoing::answering`] for streams and more.
    pub async fn answer(&self, task: &Task, message: impl Into<Outgoing>) -> Result<Reply, ClientError> {
        self.send(message.into().answering(task)).await
    }

    /// Follows a task that has not ended: first the task as it is, then what happens to it.
    pub async fn subscribe(&self, task: impl Into<TaskId>) -> Result<Events, ClientError> {
        let (beside, deadline) = (self.beside([], None)?, Deadline::after(self.options().deadline));
        let opening = Opening::Subscribe(task.into());
        Follower::open(self.transport(), opening, beside, deadline).await.map(Events::follow)
    }

    /// The task as it is now.
    pub async fn get(&self, task: impl Into<TaskId>) -> Result<Task, ClientError> {
        self.get_with(GetTaskRequest { id: task.into(), ..GetTaskRequest::default() }).await
    }

    /// The same, with as much of its history as is asked for. The tenant is set by the client.
    pub async fn get_with(&self, query: GetTaskRequest) -> Result<Task, ClientError> {
        self.ask(Request::GetTask(query)).await.and_then(sound)
    }

    /// Asks the agent to end a task. The task that comes back may not have ended yet.
    pub async fn cancel(&self, task: impl Into<TaskId>) -> Result<Task, ClientError> {
        let request = CancelTaskRequest { id: task.into(), ..CancelTaskRequest::default() };
        self.ask(Request::CancelTask(request)).await.and_then(sound)
    }

    /// A page of the caller's tasks, latest status first. The tenant is set by the client.
    pub async fn list(&self, query: ListTasksRequest) -> Result<ListTasksResponse, ClientError> {
        self.ask(Request::ListTasks(query)).await
    }

    /// All of the caller's tasks that are asked for, latest status first, page by page as they are read.
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

    /// Has the news of a task sent to a webhook. The webhook that comes back has the id it is known by.
    pub async fn create_webhook(
        &self,
        task: impl Into<TaskId>,
        webhook: TaskPushNotificationConfig,
    ) -> Result<TaskPushNotificationConfig, ClientError> {
        let webhook = TaskPushNotificationConfig { task_id: Some(task.into()), ..webhook };
        self.ask(Request::CreateTaskPushNotificationConfig(webhook)).await
    }

    /// A webhook of a task.
    pub async fn webhook(
        &self,
        task: impl Into<TaskId>,
        id: impl Into<String>,
    ) -> Result<TaskPushNotificationConfig, ClientError> {
        let request =
            GetTaskPushNotificationConfigRequest { tenant: None, task_id: task.into(), id: id.into() };
        self.ask(Request::GetTaskPushNotificationConfig(request)).await
    }

    /// The webhooks of a task, page by page as they are read.
    pub fn webhooks(&self, task: impl Into<TaskId>) -> Listing<TaskPushNotificationConfig> {
        let (client, task_id) = (self.clone(), task.into());
        Listing::new(None, move |page_token| {
            let client = client.clone();
            let task_id = task_id.clone();
            let query = ListTaskPushNotificationConfigsRequest { task_id, page_token, ..Default::default() };
            async move {
                let page: ListTaskPushNotificationConfigsResponse =
                    client.ask(Request::ListTaskPushNotificationConfigs(query)).await?;
                Ok(Page { items: page.configs, next: page.next_page_token })
            }
        })
    }

    /// Has the agent forget a webhook of a task. One that it does not know is forgotten already.
    pub async fn delete_webhook(
        &self,
        task: impl Into<TaskId>,
        id: impl Into<String>,
    ) -> Result<(), ClientError> {
        let request =
            DeleteTaskPushNotificationConfigRequest { tenant: None, task_id: task.into(), id: id.into() };
        self.ask(Request::DeleteTaskPushNotificationConfig(request)).await.map(|Done| ())
    }

    /// How the agent describes itself to this caller. From now on this is its [card](Self::card); where requests go is still
    /// what the card for everybody says.
    pub async fn extended_card(&self) -> Result<Arc<AgentCard>, ClientError> {
        let (transport, beside) = (self.transport(), self.beside([], None)?);
        let request = Request::GetExtendedAgentCard(GetExtendedAgentCardRequest::default());
        let limit = self.options().call_timeout;
        let Described { card, json } = self.call(&transport, request, &beside, limit).await?;
        let card = Arc::new(match &self.options().card_trust {
            Some(trust) => {
                let (http, url) = (&transport.http, &transport.known.endpoint.url);
                within(limit, discovery::trusted(http, trust, url, &json)).await?.0
            }
            None => card,
        });
        self.keep_extended(&transport, &card);
        Ok(card)
    }

    fn prepare(&self, outgoing: &Outgoing) -> Result<(Beside, Deadline), ClientError> {
        let extensions = outgoing.extensions.iter().map(String::as_str);
        let beside = self.beside(extensions, outgoing.idempotency_key.as_deref())?;
        Ok((beside, Deadline::after(outgoing.deadline.or(self.options().deadline))))
    }
}

/// A task without an id can be asked nothing about.
pub(crate) fn sound(task: Task) -> Result<Task, ClientError> {
    if task.id.is_empty() { Err(ClientError::Protocol("the task has no id".to_owned())) } else { Ok(task) }
}
