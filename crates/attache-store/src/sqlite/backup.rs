//! Copying a store while a server uses it.
//!
//! The copy is one view of the store: everything that was acknowledged before it began, and nothing of what comes later. It appears
//! under its name when it is complete and on the disk.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::fault::Fault;
use super::maintenance::MaintenanceError;
use super::open;

/// How far a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupProgress {
    /// How many bytes are copied.
    pub copied: u64,
    /// How many there are.
    pub total: u64,
}

/// How many pages are copied between two reports.
const PAGES: i32 = 512;

/// How long to try again while another process keeps the file from being read.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait before trying again.
const RETRY: Duration = Duration::from_millis(50);

/// Removes an incomplete copy, unless it was completed.
struct Incomplete(PathBuf);

impl Drop for Incomplete {
    fn drop(&mut self) {
        // Nothing is there any more after success.
        let _ = fs::remove_file(&self.0);
    }
}

/// Copies a store into a new file. How many bytes it has.
pub(super) fn backup(
    db: &Connection,
    to: &Path,
    progress: &mut dyn FnMut(BackupProgress),
    explain: impl Fn(Fault) -> MaintenanceError,
) -> Result<u64, MaintenanceError> {
    let failed = |error| MaintenanceError::Backup { path: to.to_owned(), error };
    if fs::symlink_metadata(to).is_ok() {
        return Err(failed(io::ErrorKind::AlreadyExists.into()));
    }
    let mut name = OsString::from(to);
    name.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(name);
    // It must be ours: in a directory that others can write to, a link could lead the copy to a file of theirs.
    open::create_new_file(&partial)
        .map_err(|error| MaintenanceError::Backup { path: partial.clone(), error })?;
    let partial = Incomplete(partial);
    let copied = copy(db, &partial.0, progress).map_err(|fault| match fault {
        // The source has been read before this, so it is the copy that has no room.
        Fault::Sqlite(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) => {
            failed(io::Error::new(io::ErrorKind::StorageFull, error))
        }
        fault @ (Fault::Sqlite(_) | Fault::Unreadable { .. } | Fault::Keyring(_) | Fault::Replaced(_)) => {
            explain(fault)
        }
    })?;
    publish(&partial.0, to).map_err(failed)?;
    Ok(copied)
}

fn copy(source: &Connection, to: &Path, progress: &mut dyn FnMut(BackupProgress)) -> Result<u64, Fault> {
    // One view for the whole copy. Without it the copy would start again with every write of the server.
    let source = source.unchecked_transaction()?;
    let page_size: u32 = source.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let page_size = u64::from(page_size);
    source.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
    let mut target = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // An incomplete copy is thrown away, so it needs no journal. What is complete must be on the disk.
    target.pragma_update(None, "journal_mode", "off")?;
    target.pragma_update(None, "synchronous", "full")?;
    let copied = {
        let backup = Backup::new(&source, &mut target)?;
        let mut since = Instant::now();
        loop {
            let step = backup.step(PAGES)?;
            match step {
                StepResult::Busy | StepResult::Locked if since.elapsed() < BUSY_TIMEOUT => {
                    std::thread::sleep(RETRY);
                    continue;
                }
                StepResult::Busy | StepResult::Locked => {
                    let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
                    return Err(rusqlite::Error::SqliteFailure(busy, None).into());
                }
                StepResult::Done | StepResult::More | _ => {
                    since = Instant::now();
                    let at = backup.progress();
                    let total = at.pagecount.unsigned_abs();
                    let left = at.remaining.unsigned_abs();
                    let copied = u64::from(total.saturating_sub(left)) * page_size;
                    progress(BackupProgress { copied, total: u64::from(total) * page_size });
                    if let StepResult::Done = step {
                        break copied;
                    }
                }
            }
        }
    };
    target.close().map_err(|(_, error)| error)?;
    Ok(copied)
}

/// Gives a complete file its name, which must not be in use.
fn publish(partial: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(partial, to) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
        // Not every file system has links.
        Err(_) if fs::symlink_metadata(to).is_err() => fs::rename(partial, to)?,
        Err(error) => return Err(error),
    }
    match to.parent() {
        Some(folder) if cfg!(unix) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            File::open(folder)?.sync_all()
        }
        Some(_) | None => Ok(()),
    }
}
