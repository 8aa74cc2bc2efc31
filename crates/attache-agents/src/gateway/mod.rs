//! A remote A2A agent behind our own surface.
//!
//! A gateway serves the card of another agent, of any version and binding that the [client](attache_client) speaks, and repeats its
//! tasks: status, artifacts piece by piece, questions and direct replies. Callers get everything that the server has and the remote
//! agent may lack: all bindings and versions, durable tasks, resumable streams, push notifications, authentication and limits.
//!
//! - **Ids**: the remote agent gets ids of its own for messages, tasks and contexts. Which of ours belongs to which of its is in the
//!   store. One context of a caller is one remote context.
//! - **Restart**: a turn that runs again after a crash reads the remote task and goes on. Only if it is unknown whether the message
//!   arrived, it is sent again, with the same id and the same idempotency key.
//! - **Outage**: a stream that breaks is resumed. While the remote agent cannot be reached, the turn tries again until its timeout.
//! - **Cancel** goes through to the remote agent.
//! - **Credentials** of callers stay here. Those for the remote agent come from the [options](GatewayOptions).
//! - **Loops**: the metadata of a message counts the agents that it has come through. More than 8 are rejected.
//!
//! An agent of this project answers a message with an idempotency key by a task, never by a direct reply, so a gateway to it has no
//! direct replies.

mod artifacts;
mod card;
mod fault;
mod files;
mod fingerprint;
mod following;
mod links;
mod mirror;
mod oldest;
mod options;
mod outage;
mod outgoing;
mod session;
mod waiting;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use attache_client::{Client, ClientError};
use attache_core::{Agent, AgentError, AgentResult, Caller, Turn};
use attache_protocol::{AgentCard, Error, Message, TaskId, TaskState};
use futures::{FutureExt, Stream};
use parking_lot::Mutex;
use url::Url;

pub use self::options::{GatewayError, GatewayOptions};

use self::fault::Fault;
use self::links::Links;
use self::session::{Session, Source};
use crate::address::redact;

/// The target of log lines.
const LOG: &str = "attache::gateway";

/// The first and the longest pause between two attempts to connect.
const CONNECT_PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// After a turn was given up, how long to wait for the id of the remote task.
const TASK_ID_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a canceled turn waits for the remote agent to cancel its task. It is shorter than the grace time of the service.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(4);

/// An agent that passes messages to a remote agent. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    options: GatewayOptions,
    /// The address of the remote agent, without secrets.
    address: String,
    client: Client,
    links: Links,
    /// The tasks with a turn in this process.
    running: Mutex<HashSet<TaskId>>,
}

impl Gateway {
    /// Reads the card of the remote agent. If that fails, returns an error or, with [`wait`](GatewayOptions::wait), tries again.
    pub async fn connect(options: GatewayOptions) -> Result<Self, GatewayError> {
        let options = options.checked()?;
        let address = redact(&options.url);
        let (mut pause, longest) = CONNECT_PAUSE;
        let mut is_first = true;
        let client = loop {
            match Client::connect_with(&options.url, options.client.clone()).await {
                Ok(client) => break client,
                Err(error) if options.wait && fault::is_temporary(&error) => {
                    if std::mem::take(&mut is_first) {
                        tracing::warn!(target: LOG, url = address, %error, "waiting for the remote agent");
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(longest);
                }
                Err(error) => {
                    let text = explain(&options, &error);
                    return Err(GatewayError::Connect { url: address, text, error: Box::new(error) });
                }
            }
        };
        if options.own_url.as_ref().is_some_and(|own| card::is_at(&client.card(), own)) {
            return Err(GatewayError::OwnAddress { url: address });
        }
        let links = Links::new(&options.store, &address, options.max_links);
        Ok(Self(Arc::new(Inner { options, address, client, links, running: Mutex::default() })))
    }

    /// The card of the remote agent as this server serves it: name, description, version, skills, media types, provider,
    /// documentation, icon and extensions. Interfaces, security and signatures are the server's own.
    pub fn card(&self) -> AgentCard {
        card::served(&self.0.client.card())
    }

    /// Reads the card again in [intervals](GatewayOptions::refresh), and yields it when it has changed. While the remote agent cannot
    /// be reached, the last card stays. The stream ends with the gateway, and does not keep it.
    pub fn cards(&self) -> impl Stream<Item = AgentCard> + Send + 'static {
        card::changes(&self.0)
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gateway").field(&self.0.address).finish()
    }
}

