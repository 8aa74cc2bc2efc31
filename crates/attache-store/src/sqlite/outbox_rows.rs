//! The rows of deliveries, pending and dead. The server uses them, and the maintenance commands in other processes.

use attache_core::{DeadDelivery, DeliveryId, Outcome, PendingDelivery, Seq, TaskEvent};
use attache_protocol::{TaskId, TaskPushNotificationConfig, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::fault::Fault;
use super::rows::{self, nanos_of, time_of};
use super::webhook_rows;

/// Queues events for a webhook. Returns whether its queue was empty before.
pub(super) fn enqueue(
    db: &Connection,
    webhook: i64,
    receiver: &str,
    events: &[Seq],
    now: i64,
) -> Result<bool, Fault> {
    if events.is_empty() {
        return Ok(false);
    }
    let mut queue =
        db.prepare_cached("INSERT INTO outbox (webhook, seq, at, attempts) VALUES (?1, ?2, ?3, 0)")?;
    for seq in events {
        queue.execute(params![webhook, seq.0 as i64, now])?;
    }
    let due = db
        .prepare_cached(
            "INSERT INTO queues (webhook, receiver, due) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?
        .execute(params![webhook, receiver, now])?;
    Ok(due > 0)
}

/// Queues the events after a position for all webhooks of a task that subscribe to them. Returns whether one of the queues was empty
/// before.
pub(super) fn enqueue_all(
    db: &Connection,
    task: i64,
    after: Seq,
    events: &[TaskEvent],
    now: i64,
) -> Result<bool, Fault> {
    let mut read = db.prepare_cached("SELECT id, news, receiver FROM webhooks WHERE task = ?1")?;
    let mut webhooks = read.query(params![task])?;
    let mut grown = false;
    while let Some(row) = webhooks.next()? {
        let wanted = webhook_rows::events_of(row.get(1)?);
        let included = events.iter().enumerate().filter(|(_, event)| wanted.includes(event));
        let included: Vec<_> = included.map(|(i, _)| after.plus(i + 1)).collect();
        grown |= enqueue(db, row.get(0)?, &row.get::<_, String>(2)?, &included, now)?;
    }
    Ok(grown)
}

/// Sets the time at which a webhook is due next. `None` removes it from the queues.
fn schedule(db: &Connection, webhook: i64, due: Option<i64>) -> Result<(), Fault> {
    match due {
        Some(due) => db
            .prepare_cached("UPDATE queues SET due = ?2 WHERE webhook = ?1")?
            .execute(params![webhook, due])?,
        None => db.prepare_cached("DELETE FROM queues WHERE webhook = ?1")?.execute(params![webhook])?,
    };
    Ok(())
}

/// Removes an event from the queue of a webhook, and schedules the next one. Returns the number of attempts so far.
fn dequeue(db: &Connection, webhook: i64, seq: Seq) -> Result<Option<u32>, Fault> {
    let attempts = db
        .prepare_cached("DELETE FROM outbox WHERE webhook = ?1 AND seq = ?2 RETURNING attempts")?
        .query_row(params![webhook, seq.0 as i64], |row| row.get(0))
        .optional()?;
    if attempts.is_some() {
        let next = db
            .prepare_cached("SELECT at FROM outbox WHERE webhook = ?1 ORDER BY seq LIMIT 1")?
            .query_row(params![webhook], |row| row.get(0))
            .optional()?;
        schedule(db, webhook, next)?;
    }
    Ok(attempts)
}

/// Records the outcome of a delivery. Returns the webhook, or `None` if the delivery is no longer queued.
pub(super) fn settle(db: &Connection, id: &DeliveryId, outcome: &Outcome) -> Result<Option<i64>, Fault> {
    let Some(webhook) = webhook_rows::find(db, &id.task, &id.webhook)? else { return Ok(None) };
    let seq = id.seq.0 as i64;
    let (again, more) = match outcome {
        Outcome::Delivered => return Ok(dequeue(db, webhook, id.seq)?.map(|_| webhook)),
        Outcome::GivenUp { at, error } => {
            let Some(attempts) = dequeue(db, webhook, id.seq)? else { return Ok(None) };
            db.prepare_cached(
                "INSERT INTO dead (webhook, seq, attempts, at, error) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![webhook, seq, attempts + 1, nanos_of(*at), error])?;
            return Ok(Some(webhook));
        }
        Outcome::Postponed(again) => (again, 0),
        Outcome::Failed { again, error: _ } => (again, 1),
    };
    let tried = db
        .prepare_cached("UPDATE outbox SET attempts = attempts + ?3 WHERE webhook = ?1 AND seq = ?2")?
        .execute(params![webhook, seq, more])?;
    if tried == 0 {
        return Ok(None);
    }
    schedule(db, webhook, Some(nanos_of(*again)))?;
    Ok(Some(webhook))
}

/// Whether a task has pending deliveries.
pub(super) fn has_pending(db: &Connection, task: i64) -> Result<bool, Fault> {
    let mut has_pending = db.prepare_cached(
        "SELECT 1 FROM webhooks JOIN outbox ON outbox.webhook = webhooks.id WHERE webhooks.task = ?1 LIMIT 1",
    )?;
    Ok(has_pending.exists(params![task])?)
}

/// Pending deliveries, oldest first.
pub(super) fn list_pending(db: &Connection, limit: usize) -> Result<Vec<PendingDelivery>, Fault> {
    // Only the first delivery of a webhook is due.
    let mut read = db.prepare_cached(
        "SELECT tasks.task_id, webhooks.name, outbox.seq, webhooks.config, outbox.attempts, outbox.at,
                CASE WHEN outbox.seq = (SELECT min(first.seq) FROM outbox AS first WHERE first.webhook = outbox.webhook)
                     THEN queues.due END
         FROM outbox JOIN webhooks ON webhooks.id = outbox.webhook JOIN tasks ON tasks.id = webhooks.task
              LEFT JOIN queues ON queues.webhook = outbox.webhook
         ORDER BY outbox.at, outbox.webhook, outbox.seq LIMIT ?1",
    )?;
    let mut rows = read.query(params![i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut pending = Vec::new();
    while let Some(row) = rows.next()? {
        let task = rows::task_id(row, 0)?;
        pending.push(PendingDelivery {
            url: url_of(row, 3, &task)?,
            id: DeliveryId { task, webhook: row.get(1)?, seq: rows::seq_of(row.get(2)?) },
            attempts: row.get(4)?,
            since: time_of(row.get(5)?),
            due: row.get::<_, Option<i64>>(6)?.map(time_of),
        });
    }
    Ok(pending)
}

/// The URL of a webhook, of which a column has the configuration.
fn url_of(row: &rusqlite::Row<'_>, column: usize, task: &TaskId) -> Result<String, Fault> {
    let config: TaskPushNotificationConfig = serde_json::from_slice(rows::blob(row, column)?)
        .map_err(|error| rows::unreadable("a webhook", task, error))?;
    Ok(config.url)
}

/// The row id of a dead delivery.
fn find_dead(db: &Connection, id: &DeliveryId) -> Result<Option<i64>, Fault> {
    let Some(webhook) = webhook_rows::find(db, &id.task, &id.webhook)? else { return Ok(None) };
    let mut find = db.prepare_cached("SELECT id FROM dead WHERE webhook = ?1 AND seq = ?2")?;
    Ok(find.query_row(params![webhook, id.seq.0 as i64], |row| row.get(0)).optional()?)
}

pub(super) fn list_dead(
    db: &Connection,
    after: Option<&DeliveryId>,
    limit: usize,
) -> Result<Vec<DeadDelivery>, Fault> {
    let after = match after {
        None => None,
        Some(id) => find_dead(db, id)?,
    };
    let mut read = db.prepare_cached(
        "SELECT tasks.task_id, webhooks.name, dead.seq, webhooks.config, dead.attempts, dead.at, dead.error
         FROM dead JOIN webhooks ON webhooks.id = dead.webhook JOIN tasks ON tasks.id = webhooks.task
         WHERE dead.id > ?1 ORDER BY dead.id LIMIT ?2",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = read.query(params![after.unwrap_or(0), limit])?;
    let mut dead = Vec::new();
    while let Some(row) = rows.next()? {
        let task = rows::task_id(row, 0)?;
        dead.push(DeadDelivery {
            url: url_of(row, 3, &task)?,
            id: DeliveryId { task, webhook: row.get(1)?, seq: rows::seq_of(row.get(2)?) },
            attempts: row.get(4)?,
            at: time_of(row.get(5)?),
            error: row.get(6)?,
        });
    }
    Ok(dead)
}

/// The row ids of one dead delivery, or of all.
fn select_dead(db: &Connection, id: Option<&DeliveryId>) -> Result<Vec<i64>, Fault> {
    if let Some(id) = id {
        return Ok(find_dead(db, id)?.into_iter().collect());
    }
    let mut read = db.prepare_cached("SELECT id FROM dead ORDER BY id")?;
    Ok(read.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// Queues one dead delivery again, or all. Returns their number. Call it within a transaction.
pub(super) fn retry_dead(db: &Connection, id: Option<&DeliveryId>, now: Timestamp) -> Result<usize, Fault> {
    let now = nanos_of(now);
    let chosen = select_dead(db, id)?;
    for dead in &chosen {
        let (webhook, seq): (i64, i64) = db
            .prepare_cached("DELETE FROM dead WHERE id = ?1 RETURNING webhook, seq")?
            .query_row(params![dead], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let receiver: String = db
            .prepare_cached("SELECT receiver FROM webhooks WHERE id = ?1")?
            .query_row(params![webhook], |row| row.get(0))?;
        enqueue(db, webhook, &receiver, &[rows::seq_of(seq)], now)?;
    }
    Ok(chosen.len())
}

/// Deletes one dead delivery, or all. Returns their number.
pub(super) fn purge_dead(db: &Connection, id: Option<&DeliveryId>) -> Result<usize, Fault> {
    let chosen = select_dead(db, id)?;
    for dead in &chosen {
        db.prepare_cached("DELETE FROM dead WHERE id = ?1")?.execute(params![dead])?;
    }
    Ok(chosen.len())
}
