//! Where tasks are kept: in the engine's state, or in a store of our own.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use attache_core::{MemoryStore, Store};
use attache_iii::StateStore;
use attache_iii::worker::Worker;
use attache_store::{Keyring, SqliteOptions, SqliteStore, StoreUrl};
use clap::Args;

use crate::Failure;

/// Where tasks are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Tasks")]
pub(crate) struct PlaceArgs {
    /// Where tasks are kept: `iii:` for the engine's state, `sqlite:PATH`, or `memory:` for as long as the process runs
    #[arg(long, value_name = "STORE", default_value = "iii:", env = "ATTACHE_STORE")]
    store: Kept,

    /// The file of the keys that the secrets of webhooks are encrypted with, where they are kept in a file
    #[arg(long, value_name = "PATH", env = "ATTACHE_KEYRING_FILE")]
    keyring: Option<PathBuf>,
}

#[derive(Debug, Clone)]
enum Kept {
    Engine,
    Own(StoreUrl),
}

impl FromStr for Kept {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "iii:" | "iii" => Ok(Self::Engine),
            text => text
                .parse()
                .map(Self::Own)
                .map_err(|error| format!("{error}, or `iii:` for the engine's state")),
        }
    }
}

impl PlaceArgs {
    /// Opens the store.
    pub(crate) fn open(&self, worker: &Worker) -> Result<Arc<dyn Store>, Failure> {
        match &self.store {
            Kept::Engine => Ok(Arc::new(StateStore::new(worker.clone()))),
            Kept::Own(StoreUrl::Memory) => Ok(Arc::new(MemoryStore::new())),
            Kept::Own(StoreUrl::Sqlite(path)) => {
                let keyring = Keyring::of_user(self.keyring.as_deref()).map_err(Failure::new)?;
                let store = SqliteStore::open(path, SqliteOptions::new(keyring)).map_err(Failure::new)?;
                Ok(Arc::new(store))
            }
        }
    }
}
