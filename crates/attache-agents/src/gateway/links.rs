//! The remote ids of our tasks and contexts, in the store of the server.
//!
//! A link is written before a message is sent and when the remote agent has accepted it. So after a crash it is known whether the
//! message may have arrived, and under which id. Ids are kept per owner: two callers never share a remote context.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use attache_core::{Owner, Store, StoreError, ValueSubject};
use attache_protocol::{ContextId, Json, TaskId};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// What is known about the remote side of one of our tasks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Link {
    /// The id of the remote task, once it is known.
    pub(super) task: Option<TaskId>,
    /// The id of the remote context, once it is known.
    pub(super) context: Option<ContextId>,
    /// The last message that was sent.
    pub(super) message: Option<SentMessage>,
}

/// A message that was sent to the remote agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SentMessage {
    /// The id that the caller gave it.
    pub(super) id: String,
    /// The id that the remote agent got. It is also the idempotency key. The caller's id could be that of another caller's message.
    pub(super) sent_as: String,
    /// Whether the remote agent has responded to it.
    pub(super) accepted: bool,
}

impl Link {
    /// The message under which the remote agent gets the caller's message with this id. The same one if it was sent before.
    pub(super) fn sent_message(&mut self, id: &str) -> &SentMessage {
        let sent = self.message.take().filter(|sent| sent.id == id);
        self.message.insert(sent.unwrap_or_else(|| SentMessage {
            id: id.to_owned(),
            sent_as: uuid::Uuid::new_v4().to_string(),
            accepted: false,
        }))
    }

    /// Whether the remote agent has responded to the caller's message with this id.
    pub(super) fn has_accepted(&self, id: &str) -> bool {
        self.task.is_some() && self.message.as_ref().is_some_and(|sent| sent.accepted && sent.id == id)
    }
}

/// The links of one gateway.
pub(super) struct Links {
    under_way: Scope,
    ended: Scope,
    contexts: Scope,
}

impl Links {
    /// The links to the agent at an address. Those to another agent are separate, so that a new address begins with none.
    pub(super) fn new(store: &Arc<dyn Store>, agent: &str, limit: usize) -> Self {
        let scope = |kind: &str| Scope::new(store.clone(), format!("{kind}{agent}"), limit);
        Self {
            under_way: scope(ValueSubject::GATEWAY_TASKS),
            ended: scope(ValueSubject::GATEWAY_ENDED),
            contexts: scope(ValueSubject::GATEWAY_CONTEXTS),
        }
    }

    pub(super) async fn task(&self, task: &TaskId) -> Result<Option<Link>, StoreError> {
        self.under_way.get(task.as_str()).await
    }

    pub(super) async fn save_task(&self, task: &TaskId, link: &Link) -> Result<(), StoreError> {
        self.under_way.put(task.as_str(), link).await
    }

    /// Removes the link of a task that has ended. Later messages can still refer to the task.
    pub(super) async fn end_task(&self, task: &TaskId) -> Result<(), StoreError> {
        let link: Option<Link> = self.under_way.get(task.as_str()).await?;
        if let Some(remote) = link.and_then(|link| link.task) {
            self.ended.put(task.as_str(), &remote).await?;
        }
        self.under_way.remove(task.as_str()).await
    }

    /// The id of the remote task of one of our tasks, whether it has ended or not.
    pub(super) async fn remote_task(&self, task: &TaskId) -> Result<Option<TaskId>, StoreError> {
        match self.task(task).await?.and_then(|link| link.task) {
            Some(remote) => Ok(Some(remote)),
            None => self.ended.get(task.as_str()).await,
        }
    }

    pub(super) async fn context(
        &self,
        owner: &Owner,
        context: &ContextId,
    ) -> Result<Option<ContextId>, StoreError> {
        self.contexts.get(&context_key(owner, context)).await
    }

    pub(super) async fn save_context(
        &self,
        owner: &Owner,
        context: &ContextId,
        remote: &ContextId,
    ) -> Result<(), StoreError> {
        self.contexts.put(&context_key(owner, context), remote).await
    }
}

/// Callers choose the ids of contexts, so the owner is a part of the key.
fn context_key(owner: &Owner, context: &ContextId) -> String {
    owner.value_key(context.as_str())
}

/// A scope of the store with a limited number of keys. The oldest key makes way for a new one.
struct Scope {
    store: Arc<dyn Store>,
    name: String,
    limit: usize,
    /// `None` until the keys have been loaded from the store.
    keys: Mutex<Option<Keys>>,
}

#[derive(Default)]
struct Keys {
    /// Oldest first.
    order: VecDeque<String>,
    known: HashSet<String>,
}

impl Keys {
    fn add(&mut self, key: &str) {
        if self.known.insert(key.to_owned()) {
            self.order.push_back(key.to_owned());
        }
    }

