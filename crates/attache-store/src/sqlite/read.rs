//! Reading: connections that read while others write, and tasks and events from their rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_core::{Entry, Owner, Seq, Snapshot, TaskEvent, fold};
use attache_protocol::{Task, TaskId, TaskState};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::Semaphore;

use super::fault::Fault;
use super::live::{Live, Phase};
use super::owners;
use super::rows::{self, Id, MAX_SEQ, place};

/// Connections that read.
///
/// Reading one row takes about as long as handing the work to another thread, so it is done where it is asked for. What reads
/// many rows goes to a thread that may wait, and leaves at least one connection to the others.
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

/// Where a task is kept.
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

/// What reading a task by its id brings.
pub(super) enum Loaded {
    /// It is not the owner's, or there is none.
    Nothing,
    Ended(Snapshot),
    Live,
}

/// Reads a task of an owner's by its id.
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

/// A task that has not ended, from its snapshot and what came after.
pub(super) struct Unfolded {
    pub(super) seq: Seq,
    pub(super) task: Task,
    /// How many bytes of events came after the snapshot, and how large that is.
    pub(super) unsaved: usize,
    pub(super) saved: Option<usize>,
}

/// Reads a task that has not ended. To be called within a transaction.
pub(super) fn unfold(db: &Connection, row: i64, id: &TaskId) -> Result<Unfolded, Fault> {
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
    let mut log = read.query(params![place(row, seq.0), place(row + 1, 0)])?;
    while let Some(next) = log.next()? {
        let events = next.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        unsaved += events.len();
        let events = rows::read_events(next.get(0)?, events);
        for (place, event) in events.map_err(|error| rows::unreadable("the log", id, error))? {
            seq = place;
            match event {
                TaskEvent::Created(created) => task = Arc::unwrap_or_clone(created),
                event @ (TaskEvent::Message(_) | TaskEvent::Status(_) | TaskEvent::Artifact(_)) => {
                    if let Err(error) = fold(&mut task, event) {
                        tracing::error!(task = %id, %seq, %error, "an event in the log cannot have happened");
                    }
                }
            }
        }
    }
    Ok(Unfolded { seq, task, unsaved, saved })
}

/// A task for those who work on it or follow it; nothing if it has ended or there is none.
pub(super) fn live(db: &Connection, task: &TaskId) -> Result<Option<Live>, Fault> {
    let db = db.unchecked_transaction()?;
    let Some(found) = find(&db, task)?.filter(|found| found.end.is_none()) else { return Ok(None) };
    let Unfolded { seq, task: value, unsaved, saved } = unfold(&db, found.row, task)?;
    let owner = owner(&db, found.owner)?;
    let hooked =
        db.prepare_cached("SELECT 1 FROM webhooks WHERE task = ?1 LIMIT 1")?.exists(params![found.row])?;
    let live = Live::new(task.clone(), found.row, owner, Phase::Live, seq, value);
    live.hooked.store(hooked, Ordering::Relaxed);
    {
        let mut inner = live.lock();
        (inner.unsaved, inner.saved) = (unsaved, saved);
    }
    Ok(Some(live))
}

pub(super) fn owner(db: &Connection, number: i64) -> Result<Owner, Fault> {
    let mut read = db.prepare_cached("SELECT tenant, principal FROM owners WHERE id = ?1")?;
    Ok(read.query_row(params![number], |row| owners::read(row, 0))?)
}

/// About how many bytes of the log are read at a time.
pub(super) const STRETCH: usize = 256 * 1024;

/// Events after a position, at least one and about as many bytes of them as `stretch` says. Nothing if they are not kept.
pub(super) fn log_after(
    db: &Connection,
    row: i64,
    id: &TaskId,
    after: Seq,
    stretch: usize,
) -> Result<Option<Vec<Arc<Entry>>>, Fault> {
    if after.0 >= MAX_SEQ {
        return Ok(None);
    }
    // The row that has the next event may begin before it.
    let mut read = db.prepare_cached(
        "SELECT id, events FROM log
         WHERE id >= ifnull((SELECT max(id) FROM log WHERE id BETWEEN ?1 AND ?2), ?2) AND id < ?3 ORDER BY id",
    )?;
    let mut log = read.query(params![place(row, 0), place(row, after.0 + 1), place(row + 1, 0)])?;
    let (mut entries, mut bytes) = (Vec::<Arc<Entry>>::new(), 0);
    while bytes < stretch
        && let Some(next) = log.next()?
    {
        let events = next.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        bytes += events.len();
        let events = rows::read_events(next.get(0)?, events);
        let events = events.map_err(|error| rows::unreadable("the log", id, error))?;
        entries.extend(rows::entries(events).filter(|entry| entry.seq > after));
    }
    let unbroken = entries.first().is_some_and(|first| first.seq == after.plus(1));
    Ok(unbroken.then_some(entries))
}
