//! What is remembered about conversations: the id of their session, and the name of their directory.

use std::sync::Arc;

use attache_core::{Owner, Store, StoreError, Turn};
use attache_protocol::Json;
use serde::{Deserialize, Serialize};

/// How many conversations are remembered. The oldest are forgotten.
const MAX_RECORDS: usize = 10_000;

/// How many records are added before old ones are looked for.
const PRUNE_AFTER: usize = 100;

/// A conversation of one owner. Two owners can use the same context id for different conversations.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ContextKey(String);

impl ContextKey {
    pub(super) fn of(turn: &Turn) -> Self {
        let Owner { agent, tenant, principal } = &turn.caller().owner;
        let parts = (agent.as_deref(), tenant.as_deref(), principal.name(), turn.context_id().as_str());
        Self(serde_json::json!(parts).to_string())
    }
}

/// What is remembered about a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    #[serde(default)]
    pub(super) session: Option<String>,
    /// The name of the private directory.
    #[serde(default)]
    pub(super) directory: Option<String>,
}

/// The records, in a store.
pub(super) struct Records {
    store: Arc<dyn Store>,
    scope: String,
    added: std::sync::atomic::AtomicUsize,
}

impl Records {
    pub(super) fn new(store: Arc<dyn Store>, agent: &str) -> Self {
        Self { store, scope: format!("acp-sessions:{agent}"), added: 0.into() }
    }

    pub(super) async fn get(&self, key: &ContextKey) -> Result<Record, StoreError> {
        let stored = self.store.values().get(&self.scope, &key.0).await?;
        // A record of another version is like none.
        Ok(stored.and_then(|value| value.read().ok()).unwrap_or_default())
    }

    /// Stores a record. Returns records that were forgotten for it.
    pub(super) async fn put(&self, key: &ContextKey, record: &Record) -> Result<Vec<Record>, StoreError> {
        let value = Json::new(record).map_err(|error| StoreError(error.to_string()))?;
        let values = self.store.values();
        // Without this the record would keep its old position.
        values.change(&self.scope, &key.0, Box::new(|_| None)).await?;
        values.change(&self.scope, &key.0, Box::new(move |_| Some(value.clone()))).await?;
        let added = self.added.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if added % PRUNE_AFTER != PRUNE_AFTER - 1 {
            return Ok(Vec::new());
        }
        let stored = values.list(&self.scope).await?;
        let excess = stored.len().saturating_sub(MAX_RECORDS);
        let mut forgotten = Vec::with_capacity(excess);
        for (key, value) in stored.into_iter().take(excess) {
            values.change(&self.scope, &key, Box::new(|_| None)).await?;
            forgotten.extend(value.read().ok());
        }
        Ok(forgotten)
    }
}
