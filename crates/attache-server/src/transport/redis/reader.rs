//! Reading requests: new ones, those of processes that ended, and those of this process that got lost on the way.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use attache_redis::redis::{RedisError, Value, cmd};
use attache_redis::{Backoff, Connection, Entry, claimed, entries, is_missing_group, pending_ids};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::answer::{self, Slot};
use super::{EntryId, MAX_PENDING, RedisStreams, Shared};

/// How long Redis waits for a request before it says that there is none.
const BLOCK: Duration = Duration::from_secs(2);

/// How many requests are read at once. Their size is known only when they are here.
const MAX_READ: u32 = 16;

/// A process that has not asked for requests for this long, and works on none, is removed from the group.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// Makes the group and its stream, if there are none. Requests that were added before the group was made are answered too.
pub(super) async fn create_group(
    connection: &mut Connection,
    options: &RedisStreams,
) -> Result<(), RedisError> {
    let mut create = cmd("XGROUP");
    create.arg("CREATE").arg(&options.request_stream).arg(&options.group).arg("0-0").arg("MKSTREAM");
    match create.exec_async(connection).await {
        Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
        created => created,
    }
}

/// Reads requests until the server stops. Connects again whenever that is necessary.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut backoff = Backoff::default();
    loop {
        let error = match read(&shared, &mut backoff).await {
            Ok(()) => return,
            Err(error) => error,
        };
        // The group is made again at once. This happens after Redis lost its data.
        if is_missing_group(&error) {
            tracing::warn!(%error, "the consumer group does not exist any more and is made again");
        } else {
            shared.reading.failed(&error);
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.wait()) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

/// Reads requests over one connection until the server stops or the connection fails.
async fn read(shared: &Arc<Shared>, backoff: &mut Backoff) -> Result<(), RedisError> {
    let RedisStreams { request_stream, group, .. } = &shared.options;
    let mut connection = shared.connect().await?;
    create_group(&mut connection, &shared.options).await?;
    shared.reading.ended();
    if !recover(shared, &mut connection).await? {
        return Ok(());
    }
    let (mut cursor, mut next_claim) = ("0-0".to_owned(), Instant::now());
    loop {
        let Some(mut permits) = capacity(shared).await else { return Ok(()) };
        let count = permits.num_permits();
        let found = if next_claim <= Instant::now() {
            let (next, found) = claim(shared, &mut connection, &cursor, count).await?;
            if next == "0-0" {
                next_claim = Instant::now() + (shared.options.claim_after / 2).min(Duration::from_secs(30));
            }
            cursor = next;
            found
        } else {
            let block = BLOCK.min(next_claim.saturating_duration_since(Instant::now()));
            let mut read = cmd("XREADGROUP");
            read.arg("GROUP").arg(group).arg(&shared.consumer).arg("COUNT").arg(count);
            // 0 would mean to wait forever.
            read.arg("BLOCK").arg(block.as_millis().max(1) as u64);
            read.arg("STREAMS").arg(request_stream).arg(">");
            let reply = tokio::select! {
                reply = read.query_async::<Value>(&mut connection) => reply?,
                () = shared.stop.cancelled() => return Ok(()),
            };
            entries(reply)?
        };
        backoff.reset();
        for entry in found {
            let Some(permit) = permits.split(1) else { break };
            if !take(shared, entry, permit).await {
                return Ok(());
            }
        }
    }
}

/// Waits until at least one request can be processed. `None` if the server stops.
async fn capacity(shared: &Arc<Shared>) -> Option<OwnedSemaphorePermit> {
    let mut permits = tokio::select! {
        permit = shared.requests.clone().acquire_owned() => permit.ok()?,
        () = shared.stop.cancelled() => return None,
    };
    for more in (1..MAX_READ).rev() {
        if let Ok(others) = shared.requests.clone().try_acquire_many_owned(more) {
            permits.merge(others);
            break;
        }
    }
    Some(permits)
}

/// Processes the requests that Redis has delivered to this process, but that it does not work on: the connection broke on the way.
/// Returns false if the server stops.
async fn recover(shared: &Arc<Shared>, connection: &mut Connection) -> Result<bool, RedisError> {
    let RedisStreams { request_stream, group, .. } = &shared.options;
    let mut after = "0".to_owned();
    loop {
        let Some(mut permits) = capacity(shared).await else { return Ok(false) };
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(group).arg(&shared.consumer).arg("COUNT").arg(permits.num_permits());
        read.arg("STREAMS").arg(request_stream).arg(&after);
        let found = entries(read.query_async(connection).await?)?;
        let Some(last) = found.last() else { return Ok(true) };
        after.clone_from(&last.id);
        for entry in found {
            let Some(permit) = permits.split(1) else { break };
            if !take(shared, entry, permit).await {
                return Ok(false);
            }
        }
    }
}

/// Takes over requests whose process does not work on them any more. Returns where to go on.
async fn claim(
    shared: &Arc<Shared>,
    connection: &mut Connection,
    cursor: &str,
    count: usize,
) -> Result<(String, Vec<Entry>), RedisError> {
    let RedisStreams { request_stream, group, claim_after, max_deliveries, .. } = &shared.options;
    let mut claim = cmd("XAUTOCLAIM");
    claim.arg(request_stream).arg(group).arg(&shared.consumer).arg(claim_after.as_millis() as u64);
    claim.arg(cursor).arg("COUNT").arg(count);
    let (next, found) = claimed(claim.query_async(connection).await?)?;
    let mut taken = Vec::with_capacity(found.len());
    for entry in found {
        // An outage was longer than the time after which entries are taken over.
        if shared.running.lock().contains_key(entry.id.as_str()) {
            continue;
        }
        let mut pending = cmd("XPENDING");
        pending.arg(request_stream).arg(group).arg(&entry.id).arg(&entry.id).arg(1);
        let deliveries = pending_ids(pending.query_async(connection).await?)?;
        let deliveries = deliveries.first().map_or(0, |(_, deliveries)| *deliveries);
        if deliveries > *max_deliveries {
            let reason = format!("the request was delivered {deliveries} times and never answered");
            tracing::warn!(entry = entry.id, reason, "an entry was refused");
            shared.writer.dead(&entry.id.as_str().into(), reason, entry.fields.unwrap_or_default()).await;
            continue;
        }
        tracing::info!(
            entry = entry.id,
            deliveries,
            "took over a request of a process that does not answer it"
        );
        taken.push(entry);
    }
    Ok((next, taken))
}

/// Processes an entry, unless this process works on it already. Returns false if the server stops before there is memory for it.
async fn take(shared: &Arc<Shared>, entry: Entry, permit: OwnedSemaphorePermit) -> bool {
    let id: EntryId = entry.id.as_str().into();
    if shared.running.lock().contains_key(&id) {
        return true;
    }
    let size = u32::try_from((entry.size() / 1024 + 1).min(shared.memory_size)).unwrap_or(u32::MAX);
    let memory = tokio::select! {
        memory = shared.memory.clone().acquire_many_owned(size) => memory,
        () = shared.stop.cancelled() => return false,
    };
    let Ok(memory) = memory else { return false };
    let Some(fields) = entry.fields else {
        // The entry was deleted, so there is nothing to answer.
        shared.writer.acknowledge(&id).await;
        return true;
    };
    let slot = Slot { _request: permit, _memory: memory };
    let registered = Registered { shared: shared.clone(), id: id.clone() };
    // Locked until the task is in the list, so that it cannot remove itself before.
    let mut running = shared.running.lock();
    let task = shared.tasks.spawn(async move {
        answer::answer(&registered.shared, &registered.id, fields, slot).await;
    });
    running.insert(id, task.abort_handle());
    true
}

/// An entry in the list of those that are processed, until dropped.
struct Registered {
    shared: Arc<Shared>,
    id: EntryId,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.running.lock().remove(&self.id);
    }
}

