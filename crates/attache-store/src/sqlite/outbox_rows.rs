//! The rows of webhooks and of what is to be told to them. Used by the server, and by commands beside it.

use attache_core::{DeadDelivery, DeliveryId, Outcome, PushEvents, Seq, TaskEvent, Webhook};
use attache_protocol::{Dialect, TaskId, TaskPushNotificationConfig, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::fault::Fault;
use super::rows::{self, Id, nanos_of, time_of};
use crate::Keyring;

/// A webhook as its row has it.
pub(super) struct Kept {
    name: String,
    news: u8,
    dialect: Option<&'static str>,
    pub(super) receiver: String,
    config: Vec<u8>,
    secrets: Option<Vec<u8>>,
    purpose: Vec<u8>,
}

/// What is sealed of a webhook.
#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Secrets {
    token: Option<String>,
    credentials: Option<String>,
}

/// What a webhook's secrets are sealed for, so that they are worthless in any other row.
fn purpose(task: &TaskId, webhook: &str) -> Vec<u8> {
    let mut purpose = (task.as_str().len() as u64).to_le_bytes().to_vec();
    purpose.extend_from_slice(task.as_str().as_bytes());
    purpose.extend_from_slice(webhook.as_bytes());
    purpose
}

const fn news_of(number: u8) -> PushEvents {
    match number {
        0 => PushEvents::States,
        _ => PushEvents::Everything,
    }
}

impl Kept {
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
            receiver: webhook.receiver(),
            config: serde_json::to_vec(&config).map_err(failed)?,
            secrets,
            purpose,
        })
    }

    /// Whether the task may have this webhook: it has fewer others than the limit.
    pub(super) fn fits(&self, db: &Connection, task: i64, limit: usize) -> Result<bool, Fault> {
        let mut count = db.prepare_cached("SELECT count(*) FROM webhooks WHERE task = ?1 AND name != ?2")?;
        let others: i64 = count.query_row(params![task, self.name], |row| row.get(0))?;
        Ok(usize::try_from(others).unwrap_or(0) < limit)
    }

    /// Keeps the webhook, in the place of the one with the same name. Its number.
    pub(super) fn put(&mut self, db: &Connection, keyring: &Keyring, task: i64) -> Result<i64, Fault> {
        // Whoever seals everything under a new key has either seen this row or put the key in place before it is written.
        if let Some(sealed) = &mut self.secrets
            && !keyring.is_current(sealed)?
        {
            *sealed = keyring.seal(&self.purpose, &keyring.open(&self.purpose, sealed)?)?;
        }
        let webhook = db
            .prepare_cached(
                "INSERT INTO webhooks (task, name, news, receiver, config, secrets, dialect)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (task, name) DO UPDATE SET news = excluded.news, receiver = excluded.receiver,
                    config = excluded.config, secrets = excluded.secrets, dialect = excluded.dialect
                 RETURNING id",
            )?
            .query_row(
                params![task, self.name, self.news, self.receiver, self.config, self.secrets, self.dialect],
                |row| row.get(0),
            )?;
        db.prepare_cached("UPDATE queues SET receiver = ?2 WHERE webhook = ?1 AND receiver != ?2")?
            .execute(params![webhook, self.receiver])?;
        Ok(webhook)
    }
}

/// A webhook from the columns `name`, `news`, `config`, `secrets` and `dialect`.
pub(super) fn read_webhook(
    keyring: &Keyring,
    task: &TaskId,
    row: &Row<'_>,
    from: usize,
) -> Result<Webhook, Fault> {
    let name: String = row.get(from)?;
    let config = row.get_ref(from + 2)?.as_blob().map_err(rusqlite::Error::from)?;
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
    Ok(Webhook { config, events: news_of(row.get(from + 1)?), dialect })
}

