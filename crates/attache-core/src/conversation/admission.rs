//! Accepts the message of a conversation: its context, its workspace and its content, before anything is stored.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use attache_protocol::{ContextId, Error, ErrorKind, JsonObject, Message, Task, TaskId, TaskState};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::SetOnce;

use super::input::{Reader, Unaccepted};
use super::live::{ContextKey, NoSeat, Seat};
use super::record::{ContextRecord, Home, StoredWorkspace, remove};
use super::rules::{Conversation, PeerRules};
use super::workspace::Workspace;
use super::workspaces::{self, DefaultWorkspace, WorkspaceError, Workspaces};
use crate::permission::Roots;
use crate::service::{Inner, internal};
use crate::{AgentError, Namespace, Owner, StoreError};

/// When a caller should try again if a queue is full. The server cannot know when a turn will end.
const RETRY_IN: Duration = Duration::from_secs(1);

/// The words of iac-code for a context whose turn runs.
const WORKING: &str = "Task is already working.";

/// The metadata of the status message of a task whose message was refused. They are stored with the task.
pub(crate) fn refusal() -> Option<JsonObject> {
    JsonObject::new(&serde_json::json!({Namespace::Attache.name(): {"refused": true}})).ok()
}

/// Whether a task was made for a message that was refused. The message is not part of the conversation: no agent has read it.
pub(crate) fn is_refused(task: &Task) -> bool {
    let metadata = task.status.message.as_ref().and_then(|message| message.metadata.as_ref());
    let own = metadata.and_then(|metadata| metadata.get::<Value>(Namespace::Attache.name()));
    task.status.state == TaskState::Failed
        && own.is_some_and(|own| own.get("refused") == Some(&Value::Bool(true)))
}

/// Whether a turn is part of a conversation, and may run.
#[derive(Default)]
pub(crate) enum ContextAdmission {
    /// The agent holds no conversations.
    #[default]
    None,
    /// The turn runs in a context.
    Admitted(Box<ContextTurn>),
    /// No agent runs: the task fails with this text.
    Refused(&'static str),
}

/// A turn in a context.
pub(crate) struct ContextTurn {
    seat: Seat,
    pub(crate) rules: Arc<Conversation>,
    /// The directory that the caller has named.
    named: Option<PathBuf>,
    /// The workspace that the context was bound to when the message was accepted.
    bound: Option<StoredWorkspace>,
    /// The workspace, once it was opened in this turn.
    opened: tokio::sync::OnceCell<Option<Arc<Workspace>>>,
}

/// A message that is about to be accepted.
pub(crate) struct Arriving<'a> {
    pub(crate) owner: &'a Owner,
    pub(crate) context: &'a ContextId,
    pub(crate) task: &'a TaskId,
    pub(crate) message: &'a Message,
    /// The metadata of the request.
    pub(crate) metadata: Option<&'a JsonObject>,
    /// Whether the message creates its task.
    pub(crate) creates_task: bool,
}

/// Why a message is refused, in both forms.
enum Refusal {
    Error(Error),
    /// The task fails with the first text if peers expect that, and otherwise there is the error.
    Failed(&'static str, Error),
    /// The task fails with this text.
    AlwaysFailed(&'static str),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Error(internal(&error))
    }
}

/// The ids of directories with private workspaces, as far as they were read.
#[derive(Default)]
pub(crate) struct Homes(Mutex<HashMap<PathBuf, Arc<str>>>);

impl Inner {
    /// Which server this is, for workspaces that are on one server only.
    async fn home(&self, workspaces: &Workspaces) -> Result<Home, WorkspaceError> {
        let private = self.private_home(workspaces).await?;
        let shared = match self.store.is_shared() && !workspaces.shared {
            true => private.clone().or_else(|| workspaces::machine().map(Into::into)),
            false => None,
        };
        Ok(Home { private, shared })
    }

    /// The id of the directory that has the private workspaces of this server, if they last.
    async fn private_home(&self, workspaces: &Workspaces) -> Result<Option<Arc<str>>, WorkspaceError> {
        let DefaultWorkspace::Private(data) = &workspaces.default else { return Ok(None) };
        let known = self.homes.0.lock().get(data).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let path = data.clone();
        let read = tokio::task::spawn_blocking(move || workspaces::home_id(&path)).await;
        let id: Arc<str> = read.map_err(io::Error::from).flatten().map_err(WorkspaceError::Unusable)?.into();
        self.homes.0.lock().insert(data.clone(), id.clone());
        Ok(Some(id))
    }

