//! Opening connections to a store, and their settings.
//!
//! Only SQLite opens the database file, its write-ahead log and its shared memory. SQLite protects them with POSIX locks, and the system
//! drops all POSIX locks of a process on a file when the process closes any descriptor of that file. Then another program takes itself
//! for the last user and deletes the write-ahead log. SQLite knows this and keeps such descriptors open; `std::fs::File` does not.
//! Reading names and metadata is harmless.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::header::check_header;
use super::open_error::SqliteOpenError;
use super::schema;

/// How long to wait for another process that holds the write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of prepared statements that a connection caches.
const STATEMENTS: usize = 128;

/// The size of a page. A row of a task or of the log has about one kilobyte. Smaller pages would need more reads, larger pages would
/// write more for each row.
const PAGE_SIZE: i32 = 8192;

/// Opens a connection that writes. Creates or migrates the tables.
pub(super) fn writer(path: &Path) -> Result<Connection, SqliteOpenError> {
    let failed = |error| SqliteOpenError::sqlite(path, error);
    let mut db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    if db.is_readonly("main").map_err(failed)? {
        let error = io::ErrorKind::PermissionDenied.into();
        return Err(SqliteOpenError::Io { path: path.to_owned(), doing: "written", error });
    }
    let number = |db: &Connection, pragma| db.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    if number(&db, "page_count").map_err(failed)? == 0 {
        db.pragma_update(None, "page_size", PAGE_SIZE).map_err(failed)?;
        // Before WAL mode is switched on, so that the id is in the database file, where `inspect` reads it.
        db.pragma_update(None, "application_id", schema::APPLICATION_ID).map_err(failed)?;
    }
    let application = number(&db, "application_id").map_err(failed)?;
    check_header(path, application, schema::version(&db).map_err(failed)?)?;
    let mode: String =
        db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        let problem = format!("its journal mode is `{mode}` and cannot be changed to `wal`");
        return Err(SqliteOpenError::Damaged { path: path.to_owned(), problem });
    }
    db.pragma_update(None, "synchronous", "full").map_err(failed)?;
    db.pragma_update(None, "cache_size", -32 * 1024).map_err(failed)?;
    db.pragma_update(None, "wal_autocheckpoint", 0).map_err(failed)?;
    schema::migrate(&mut db).map_err(failed)?;
    Ok(db)
}

/// Opens a connection that only reads.
pub(super) fn reader(path: &Path) -> Result<Connection, SqliteOpenError> {
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let failed = |error| SqliteOpenError::sqlite(path, error);
    db.pragma_update(None, "query_only", true).map_err(failed)?;
    // Enough for the inner pages and the id index of some million tasks, in KiB. SQLite allocates it as it is used.
    db.pragma_update(None, "cache_size", -96 * 1024).map_err(failed)?;
    Ok(db)
}

pub(super) fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, SqliteOpenError> {
    let failed = |error| SqliteOpenError::sqlite(path, error);
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    // A damaged page is an error when it is read, not a wrong result.
    db.pragma_update(None, "cell_size_check", true).map_err(failed)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(db)
}
