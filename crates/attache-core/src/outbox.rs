//! The push outbox: webhooks, and the deliveries that are to be sent to them.
//!
//! A delivery is stored in the same transaction as its event. A background task delivers it later, outside of the agent's turn.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use attache_protocol::{Dialect, TaskId, TaskPushNotificationConfig, Timestamp};
use sha2::{Digest, Sha256};

use crate::report::{hide_reports, is_piece, is_report_only};
use crate::{BoxFuture, Entry, Owner, Seq, StoreError, TaskEvent, TraceParent};

/// A stored webhook.
#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    /// Its URL, credentials, id and task.
    pub config: TaskPushNotificationConfig,
    /// Which events it receives.
    pub events: PushEvents,
    /// The dialect of the client that created it, if that is not 1.0. Its payloads are in this dialect, which sends the whole task
    /// instead of the event.
    pub dialect: Option<Dialect>,
    /// The trace of the request that created it. Its notifications belong to that trace.
    pub trace_parent: Option<TraceParent>,
}

/// Which events a webhook receives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PushEvents {
    /// Every new status, including the first. Updates that only report what the agent does, and the pieces of what it says, are left out.
    #[default]
    States,
    /// Every event that a stream sends.
    Everything,
}

impl PushEvents {
    /// Whether the webhook receives this event.
    pub fn includes(self, event: &TaskEvent) -> bool {
        match event {
            TaskEvent::Created(_) => true,
            // A webhook activates no extension, so it never gets reports that belong to one.
            TaskEvent::Status(update) => match self {
                Self::States => !is_report_only(update) && !is_piece(update),
                Self::Everything => hide_reports(event).is_some(),
            },
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

    /// The receiver: host and port of the URL. Webhooks with the same receiver share its limits.
    pub fn receiver(&self) -> String {
        let rest = self.config.url.split_once("://").map_or(&*self.config.url, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or(rest);
        authority.rsplit('@').next().unwrap_or(authority).to_ascii_lowercase()
    }
}

/// Identifies the delivery of one event to one webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId {
    /// The task.
    pub task: TaskId,
    /// The id of the webhook.
    pub webhook: String,
    /// The position of the event.
    pub seq: Seq,
}

impl DeliveryId {
    /// The id that the receiver sees. It is the same for all attempts.
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
        // The client chooses the id of the webhook, which may contain slashes.
        let (webhook, seq) = rest.rsplit_once('/').ok_or(expected)?;
        let seq = Seq(seq.parse().map_err(|_| expected)?);
        Ok(Self { task: task.into(), webhook: webhook.to_owned(), seq })
    }
}

/// An event to deliver to a webhook.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Its id.
    pub id: DeliveryId,
    /// The owner of the task.
    pub owner: Owner,
    /// The webhook.
    pub webhook: Webhook,
    /// The event.
    pub entry: Arc<Entry>,
    /// The number of earlier attempts.
    pub attempts: u32,
}

/// The receivers with deliveries that are due.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueReceivers {
    /// The receivers with deliveries that are due now.
    pub now: Vec<String>,
    /// The time of the next delivery that is due later, if there is one.
    pub next: Option<Timestamp>,
}

/// The result of a delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver has accepted it.
    Delivered,
    /// No attempt was made. It is due again at this time, and the number of attempts stays.
    Postponed(Timestamp),
    /// The attempt failed. There will be another one.
    Failed {
        /// The time of the next attempt.
        again: Timestamp,
        /// Why it failed.
        error: String,
    },
    /// The attempt failed, and there will be no other one. The next delivery of the webhook is due.
    GivenUp {
        /// The time of the last attempt.
        at: Timestamp,
        /// Why it failed.
        error: String,
    },
}

/// A delivery that has not been made yet.
#[derive(Debug, Clone)]
pub struct PendingDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// The URL of the webhook.
    pub url: String,
    /// The number of attempts so far, all of which failed.
    pub attempts: u32,
    /// When it was added.
    pub since: Timestamp,
    /// The time of the next attempt. `None` if another delivery of the same webhook comes first.
    pub due: Option<Timestamp>,
}

/// A delivery that was given up.
#[derive(Debug, Clone)]
pub struct DeadDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// The URL of the webhook.
    pub url: String,
    /// The number of attempts.
    pub attempts: u32,
    /// The time of the last attempt.
    pub at: Timestamp,
    /// Why the last attempt failed.
    pub error: String,
}