    /// Accepts a message of a conversation.
    pub(crate) async fn place(
        &self,
        rules: Arc<Conversation>,
        arriving: Arriving<'_>,
    ) -> Result<ContextAdmission, Error> {
        let peer = self.options.peer;
        let creates_task = arriving.creates_task;
        match self.try_place(rules, arriving, peer).await {
            Ok(turn) => Ok(ContextAdmission::Admitted(Box::new(turn))),
            Err(Refusal::Error(error)) => Err(error),
            // A task that exists is not failed by a message that it cannot take.
            Err(Refusal::Failed(text, _)) if peer == PeerRules::IacCode && creates_task => {
                Ok(ContextAdmission::Refused(text))
            }
            Err(Refusal::Failed(_, error)) => Err(error),
            Err(Refusal::AlwaysFailed(text)) if creates_task => Ok(ContextAdmission::Refused(text)),
            Err(Refusal::AlwaysFailed(text)) => Err(Error::invalid_params("message.parts", text)),
        }
    }

    async fn try_place(
        &self,
        rules: Arc<Conversation>,
        arriving: Arriving<'_>,
        peer: PeerRules,
    ) -> Result<ContextTurn, Refusal> {
        let Arriving { owner, context, task, message, metadata, .. } = arriving;
        let key = ContextKey { owner: owner.clone(), id: context.clone() };
        let seat =
            || self.contexts.seat(&key, task, &rules.contexts, false).map_err(|no| no_seat(no, context));
        // In a context that lives, messages keep the order in which they arrived. To a new one, others may have to give way, which they
        // do not for a message that is refused.
        let early = if self.contexts.contains(&key) { Some(seat()?) } else { None };
        let record = self.records.get(&key).await?;
        if record.as_ref().is_some_and(|record| record.closed.is_some()) {
            self.contexts.close(&key);
            return Err(Refusal::Error(closed(context)));
        }
        let named =
            workspaces::named(message, metadata, peer).map_err(|(error, field)| bad(&error, &field))?;
        let (named, field) = named.map_or((None, String::new()), |(path, field)| (Some(path), field));
        let home = self.home(&rules.workspaces).await.map_err(|error| bad(&error, &field))?;
        if record.as_ref().is_some_and(|record| record.is_elsewhere(&home)) {
            return Err(bad(&WorkspaceError::Elsewhere, &field));
        }
        let stored = record.and_then(|record| record.workspace);
        let bound = self.check_content(&rules, message, named.clone(), stored, &field).await?;
        let seat = match early {
            Some(early) => early,
            None => seat()?,
        };
        let now = self.clock.now();
        let wanted = bound.clone();
        let record = self.records.change(&key, now, move |record| {
            if record.closed.is_some() {
                return;
            }
            record.used = now;
            record.turns += 1;
            if let (None, Some(wanted)) = (&record.workspace, &wanted) {
                record.bind(wanted, &home);
            }
        });
        let record = record.await?;
        // The operator may have closed the context meanwhile.
        if record.closed.is_some() {
            self.contexts.close(&key);
            return Err(Refusal::Error(closed(context)));
        }
        // Another message may have bound the context meanwhile.
        if named.is_some() && record.workspace != bound {
            return Err(bad(&WorkspaceError::Different, &field));
        }
        Ok(ContextTurn { seat, rules, named, bound: record.workspace, opened: tokio::sync::OnceCell::new() })
    }

