//! The thread that writes.
//!
//! It takes all waiting commands, writes them in one transaction and waits for the disk once, so that concurrent writes share the
//! cost of durability. A caller gets its result, and readers see the write, only after it is durable.
//!
//! Waking a runtime thread for every result would cost more than the write. So the writer wakes one caller, and that caller sends
//! the results of the others. If it is busy for too long, the writer sends them itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use attache_core::{Owner, StoreError};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use super::checkpoint::Checkpoints;
use super::counts::Deltas;
use super::fault::Fault;
use super::files::StoreFiles;
use super::lock::FileLock;
use super::owners::{self, Owners};

/// The maximum number of commands in one transaction.
const MAX_BATCH: usize = 1024;

/// The size of a batch from which on the writer yields before the next one, so that more commands can arrive.
const BUSY: usize = 8;

/// How long the writer waits for a caller to send the other results.
const RELAY_TIMEOUT: Duration = Duration::from_micros(500);

/// A write.
pub(super) trait Command: Send {
    /// Writes within the transaction. An error fails the transaction. A command that is refused returns `Ok` and reports the refusal
    /// in [`finish`](Self::finish). The writer can call this again after [`undo`](Self::undo).
    fn execute(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault>;

    /// Reverts what [`execute`](Self::execute) did outside the transaction.
    fn undo(&mut self) {}

    /// Makes the write visible to readers if it succeeded, and sends the result to the caller.
    fn finish(self: Box<Self>, written: Result<(), StoreError>);
}

/// An open transaction.
pub(super) struct Batch<'a> {
    pub(super) db: &'a Connection,
    /// The changes of the task counts.
    pub(super) counts: Deltas,
    /// The bytes of values in this transaction.
    pub(super) bytes: usize,
    owners: &'a Owners,
    new_owners: Vec<(Owner, i64)>,
}

impl Batch<'_> {
    /// The row id of an owner. A new owner gets a row.
    pub(super) fn owner(&mut self, owner: &Owner) -> Result<i64, Fault> {
        if let Some(number) = self.owners.get(owner) {
            return Ok(number);
        }
        if let Some((_, number)) = self.new_owners.iter().find(|(known, _)| known == owner) {
            return Ok(*number);
        }
        let number = match owners::find(self.db, owner)? {
            Some(number) => number,
            None => owners::insert(self.db, owner)?,
        };
        self.new_owners.push((owner.clone(), number));
        Ok(number)
    }
}

/// The commands that wait for the writer.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    /// Commands that are durable and whose results are not sent yet.
    written: Mutex<Vec<Box<dyn Command>>>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Box<dyn Command>>,
    closed: bool,
}

impl Queue {
    pub(super) fn push(&self, command: Box<dyn Command>) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            command.finish(Err(closed()));
            return;
        }
        state.waiting.push(command);
        drop(state);
        self.wake.notify_one();
    }

    /// Takes the waiting commands, in order. `None` when the queue is closed and empty.
    ///
    /// `last_batch` is the size of the batch before.
    fn take(&self, last_batch: usize) -> Option<Vec<Box<dyn Command>>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            if self.written.lock().is_empty() {
                self.wake.wait(&mut state);
            } else if self.wake.wait_for(&mut state, RELAY_TIMEOUT).timed_out() {
                drop(state);
                self.relay();
                state = self.state.lock();
            }
        }
        drop(state);
        if last_batch >= BUSY {
            // The callers of the last batch are about to write more. On a single core they can only run if this thread yields.
            std::thread::yield_now();
        }
        self.relay();
        let mut state = self.state.lock();
        if state.waiting.len() <= MAX_BATCH {
            return Some(std::mem::take(&mut state.waiting));
        }
        Some(state.waiting.drain(..MAX_BATCH).collect())
    }

    /// Sends the first result. The caller that gets it sends the others, see [`Relay`].
    fn publish(&self, commands: Vec<Box<dyn Command>>) {
        let mut commands = commands.into_iter();
        let first = commands.next();
        self.written.lock().extend(commands);
        if let Some(first) = first {
            first.finish(Ok(()));
        }
    }

    /// Sends the results that are not sent yet.
    fn relay(&self) {
        let written = std::mem::take(&mut *self.written.lock());
        written.into_iter().for_each(|command| command.finish(Ok(())));
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }
}

