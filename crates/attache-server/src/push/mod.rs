//! Delivers push notifications to webhooks, independently of requests and agents.
//!
//! The outbox says which receivers have deliveries due. Each receiver has its own limit of parallel deliveries, so that a slow receiver
//! delays only itself. A delivery is settled only after the receiver has responded. If anything fails before that, it is sent again.
//!
//! With a [`queue`], the deliveries of the outbox become jobs in Redis, and the server processes that share the queue make them.

mod notification;
mod options;
#[cfg(feature = "redis")]
mod queue;
mod verdict;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{Delivery, Outcome, Service, StoreError};
use attache_outbound::{Outbound, OutboundError, SetupError, SystemResolver};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::notification::{Notice, Origin};
pub use self::options::{PushOptions, SigningSecret};
#[cfg(feature = "redis")]
pub use self::queue::{
    DeadJob, JobDetails, ParsedJob, PendingJob, PendingState, PushQueue, parse_job, seal_job,
};
use crate::agents;
use crate::audit::Denial;
use crate::limits::Admission;

/// How often the outbox is read when nothing is due: another process may have added a delivery.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How long the store may take to record the outcome of a delivery, in addition to the time for the delivery itself.
const SETTLING: Duration = Duration::from_secs(30);

/// Sends push notifications. Cheap to clone; all clones are one dispatcher.
#[derive(Clone)]
pub(crate) struct PushDispatcher(Arc<Inner>);

struct Inner {
    service: Service,
    outbound: Outbound,
    options: PushOptions,
    /// Logs webhooks with forbidden addresses.
    admission: Arc<Admission>,
    /// The base URL of the server.
    base: String,
    running: Mutex<RunningDeliveries>,
    /// Held while the outbox is read: two readers would start more deliveries than the limits allow.
    looking: tokio::sync::Mutex<()>,
    /// Notified when a delivery has ended, so that another can start.
    done: Notify,
    /// The queue that gets the deliveries of the outbox, and that this process takes jobs from.
    #[cfg(feature = "redis")]
    queue: Option<Arc<queue::Queue>>,
}

/// How many deliveries are running.
#[derive(Default)]
struct RunningDeliveries {
    total: usize,
    by_receiver: HashMap<String, usize>,
}

impl RunningDeliveries {
    /// How many more deliveries a receiver can take.
    fn room(&self, receiver: &str, options: &PushOptions) -> usize {
        let here = self.by_receiver.get(receiver).copied().unwrap_or_default();
        options.per_receiver.saturating_sub(here).min(options.at_once.saturating_sub(self.total))
    }

    fn add(&mut self, receiver: &str) {
        self.total += 1;
        *self.by_receiver.entry(receiver.to_owned()).or_default() += 1;
    }
}

impl PushDispatcher {
    pub(crate) fn new(
        service: Service,
        options: PushOptions,
        admission: Arc<Admission>,
        base: String,
    ) -> Result<Self, SetupError> {
        let outbound = Outbound::new(options.policy.clone(), Arc::new(SystemResolver))?;
        let (running, looking, done) = (Mutex::default(), tokio::sync::Mutex::default(), Notify::new());
        Ok(Self(Arc::new(Inner {
            #[cfg(feature = "redis")]
            queue: options.queue.clone().map(|options| Arc::new(queue::Queue::new(options))),
            service,
            outbound,
            options,
            admission,
            base,
            running,
            looking,
            done,
        })))
    }

    /// Delivers what is due and waits for more, until it is dropped.
    pub(crate) async fn run(self) {
        #[cfg(feature = "redis")]
        if let Some(queue) = &self.0.queue {
            return queue::run(&self, queue).await;
        }
        loop {
            // Subscribed before the outbox is read, so that no delivery is missed.
            let grown = self.0.service.store().outbox().grown();
            let done = self.0.done.notified();
            let wait = self.deliver_due().await;
            tokio::select! {
                () = grown => {}
                () = done => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Delivers what is due, and waits until nothing is due or running.
    pub(crate) async fn drain(&self) {
        #[cfg(feature = "redis")]
        if let Some(queue) = &self.0.queue {
            return queue.drain().await;
        }
        loop {
            let done = self.0.done.notified();
            self.deliver_due().await;
            if self.0.running.lock().total == 0 {
                return;
            }
            done.await;
        }
    }

    /// Starts deliveries that are due, within the limits. Returns how long to wait before the next look.
    async fn deliver_due(&self) -> Duration {
        let looking = self.0.looking.lock().await;
        let wait = self.begin_due().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the outbox cannot be read");
            LOOK_AGAIN
        });
        drop(looking);
        wait
    }

    async fn begin_due(&self) -> Result<Duration, StoreError> {
        let outbox = self.0.service.store().outbox();
        let now = self.0.service.now();
        let due = outbox.due_receivers(now).await?;
        let until = now.after(self.0.options.timeout + SETTLING);
        let mut begun = false;
        for receiver in due.now {
            let room = self.room(&receiver);
            if room == 0 {
                continue;
            }
            for delivery in outbox.take_due(&receiver, now, until, room).await? {
                self.begin(&receiver, delivery);
                begun = true;
            }
        }
        if begun {
            // The next delivery of the same receivers is visible only after this one was taken.
            return Ok(Duration::ZERO);
        }
        let next = due.next.map(|next| next.to_millis().saturating_sub(now.to_millis()));
        let next = next.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
        Ok(next.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN))
    }

