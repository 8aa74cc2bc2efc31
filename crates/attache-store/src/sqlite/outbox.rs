//! The outbox of the store: webhooks and their deliveries.
//!
//! The reservation of a taken delivery is only in memory. After a restart all reserved deliveries are due again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use attache_core::{
    BoxFuture, DeadDelivery, Delivery, DeliveryId, DueReceivers, NewWebhook, Outbox, Outcome, PutWebhook,
    Seq, StoreError, Webhook,
};
use attache_protocol::{TaskId, Timestamp};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Notify;

use super::fault::Fault;
use super::live::LiveTask;
use super::outbox_rows;
use super::rows::{self, Id, nanos_of, time_of};
use super::webhook_rows::{self, WebhookRow};
use super::writer::{Batch, Command};
use super::{Inner, Location, ResultSender, SqliteStore, read};

#[derive(Default)]
pub(super) struct OutboxState {
    /// By webhook, the time until which a dispatcher has reserved the next delivery.
    taken: Mutex<HashMap<i64, i64, RandomState>>,
    pub(super) grown: Arc<Notify>,
}

/// A write to the outbox, and a change in memory that follows it once it is durable.
struct Change<W, D, T> {
    work: W,
    done: Option<D>,
    result: Option<T>,
    sender: ResultSender<T>,
}

