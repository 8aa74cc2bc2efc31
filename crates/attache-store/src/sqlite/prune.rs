//! Pruning: deleting tasks that have ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use attache_core::{Retention, StoreError};
use attache_protocol::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};

use super::fault::Fault;
use super::list::{Range, terminal_states};
use super::rows::{self, log_range, nanos_of};
use super::writer::{Batch, Command};
use super::{Inner, ResultSender, counts, outbox_rows, webhook_rows};

impl Inner {
    pub(super) async fn prune(
        self: &Arc<Self>,
        retention: Retention,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        if retention == Retention::default() || limit == 0 {
            return Ok(0);
        }
        let expired = self
            .read_blocking(move |inner, db| {
                let from = inner.pruned.load(Ordering::Relaxed);
                let (expired, last) = expired(db, retention, now, limit, from)?;
                inner.pruned.store(last, Ordering::Relaxed);
                Ok(expired)
            })
            .await?;
        if expired.is_empty() {
            return Ok(0);
        }
        self.write(|sender| Box::new(Prune { rows: expired, pruned: 0, sender })).await
    }
}

/// The rows of tasks to prune, beginning with the owner `from`, and the last owner that was examined.
fn expired(
    db: &Connection,
    retention: Retention,
    now: Timestamp,
    limit: usize,
    from: i64,
) -> Result<(Vec<i64>, i64), Fault> {
    let db = db.unchecked_transaction()?;
    let before = retention.max_age.map_or(i64::MIN, |age| {
        nanos_of(now).saturating_sub(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
    });
    let mut owners = db.prepare_cached("SELECT id FROM owners ORDER BY id < ?1, id")?;
    let mut owners = owners.query(params![from])?;
    let (mut expired, mut last) = (Vec::new(), from);
    while expired.len() < limit
        && let Some(owner) = owners.next()?
    {
        last = owner.get(0)?;
        expired_of(&db, last, before, retention.max_tasks, limit, &mut expired)?;
    }
    Ok((expired, last))
}

fn expired_of(
    db: &Connection,
    owner: i64,
    before: i64,
    keep: Option<usize>,
    limit: usize,
    expired: &mut Vec<i64>,
) -> Result<(), Fault> {
    let states = counts::by_state(db, owner)?;
    let ended = |state: u8| terminal_states().any(|terminal| terminal as u8 == state);
    let states: Vec<_> = states.into_iter().filter(|(state, _)| ended(*state)).collect();
    let count: i64 = states.iter().map(|(_, count)| count).sum();
    let keep = keep.map_or(i64::MAX, |keep| i64::try_from(keep).unwrap_or(i64::MAX));
    let mut beyond = count.saturating_sub(keep).max(0);
    let mut ranges = Vec::new();
    for (state, _) in states {
        let condition = format!("owner = ?1 AND state = {state}");
        ranges.push(Range::new(db, "tasks_by_state", &condition, "ASC", vec![Value::from(owner)])?);
    }
    let mut heads = ranges.iter_mut().map(Range::start).collect::<Result<Vec<_>, _>>()?;
    while expired.len() < limit {
        let oldest = heads.iter_mut().filter(|head| head.next.is_some()).min_by_key(|head| head.next);
        let Some(head) = oldest else { break };
        let Some((_, row)) = head.next.filter(|(nanos, _)| beyond > 0 || *nanos < before) else { break };
        beyond = (beyond - 1).max(0);
        if !outbox_rows::has_pending(db, row)? {
            expired.push(row);
        }
        head.advance()?;
    }
    Ok(())
}

struct Prune {
    rows: Vec<i64>,
    pruned: usize,
    sender: ResultSender<usize>,
}

impl Command for Prune {
    fn execute(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault> {
        self.pruned = 0;
        for row in &self.rows {
            self.pruned += usize::from(delete(batch, *row)?);
        }
        Ok(())
    }

    fn finish(self: Box<Self>, written: Result<(), StoreError>) {
        let _ = self.sender.send(written.map(|()| self.pruned));
    }
}

/// Deletes a task with all its rows. Keeps a task with pending deliveries. Returns whether the task was deleted.
fn delete(batch: &mut Batch<'_>, row: i64) -> Result<bool, Fault> {
    let db = batch.db;
    if outbox_rows::has_pending(db, row)? {
        return Ok(false);
    }
    let task = db
        .prepare_cached("DELETE FROM tasks WHERE id = ?1 AND seq IS NOT NULL RETURNING owner, state, nanos")?
        .query_row(params![row], |row| Ok((row.get(0)?, rows::state_of(row.get(1)?), row.get(2)?)))
        .optional()?;
    let Some((owner, state, nanos)) = task else { return Ok(false) };
    batch.counts.remove(owner, state, nanos);
    webhook_rows::delete_all(db, row)?;
    db.prepare_cached("DELETE FROM keys WHERE task = ?1")?.execute(params![row])?;
    db.prepare_cached("DELETE FROM log WHERE id >= ?1 AND id < ?2")?.execute(log_range(row))?;
    Ok(true)
}
