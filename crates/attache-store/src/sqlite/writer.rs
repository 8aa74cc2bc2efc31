//! The one thread that writes.
//!
//! It takes everything that waits, writes it in one transaction and makes that durable once, so that the cost of durability is
//! shared by all who write at the same time. Nobody gets an answer, and no reader sees anything, before it is durable.
//!
//! Waking a thread for every answer would cost more than the writing. So the thread wakes one of those who wait, who then
//! answers the others from where they wait too. Should that one be busy elsewhere, the thread does it a moment later.

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
use super::files::Files;
use super::open::FileLock;
use super::owners::{self, Owners};

/// How many commands are written together at most.
const MAX_BATCH: usize = 1024;

/// From how many at a time on it is worth waiting for more.
const BUSY: usize = 8;

/// How long the thread waits for others to pass on answers.
const RELAY: Duration = Duration::from_micros(500);

/// Something to write.
pub(super) trait Command: Send {
    /// Writes. An error spoils the transaction; what is refused for reasons of its own is kept for [`finish`](Self::finish).
    /// May happen again after [`undo`](Self::undo).
    fn execute(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault>;

    /// Takes back what [`execute`](Self::execute) did outside the transaction.
    fn undo(&mut self) {}

    /// Shows readers what was written, or does not, and answers.
    fn finish(self: Box<Self>, written: Result<(), StoreError>);
}

/// A transaction while it grows.
pub(super) struct Batch<'a> {
    pub(super) db: &'a Connection,
    /// How the numbers of tasks change.
    pub(super) counts: Deltas,
    /// How many bytes of values are written.
    pub(super) bytes: usize,
    owners: &'a Owners,
    new_owners: Vec<(Owner, i64)>,
}

impl Batch<'_> {
    /// The number of an owner, who gets one if they are new.
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

/// Where commands wait for the writer.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    /// What was written and not yet answered.
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

    /// Everything that waits, in order. Nothing when the queue is closed and empty.
    ///
    /// `answered` is how many were answered last.
    fn take(&self, answered: usize) -> Option<Vec<Box<dyn Command>>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            if self.written.lock().is_empty() {
                self.wake.wait(&mut state);
            } else if self.wake.wait_for(&mut state, RELAY).timed_out() {
                drop(state);
                self.relay();
                state = self.state.lock();
            }
        }
        drop(state);
        if answered >= BUSY {
            // Those who were just answered are about to write more. With one core, they only can if they get it.
            std::thread::yield_now();
        }
        self.relay();
        let mut state = self.state.lock();
        if state.waiting.len() <= MAX_BATCH {
            return Some(std::mem::take(&mut state.waiting));
        }
        Some(state.waiting.drain(..MAX_BATCH).collect())
    }

    /// Answers what was written, the first directly and the others through whoever gets that answer.
    fn publish(&self, commands: Vec<Box<dyn Command>>) {
        let mut commands = commands.into_iter();
        let first = commands.next();
        self.written.lock().extend(commands);
        if let Some(first) = first {
            first.finish(Ok(()));
        }
    }

    /// Answers what was written and nobody has answered yet.
    fn relay(&self) {
        let written = std::mem::take(&mut *self.written.lock());
        written.into_iter().for_each(|command| command.finish(Ok(())));
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }
}

/// Answers others when its owner has an answer, or goes away without.
pub(super) struct Relay<'a>(pub(super) &'a Queue);

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        self.0.relay();
    }
}

/// What is said when nothing can be written any more.
pub(super) fn closed() -> StoreError {
    StoreError("the store is closed".to_owned())
}

/// The thread, for as long as it lives.
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
        let files = Files::of(&path);
        let thread = Thread { path, files, db, checkpoints, queue: queue.clone(), owners, _lock: lock };
        let thread = std::thread::Builder::new().name("attache-store".to_owned()).spawn(|| thread.run())?;
        Ok(Self { queue, thread: Some(thread) })
    }
}

impl Drop for Writer {
    /// Writes what waits, and leaves the file to others.
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes to the store panicked");
        }
    }
}

struct Thread {
    path: PathBuf,
    files: Files,
    db: Connection,
    checkpoints: Checkpoints,
    queue: Arc<Queue>,
    owners: Arc<Owners>,
    _lock: FileLock,
}

/// Answers those who still wait when the thread ends, however it ends.
struct Last<'a>(&'a Queue);

impl Drop for Last<'_> {
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

impl Thread {
    fn run(mut self) {
        let queue = self.queue.clone();
        let last = Last(&queue);
        let mut answered = 0;
        while let Some(commands) = queue.take(answered) {
            answered = commands.len();
            let bytes = self.write(commands);
            self.checkpoints.after_write(&self.db, bytes);
        }
        drop(last);
        self.checkpoints.stop();
    }

    /// Writes and answers. How many bytes of values were written.
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
            // What spoils a transaction may be one of many: each gets one of its own.
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
            // Some errors have ended the transaction already.
            if !self.db.is_autocommit()
                && let Err(error) = self.db.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "a transaction could not be taken back");
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
