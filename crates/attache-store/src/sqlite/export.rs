//! Writing a store out as lines of JSON.

use std::io::Write;

use attache_core::{Owner, Snapshot, View};
use attache_protocol::TaskId;
use rusqlite::{Connection, Row, params};

use super::fault::Fault;
use super::maintenance::MaintenanceError;
use super::rows::{self, Id, place};
use super::{owners, read};

/// How many tasks are read in one view of the store. Between two, the server can tidy up behind itself.
const TOGETHER: i64 = 256;

pub(super) fn export(
    db: &Connection,
    out: &mut dyn Write,
    explain: impl Fn(Fault) -> MaintenanceError,
) -> Result<u64, MaintenanceError> {
    let (mut after, mut count) = (0, 0);
    loop {
        let lines = lines(db, &mut after).map_err(&explain)?;
        if lines.is_empty() {
            out.flush()?;
            return Ok(count);
        }
        for line in lines {
            out.write_all(&line)?;
            count += 1;
        }
    }
}

fn lines(db: &Connection, after: &mut i64) -> Result<Vec<Vec<u8>>, Fault> {
    let db = db.unchecked_transaction()?;
    let mut read = db.prepare_cached(
        "SELECT tasks.id, task_id, state, seq, tenant, principal, head, messages, history, artifacts
         FROM tasks JOIN owners ON owners.id = tasks.owner WHERE tasks.id > ?1 ORDER BY tasks.id LIMIT ?2",
    )?;
    let mut tasks = read.query(params![*after, TOGETHER])?;
    let mut lines = Vec::new();
    while let Some(row) = tasks.next()? {
        *after = row.get(0)?;
        lines.push(line(&db, row)?);
    }
    Ok(lines)
}

fn line(db: &Connection, row: &Row<'_>) -> Result<Vec<u8>, Fault> {
    let number: i64 = row.get(0)?;
    let id = TaskId::from(Id::read(row.get_ref(1)?).map_err(rusqlite::Error::from)?);
    let Owner { tenant, principal } = owners::read(row, 4)?;
    let snapshot = match row.get::<_, Option<i64>>(3)? {
        Some(seq) => {
            Snapshot::ended(rows::seq_of(seq), rows::state_of(row.get(2)?), rows::read_ended(row, 6)?)
        }
        None => {
            let unfolded = read::unfold(db, number, &id)?;
            Snapshot::live(unfolded.seq, unfolded.task)
        }
    };
    let owner = serde_json::json!({ "tenant": tenant, "principal": principal.name() });
    let mut line = format!("{{\"owner\":{owner},\"task\":").into_bytes();
    snapshot.write(View::FULL, &mut line);
    line.extend_from_slice(b",\"events\":");
    let mut log = db.prepare_cached("SELECT events FROM log WHERE id >= ?1 AND id < ?2 ORDER BY id")?;
    write_array(&mut log.query(params![place(number, 0), place(number + 1, 0)])?, &mut line, |events| {
        // Rows of the log are arrays themselves.
        events.strip_prefix(b"[").and_then(|events| events.strip_suffix(b"]")).unwrap_or(events)
    })?;
    line.extend_from_slice(b",\"webhooks\":");
    let mut webhooks = db.prepare_cached("SELECT config FROM webhooks WHERE task = ?1 ORDER BY id")?;
    write_array(&mut webhooks.query(params![number])?, &mut line, |config| config)?;
    line.push(b'}');
    // Data in a message is kept as it was sent, which may be on several lines. Between JSON's tokens a space is as good.
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
    Ok(line)
}

fn write_array(
    rows: &mut rusqlite::Rows<'_>,
    line: &mut Vec<u8>,
    inside: impl Fn(&[u8]) -> &[u8],
) -> Result<(), Fault> {
    line.push(b'[');
    let mut first = true;
    while let Some(row) = rows.next()? {
        if !std::mem::take(&mut first) {
            line.push(b',');
        }
        line.extend_from_slice(inside(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?));
    }
    line.push(b']');
    Ok(())
}
