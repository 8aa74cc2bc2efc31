//! What is to be told to webhooks: written with the event it tells of, delivered later, by others than the agent.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use attache_protocol::{Dialect, TaskId, TaskPushNotificationConfig, Timestamp};
use sha2::{Digest, Sha256};

use crate::{BoxFuture, Entry, Owner, Seq, StoreError, TaskEvent};

/// A webhook as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    /// Where to and how. It has an id and the id of its task.
    pub config: TaskPushNotificationConfig,
    /// What it is told.
    pub news: News,
    /// The dialect of who made it, if that is not 1.0. It is told in that one: with the task in the place of its event.
    pub dialect: Option<Dialect>,
}

/// What a webhook is told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum News {
    /// Every new status, the first included.
    #[default]
    States,
    /// Every event that a stream would show.
    Everything,
}

impl News {
    /// Whether an event is among them.
    pub fn include(self, event: &TaskEvent) -> bool {
        match event {
            TaskEvent::Created(_) | TaskEvent::Status(_) => true,
            TaskEvent::Artifact(_) => self == Self::Everything,
            TaskEvent::Message(_) => false,
        }
    }
}

impl Webhook {
    /// The id within its task.
    pub fn id(&self) -> &str {
        self.config.id.as_deref().unwrap_or_default()
    }

    /// Whom it is delivered to: host and port of the URL. Webhooks with the same receiver share its limits.
    pub fn receiver(&self) -> String {
        let rest = self.config.url.split_once("://").map_or(&*self.config.url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or(rest);
        authority.rsplit('@').next().unwrap_or(authority).to_ascii_lowercase()
    }
}

/// One event for one webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId {
    /// The task.
    pub task: TaskId,
    /// The webhook.
    pub webhook: String,
    /// The event.
    pub seq: Seq,
}

impl DeliveryId {
    /// What a receiver knows the delivery by, however often it is tried.
    pub fn token(&self) -> String {
        let text = format!("{}\n{}\n{}", self.task, self.webhook, self.seq);
        Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.task, self.webhook, self.seq)
    }
}

impl FromStr for DeliveryId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected `TASK/WEBHOOK/NUMBER`, as a list of deliveries shows it";
        let (task, rest) = text.split_once('/').ok_or(expected)?;
        // The client chooses the webhook's id, which may have slashes of its own.
        let (webhook, seq) = rest.rsplit_once('/').ok_or(expected)?;
        let seq = Seq(seq.parse().map_err(|_| expected)?);
        Ok(Self { task: task.into(), webhook: webhook.to_owned(), seq })
    }
}

/// Something to deliver.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Which it is.
    pub id: DeliveryId,
    /// Whom the task belongs to.
    pub owner: Owner,
    /// Where to and how.
    pub webhook: Webhook,
    /// The event.
    pub entry: Arc<Entry>,
    /// How often it was tried before.
    pub attempts: u32,
}

/// Whom something is to be delivered to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueReceivers {
    /// Those that something is due for now.
    pub now: Vec<String>,
    /// When something is due next, if anything is and nothing more happens.
    pub next: Option<Timestamp>,
}

/// What became of an attempt to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has it.
    Delivered,
    /// It was not tried: nothing counts, it is due again at this time.
    Postponed(Timestamp),
    /// It failed and is due again at this time.
    Failed {
        /// When to try again.
        again: Timestamp,
        /// What happened.
        error: String,
    },
    /// It failed and will not be tried again by itself. What comes next for the webhook is due.
    GivenUp {
        /// When that was.
        at: Timestamp,
        /// What happened.
        error: String,
    },
}

/// A delivery that was given up.
#[derive(Debug, Clone)]
pub struct DeadDelivery {
    /// Which it is.
    pub id: DeliveryId,
    /// Where it should have gone.
    pub url: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up.
    pub at: Timestamp,
    /// What happened the last time.
    pub error: String,
}

/// A webhook to be kept, unless its task has too many.
#[derive(Debug, Clone)]
pub struct NewWebhook {
    /// The webhook.
    pub webhook: Webhook,
    /// How many webhooks the task may have, this one included.
    pub limit: usize,
}

/// What became of a [`NewWebhook`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutWebhook {
    /// It is kept, or its task is gone.
    Kept,
    /// The task has as many others as it may have. Nothing was changed.
    LimitReached,
}

/// Keeps the webhooks of tasks, and what is to be told to them.
pub trait Outbox: Send + Sync {
    /// Keeps a webhook, replacing the one with the same id. The caller has checked that the task is the owner's. The limit holds
    /// however many are put at the same time.
    fn put_webhook<'a>(
        &'a self,
        task: &'a TaskId,
        new: NewWebhook,
    ) -> BoxFuture<'a, Result<PutWebhook, StoreError>>;

    /// The webhooks of a task, oldest first.
    fn webhooks<'a>(&'a self, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<Webhook>, StoreError>>;

    /// Forgets a webhook and what it has not been told yet; nothing happens if there is none with this id.
    fn delete_webhook<'a>(&'a self, task: &'a TaskId, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The receivers that something is to be delivered to now, in the order in which that was due.
    fn due_receivers(&self, now: Timestamp) -> BoxFuture<'_, Result<DueReceivers, StoreError>>;

    /// Takes deliveries to one receiver that are due, at most one for each webhook: what comes next for a webhook is due when
    /// this one is done with. They are nobody else's until `until`, unless they are [settled](Self::settle) before.
    fn take_due<'a>(
        &'a self,
        receiver: &'a str,
        now: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Delivery>, StoreError>>;

    /// Notes what became of a delivery. Nothing happens if it is gone, because its webhook or its task is.
    fn settle<'a>(
        &'a self,
        delivery: &'a DeliveryId,
        outcome: Outcome,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Waits until there may be something to deliver that was not there when this was called.
    fn grown(&self) -> BoxFuture<'static, ()>;

    /// Deliveries that were given up, oldest first, those after `after` only.
    fn list_dead<'a>(
        &'a self,
        after: Option<&'a DeliveryId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadDelivery>, StoreError>>;

    /// Has deliveries that were given up tried anew, this one or all. How many they were.
    fn retry_dead<'a>(
        &'a self,
        delivery: Option<&'a DeliveryId>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<usize, StoreError>>;

    /// Forgets deliveries that were given up, this one or all. How many they were.
    fn purge_dead<'a>(&'a self, delivery: Option<&'a DeliveryId>)
    -> BoxFuture<'a, Result<usize, StoreError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_can_be_read_as_it_is_shown() {
        let id = DeliveryId { task: "t".into(), webhook: "a/b".to_owned(), seq: Seq(7) };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "t", "t/w", "t/w/x", "t/w/-1"] {
            assert!(bad.parse::<DeliveryId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn webhooks_of_one_host_and_port_share_a_receiver() {
        for (url, receiver) in [
            ("https://Example.com/a?b#c", "example.com"),
            ("http://example.com:8080", "example.com:8080"),
            ("http://user:pass@[::1]:9/x", "[::1]:9"),
            ("nonsense", "nonsense"),
        ] {
            let config = TaskPushNotificationConfig { url: url.to_owned(), ..Default::default() };
            assert_eq!(Webhook { config, news: News::States, dialect: None }.receiver(), receiver);
        }
    }
}
