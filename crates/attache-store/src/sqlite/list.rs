//! Listing tasks by status time, latest first. The cost depends on the size of the page.
//!
//! The index has the tasks of each state in order. A listing of several states merges these ranges.

use std::sync::Arc;

use attache_core::{Cursor, ListPage, ListQuery, Owner, Snapshot, StoreError, View};
use attache_protocol::TaskState;
use rusqlite::types::Value;
use rusqlite::{CachedStatement, Connection, Row, Rows, params, params_from_iter};

use super::fault::Fault;
use super::rows::{self, Id, nanos_of};
use super::{Inner, counts, read};

/// The position of a task in a listing: its status time and its row id.
pub(super) type Position = (i64, i64);

/// A range of an index, which is read in order.
pub(super) struct Range<'db> {
    statement: CachedStatement<'db>,
    values: Vec<Value>,
}

impl<'db> Range<'db> {
    /// The tasks that fulfil a condition, ordered by `nanos` and `id`. Each state has its own statement text, so that the statement
    /// cache can hold the statements of several states at the same time.
    pub(super) fn new(
        db: &'db Connection,
        index: &str,
        condition: &str,
        direction: &str,
        values: Vec<Value>,
    ) -> Result<Self, Fault> {
        let statement = db.prepare_cached(&format!(
            "SELECT nanos, id FROM tasks INDEXED BY {index} WHERE {condition}
             ORDER BY nanos {direction}, id {direction}"
        ))?;
        Ok(Self { statement, values })
    }

    pub(super) fn start(&mut self) -> Result<Head<'_>, Fault> {
        let mut rows = self.statement.query(params_from_iter(&self.values))?;
        let next = position(rows.next()?)?;
        Ok(Head { rows, next })
    }
}

/// A running read of a range, with its next position.
pub(super) struct Head<'a> {
    rows: Rows<'a>,
    pub(super) next: Option<Position>,
}

impl Head<'_> {
    pub(super) fn advance(&mut self) -> Result<(), Fault> {
        self.next = position(self.rows.next()?)?;
        Ok(())
    }
}

fn position(row: Option<&Row<'_>>) -> Result<Option<Position>, Fault> {
    Ok(row.map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, row.get(1)?))).transpose()?)
}

impl Inner {
    pub(super) async fn list(
        self: &Arc<Self>,
        owner: &Owner,
        query: &ListQuery,
    ) -> Result<ListPage, StoreError> {
        let (owner, query) = (owner.clone(), query.clone());
        self.read_blocking(move |inner, db| {
            // One transaction, so that the page, the total and the tasks belong to one state of the store.
            let db = db.unchecked_transaction()?;
            let Some(owner) = inner.owners.find(&db, &owner)? else {
                return Ok(ListPage { tasks: Vec::new(), next: None, total: 0 });
            };
            let states = counts::by_state(&db, owner)?;
            let states: Vec<_> = states
                .into_iter()
                .filter(|(state, _)| query.state.is_none_or(|wanted| wanted as u8 == *state))
                .collect();
            let total = total(&db, owner, &states, &query)?;
            let (page, more) = page(&db, owner, &states, &query)?;
            let last = page.last().filter(|_| more);
            let next = last.map(|(nanos, row)| Cursor { nanos: *nanos, tie: *row as u64 });
            let tasks = page.into_iter().filter_map(|at| match inner.listed(&db, at, query.view) {
                // A damaged task must not hide the others.
                Err(fault @ Fault::Unreadable { .. }) => {
                    tracing::error!(error = %inner.explain(&fault), "a task is missing from a list");
                    None
                }
                listed => Some(listed),
            });
            let tasks = tasks.collect::<Result<_, _>>()?;
            Ok(ListPage { tasks, next, total })
        })
        .await
    }

