//! Opening a file: what is checked before anything is written to it, and how SQLite is set up.
//!
//! The database file, its write-ahead log and its shared memory are opened by SQLite only. SQLite guards them with POSIX locks,
//! and the system drops all POSIX locks that a process has on a file as soon as the process closes any descriptor of that file.
//! After that another program takes itself for the last user and deletes the write-ahead log. SQLite knows this and keeps such
//! descriptors open; `std::fs::File` does not. Looking at names and metadata is harmless.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::schema;

/// Why a store could not be opened. Nothing was changed in the file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses it.
    #[error("the store at `{}` is in use by another process{}: stop that one first, or use another file", path.display(), shown_pid(*pid))]
    InUse {
        /// The file.
        path: PathBuf,
        /// The other process, if it said.
        pid: Option<u32>,
    },
    /// It was written by a newer version of the program.
    #[error(
        "the store at `{}` was written by a newer version of Attaché (schema {found}, this one knows {known}): start it with that version, or export it there",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of its schema.
        found: i32,
        /// The version that this program knows.
        known: i32,
    },
    /// It is something else.
    #[error("`{}` is {what}, not a store of Attaché; it was left as it is: choose another path", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It is broken.
    #[error(
        "the store at `{}` is damaged ({problem}); it was left as it is: run `attache store check`, or restore a copy of the file",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Other users have access to it, and the system does not let this user change that.
    #[error(
        "other users have access to `{}` (mode {mode:04o}), and it could not be changed ({error}): run `chmod 600` on it as its owner",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Why it could not be changed.
        error: io::Error,
    },
    /// There is none.
    #[error("there is no store at `{}`", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The system did not allow it.
    #[error("`{}` could not be {doing}: {error}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What happened.
        error: io::Error,
    },
    /// SQLite did not manage.
    #[error("the store at `{}` could not be opened: {error}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What happened.
        error: rusqlite::Error,
    },
}

fn shown_pid(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

impl OpenError {
    pub(super) fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Self::Damaged { path, problem: error.to_string() }
            }
            _ => Self::Sqlite { path, error },
        }
    }
}

/// What keeps other servers away from the file for as long as it lives.
///
/// The lock is on a file of its own and of the kind that belongs to the open descriptor (`flock`), so closing another descriptor
/// of that file does not release it.
#[derive(Debug)]
pub(super) struct FileLock(#[expect(dead_code, reason = "it is locked, not read")] File);

/// A file next to the store's, also where the path is a link to it: whatever it is called, there is one lock.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name =
        fs::canonicalize(path).map_or_else(|_| path.as_os_str().to_owned(), PathBuf::into_os_string);
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn lock(path: &Path) -> Result<FileLock, OpenError> {
    let beside = beside(path, ".lock");
    let failed = |error| OpenError::Io { path: beside.clone(), doing: "written", error };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&beside).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(OpenError::InUse { path: path.to_owned(), pid });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0).map_err(failed)?;
    file.write_all(std::process::id().to_string().as_bytes()).map_err(failed)?;
    Ok(FileLock(file))
}

/// Makes a directory for its owner only, with those above it. One that exists is left as it is.
fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Takes the lock of a store for a server. Makes the file if there is none, and refuses one that is not a store.
pub(super) fn lock_for_server(path: &Path) -> Result<FileLock, OpenError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_private_dir(parent).map_err(|error| OpenError::Io {
            path: parent.to_owned(),
            doing: "created",
            error,
        })?;
    }
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The lock comes first: a descriptor of the file is closed below, and no connection of this process may exist then.
            let lock = lock(path)?;
            create_file(path)?;
            Ok(lock)
        }
        Ok(_) | Err(_) => {
            // Before the lock, so that nothing is put beside a file that is not ours.
            inspect(path)?;
            let lock = lock(path)?;
            make_private(path)?;
            Ok(lock)
        }
    }
}

/// Makes an empty file for its owner only. An error if there is anything at the path, also a link that leads nowhere.
pub(super) fn create_new_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Makes an empty file for its owner only, unless it exists.
fn create_file(path: &Path) -> Result<(), OpenError> {
    match create_new_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::Io { path: path.to_owned(), doing: "created", error }),
    }
}

/// Takes the rights to a store's files from everyone but their owner. Files that the system does not let us change are refused.
#[cfg(unix)]
fn make_private(path: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::PermissionsExt;
    for file in [path.to_owned(), beside(path, "-wal"), beside(path, "-shm"), beside(path, ".lock")] {
        let Ok(metadata) = fs::metadata(&file) else { continue };
        let mode = metadata.permissions().mode() & 0o7777;
        if mode & 0o077 == 0 {
            continue;
        }
        let private = mode & 0o700;
        if let Err(error) = fs::set_permissions(&file, fs::Permissions::from_mode(private)) {
            return Err(OpenError::Exposed { path: file, mode, error });
        }
        tracing::warn!(
            file = %file.display(),
            "other users had access to the store (mode {mode:04o}); it is now {private:04o}. Tasks may have been read or changed"
        );
    }
    Ok(())
}

