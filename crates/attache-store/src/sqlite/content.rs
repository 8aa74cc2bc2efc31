//! The stored content that tasks refer to.

use attache_core::{ContentId, Snapshot, agent_parts, referenced_content};
use attache_protocol::TaskId;
use rusqlite::{Connection, params};

use super::fault::Fault;
use super::{read, rows};

/// The number of tasks in one transaction. Between two transactions, the server can restart its write-ahead log.
const BATCH_TASKS: i64 = 256;

/// Calls a function for each reference to stored content. A damaged task is left out: the check of the store reports it.
pub(super) fn for_each(
    db: &Connection,
    each: &mut dyn FnMut(&TaskId, &ContentId, Option<&str>),
) -> Result<(), Fault> {
    let mut after = 0;
    while batch(db, &mut after, each)? {}
    Ok(())
}

/// Reads the next tasks. Returns whether there were any.
fn batch(
    db: &Connection,
    after: &mut i64,
    each: &mut dyn FnMut(&TaskId, &ContentId, Option<&str>),
) -> Result<bool, Fault> {
    let db = db.unchecked_transaction()?;
    let mut read = db.prepare_cached(
        "SELECT id, task_id, state, seq, head, messages, history, artifacts FROM tasks
         WHERE id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let mut tasks = read.query(params![*after, BATCH_TASKS])?;
    let mut any = false;
    while let Some(row) = tasks.next()? {
        (*after, any) = (row.get(0)?, true);
        let id = rows::task_id(row, 1)?;
        let task = match row.get::<_, Option<i64>>(3)? {
            Some(seq) => rows::read_ended(row, 4, &id).map(|ended| {
                let snapshot = Snapshot::ended(rows::seq_of(seq), rows::state_of(row.get(2)?), ended);
                Ok::<_, Fault>(snapshot.task().into_owned())
            }),
            None => read::replay(&db, row.get(0)?, &id).map(|replayed| Ok(replayed.task)),
        };
        let task = match task {
            Ok(task) => task?,
            Err(Fault::Unreadable { .. } | Fault::Keyring(_)) => continue,
            Err(fault @ (Fault::Sqlite(_) | Fault::Replaced(_))) => return Err(fault),
        };
        for part in agent_parts(&task) {
            if let Some(content) = referenced_content(part) {
                each(&id, &content, part.filename.as_deref());
            }
        }
    }
    Ok(any)
}