    /// Reads a task of a page, with the parts that the view shows.
    fn listed(&self, db: &Connection, (nanos, row): Position, view: View) -> Result<Snapshot, Fault> {
        let history = if view.history == Some(0) { "NULL, NULL" } else { "messages, history" };
        let artifacts = if view.artifacts { "artifacts" } else { "NULL" };
        let mut read = db.prepare_cached(&format!(
            "SELECT state, seq, task_id, head, {history}, {artifacts} FROM tasks WHERE id = ?1"
        ))?;
        let mut rows = read.query(params![row])?;
        let Some(found) = rows.next()? else { return Err(rusqlite::Error::QueryReturnedNoRows.into()) };
        let state = rows::state_of(found.get(0)?);
        let id = rows::task_id(found, 2)?;
        if let Some(seq) = found.get::<_, Option<i64>>(1)? {
            return Ok(Snapshot::ended(rows::seq_of(seq), state, rows::read_ended(found, 3, &id)?));
        }
        // The task in memory can be newer. It is only used if it has the status of the index.
        if let Some(live) = self.live.get(&id)
            && let Some(snapshot) = live.snapshot()
            && (snapshot.state, rows::status_nanos(&snapshot.task())) == (state, nanos)
        {
            return Ok(snapshot);
        }
        let replayed = read::replay(db, row, &id)?;
        Ok(Snapshot::live(replayed.seq, replayed.task))
    }
}

/// The common part of all ranges of a query: the index, the condition and its values.
fn scope(owner: i64, query: &ListQuery) -> (&'static str, &'static str, Vec<Value>) {
    match &query.context {
        None => ("tasks_by_state", "owner = ?1", vec![owner.into()]),
        Some(context) => {
            let context = Id(context.as_str()).to_value();
            ("tasks_by_context", "owner = ?1 AND context = ?2", vec![owner.into(), context])
        }
    }
}

fn page(
    db: &Connection,
    owner: i64,
    states: &[(u8, i64)],
    query: &ListQuery,
) -> Result<(Vec<Position>, bool), Fault> {
    let (index, scope, values) = scope(owner, query);
    let since = query.since.map_or(i64::MIN, nanos_of);
    let mut ranges = Vec::new();
    for (state, _) in states {
        let mut add = |condition: String, more: &[i64]| {
            let mut values = values.clone();
            values.extend(more.iter().map(|value| Value::from(*value)));
            ranges.push(Range::new(db, index, &condition, "DESC", values)?);
            Ok::<_, Fault>(())
        };
        let scope = format!("{scope} AND state = {state}");
        match query.after {
            None => add(format!("{scope} AND nanos >= ?"), &[since])?,
            Some(Cursor { nanos, tie }) => {
                // Two ranges: the rest of the tasks of the same time, and the earlier ones. With one condition, SQLite would skip the
                // tasks of the same time one by one.
                if nanos >= since {
                    let tie = i64::try_from(tie).unwrap_or(i64::MAX);
                    add(format!("{scope} AND nanos = ? AND id < ?"), &[nanos, tie])?;
                }
                add(format!("{scope} AND nanos >= ? AND nanos < ?"), &[since, nanos])?;
            }
        }
    }
    let mut heads = ranges.iter_mut().map(Range::start).collect::<Result<Vec<_>, _>>()?;
    let mut page = Vec::with_capacity(query.limit.min(1024));
    loop {
        let latest = heads.iter_mut().filter(|head| head.next.is_some()).max_by_key(|head| head.next);
        let Some(head) = latest else { return Ok((page, false)) };
        if page.len() == query.limit {
            return Ok((page, true));
        }
        page.extend(head.next);
        head.advance()?;
    }
}

fn total(db: &Connection, owner: i64, states: &[(u8, i64)], query: &ListQuery) -> Result<usize, Fault> {
    let mut total = 0;
    for (state, all) in states {
        total += match (&query.context, query.since) {
            (None, None) => *all,
            (None, Some(since)) => counts::since(db, owner, *state, nanos_of(since))?,
            (Some(context), since) => db
                .prepare_cached(
                    "SELECT count(*) FROM tasks INDEXED BY tasks_by_context
                     WHERE owner = ?1 AND context = ?2 AND state = ?3 AND nanos >= ?4",
                )?
                .query_row(
                    params![owner, Id(context.as_str()), state, since.map_or(i64::MIN, nanos_of)],
                    |row| row.get::<_, i64>(0),
                )?,
        };
    }
    Ok(usize::try_from(total).unwrap_or(0))
}

/// All terminal states.
pub(super) fn terminal_states() -> impl Iterator<Item = TaskState> {
    TaskState::ALL.iter().copied().filter(|state| state.is_terminal())
}
