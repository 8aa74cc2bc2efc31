//! An agent on the other side of the network.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use attache_protocol::{
    AgentCard, CancelTaskRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, Operation,
    SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task, TaskId,
};
use reqwest::Url;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::discovery::{self, Known};
use crate::http::{Http, place};
use crate::jsonrpc::{Beside, JsonRpc};
use crate::stream::{Follower, Opening};
use crate::{ClientError, ClientOptions, Events, Outgoing};

/// The answer to a message: the task that works, or has worked, on it, or a direct answer.
pub type Reply = SendMessageResponse;

/// Whether a card is another one than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refreshed {
    /// The agent describes itself differently now.
    Changed,
    /// It is the same card.
    Unchanged,
}

/// An agent on the other side of the network. Cheap to clone; clones share their connections and what they know of the card.
///
/// ```no_run
/// use attache_client::{Client, Reply};
///
/// # async fn example() -> Result<(), attache_client::ClientError> {
/// let agent = Client::connect("http://localhost:3111").await?;
/// match agent.send("Hello").await? {
///     Reply::Message(message) => eprintln!("{}", message.text()),
///     Reply::Task(task) => eprintln!("{}: {}", task.id, task.status.state),
/// }
/// let mut events = agent.stream("Tell me a story").await?;
/// while let Some(event) = events.next().await {
///     eprintln!("{:?}", event?);
/// }
/// # Ok(())
/// # }
/// ```
///
/// A send or a stream that is dropped stops waiting and nothing else: the agent goes on with the task until someone
/// [cancels](Self::cancel) it.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    http: Arc<Http>,
    card_url: Url,
    known: ArcSwap<Known>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("card", &place(&self.0.card_url)).finish_non_exhaustive()
    }
}