/// Refreshes the claim on the requests that are processed, until the task is aborted.
pub(super) async fn keep_claims(shared: Arc<Shared>) {
    let mut ticks = tokio::time::interval(shared.options.claim_after / 3);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut connection = None;
    let mut cleaned = Instant::now();
    loop {
        ticks.tick().await;
        let refreshed = async {
            let connection = match &mut connection {
                Some(connection) => connection,
                none => none.insert(shared.connect().await?),
            };
            refresh(&shared, connection).await?;
            if cleaned.elapsed() >= ABANDONED {
                cleaned = Instant::now();
                remove_abandoned(&shared, connection).await?;
            }
            Ok::<_, RedisError>(())
        };
        if let Err(error) = refreshed.await {
            // The reader reports outages.
            tracing::debug!(%error, "claims on requests could not be refreshed");
            connection = None;
        }
    }
}

/// Refreshes the claims of this process. What another process has taken over meanwhile is not continued here.
async fn refresh(shared: &Arc<Shared>, connection: &mut Connection) -> Result<(), RedisError> {
    let RedisStreams { request_stream, group, .. } = &shared.options;
    let running: Vec<EntryId> = shared.running.lock().keys().cloned().collect();
    if running.is_empty() {
        return Ok(());
    }
    let mut pending = cmd("XPENDING");
    pending.arg(request_stream).arg(group).arg("-").arg("+").arg(MAX_PENDING).arg(&shared.consumer);
    let own = pending_ids(pending.query_async(connection).await?)?;
    let own: HashSet<&str> = own.iter().map(|(id, _)| id.as_str()).collect();
    let (kept, lost): (Vec<_>, Vec<_>) = running.iter().partition(|id| own.contains(&***id));
    for id in lost {
        // Most of them have been answered since.
        if let Some(task) = shared.running.lock().get(id) {
            tracing::debug!(entry = %id, "another process has taken over a request");
            task.abort();
        }
    }
    if kept.is_empty() {
        return Ok(());
    }
    let mut claim = cmd("XCLAIM");
    claim.arg(request_stream).arg(group).arg(&shared.consumer).arg(0);
    for id in kept {
        claim.arg(&**id);
    }
    claim.arg("JUSTID");
    claim.exec_async(connection).await
}

/// Removes processes from the group that are gone and have nothing to take over.
async fn remove_abandoned(shared: &Arc<Shared>, connection: &mut Connection) -> Result<(), RedisError> {
    let RedisStreams { request_stream, group, .. } = &shared.options;
    let mut list = cmd("XINFO");
    list.arg("CONSUMERS").arg(request_stream).arg(group);
    let consumers: Vec<std::collections::HashMap<String, Value>> = list.query_async(connection).await?;
    for consumer in consumers {
        let number = |name| match consumer.get(name) {
            Some(Value::Int(number)) => u64::try_from(*number).ok(),
            Some(_) | None => None,
        };
        let Some(Value::BulkString(name)) = consumer.get("name") else { continue };
        let is_gone = number("idle").is_some_and(|idle| u128::from(idle) > ABANDONED.as_millis());
        if is_gone && number("pending") == Some(0) && *name != shared.consumer.as_bytes() {
            let mut remove = cmd("XGROUP");
            remove.arg("DELCONSUMER").arg(request_stream).arg(group).arg(name);
            remove.exec_async(connection).await?;
        }
    }
    Ok(())
}
