//! Backups: copying a store while a server uses it.
//!
//! The copy has everything that was acknowledged before the backup began, and nothing of what came later. It gets its final name when
//! it is complete and on the disk.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use attache_files::durability;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::fault::Fault;
use super::lock;
use super::maintenance::MaintenanceError;

/// The progress of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupProgress {
    /// The copied bytes.
    pub copied: u64,
    /// All bytes.
    pub total: u64,
}

/// The number of pages between two progress reports.
const PAGES: i32 = 512;

/// How long to retry while another process locks the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause between two retries.
const RETRY: Duration = Duration::from_millis(50);

/// An incomplete copy. It is removed when this is dropped.
struct Incomplete(PathBuf);

impl Drop for Incomplete {
    fn drop(&mut self) {
        // After success the file has its final name, so there is nothing to remove.
        let _ = fs::remove_file(&self.0);
    }
}

/// Copies a store into a new file. Returns its size in bytes.
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
    // The file must be new: in a directory that other users can write to, they could have put a link to a file of theirs there.
    lock::create_new_file(&partial)
        .map_err(|error| MaintenanceError::Backup { path: partial.clone(), error })?;
    let partial = Incomplete(partial);
    let copied = copy(db, &partial.0, progress).map_err(|fault| match fault {
        // The source is only read, so the disk of the copy is full.
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
    // One read transaction for the whole copy. Without it, SQLite restarts the copy after every write of the server.
    let source = source.unchecked_transaction()?;
    let page_size: u32 = source.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let page_size = u64::from(page_size);
    source.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
    let mut target = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // An incomplete copy is deleted, so it needs no journal. A complete copy must be on the disk.
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

/// Gives the complete copy its final name. An error if a file with that name exists.
fn publish(partial: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(partial, to) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
        // Some file systems have no hard links.
        Err(_) if fs::symlink_metadata(to).is_err() => fs::rename(partial, to)?,
        Err(error) => return Err(error),
    }
    durability::sync_folder_of(to)
}
