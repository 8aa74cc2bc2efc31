//! The stores that are tested.

use std::sync::Arc;

use attache_core::{BoxFuture, MemoryStore};
use attache_store::{Keyring, SqliteOptions, SqliteStore};
use tempfile::TempDir;

use crate::support::Kept;

/// A place for a store.
pub(crate) trait Bench: Send + Sync {
    /// Opens the store at this place. What was kept there before is there again, if the store outlives its process.
    fn open(&self) -> BoxFuture<'_, Kept>;

    /// Another place of this kind, with nothing there.
    fn another(&self) -> Box<dyn Bench>;
}

/// The store in memory: nothing outlives it.
pub(crate) struct Memory;

impl Memory {
    pub(crate) fn new() -> Self {
        Self
    }
}

impl Bench for Memory {
    fn open(&self) -> BoxFuture<'_, Kept> {
        Box::pin(async { Kept::new(Arc::new(MemoryStore::new())) })
    }

    fn another(&self) -> Box<dyn Bench> {
        Box::new(Self::new())
    }
}

/// A file of SQLite's, in a folder that goes with the test.
pub(crate) struct Sqlite {
    folder: TempDir,
    keyring: Keyring,
}

impl Sqlite {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().expect("a folder"), keyring: Keyring::ephemeral().expect("keys") }
    }

    fn open_with(&self, change: impl FnOnce(&mut SqliteOptions)) -> Kept {
        let mut options = SqliteOptions::new(self.keyring.clone());
        change(&mut options);
        let store = SqliteStore::open(self.folder.path().join("tasks.db"), options);
        Kept::new(Arc::new(store.unwrap_or_else(|error| panic!("{error}"))))
    }
}

impl Bench for Sqlite {
    fn open(&self) -> BoxFuture<'_, Kept> {
        Box::pin(async { self.open_with(|_| {}) })
    }

    fn another(&self) -> Box<dyn Bench> {
        Box::new(Self::new())
    }
}

/// The same with so little memory that what nobody needs goes at once and has to be read again.
pub(crate) struct CrampedSqlite(Sqlite);

impl CrampedSqlite {
    pub(crate) fn new() -> Self {
        Self(Sqlite::new())
    }
}

impl Bench for CrampedSqlite {
    fn open(&self) -> BoxFuture<'_, Kept> {
        Box::pin(async {
            self.0.open_with(|options| {
                options.live_tasks = 0;
                options.readers = 1;
            })
        })
    }

    fn another(&self) -> Box<dyn Bench> {
        Box::new(Self::new())
    }
}
