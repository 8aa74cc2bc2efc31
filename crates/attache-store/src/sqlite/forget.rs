//! Removing everything that belongs to a caller.

use std::collections::HashSet;

use attache_core::{ContextRecord, Principal, StoredWorkspace, ValueSubject};
use attache_protocol::TaskId;
use rusqlite::{Connection, params};

use super::fault::Fault;
use super::{rows, values};

/// Whose data is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForgetOptions {
    /// The caller.
    pub principal: Principal,
    /// Only the data in this tenant. `None` means the data in all tenants and outside of tenants.
    pub tenant: Option<String>,
    /// Only counts, and removes nothing.
    pub dry_run: bool,
}

impl ForgetOptions {
    /// The data of a caller, in all tenants and outside of tenants.
    pub fn new(principal: Principal) -> Self {
        Self { principal, tenant: None, dry_run: false }
    }

    /// Changes options.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
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
    /// The number of contexts, with what their agents remember and their private directories.
    pub contexts: usize,
    /// The number of other values: what the caller has used of a budget, and the remote tasks and contexts of a gateway.
    pub values: usize,
}

/// Removes the data of a caller. Call it within a transaction.
pub(super) fn forget(db: &Connection, options: &ForgetOptions) -> Result<ForgetReport, Fault> {
    let mut read =
        db.prepare("SELECT id FROM owners WHERE principal IS ?1 AND (?2 IS NULL OR tenant IS ?2)")?;
    let owners = read.query_map(params![options.principal.name(), options.tenant], |row| row.get(0))?;
    let owners = owners.collect::<Result<Vec<i64>, _>>()?;
    let (mut report, mut tasks) = (ForgetReport::default(), HashSet::new());
    for owner in owners {
        forget_owner(db, owner, &mut report, &mut tasks)?;
    }
    for (row, scope) in values_of(db, options, |task| tasks.contains(task))? {
        db.prepare_cached("DELETE FROM kept_values WHERE id = ?1")?.execute(params![row])?;
        match scope == ContextRecord::SCOPE {
            true => report.contexts += 1,
            false => report.values += 1,
        }
    }
    Ok(report)
}

/// The private directories of the contexts of a caller.
pub(super) fn private_directories(
    db: &Connection,
    options: &ForgetOptions,
) -> Result<Vec<StoredWorkspace>, Fault> {
    let mut directories = Vec::new();
    for (key, value) in values::list(db, ContextRecord::SCOPE)? {
        let is_theirs = ValueSubject::of(ContextRecord::SCOPE, &key)
            .is_some_and(|subject| is_of(&subject, options, |_| false));
        let record = is_theirs.then(|| value.read::<ContextRecord>().ok()).flatten();
        directories.extend(record.and_then(|record| record.workspace));
    }
    Ok(directories)
}

/// The rows of the values that belong to a caller or to one of its tasks, with their scopes.
fn values_of(
    db: &Connection,
    options: &ForgetOptions,
    is_task: impl Fn(&TaskId) -> bool,
) -> Result<Vec<(i64, String)>, Fault> {
    let mut read = db.prepare("SELECT id, scope, key FROM kept_values")?;
    let mut rows = read.query(())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, scope, key): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if ValueSubject::of(&scope, &key).is_some_and(|subject| is_of(&subject, options, &is_task)) {
            found.push((id, scope));
        }
    }
    Ok(found)
}

/// Whether a value is removed. What belongs to a caller in all tenants stays if only one tenant is to be forgotten.
fn is_of(subject: &ValueSubject, options: &ForgetOptions, is_task: impl Fn(&TaskId) -> bool) -> bool {
    let ForgetOptions { principal, tenant, .. } = options;
    match subject {
        ValueSubject::Owner(owner) => {
            owner.principal == *principal
                && (tenant.is_none() || owner.tenant.as_deref() == tenant.as_deref())
        }
        ValueSubject::Principal(of) => of == principal && tenant.is_none(),
        ValueSubject::Task(task) => is_task(task),
    }
}

fn forget_owner(
    db: &Connection,
    owner: i64,
    report: &mut ForgetReport,
    forgotten: &mut HashSet<TaskId>,
) -> Result<(), Fault> {
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
    let mut tasks = db.prepare("SELECT id, task_id FROM tasks WHERE owner = ?1")?;
    let tasks = tasks.query_map(params![owner], |row| Ok((row.get(0)?, rows::task_id(row, 1)?)))?;
    let tasks = tasks.collect::<Result<Vec<(i64, TaskId)>, _>>()?;
    let mut log = db.prepare("DELETE FROM log WHERE id >= ?1 AND id < ?2")?;
    for (row, task) in tasks {
        log.execute(rows::log_range(row))?;
        forgotten.insert(task);
    }
    report.tasks += delete("tasks WHERE owner = ?1".to_owned())?;
    delete("counts WHERE owner = ?1".to_owned())?;
    delete("owners WHERE id = ?1".to_owned())?;
    Ok(())
}