impl Client {
    /// Finds an agent by its address, or by the address of its card, which ends in `.json`.
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        Self::connect_with(address, ClientOptions::default()).await
    }

    /// The same, with other settings than the default ones.
    pub async fn connect_with(address: &str, options: ClientOptions) -> Result<Self, ClientError> {
        // What is wrong with them is better said now than with the first request.
        Beside::new(&options.extensions, None)?;
        let http = Arc::new(Http::new(options)?);
        let card_url = discovery::card_url(&http, address)?;
        let Some(known) = discovery::read(&http, &card_url, None).await? else {
            return Err(ClientError::Protocol("the card is said to be known, which it is not".to_owned()));
        };
        Ok(Self(Arc::new(Inner { http, card_url, known: ArcSwap::from_pointee(known) })))
    }

    /// How the agent described itself when it was last asked.
    pub fn card(&self) -> Arc<AgentCard> {
        self.0.known.load().card.clone()
    }

    /// Asks for the card again, which costs little if it is the same. What is sent from now on goes where the new card says; if
    /// that is nowhere, the old one stays.
    pub async fn refresh_card(&self) -> Result<Refreshed, ClientError> {
        let before = self.0.known.load_full();
        let Some(known) = discovery::read(&self.0.http, &self.0.card_url, Some(&before)).await? else {
            return Ok(Refreshed::Unchanged);
        };
        let refreshed = if known.card == before.card { Refreshed::Unchanged } else { Refreshed::Changed };
        self.0.known.store(Arc::new(known));
        Ok(refreshed)
    }

    /// Sends a message and waits for the answer: text, a part, several parts, a message, or an [`Outgoing`] with more to it.
    ///
    /// Unless it is asked to [return immediately](Outgoing::return_immediately), the agent answers when the task has ended or
    /// needs something.
    pub async fn send(&self, message: impl Into<Outgoing>) -> Result<Reply, ClientError> {
        let outgoing = message.into();
        let (rpc, beside) = self.prepare(&outgoing)?;
        let request = outgoing.into_request(rpc.endpoint.tenant.clone());
        let (limit, backoff) = (self.options().send_timeout, self.options().backoff);
        let mut attempt = 0;
        loop {
            let error = match rpc.call(Operation::SendMessage, &request, &beside, limit).await {
                Ok(reply) => return sound_reply(reply),
                Err(error) => error,
            };
            if beside.idempotency_key.is_none() || !error.is_transient() || attempt == backoff.attempts {
                return Err(error);
            }
            attempt += 1;
            tracing::debug!(attempt, %error, "repeating a send");
            tokio::time::sleep(backoff.wait(attempt)).await;
        }
    }

    /// Sends a message and follows what happens.
    ///
    /// A stream that breaks is taken up again by itself, within [bounds](ClientOptions::backoff). From an agent that does not
    /// stream, the answer comes as the only event.
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
        let (rpc, beside) = self.prepare(&outgoing)?;
        let request = outgoing.into_request(rpc.endpoint.tenant.clone());
        Follower::open(rpc, Opening::Send(Box::new(request)), beside).await.map(Events::follow)
    }

    /// Follows a task that has not ended: first the task as it is, then what happens to it.
    pub async fn subscribe(&self, task: impl Into<TaskId>) -> Result<Events, ClientError> {
        let (rpc, beside) = self.plain()?;
        let request = SubscribeToTaskRequest { tenant: rpc.endpoint.tenant.clone(), id: task.into() };
        Follower::open(rpc, Opening::Subscribe(request), beside).await.map(Events::follow)
    }

    /// The task as it is now.
    pub async fn get(&self, task: impl Into<TaskId>) -> Result<Task, ClientError> {
        let id = task.into();
        let request = |tenant| GetTaskRequest { tenant, id, ..GetTaskRequest::default() };
        self.call(Operation::GetTask, request).await.and_then(sound)
    }

    /// Asks the agent to end a task. The task that comes back may not have ended yet.
    pub async fn cancel(&self, task: impl Into<TaskId>) -> Result<Task, ClientError> {
        let id = task.into();
        let request = |tenant| CancelTaskRequest { tenant, id, ..CancelTaskRequest::default() };
        self.call(Operation::CancelTask, request).await.and_then(sound)
    }

    /// A page of the caller's tasks, latest status first. The tenant is set by the client.
    pub async fn list(&self, query: ListTasksRequest) -> Result<ListTasksResponse, ClientError> {
        self.call(Operation::ListTasks, |tenant| ListTasksRequest { tenant, ..query }).await
    }

    fn options(&self) -> &ClientOptions {
        &self.0.http.options
    }

    /// Makes a call that is answered soon.
    async fn call<P: Serialize, R: DeserializeOwned>(
        &self,
        operation: Operation,
        request: impl FnOnce(Option<String>) -> P,
    ) -> Result<R, ClientError> {
        let (rpc, beside) = self.plain()?;
        let request = request(rpc.endpoint.tenant.clone());
        rpc.call(operation, &request, &beside, self.options().call_timeout).await
    }

    /// Where requests go now, and what goes beside those that ask for nothing special.
    fn plain(&self) -> Result<(JsonRpc, Beside), ClientError> {
        Ok((self.rpc(), Beside::new(&self.options().extensions, None)?))
    }

    fn prepare(&self, outgoing: &Outgoing) -> Result<(JsonRpc, Beside), ClientError> {
        let extensions = self.options().extensions.iter().chain(&outgoing.extensions);
        Ok((self.rpc(), Beside::new(extensions, outgoing.idempotency_key.as_deref())?))
    }

    fn rpc(&self) -> JsonRpc {
        JsonRpc { http: self.0.http.clone(), endpoint: self.0.known.load().endpoint.clone() }
    }
}

/// A task without an id can be asked nothing about.
fn sound(task: Task) -> Result<Task, ClientError> {
    if task.id.is_empty() { Err(ClientError::Protocol("the task has no id".to_owned())) } else { Ok(task) }
}

fn sound_reply(reply: Reply) -> Result<Reply, ClientError> {
    match reply {
        Reply::Task(task) => sound(task).map(Reply::Task),
        Reply::Message(message) => Ok(Reply::Message(message)),
    }
}
