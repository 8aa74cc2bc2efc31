//! Removing everything that belongs to a caller.

use attache_core::{ContextRecord, Principal};
use rusqlite::{Connection, params};

use super::fault::Fault;
use super::rows::log_range;
use super::values;

/// Whose data is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForgetOptions {
    /// The caller.
    pub principal: Principal,
    /// Only the data in this tenant. `None` means the data in all tenants and outside of tenants.
    pub tenant: Option<String>,
    /// Only counts, and removes nothing.
    pub dry_run: bool,
}

/// How much was removed, or would be removed by a dry run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForgetReport {
    /// The number of tasks, with their messages, artifacts and events.
    pub tasks: usize,
    /// The number of webhooks.
    pub webhooks: usize,
    /// The number of deliveries, pending or dead.
    pub deliveries: usize,
    /// The number of idempotency keys.
    pub keys: usize,
}

/// Removes the data of a caller. Call it within a transaction.
pub(super) fn forget(db: &Connection, options: &ForgetOptions) -> Result<ForgetReport, Fault> {
    let mut read =
        db.prepare("SELECT id FROM owners WHERE principal IS ?1 AND (?2 IS NULL OR tenant IS ?2)")?;
    let owners = read.query_map(params![options.principal.name(), options.tenant], |row| row.get(0))?;
    let owners = owners.collect::<Result<Vec<i64>, _>>()?;
    let mut report = ForgetReport::default();
    for owner in owners {
        forget_owner(db, owner, &mut report)?;
    }
    forget_contexts(db, options)?;
    Ok(report)
}

/// Removes what is remembered about the contexts of a caller.
fn forget_contexts(db: &Connection, options: &ForgetOptions) -> Result<(), Fault> {
    for (key, value) in values::list(db, ContextRecord::SCOPE)? {
        let Ok(record) = value.read::<ContextRecord>() else { continue };
        let is_theirs = record.caller.as_deref() == options.principal.name();
        if is_theirs && (options.tenant.is_none() || record.tenant == options.tenant) {
            values::change(db, ContextRecord::SCOPE, &key, |_| None)?;
        }
    }
    Ok(())
}

fn forget_owner(db: &Connection, owner: i64, report: &mut ForgetReport) -> Result<(), Fault> {
    const WEBHOOKS: &str =
        "SELECT webhooks.id FROM webhooks JOIN tasks ON tasks.id = webhooks.task WHERE tasks.owner = ?1";
    const TASKS: &str = "SELECT id FROM tasks WHERE owner = ?1";
    let delete = |condition: String| db.execute(&format!("DELETE FROM {condition}"), params![owner]);
    report.deliveries += delete(format!("outbox WHERE webhook IN ({WEBHOOKS})"))?;
    report.deliveries += delete(format!("dead WHERE webhook IN ({WEBHOOKS})"))?;
    delete(format!("queues WHERE webhook IN ({WEBHOOKS})"))?;
    report.webhooks += delete(format!("webhooks WHERE task IN ({TASKS})"))?;
    delete(format!("snapshots WHERE task IN ({TASKS})"))?;
    report.keys += delete("keys WHERE owner = ?1".to_owned())?;
    let mut tasks = db.prepare(TASKS)?;
    let tasks = tasks.query_map(params![owner], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    let mut log = db.prepare("DELETE FROM log WHERE id >= ?1 AND id < ?2")?;
    for task in tasks {
        log.execute(log_range(task))?;
    }
    report.tasks += delete("tasks WHERE owner = ?1".to_owned())?;
    delete("counts WHERE owner = ?1".to_owned())?;
    delete("owners WHERE id = ?1".to_owned())?;
    Ok(())
}