    /// Checks the content of a message and its workspace, as far as one is named or needed. Returns the workspace that the context
    /// is bound to then.
    async fn check_content(
        &self,
        rules: &Arc<Conversation>,
        message: &Message,
        named: Option<PathBuf>,
        stored: Option<StoredWorkspace>,
        field: &str,
    ) -> Result<Option<StoredWorkspace>, Refusal> {
        let peer = self.options.peer;
        let accept = |unaccepted: Unaccepted| match unaccepted {
            Unaccepted::Error(error) => Refusal::Error(error),
            Unaccepted::Failed(text) => Refusal::AlwaysFailed(text),
        };
        let needs_files = Reader::needs_workspace(message);
        if named.is_none() && !needs_files {
            Reader { rules: &rules.input, peer }.check(message, None).map_err(accept)?;
            return Ok(stored);
        }
        let (rules, message, field) = (rules.clone(), message.clone(), field.to_owned());
        let checked = tokio::task::spawn_blocking(move || {
            let opened = rules.workspaces.open(stored.as_ref(), named.as_deref());
            let (workspace, bound) = match opened {
                Ok((workspace, bound)) => (Some(workspace), Some(bound)),
                Err(WorkspaceError::NoDefault) if named.is_none() => (None, stored),
                Err(error) => return Err(bad(&error, &field)),
            };
            Reader { rules: &rules.input, peer }.check(&message, workspace.as_ref()).map_err(accept)?;
            Ok(bound)
        });
        checked.await.map_err(|error| Refusal::Error(internal(&error)))?
    }

    /// The place of a turn whose message was accepted before: it runs again, or goes on without an answer.
    pub(crate) async fn place_again(
        &self,
        rules: Option<Arc<Conversation>>,
        owner: &Owner,
        context: &ContextId,
        task: &TaskId,
        message: &Message,
    ) -> ContextAdmission {
        let Some(rules) = rules else { return ContextAdmission::None };
        let key = ContextKey { owner: owner.clone(), id: context.clone() };
        let named = workspaces::named(message, None, self.options.peer).ok().flatten().map(|(path, _)| path);
        let record = self.records.get(&key).await.ok().flatten();
        match self.contexts.seat(&key, task, &rules.contexts, true) {
            Ok(seat) => ContextAdmission::Admitted(Box::new(ContextTurn {
                seat,
                rules,
                named,
                bound: record.and_then(|record| record.workspace),
                opened: tokio::sync::OnceCell::new(),
            })),
            // A forced seat is never refused.
            Err(_) => ContextAdmission::None,
        }
    }
}

fn no_seat(no: NoSeat, context: &ContextId) -> Refusal {
    match no {
        NoSeat::Busy => {
            let text = format!("{WORKING} Send the message again when it has ended, or without `contextId`.");
            let error = Error::new(ErrorKind::UnsupportedOperation, text).with("contextId", context);
            Refusal::Failed(WORKING, error)
        }
        NoSeat::QueueFull(limit) => {
            let text = format!("{limit} messages wait for this context already: send it again later");
            let error = Error::new(ErrorKind::ResourceExhausted, text).with("limit", limit);
            Refusal::Failed(WORKING, error.with("contextId", context).retry_in(RETRY_IN))
        }
        NoSeat::TooManyHeld(limit) => {
            let text = format!(
                "{limit} of your tasks wait for an answer: answer or cancel one of them before you begin another conversation"
            );
            let error =
                Error::new(ErrorKind::ResourceExhausted, text).with("limit", limit).retry_in(RETRY_IN);
            Refusal::Error(error)
        }
        NoSeat::TooMany(limit) => {
            let text = format!("all {limit} contexts of this agent are in use: send the message again later");
            let error = Error::new(ErrorKind::Unavailable, text).with("limit", limit).retry_in(RETRY_IN);
            Refusal::Error(error)
        }
    }
}

fn bad(error: &WorkspaceError, field: &str) -> Refusal {
    let theirs = match error {
        WorkspaceError::Different => "A2A context belongs to a different workspace",
        WorkspaceError::NotText
        | WorkspaceError::TwoNames
        | WorkspaceError::NotAbsolute
        | WorkspaceError::NoPath
        | WorkspaceError::NoneAllowed
        | WorkspaceError::Outside
        | WorkspaceError::HasPrivate
        | WorkspaceError::Missing => "Invalid A2A workspace metadata.",
        WorkspaceError::Elsewhere => {
            return Refusal::Error(Error::new(ErrorKind::Unavailable, error.to_string()));
        }
        WorkspaceError::NoDefault | WorkspaceError::Unusable(_) => {
            let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            return Refusal::Error(internal(&format!("{error}: {cause}")));
        }
    };
    let field = if field.is_empty() { "message.contextId" } else { field };
    Refusal::Failed(theirs, workspaces::invalid(error, field))
}

fn closed(context: &ContextId) -> Error {
    let text = "the context was closed: send without `contextId` to begin another one";
    Error::new(ErrorKind::UnsupportedOperation, text).with("contextId", context)
}

impl ContextTurn {
    pub(crate) fn seat(&self) -> &Seat {
        &self.seat
    }

