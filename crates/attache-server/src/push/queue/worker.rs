//! From the queue to the receivers.

use std::sync::Arc;
use std::time::Duration;

use attache_redis::redis::{RedisError, Value, cmd};
use attache_redis::{
    Backoff, Connection, Entry, claimed, create_group, entries, is_missing_group, pending_ids,
};
use tokio::time::Instant;

use super::deliver::deliver;
use super::job::{FIELD, Job, seconds};
use super::scripts::{self, End};
use super::{EntryId, PushQueue, Queue, leases};
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

/// Which entries are taken that a process has already.
#[derive(Clone, Copy)]
enum Source {
    /// Those of this process.
    Own,
    /// Those of all processes whose lease has ended.
    Expired,
}

/// Works over one connection.
async fn work(
    dispatcher: &PushDispatcher,
    queue: &Arc<Queue>,
    backoff: &mut Backoff,
) -> Result<(), RedisError> {
    let mut connection = queue.connect().await?;
    create_group(&mut connection, &queue.options.stream, &queue.options.group).await?;
    queue.reading.ended();
    // Redis may have entries for this process that it never got: the connection broke, or an earlier process had the same name.
    let (mut source, mut after, mut next_claim) = (Source::Own, None, Instant::now());
    loop {
        let count = queue.capacity(dispatcher.0.options.at_once).await;
        let next_retry = promote(dispatcher, queue, &mut connection).await?;
        let found = if next_claim <= Instant::now() {
            let page = claim(queue, &mut connection, source, after.take(), count).await?;
            if page.next.is_none() {
                next_claim = Instant::now() + (queue.options.lease / 2).min(Duration::from_secs(30));
                source = Source::Expired;
            }
            after = page.next;
            page.entries
        } else {
            let block = BLOCK.min(next_retry).min(next_claim.saturating_duration_since(Instant::now()));
            let block = if queue.draining.is_cancelled() { Duration::ZERO } else { block };
            new_entries(queue, &mut connection, count, block).await?
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

/// New entries, or none after some time.
async fn new_entries(
    queue: &Queue,
    connection: &mut Connection,
    count: usize,
    block: Duration,
) -> Result<Vec<Entry>, RedisError> {
    let PushQueue { stream, group, .. } = &queue.options;
    let mut read = cmd("XREADGROUP");
    read.arg("GROUP").arg(group).arg(&queue.consumer).arg("COUNT").arg(count);
    // 0 would mean to wait forever.
    read.arg("BLOCK").arg(u64::try_from(block.as_millis()).unwrap_or(1).max(1));
    read.arg("STREAMS").arg(stream).arg(">");
    entries(read.query_async::<Value>(connection).await?)
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
    source: Source,
    after: Option<String>,
    count: usize,
) -> Result<Page, RedisError> {
    let PushQueue { stream, group, lease, .. } = &queue.options;
    let idle = match source {
        Source::Own => Duration::ZERO,
        Source::Expired => *lease,
    };
    let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
    let mut pending = cmd("XPENDING");
    pending.arg(stream).arg(group).arg("IDLE").arg(idle);
    pending.arg(after.map_or_else(|| "-".to_owned(), |after| format!("({after}"))).arg("+").arg(count);
    match source {
        Source::Own => {
            pending.arg(&queue.consumer);
        }
        Source::Expired => {}
    }
    let found = pending_ids(pending.query_async::<Value>(connection).await?)?;
    let next = (found.len() == count).then(|| found.last().map(|(id, _)| id.clone())).flatten();
    // After an outage that was longer than the lease, those that this process works on are among them.
    let wanted: Vec<_> =
        found.into_iter().filter(|(id, _)| !queue.running.lock().contains(id.as_str())).collect();
    if wanted.is_empty() {
        return Ok(Page { entries: Vec::new(), next });
    }
    let mut claim = cmd("XCLAIM");
    claim.arg(stream).arg(group).arg(&queue.consumer).arg(idle);
    for (id, _) in &wanted {
        claim.arg(id);
    }
    let entries = claimed(claim.query_async(connection).await?)?;
    match source {
        Source::Own => {}
        Source::Expired if entries.is_empty() => {}
        Source::Expired => {
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
    if !leases::own_entries(queue, connection).await?.is_empty() {
        return Ok(());
    }
    let PushQueue { stream, group, .. } = &queue.options;
    let mut remove = cmd("XGROUP");
    remove.arg("DELCONSUMER").arg(stream).arg(group).arg(&queue.consumer);
    remove.query_async::<()>(connection).await
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