impl<W, D, T> Command for Change<W, D, T>
where
    W: FnMut(&Connection) -> Result<T, Fault> + Send,
    D: FnOnce(&T) + Send,
    T: Send,
{
    fn execute(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault> {
        self.result = Some((self.work)(batch.db)?);
        Ok(())
    }

    fn finish(mut self: Box<Self>, written: Result<(), StoreError>) {
        let result = match (written, self.result.take()) {
            (Ok(()), Some(result)) => {
                if let Some(done) = self.done.take() {
                    done(&result);
                }
                Ok(result)
            }
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(super::closed()),
        };
        let _ = self.sender.send(result);
    }
}

impl Inner {
    pub(super) async fn change<T: Send + 'static>(
        &self,
        work: impl FnMut(&Connection) -> Result<T, Fault> + Send + 'static,
        done: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write(|sender| Box::new(Change { work, done: Some(done), result: None, sender })).await
    }

    async fn put_webhook(self: &Arc<Self>, task: &TaskId, new: NewWebhook) -> Result<PutWebhook, StoreError> {
        let NewWebhook { webhook, limit } = new;
        let (row, live): (i64, Option<Arc<LiveTask>>) = match self.locate(task).await? {
            Location::Missing => return Ok(PutWebhook::Stored),
            Location::Live(live) => (live.row, Some(live)),
            Location::Ended(found) => (found.row, None),
        };
        let mut webhook_row =
            WebhookRow::seal(&self.keyring, task, &webhook).map_err(|fault| self.explain(&fault))?;
        let keyring = self.keyring.clone();
        let work = move |db: &Connection| {
            // The task can have been pruned meanwhile.
            if !db.prepare_cached("SELECT 1 FROM tasks WHERE id = ?1")?.exists(params![row])? {
                return Ok(PutWebhook::Stored);
            }
            if !webhook_row.fits(db, row, limit)? {
                return Ok(PutWebhook::LimitReached);
            }
            webhook_row.put(db, &keyring, row)?;
            if let Some(live) = &live {
                // Later appends look for webhooks. If the transaction fails, this stays set and costs only a useless query.
                live.may_have_webhooks.store(true, Ordering::Relaxed);
            }
            Ok(PutWebhook::Stored)
        };
        self.change(work, |_| {}).await
    }

    fn webhooks(&self, task: &TaskId) -> Result<Vec<Webhook>, StoreError> {
        self.read(|db| {
            let mut read = db.prepare_cached(
                "SELECT name, news, config, secrets, dialect, trace_parent FROM webhooks
                 WHERE task = (SELECT id FROM tasks WHERE task_id = ?1) ORDER BY id",
            )?;
            let mut rows = read.query(params![Id(task.as_str())])?;
            let mut webhooks = Vec::new();
            while let Some(row) = rows.next()? {
                webhooks.push(webhook_rows::read(&self.keyring, task, row, 0)?);
            }
            Ok(webhooks)
        })
    }

    /// Ends the reservation of a webhook, so that its next delivery can be taken.
    fn end_reservation(self: &Arc<Self>) -> impl FnOnce(&Option<i64>) + Send + 'static {
        let inner = self.clone();
        move |webhook| {
            if let Some(webhook) = webhook {
                inner.outbox.taken.lock().remove(webhook);
            }
            inner.outbox.grown.notify_waiters();
        }
    }

    fn due_receivers(&self, db: &Connection, now: i64) -> Result<DueReceivers, Fault> {
        let db = db.unchecked_transaction()?;
        let mut next_receiver = db.prepare_cached("SELECT min(receiver) FROM queues WHERE receiver > ?1")?;
        let mut queues =
            db.prepare_cached("SELECT webhook, due FROM queues WHERE receiver = ?1 ORDER BY due")?;
        let mut first: Option<String> =
            db.prepare_cached("SELECT min(receiver) FROM queues")?.query_row((), |row| row.get(0))?;
        let mut firsts = Vec::new();
        while let Some(receiver) = first {
            let mut earliest = i64::MAX;
            let mut rows = queues.query(params![receiver])?;
            while let Some(row) = rows.next()? {
                let due: i64 = row.get(1)?;
                match self.reserved_until(row.get(0)?, now) {
                    Some(until) => earliest = earliest.min(until),
                    None => {
                        earliest = earliest.min(due);
                        break;
                    }
                }
            }
            first = next_receiver.query_row(params![receiver], |row| row.get(0)).optional()?.flatten();
            firsts.push((earliest, receiver));
        }
        firsts.sort_by_key(|(due, _)| *due);
        let split = firsts.partition_point(|(due, _)| *due <= now);
        let next = firsts.get(split).map(|(due, _)| time_of(*due));
        firsts.truncate(split);
        Ok(DueReceivers { now: firsts.into_iter().map(|(_, receiver)| receiver).collect(), next })
    }

    /// The time until which the next delivery of a webhook is reserved, if it is.
    fn reserved_until(&self, webhook: i64, now: i64) -> Option<i64> {
        self.outbox.taken.lock().get(&webhook).copied().filter(|until| *until > now)
    }

    fn take_due(
        &self,
        db: &Connection,
        receiver: &str,
        now: i64,
        until: i64,
        limit: usize,
    ) -> Result<Vec<Delivery>, Fault> {
        let db = db.unchecked_transaction()?;
        let mut deliveries = Vec::new();
        for webhook in self.take(&db, receiver, now, until, limit)? {
            deliveries.extend(self.delivery(&db, webhook)?);
        }
        Ok(deliveries)
    }

    /// Reserves the webhooks of a receiver that are due.
    fn take(
        &self,
        db: &Connection,
        receiver: &str,
        now: i64,
        until: i64,
        limit: usize,
    ) -> Result<Vec<i64>, Fault> {
        // The lock is held while reading. A delivery that is settled meanwhile keeps its reservation until this query has seen it.
        let mut taken = self.outbox.taken.lock();
        taken.retain(|_, until| *until > now);
        let mut read =
            db.prepare_cached("SELECT webhook FROM queues WHERE receiver = ?1 AND due <= ?2 ORDER BY due")?;
        let mut rows = read.query(params![receiver, now])?;
        let mut webhooks = Vec::new();
        while webhooks.len() < limit
            && let Some(row) = rows.next()?
        {
            let webhook = row.get(0)?;
            if !taken.contains_key(&webhook) {
                webhooks.push(webhook);
            }
        }
        taken.extend(webhooks.iter().map(|webhook| (*webhook, until)));
        Ok(webhooks)
    }

    /// The next delivery of a webhook. `None` if it cannot be read: then it does not block the others, and is read again when its
    /// reservation ends.
    fn delivery(&self, db: &Connection, webhook: i64) -> Result<Option<Delivery>, Fault> {
        let mut read = db.prepare_cached(
            "SELECT webhooks.task, tasks.task_id, tasks.owner, outbox.seq, outbox.attempts,
                    webhooks.name, webhooks.news, webhooks.config, webhooks.secrets, webhooks.dialect,
                    webhooks.trace_parent
             FROM webhooks JOIN tasks ON tasks.id = webhooks.task JOIN outbox ON outbox.webhook = webhooks.id
             WHERE webhooks.id = ?1 ORDER BY outbox.seq LIMIT 1",
        )?;
        let mut rows = read.query(params![webhook])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let task = rows::task_id(row, 1)?;
        let (seq, attempts) = (rows::seq_of(row.get(3)?), row.get(4)?);
        let owner = read::owner(db, row.get(2)?)?;
        let before = Seq(seq.0.saturating_sub(1));
        let read = || {
            let entry = read::log_after(db, row.get(0)?, &task, before, 1)?;
            Ok((entry, webhook_rows::read(&self.keyring, &task, row, 5)?))
        };
        match read() {
            Ok((entry, webhook)) => {
                let Some(entry) = entry.and_then(|entries| entries.into_iter().next()) else {
                    tracing::error!(%task, %seq, "the event of a delivery is not in the log");
                    return Ok(None);
                };
                let id = DeliveryId { task, webhook: webhook.id().to_owned(), seq };
                Ok(Some(Delivery { id, owner, webhook, entry, attempts }))
            }
            Err(fault @ (Fault::Sqlite(_) | Fault::Replaced(_))) => Err(fault),
            Err(fault @ (Fault::Keyring(_) | Fault::Unreadable { .. })) => {
                let error = self.explain(&fault);
                tracing::error!(%task, %seq, %error, "a delivery cannot be read");
                Ok(None)
            }
        }
    }
}