/// Sends the results of other callers when it is dropped: after the own result arrived, or when the call is abandoned.
pub(super) struct Relay<'a>(pub(super) &'a Queue);

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        self.0.relay();
    }
}

/// The error of a store that is closed.
pub(super) fn closed() -> StoreError {
    StoreError("the store is closed".to_owned())
}

/// A handle of the writer thread.
pub(super) struct Writer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        path: PathBuf,
        db: Connection,
        checkpoints: Checkpoints,
        queue: Arc<Queue>,
        owners: Arc<Owners>,
        lock: FileLock,
    ) -> std::io::Result<Self> {
        let files = StoreFiles::of(&path);
        let thread = WriterThread { path, files, db, checkpoints, queue: queue.clone(), owners, _lock: lock };
        let thread = std::thread::Builder::new().name("attache-store".to_owned()).spawn(|| thread.run())?;
        Ok(Self { queue, thread: Some(thread) })
    }
}

impl Drop for Writer {
    /// Writes all waiting commands, and unlocks the file.
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes to the store panicked");
        }
    }
}

struct WriterThread {
    path: PathBuf,
    files: StoreFiles,
    db: Connection,
    checkpoints: Checkpoints,
    queue: Arc<Queue>,
    owners: Arc<Owners>,
    _lock: FileLock,
}

/// Finishes all waiting commands when the thread ends, also by a panic.
struct FinishOnExit<'a>(&'a Queue);

impl Drop for FinishOnExit<'_> {
    fn drop(&mut self) {
        self.0.relay();
        let left = {
            let mut state = self.0.state.lock();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        for command in left {
            command.finish(Err(closed()));
        }
    }
}

impl WriterThread {
    fn run(mut self) {
        let queue = self.queue.clone();
        let finish = FinishOnExit(&queue);
        let mut last_batch = 0;
        while let Some(commands) = queue.take(last_batch) {
            last_batch = commands.len();
            let bytes = self.write(commands);
            self.checkpoints.after_write(&self.db, bytes);
        }
        drop(finish);
        self.checkpoints.stop();
    }

    /// Writes commands and sends their results. Returns the bytes of values.
    fn write(&self, mut commands: Vec<Box<dyn Command>>) -> usize {
        match self.try_write(&mut commands) {
            Ok(bytes) => {
                self.queue.publish(commands);
                bytes
            }
            Err(fault) if commands.len() == 1 => {
                let error = fault.explain(&self.path);
                commands.into_iter().for_each(|command| command.finish(Err(StoreError(error.0.clone()))));
                0
            }
            // One command can fail the transaction of all: run each in a transaction of its own.
            Err(_) => commands.into_iter().map(|command| self.write(vec![command])).sum(),
        }
    }

    fn try_write(&self, commands: &mut [Box<dyn Command>]) -> Result<usize, Fault> {
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
        let written = self.execute(commands);
        if written.is_err() {
            for command in commands {
                command.undo();
            }
            // SQLite rolls back by itself after some errors.
            if !self.db.is_autocommit()
                && let Err(error) = self.db.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "a transaction could not be rolled back");
            }
        }
        written
    }

    fn execute(&self, commands: &mut [Box<dyn Command>]) -> Result<usize, Fault> {
        let mut batch = Batch {
            db: &self.db,
            counts: Deltas::default(),
            bytes: 0,
            owners: &self.owners,
            new_owners: Vec::new(),
        };
        for command in &mut *commands {
            command.execute(&mut batch)?;
        }
        let Batch { counts, bytes, new_owners, .. } = batch;
        counts.write(&self.db)?;
        self.db.prepare_cached("COMMIT")?.execute(())?;
        self.files.check()?;
        for (owner, number) in new_owners {
            self.owners.remember(owner, number);
        }
        Ok(bytes)
    }
}
