//! What a store keeps about contexts: their workspace, when they were used, and what the agent has to remember.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_protocol::{ContextId, Json, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::live::ContextKey;
use crate::{Owner, Principal, Store, StoreError};

/// The scope of the values.
const SCOPE: &str = ContextRecord::SCOPE;

/// How many contexts are remembered. Those that were not used for longest are forgotten.
const MAX_RECORDS: usize = 10_000;

/// How many contexts are added before old ones are looked for.
const PRUNE_AFTER: usize = 100;

/// What a store keeps about a context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ContextRecord {
    /// The name of the agent, where a server has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The tenant of its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The name of its owner. None for anonymous callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The id of the context.
    pub context_id: ContextId,
    /// When the first turn began.
    pub created: Timestamp,
    /// When the last turn began.
    pub used: Timestamp,
    /// How many turns have begun.
    pub turns: u64,
    /// The directory that the context works in, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<StoredWorkspace>,
    /// When an operator has closed the context. It takes no more messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<Timestamp>,
    /// What agents have to remember, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub state: BTreeMap<String, Value>,
}

/// The directory that a context works in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoredWorkspace {
    /// The caller has named it, or all contexts share it.
    Shared(PathBuf),
    /// It was made for this context alone, and ends with its record.
    Private(PathBuf),
}

impl StoredWorkspace {
    /// The path of the directory.
    pub fn path(&self) -> &Path {
        match self {
            Self::Shared(path) | Self::Private(path) => path,
        }
    }

    /// Removes a private directory, with everything in it. Its name was made by this server: anything else is left alone.
    pub fn remove(&self) -> std::io::Result<()> {
        let Self::Private(path) = self else { return Ok(()) };
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if uuid::Uuid::parse_str(name).is_err() {
            return Ok(());
        }
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl ContextRecord {
    fn new(key: &ContextKey, now: Timestamp) -> Self {
        let Owner { agent, tenant, principal } = &key.owner;
        Self {
            agent: agent.as_deref().map(str::to_owned),
            tenant: tenant.as_deref().map(str::to_owned),
            caller: principal.name().map(str::to_owned),
            context_id: key.id.clone(),
            created: now,
            used: now,
            turns: 0,
            workspace: None,
            closed: None,
            state: BTreeMap::new(),
        }
    }

    /// The scope of the records among the values of a store.
    pub const SCOPE: &str = "contexts";

    /// The key of the record among the values of a store.
    pub fn key(&self) -> String {
        text(&ContextKey { owner: self.owner(), id: self.context_id.clone() })
    }

    /// Closes the context: it takes no more messages, and nothing is remembered for them.
    pub fn close(&mut self, now: Timestamp) {
        self.closed.get_or_insert(now);
        self.state.clear();
        self.workspace = None;
    }

    /// Its owner.
    pub fn owner(&self) -> Owner {
        Owner {
            agent: self.agent.as_deref().map(Into::into),
            tenant: self.tenant.as_deref().map(Into::into),
            principal: self.caller.as_deref().map_or(Principal::Anonymous, Principal::named),
        }
    }
}

/// The records of contexts in a store.
#[derive(Clone)]
pub struct ContextRecords {
    store: Arc<dyn Store>,
    added: Arc<AtomicUsize>,
}

impl ContextRecords {
    /// The records in this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, added: Arc::default() }
    }

    /// All records, the last used first.
    pub async fn list(&self) -> Result<Vec<ContextRecord>, StoreError> {
        let all = self.store.values().list(SCOPE).await?;
        // A record of another version is like none.
        let mut records: Vec<ContextRecord> =
            all.into_iter().filter_map(|(_, value)| value.read().ok()).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.used));
        Ok(records)
    }

    /// Closes a context: it takes no more messages, and its private directory is removed. A turn that runs goes on. Returns the
    /// record before, if there was one that was not closed.
    pub async fn close(
        &self,
        owner: &Owner,
        id: &ContextId,
        now: Timestamp,
    ) -> Result<Option<ContextRecord>, StoreError> {
        let key = ContextKey { owner: owner.clone(), id: id.clone() };
        let changed = self
            .store
            .values()
            .change(
                SCOPE,
                &text(&key),
                Box::new(move |old| {
                    let mut record: ContextRecord = old?.read().ok()?;
                    record.close(now);
                    Json::new(&record).ok()
                }),
            )
            .await?;
        let old = changed.old.and_then(|value| value.read::<ContextRecord>().ok());
        let old = old.filter(|record| record.closed.is_none());
        if let Some(workspace) = old.as_ref().and_then(|record| record.workspace.clone()) {
            remove(workspace).await;
        }
        Ok(old)
    }

    /// The record of a context.
    pub(crate) async fn get(&self, key: &ContextKey) -> Result<Option<ContextRecord>, StoreError> {
        let stored = self.store.values().get(SCOPE, &text(key)).await?;
        Ok(stored.and_then(|value| value.read().ok()))
    }

    /// Changes the record of a context, or a new one. Returns it as it is then.
    pub(crate) async fn change(
        &self,
        key: &ContextKey,
        now: Timestamp,
        change: impl Fn(&mut ContextRecord) + Send + Sync + 'static,
    ) -> Result<ContextRecord, StoreError> {
        let owned = key.clone();
        let apply = move |old: Option<&Json>| {
            let old: Option<ContextRecord> = old.and_then(|value| value.read().ok());
            let mut record = old.unwrap_or_else(|| ContextRecord::new(&owned, now));
            change(&mut record);
            record
        };
        let apply = Arc::new(apply);
        let store = apply.clone();
        let changed = self
            .store
            .values()
            .change(SCOPE, &text(key), Box::new(move |old| Json::new(&store(old)).ok()))
            .await?;
        if changed.old.is_none()
            && self.added.fetch_add(1, Ordering::Relaxed) % PRUNE_AFTER == PRUNE_AFTER - 1
        {
            self.prune().await?;
        }
        Ok(apply(changed.old.as_ref()))
    }

    /// Forgets contexts that were not used for longest.
    async fn prune(&self) -> Result<(), StoreError> {
        for record in self.list().await?.into_iter().skip(MAX_RECORDS) {
            let key = ContextKey { owner: record.owner(), id: record.context_id.clone() };
            self.store.values().change(SCOPE, &text(&key), Box::new(|_| None)).await?;
            if let Some(workspace) = record.workspace {
                remove(workspace).await;
            }
        }
        Ok(())
    }
}

/// Removes a private directory.
async fn remove(workspace: StoredWorkspace) {
    let removed = tokio::task::spawn_blocking(move || {
        if let Err(error) = workspace.remove() {
            let path = workspace.path().display();
            tracing::warn!(target: "attache::context", %error, %path, "an old workspace was not removed");
        }
    });
    let _ = removed.await;
}

/// The key of a value.
fn text(key: &ContextKey) -> String {
    let Owner { agent, tenant, principal } = &key.owner;
    serde_json::json!((agent.as_deref(), tenant.as_deref(), principal.name(), key.id.as_str())).to_string()
}
