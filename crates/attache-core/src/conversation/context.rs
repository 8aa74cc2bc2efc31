//! The context of a turn, for the agent.

use std::any::Any;
use std::sync::Arc;

use attache_protocol::ContextId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::admission::ContextAdmission;
use super::live::{ContextKey, Hold};
use super::rules::Conversation;
use super::workspace::Workspace;
use crate::redaction::WORKSPACE;
use crate::turn_state::TurnState;
use crate::{AgentError, AgentResult, Owner};

/// The context of a turn: its workspace, and what the agent keeps for it.
///
/// An agent keeps two things under its own name: a value in memory for as long as the context lives, such as a process, and a small
/// state in the store, which outlives the server. A context is put away if it is idle for long, or if another one needs its place. The
/// value is dropped then, and the next message begins with the state.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// use attache_core::{AgentResult, Conversation, Turn, agent_fn, conversational};
///
/// async fn count(turn: Turn) -> AgentResult {
///     let context = turn.context();
///     let seen = context.runtime::<AtomicU32>("counter").unwrap_or_default();
///     context.keep("counter", seen.clone());
///     turn.reply(format!("message {}", seen.fetch_add(1, Ordering::Relaxed) + 1)).await
/// }
///
/// let agent = conversational(agent_fn(count), Conversation::default());
/// ```
pub struct Context {
    turn: Arc<TurnState>,
}

/// Keeps a context for one task: until this is dropped, messages for other tasks of the context wait, and messages for this task go
/// on with it. An agent that asks the caller a question and keeps its work open holds the context until the answer.
pub struct ContextHold {
    _hold: Hold,
}

impl Context {
    pub(crate) fn new(turn: Arc<TurnState>) -> Self {
        Self { turn }
    }

    /// The id.
    pub fn id(&self) -> &ContextId {
        &self.turn.context_id
    }

    /// The owner. Contexts of other owners with the same id are other contexts.
    pub fn owner(&self) -> &Owner {
        &self.turn.caller.owner
    }

    /// The rules that the context follows, if the agent [holds conversations](crate::Agent::conversation).
    pub fn rules(&self) -> Option<&Conversation> {
        match &self.turn.place {
            ContextAdmission::Admitted(turn) => Some(&turn.rules),
            ContextAdmission::None | ContextAdmission::Refused(_) => None,
        }
    }

    /// The directory that the context works in. It is checked again in each turn. A private directory is made if there is none.
    ///
    /// Fails if the directory cannot be used any more, or if the context has none.
    pub async fn workspace(&self) -> Result<Arc<Workspace>, AgentError> {
        let none = || AgentError::public("there is no directory for this context: name a workspace");
        self.workspace_if_any().await?.ok_or_else(none)
    }

    /// Like [`workspace`](Self::workspace), for an agent that can do without one.
    pub async fn workspace_if_any(&self) -> Result<Option<Arc<Workspace>>, AgentError> {
        match &self.turn.place {
            ContextAdmission::Admitted(turn) => {
                let workspace = turn.workspace(&self.turn.service).await?;
                if let Some(workspace) = &workspace {
                    self.turn.hide_path(workspace.root(), WORKSPACE);
                }
                Ok(workspace)
            }
            ContextAdmission::None | ContextAdmission::Refused(_) => Ok(None),
        }
    }

    /// What was [kept](Self::keep) under a name since an earlier turn.
    pub fn runtime<T: Any + Send + Sync>(&self, name: &str) -> Option<Arc<T>> {
        let ContextAdmission::Admitted(turn) = &self.turn.place else { return None };
        let kept = turn.seat().runtimes().lock().get(name).cloned();
        kept.and_then(|value| value.downcast().ok())
    }

    /// Keeps a value for later turns, for as long as the context lives. Without [rules](Self::rules) nothing is kept.
    pub fn keep<T: Any + Send + Sync>(&self, name: &str, value: Arc<T>) {
        if let ContextAdmission::Admitted(turn) = &self.turn.place {
            let replaced = turn.seat().runtimes().lock().insert(name.to_owned(), value);
            drop(replaced);
        }
    }

    /// Drops what was kept under a name.
    pub fn forget(&self, name: &str) {
        if let ContextAdmission::Admitted(turn) = &self.turn.place {
            let removed = turn.seat().runtimes().lock().remove(name);
            drop(removed);
        }
    }

    /// Holds the context for the task of this turn. `None` without [rules](Self::rules).
    pub fn hold(&self) -> Option<ContextHold> {
        match &self.turn.place {
            ContextAdmission::Admitted(turn) => Some(ContextHold { _hold: turn.seat().hold() }),
            ContextAdmission::None | ContextAdmission::Refused(_) => None,
        }
    }

    /// The state that was [stored](Self::set_state) under a name. A state of another form is like none.
    pub async fn state<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, AgentError> {
        let record = self.turn.service.records.get(&self.key()).await?;
        let state = record.and_then(|mut record| record.state.remove(name));
        Ok(state.and_then(|state| serde_json::from_value(state).ok()))
    }

    /// Stores a small state, which the next turn gets also after a restart of the server. For a context that was closed meanwhile,
    /// nothing is stored.
    pub async fn set_state<T: Serialize>(&self, name: &str, state: &T) -> AgentResult {
        let (name, state) = (name.to_owned(), serde_json::to_value(state)?);
        let (service, key) = (&self.turn.service, self.key());
        let change = service.records.change(&key, service.clock.now(), move |record| {
            // An operator may have closed the context during the turn. Then nothing is remembered for it any more.
            if record.closed.is_none() {
                record.state.insert(name.clone(), state.clone());
            }
        });
        change.await?;
        Ok(())
    }

    fn key(&self) -> ContextKey {
        ContextKey { owner: self.owner().clone(), id: self.id().clone() }
    }
}