    /// The keys that are too many.
    fn take_excess(&mut self, limit: usize) -> Vec<String> {
        let mut excess = Vec::new();
        while self.known.len() > limit {
            let Some(oldest) = self.order.pop_front() else { break };
            self.known.remove(&oldest);
            excess.push(oldest);
        }
        excess
    }

    fn remove(&mut self, key: &str) {
        if self.known.remove(key) {
            self.order.retain(|known| known != key);
        }
    }
}

impl Scope {
    fn new(store: Arc<dyn Store>, name: String, limit: usize) -> Self {
        Self { store, name, limit, keys: Mutex::new(None) }
    }

    async fn get<T: for<'de> Deserialize<'de>>(&self, key: &str) -> Result<Option<T>, StoreError> {
        let stored = self.store.values().get(&self.name, key).await?;
        Ok(stored.and_then(|value| value.read().ok()))
    }

    async fn put<T: Serialize>(&self, key: &str, value: &T) -> Result<(), StoreError> {
        let value = Json::new(value).map_err(|error| StoreError(error.to_string()))?;
        let mut keys = self.keys.lock().await;
        let keys = match &mut *keys {
            Some(keys) => keys,
            empty @ None => {
                let mut loaded = Keys::default();
                for (key, _) in self.store.values().list(&self.name).await? {
                    loaded.add(&key);
                }
                empty.insert(loaded)
            }
        };
        self.store.values().change(&self.name, key, Box::new(move |_| Some(value.clone()))).await?;
        keys.add(key);
        for oldest in keys.take_excess(self.limit) {
            self.store.values().change(&self.name, &oldest, Box::new(|_| None)).await?;
        }
        Ok(())
    }

    async fn remove(&self, key: &str) -> Result<(), StoreError> {
        let mut keys = self.keys.lock().await;
        self.store.values().change(&self.name, key, Box::new(|_| None)).await?;
        if let Some(keys) = &mut *keys {
            keys.remove(key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use attache_core::{MemoryStore, Principal};

    use super::*;

    fn store() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new())
    }

    fn link(task: &str) -> Link {
        Link { task: Some(task.into()), ..Link::default() }
    }

    #[tokio::test]
    async fn the_oldest_link_makes_way_for_a_new_one_also_after_a_restart() {
        let store = store();
        let links = Links::new(&store, "http://a", 2);
        for task in ["1", "2", "3"] {
            links.save_task(&task.into(), &link(task)).await.unwrap();
        }
        assert_eq!(links.task(&"1".into()).await.unwrap(), None);
        let again = Links::new(&store, "http://a", 2);
        assert_eq!(again.task(&"2".into()).await.unwrap(), Some(link("2")));
        again.save_task(&"4".into(), &link("4")).await.unwrap();
        assert_eq!(again.task(&"2".into()).await.unwrap(), None);
        assert_eq!(again.task(&"3".into()).await.unwrap(), Some(link("3")));
    }

    #[tokio::test]
    async fn links_to_another_agent_are_not_used() {
        let store = store();
        Links::new(&store, "http://a", 2).save_task(&"1".into(), &link("x")).await.unwrap();
        assert_eq!(Links::new(&store, "http://b", 2).task(&"1".into()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn callers_with_the_same_context_id_do_not_share_a_remote_context() {
        let links = Links::new(&store(), "http://a", 8);
        let owner = |name: &'static str| Owner { principal: Principal::named(name), ..Owner::default() };
        links.save_context(&owner("alice"), &"c".into(), &"r1".into()).await.unwrap();
        assert_eq!(links.context(&owner("alice"), &"c".into()).await.unwrap(), Some("r1".into()));
        assert_eq!(links.context(&owner("bob"), &"c".into()).await.unwrap(), None);
        assert_eq!(links.context(&Owner::default(), &"c".into()).await.unwrap(), None);
    }

    #[tokio::test]
    async fn an_ended_task_can_be_referred_to() {
        let links = Links::new(&store(), "http://a", 2);
        for task in ["1", "2"] {
            links.save_task(&task.into(), &link(task)).await.unwrap();
            links.end_task(&task.into()).await.unwrap();
        }
        assert_eq!(links.task(&"1".into()).await.unwrap(), None);
        assert_eq!(links.remote_task(&"1".into()).await.unwrap(), Some("1".into()));
    }

    #[test]
    fn keys_that_come_and_go_do_not_accumulate() {
        let mut keys = Keys::default();
        for number in 0..1000 {
            keys.add(&number.to_string());
            keys.remove(&number.to_string());
            keys.add("again");
            keys.remove("again");
        }
        assert!(keys.order.is_empty() && keys.known.is_empty());
    }

    #[test]
    fn a_message_that_is_sent_again_has_the_same_id() {
        let mut link = Link::default();
        let first = link.sent_message("m1").clone();
        assert_eq!(*link.sent_message("m1"), first);
        assert_ne!(link.sent_message("m2").sent_as, first.sent_as);
    }
}
