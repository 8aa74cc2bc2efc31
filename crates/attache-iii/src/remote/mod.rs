//! The skills of remote agents as functions of an engine.
//!
//! [`import`] reads the cards of agents and offers each of their skills as a function `a2a.<agent>::<skill>`, for as long as the
//! [`Imports`] that it returns are held.
//!
//! - The functions are kept in step with the card: what it adds, changes or drops is added, changed or dropped with the next poll.
//!   An agent that is away keeps its functions for [a while](RemoteOptions::gone_after) and has them again when it is back.
//! - Calling a function sends one message, which is carried out once even if the connection breaks, where the agent knows
//!   idempotency keys. Whoever stops waiting has the remote task canceled, as far as it is in this process: from the other side of
//!   an engine's wire nobody is seen to leave, so those calls end with [their time](RemoteOptions::call_timeout).
//! - Imported functions are not exposed: nothing is handed on to the callers of this process unless its operator exposes
//!   everything.
//!
//! # What is sent
//!
//! - To a skill that is a function itself (its id has `::` in it, or the card has schemas for it): the data
//!   `{"function_id": <skill>, "payload": <payload>}`.
//! - To others, of an object: the first of the members `input`, `text`, `message` and `prompt` that is a string, as text; the
//!   members `taskId` and `contextId`, if they are strings, as what the message goes on with; what is left as data.
//! - To others, of a string: text. Of anything else: data.
//!
//! The metadata of the message names the skill as `skillId`.
//!
//! # What is returned
//!
//! The value of what the task produced, or of the message that was the answer, or, where a completed task produced nothing, of
//! its last words: a single data part is that value, text alone is `{"text": …}`, and nothing is `null`. Anything else is
//! `{"artifacts": […]}`, or `{"parts": […]}` of a message, as the protocol writes them.
//!
//! A task that does not complete is an error with the words of the agent: `task_failed`, `task_rejected`, `task_canceled`,
//! `input_required` or `auth_required`. The latter two name the task and the context, for a call that goes on with them.
//!
//! # What keeps requests from going round in circles
//!
//! - Skills whose ids begin with `a2a.`, as imported functions do, are not imported, and neither is an agent that answers at
//!   [our own address](RemoteOptions::own_url).
//! - Messages carry the number of agents they have come through as metadata ([`HOPS_EXTENSION`]). A [`Gateway`](crate::Gateway)
//!   with these imports counts on and refuses what has come through more than 8. A call that comes through an engine starts at 1,
//!   since engines do not pass the number on: a circle in which workers call imported functions is bounded by their time limits
//!   only.

mod agent;
mod answer;
mod call;
mod hops;
mod host;
mod names;
mod outgoing;
mod skills;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_client::{ClientOptions, TrustedOrigins};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use self::agent::Remote;
pub(crate) use self::call::Import;
pub use self::hops::HOPS_EXTENSION;
pub(crate) use self::hops::{MAX_HOPS, hops};
pub use self::host::{FunctionHost, Handler, Offer};
use self::skills::REMOTE;
use crate::{AgentCredentials, FunctionInfo};

/// How remote agents are kept in step with.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// How often a card is looked at. It is transferred only if it has changed, by agents that say so.
    pub poll: Duration,
    /// How long an agent may be away before its functions vanish.
    pub gone_after: Duration,
    /// How long a call may take whose caller says nothing about it.
    pub call_timeout: Duration,
    /// Where this process is itself an agent. One that answers there is not imported.
    pub own_url: Option<String>,
    /// What agents are shown. By default nothing.
    pub credentials: AgentCredentials,
    /// How agents are talked to. A card may not lead to another server by default: its address is the operator's word, what is in
    /// it is not. Credentials that are set here take the place of [those](Self::credentials).
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

/// Offers the skills of the agents at these addresses as functions, in the background, until the last clone of what is returned
/// is dropped. Must be called within a tokio runtime.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use attache_iii::remote::{RemoteOptions, import};
/// use attache_iii::worker::{Worker, WorkerOptions};
/// use attache_iii::{Gateway, GatewayOptions};
///
/// # fn example() -> Result<(), attache_iii::worker::WorkerError> {
/// let worker = Worker::connect(WorkerOptions::new("ws://localhost:49134"))?;
/// let imports = import(worker.clone(), ["https://agents.partner.com"], RemoteOptions::default());
/// // A gateway beside them calls them without the engine, so that a task that is canceled is canceled at its far end.
/// let gateway = Gateway::with_imports(Arc::new(worker), GatewayOptions::default(), imports);
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
    let board =
        Arc::new(Board { host: Box::new(host), options, taken: Mutex::default(), table: Mutex::default() });
    let mut addresses: Vec<String> = urls.into_iter().map(Into::into).collect();
    addresses.sort();
    addresses.dedup();
    let keeping = addresses
        .into_iter()
        .map(|address| AbortOnDropHandle::new(tokio::spawn(Remote::new(board.clone(), address).keep())));
    let keeping = keeping.collect();
    Imports(Arc::new(Inner { board, _keeping: keeping }))
}

/// The skills of remote agents that are functions here. Cheap to clone; they go when the last clone does.
#[derive(Clone)]
pub struct Imports(Arc<Inner>);

struct Inner {
    board: Arc<Board>,
    _keeping: Vec<AbortOnDropHandle<()>>,
}

impl Imports {
    /// The ids of the functions there are now.
    pub fn ids(&self) -> Vec<Arc<str>> {
        let mut ids: Vec<_> = self.0.board.table.lock().keys().cloned().collect();
        ids.sort();
        ids
    }

    /// What is behind a function, if it is one of these: another process may have imported something else under the same id.
    pub(crate) fn find(&self, function: &FunctionInfo) -> Option<Arc<Import>> {
        let import = self.0.board.table.lock().get(&function.id).cloned()?;
        (function.said(REMOTE) == import.info.said(REMOTE)).then_some(import)
    }
}

impl std::fmt::Debug for Imports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Imports").field(&self.ids()).finish()
    }
}

/// What all agents share.
struct Board {
    host: Box<dyn FunctionHost>,
    options: RemoteOptions,
    /// The names of agents, and the addresses of those who have them.
    taken: Mutex<HashMap<String, String>>,
    table: Mutex<HashMap<Arc<str>, Arc<Import>>>,
}
