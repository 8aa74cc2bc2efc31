//! The rows of webhooks. The server uses them, and the maintenance commands in other processes.

use attache_core::{PushEvents, TraceParent, Webhook};
use attache_protocol::{Dialect, TaskId, TaskPushNotificationConfig};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::fault::Fault;
use super::rows::{self, Id};
use crate::Keyring;

/// A webhook as a row, with its secrets sealed.
pub(super) struct WebhookRow {
    name: String,
    news: u8,
    dialect: Option<&'static str>,
    trace_parent: Option<TraceParent>,
    pub(super) receiver: String,
    config: Vec<u8>,
    secrets: Option<Vec<u8>>,
    purpose: Vec<u8>,
}

/// The secrets of a webhook, which are sealed.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Secrets {
    token: Option<String>,
    credentials: Option<String>,
}

/// The additional data that binds sealed secrets to one webhook: they do not open in another row.
fn purpose(task: &TaskId, webhook: &str) -> Vec<u8> {
    let mut purpose = (task.as_str().len() as u64).to_le_bytes().to_vec();
    purpose.extend_from_slice(task.as_str().as_bytes());
    purpose.extend_from_slice(webhook.as_bytes());
    purpose
}

pub(super) const fn events_of(number: u8) -> PushEvents {
    match number {
        0 => PushEvents::States,
        _ => PushEvents::Everything,
    }
}

impl WebhookRow {
    pub(super) fn seal(keyring: &Keyring, task: &TaskId, webhook: &Webhook) -> Result<Self, Fault> {
        let mut config = webhook.config.clone();
        let credentials = config.authentication.as_mut().and_then(|info| info.credentials.take());
        let secrets = Secrets { token: config.token.take(), credentials };
        let failed = |error| rows::unreadable("a webhook", task, error);
        let purpose = purpose(task, webhook.id());
        let secrets = if secrets == Secrets::default() {
            None
        } else {
            let plain = Zeroizing::new(serde_json::to_vec(&secrets).map_err(failed)?);
            Some(keyring.seal(&purpose, &plain)?)
        };
        Ok(Self {
            name: webhook.id().to_owned(),
            news: match webhook.events {
                PushEvents::States => 0,
                PushEvents::Everything => 1,
            },
            dialect: webhook.dialect.map(Dialect::name),
            trace_parent: webhook.trace_parent,
            receiver: webhook.receiver(),
            config: serde_json::to_vec(&config).map_err(failed)?,
            secrets,
            purpose,
        })
    }

    /// Whether the task has fewer other webhooks than the limit.
    pub(super) fn fits(&self, db: &Connection, task: i64, limit: usize) -> Result<bool, Fault> {
        let mut count = db.prepare_cached("SELECT count(*) FROM webhooks WHERE task = ?1 AND name != ?2")?;
        let others: i64 = count.query_row(params![task, self.name], |row| row.get(0))?;
        Ok(usize::try_from(others).unwrap_or(0) < limit)
    }

    /// Writes the webhook and returns its row id. Replaces a webhook with the same name.
    pub(super) fn put(&mut self, db: &Connection, keyring: &Keyring, task: i64) -> Result<i64, Fault> {
        // Sealing all secrets again after a rotation either finds this row, or has changed the key before this check.
        if let Some(sealed) = &mut self.secrets
            && !keyring.is_current(sealed)?
        {
            *sealed = keyring.seal(&self.purpose, &keyring.open(&self.purpose, sealed)?)?;
        }
        let webhook = db
            .prepare_cached(
                "INSERT INTO webhooks (task, name, news, receiver, config, secrets, dialect, trace_parent)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 ON CONFLICT (task, name) DO UPDATE SET news = excluded.news, receiver = excluded.receiver,
                    config = excluded.config, secrets = excluded.secrets, dialect = excluded.dialect,
                    trace_parent = excluded.trace_parent
                 RETURNING id",
            )?
            .query_row(
                params![
                    task,
                    self.name,
                    self.news,
                    self.receiver,
                    self.config,
                    self.secrets,
                    self.dialect,
                    self.trace_parent.as_ref().map(TraceParent::as_str)
                ],
                |row| row.get(0),
            )?;
        db.prepare_cached("UPDATE queues SET receiver = ?2 WHERE webhook = ?1 AND receiver != ?2")?
            .execute(params![webhook, self.receiver])?;
        Ok(webhook)
    }
}