    /// The paths of the workspace, as far as they are known without opening it.
    pub(crate) fn known_paths(&self) -> impl Iterator<Item = &Path> {
        self.named.as_deref().into_iter().chain(self.bound.as_ref().map(StoredWorkspace::path))
    }

    /// The names of the workspace that agents may use. The directory that all contexts share by default is the workspace of a context
    /// that has no other one.
    pub(crate) fn roots(&self) -> Roots {
        let opened = self.opened.get().and_then(Option::as_deref).map(Workspace::root);
        let known = opened.or(self.bound.as_ref().map(StoredWorkspace::path));
        let names = self.known_paths().map(Path::to_owned);
        let DefaultWorkspace::Shared(shared) = &self.rules.workspaces.default else {
            return Roots::new(known.map(Path::to_owned), names);
        };
        let resolved = shared.canonicalize().ok();
        let is_shared = match known {
            Some(known) => resolved.as_deref() == Some(known),
            None => self.named.is_none(),
        };
        match is_shared {
            true => Roots::new(resolved, names.chain(std::path::absolute(shared).ok())),
            false => Roots::new(known.map(Path::to_owned), names),
        }
    }

    /// Waits for nothing: says whether the turn may run, and when.
    pub(crate) fn enter(&self) -> Arc<SetOnce<()>> {
        self.seat.enter()
    }

    /// Opens the workspace, once per turn.
    pub(crate) async fn workspace(&self, service: &Inner) -> Result<Option<Arc<Workspace>>, AgentError> {
        let opened = self.opened.get_or_try_init(|| async {
            let key = self.seat.key();
            let record = service.records.get(key).await?;
            let home = service.home(&self.rules.workspaces).await.map_err(public)?;
            if record.as_ref().is_some_and(|record| record.is_elsewhere(&home)) {
                return Err(public(WorkspaceError::Elsewhere));
            }
            if record.as_ref().is_some_and(|record| record.closed.is_some()) {
                return Err(AgentError::public("the context was closed"));
            }
            let has_home = record.as_ref().is_some_and(|record| record.home.is_some());
            let stored = record.and_then(|record| record.workspace);
            let (rules, named, before) = (self.rules.clone(), self.named.clone(), stored.clone());
            let opened =
                tokio::task::spawn_blocking(move || rules.workspaces.open(stored.as_ref(), named.as_deref()));
            let (workspace, bound) = match opened.await? {
                Err(WorkspaceError::NoDefault) => return Ok(None),
                opened => opened.map_err(public)?,
            };
            let lacks_home = !has_home && home.of(&bound).is_some();
            if before.as_ref() != Some(&bound) || lacks_home {
                let (made, home) = (bound.clone(), home.clone());
                let change = move |record: &mut ContextRecord| {
                    if record.closed.is_none() {
                        record.bind(&made, &home);
                    }
                };
                let record = service.records.change(key, service.clock.now(), change).await?;
                if record.closed.is_some() {
                    // The operator has closed the context at this moment: no other task would remove the directory.
                    remove(bound).await;
                    return Err(AgentError::public("the context was closed"));
                }
            }
            Ok::<_, AgentError>(Some(Arc::new(workspace)))
        });
        opened.await.cloned()
    }
}

/// The error of an agent whose workspace cannot be used.
fn public(error: WorkspaceError) -> AgentError {
    match error {
        WorkspaceError::Unusable(cause) => AgentError::from(format!("the workspace cannot be used: {cause}")),
        WorkspaceError::NotText
        | WorkspaceError::TwoNames
        | WorkspaceError::NotAbsolute
        | WorkspaceError::NoPath
        | WorkspaceError::NoneAllowed
        | WorkspaceError::Outside
        | WorkspaceError::HasPrivate
        | WorkspaceError::Missing
        | WorkspaceError::Different
        | WorkspaceError::Elsewhere
        | WorkspaceError::NoDefault => AgentError::public(format!("the workspace of the context: {error}")),
    }
}
