//! From the queue to the receivers.

use std::sync::Arc;
use std::time::Duration;

use attache_redis::redis::RedisError;
use attache_redis::{Backoff, Connection, Entry, Whose, is_missing_group};
use tokio::time::Instant;

use super::deliver::deliver;
use super::job::{FIELD, Job, seconds};
use super::leases::MAX_PENDING;
use super::scripts::{self, End};
use super::{EntryId, Queue};
use crate::push::PushDispatcher;

/// How long Redis waits for a job before it says that there is none.
const BLOCK: Duration = Duration::from_secs(1);

/// How many entries are read at once at most.
const MAX_READ: usize = 64;

/// How many bytes of an entry that is no job are kept.
const MAX_DEAD: usize = 64 * 1024;

/// Takes jobs and delivers them, until the server stops and there is nothing left to do. Connects again whenever that is necessary.
pub(super) async fn run(dispatcher: &PushDispatcher, queue: &Arc<Queue>) {
    let mut backoff = Backoff::default();
    loop {
        let error = match work(dispatcher, queue, &mut backoff).await {
            Ok(()) => return,
            Err(error) => error,
        };
        if is_missing_group(&error) {
            tracing::warn!(%error, "the consumer group of the push queue does not exist any more and is made again");
        } else {
            queue.reading.failed(&error);
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.wait()) => {}
            () = queue.draining.cancelled() => {}
        }
        if queue.draining.is_cancelled() {
            return;
        }
    }
}

/// Works over one connection.
async fn work(
    dispatcher: &PushDispatcher,
    queue: &Arc<Queue>,
    backoff: &mut Backoff,
) -> Result<(), RedisError> {
    let mut connection = queue.connect().await?;
    queue.consumer().create_group(&mut connection).await?;
    queue.reading.ended();
    // Redis may have entries for this process that it never got: the connection broke, or an earlier process had the same name.
    let (mut whose, mut after, mut next_claim) = (Whose::Own, None, Instant::now());
    loop {
        let count = queue.capacity(dispatcher.0.options.at_once).await;
        let next_retry = promote(dispatcher, queue, &mut connection).await?;
        let found = if next_claim <= Instant::now() {
            let page = claim(queue, &mut connection, whose, after.take(), count).await?;
            if page.next.is_none() {
                next_claim = Instant::now() + (queue.options.lease / 2).min(Duration::from_secs(30));
                whose = Whose::Idle(queue.options.lease);
            }
            after = page.next;
            page.entries
        } else {
            let block = BLOCK.min(next_retry).min(next_claim.saturating_duration_since(Instant::now()));
            let block = if queue.draining.is_cancelled() { Duration::ZERO } else { block };
            queue.consumer().new_entries(&mut connection, count, block).await?
        };
        backoff.reset();
        let is_idle = found.is_empty() && after.is_none();
        for entry in found {
            queue.begin(dispatcher, entry);
        }
        if is_idle && queue.handed_over.is_cancelled() {
            let freed = queue.freed.notified();
            if queue.running.lock().is_empty() {
                return leave(queue, &mut connection).await;
            }
            freed.await;
        }
    }
}

/// Puts jobs that are due into the stream. Returns how long it is until the next one is due.
async fn promote(
    dispatcher: &PushDispatcher,
    queue: &Queue,
    connection: &mut Connection,
) -> Result<Duration, RedisError> {
    let now = seconds(dispatcher.0.service.now());
    let next: Option<String> = scripts::promote(&queue.options, now).query_async(connection).await?;
    let due = next.and_then(|score| score.parse::<f64>().ok());
    let wait = due.map(|due| Duration::try_from_secs_f64((due - now).max(0.0)).unwrap_or(BLOCK));
    Ok(wait.unwrap_or(BLOCK))
}

/// Entries that were taken over.
struct Page {
    entries: Vec<Entry>,
    /// The last id that was looked at, if there are further ones.
    next: Option<String>,
}