/// A webhook from the columns `name`, `news`, `config`, `secrets`, `dialect` and `trace_parent`.
pub(super) fn read(keyring: &Keyring, task: &TaskId, row: &Row<'_>, from: usize) -> Result<Webhook, Fault> {
    let name: String = row.get(from)?;
    let config = rows::blob(row, from + 2)?;
    let failed = |error| rows::unreadable("a webhook", task, error);
    let mut config: TaskPushNotificationConfig = serde_json::from_slice(config).map_err(failed)?;
    if let Some(sealed) = row.get::<_, Option<Vec<u8>>>(from + 3)? {
        let plain = keyring.open(&purpose(task, &name), &sealed)?;
        let secrets: Secrets = serde_json::from_slice(&plain).map_err(failed)?;
        config.token = secrets.token;
        if let Some(info) = &mut config.authentication {
            info.credentials = secrets.credentials;
        }
    }
    let dialect = row.get::<_, Option<String>>(from + 4)?;
    let dialect = dialect.and_then(|name| Dialect::from_name(&name));
    let trace_parent = row.get::<_, Option<String>>(from + 5)?;
    let trace_parent = trace_parent.and_then(|text| text.parse().ok());
    Ok(Webhook { config, events: events_of(row.get(from + 1)?), dialect, trace_parent })
}

/// The row id of a webhook.
pub(super) fn find(db: &Connection, task: &TaskId, name: &str) -> Result<Option<i64>, Fault> {
    let mut find = db.prepare_cached(
        "SELECT webhooks.id FROM tasks JOIN webhooks ON webhooks.task = tasks.id
         WHERE tasks.task_id = ?1 AND webhooks.name = ?2",
    )?;
    let found = find.query_row(params![Id(task.as_str()), name], |row| row.get(0));
    Ok(found.optional()?)
}

/// Deletes a webhook with all its deliveries.
pub(super) fn delete(db: &Connection, task: &TaskId, name: &str) -> Result<Option<i64>, Fault> {
    let Some(webhook) = find(db, task, name)? else { return Ok(None) };
    delete_row(db, webhook)?;
    Ok(Some(webhook))
}

fn delete_row(db: &Connection, webhook: i64) -> Result<(), Fault> {
    db.prepare_cached("DELETE FROM outbox WHERE webhook = ?1")?.execute(params![webhook])?;
    db.prepare_cached("DELETE FROM queues WHERE webhook = ?1")?.execute(params![webhook])?;
    db.prepare_cached("DELETE FROM dead WHERE webhook = ?1")?.execute(params![webhook])?;
    db.prepare_cached("DELETE FROM webhooks WHERE id = ?1")?.execute(params![webhook])?;
    Ok(())
}

/// Deletes the webhooks of a task.
pub(super) fn delete_all(db: &Connection, task: i64) -> Result<(), Fault> {
    let mut read = db.prepare_cached("SELECT id FROM webhooks WHERE task = ?1")?;
    let webhooks = read.query_map(params![task], |row| row.get(0))?.collect::<Result<Vec<_>, _>>()?;
    webhooks.into_iter().try_for_each(|webhook| delete_row(db, webhook))
}

/// How many secrets one transaction seals again. Other writes can run between two transactions.
const RESEAL_BATCH: usize = 256;

/// Seals the secrets of one batch of webhooks under the current key, beginning with the webhook `from`. Returns how many were sealed
/// under another key before, and where the next batch begins.
pub(super) fn reseal(db: &Connection, keyring: &Keyring, from: i64) -> Result<(usize, Option<i64>), Fault> {
    let mut read = db.prepare_cached(
        "SELECT webhooks.id, tasks.task_id, webhooks.name, webhooks.secrets
         FROM webhooks JOIN tasks ON tasks.id = webhooks.task
         WHERE webhooks.id >= ?1 AND webhooks.secrets IS NOT NULL ORDER BY webhooks.id LIMIT ?2",
    )?;
    let mut rows = read.query(params![from, RESEAL_BATCH as i64])?;
    let (mut seen, mut last, mut resealed) = (0, from, 0);
    while let Some(row) = rows.next()? {
        (seen, last) = (seen + 1, row.get(0)?);
        let sealed: Vec<u8> = row.get(3)?;
        if keyring.is_current(&sealed)? {
            continue;
        }
        let task = rows::task_id(row, 1)?;
        let purpose = purpose(&task, &row.get::<_, String>(2)?);
        let sealed_again = keyring.seal(&purpose, &keyring.open(&purpose, &sealed)?)?;
        db.prepare_cached("UPDATE webhooks SET secrets = ?2 WHERE id = ?1")?
            .execute(params![last, sealed_again])?;
        resealed += 1;
    }
    Ok((resealed, (seen == RESEAL_BATCH).then_some(last + 1)))
}
