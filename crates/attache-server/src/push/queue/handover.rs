//! From the outbox of the store to the queue.
//!
//! A delivery is taken from the outbox when Redis has its job. If the process ends in between, the delivery is handed over again, and
//! Redis knows its job by the id.

use std::time::Duration;

use attache_core::{Delivery, Outcome, StoreError};
use futures::future;

use super::job::Job;
use super::{Queue, scripts};
use crate::push::{LOOK_AGAIN, PushDispatcher, SETTLING};

/// How many deliveries to one receiver are handed over at once.
const MAX_BATCH: usize = 64;

/// When a delivery that cannot be handed over is tried again.
const LATER: Duration = Duration::from_secs(60);

/// Hands over what is due and waits for more, until the server stops and nothing is due.
pub(super) async fn run(dispatcher: &PushDispatcher, queue: &Queue) {
    let outbox = dispatcher.0.service.store().outbox();
    loop {
        // Subscribed before the outbox is read, so that no delivery is missed.
        let grown = outbox.grown();
        let wait = hand_over_due(dispatcher, queue).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the outbox cannot be read");
            LOOK_AGAIN
        });
        if wait.is_zero() {
            continue;
        }
        if queue.draining.is_cancelled() {
            queue.handed_over.cancel();
            return;
        }
        tokio::select! {
            () = grown => {}
            () = tokio::time::sleep(wait) => {}
            () = queue.draining.cancelled() => {}
        }
    }
}

/// Returns how long to wait before the next look: not at all if there may be more.
async fn hand_over_due(dispatcher: &PushDispatcher, queue: &Queue) -> Result<Duration, StoreError> {
    let service = &dispatcher.0.service;
    let outbox = service.store().outbox();
    let store = queue.store_id(service).await?;
    let now = service.now();
    let due = outbox.due_receivers(now).await?;
    let mut has_more = false;
    for receiver in due.now {
        let now = service.now();
        let taken = outbox.take_due(&receiver, now, now.after(SETTLING), MAX_BATCH).await?;
        let done =
            future::join_all(taken.into_iter().map(|delivery| hand_over(dispatcher, queue, store, delivery)));
        has_more |= done.await.into_iter().any(|is_handed_over| is_handed_over);
    }
    if has_more {
        return Ok(Duration::ZERO);
    }
    let next = due.next.map(|next| next.to_millis().saturating_sub(now.to_millis()));
    let next = next.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
    Ok(next.unwrap_or(LOOK_AGAIN).clamp(Duration::from_millis(1), LOOK_AGAIN))
}

/// Adds the job of a delivery, and removes the delivery from the outbox. Returns whether it did.
async fn hand_over(dispatcher: &PushDispatcher, queue: &Queue, store: &str, delivery: Delivery) -> bool {
    let service = &dispatcher.0.service;
    let id = &delivery.id;
    let body = match dispatcher.body(&delivery).await {
        Ok(Some(body)) => body,
        // The task was deleted, and its webhooks with it.
        Ok(None) => return false,
        Err(error) => {
            tracing::warn!(delivery = %id, %error, "the task of a delivery cannot be read; the delivery is tried again later");
            return false;
        }
    };
    let added = match Job::of(&delivery, &body, store, &*queue.options.seal, service.now()) {
        Ok(job) => {
            let added = queue.link.run(&scripts::hand_over(&queue.options, &job)).await;
            added.map(drop).map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    let outcome = match added {
        Ok(()) => Outcome::Delivered,
        // It stays in the outbox for the next start.
        Err(_) if queue.draining.is_cancelled() => return false,
        Err(error) => {
            tracing::warn!(delivery = %id, error, "a delivery cannot be added to the queue and stays in the outbox");
            Outcome::Postponed(service.now().after(LATER))
        }
    };
    if let Err(error) = service.store().outbox().settle(id, outcome).await {
        // The delivery stays taken for a while and is then handed over again.
        tracing::warn!(delivery = %id, %error, "a delivery in the queue could not be removed from the outbox");
        return false;
    }
    true
}
