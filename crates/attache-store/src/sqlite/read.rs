//! Reading: the connections for it, and how tasks and events are read from their rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_core::{Entry, Owner, Seq, Snapshot, TaskEvent, fold};
use attache_protocol::{Task, TaskId, TaskState};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Semaphore;

use super::fault::Fault;
use super::live::{LiveTask, Phase};
use super::owners;
use super::rows::{self, Id, MAX_SEQ, log_id};

/// The connections for reading. They work while the writer writes.
///
/// Reading one row takes about as long as a switch to another thread, so the calling thread reads it. A query for many rows runs on a
/// thread that may block. `heavy` limits these queries, so that one connection is left for short reads.
pub(super) struct Readers {
    all: Vec<Mutex<Connection>>,
    next: AtomicUsize,
    pub(super) heavy: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(all: Vec<Connection>) -> Self {
        let heavy = Arc::new(Semaphore::new(all.len().saturating_sub(1).max(1)));
        Self { all: all.into_iter().map(Mutex::new).collect(), next: AtomicUsize::new(0), heavy }
    }

    pub(super) fn get(&self) -> MutexGuard<'_, Connection> {
        if let Some(free) = self.all.iter().find_map(Mutex::try_lock) {
            return free;
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.all[next % self.all.len()].lock()
    }
}

/// The row of a task, without its content.
pub(super) struct Found {
    pub(super) row: i64,
    pub(super) owner: i64,
    pub(super) state: TaskState,
    /// The last event, if the task has ended.
    pub(super) end: Option<Seq>,
}

pub(super) fn find(db: &Connection, task: &TaskId) -> Result<Option<Found>, Fault> {
    let mut find = db.prepare_cached("SELECT id, owner, state, seq FROM tasks WHERE task_id = ?1")?;
    let found = find.query_row(params![Id(task.as_str())], |row| {
        Ok(Found {
            row: row.get(0)?,
            owner: row.get(1)?,
            state: rows::state_of(row.get(2)?),
            end: row.get::<_, Option<i64>>(3)?.map(rows::seq_of),
        })
    });
    Ok(found.optional()?)
}

/// The result of reading a task by its id.
pub(super) enum Loaded {
    /// There is no such task, or it belongs to another owner.
    Nothing,
    Ended(Snapshot),
    Live,
}

/// Reads a task of an owner by its id.
pub(super) fn load(db: &Connection, owner: i64, task: &TaskId) -> Result<Loaded, Fault> {
    let mut read = db.prepare_cached(
        "SELECT owner, state, seq, head, messages, history, artifacts FROM tasks WHERE task_id = ?1",
    )?;
    let mut rows = read.query(params![Id(task.as_str())])?;
    let Some(row) = rows.next()? else { return Ok(Loaded::Nothing) };
    if row.get::<_, i64>(0)? != owner {
        return Ok(Loaded::Nothing);
    }
    Ok(match row.get::<_, Option<i64>>(2)? {
        None => Loaded::Live,
        Some(seq) => {
            let (seq, state) = (rows::seq_of(seq), rows::state_of(row.get(1)?));
            Loaded::Ended(Snapshot::ended(seq, state, rows::read_ended(row, 3, task)?))
        }
    })
}

/// A task that has not ended, as its snapshot and its later events give it.
pub(super) struct Replayed {
    pub(super) seq: Seq,
    pub(super) task: Task,
    /// The bytes of events after the snapshot, and the size of the snapshot.
    pub(super) unsaved: usize,
    pub(super) saved: Option<usize>,
}

