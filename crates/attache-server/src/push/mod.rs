//! Delivering the news of tasks to webhooks, outside the way of requests and agents.
//!
//! The outbox says who is due; deliveries to one receiver go out side by side up to a limit of its own, so that a receiver that
//! hangs delays only itself. A delivery is settled only when the receiver has answered: whatever happens in between, it is made
//! again.

mod notification;
mod options;
mod verdict;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use attache_core::{Delivery, Outcome, Service, StoreError};
use attache_outbound::{Outbound, OutboundError, SetupError, SystemResolver};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use self::options::{PushOptions, SigningSecret};
use crate::audit::Denial;
use crate::limits::Admission;

/// How long to wait before looking again when nothing is known to be due: another process may have put something there.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How long the store may take to note what became of a delivery, beyond the time for the delivery itself.
const SETTLING: Duration = Duration::from_secs(30);

/// Makes deliveries. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(crate) struct PushDispatcher(Arc<Inner>);

struct Inner {
    service: Service,
    outbound: Outbound,
    options: PushOptions,
    /// Where it is said which webhooks may not be called.
    admission: Arc<Admission>,
    under_way: Mutex<UnderWay>,
    /// Held while looking for what is due: two who look at once would both fill the same room.
    looking: tokio::sync::Mutex<()>,
    /// A delivery is done, so that there is room for another.
    done: Notify,
}

/// How many deliveries are being made.
#[derive(Default)]
struct UnderWay {
    total: usize,
    by_receiver: HashMap<String, usize>,
}

impl PushDispatcher {
    pub(crate) fn new(service: Service, options: PushOptions, admission: Arc<Admission>) -> Result<Self, SetupError> {
        let outbound = Outbound::new(options.policy.clone(), Arc::new(SystemResolver))?;
        let (under_way, looking, done) = (Mutex::default(), tokio::sync::Mutex::default(), Notify::new());
        Ok(Self(Arc::new(Inner { service, outbound, options, admission, under_way, looking, done })))
    }

    /// Delivers what is due, and waits for more, until dropped.
    pub(crate) async fn run(self) {
        loop {
            // Before looking, so that what comes while looking is not missed.
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

    /// Delivers what is due, and waits until nothing is and nothing is being delivered.
    pub(crate) async fn drain(&self) {
        loop {
            let done = self.0.done.notified();
            self.deliver_due().await;
            if self.0.under_way.lock().total == 0 {
                return;
            }
            done.await;
        }
    }

    /// Begins deliveries that are due, as far as there is room. How long until there may be more.
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
            // What is due next for the same receivers shows only now that this is taken.
            return Ok(Duration::ZERO);
        }
        let next = due.next.map(|next| next.to_millis().saturating_sub(now.to_millis()));
        let next = next.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
        Ok(next.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN))
    }

    /// How many more deliveries a receiver can take now.
    fn room(&self, receiver: &str) -> usize {
        let PushOptions { per_receiver, at_once, .. } = &self.0.options;
        let under_way = self.0.under_way.lock();
        let here = under_way.by_receiver.get(receiver).copied().unwrap_or_default();
        per_receiver.saturating_sub(here).min(at_once.saturating_sub(under_way.total))
    }

    fn begin(&self, receiver: &str, delivery: Delivery) {
        {
            let mut under_way = self.0.under_way.lock();
            under_way.total += 1;
            *under_way.by_receiver.entry(receiver.to_owned()).or_default() += 1;
        }
        let place = Place { dispatcher: self.clone(), receiver: receiver.to_owned() };
        tokio::spawn(async move {
            place.dispatcher.deliver(delivery).await;
            drop(place);
        });
    }

    async fn deliver(&self, delivery: Delivery) {
        let Inner { service, outbound, options, .. } = &*self.0;
        let id = delivery.id.clone();
        let body = match notification::body(&delivery, service.store()).await {
            Ok(Some(body)) => body,
            // Nobody waits for news of a task that is gone; its webhooks are too.
            Ok(None) => return,
            Err(error) => {
                // It stays taken for a while and is then made again.
                tracing::warn!(delivery = %id, %error, "a task cannot be read, so a webhook is told later");
                return;
            }
        };
        let request = notification::request(&delivery, body, options, service.now());
        let answer = outbound.post(request).await;
        if let Err(OutboundError::Refused(refused)) = &answer {
            self.0.admission.deny(&Denial {
                principal: &delivery.owner.principal,
                tenant: delivery.owner.tenant.as_deref(),
                address: None,
                binding: "webhook",
                operation: &"delivery",
                task: Some(id.task.as_str()),
                reason: &refused.to_string(),
                status: 403,
            });
        }
        let outcome = verdict::verdict(&delivery, answer, options, service.now());
        match &outcome {
            Outcome::Delivered | Outcome::Postponed(_) => {
                tracing::debug!(delivery = %id, "told a webhook");
            }
            Outcome::Failed { again, error } => {
                tracing::debug!(delivery = %id, %again, error, "a webhook could not be told");
            }
            Outcome::GivenUp { error, .. } => {
                tracing::warn!(delivery = %id, error, "a webhook could not be told; the delivery was given up");
            }
        }
        if let Err(error) = service.store().outbox().settle(&id, outcome).await {
            // It stays taken for a while and is then made again: at least once, not at most.
            tracing::warn!(delivery = %id, %error, "what became of a delivery could not be noted");
        }
    }
}

/// A delivery's place among those that are being made; free again when dropped.
struct Place {
    dispatcher: PushDispatcher,
    receiver: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut under_way = self.dispatcher.0.under_way.lock();
        under_way.total -= 1;
        if let Some(here) = under_way.by_receiver.get_mut(&self.receiver) {
            *here -= 1;
            if *here == 0 {
                under_way.by_receiver.remove(&self.receiver);
            }
        }
        drop(under_way);
        self.dispatcher.0.done.notify_waiters();
    }
}
