//! The push outbox in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use attache_protocol::{TaskId, Timestamp};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{MemoryStore, ready};
use crate::{
    BoxFuture, DeadDelivery, Delivery, DeliveryId, DueReceivers, Entry, NewWebhook, Outbox, Outcome, Owner,
    PutWebhook, StoreError, Webhook,
};

#[derive(Debug, Default)]
pub(super) struct MemoryOutbox {
    inner: Mutex<Inner>,
    pub(super) grown: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    tasks: HashMap<TaskId, Vec<Hook>, RandomState>,
    /// The webhooks of each receiver that have deliveries, earliest due time first.
    due: BTreeMap<String, BTreeSet<Due>>,
    /// Deliveries that were given up, oldest first.
    dead: BTreeMap<u64, Dead>,
    /// Orders webhooks with the same due time, and deliveries that were given up.
    order: u64,
}

/// When the next delivery of a webhook is due. A delivery that was taken is due again when it was not settled in time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Timestamp,
    order: u64,
    task: TaskId,
    webhook: String,
}

#[derive(Debug)]
struct Hook {
    owner: Owner,
    webhook: Webhook,
    receiver: String,
    queue: VecDeque<Item>,
    due: Option<(Timestamp, u64)>,
}

#[derive(Debug)]
struct Item {
    entry: Arc<Entry>,
    at: Timestamp,
    attempts: u32,
}

#[derive(Debug)]
struct Dead {
    delivery: DeadDelivery,
    entry: Arc<Entry>,
}

impl Inner {
    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn hook(&mut self, task: &TaskId, webhook: &str) -> Option<&mut Hook> {
        self.tasks.get_mut(task)?.iter_mut().find(|hook| hook.webhook.id() == webhook)
    }

    /// Sets the due time of a webhook. `None` means that it has no delivery.
    fn schedule(&mut self, task: &TaskId, webhook: &str, at: Option<Timestamp>) {
        let order = self.next_order();
        let Some(hook) = self.hook(task, webhook) else { return };
        let new = at.map(|at| (at, order));
        let old = std::mem::replace(&mut hook.due, new);
        let receiver = hook.receiver.clone();
        let due = |(at, order)| Due { at, order, task: task.clone(), webhook: webhook.to_owned() };
        if let (Some(old), Some(set)) = (old, self.due.get_mut(&receiver)) {
            set.remove(&due(old));
            if set.is_empty() {
                self.due.remove(&receiver);
            }
        }
        if let Some(new) = new {
            self.due.entry(receiver).or_default().insert(due(new));
        }
    }
}

impl MemoryOutbox {
    pub(super) fn put(&self, task: &TaskId, owner: Owner, new: NewWebhook) -> PutWebhook {
        let NewWebhook { webhook, limit } = new;
        let mut inner = self.inner.lock();
        let id = webhook.id().to_owned();
        let hooks = inner.tasks.get(task).map(Vec::as_slice).unwrap_or_default();
        if hooks.iter().filter(|hook| hook.webhook.id() != id).count() >= limit {
            return PutWebhook::LimitReached;
        }
        let due = inner.hook(task, &id).and_then(|hook| hook.due).map(|(at, _)| at);
        inner.schedule(task, &id, None);
        let receiver = webhook.receiver();
        match inner.hook(task, &id) {
            Some(hook) => {
                hook.webhook = webhook;
                hook.receiver = receiver;
            }
            None => inner.tasks.entry(task.clone()).or_default().push(Hook {
                owner,
                webhook,
                receiver,
                queue: VecDeque::new(),
                due: None,
            }),
        }
        inner.schedule(task, &id, due);
        PutWebhook::Stored
    }

    pub(super) fn webhooks(&self, task: &TaskId) -> Vec<Webhook> {
        let inner = self.inner.lock();
        let hooks = inner.tasks.get(task).map(Vec::as_slice).unwrap_or_default();
        hooks.iter().map(|hook| hook.webhook.clone()).collect()
    }

