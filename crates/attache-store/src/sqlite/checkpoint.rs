//! Moving what was written from the write-ahead log into the file.
//!
//! A thread of its own moves the bulk while others go on writing. What was added meanwhile is little; the writer moves that
//! itself between two transactions, after which the write-ahead log begins anew instead of growing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

/// From how many pages on the write-ahead log is moved.
const FROM: i64 = 2048;

/// After how many writes the log is looked at.
const EVERY: u32 = 64;

/// After how many bytes of values it is looked at earlier: a value can be as large as thousands of other writes.
const EVERY_BYTES: usize = 16 * 1024 * 1024;

pub(super) struct Checkpoints {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// How many writes there were since the log was looked at.
    writes: u32,
    /// How many bytes of values they wrote.
    bytes: usize,
}

#[derive(Default)]
struct Shared {
    wanted: Mutex<Wanted>,
    wake: Condvar,
    /// Whether the bulk has been moved, and the rest is the writer's.
    moved: AtomicBool,
}

#[derive(Default, PartialEq, Eq)]
enum Wanted {
    #[default]
    Nothing,
    Move,
    Stop,
}

/// Moves what no reader still needs where it is.
fn checkpoint(db: &Connection) {
    if let Err(error) = db.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(())) {
        tracing::warn!(%error, "what was written could not be moved into the store's file; it is safe where it is");
    }
}

/// How many pages are in the log.
fn length(db: &Connection) -> i64 {
    db.query_row("PRAGMA wal_checkpoint(NOOP)", (), |row| row.get(1)).unwrap_or(0)
}

impl Checkpoints {
    pub(super) fn start(db: Connection) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let theirs = shared.clone();
        let work = move || {
            loop {
                {
                    let mut wanted = theirs.wanted.lock();
                    while *wanted == Wanted::Nothing {
                        theirs.wake.wait(&mut wanted);
                    }
                    if *wanted == Wanted::Stop {
                        return;
                    }
                }
                checkpoint(&db);
                theirs.moved.store(true, Ordering::Release);
                let mut wanted = theirs.wanted.lock();
                if *wanted == Wanted::Move {
                    *wanted = Wanted::Nothing;
                }
            }
        };
        let thread = std::thread::Builder::new().name("attache-checkpoint".to_owned()).spawn(work)?;
        Ok(Self { shared, thread: Some(thread), writes: 0, bytes: 0 })
    }

    /// Has the log moved when it is long enough. To be called between transactions.
    pub(super) fn after_write(&mut self, db: &Connection, bytes: usize) {
        if self.shared.moved.swap(false, Ordering::Acquire) {
            checkpoint(db);
        }
        self.writes += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.writes < EVERY && self.bytes < EVERY_BYTES {
            return;
        }
        (self.writes, self.bytes) = (0, 0);
        if length(db) >= FROM {
            let mut wanted = self.shared.wanted.lock();
            if *wanted == Wanted::Nothing {
                *wanted = Wanted::Move;
                self.shared.wake.notify_one();
            }
        }
    }

    pub(super) fn stop(&mut self) {
        *self.shared.wanted.lock() = Wanted::Stop;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that moves what was written panicked");
        }
    }
}
