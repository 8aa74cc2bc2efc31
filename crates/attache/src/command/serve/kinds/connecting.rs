//! Agents that need something which may be down when the server starts: a remote agent, or an MCP server.
//!
//! A server with several agents does not wait for all of them, and starts without those that cannot be reached. Such an agent refuses
//! messages and tries again until it is connected. Its tasks can be read all the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use attache::core::{Caller, Conversation};
use attache::prelude::*;
use attache::protocol::{AgentCard, Error, ErrorKind, Message, TaskId};
use futures::{StreamExt, stream};
use tokio::sync::{oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use super::{BuildRequest, BuiltAgent};
use crate::command::Failure;
use crate::config::CardOverrides;

/// How long the server waits for an agent when it starts. After that it goes on without the agent.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The first and the longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// When a caller may send the message again.
const RETRY: Duration = Duration::from_secs(5);

/// What is known of an agent before it is connected.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Unconnected {
    /// Whether its turns may run again after a restart.
    pub(in super::super) restartable: bool,
    /// Whether it reports what it does.
    pub(in super::super) reports: bool,
}

/// What happens if the first attempt fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum OnFailure {
    /// The failure is returned.
    Fail,
    /// The agent refuses messages until a later attempt is successful.
    TryAgain,
}

/// Builds an agent that may have to connect first.
pub(in super::super) async fn connect(
    request: BuildRequest,
    unconnected: Unconnected,
    on_failure: OnFailure,
) -> Result<BuiltAgent, Failure> {
    let (connected, mut built) = watch::channel(None);
    let (failed, failure) = oneshot::channel();
    let task = tokio::spawn(try_until_connected(request.clone(), connected, failed));
    let task = AbortOnDropHandle::new(task);
    let name = request.name.as_deref();
    tokio::select! {
        biased;
        done = built.wait_for(Option::is_some) => if let Some(built) = done.ok().and_then(|built| built.clone()) {
            return Ok(built);
        },
        Ok(failure) = failure => match on_failure {
            OnFailure::Fail => return Err(failure),
            OnFailure::TryAgain => {
                tracing::warn!(agent = name, error = %failure, "an agent is not available: trying again");
            }
        },
        () = tokio::time::sleep(MAX_WAIT) => {
            tracing::warn!(agent = name, "an agent is not available yet: the server goes on without it");
        }
    }
    Ok(unavailable(&request, unconnected, built, task))
}

/// Builds an agent, again and again until that is possible. Reports the first failure.
async fn try_until_connected(
    request: BuildRequest,
    connected: watch::Sender<Option<BuiltAgent>>,
    failed: oneshot::Sender<Failure>,
) {
    let (mut pause, longest) = PAUSE;
    let mut failed = Some(failed);
    let built = loop {
        match request.clone().build().await {
            Ok(built) => break built,
            Err(failure) => match failed.take() {
                // The receiver is gone if the server has not waited for the first attempt.
                Some(failed) => drop(failed.send(failure)),
                None => tracing::debug!(agent = request.name, error = %failure, "an agent is not available"),
            },
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    };
    connected.send_replace(Some(built));
    tracing::info!(agent = request.name, "an agent is connected");
}

/// An agent that is not connected yet.
fn unavailable(
    request: &BuildRequest,
    unconnected: Unconnected,
    built: watch::Receiver<Option<BuiltAgent>>,
    task: AbortOnDropHandle<()>,
) -> BuiltAgent {
    let name = request.name.as_deref().unwrap_or_default();
    let mut card = AgentCard::new(name, "This agent is not available at the moment");
    request.card.apply(&mut card);
    let (mut later, mcp, owned_name) = (built.clone(), request.context.tools.mcp.clone(), name.to_owned());
    let cards = async move {
        let built = later.wait_for(Option::is_some).await.ok().and_then(|built| built.clone())?;
        if let Some(server) = &built.mcp {
            // Models can call its tools from now on.
            mcp.rcu(|servers| {
                let mut servers = BTreeMap::clone(servers);
                servers.insert(owned_name.clone(), server.clone());
                servers
            });
        }
        Some(built)
    };
    let cards = stream::once(cards).flat_map(|built: Option<BuiltAgent>| match built {
        Some(built) => stream::iter([built.current_card()]).chain(built.cards()).boxed(),
        None => stream::empty().boxed(),
    });
    let agent = UnavailableAgent { built: built.clone(), unconnected, _task: Arc::new(task) };
    // The cards of the agent have what the operator says.
    let unavailable = BuiltAgent::with_updates(agent, card, cards.boxed(), CardOverrides::default());
    BuiltAgent { later: Some(built), ..unavailable }
}

/// An agent that refuses messages until it is connected.
struct UnavailableAgent {
    built: watch::Receiver<Option<BuiltAgent>>,
    unconnected: Unconnected,
    _task: Arc<AbortOnDropHandle<()>>,
}

impl UnavailableAgent {
    /// Does something with the agent, if it is connected.
    fn with<T>(&self, call: impl FnOnce(&BuiltAgent) -> T) -> Option<T> {
        self.built.borrow().as_ref().map(call)
    }
}

impl Agent for UnavailableAgent {
    /// Turns that were accepted before the server was started again wait.
    async fn run(&self, turn: Turn) -> AgentResult {
        let mut built = self.built.clone();
        let agent = tokio::select! {
            built = built.wait_for(Option::is_some) => built.ok().and_then(|built| Some(built.as_ref()?.agent.clone())),
            () = turn.cancelled() => return Ok(()),
        };
        match agent {
            Some(agent) => agent.run(turn).await,
            None => turn.fail("the agent is not available any more").await,
        }
    }

    fn admits(&self, caller: &Caller, message: &Message) -> Result<(), Error> {
        self.with(|built| built.agent.admits(caller, message)).unwrap_or_else(|| {
            let text = "the agent is not available at the moment, and the server keeps trying: send the message again later";
            Err(Error::new(ErrorKind::Unavailable, text).retry_in(RETRY))
        })
    }

    fn prepare(&self, first: &mut Message) {
        self.with(|built| built.agent.prepare(first));
    }

    fn restartable(&self) -> bool {
        self.with(|built| built.agent.restartable()).unwrap_or(self.unconnected.restartable)
    }

    fn restarts(&self, first: &Message) -> bool {
        self.with(|built| built.agent.restarts(first)).unwrap_or(self.unconnected.restartable)
    }

    fn reports(&self) -> bool {
        self.unconnected.reports
    }

    fn conversation(&self, first: &Message) -> Option<Arc<Conversation>> {
        self.with(|built| built.agent.conversation(first)).flatten()
    }

    fn task_ended(&self, task: &TaskId) {
        self.with(|built| built.agent.task_ended(task));
    }
}
