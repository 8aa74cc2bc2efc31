//! The locations of settings and data: `--config`, `--store` and `--keyring`, the same for all subcommands.

use std::path::PathBuf;
use std::sync::Arc;

use attache::core::Store;
use attache::store::{KEYRING_VARIABLE, Keyring, KeyringSource, StoreOpenError, StoreOptions, StoreUrl};
use clap::Args;

use super::Failure;
use crate::config::{StoreArgs, stores};

/// The option `--config`.
#[derive(Debug, Args)]
pub(crate) struct SettingsFile {
    /// The file of settings; `attache.yml` in the working directory if there is one and nothing else is said
    ///
    /// What it says is beaten by the environment, and that by flags.
    #[arg(long, value_name = "PATH", env = "ATTACHE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

impl StoreArgs {
    /// The URL of the store.
    pub(crate) fn url(&self) -> Result<StoreUrl, Failure> {
        if let Some(url) = &self.store {
            stores().check(url).map_err(Failure::usage)?;
            return Ok(url.clone());
        }
        let data = dirs::data_dir().ok_or_else(|| {
            Failure::usage("this user has no data directory to keep tasks in")
                .hint("say where with `--store sqlite:PATH`, or use `--store memory:`")
        })?;
        Ok(StoreUrl::sqlite(data.join("attache").join("attache.db")))
    }

    /// The file of the store. A store in memory has none.
    pub(crate) fn file(&self) -> Result<PathBuf, Failure> {
        let url = self.url()?;
        let problem = match url.sqlite_path() {
            Some(path) => return Ok(path.to_owned()),
            None if url.is_memory() => "a store in memory is gone with its process".to_owned(),
            None => format!("the store `{url}` is not a file"),
        };
        Err(Failure::usage(problem).hint("name the file with `--store sqlite:PATH`"))
    }

    /// Whether the keys come from the environment, so that this command cannot change them.
    pub(crate) fn keys_are_fixed(&self) -> bool {
        self.keyring.is_none() && std::env::var_os(KEYRING_VARIABLE).is_some()
    }

    /// The keys to the secrets of webhooks.
    pub(crate) fn keyring(&self) -> Result<Keyring, Failure> {
        Keyring::of_user(self.keyring.as_deref()).map_err(Failure::new)
    }

    /// Opens the store for a server.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>, Failure> {
        let options = StoreOptions::new(KeyringSource::User { file: self.keyring.clone() });
        stores().open(&self.url()?, &options).await.map_err(|error| {
            let is_keyring = matches!(error, StoreOpenError::Keyring(_));
            let failure = Failure::new(error);
            let hint =
                "another place can be named with `--store sqlite:PATH`, or none with `--store memory:`";
            if is_keyring { failure } else { failure.hint(hint) }
        })
    }
}
