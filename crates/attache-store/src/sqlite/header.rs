//! The check of a file before it is opened as a store.

use std::borrow::Cow;
use std::path::Path;
use std::{fs, io};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::lock::sibling;
use super::open_error::SqliteOpenError;
use super::schema;

/// The bytes of a path that need no encoding in a SQLite URI.
const IN_URI: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

/// The header of a database file. The write-ahead log is not considered.
struct Header {
    application: i32,
    version: i32,
    /// The expected size of the file in bytes.
    length: u64,
}

/// The bytes of a path, as SQLite expects them in a URI.
///
/// SQLite takes UTF-8 on Windows. A path that is not valid Unicode does not exist for SQLite there.
fn path_bytes(path: &Path) -> Cow<'_, [u8]> {
    #[cfg(unix)]
    {
        Cow::Borrowed(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
    }
    #[cfg(not(unix))]
    {
        Cow::Owned(path.to_string_lossy().into_owned().into_bytes())
    }
}

/// Reads the header of a file without locking, recovering or creating anything.
fn header(path: &Path) -> rusqlite::Result<Header> {
    let uri = format!("file:{}?immutable=1", percent_encode(&path_bytes(path), IN_URI));
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(uri, flags)?;
    let number = |pragma| db.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    Ok(Header {
        application: number("application_id")? as i32,
        version: number("user_version")? as i32,
        length: number("page_count")?.unsigned_abs() * number("page_size")?.unsigned_abs(),
    })
}

/// Checks that a file is a store that this program can open. Changes nothing. Returns whether the file is empty.
pub(super) fn inspect(path: &Path) -> Result<bool, SqliteOpenError> {
    let failed = |error| SqliteOpenError::Io { path: path.to_owned(), doing: "read", error };
    let not_ours = |what| SqliteOpenError::NotAStore { path: path.to_owned(), what };
    let damaged = |problem: String| SqliteOpenError::Damaged { path: path.to_owned(), problem };
    let metadata = fs::metadata(path).map_err(|error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        if missing { SqliteOpenError::Missing { path: path.to_owned() } } else { failed(error) }
    })?;
    if metadata.is_dir() {
        return Err(not_ours("a directory"));
    }
    if !metadata.is_file() {
        return Err(not_ours("not a regular file"));
    }
    if metadata.len() == 0 {
        return Ok(true);
    }
    let wal_is_empty = fs::metadata(sibling(path, "-wal")).map_or(0, |wal| wal.len()) == 0;
    let header = match header(path) {
        Ok(header) => header,
        Err(error) => {
            return match error.sqlite_error_code() {
                Some(ErrorCode::NotADatabase) => Err(not_ours("a file of another kind")),
                // A process was killed during a checkpoint. SQLite repairs the file from the write-ahead log.
                Some(ErrorCode::DatabaseCorrupt) if !wal_is_empty => Ok(false),
                Some(ErrorCode::DatabaseCorrupt) => {
                    Err(damaged(format!("{error}; it may be truncated, it has {} bytes", metadata.len())))
                }
                _ => Err(SqliteOpenError::sqlite(path, error)),
            };
        }
    };
    if metadata.len() < 100 {
        return Err(damaged(format!("it has only {} bytes", metadata.len())));
    }
    check_header(path, header.application, header.version)?;
    if wal_is_empty && metadata.len() < header.length {
        let Header { length, .. } = header;
        return Err(damaged(format!("it has {} bytes where {length} are expected", metadata.len())));
    }
    Ok(false)
}

/// Checks the application id and the schema version.
pub(super) fn check_header(path: &Path, application: i32, version: i32) -> Result<(), SqliteOpenError> {
    if application != schema::APPLICATION_ID {
        return Err(SqliteOpenError::NotAStore {
            path: path.to_owned(),
            what: "a SQLite file of another program",
        });
    }
    if version > schema::VERSION {
        return Err(SqliteOpenError::Newer { path: path.to_owned(), found: version, known: schema::VERSION });
    }
    Ok(())
}
