//! The check of a store for damage and contradictions.

use attache_core::Snapshot;
use attache_protocol::TaskId;
use rusqlite::Connection;
use serde::de::IgnoredAny;

use super::fault::Fault;
use super::maintenance::CheckReport;
use super::rows::{self, log_range};
use super::{counts, read, values};

/// The maximum number of problems in a report.
const MAX_PROBLEMS: usize = 100;

/// Queries that count rows with a missing counterpart, and their description.
const ORPHANS: &[(&str, &str)] = &[
    (
        "SELECT count(*) FROM tasks WHERE NOT EXISTS (SELECT 1 FROM owners WHERE id = owner)",
        "tasks without an owner",
    ),
    (
        "SELECT count(*) FROM snapshots WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE id = task AND seq IS NULL)",
        "snapshots without a live task",
    ),
    (
        "SELECT count(*) FROM keys WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE id = task)",
        "keys without a task",
    ),
    (
        "SELECT count(*) FROM webhooks WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = task)",
        "webhooks without a task",
    ),
    (
        "SELECT count(*) FROM outbox WHERE NOT EXISTS (SELECT 1 FROM queues WHERE queues.webhook = outbox.webhook)",
        "deliveries that are never due",
    ),
    (
        "SELECT count(*) FROM queues WHERE NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.webhook = queues.webhook)",
        "webhooks that are due with nothing to deliver",
    ),
    (
        "SELECT count(*) FROM queues WHERE NOT EXISTS (SELECT 1 FROM webhooks
            WHERE webhooks.id = queues.webhook AND webhooks.receiver = queues.receiver)",
        "deliveries without a webhook",
    ),
    (
        "SELECT count(*) FROM dead WHERE NOT EXISTS (SELECT 1 FROM webhooks WHERE webhooks.id = dead.webhook)",
        "dead deliveries without a webhook",
    ),
];

pub(super) fn check(db: &Connection) -> Result<CheckReport, Fault> {
    let db = db.unchecked_transaction()?;
    let mut report = CheckReport::default();
    let mut integrity = db.prepare(&format!("PRAGMA integrity_check({MAX_PROBLEMS})"))?;
    let lines = integrity.query_map((), |row| row.get::<_, String>(0))?;
    report.problems.extend(lines.filter_map(Result::ok).filter(|line| line != "ok"));
    if !report.problems.is_empty() {
        // If pages are damaged, their content has no meaning.
        return Ok(report);
    }
    for (query, what) in ORPHANS {
        let count: i64 = db.query_row(query, (), |row| row.get(0))?;
        if count > 0 {
            report.problems.push(format!("there are {what}: {count}"));
        }
    }
    report.problems.extend(counts::check(&db)?);
    check_tasks(&db, &mut report)?;
    check_deliveries(&db, &mut report)?;
    check_values(&db, &mut report)?;
    report.problems.truncate(MAX_PROBLEMS);
    Ok(report)
}

