//! Finds or makes the session of a conversation. It is kept in the context, which decides how long it lives.

use std::path::PathBuf;
use std::sync::Arc;

use attache_core::{
    AgentError, Context, ContextHold, Conversation, DefaultWorkspace, Turn, private_temporary_directory,
};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use super::peer::{Host, LiveSession, Peer};
use super::wire::AgentInfo;
use super::workspace::Workspace;
use super::{AcpError, AcpOptions};

/// The session of a context. A prompt that ends slowly keeps the lock longer than its turn.
type SessionSlot = Mutex<Option<LiveSession>>;

/// The sessions of all conversations.
pub(super) struct Sessions {
    options: Arc<AcpOptions>,
    host: Host,
    /// The rules for conversations.
    pub(super) rules: Arc<Conversation>,
    /// Counts the sessions in use: each has a clone.
    in_use: Arc<()>,
    /// Where the private directories are, if that is temporary. It is removed when this is dropped.
    _temporary: Option<TempDir>,
}

/// What is stored about a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// The id of its session.
    session: String,
}

/// Where a session comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It was kept since the last turn, or the agent has loaded it. It knows the conversation.
    Known,
    /// It is new and knows nothing.
    New,
}

/// The right to use the session of a conversation.
pub(super) struct Lease {
    /// The session, if there is one.
    pub(super) session: OwnedMutexGuard<Option<LiveSession>>,
    /// Keeps the context for the task, while the caller is asked for permission.
    hold: Option<ContextHold>,
    in_use: Arc<()>,
}

impl Lease {
    /// Keeps the context for the task, also when its turn has ended.
    pub(super) fn keep_context(&mut self, context: &Context) {
        self.hold = context.hold();
    }

    /// Lets messages for other tasks of the context come next. They wait until the session is free.
    pub(super) fn release_context(&mut self) {
        self.hold = None;
    }

    /// Gives up a session whose prompt does not end. If no other session is in use, the program is stopped: it may hang as a whole.
    pub(super) fn abandon(mut self) {
        let Some(session) = self.session.take() else { return };
        // One clone is in `Sessions`, and one here.
        if Arc::strong_count(&self.in_use) <= 2 {
            session.peer.stop();
        }
    }
}

impl Sessions {
    pub(super) fn new(options: Arc<AcpOptions>) -> Result<Self, AcpError> {
        let unusable = |path: &PathBuf, error| AcpError::Directory { path: path.clone(), error };
        let mut rules = options.conversation.clone();
        (rules.contexts.idle, rules.contexts.max) = (options.idle, options.max_sessions);
        let mut temporary = None;
        match (&options.workspace, &options.data_directory) {
            (Some(path), _) => {
                Workspace::open(path, options.max_file).map_err(|error| unusable(path, error))?;
                rules.workspaces.default = DefaultWorkspace::Shared(path.clone());
            }
            (None, Some(path)) => {
                rules.workspaces.default = DefaultWorkspace::Private(path.clone());
            }
            (None, None) if rules.workspaces.default == DefaultWorkspace::None => {
                let folder = private_temporary_directory()
                    .and_then(|parent| tempfile::Builder::new().prefix("attache-acp-").tempdir_in(parent));
                let folder = folder.map_err(|error| unusable(&std::env::temp_dir(), error))?;
                rules.workspaces.default = DefaultWorkspace::Temporary(folder.path().to_owned());
                temporary = Some(folder);
            }
            (None, None) => {}
        }
        Ok(Self {
            host: Host::new(options.clone()),
            rules: Arc::new(rules),
            in_use: Arc::new(()),
            options,
            _temporary: temporary,
        })
    }

    /// What the program says about itself.
    pub(super) fn info(&self) -> watch::Receiver<Option<AgentInfo>> {
        self.host.info.subscribe()
    }

    /// The session for a turn. Waits until a prompt that was canceled has ended.
    pub(super) async fn acquire(&self, turn: &Turn) -> Result<(Lease, Origin), AgentError> {
        let (context, name) = (turn.context(), self.options.name());
        let slot = context.runtime::<SessionSlot>(&name).unwrap_or_default();
        context.keep(&name, slot.clone());
        let session = slot.lock_owned().await;
        let mut lease = Lease { session, hold: None, in_use: self.in_use.clone() };
        // The workspace is checked for each turn.
        let workspace = Arc::new(Workspace::new(context.workspace().await?, self.options.max_file));
        let is_usable =
            |live: &LiveSession| !live.peer.is_closed() && live.session.workspace.is_same(&workspace);
        if lease.session.as_ref().is_some_and(is_usable) {
            return Ok((lease, Origin::Known));
        }
        let peer = self.host.peer().await?;
        let (session, origin) = self.open(&context, &name, &peer, workspace).await?;
        context.set_state(&name, &State { session: session.session.id.clone() }).await?;
        *lease.session = Some(session);
        Ok((lease, origin))
    }

    /// Loads the earlier session if the agent can, or creates a new one.
    async fn open(
        &self,
        context: &Context,
        name: &str,
        peer: &Arc<Peer>,
        workspace: Arc<Workspace>,
    ) -> Result<(LiveSession, Origin), AgentError> {
        if peer.capabilities.load_session
            && let Some(State { session: id }) = context.state(name).await?
        {
            match peer.load_session(id.clone(), workspace.clone()).await {
                Ok(session) => return Ok((session, Origin::Known)),
                Err(error) if peer.is_closed() => return Err(error),
                Err(error) => {
                    tracing::info!(target: "attache::acp", %error, session = id, "a session cannot be loaded: a new one is created");
                }
            }
        }
        Ok((peer.new_session(workspace).await?, Origin::New))
    }
}
