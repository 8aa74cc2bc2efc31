//! Checkpoints: moving pages from the write-ahead log into the database file.
//!
//! A background thread moves most pages while the writer continues. The writer itself moves the few pages that were added meanwhile,
//! between two transactions. Then SQLite can restart the write-ahead log from its beginning, and the log does not grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

/// The length of the write-ahead log that starts a checkpoint, in pages.
const MIN_PAGES: i64 = 2048;

/// After how many transactions the length of the log is checked.
const CHECK_EVERY: u32 = 64;

/// After how many bytes of values the length is checked earlier: one value can be as large as thousands of other writes.
const CHECK_EVERY_BYTES: usize = 16 * 1024 * 1024;

pub(super) struct Checkpoints {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The number of transactions since the last check.
    writes: u32,
    /// The bytes of values in these transactions.
    bytes: usize,
}

#[derive(Default)]
struct Shared {
    request: Mutex<Request>,
    wake: Condvar,
    /// Whether the background thread is done, so that the writer moves the rest.
    moved: AtomicBool,
}

#[derive(Default, PartialEq, Eq)]
enum Request {
    #[default]
    None,
    Checkpoint,
    Stop,
}

/// Moves all pages that no reader needs in the log. Does not wait for readers.
fn checkpoint(db: &Connection) {
    if let Err(error) = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(())) {
        tracing::warn!(%error, "a checkpoint failed; the data is safe in the write-ahead log");
    }
}

/// The length of the log in pages.
fn length(db: &Connection) -> i64 {
    db.query_row("PRAGMA wal_checkpoint(NOOP)", (), |row| row.get(1)).unwrap_or(0)
}

impl Checkpoints {
    pub(super) fn start(db: Connection) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let in_thread = shared.clone();
        let work = move || {
            loop {
                {
                    let mut request = in_thread.request.lock();
                    while *request == Request::None {
                        in_thread.wake.wait(&mut request);
                    }
                    if *request == Request::Stop {
                        return;
                    }
                }
                checkpoint(&db);
                in_thread.moved.store(true, Ordering::Release);
                let mut request = in_thread.request.lock();
                if *request == Request::Checkpoint {
                    *request = Request::None;
                }
            }
        };
        let thread = std::thread::Builder::new().name("attache-checkpoint".to_owned()).spawn(work)?;
        Ok(Self { shared, thread: Some(thread), writes: 0, bytes: 0 })
    }

    /// Starts a checkpoint if the log is long enough. Call it between transactions.
    pub(super) fn after_write(&mut self, db: &Connection, bytes: usize) {
        if self.shared.moved.swap(false, Ordering::Acquire) {
            checkpoint(db);
        }
        self.writes += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.writes < CHECK_EVERY && self.bytes < CHECK_EVERY_BYTES {
            return;
        }
        (self.writes, self.bytes) = (0, 0);
        if length(db) >= MIN_PAGES {
            let mut request = self.shared.request.lock();
            if *request == Request::None {
                *request = Request::Checkpoint;
                self.shared.wake.notify_one();
            }
        }
    }

    pub(super) fn stop(&mut self) {
        *self.shared.request.lock() = Request::Stop;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}
