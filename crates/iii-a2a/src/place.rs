//! Where tasks are kept: in the engine's state, or in a store of our own.

use std::path::PathBuf;
use std::sync::Arc;

use attache_core::Store;
use attache_iii::StateStore;
use attache_iii::worker::Worker;
use attache_store::{KeyringSource, StoreOpenError, StoreOptions, StoreRegistry, StoreScheme, StoreUrl};
use clap::Args;

use crate::Failure;

/// Where tasks are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Tasks")]
pub(crate) struct PlaceArgs {
    /// Where tasks are kept: `iii:` for the engine's state, `sqlite:PATH`, or `memory:` for as long as the process runs
    #[arg(long, value_name = "STORE", default_value = "iii:", env = "ATTACHE_STORE", hide_env_values = true)]
    store: StoreUrl,

    /// The file of the keys that the secrets of webhooks are encrypted with, where they are kept in a file
    #[arg(long, value_name = "PATH", env = "ATTACHE_KEYRING_FILE")]
    keyring: Option<PathBuf>,
}

impl PlaceArgs {
    /// Checks the URL of the store, before the worker connects.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        stores(None).check(&self.url()).map_err(Failure::usage)
    }

    /// Opens the store.
    pub(crate) async fn open(&self, worker: &Worker) -> Result<Arc<dyn Store>, Failure> {
        let options = StoreOptions::new(KeyringSource::User { file: self.keyring.clone() });
        stores(Some(worker.clone())).open(&self.url(), &options).await.map_err(Failure::new)
    }

    /// The URL of the store. The earlier worker also accepts `iii` without the colon.
    fn url(&self) -> StoreUrl {
        if self.store == "iii".into() { "iii:".into() } else { self.store.clone() }
    }
}

/// The kinds of stores, with the engine's state as `iii:`.
fn stores(worker: Option<Worker>) -> StoreRegistry {
    let state = StoreScheme::new("iii:", move |url, _| {
        let store = worker.clone().map(|worker| Arc::new(StateStore::new(worker)) as Arc<dyn Store>);
        async move { store.ok_or_else(|| StoreOpenError::failed(&url, "the worker is not connected")) }
    });
    StoreRegistry::built_in().with("iii", state)
}
