//! The export of a store as lines of JSON.

use std::io::Write;

use attache_core::{Owner, Snapshot, View};
use attache_protocol::TaskPushNotificationConfig;
use rusqlite::{Connection, Row, params};

use super::fault::Fault;
use super::maintenance::{ExportReport, MaintenanceError};
use super::rows::{self, log_range};
use super::{owners, read, values};

/// The number of tasks in one transaction. Between two transactions, the server can restart its write-ahead log.
const BATCH_TASKS: i64 = 256;

/// About how many bytes of values are read in one transaction.
const READ_BYTES: usize = 1024 * 1024;

/// A line of the export, or the problem with its row.
type Line = Result<Vec<u8>, String>;

pub(super) fn export(
    db: &Connection,
    out: &mut dyn Write,
    explain: impl Fn(Fault) -> MaintenanceError,
) -> Result<ExportReport, MaintenanceError> {
    let mut problems = Vec::new();
    let tasks = write_all(out, &mut problems, |after| tasks(db, after).map_err(&explain))?;
    let values = write_all(out, &mut problems, |after| values(db, after).map_err(&explain))?;
    out.flush()?;
    Ok(ExportReport { tasks, values, problems })
}

/// Writes batches of lines until a batch is empty. Returns the number of lines.
fn write_all(
    out: &mut dyn Write,
    problems: &mut Vec<String>,
    lines: impl Fn(&mut i64) -> Result<Vec<Line>, MaintenanceError>,
) -> Result<u64, MaintenanceError> {
    let (mut after, mut count) = (0, 0);
    loop {
        let lines = lines(&mut after)?;
        if lines.is_empty() {
            return Ok(count);
        }
        for line in lines {
            match line {
                Ok(line) => {
                    out.write_all(&line)?;
                    count += 1;
                }
                Err(problem) => problems.push(problem),
            }
        }
    }
}

/// A damaged row becomes a problem in the report. Other faults end the export.
fn line_or_problem(line: Result<Vec<u8>, Fault>) -> Result<Line, Fault> {
    match line {
        Ok(line) => Ok(Ok(line)),
        Err(fault @ (Fault::Unreadable { .. } | Fault::Keyring(_))) => Ok(Err(fault.to_string())),
        Err(fault @ (Fault::Sqlite(_) | Fault::Replaced(_))) => Err(fault),
    }
}

fn tasks(db: &Connection, after: &mut i64) -> Result<Vec<Line>, Fault> {
    let db = db.unchecked_transaction()?;
    let mut read = db.prepare_cached(
        "SELECT tasks.id, task_id, state, seq, tenant, principal, agent, head, messages, history, artifacts
         FROM tasks JOIN owners ON owners.id = tasks.owner WHERE tasks.id > ?1 ORDER BY tasks.id LIMIT ?2",
    )?;
    let mut tasks = read.query(params![*after, BATCH_TASKS])?;
    let mut lines = Vec::new();
    while let Some(row) = tasks.next()? {
        *after = row.get(0)?;
        lines.push(line_or_problem(task(&db, row))?);
    }
    Ok(lines)
}

fn task(db: &Connection, row: &Row<'_>) -> Result<Vec<u8>, Fault> {
    let number: i64 = row.get(0)?;
    let id = rows::task_id(row, 1)?;
    let Owner { agent, tenant, principal } = owners::read(row, 4)?;
    let snapshot = match row.get::<_, Option<i64>>(3)? {
        Some(seq) => {
            let ended = rows::read_ended(row, 7, &id)?;
            Snapshot::ended(rows::seq_of(seq), rows::state_of(row.get(2)?), ended)
        }
        None => {
            let replayed = read::replay(db, number, &id)?;
            Snapshot::live(replayed.seq, replayed.task)
        }
    };
    let mut owner = serde_json::json!({ "tenant": tenant, "principal": principal.name() });
    if let Some(agent) = agent {
        owner["agent"] = (*agent).into();
    }
    let mut line = format!("{{\"owner\":{owner},\"task\":").into_bytes();
    snapshot.write(View::FULL, &mut line);
    line.extend_from_slice(b",\"events\":");
    let mut log = db.prepare_cached("SELECT events FROM log WHERE id >= ?1 AND id < ?2 ORDER BY id")?;
    let mut log = log.query(log_range(number))?;
    write_array(&mut log, &mut line, |events| {
        rows::read_events(0, events).map_err(|error| rows::unreadable("the log", &id, error))?;
        // A row of the log is a JSON array. The brackets are removed to join the rows.
        Ok(events.strip_prefix(b"[").and_then(|events| events.strip_suffix(b"]")).unwrap_or(events))
    })?;
    line.extend_from_slice(b",\"webhooks\":");
    let mut webhooks = db.prepare_cached("SELECT config FROM webhooks WHERE task = ?1 ORDER BY id")?;
    write_array(&mut webhooks.query(params![number])?, &mut line, |config| {
        serde_json::from_slice::<TaskPushNotificationConfig>(config)
            .map_err(|error| rows::unreadable("a webhook", &id, error))?;
        Ok(config)
    })?;
    end(&mut line);
    Ok(line)
}

fn values(db: &Connection, after: &mut i64) -> Result<Vec<Line>, Fault> {
    let mut read =
        db.prepare_cached("SELECT id, scope, key, value FROM kept_values WHERE id > ?1 ORDER BY id")?;
    let mut rows = read.query(params![*after])?;
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while bytes < READ_BYTES
        && let Some(row) = rows.next()?
    {
        *after = row.get(0)?;
        let line = line_or_problem(value(row))?;
        bytes += line.as_ref().map_or(0, Vec::len);
        lines.push(line);
    }
    Ok(lines)
}

fn value(row: &Row<'_>) -> Result<Vec<u8>, Fault> {
    let text = |at: usize| Ok::<_, Fault>(row.get_ref(at)?.as_str().map_err(rusqlite::Error::from)?);
    let (scope, key) = (text(1)?, text(2)?);
    let value = values::read(row.get_ref(3)?, scope, key)?;
    let (scope, key, value) = (serde_json::json!(scope), serde_json::json!(key), value.as_str());
    let mut line = Vec::with_capacity(value.len() + 256);
    line.extend_from_slice(format!("{{\"scope\":{scope},\"key\":{key},\"value\":").as_bytes());
    line.extend_from_slice(value.as_bytes());
    end(&mut line);
    Ok(line)
}

/// Closes the JSON object and the line.
fn end(line: &mut Vec<u8>) {
    line.push(b'}');
    // Data in a message is stored as it was sent, and can have line breaks between its tokens. A space has the same meaning there.
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
}

fn write_array(
    rows: &mut rusqlite::Rows<'_>,
    line: &mut Vec<u8>,
    inside: impl Fn(&[u8]) -> Result<&[u8], Fault>,
) -> Result<(), Fault> {
    line.push(b'[');
    let mut first = true;
    while let Some(row) = rows.next()? {
        if !std::mem::take(&mut first) {
            line.push(b',');
        }
        line.extend_from_slice(inside(rows::blob(row, 0)?)?);
    }
    line.push(b']');
    Ok(())
}