/// A webhook to store, unless its task has too many.
#[derive(Debug, Clone)]
pub struct NewWebhook {
    /// The webhook.
    pub webhook: Webhook,
    /// The maximal number of webhooks of the task, including this one.
    pub limit: usize,
}

/// The result of storing a [`NewWebhook`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutWebhook {
    /// The webhook is stored, or its task does not exist.
    Stored,
    /// The task has reached its limit. Nothing was changed.
    LimitReached,
}

/// Stores the webhooks of tasks and their deliveries.
pub trait Outbox: Send + Sync {
    /// Stores a webhook. It replaces one with the same id. The caller has checked that the task belongs to the owner. The limit also
    /// holds for concurrent calls.
    fn put_webhook<'a>(
        &'a self,
        task: &'a TaskId,
        new: NewWebhook,
    ) -> BoxFuture<'a, Result<PutWebhook, StoreError>>;

    /// The webhooks of a task, oldest first.
    fn webhooks<'a>(&'a self, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<Webhook>, StoreError>>;

    /// Deletes a webhook and its deliveries. Does nothing if the task has no webhook with this id.
    fn delete_webhook<'a>(&'a self, task: &'a TaskId, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The receivers with deliveries that are due at `now`, in the order of their due times.
    fn due_receivers(&self, now: Timestamp) -> BoxFuture<'_, Result<DueReceivers, StoreError>>;

    /// Takes deliveries to one receiver that are due, at most one for each webhook. The next delivery of a webhook is due when this
    /// one is [settled](Self::settle). Until then, but not after `until`, no other call returns the same delivery.
    fn take_due<'a>(
        &'a self,
        receiver: &'a str,
        now: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Delivery>, StoreError>>;

    /// Stores the result of a delivery. Does nothing if the delivery does not exist, because its webhook or its task was deleted.
    fn settle<'a>(
        &'a self,
        delivery: &'a DeliveryId,
        outcome: Outcome,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Waits until there may be a new delivery since this was called.
    fn grown(&self) -> BoxFuture<'static, ()>;

    /// Deliveries that were given up, oldest first. Only those after `after`.
    fn list_dead<'a>(
        &'a self,
        after: Option<&'a DeliveryId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadDelivery>, StoreError>>;

    /// Makes deliveries that were given up due again: the given one, or all. Returns their number.
    fn retry_dead<'a>(
        &'a self,
        delivery: Option<&'a DeliveryId>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<usize, StoreError>>;

    /// Deletes deliveries that were given up: the given one, or all. Returns their number.
    fn purge_dead<'a>(&'a self, delivery: Option<&'a DeliveryId>)
    -> BoxFuture<'a, Result<usize, StoreError>>;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use attache_protocol::{Message, TaskState, TaskStatus, TaskStatusUpdateEvent};

    use super::*;
    use crate::report::pieces_id;

    #[test]
    fn a_delivery_id_can_be_parsed_from_its_display_form() {
        let id = DeliveryId { task: "t".into(), webhook: "a/b".to_owned(), seq: Seq(7) };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "t", "t/w", "t/w/x", "t/w/-1"] {
            assert!(bad.parse::<DeliveryId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_pieces_of_an_answer_are_not_sent_one_by_one() {
        let update = |id: &str, state: TaskState| {
            let message = Some(Box::new(Message::agent(id, "text")));
            let status = TaskStatus { state, message, timestamp: None };
            let task_id = "t".into();
            TaskEvent::Status(Arc::new(TaskStatusUpdateEvent { task_id, status, ..Default::default() }))
        };
        let piece = pieces_id(&"t".into());
        assert!(!PushEvents::States.includes(&update(&piece, TaskState::Working)));
        assert!(PushEvents::Everything.includes(&update(&piece, TaskState::Working)));
        assert!(PushEvents::States.includes(&update(&piece, TaskState::Completed)));
        assert!(PushEvents::States.includes(&update("m", TaskState::Working)));
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
            let events = PushEvents::States;
            let webhook = Webhook { config, events, dialect: None, trace_parent: None };
            assert_eq!(webhook.receiver(), receiver);
        }
    }
}
