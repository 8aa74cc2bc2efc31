//! The remote ids of our tasks and contexts, in the store of the server.
//!
//! A link is written when the remote agent has accepted a message. A message that is sent again after a crash has the same id, because
//! the id is made from ours. Ids are kept per owner: two callers never share a remote context.
//!
//! Writes of different tasks do not wait for each other.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use attache_core::{Owner, Store, StoreError, ValueSubject};
use attache_protocol::{ContextId, Json, TaskId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::OnceCell;

/// The scope of the store with the keys of all gateways.
const KEYS: &str = "a2a_gateway_keys";

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
    /// The message under which the remote agent gets the caller's message with this id: the one that was sent before, or one with the
    /// id `sent_as`.
    pub(super) fn sent_message(&mut self, id: &str, sent_as: String) -> &SentMessage {
        let sent = self.message.take().filter(|sent| sent.id == id);
        self.message.insert(sent.unwrap_or_else(|| SentMessage {
            id: id.to_owned(),
            sent_as,
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
    store: Arc<dyn Store>,
    /// The address of the remote agent.
    agent: String,
    /// Makes the ids of messages differ from those of other gateways to the same agent. It is random, and stored.
    key: OnceCell<String>,
    under_way: Scope,
    ended: Scope,
    contexts: Scope,
}

impl Links {
    /// The links to the agent at an address. Those to another agent are separate, so that a new address begins with none.
    pub(super) fn new(store: &Arc<dyn Store>, agent: &str, limit: usize) -> Self {
        let scope = |kind: &str| Scope::new(store.clone(), format!("{kind}{agent}"), limit);
        Self {
            store: store.clone(),
            agent: agent.to_owned(),
            key: OnceCell::new(),
            under_way: scope(ValueSubject::GATEWAY_TASKS),
            ended: scope(ValueSubject::GATEWAY_ENDED),
            contexts: scope(ValueSubject::GATEWAY_CONTEXTS),
        }
    }

    /// The id under which the remote agent gets a message of a task. It is the same one whenever the message is sent, also after a
    /// crash, and no message of another task has it.
    pub(super) async fn message_id(&self, task: &TaskId, message: &str) -> Result<String, StoreError> {
        let key = self.key.get_or_try_init(|| self.load_key()).await?;
        let mut digest = Sha256::new();
        for text in [key.as_str(), task.as_str(), message] {
            // The length comes first, so that different texts cannot add up to the same bytes.
            digest.update(text.len().to_be_bytes());
            digest.update(text);
        }
        let digest: [u8; 32] = digest.finalize().into();
        let id = uuid::Builder::from_random_bytes(std::array::from_fn(|i| digest[i]));
        Ok(id.into_uuid().to_string())
    }

    async fn load_key(&self) -> Result<String, StoreError> {
        let failed = |error: serde_json::Error| StoreError(error.to_string());
        let new = Json::new(&uuid::Uuid::new_v4()).map_err(failed)?;
        let keep = move |current: Option<&Json>| Some(current.unwrap_or(&new).clone());
        let stored = self.store.values().change(KEYS, &self.agent, Box::new(keep)).await?;
        stored.new.map_or(Ok(String::new()), |key| key.read().map_err(failed))
    }

    pub(super) async fn task(&self, task: &TaskId) -> Result<Option<Link>, StoreError> {
        self.under_way.get(task.as_str()).await
    }

    pub(super) async fn save_task(&self, task: &TaskId, link: &Link) -> Result<(), StoreError> {
        self.under_way.put(task.as_str(), link).await
    }

    /// Removes the link of a task that has ended. Later messages can still refer to the task.
    pub(super) async fn end_task(&self, task: &TaskId, remote: Option<&TaskId>) -> Result<(), StoreError> {
        let note = async {
            match remote {
                Some(remote) => self.note_ended(task, remote).await,
                None => Ok(()),
            }
        };
        futures::try_join!(note, self.under_way.remove(task.as_str()))?;
        Ok(())
    }

    /// Lets later messages refer to a task that has ended.
    pub(super) async fn note_ended(&self, task: &TaskId, remote: &TaskId) -> Result<(), StoreError> {
        self.ended.put(task.as_str(), remote).await
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
    /// Loaded from the store with the first write. Never locked during a write.
    keys: Arc<OnceCell<Mutex<Keys>>>,
}

/// The keys of a scope, by age.
#[derive(Default)]
struct Keys {
    by_age: BTreeMap<u64, String>,
    known: HashMap<String, u64>,
    next: u64,
}

impl Keys {
    fn add(&mut self, key: &str) {
        if !self.known.contains_key(key) {
            self.next += 1;
            self.known.insert(key.to_owned(), self.next);
            self.by_age.insert(self.next, key.to_owned());
        }
    }

    /// The keys that are too many.
    fn take_excess(&mut self, limit: usize) -> Vec<String> {
        let mut excess = Vec::new();
        while self.known.len() > limit {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.known.remove(&oldest);
            excess.push(oldest);
        }
        excess
    }

    fn remove(&mut self, key: &str) {
        if let Some(age) = self.known.remove(key) {
            self.by_age.remove(&age);
        }
    }
}

impl Scope {
    fn new(store: Arc<dyn Store>, name: String, limit: usize) -> Self {
        Self { store, name, limit, keys: Arc::default() }
    }

    async fn get<T: for<'de> Deserialize<'de>>(&self, key: &str) -> Result<Option<T>, StoreError> {
        let stored = self.store.values().get(&self.name, key).await?;
        Ok(stored.and_then(|value| value.read().ok()))
    }

    async fn load_keys(&self) -> Result<Mutex<Keys>, StoreError> {
        let mut keys = Keys::default();
        for (key, _) in self.store.values().list(&self.name).await? {
            keys.add(&key);
        }
        Ok(Mutex::new(keys))
    }

    async fn put<T: Serialize>(&self, key: &str, value: &T) -> Result<(), StoreError> {
        let value = Json::new(value).map_err(|error| StoreError(error.to_string()))?;
        let keys = self.keys.get_or_try_init(|| self.load_keys()).await?;
        let excess = {
            let mut keys = keys.lock();
            keys.add(key);
            keys.take_excess(self.limit)
        };
        self.store.values().change(&self.name, key, Box::new(move |_| Some(value.clone()))).await?;
        for oldest in excess {
            self.remove_unless_known(&oldest).await?;
        }
        Ok(())
    }

    /// Removes a key that was too many, unless another write has added it again.
    async fn remove_unless_known(&self, key: &str) -> Result<(), StoreError> {
        let (keys, name) = (self.keys.clone(), key.to_owned());
        let is_known = move || keys.get().is_some_and(|keys| keys.lock().known.contains_key(&name));
        let change = move |current: Option<&Json>| current.filter(|_| is_known()).cloned();
        self.store.values().change(&self.name, key, Box::new(change)).await?;
        Ok(())
    }

    async fn remove(&self, key: &str) -> Result<(), StoreError> {
        if let Some(keys) = self.keys.get() {
            keys.lock().remove(key);
        }
        self.store.values().change(&self.name, key, Box::new(|_| None)).await?;
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
            links.end_task(&task.into(), Some(&task.into())).await.unwrap();
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
        assert!(keys.by_age.is_empty() && keys.known.is_empty());
    }

    #[tokio::test]
    async fn a_key_that_is_written_again_while_it_makes_way_stays() {
        let scope = Scope::new(store(), "s".to_owned(), 1);
        scope.put("old", &1).await.unwrap();
        let keys = scope.keys.get().unwrap();
        let excess = {
            let mut keys = keys.lock();
            keys.add("new");
            keys.take_excess(1)
        };
        assert_eq!(excess, ["old"]);
        scope.put("old", &2).await.unwrap();
        scope.remove_unless_known("old").await.unwrap();
        assert_eq!(scope.get("old").await.unwrap(), Some(2));
    }

    #[tokio::test]
    async fn a_message_that_is_sent_again_has_the_same_id_also_after_a_restart() {
        let store = store();
        let links = Links::new(&store, "http://a", 2);
        let id = async |links: &Links, task: &str, message: &str| {
            links.message_id(&task.into(), message).await.unwrap()
        };
        let first = id(&links, "t1", "m1").await;
        assert_eq!(id(&Links::new(&store, "http://a", 2), "t1", "m1").await, first);
        for (task, message) in [("t1", "m2"), ("t2", "m1"), ("t1m", "1"), ("", "t1m1")] {
            assert_ne!(id(&links, task, message).await, first, "{task} {message}");
        }
        let other = Links::new(&self::store(), "http://a", 2);
        assert_ne!(id(&other, "t1", "m1").await, first, "a gateway with another store");
    }
}
