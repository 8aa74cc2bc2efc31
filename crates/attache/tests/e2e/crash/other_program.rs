//! Another program that uses the store's file at the same time as the server.
//!
//! A person with `sqlite3`, a backup script and a monitoring tool open the file, read, copy or checkpoint it, and close it again. If
//! the server has lost its locks, closing deletes the write-ahead log, and everything that is acknowledged later is gone.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use fastrand::Rng;
use rusqlite::Connection;
use rusqlite::backup::Backup;

use super::subject::store_url;

/// How long the other program waits for the server, and then gives up: it may be refused, the server may not.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);

/// The other program, until it is stopped.
pub(super) struct OtherProgram {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<PathBuf>>,
}

impl OtherProgram {
    /// Starts it on a store, which need not exist yet. `uses` counts how often it used the file.
    pub(super) fn start(store: PathBuf, random: Rng, uses: Arc<AtomicUsize>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || run(&store, random, &stopped, &uses));
        Self { stop, thread }
    }

    /// Stops it. The last backup that it made, if it made any.
    pub(super) fn stop(self) -> Option<PathBuf> {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("the other program does not panic")
    }
}

fn run(store: &Path, mut random: Rng, stop: &AtomicBool, uses: &AtomicUsize) -> Option<PathBuf> {
    let mut last = None;
    for round in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        let copy = store.with_file_name(format!("copy{round}.db"));
        let used = match random.u8(..8) {
            0 => back_up_with_command(store, &copy),
            choice => use_file(store, &copy, choice).is_ok(),
        };
        uses.fetch_add(usize::from(used), Relaxed);
        if used && copy.exists() {
            last.replace(copy).into_iter().for_each(|old| remove(&old));
        } else {
            remove(&copy);
        }
        std::thread::sleep(Duration::from_millis(random.u64(1..20)));
    }
    last
}

/// Opens the file, does one thing with it, and closes it.
fn use_file(store: &Path, copy: &Path, choice: u8) -> rusqlite::Result<()> {
    let db = Connection::open_with_flags(store, rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    match choice {
        1 => db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?,
        2 => db.query_row("PRAGMA wal_checkpoint(RESTART)", (), |_| Ok(()))?,
        3 => db.execute_batch(&format!("VACUUM INTO '{}'", copy.display()))?,
        4 => {
            let mut target = Connection::open(copy)?;
            let backup = Backup::new(&db, &mut target)?;
            backup.step(-1)?;
        }
        _ => db.query_row("SELECT count(*), max(id) FROM tasks", (), |_| Ok(()))?,
    }
    Ok(())
}

fn back_up_with_command(store: &Path, copy: &Path) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attache"));
    command.args(["store", "backup", "--store", &store_url(store)]).arg(copy);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.expect("the command runs").success()
}

/// Removes a copy with what SQLite may have put beside it.
fn remove(copy: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = copy.as_os_str().to_owned();
        name.push(suffix);
        // There is nothing to remove most of the time.
        let _ = std::fs::remove_file(name);
    }
}