    /// How many more deliveries a receiver can take now.
    fn room(&self, receiver: &str) -> usize {
        self.0.running.lock().room(receiver, &self.0.options)
    }

    /// Counts a delivery to a receiver, until the result is dropped.
    fn count(&self, receiver: &str) -> RunningDelivery {
        self.0.running.lock().add(receiver);
        RunningDelivery { dispatcher: self.clone(), receiver: receiver.to_owned() }
    }

    /// Counts a delivery to a receiver, unless it has as many as it may have.
    #[cfg(feature = "redis")]
    fn count_if_free(&self, receiver: &str) -> Option<RunningDelivery> {
        let mut running = self.0.running.lock();
        let has_room = running.room(receiver, &self.0.options) > 0;
        has_room.then(|| {
            running.add(receiver);
            RunningDelivery { dispatcher: self.clone(), receiver: receiver.to_owned() }
        })
    }

    fn begin(&self, receiver: &str, delivery: Delivery) {
        let running = self.count(receiver);
        tokio::spawn(async move {
            running.dispatcher.deliver(delivery).await;
            drop(running);
        });
    }

    /// The body of a delivery. `None` if the task was deleted.
    async fn body(&self, delivery: &Delivery) -> Result<Option<Bytes>, StoreError> {
        let base: Arc<str> = match &delivery.owner.agent {
            Some(agent) => format!("{}{}/{agent}", self.0.base, agents::PATH).into(),
            None => self.0.base.as_str().into(),
        };
        let service = &self.0.service;
        let links = service.links(&base, delivery.owner.tenant.as_deref());
        notification::body(delivery, service.store(), links.as_ref()).await
    }

    /// Makes one attempt to send a notification.
    async fn send(&self, notice: Notice<'_>) -> Outcome {
        let Inner { service, outbound, options, .. } = &*self.0;
        let Notice { owner, task, name, attempts, .. } = notice;
        let answer = outbound.post(notification::request(notice, options, service.now())).await;
        if let Err(OutboundError::Refused(refused)) = &answer {
            self.0.admission.deny(&Denial {
                principal: &owner.principal,
                tenant: owner.tenant.as_deref(),
                address: None,
                binding: "webhook",
                agent: owner.agent.as_deref(),
                operation: &"delivery",
                task: Some(task),
                reason: &refused.to_string(),
                status: 403,
            });
        }
        let outcome = verdict::verdict(attempts, answer, options, service.now());
        match &outcome {
            Outcome::Delivered | Outcome::Postponed(_) => {
                tracing::debug!(delivery = name, "told a webhook");
            }
            Outcome::Failed { again, error } => {
                tracing::debug!(delivery = name, %again, error, "a delivery failed and is tried again");
            }
            Outcome::GivenUp { error, .. } => {
                tracing::warn!(delivery = name, error, "a delivery failed for the last time");
            }
        }
        outcome
    }

    async fn deliver(&self, delivery: Delivery) {
        let id = delivery.id.clone();
        let body = match self.body(&delivery).await {
            Ok(Some(body)) => body,
            // The task was deleted, and its webhooks with it.
            Ok(None) => return,
            Err(error) => {
                // The delivery stays taken for a while and is then tried again.
                tracing::warn!(delivery = %id, %error, "the task of a delivery cannot be read; the delivery is tried again later");
                return;
            }
        };
        let notice = Notice {
            name: &id.to_string(),
            owner: &delivery.owner,
            task: id.task.as_str(),
            webhook: &delivery.webhook,
            id: &id.token(),
            event: Some(id.seq),
            attempts: delivery.attempts,
            headers: notification::body_headers(delivery.webhook.dialect),
            body,
            origin: Origin::Ours,
        };
        let outcome = self.send(notice).await;
        if let Err(error) = self.0.service.store().outbox().settle(&id, outcome).await {
            // The delivery stays taken for a while and is then sent again: at least once.
            tracing::warn!(delivery = %id, %error, "the outcome of a delivery could not be recorded");
        }
    }
}

/// Counts a running delivery until it is dropped.
struct RunningDelivery {
    dispatcher: PushDispatcher,
    receiver: String,
}

impl Drop for RunningDelivery {
    fn drop(&mut self) {
        let mut running = self.dispatcher.0.running.lock();
        running.total -= 1;
        if let Some(here) = running.by_receiver.get_mut(&self.receiver) {
            *here -= 1;
            if *here == 0 {
                running.by_receiver.remove(&self.receiver);
            }
        }
        drop(running);
        self.dispatcher.0.done.notify_waiters();
    }
}