impl SqliteStore {
    /// Seals all secrets that are under an old key again, under the current key. Returns their number.
    ///
    /// Afterwards the other keys can be [retired](crate::Keyring::retire_old).
    pub async fn reseal(&self) -> Result<usize, StoreError> {
        let (mut count, mut from) = (0, Some(0));
        while let Some(at) = from {
            let keyring = self.inner.keyring.clone();
            let work = move |db: &Connection| webhook_rows::reseal(db, &keyring, at);
            let (resealed, next) = self.inner.change(work, |_| {}).await?;
            (count, from) = (count + resealed, next);
        }
        Ok(count)
    }
}

impl Outbox for SqliteStore {
    fn put_webhook<'a>(
        &'a self,
        task: &'a TaskId,
        new: NewWebhook,
    ) -> BoxFuture<'a, Result<PutWebhook, StoreError>> {
        Box::pin(self.inner.put_webhook(task, new))
    }

    fn webhooks<'a>(&'a self, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<Webhook>, StoreError>> {
        Box::pin(async move { self.inner.webhooks(task) })
    }

    fn delete_webhook<'a>(&'a self, task: &'a TaskId, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let (task, id) = (task.clone(), id.to_owned());
            let work = move |db: &Connection| webhook_rows::delete(db, &task, &id);
            self.inner.change(work, self.inner.end_reservation()).await.map(|_| ())
        })
    }

    fn due_receivers(&self, now: Timestamp) -> BoxFuture<'_, Result<DueReceivers, StoreError>> {
        Box::pin(self.inner.read_blocking(move |inner, db| inner.due_receivers(db, nanos_of(now))))
    }

    fn take_due<'a>(
        &'a self,
        receiver: &'a str,
        now: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Delivery>, StoreError>> {
        let receiver = receiver.to_owned();
        let (now, until) = (nanos_of(now), nanos_of(until));
        Box::pin(self.inner.read_blocking(move |inner, db| inner.take_due(db, &receiver, now, until, limit)))
    }

    fn settle<'a>(
        &'a self,
        delivery: &'a DeliveryId,
        outcome: Outcome,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let delivery = delivery.clone();
            let work = move |db: &Connection| outbox_rows::settle(db, &delivery, &outcome);
            self.inner.change(work, self.inner.end_reservation()).await.map(|_| ())
        })
    }

    fn grown(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.inner.outbox.grown.clone().notified_owned())
    }

    fn list_dead<'a>(
        &'a self,
        after: Option<&'a DeliveryId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadDelivery>, StoreError>> {
        let after = after.cloned();
        Box::pin(self.inner.read_blocking(move |_, db| {
            let db = db.unchecked_transaction()?;
            outbox_rows::list_dead(&db, after.as_ref(), limit)
        }))
    }

    fn retry_dead<'a>(
        &'a self,
        delivery: Option<&'a DeliveryId>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(async move {
            let delivery = delivery.cloned();
            let grown = self.inner.outbox.grown.clone();
            let work = move |db: &Connection| outbox_rows::retry_dead(db, delivery.as_ref(), now);
            self.inner.change(work, move |_| grown.notify_waiters()).await
        })
    }

    fn purge_dead<'a>(
        &'a self,
        delivery: Option<&'a DeliveryId>,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(async move {
            let delivery = delivery.cloned();
            let work = move |db: &Connection| outbox_rows::purge_dead(db, delivery.as_ref());
            self.inner.change(work, |_| {}).await
        })
    }
}
