//! The stores of Attaché pass the contract of stores.

use std::sync::Arc;

use attache_core::{BoxFuture, MemoryStore, Store};
use attache_store::{Keyring, SqliteOptions, SqliteStore};
use attache_store_contract::{StoreFactory, contract_tests, durability_tests};
use tempfile::TempDir;

mod memory {
    super::contract_tests!(super::Memory);
}

mod sqlite {
    super::contract_tests!(super::Sqlite::new());
}

mod sqlite_reopened {
    super::durability_tests!(super::Sqlite::new());
}

mod sqlite_without_cache_reopened {
    super::durability_tests!(super::Sqlite::without_cache());
}

struct Memory;

impl StoreFactory for Memory {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Arc::new(MemoryStore::new()) as Arc<dyn Store> })
    }
}

/// A SQLite file in a folder that is removed with the test.
struct Sqlite {
    folder: TempDir,
    options: SqliteOptions,
}

impl Sqlite {
    fn new() -> Self {
        let keyring = Keyring::ephemeral().expect("keys");
        Self { folder: TempDir::new().expect("a folder"), options: SqliteOptions::new(keyring) }
    }

    /// A store that drops unused tasks from memory at once and reads them again.
    fn without_cache() -> Self {
        let mut sqlite = Self::new();
        sqlite.options.live_tasks = 0;
        sqlite.options.readers = 1;
        sqlite
    }
}

impl StoreFactory for Sqlite {
    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let store = SqliteStore::open(self.folder.path().join("tasks.db"), self.options.clone());
        let store = store.unwrap_or_else(|error| panic!("{error}"));
        Box::pin(async { Arc::new(store) as Arc<dyn Store> })
    }
}