impl Agent for Gateway {
    async fn run(&self, turn: Turn) -> AgentResult {
        let _running = Running::enter(&self.0, turn.task_id());
        let mut session = match Session::new(&self.0, &turn).await {
            Ok(session) => session,
            Err(fault) => return fault.end(&self.0, &turn).boxed().await,
        };
        let limit = self.0.options.timeout;
        let result = tokio::select! {
            biased;
            result = tokio::time::timeout(limit, session.run()) => result,
            () = turn.cancelled() => {
                self.0.give_up_if_canceled(session, &turn).boxed().await;
                return Ok(());
            }
        };
        match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Fault::Own(error))) => {
                if error.is_over() {
                    self.0.give_up_if_canceled(session, &turn).boxed().await;
                }
                Err(error)
            }
            Ok(Err(fault)) => {
                if session.continues
                    && let Some(question) = fault.question()
                {
                    return turn.ask(question).boxed().await;
                }
                if fault.leaves_task_behind() {
                    self.0.give_up(session).boxed().await;
                }
                self.0.forget(turn.task_id()).boxed().await;
                fault.end(&self.0, &turn).boxed().await
            }
            Err(_) => {
                self.0.give_up(session).boxed().await;
                self.0.forget(turn.task_id()).boxed().await;
                let seconds = limit.as_secs_f64();
                Err(AgentError::public(format!("the remote agent did not finish within {seconds} s")))
            }
        }
    }

    fn admits(&self, _caller: &Caller, message: &Message) -> Result<(), Error> {
        outgoing::check_hops(message)
    }

    /// The remote task is known, or the message is sent again under the same id.
    fn restartable(&self) -> bool {
        true
    }

    /// Cancels the remote task of a task that waits for its caller. A running turn does that by itself.
    fn task_ended(&self, task: &TaskId) {
        if self.0.running.lock().contains(task) {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (inner, task) = (self.0.clone(), task.clone());
            runtime.spawn(async move { inner.cancel_linked(&task).await });
        }
    }
}

impl Inner {
    /// An error of the client, as the operator reads it.
    fn explain(&self, error: &ClientError) -> String {
        explain(&self.options, error)
    }

    /// Cancels the remote task if our task was canceled. A turn is also stopped when the server stops; then the next process goes on
    /// with the remote task.
    async fn give_up_if_canceled(&self, session: Session<'_>, turn: &Turn) {
        match self.options.store.load(&turn.caller().owner, turn.task_id()).await {
            Ok(Some(task)) if task.state == TaskState::Canceled => {
                self.give_up(session).await;
                self.forget(turn.task_id()).await;
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(target: LOG, task = %turn.task_id(), %error, "cannot read a task that was stopped");
            }
        }
    }

    /// Cancels the remote task of a turn. If its id is not known yet, waits for it in the background.
    async fn give_up(&self, mut session: Session<'_>) {
        let source = session.take_source();
        match (session.remote_task().cloned(), source) {
            (None, source @ (Source::Opening(_) | Source::Events(_))) => {
                let client = self.client.clone();
                tokio::spawn(async move {
                    if let Ok(Some(id)) = tokio::time::timeout(TASK_ID_TIMEOUT, source.task_id()).await {
                        cancel(&client, id).await;
                    }
                });
            }
            (Some(id), _) => {
                let _ = tokio::time::timeout(CANCEL_TIMEOUT, cancel(&self.client, id)).await;
            }
            (None, Source::Read) => {}
        }
    }

    async fn cancel_linked(&self, task: &TaskId) {
        match self.links.task(task).await {
            Ok(Some(link)) => {
                if let Some(remote) = link.task {
                    cancel(&self.client, remote).await;
                }
                self.forget(task).await;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(target: LOG, %task, %error, "cannot read the remote id of a canceled task");
            }
        }
    }

    /// Forgets the remote task of a task that has ended.
    async fn forget(&self, task: &TaskId) {
        let ended = async {
            let link = self.links.task(task).await?;
            self.links.end_task(task, link.and_then(|link| link.task).as_ref()).await
        };
        if let Err(error) = ended.await {
            tracing::warn!(target: LOG, %task, %error, "cannot remove the remote id of an ended task");
        }
    }
}

async fn cancel(client: &Client, task: TaskId) {
    if let Err(error) = client.cancel(task).await {
        // It may have ended in the meantime.
        tracing::debug!(target: LOG, %error, "the remote agent did not cancel a task");
    }
}

fn explain(options: &GatewayOptions, error: &ClientError) -> String {
    let url = Url::parse(&options.url).ok();
    url.and_then(|url| options.credentials.explain(&url, error)).unwrap_or_else(|| error.to_string())
}

/// Marks a task as running, until it is dropped.
struct Running<'a> {
    inner: &'a Inner,
    task: TaskId,
}

impl<'a> Running<'a> {
    fn enter(inner: &'a Inner, task: &TaskId) -> Self {
        inner.running.lock().insert(task.clone());
        Self { inner, task: task.clone() }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.inner.running.lock().remove(&self.task);
    }
}
