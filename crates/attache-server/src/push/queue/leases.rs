//! The leases on the entries that this process works on.

use std::collections::HashSet;
use std::time::Duration;

use attache_redis::Connection;
use attache_redis::redis::RedisError;
use tokio::time::{Instant, MissedTickBehavior};

use super::{EntryId, Queue};

/// How many pending entries of a process are looked at.
pub(super) const MAX_PENDING: usize = 10_000;

/// A process that has not asked for entries for this long, and works on none, is removed from the group.
const ABANDONED: Duration = Duration::from_secs(60 * 60);

/// Renews the leases, for ever.
pub(super) async fn keep(queue: &Queue) {
    let mut ticks = tokio::time::interval(queue.options.lease / 3);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut connection = None;
    let mut cleaned = Instant::now();
    loop {
        ticks.tick().await;
        let renewed = async {
            let connection = match &mut connection {
                Some(connection) => connection,
                none => none.insert(queue.connect().await?),
            };
            renew(queue, connection).await?;
            if cleaned.elapsed() >= ABANDONED {
                cleaned = Instant::now();
                queue.consumer().remove_abandoned(connection, ABANDONED).await?;
            }
            Ok::<_, RedisError>(())
        };
        if let Err(error) = renewed.await {
            // The worker reports outages.
            tracing::debug!(%error, "leases on push jobs could not be renewed");
            connection = None;
        }
    }
}

/// Renews the leases of this process, without taking back what another process has taken over.
async fn renew(queue: &Queue, connection: &mut Connection) -> Result<(), RedisError> {
    let running: Vec<EntryId> = queue.running.lock().iter().cloned().collect();
    if running.is_empty() {
        return Ok(());
    }
    let own = queue.consumer().own(connection, MAX_PENDING).await?;
    let own: HashSet<&str> = own.iter().map(|(id, _)| id.as_str()).collect();
    let kept: Vec<_> = running.iter().filter(|id| own.contains(&***id)).collect();
    if kept.is_empty() {
        return Ok(());
    }
    queue.consumer().refresh(connection, kept.into_iter().map(|id| &**id)).await
}
