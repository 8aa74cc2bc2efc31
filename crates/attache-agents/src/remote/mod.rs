//! Registers the skills of remote agents as functions of an engine.
//!
//! [`import`] reads the cards of agents, and registers each skill as a function `a2a.<agent>::<skill>`. The functions stay registered
//! until the returned [`Imports`] are dropped.
//!
//! - The functions follow the card. Each poll adds, changes or removes functions as the card does. While an agent cannot be reached,
//!   its functions stay registered for [a while](RemoteOptions::gone_after). They come back with the agent.
//! - A call sends one message. The agent processes it once even if the connection breaks, provided that it supports idempotency keys.
//! - A call that is dropped in this process cancels the remote task. A call through an engine ends with [its
//!   timeout](RemoteOptions::call_timeout) only, since the engine does not report that a caller has gone.
//! - Imported functions are not exposed. Callers of this process reach them only if the operator exposes all functions.
//!
//! # What is sent
//!
//! - To a skill that is a function (its id contains `::`, or the card has schemas for it): the data
//!   `{"function_id": <skill>, "payload": <payload>}`.
//! - To another skill, if the payload is an object: the first of the members `input`, `text`, `message` and `prompt` that is a
//!   string, as text. The members `taskId` and `contextId`, if they are strings, are the task and the context of the message. The
//!   other members are sent as data.
//! - To another skill, if the payload is a string: text. Any other payload is sent as data.
//!
//! The metadata of the message has the skill as `skillId`.
//!
//! # What is returned
//!
//! The value of the artifacts of the task, or of the message if the agent replies with one. A completed task without artifacts returns
//! the value of its last status message. A single data part is returned as it is, text is `{"text": …}`, and nothing is `null`.
//! Anything else is `{"artifacts": […]}`, or `{"parts": […]}` for a message, as in the protocol.
//!
//! A task that does not complete is an error with the message of the agent: `task_failed`, `task_rejected`, `task_canceled`,
//! `input_required` or `auth_required`. The last two name the task and the context, for a call that continues the task.
//!
//! # Protection against loops
//!
//! - Skills whose ids begin with `a2a.` are not imported, since the remote agent has imported them itself. An agent at
//!   [our own address](RemoteOptions::own_url) is not imported either.
//! - The metadata of a message has the number of agents that the request has come through
//!   ([`HOPS_EXTENSION`](attache_iii::HOPS_EXTENSION)). A [`Gateway`](attache_iii::Gateway) with these imports increments it, and
//!   rejects requests with more than 8. A call through an engine starts at 1, since engines do not pass on the number. So timeouts
//!   alone end a loop in which workers call imported functions.

mod agent;
mod call;
mod names;
mod outgoing;
mod result;
mod skills;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_client::{ClientOptions, TrustedOrigins};
use attache_core::{BoxFuture, TraceParent};
use attache_iii::{CallError, FunctionInfo, ImportedFunctions};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::task::AbortOnDropHandle;

use self::agent::RemoteAgent;
use self::call::ImportedFunction;
use self::skills::REMOTE;
use crate::{AgentCredentials, FunctionHost};

/// Options of [`import`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RemoteOptions {
    /// The interval between two polls of a card. Agents that support it send the card only if it has changed.
    pub poll: Duration,
    /// How long an agent may be unreachable before its functions are unregistered.
    pub gone_after: Duration,
    /// The timeout of calls that come through the engine.
    pub call_timeout: Duration,
    /// The address of this agent. An agent with an interface there is not imported.
    pub own_url: Option<String>,
    /// The credentials for the agents. By default none.
    pub credentials: AgentCredentials,
    /// The options of the client. By default a card may not name another server: the operator trusts the address of the agent, but
    /// not the content of its card. Credentials that are set here replace [`credentials`](Self::credentials).
    pub client: ClientOptions,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(30),
            gone_after: Duration::from_secs(60),
            call_timeout: Duration::from_secs(10 * 60),
            own_url: None,
            credentials: AgentCredentials::default(),
            client: ClientOptions::default().trusted_origins(TrustedOrigins::new().only()),
        }
    }
}

impl RemoteOptions {
    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// Registers the skills of the agents at these addresses as functions. Background tasks keep the functions up to date until the last
/// clone of the returned value is dropped. Must be called within a tokio runtime.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use attache_agents::remote::{RemoteOptions, import};
/// use attache_iii::worker::{Worker, WorkerOptions};
/// use attache_iii::{Gateway, FunctionGatewayOptions};
///
/// # fn example() -> Result<(), attache_iii::worker::WorkerError> {
/// let worker = Worker::connect(WorkerOptions::new("ws://localhost:49134"))?;
/// let imports = import(worker.clone(), ["https://agents.partner.com"], RemoteOptions::default());
/// // The gateway calls imported functions without the engine. So canceling a task also cancels the remote task.
/// let gateway = Gateway::with_imports(Arc::new(worker), FunctionGatewayOptions::default(), imports);
/// # Ok(())
/// # }
/// ```
pub fn import<S: Into<String>>(
    host: impl FunctionHost,
    urls: impl IntoIterator<Item = S>,
    mut options: RemoteOptions,
) -> Imports {
    let book = options.credentials.book().clone();
    options.client.credentials.get_or_insert_with(|| Arc::new(book));
    let shared = Arc::new(Shared {
        host: Box::new(host),
        options,
        names: Mutex::default(),
        functions: Mutex::default(),
    });
    let mut addresses: Vec<String> = urls.into_iter().map(Into::into).collect();
    addresses.sort();
    addresses.dedup();
    let agents = addresses.into_iter().map(|address| RemoteAgent::new(shared.clone(), address));
    let tasks = agents.map(|agent| AbortOnDropHandle::new(tokio::spawn(agent.run()))).collect();
    Imports(Arc::new(Inner { shared, _tasks: tasks }))
}

/// The imported skills of remote agents. Cheap to clone. Dropping the last clone unregisters the functions.
#[derive(Clone)]
pub struct Imports(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Imports {
    /// The ids of the functions that are registered now.
    pub fn ids(&self) -> Vec<Arc<str>> {
        let mut ids: Vec<_> = self.0.shared.functions.lock().keys().cloned().collect();
        ids.sort();
        ids
    }

    /// The import behind a function. `None` if another process has imported a different skill under the same id.
    fn find(&self, function: &FunctionInfo) -> Option<Arc<ImportedFunction>> {
        let import = self.0.shared.functions.lock().get(&function.id).cloned()?;
        (function.metadata_value(REMOTE) == import.info.metadata_value(REMOTE)).then_some(import)
    }
}

impl ImportedFunctions for Imports {
    fn call<'a>(
        &self,
        function: &FunctionInfo,
        payload: &'a RawValue,
        timeout: Duration,
        hops: u64,
        trace_parent: Option<TraceParent>,
    ) -> Option<BoxFuture<'a, Result<Box<RawValue>, CallError>>> {
        let import = self.find(function)?;
        Some(Box::pin(async move { import.call(payload, timeout, hops, trace_parent).await }))
    }
}

impl std::fmt::Debug for Imports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Imports").field(&self.ids()).finish()
    }
}

/// The state that all agents of one import share.
struct Shared {
    host: Box<dyn FunctionHost>,
    options: RemoteOptions,
    /// The address of each agent, by the name in the ids of its functions.
    names: Mutex<HashMap<String, String>>,
    functions: Mutex<HashMap<Arc<str>, Arc<ImportedFunction>>>,
}