/// Reads a task that has not ended. Call it within a transaction.
pub(super) fn replay(db: &Connection, row: i64, id: &TaskId) -> Result<Replayed, Fault> {
    let mut read = db.prepare_cached("SELECT seq, body FROM snapshots WHERE task = ?1")?;
    let saved = read
        .query_row(params![row], |row| Ok((rows::seq_of(row.get(0)?), row.get_ref(1)?.as_blob()?.to_vec())));
    let (mut seq, mut task, saved) = match saved.optional()? {
        Some((seq, body)) => {
            let task = serde_json::from_slice(&body);
            (seq, task.map_err(|error| rows::unreadable("the snapshot", id, error))?, Some(body.len()))
        }
        None => (Seq::START, Task::default(), None),
    };
    let mut unsaved = 0;
    let mut read = db.prepare_cached("SELECT id, events FROM log WHERE id > ?1 AND id < ?2 ORDER BY id")?;
    let mut log = read.query(params![log_id(row, seq.0), log_id(row + 1, 0)])?;
    while let Some(next) = log.next()? {
        let events = rows::blob(next, 1)?;
        unsaved += events.len();
        let events = rows::read_events(next.get(0)?, events);
        for (position, event) in events.map_err(|error| rows::unreadable("the log", id, error))? {
            seq = position;
            match event {
                TaskEvent::Created(created) => task = Arc::unwrap_or_clone(created),
                event @ (TaskEvent::Message(_) | TaskEvent::Status(_) | TaskEvent::Artifact(_)) => {
                    if let Err(error) = fold(&mut task, event) {
                        tracing::error!(task = %id, %seq, %error, "an event in the log does not fit the task");
                    }
                }
            }
        }
    }
    Ok(Replayed { seq, task, unsaved, saved })
}

/// Reads a live task for the memory. `None` if it has ended or does not exist.
pub(super) fn live(db: &Connection, task: &TaskId) -> Result<Option<LiveTask>, Fault> {
    let db = db.unchecked_transaction()?;
    let Some(found) = find(&db, task)?.filter(|found| found.end.is_none()) else { return Ok(None) };
    let Replayed { seq, task: value, unsaved, saved } = replay(&db, found.row, task)?;
    let owner = owner(&db, found.owner)?;
    let hooked =
        db.prepare_cached("SELECT 1 FROM webhooks WHERE task = ?1 LIMIT 1")?.exists(params![found.row])?;
    let live = LiveTask::new(task.clone(), found.row, owner, Phase::Live, seq, value);
    live.may_have_webhooks.store(hooked, Ordering::Relaxed);
    {
        let mut inner = live.lock();
        (inner.unsaved, inner.saved) = (unsaved, saved);
    }
    Ok(Some(live))
}

pub(super) fn owner(db: &Connection, number: i64) -> Result<Owner, Fault> {
    let mut read = db.prepare_cached("SELECT tenant, principal, agent FROM owners WHERE id = ?1")?;
    Ok(read.query_row(params![number], |row| owners::read(row, 0))?)
}

/// About how many bytes of the log one read returns.
pub(super) const READ_BYTES: usize = 256 * 1024;

/// Reads events after a position: at least one, and about `max_bytes` bytes. `None` if the next event is not in the log.
pub(super) fn log_after(
    db: &Connection,
    row: i64,
    id: &TaskId,
    after: Seq,
    max_bytes: usize,
) -> Result<Option<Vec<Arc<Entry>>>, Fault> {
    if after.0 >= MAX_SEQ {
        return Ok(None);
    }
    // A row holds the events of one append, so the row of the next event can begin with an earlier one.
    let mut read = db.prepare_cached(
        "SELECT id, events FROM log
         WHERE id >= ifnull((SELECT max(id) FROM log WHERE id BETWEEN ?1 AND ?2), ?2) AND id < ?3 ORDER BY id",
    )?;
    let mut log = read.query(params![log_id(row, 0), log_id(row, after.0 + 1), log_id(row + 1, 0)])?;
    let (mut entries, mut bytes) = (Vec::<Arc<Entry>>::new(), 0);
    while bytes < max_bytes
        && let Some(next) = log.next()?
    {
        let events = rows::blob(next, 1)?;
        bytes += events.len();
        let events = rows::read_events(next.get(0)?, events);
        let events = events.map_err(|error| rows::unreadable("the log", id, error))?;
        entries.extend(rows::entries(events).filter(|entry| entry.seq > after));
    }
    let unbroken = entries.first().is_some_and(|first| first.seq == after.plus(1));
    Ok(unbroken.then_some(entries))
}