#[cfg(not(unix))]
fn make_private(_path: &Path) -> Result<(), OpenError> {
    Ok(())
}

/// The bytes of a path that stand for themselves in a SQLite URI.
const IN_URI: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

/// What the header of a file says, without regard to the write-ahead log.
struct Header {
    application: i32,
    version: i32,
    /// How many bytes the file should have.
    length: u64,
}

/// Reads the header of a file without locking, recovering or creating anything.
fn header(path: &Path) -> rusqlite::Result<Header> {
    #[cfg(unix)]
    let name = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    #[cfg(not(unix))]
    let name = path.to_string_lossy();
    #[cfg(not(unix))]
    let name = name.as_bytes();
    let uri = format!("file:{}?immutable=1", percent_encode(name, IN_URI));
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

/// Looks at the header of a file, so that one that is not ours is left alone. Whether it is still empty.
pub(super) fn inspect(path: &Path) -> Result<bool, OpenError> {
    let failed = |error| OpenError::Io { path: path.to_owned(), doing: "read", error };
    let not_ours = |what| OpenError::NotAStore { path: path.to_owned(), what };
    let damaged = |problem: String| OpenError::Damaged { path: path.to_owned(), problem };
    let metadata = fs::metadata(path).map_err(|error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        if missing { OpenError::Missing { path: path.to_owned() } } else { failed(error) }
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
    let wal_is_empty = fs::metadata(beside(path, "-wal")).map_or(0, |wal| wal.len()) == 0;
    let header = match header(path) {
        Ok(header) => header,
        Err(error) => {
            return match error.sqlite_error_code() {
                Some(ErrorCode::NotADatabase) => Err(not_ours("a file of another kind")),
                // A process that was killed while it moved the log into the file leaves this behind. SQLite mends it.
                Some(ErrorCode::DatabaseCorrupt) if !wal_is_empty => Ok(false),
                Some(ErrorCode::DatabaseCorrupt) => Err(damaged(format!(
                    "{error}; it may have been cut off, it has {} bytes",
                    metadata.len()
                ))),
                _ => Err(OpenError::sqlite(path, error)),
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

/// Whether a file is a store, of a version that this program knows.
fn check_header(path: &Path, application: i32, version: i32) -> Result<(), OpenError> {
    if application != schema::APPLICATION_ID {
        return Err(OpenError::NotAStore { path: path.to_owned(), what: "a SQLite file of another program" });
    }
    if version > schema::VERSION {
        return Err(newer(path, version));
    }
    Ok(())
}

fn newer(path: &Path, found: i32) -> OpenError {
    OpenError::Newer { path: path.to_owned(), found, known: schema::VERSION }
}

/// How long to wait for another process that is writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How many statements each connection keeps ready.
const STATEMENTS: usize = 128;

/// The size of a page. Rows of tasks and of the log have around a kilobyte: of smaller pages more would be needed, and of larger
/// ones more would be written for each.
const PAGE_SIZE: i32 = 8192;

/// Opens a connection that writes, making the tables if there are none yet.
pub(super) fn writer(path: &Path) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::sqlite(path, error);
    let mut db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    if db.is_readonly("main").map_err(failed)? {
        let error = io::ErrorKind::PermissionDenied.into();
        return Err(OpenError::Io { path: path.to_owned(), doing: "written", error });
    }
    let number = |db: &Connection, pragma| db.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    if number(&db, "page_count").map_err(failed)? == 0 {
        db.pragma_update(None, "page_size", PAGE_SIZE).map_err(failed)?;
        // Before there is a write-ahead log, so that it is in the file itself, where it is looked for.
        db.pragma_update(None, "application_id", schema::APPLICATION_ID).map_err(failed)?;
    }
    let application = number(&db, "application_id").map_err(failed)?;
    check_header(path, application, schema::version(&db).map_err(failed)?)?;
    let mode: String =
        db.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        let problem = format!("its journal mode is `{mode}` and cannot be changed to `wal`");
        return Err(OpenError::Damaged { path: path.to_owned(), problem });
    }
    db.pragma_update(None, "synchronous", "full").map_err(failed)?;
    db.pragma_update(None, "cache_size", -32 * 1024).map_err(failed)?;
    db.pragma_update(None, "wal_autocheckpoint", 0).map_err(failed)?;
    schema::migrate(&mut db).map_err(failed)?;
    Ok(db)
}

/// Opens a connection that only reads.
pub(super) fn reader(path: &Path) -> Result<Connection, OpenError> {
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let failed = |error| OpenError::sqlite(path, error);
    db.pragma_update(None, "query_only", true).map_err(failed)?;
    // Room for the inner pages and the id index of some million tasks, in KiB. It is taken as it is used.
    db.pragma_update(None, "cache_size", -96 * 1024).map_err(failed)?;
    Ok(db)
}

pub(super) fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let failed = |error| OpenError::sqlite(path, error);
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(failed)?;
    db.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    // A page whose rows overlap or reach over its end is an error when it is read, not a wrong answer.
    db.pragma_update(None, "cell_size_check", true).map_err(failed)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(db)
}
