//! Values by scope and key.
//!
//! A change runs within the transaction of the writer. So changes run one after the other, and many of them share one wait for the
//! disk.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use attache_core::{BoxFuture, ChangedValue, StoreError, ValueChange, Values};
use attache_protocol::Json;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};

use super::fault::Fault;
use super::writer::{Batch, Command, closed};
use super::{Inner, ResultSender, SqliteStore};

/// The maximum size of a value that the calling thread reads, in bytes.
const MAX_SMALL_VALUE: usize = 64 * 1024;

const FIND: &str = "SELECT id, value FROM kept_values WHERE scope = ?1 AND key = ?2";

const FIND_SMALL: &str = "SELECT CASE WHEN octet_length(value) <= ?3 THEN value END FROM kept_values
    WHERE scope = ?1 AND key = ?2";

const LIST: &str =
    "SELECT key, value FROM kept_values INDEXED BY kept_values_by_scope WHERE scope = ?1 ORDER BY id";

/// Jumps from each scope to the next one, without reading the rows between.
const SCOPES: &str = "WITH RECURSIVE names (name) AS (
        SELECT min(scope) FROM kept_values
        UNION ALL
        SELECT (SELECT min(scope) FROM kept_values WHERE scope > name) FROM names WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name IS NOT NULL";

#[cfg(test)]
pub(super) const QUERIES: [&str; 4] = [FIND, FIND_SMALL, LIST, SCOPES];

/// The text in the column of a value.
pub(super) fn text(column: ValueRef<'_>) -> Result<&str, serde_json::Error> {
    column.as_str().map_err(serde::de::Error::custom)
}

pub(super) fn unreadable(scope: &str, key: &str, error: serde_json::Error) -> Fault {
    Fault::Unreadable { what: format!("the value of `{key}` in `{scope}`"), error }
}

/// Decodes a value.
pub(super) fn read(column: ValueRef<'_>, scope: &str, key: &str) -> Result<Json, Fault> {
    text(column).and_then(Json::parse).map_err(|error| unreadable(scope, key, error))
}

/// The row id and the value of a key.
fn find(db: &Connection, scope: &str, key: &str) -> Result<Option<(i64, Json)>, Fault> {
    let mut find = db.prepare_cached(FIND)?;
    let mut rows = find.query(params![scope, key])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some((row.get(0)?, read(row.get_ref(1)?, scope, key)?)))
}

/// The result of reading a value on the calling thread.
enum SmallValue {
    Missing,
    Value(Json),
    /// The value is larger than [`MAX_SMALL_VALUE`].
    TooLarge,
}

fn find_small(db: &Connection, scope: &str, key: &str) -> Result<SmallValue, Fault> {
    let mut find = db.prepare_cached(FIND_SMALL)?;
    let mut rows = find.query(params![scope, key, MAX_SMALL_VALUE as i64])?;
    let Some(row) = rows.next()? else { return Ok(SmallValue::Missing) };
    match row.get_ref(0)? {
        ValueRef::Null => Ok(SmallValue::TooLarge),
        column @ (ValueRef::Text(_) | ValueRef::Blob(_) | ValueRef::Integer(_) | ValueRef::Real(_)) => {
            Ok(SmallValue::Value(read(column, scope, key)?))
        }
    }
}

pub(super) fn list(db: &Connection, scope: &str) -> Result<Vec<(String, Json)>, Fault> {
    let mut list = db.prepare_cached(LIST)?;
    let mut rows = list.query(params![scope])?;
    let mut values = Vec::new();
    while let Some(row) = rows.next()? {
        let key: String = row.get(0)?;
        let value = read(row.get_ref(1)?, scope, &key)?;
        values.push((key, value));
    }
    Ok(values)
}