    pub(super) fn delete(&self, task: &TaskId, webhook: &str) {
        let mut inner = self.inner.lock();
        inner.schedule(task, webhook, None);
        inner.dead.retain(|_, dead| dead.delivery.id.task != *task || dead.delivery.id.webhook != webhook);
        if let Some(hooks) = inner.tasks.get_mut(task) {
            hooks.retain(|hook| hook.webhook.id() != webhook);
            if hooks.is_empty() {
                inner.tasks.remove(task);
            }
        }
    }

    /// Adds deliveries of events to the queues of the webhooks that receive them.
    pub(super) fn enqueue(&self, task: &TaskId, entries: &[Arc<Entry>], now: Timestamp) {
        let mut inner = self.inner.lock();
        let mut idle = Vec::new();
        for hook in inner.tasks.get_mut(task).into_iter().flatten() {
            let received = entries.iter().filter(|entry| hook.webhook.events.includes(&entry.event));
            let items = received.map(|entry| Item { entry: entry.clone(), at: now, attempts: 0 });
            hook.queue.extend(items);
            if hook.due.is_none() && !hook.queue.is_empty() {
                idle.push(hook.webhook.id().to_owned());
            }
        }
        for webhook in &idle {
            inner.schedule(task, webhook, Some(now));
        }
        drop(inner);
        if !idle.is_empty() {
            self.grown.notify_waiters();
        }
    }

    /// Whether a task has deliveries that are not settled.
    pub(super) fn has_deliveries(&self, task: &TaskId) -> bool {
        self.inner.lock().tasks.get(task).is_some_and(|hooks| hooks.iter().any(|hook| !hook.queue.is_empty()))
    }

    /// Deletes all webhooks of a task.
    pub(super) fn delete_task(&self, task: &TaskId) {
        for webhook in self.webhooks(task) {
            self.delete(task, webhook.id());
        }
    }

    pub(super) fn due_receivers(&self, now: Timestamp) -> DueReceivers {
        let inner = self.inner.lock();
        let first = |(receiver, set): (&String, &BTreeSet<Due>)| {
            set.first().map(|due| (due.at, due.order, receiver.clone()))
        };
        let mut firsts: Vec<_> = inner.due.iter().filter_map(first).collect();
        firsts.sort_unstable();
        let split = firsts.partition_point(|(at, ..)| *at <= now);
        let next = firsts.get(split).map(|(at, ..)| *at);
        firsts.truncate(split);
        DueReceivers { now: firsts.into_iter().map(|(_, _, receiver)| receiver).collect(), next }
    }

