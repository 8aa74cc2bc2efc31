//! Finds or makes the session of a conversation.

use std::path::PathBuf;
use std::sync::Arc;

use attache_core::{AgentError, Store, Turn};
use tempfile::TempDir;
use tokio::sync::watch;

use super::peer::{Host, LiveSession, Peer};
use super::pool::{Lease, Pool};
use super::records::{ContextKey, Record, Records};
use super::wire::AgentInfo;
use super::workspace::Workspace;
use super::{AcpError, AcpOptions};

/// The sessions of all conversations.
pub(super) struct Sessions {
    options: Arc<AcpOptions>,
    host: Host,
    pool: Arc<Pool>,
    records: Records,
    /// Where the private directories are, if conversations have such.
    data: Option<PathBuf>,
    /// The same, if it is temporary. It is removed when this is dropped.
    _temporary: Option<TempDir>,
}

/// Where a session comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It was kept since the last turn, or the agent has loaded it. It knows the conversation.
    Known,
    /// It is new and knows nothing.
    New,
}

impl Sessions {
    pub(super) fn new(options: Arc<AcpOptions>, store: Arc<dyn Store>) -> Result<Self, AcpError> {
        let unusable = |path: &PathBuf, error| AcpError::Directory { path: path.clone(), error };
        let (mut data, mut temporary) = (None, None);
        match (&options.workspace, &options.data_directory) {
            (Some(path), _) => {
                Workspace::open(path, options.max_file).map_err(|error| unusable(path, error))?;
            }
            (None, Some(path)) => {
                create_private(path).map_err(|error| unusable(path, error))?;
                data = Some(path.clone());
            }
            (None, None) => {
                let folder = tempfile::Builder::new().prefix("attache-acp-").tempdir();
                let folder = folder.map_err(|error| unusable(&std::env::temp_dir(), error))?;
                data = Some(folder.path().to_owned());
                temporary = Some(folder);
            }
        }
        Ok(Self {
            host: Host::new(options.clone()),
            pool: Arc::new(Pool::new(options.max_sessions, options.idle)),
            records: Records::new(store, &options.name()),
            options,
            data,
            _temporary: temporary,
        })
    }

    /// What the program says about itself.
    pub(super) fn info(&self) -> watch::Receiver<Option<AgentInfo>> {
        self.host.info.subscribe()
    }

    /// The session for a turn. Waits until it is not in use.
    pub(super) async fn acquire(&self, turn: &Turn) -> Result<(Lease, Origin), AgentError> {
        let key = ContextKey::of(turn);
        let mut lease = self.pool.acquire(&key).await;
        if lease.session.as_ref().is_some_and(|session| !session.peer.is_closed()) {
            return Ok((lease, Origin::Known));
        }
        let peer = self.host.peer().await?;
        let mut record = self.records.get(&key).await?;
        let workspace = self.workspace(&mut record).await?;
        let (session, origin) = self.open(&peer, &record, workspace).await?;
        record.session = Some(session.session.id.clone());
        lease.set(session);
        let forgotten = self.records.put(&key, &record).await?;
        self.remove_directories(forgotten);
        Ok((lease, origin))
    }

    /// Loads the earlier session if the agent can, or creates a new one.
    async fn open(
        &self,
        peer: &Arc<Peer>,
        record: &Record,
        workspace: Arc<Workspace>,
    ) -> Result<(LiveSession, Origin), AgentError> {
        if let Some(id) = &record.session
            && peer.capabilities.load_session
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

    /// The directory of a conversation.
    async fn workspace(&self, record: &mut Record) -> Result<Arc<Workspace>, AgentError> {
        let path = match (&self.options.workspace, &self.data) {
            (Some(path), _) => path.clone(),
            (None, Some(data)) => {
                let name = record.directory.get_or_insert_with(|| uuid::Uuid::new_v4().to_string());
                data.join(name)
            }
            (None, None) => return Err(AgentError::from("there is no directory for conversations")),
        };
        let (is_private, max_file) = (self.options.workspace.is_none(), self.options.max_file);
        let opened = tokio::task::spawn_blocking(move || {
            if is_private {
                create_private(&path)?;
            }
            Workspace::open(&path, max_file)
        });
        let opened = opened.await?.map_err(|error| format!("the workspace cannot be used: {error}"))?;
        Ok(Arc::new(opened))
    }

    /// Removes the directories of conversations that nothing refers to any more.
    fn remove_directories(&self, forgotten: Vec<Record>) {
        let Some(data) = &self.data else { return };
        let names = forgotten.into_iter().filter_map(|record| record.directory);
        // The names come from the store. A name that is no UUID is not ours.
        let paths: Vec<_> =
            names.filter(|name| uuid::Uuid::parse_str(name).is_ok()).map(|name| data.join(name)).collect();
        if !paths.is_empty() {
            tokio::task::spawn_blocking(move || {
                for path in paths {
                    if let Err(error) = std::fs::remove_dir_all(&path) {
                        tracing::warn!(target: "attache::acp", %error, path = %path.display(), "an old workspace was not removed");
                    }
                }
            });
        }
    }
}

fn create_private(path: &std::path::Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