fn scopes(db: &Connection) -> Result<Vec<String>, Fault> {
    let mut scopes = db.prepare_cached(SCOPES)?;
    let names = scopes.query_map((), |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// Changes a value in the current transaction.
pub(super) fn change(
    db: &Connection,
    scope: &str,
    key: &str,
    change: impl FnOnce(Option<&Json>) -> Option<Json>,
) -> Result<ChangedValue, Fault> {
    let (row, old) = find(db, scope, key)?.unzip();
    let new = change(old.as_ref());
    store(db, (scope, key), row, old.as_ref(), new.as_ref())?;
    Ok(ChangedValue { old, new })
}

/// Writes the new value of a key. `row` has the old one, if there is one.
fn store(
    db: &Connection,
    (scope, key): (&str, &str),
    row: Option<i64>,
    old: Option<&Json>,
    new: Option<&Json>,
) -> Result<(), Fault> {
    if is_same(old, new) {
        return Ok(());
    }
    match (row, new) {
        (None, None) => {}
        (None, Some(new)) => {
            db.prepare_cached("INSERT INTO kept_values (scope, key, value) VALUES (?1, ?2, ?3)")?
                .execute(params![scope, key, new.as_str()])?;
        }
        (Some(row), Some(new)) => {
            db.prepare_cached("UPDATE kept_values SET value = ?2 WHERE id = ?1")?
                .execute(params![row, new.as_str()])?;
        }
        (Some(row), None) => {
            db.prepare_cached("DELETE FROM kept_values WHERE id = ?1")?.execute(params![row])?;
        }
    }
    Ok(())
}

/// A change of one value.
struct Change {
    scope: String,
    key: String,
    change: ValueChange,
    /// The result of the last run. An error is a panic, which changes nothing.
    result: Option<thread::Result<ChangedValue>>,
    sender: ResultSender<thread::Result<ChangedValue>>,
}

/// Whether two values have the same text.
fn is_same(one: Option<&Json>, other: Option<&Json>) -> bool {
    one.map(Json::as_str) == other.map(Json::as_str)
}

impl Command for Change {
    fn execute(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault> {
        let (db, scope, key) = (batch.db, &*self.scope, &*self.key);
        let (row, old) = find(db, scope, key)?.unzip();
        // A transaction that failed is executed again, so the value may be another one than in the run before.
        let new = catch_unwind(AssertUnwindSafe(|| (self.change)(old.as_ref())));
        let result = &*self.result.insert(new.map(|new| ChangedValue { old, new }));
        let Ok(ChangedValue { old, new }) = result else { return Ok(()) };
        if is_same(old.as_ref(), new.as_ref()) {
            return Ok(());
        }
        store(db, (scope, key), row, old.as_ref(), new.as_ref())?;
        batch.bytes += new.as_ref().map_or(0, |new| new.as_str().len());
        Ok(())
    }

    fn finish(self: Box<Self>, written: Result<(), StoreError>) {
        let Self { result, sender, .. } = *self;
        let _ = sender.send(written.and_then(|()| result.ok_or_else(closed)));
    }
}

impl Inner {
    async fn change_value(
        &self,
        scope: &str,
        key: &str,
        change: ValueChange,
    ) -> Result<ChangedValue, StoreError> {
        let (scope, key) = (scope.to_owned(), key.to_owned());
        let changed =
            self.write(|sender| Box::new(Change { scope, key, change, result: None, sender })).await?;
        Ok(changed.unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Values for SqliteStore {
    fn get<'a>(&'a self, scope: &'a str, key: &'a str) -> BoxFuture<'a, Result<Option<Json>, StoreError>> {
        Box::pin(async move {
            match self.inner.read(|db| find_small(db, scope, key))? {
                SmallValue::Missing => Ok(None),
                SmallValue::Value(value) => Ok(Some(value)),
                SmallValue::TooLarge => {
                    let (scope, key) = (scope.to_owned(), key.to_owned());
                    let found = self.inner.read_blocking(move |_, db| find(db, &scope, &key)).await?;
                    Ok(found.map(|(_, value)| value))
                }
            }
        })
    }

    fn list<'a>(&'a self, scope: &'a str) -> BoxFuture<'a, Result<Vec<(String, Json)>, StoreError>> {
        let scope = scope.to_owned();
        Box::pin(self.inner.read_blocking(move |_, db| list(db, &scope)))
    }

    fn scopes(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        Box::pin(self.inner.read_blocking(|_, db| scopes(db)))
    }

    fn change<'a>(
        &'a self,
        scope: &'a str,
        key: &'a str,
        change: ValueChange,
    ) -> BoxFuture<'a, Result<ChangedValue, StoreError>> {
        Box::pin(self.inner.change_value(scope, key, change))
    }
}