    pub(super) fn take_due(
        &self,
        receiver: &str,
        now: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> Vec<Delivery> {
        let mut inner = self.inner.lock();
        let set = inner.due.get(receiver);
        let due: Vec<_> =
            set.into_iter().flatten().take_while(|due| due.at <= now).take(limit).cloned().collect();
        let mut taken = Vec::with_capacity(due.len());
        for Due { task, webhook, .. } in due {
            let delivery = inner.hook(&task, &webhook).and_then(|hook| {
                let item = hook.queue.front()?;
                let id = DeliveryId { task: task.clone(), webhook: webhook.clone(), seq: item.entry.seq };
                let (owner, webhook, entry) = (hook.owner.clone(), hook.webhook.clone(), item.entry.clone());
                Some(Delivery { id, owner, webhook, entry, attempts: item.attempts })
            });
            inner.schedule(&task, &webhook, delivery.is_some().then_some(until));
            taken.extend(delivery);
        }
        taken
    }

    pub(super) fn settle(&self, id: &DeliveryId, outcome: Outcome) {
        let mut inner = self.inner.lock();
        let order = inner.next_order();
        let Some(hook) = inner.hook(&id.task, &id.webhook) else { return };
        let Some(at_index) = hook.queue.iter().position(|item| item.entry.seq == id.seq) else { return };
        let again = match outcome {
            Outcome::Postponed(again) => Some(again),
            Outcome::Failed { again, error: _ } => {
                hook.queue[at_index].attempts += 1;
                Some(again)
            }
            Outcome::Delivered => {
                hook.queue.remove(at_index);
                hook.queue.front().map(|item| item.at)
            }
            Outcome::GivenUp { at, error } => {
                let url = hook.webhook.config.url.clone();
                let item = hook.queue.remove(at_index);
                let next = hook.queue.front().map(|item| item.at);
                if let Some(Item { entry, attempts, .. }) = item {
                    let delivery = DeadDelivery { id: id.clone(), url, attempts: attempts + 1, at, error };
                    inner.dead.insert(order, Dead { delivery, entry });
                }
                next
            }
        };
        inner.schedule(&id.task, &id.webhook, again);
        drop(inner);
        self.grown.notify_waiters();
    }

    pub(super) fn list_dead(&self, after: Option<&DeliveryId>, limit: usize) -> Vec<DeadDelivery> {
        let inner = self.inner.lock();
        let after = after.and_then(|id| inner.dead.iter().find(|(_, dead)| dead.delivery.id == *id));
        let from = after.map_or(0, |(order, _)| order + 1);
        inner.dead.range(from..).take(limit).map(|(_, dead)| dead.delivery.clone()).collect()
    }

    fn take_dead(&self, id: Option<&DeliveryId>) -> Vec<Dead> {
        let mut inner = self.inner.lock();
        let all = std::mem::take(&mut inner.dead);
        let (taken, left) =
            all.into_iter().partition(|(_, dead)| id.is_none_or(|id| dead.delivery.id == *id));
        inner.dead = left;
        BTreeMap::into_values(taken).collect()
    }

    pub(super) fn retry_dead(&self, id: Option<&DeliveryId>, now: Timestamp) -> usize {
        let revived = self.take_dead(id);
        let count = revived.len();
        for Dead { delivery: DeadDelivery { id, .. }, entry } in revived {
            let mut inner = self.inner.lock();
            let Some(hook) = inner.hook(&id.task, &id.webhook) else { continue };
            let at_index = hook.queue.partition_point(|item| item.entry.seq < entry.seq);
            hook.queue.insert(at_index, Item { entry, at: now, attempts: 0 });
            if hook.due.is_none() {
                inner.schedule(&id.task, &id.webhook, Some(now));
            }
        }
        self.grown.notify_waiters();
        count
    }

    pub(super) fn purge_dead(&self, id: Option<&DeliveryId>) -> usize {
        self.take_dead(id).len()
    }
}

impl Outbox for MemoryStore {
    fn put_webhook<'a>(
        &'a self,
        task: &'a TaskId,
        new: NewWebhook,
    ) -> BoxFuture<'a, Result<PutWebhook, StoreError>> {
        let put = match self.cell(task).and_then(|cell| Some((self.owner_of(&cell)?, cell))) {
            Some((owner, cell)) => cell.put_webhook(|| self.outbox.put(task, owner, new)),
            None => PutWebhook::Stored,
        };
        ready(Ok(put))
    }

    fn webhooks<'a>(&'a self, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<Webhook>, StoreError>> {
        ready(Ok(self.outbox.webhooks(task)))
    }

    fn delete_webhook<'a>(&'a self, task: &'a TaskId, id: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.outbox.delete(task, id);
        ready(Ok(()))
    }

    fn due_receivers(&self, now: Timestamp) -> BoxFuture<'_, Result<DueReceivers, StoreError>> {
        ready(Ok(self.outbox.due_receivers(now)))
    }

    fn take_due<'a>(
        &'a self,
        receiver: &'a str,
        now: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Delivery>, StoreError>> {
        ready(Ok(self.outbox.take_due(receiver, now, until, limit)))
    }

    fn settle<'a>(
        &'a self,
        delivery: &'a DeliveryId,
        outcome: Outcome,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.outbox.settle(delivery, outcome);
        ready(Ok(()))
    }

    fn grown(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.outbox.grown.clone().notified_owned())
    }

    fn list_dead<'a>(
        &'a self,
        after: Option<&'a DeliveryId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<DeadDelivery>, StoreError>> {
        ready(Ok(self.outbox.list_dead(after, limit)))
    }

    fn retry_dead<'a>(
        &'a self,
        delivery: Option<&'a DeliveryId>,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        ready(Ok(self.outbox.retry_dead(delivery, now)))
    }

    fn purge_dead<'a>(
        &'a self,
        delivery: Option<&'a DeliveryId>,
    ) -> BoxFuture<'a, Result<usize, StoreError>> {
        ready(Ok(self.outbox.purge_dead(delivery)))
    }
}
