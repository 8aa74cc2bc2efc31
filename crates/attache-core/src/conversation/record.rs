//! What a store keeps about contexts: their workspace, when they were used, and what the agent has to remember.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_protocol::{ContextId, Json, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::live::{ContextKey, LiveContexts};
use crate::{Owner, Principal, Store, StoreError};

/// The scope of the values.
const SCOPE: &str = ContextRecord::SCOPE;

/// How many contexts of one owner are remembered. Those that were not used for longest are forgotten.
pub(crate) const MAX_RECORDS: usize = 10_000;

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
    /// The server that has the workspace, if it is not on all servers: the id of the directory of private workspaces, or the name of the
    /// machine. Only that server takes messages for the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
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

    /// The name of a private directory. It stays when the data directory of the server is moved.
    pub(crate) fn private_name(&self) -> Option<uuid::Uuid> {
        let Self::Private(path) = self else { return None };
        path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok())
    }

    /// Removes a private directory, with everything in it. Its name was made by this server: anything else is left alone.
    pub fn remove(&self) -> std::io::Result<()> {
        let (Self::Private(path), Some(_)) = (self, self.private_name()) else { return Ok(()) };
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// Which server this is, for contexts whose workspace is on one server only.
#[derive(Debug, Clone, Default)]
pub(crate) struct Home {
    /// The id of the directory with private workspaces, if they last.
    pub(crate) private: Option<Arc<str>>,
    /// For directories that callers name or that all contexts share. `None` if these are the same on all servers.
    pub(crate) shared: Option<Arc<str>>,
}

impl Home {
    /// The name of this server for a workspace. `None` if the workspace is not bound to a server.
    pub(crate) fn of(&self, workspace: &StoredWorkspace) -> Option<&str> {
        match workspace {
            StoredWorkspace::Private(_) => self.private.as_deref(),
            StoredWorkspace::Shared(_) => self.shared.as_deref(),
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
            home: None,
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

    /// Whether the workspace is on the disk of another server than this one.
    pub(crate) fn is_elsewhere(&self, here: &Home) -> bool {
        let here = self.workspace.as_ref().and_then(|workspace| here.of(workspace));
        here.is_some() && self.home.is_some() && self.home.as_deref() != here
    }

    /// Binds the context to a workspace on this server.
    pub(crate) fn bind(&mut self, workspace: &StoredWorkspace, here: &Home) {
        self.workspace = Some(workspace.clone());
        self.home = here.of(workspace).map(str::to_owned);
    }

    /// Closes the context: it takes no more messages, and nothing is remembered for them.
    pub fn close(&mut self, now: Timestamp) {
        self.closed.get_or_insert(now);
        self.state.clear();
        self.workspace = None;
        self.home = None;
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
    /// The contexts that live in this process. They are not forgotten.
    live: Arc<LiveContexts>,
    /// How many contexts of one owner are remembered.
    max: usize,
}

impl ContextRecords {
    /// The records in this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with_live(store, Arc::default(), MAX_RECORDS)
    }

    /// The records in this store, with the contexts that live in this process.
    pub(crate) fn with_live(store: Arc<dyn Store>, live: Arc<LiveContexts>, max: usize) -> Self {
        Self { store, added: Arc::default(), live, max }
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
            self.prune(key.owner.agent.as_deref()).await?;
        }
        Ok(apply(changed.old.as_ref()))
    }

    /// Forgets the contexts of each owner that were not used for longest. Contexts that live stay, and so do those of other agents: it
    /// is not known here which of them live.
    async fn prune(&self, agent: Option<&str>) -> Result<(), StoreError> {
        let mut counts: HashMap<Owner, usize> = HashMap::new();
        for record in self.list().await?.into_iter().filter(|record| record.agent.as_deref() == agent) {
            let key = ContextKey { owner: record.owner(), id: record.context_id.clone() };
            let count = counts.entry(key.owner.clone()).or_default();
            *count += 1;
            if *count <= self.max || self.live.contains(&key) {
                continue;
            }
            self.forget(key, record).await?;
        }
        Ok(())
    }
}

impl ContextRecords {
    /// Forgets a context, unless it was used after this record was read.
    async fn forget(&self, key: ContextKey, record: ContextRecord) -> Result<(), StoreError> {
        let (live, own, used) = (self.live.clone(), key.clone(), record.used);
        let is_unused = move |old: &Json| {
            let same = old.read::<ContextRecord>().is_ok_and(|old| old.used == used);
            same && !live.contains(&own)
        };
        let change = move |old: Option<&Json>| old.filter(|old| !is_unused(old)).cloned();
        let changed = self.store.values().change(SCOPE, &text(&key), Box::new(change)).await?;
        if changed.old.is_some()
            && changed.new.is_none()
            && let Some(workspace) = record.workspace
        {
            remove(workspace).await;
        }
        Ok(())
    }
}

/// Removes a private directory.
pub(super) async fn remove(workspace: StoredWorkspace) {
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
    key.owner.value_key(key.id.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_context_that_is_used_meanwhile_is_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let live = Arc::<LiveContexts>::default();
        let records = ContextRecords::with_live(Arc::new(MemoryStore::new()), live.clone(), 10);
        let path = folder.path().join(uuid::Uuid::new_v4().to_string());
        std::fs::create_dir(&path).unwrap();
        let (key, workspace) = (key("alice", 0), StoredWorkspace::Private(path.clone()));
        let use_at = async |at: i64| {
            let (now, workspace) = (Timestamp::from_millis(at), workspace.clone());
            let change = move |record: &mut ContextRecord| {
                record.used = now;
                record.bind(&workspace, &Home::default());
            };
            records.change(&key, now, change).await.unwrap()
        };
        let old = use_at(1).await;
        let used = use_at(2).await;
        records.forget(key.clone(), old).await.unwrap();
        assert_eq!(records.get(&key).await.unwrap(), Some(used.clone()));
        let seat = live.seat(&key, &"t".into(), &ContextRules::default(), false).unwrap();
        records.forget(key.clone(), used.clone()).await.unwrap();
        assert!(records.get(&key).await.unwrap().is_some() && path.exists(), "it lives");
        drop(seat);
        let unused = ContextRecords::with_live(records.store.clone(), Arc::default(), 10);
        unused.forget(key.clone(), used).await.unwrap();
        assert!(records.get(&key).await.unwrap().is_none() && !path.exists());
    }
    use crate::MemoryStore;
    use crate::conversation::ContextRules;

    fn key(caller: &str, id: usize) -> ContextKey {
        let owner = Owner { principal: Principal::named(caller), ..Owner::default() };
        ContextKey { owner, id: id.to_string().as_str().into() }
    }

    #[test]
    fn as_many_contexts_are_remembered_as_the_page_on_limits_says() {
        let page = include_str!("../../../../docs/limits.md");
        assert_eq!((MAX_RECORDS, PRUNE_AFTER), (10_000, 100));
        assert!(
            page.contains("| contexts of one caller that the store remembers | 10,000, and up to 99 more |")
        );
    }

    #[tokio::test]
    async fn a_caller_with_many_contexts_makes_the_server_forget_its_own_only() {
        let folder = tempfile::tempdir().unwrap();
        let live = Arc::<LiveContexts>::default();
        let records = ContextRecords::with_live(Arc::new(MemoryStore::new()), live.clone(), 10);
        let add = async |key: &ContextKey, at: i64| {
            let path = folder.path().join(uuid::Uuid::new_v4().to_string());
            std::fs::create_dir(&path).unwrap();
            let workspace = StoredWorkspace::Private(path.clone());
            let change = move |record: &mut ContextRecord| record.bind(&workspace, &Home::default());
            records.change(key, Timestamp::from_millis(at), change).await.unwrap();
            path
        };
        let quiet = key("quiet", 0);
        let directory = add(&quiet, 0).await;
        let mut busy = Vec::new();
        // This one is in use, however old it is.
        let _seat = live.seat(&key("busy", 3), &"t".into(), &ContextRules::default(), false).unwrap();
        for number in 0..PRUNE_AFTER - 1 {
            busy.push(add(&key("busy", number), 1 + number as i64).await);
        }
        assert!(records.get(&quiet).await.unwrap().is_some() && directory.exists());
        for (number, path) in busy.iter().enumerate() {
            let stays = number == 3 || number >= PRUNE_AFTER - 11;
            assert_eq!(records.get(&key("busy", number)).await.unwrap().is_some(), stays, "{number}");
            assert_eq!(path.exists(), stays, "{number}");
        }
    }
}