fn check_tasks(db: &Connection, report: &mut CheckReport) -> Result<(), Fault> {
    let mut read = db.prepare(
        "SELECT id, task_id, state, seq, nanos, head, messages, history, artifacts FROM tasks ORDER BY id",
    )?;
    let mut tasks = read.query(())?;
    let mut rows = 0;
    while let Some(row) = tasks.next()? {
        let number: i64 = row.get(0)?;
        let id = rows::task_id(row, 1)?;
        let (state, nanos) = (rows::state_of(row.get(2)?), row.get::<_, i64>(4)?);
        report.tasks += 1;
        let mut wrong = |problem: String| {
            if report.problems.len() < MAX_PROBLEMS {
                report.problems.push(format!("task `{id}`: {problem}"));
            }
        };
        let (events, last) = match log(db, number, &id) {
            Ok(Log { rows: found, events, last }) => {
                rows += found;
                (events, last)
            }
            Err(fault @ (Fault::Sqlite(_) | Fault::Replaced(_))) => return Err(fault),
            Err(fault @ (Fault::Unreadable { .. } | Fault::Keyring(_))) => {
                wrong(fault.to_string());
                continue;
            }
        };
        let task = match row.get::<_, Option<i64>>(3)? {
            Some(seq) => {
                if !state.is_terminal() {
                    wrong(format!("it is marked as ended but its state is {state}"));
                }
                match last {
                    Some(Err(gap)) => wrong(format!("its log has a gap after event {gap}")),
                    // Compacting can delete the events of a task that has ended.
                    Some(Ok(last)) if last as i64 != seq => {
                        wrong(format!("its log ends at {last} where the task ends at {seq}"));
                    }
                    Some(Ok(_)) | None => {}
                }
                let is_complete = matches!(last, Some(Ok(last)) if last as i64 == seq);
                rows::read_ended(row, 5, &id).and_then(|ended| {
                    let task = Snapshot::ended(rows::seq_of(seq), state, ended).task().into_owned();
                    if is_complete && read::replay(db, number, &id)?.task != task {
                        wrong("its final form does not match its events".to_owned());
                    }
                    Ok(task)
                })
            }
            None => {
                match last {
                    Some(Ok(_)) => {}
                    Some(Err(gap)) => wrong(format!("its log has a gap after event {gap}")),
                    None => wrong("it has no log".to_owned()),
                }
                read::replay(db, number, &id).map(|replayed| replayed.task)
            }
        };
        match task {
            Err(fault @ (Fault::Sqlite(_) | Fault::Replaced(_))) => return Err(fault),
            Err(fault @ (Fault::Unreadable { .. } | Fault::Keyring(_))) => wrong(fault.to_string()),
            Ok(task) => {
                if task.id != id {
                    wrong(format!("its content has the id `{}`", task.id));
                }
                if (task.status.state, rows::status_nanos(&task)) != (state, nanos) {
                    wrong(format!("its row has the state {state}, its content {}", task.status.state));
                }
            }
        }
        report.events += events;
    }
    let all: i64 = db.query_row("SELECT count(*) FROM log", (), |row| row.get(0))?;
    if all != rows && report.problems.is_empty() {
        report.problems.push(format!("there are parts of logs without a task: {}", all - rows));
    }
    Ok(())
}

struct Log {
    rows: i64,
    events: u64,
    /// The position of the last event, or of the last event before a gap.
    last: Option<Result<u64, u64>>,
}

fn log(db: &Connection, task: i64, id: &TaskId) -> Result<Log, Fault> {
    let mut read = db.prepare_cached("SELECT id, events FROM log WHERE id >= ?1 AND id < ?2 ORDER BY id")?;
    let mut found = read.query(log_range(task))?;
    let mut log = Log { rows: 0, events: 0, last: None };
    let (mut last, mut gap) = (0, None);
    while let Some(row) = found.next()? {
        let events = rows::blob(row, 1)?;
        let events = rows::read_events(row.get(0)?, events);
        let events = events.map_err(|error| rows::unreadable("the log", id, error))?;
        log.rows += 1;
        log.events += events.len() as u64;
        if events.first().is_none_or(|(first, _)| first.0 != last + 1) {
            gap.get_or_insert(last);
        }
        last = events.last().map_or(last, |(seq, _)| seq.0);
        log.last = Some(gap.map_or(Ok(last), Err));
    }
    Ok(log)
}

/// Checks that the log has the event of every delivery.
fn check_deliveries(db: &Connection, report: &mut CheckReport) -> Result<(), Fault> {
    let mut read = db.prepare(
        "SELECT webhooks.task, tasks.task_id, told.seq FROM (
            SELECT webhook, seq FROM outbox UNION ALL SELECT webhook, seq FROM dead) AS told
         JOIN webhooks ON webhooks.id = told.webhook JOIN tasks ON tasks.id = webhooks.task",
    )?;
    let mut deliveries = read.query(())?;
    while let Some(row) = deliveries.next()? {
        let id = rows::task_id(row, 1)?;
        let seq = rows::seq_of(row.get(2)?);
        let before = attache_core::Seq(seq.0.saturating_sub(1));
        if read::log_after(db, row.get(0)?, &id, before, 1)?.is_none() {
            report.problems.push(format!("task `{id}`: event {seq} is to be delivered but not in the log"));
        }
    }
    Ok(())
}

/// Checks that every value is JSON.
fn check_values(db: &Connection, report: &mut CheckReport) -> Result<(), Fault> {
    let mut read = db.prepare("SELECT scope, key, value FROM kept_values ORDER BY id")?;
    let mut rows = read.query(())?;
    while let Some(row) = rows.next()? {
        report.values += 1;
        if let Err(error) = values::text(row.get_ref(2)?).and_then(serde_json::from_str::<IgnoredAny>) {
            let (scope, key): (String, String) = (row.get(0)?, row.get(1)?);
            report.problems.push(values::unreadable(&scope, &key, error).to_string());
        }
    }
    Ok(())
}