/// Takes over entries that nothing works on, at most `count`, with ids after this one.
async fn claim(
    queue: &Queue,
    connection: &mut Connection,
    whose: Whose,
    after: Option<String>,
    count: usize,
) -> Result<Page, RedisError> {
    let (found, next) = queue.consumer().pending(connection, whose, after, count).await?;
    // After an outage that was longer than the lease, those that this process works on are among them.
    let wanted: Vec<_> =
        found.into_iter().filter(|(id, _)| !queue.running.lock().contains(id.as_str())).collect();
    if wanted.is_empty() {
        return Ok(Page { entries: Vec::new(), next });
    }
    let ids = wanted.iter().map(|(id, _)| id.as_str());
    let entries = queue.consumer().claim(connection, whose, ids).await?;
    match whose {
        Whose::Own => {}
        Whose::Idle(_) if entries.is_empty() => {}
        Whose::Idle(_) => {
            tracing::info!(
                jobs = entries.len(),
                "took over push jobs of a process that does not finish them"
            );
        }
    }
    Ok(Page { entries, next })
}

/// Removes this process from the group, unless there is something for others to take over: with it, Redis would forget its entries.
async fn leave(queue: &Queue, connection: &mut Connection) -> Result<(), RedisError> {
    match queue.consumer().own(connection, MAX_PENDING).await?.is_empty() {
        true => queue.consumer().leave(connection).await,
        false => Ok(()),
    }
}

impl Queue {
    /// Waits until this process can work on another entry. Returns how many it may read.
    async fn capacity(&self, at_once: usize) -> usize {
        loop {
            let freed = self.freed.notified();
            let free = at_once.max(1).saturating_sub(self.running.lock().len());
            if free > 0 {
                return free.min(MAX_READ);
            }
            freed.await;
        }
    }

    /// Works on an entry in a task of its own, unless this process does so already.
    fn begin(self: &Arc<Self>, dispatcher: &PushDispatcher, entry: Entry) {
        let id: EntryId = entry.id.as_str().into();
        if !self.running.lock().insert(id.clone()) {
            return;
        }
        let running = RunningEntry { queue: self.clone(), id };
        let dispatcher = dispatcher.clone();
        tokio::spawn(async move { running.process(&dispatcher, entry).await });
    }
}

/// An entry that this process works on, until dropped.
struct RunningEntry {
    queue: Arc<Queue>,
    id: EntryId,
}

impl Drop for RunningEntry {
    fn drop(&mut self) {
        self.queue.running.lock().remove(&self.id);
        self.queue.freed.notify_waiters();
    }
}

impl RunningEntry {
    async fn process(self, dispatcher: &PushDispatcher, entry: Entry) {
        let (order, id, end) = match Job::parse(&entry) {
            Ok(job) => {
                // The job has a copy of it.
                drop(entry);
                let (order, id) = (job.order(), job.job_id.clone());
                (order, id, deliver(dispatcher, &self.queue, job).await)
            }
            Err(_) if entry.fields.is_none() => (None, String::new(), End::Done),
            Err(reason) => {
                tracing::warn!(entry = entry.id, reason, "an entry of the push queue was refused");
                let text = entry.get(FIELD).unwrap_or_default();
                let text = &text[..text.len().min(MAX_DEAD)];
                (None, String::new(), End::Dead { job: String::from_utf8_lossy(text).into_owned(), reason })
            }
        };
        let command = scripts::finish(&self.queue.options, &self.id, order.as_deref(), &id, &end);
        if let Err(error) = self.queue.link.run(&command).await {
            // The lease ends, and the job is delivered again: at least once.
            tracing::warn!(entry = %self.id, %error, "the outcome of a push job could not be recorded");
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_core::{Seal, SealError};
    use futures::FutureExt;

    use super::*;
    use crate::PushQueue;
    use crate::push::PushOptions;

    struct NoKeys;

    impl Seal for NoKeys {
        fn seal(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, SealError> {
            Err(SealError::new("no keys"))
        }

        fn open(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, SealError> {
            Err(SealError::new("no keys"))
        }
    }

    #[test]
    fn a_process_works_on_256_jobs_and_reads_the_next_when_one_has_ended() {
        let at_once = PushOptions::default().at_once;
        assert_eq!((at_once, PushOptions::default().per_receiver), (256, 8));
        let queue = Queue::new(PushQueue::new("redis://127.0.0.1".parse().unwrap(), NoKeys));
        let may_read = || queue.capacity(at_once).now_or_never();
        assert_eq!(may_read(), Some(MAX_READ));
        let names = |count: usize| (0..count).map(|number| EntryId::from(number.to_string()));
        queue.running.lock().extend(names(255));
        assert_eq!(may_read(), Some(1));
        queue.running.lock().extend(names(256));
        assert_eq!(may_read(), None);
        queue.running.lock().remove("7");
        assert_eq!(may_read(), Some(1));
    }
}
