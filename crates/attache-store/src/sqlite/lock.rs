//! The lock of a store, and the creation of its files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use attache_files::permissions;

use super::header::inspect;
use super::open_error::SqliteOpenError;

/// The lock of a store. Other servers cannot open the store until it is dropped.
///
/// The lock is on a separate file. It belongs to the open descriptor (`flock` on Unix, `LockFileEx` on Windows), so closing another
/// descriptor of that file does not release it.
#[derive(Debug)]
pub(super) struct FileLock(#[expect(dead_code, reason = "it is locked, not read")] File);

/// The path of a file next to the database file. A link is resolved first, so that a store has one lock under all its names.
pub(super) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name =
        fs::canonicalize(path).map_or_else(|_| path.as_os_str().to_owned(), PathBuf::into_os_string);
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn lock(path: &Path) -> Result<FileLock, SqliteOpenError> {
    let lock_path = sibling(path, ".lock");
    let failed = |error| SqliteOpenError::Io { path: lock_path.clone(), doing: "written", error };
    let mut options = OpenOptions::new();
    permissions::owner_only_file(&mut options).read(true).write(true).create(true).truncate(false);
    let mut file = options.open(&lock_path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            // Windows does not let this process read a locked file. Then the other process stays unknown.
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(SqliteOpenError::InUse { path: path.to_owned(), pid });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0).map_err(failed)?;
    file.write_all(std::process::id().to_string().as_bytes()).map_err(failed)?;
    Ok(FileLock(file))
}

/// Takes the lock of a store for a server. Creates the file if there is none. A file that is not a store is an error.
pub(super) fn lock_for_server(path: &Path) -> Result<FileLock, SqliteOpenError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        permissions::create_owner_only_folder(parent).map_err(|error| SqliteOpenError::Io {
            path: parent.to_owned(),
            doing: "created",
            error,
        })?;
    }
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The lock comes first. Creating the file closes a descriptor of it, which would drop the POSIX locks of a connection in
            // this process. With the lock held there is none.
            let lock = lock(path)?;
            create_file(path)?;
            Ok(lock)
        }
        Ok(_) | Err(_) => {
            // The check comes first, so that no lock file is created next to a file that is not a store.
            inspect(path)?;
            let lock = lock(path)?;
            make_private(path)?;
            Ok(lock)
        }
    }
}

/// Creates an empty file for its owner only. An error if the path exists, also as a broken link.
pub(super) fn create_new_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    permissions::owner_only_file(&mut options).write(true).create_new(true).open(path).map(drop)
}

/// Creates an empty file for its owner only, unless the file exists.
fn create_file(path: &Path) -> Result<(), SqliteOpenError> {
    match create_new_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(SqliteOpenError::Io { path: path.to_owned(), doing: "created", error }),
    }
}

/// Removes the access of other users from the files of a store. An error if the system does not allow that.
fn make_private(path: &Path) -> Result<(), SqliteOpenError> {
    for file in [path.to_owned(), sibling(path, "-wal"), sibling(path, "-shm"), sibling(path, ".lock")] {
        let Some(mode) = fs::metadata(&file).ok().and_then(|metadata| permissions::shared_mode(&metadata))
        else {
            continue;
        };
        match permissions::make_private(&file, mode) {
            Ok(private) => tracing::warn!(
                file = %file.display(),
                "other users had access to the store (mode {mode:04o}); it is now {private:04o}. Tasks may have been read or changed"
            ),
            Err(error) => return Err(SqliteOpenError::Exposed { path: file, mode, error }),
        }
    }
    Ok(())
}
