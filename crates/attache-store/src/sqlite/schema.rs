//! The tables, and the migration of older files.

use rusqlite::Connection;

/// The application id in our SQLite files: `Atta` in ASCII.
pub(super) const APPLICATION_ID: i32 = 0x4174_7461;

/// The migrations. Each one leads from one version of the schema to the next. A released migration is never changed.
const STEPS: &[&str] = &[V1, V2, V3, V4, V5];

/// The version that this program writes.
pub(super) const VERSION: i32 = STEPS.len() as i32;

/// An id that is a UUID in its usual form is stored as 16 bytes, any other id as text.
///
/// - A listing of all states merges one index range for each state. So it needs no index of its own, which makes writing a task
///   cheaper.
/// - `head`, `history` and `artifacts` are the parts of the JSON of a task that has ended. The part that is read most rarely is last,
///   on pages that most queries do not read.
/// - `log` has one row for each append. Its id combines the task and the position of the first event in one number (see
///   [`log_id`](super::rows::log_id)), so the table needs no other index. Rows are never updated.
/// - `snapshots` has the latest snapshot of a live task with a long log.
/// - `counts` has the number of tasks of an owner and state for spans of time of several lengths.
/// - `queues` has a row for each webhook with pending deliveries, and the time at which the next one is due.
const V1: &str = "
CREATE TABLE owners (id INTEGER PRIMARY KEY, tenant TEXT, principal TEXT);
CREATE INDEX owners_by_name ON owners (tenant, principal);

CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    task_id NOT NULL,
    owner INTEGER NOT NULL,
    context NOT NULL,
    state INTEGER NOT NULL,
    nanos INTEGER NOT NULL,
    seq INTEGER,
    head BLOB,
    messages BLOB,
    history BLOB,
    artifacts BLOB
);
CREATE UNIQUE INDEX tasks_by_id ON tasks (task_id);
CREATE INDEX tasks_by_state ON tasks (owner, state, nanos);
CREATE INDEX tasks_by_context ON tasks (owner, context, state, nanos);
CREATE INDEX tasks_at_work ON tasks (id) WHERE state IN (1, 2);

CREATE TABLE log (id INTEGER PRIMARY KEY, events BLOB NOT NULL);
CREATE TABLE snapshots (task INTEGER PRIMARY KEY, seq INTEGER NOT NULL, body BLOB NOT NULL);

CREATE TABLE counts (
    owner INTEGER NOT NULL,
    level INTEGER NOT NULL,
    state INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (owner, level, state, bucket)
) WITHOUT ROWID;

CREATE TABLE keys (
    owner INTEGER NOT NULL,
    key TEXT NOT NULL,
    task INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    PRIMARY KEY (owner, key)
) WITHOUT ROWID;
CREATE INDEX keys_by_task ON keys (task);

CREATE TABLE webhooks (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    name TEXT NOT NULL,
    news INTEGER NOT NULL,
    receiver TEXT NOT NULL,
    config BLOB NOT NULL,
    secrets BLOB
);
CREATE UNIQUE INDEX webhooks_by_task ON webhooks (task, name);

CREATE TABLE outbox (
    webhook INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    PRIMARY KEY (webhook, seq)
) WITHOUT ROWID;
CREATE TABLE queues (webhook INTEGER PRIMARY KEY, receiver TEXT NOT NULL, due INTEGER NOT NULL);
CREATE INDEX queues_by_receiver ON queues (receiver, due);

CREATE TABLE dead (
    id INTEGER PRIMARY KEY,
    webhook INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    at INTEGER NOT NULL,
    error TEXT NOT NULL
);
CREATE UNIQUE INDEX dead_by_webhook ON dead (webhook, seq);
";

/// Values by scope and key. Row ids ascend, so the index of a scope is in the order of first use. No index contains the values
/// themselves.
const V2: &str = "
CREATE TABLE kept_values (
    id INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE UNIQUE INDEX kept_values_by_key ON kept_values (scope, key);
CREATE INDEX kept_values_by_scope ON kept_values (scope);
";

/// The dialect of the notifications of a webhook, if it is not 1.0.
const V3: &str = "ALTER TABLE webhooks ADD COLUMN dialect TEXT";

/// The trace that the notifications of a webhook belong to.
const V4: &str = "ALTER TABLE webhooks ADD COLUMN trace_parent TEXT";

/// The agent that the tasks of an owner belong to, where a server has several.
const V5: &str = "
ALTER TABLE owners ADD COLUMN agent TEXT;
DROP INDEX owners_by_name;
CREATE INDEX owners_by_name ON owners (tenant, principal, agent);
";

/// The version of the schema that a file has.
pub(super) fn version(db: &Connection) -> rusqlite::Result<i32> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Migrates a file to the version that this program writes. Each step is one transaction.
pub(super) fn migrate(db: &mut Connection) -> rusqlite::Result<()> {
    let from = version(db)?;
    for (at, step) in STEPS.iter().enumerate().skip(from.max(0) as usize) {
        let change = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        change.execute_batch(step)?;
        change.pragma_update(None, "user_version", at as i32 + 1)?;
        change.commit()?;
    }
    Ok(())
}
