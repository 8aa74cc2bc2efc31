//! Reading the requests that other processes leave to this one.

use std::sync::Arc;

use attache_redis::redis::{RedisError, cmd};
use attache_redis::{Backoff, Connection};

use super::Shared;
use super::answer::Slot;
use super::members::{MemberId, Members, parse_left};
use super::reader::{Registered, kib};

/// How long Redis waits for a request before it says that there is none, in seconds.
const BLOCK: u64 = 2;

/// Tells the other processes that this one is there, until the task is aborted.
pub(super) async fn show(shared: Arc<Shared>) {
    let Some(members) = &shared.members else { return };
    let mut ticks = tokio::time::interval(members.interval());
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = members.show().await {
            // The reader reports outages.
            tracing::debug!(%error, "the other servers of the group could not be told that this one is there");
        }
    }
}

/// Processes what other processes leave to this one, until the server stops. Connects again whenever that is necessary.
pub(super) async fn run(shared: Arc<Shared>) {
    let Some(members) = &shared.members else { return };
    let mut backoff = Backoff::default();
    while let Err(error) = read(&shared, members, &mut backoff).await {
        tracing::debug!(%error, "requests that other servers leave to this one could not be read");
        tokio::select! {
            () = tokio::time::sleep(backoff.wait()) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

/// Reads over one connection until the server stops or the connection fails.
async fn read(shared: &Arc<Shared>, members: &Members, backoff: &mut Backoff) -> Result<(), RedisError> {
    let mut connection = shared.connect().await?;
    loop {
        let next = async {
            // These requests have places of their own: the reader of the stream keeps those that it may need.
            let Ok(place) = shared.left.clone().acquire_owned().await else { return Ok(None) };
            let mut pop = cmd("BLPOP");
            let reply: Option<(String, String)> =
                pop.arg(members.inbox()).arg(BLOCK).query_async(&mut connection).await?;
            Ok::<_, RedisError>(reply.map(|(_, text)| (place, text)))
        };
        let popped = tokio::select! {
            popped = next => popped?,
            () = shared.stop.cancelled() => return Ok(()),
        };
        backoff.reset();
        if let Some((place, text)) = popped
            && let Some((id, visited)) = parse_left(&text)
        {
            let slot = (place, visited);
            if !take(shared, &mut connection, id, slot).await? {
                return Ok(());
            }
        }
    }
}

/// Takes one request from the process that has left it. Returns false if the server stops before there is memory for it.
async fn take(
    shared: &Arc<Shared>,
    connection: &mut Connection,
    id: &str,
    (place, visited): (tokio::sync::OwnedSemaphorePermit, Vec<MemberId>),
) -> Result<bool, RedisError> {
    let Some(registered) = Registered::new(shared, id.into()) else { return Ok(true) };
    // Without it, the request has been answered since.
    let Some(entry) = shared.consumer().take_delivery(connection, id).await? else { return Ok(true) };
    let size = kib(entry.size());
    let Some(fields) = entry.fields else { return Ok(true) };
    let size = u32::try_from(size.min(shared.memory_size)).unwrap_or(u32::MAX);
    let memory = tokio::select! {
        memory = shared.memory.clone().acquire_many_owned(size) => memory,
        () = shared.stop.cancelled() => return Ok(false),
    };
    let Ok(memory) = memory else { return Ok(false) };
    if !registered.is_lost() {
        registered.process(fields, Slot { request: Some(place), _memory: memory }, visited);
    }
    Ok(true)
}