/// Queues events for a webhook. Whether it had nothing to be told before.
pub(super) fn tell(
    db: &Connection,
    webhook: i64,
    receiver: &str,
    events: &[Seq],
    now: i64,
) -> Result<bool, Fault> {
    if events.is_empty() {
        return Ok(false);
    }
    let mut queue =
        db.prepare_cached("INSERT INTO outbox (webhook, seq, at, attempts) VALUES (?1, ?2, ?3, 0)")?;
    for seq in events {
        queue.execute(params![webhook, seq.0 as i64, now])?;
    }
    let due = db
        .prepare_cached(
            "INSERT INTO queues (webhook, receiver, due) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?
        .execute(params![webhook, receiver, now])?;
    Ok(due > 0)
}

/// Queues events that come after a position for those of a task's webhooks that are told of them. Whether one of these had
/// nothing to be told before.
pub(super) fn tell_all(
    db: &Connection,
    task: i64,
    after: Seq,
    events: &[TaskEvent],
    now: i64,
) -> Result<bool, Fault> {
    let mut read = db.prepare_cached("SELECT id, news, receiver FROM webhooks WHERE task = ?1")?;
    let mut webhooks = read.query(params![task])?;
    let mut grown = false;
    while let Some(row) = webhooks.next()? {
        let news = news_of(row.get(1)?);
        let told = events.iter().enumerate().filter(|(_, event)| news.includes(event));
        let told: Vec<_> = told.map(|(i, _)| after.plus(i + 1)).collect();
        grown |= tell(db, row.get(0)?, &row.get::<_, String>(2)?, &told, now)?;
    }
    Ok(grown)
}

/// The number of a webhook, and its receiver.
fn find(db: &Connection, task: &TaskId, name: &str) -> Result<Option<(i64, String)>, Fault> {
    let mut find = db.prepare_cached(
        "SELECT webhooks.id, webhooks.receiver FROM tasks JOIN webhooks ON webhooks.task = tasks.id
         WHERE tasks.task_id = ?1 AND webhooks.name = ?2",
    )?;
    let found = find.query_row(params![Id(task.as_str()), name], |row| Ok((row.get(0)?, row.get(1)?)));
    Ok(found.optional()?)
}

/// Sets when a webhook is due next, or that it is not.
fn schedule(db: &Connection, webhook: i64, due: Option<i64>) -> Result<(), Fault> {
    match due {
        Some(due) => db
            .prepare_cached("UPDATE queues SET due = ?2 WHERE webhook = ?1")?
            .execute(params![webhook, due])?,
        None => db.prepare_cached("DELETE FROM queues WHERE webhook = ?1")?.execute(params![webhook])?,
    };
    Ok(())
}

/// Takes an event out of a webhook's queue, and sets when the next is due. How often it was tried.
fn take_out(db: &Connection, webhook: i64, seq: Seq) -> Result<Option<u32>, Fault> {
    let attempts = db
        .prepare_cached("DELETE FROM outbox WHERE webhook = ?1 AND seq = ?2 RETURNING attempts")?
        .query_row(params![webhook, seq.0 as i64], |row| row.get(0))
        .optional()?;
    if attempts.is_some() {
        let next = db
            .prepare_cached("SELECT at FROM outbox WHERE webhook = ?1 ORDER BY seq LIMIT 1")?
            .query_row(params![webhook], |row| row.get(0))
            .optional()?;
        schedule(db, webhook, next)?;
    }
    Ok(attempts)
}

/// Notes what became of a delivery. The webhook, if there was something to note.
pub(super) fn settle(db: &Connection, id: &DeliveryId, outcome: &Outcome) -> Result<Option<i64>, Fault> {
    let Some((webhook, _)) = find(db, &id.task, &id.webhook)? else { return Ok(None) };
    let seq = id.seq.0 as i64;
    let (again, more) = match outcome {
        Outcome::Delivered => return Ok(take_out(db, webhook, id.seq)?.map(|_| webhook)),
        Outcome::GivenUp { at, error } => {
            let Some(attempts) = take_out(db, webhook, id.seq)? else { return Ok(None) };
            db.prepare_cached(
                "INSERT INTO dead (webhook, seq, attempts, at, error) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![webhook, seq, attempts + 1, nanos_of(*at), error])?;
            return Ok(Some(webhook));
        }
        Outcome::Postponed(again) => (again, 0),
        Outcome::Failed { again, error: _ } => (again, 1),
    };
    let tried = db
        .prepare_cached("UPDATE outbox SET attempts = attempts + ?3 WHERE webhook = ?1 AND seq = ?2")?
        .execute(params![webhook, seq, more])?;
    if tried == 0 {
        return Ok(None);
    }
    schedule(db, webhook, Some(nanos_of(*again)))?;
    Ok(Some(webhook))
}

/// Forgets a webhook with everything that it was to be told.
pub(super) fn delete(db: &Connection, task: &TaskId, name: &str) -> Result<Option<i64>, Fault> {
    let Some((webhook, _)) = find(db, task, name)? else { return Ok(None) };
    delete_number(db, webhook)?;
    Ok(Some(webhook))
}

fn delete_number(db: &Connection, webhook: i64) -> Result<(), Fault> {
    db.prepare_cached("DELETE FROM outbox WHERE webhook = ?1")?.execute(params![webhook])?;
    db.prepare_cached("DELETE FROM queues WHERE webhook = ?1")?.execute(params![webhook])?;
    db.prepare_cached("DELETE FROM dead WHERE webhook = ?1")?.execute(params![webhook])?;
    db.prepare_cached("DELETE FROM webhooks WHERE id = ?1")?.execute(params![webhook])?;
    Ok(())
}

/// Forgets the webhooks of a task.
pub(super) fn delete_all(db: &Connection, task: i64) -> Result<(), Fault> {
    let mut read = db.prepare_cached("SELECT id FROM webhooks WHERE task = ?1")?;
    let webhooks = read.query_map(params![task], |row| row.get(0))?.collect::<Result<Vec<_>, _>>()?;
    webhooks.into_iter().try_for_each(|webhook| delete_number(db, webhook))
}

/// Whether something is still to be delivered for a task.
pub(super) fn owes(db: &Connection, task: i64) -> Result<bool, Fault> {
    let mut owes = db.prepare_cached(
        "SELECT 1 FROM webhooks JOIN outbox ON outbox.webhook = webhooks.id WHERE webhooks.task = ?1 LIMIT 1",
    )?;
    Ok(owes.exists(params![task])?)
}

/// The number of a delivery that was given up.
fn find_dead(db: &Connection, id: &DeliveryId) -> Result<Option<i64>, Fault> {
    let Some((webhook, _)) = find(db, &id.task, &id.webhook)? else { return Ok(None) };
    let mut find = db.prepare_cached("SELECT id FROM dead WHERE webhook = ?1 AND seq = ?2")?;
    Ok(find.query_row(params![webhook, id.seq.0 as i64], |row| row.get(0)).optional()?)
}

pub(super) fn list_dead(
    db: &Connection,
    after: Option<&DeliveryId>,
    limit: usize,
) -> Result<Vec<DeadDelivery>, Fault> {
    let after = match after {
        None => None,
        Some(id) => find_dead(db, id)?,
    };
    let mut read = db.prepare_cached(
        "SELECT tasks.task_id, webhooks.name, dead.seq, webhooks.config, dead.attempts, dead.at, dead.error
         FROM dead JOIN webhooks ON webhooks.id = dead.webhook JOIN tasks ON tasks.id = webhooks.task
         WHERE dead.id > ?1 ORDER BY dead.id LIMIT ?2",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = read.query(params![after.unwrap_or(0), limit])?;
    let mut dead = Vec::new();
    while let Some(row) = rows.next()? {
        let task = TaskId::from(Id::read(row.get_ref(0)?).map_err(rusqlite::Error::from)?);
        let config = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
        let config: TaskPushNotificationConfig =
            serde_json::from_slice(config).map_err(|error| rows::unreadable("a webhook", &task, error))?;
        dead.push(DeadDelivery {
            id: DeliveryId { task, webhook: row.get(1)?, seq: rows::seq_of(row.get(2)?) },
            url: config.url,
            attempts: row.get(4)?,
            at: time_of(row.get(5)?),
            error: row.get(6)?,
        });
    }
    Ok(dead)
}

/// The numbers of deliveries that were given up: this one, or all.
fn chosen_dead(db: &Connection, id: Option<&DeliveryId>) -> Result<Vec<i64>, Fault> {
    if let Some(id) = id {
        return Ok(find_dead(db, id)?.into_iter().collect());
    }
    let mut read = db.prepare_cached("SELECT id FROM dead ORDER BY id")?;
    Ok(read.query_map((), |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// Has deliveries that were given up tried anew. How many they were. To be called within a transaction.
pub(super) fn retry_dead(db: &Connection, id: Option<&DeliveryId>, now: Timestamp) -> Result<usize, Fault> {
    let now = nanos_of(now);
    let chosen = chosen_dead(db, id)?;
    for dead in &chosen {
        let (webhook, seq): (i64, i64) = db
            .prepare_cached("DELETE FROM dead WHERE id = ?1 RETURNING webhook, seq")?
            .query_row(params![dead], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let receiver: String = db
            .prepare_cached("SELECT receiver FROM webhooks WHERE id = ?1")?
            .query_row(params![webhook], |row| row.get(0))?;
        tell(db, webhook, &receiver, &[rows::seq_of(seq)], now)?;
    }
    Ok(chosen.len())
}

/// Forgets deliveries that were given up. How many they were.
pub(super) fn purge_dead(db: &Connection, id: Option<&DeliveryId>) -> Result<usize, Fault> {
    let chosen = chosen_dead(db, id)?;
    for dead in &chosen {
        db.prepare_cached("DELETE FROM dead WHERE id = ?1")?.execute(params![dead])?;
    }
    Ok(chosen.len())
}

/// How many secrets are sealed anew at a time, so that others can write in between.
const RESEALED: usize = 256;

/// Seals secrets under the key in use that are sealed under another, from a webhook on. How many they were, and where to go on
/// if there may be more.
pub(super) fn reseal(db: &Connection, keyring: &Keyring, from: i64) -> Result<(usize, Option<i64>), Fault> {
    let mut read = db.prepare_cached(
        "SELECT webhooks.id, tasks.task_id, webhooks.name, webhooks.secrets
         FROM webhooks JOIN tasks ON tasks.id = webhooks.task
         WHERE webhooks.id >= ?1 AND webhooks.secrets IS NOT NULL ORDER BY webhooks.id LIMIT ?2",
    )?;
    let mut rows = read.query(params![from, RESEALED as i64])?;
    let (mut seen, mut last, mut resealed) = (0, from, 0);
    while let Some(row) = rows.next()? {
        (seen, last) = (seen + 1, row.get(0)?);
        let sealed: Vec<u8> = row.get(3)?;
        if keyring.is_current(&sealed)? {
            continue;
        }
        let task = TaskId::from(Id::read(row.get_ref(1)?).map_err(rusqlite::Error::from)?);
        let purpose = purpose(&task, &row.get::<_, String>(2)?);
        let anew = keyring.seal(&purpose, &keyring.open(&purpose, &sealed)?)?;
        db.prepare_cached("UPDATE webhooks SET secrets = ?2 WHERE id = ?1")?.execute(params![last, anew])?;
        resealed += 1;
    }
    Ok((resealed, (seen == RESEALED).then_some(last + 1)))
}
