//! Where settings and data are kept: `--config`, `--store` and `--keyring`, the same for every subcommand that needs them.

use std::path::PathBuf;
use std::sync::Arc;

use attache::core::Store;
use attache::store::{
    KEYRING_VARIABLE, Keyring, KeyringSource, StoreOpenError, StoreOptions, StoreRegistry, StoreUrl,
};
use clap::Args;

use super::Failure;

/// Which file of settings holds, the same for every subcommand that goes by one.
#[derive(Debug, Args)]
pub(crate) struct SettingsFile {
    /// The file of settings; `attache.yml` in the working directory if there is one and nothing else is said
    ///
    /// What it says is beaten by the environment, and that by flags.
    #[arg(long, value_name = "PATH", env = "ATTACHE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

/// Where tasks and the keys to their secrets are kept.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Where tasks are kept: `sqlite:PATH`, or `memory:` for as long as the process runs
    ///
    /// Without it they are kept in `attache/attache.db` below the user's data directory.
    #[arg(long, value_name = "STORE", env = "ATTACHE_STORE", hide_env_values = true)]
    store: Option<StoreUrl>,

    /// The file of the keys that the secrets of webhooks are encrypted with
    ///
    /// It is made if there is none. Without this option it is `attache/keyring.json` below the user's configuration directory.
    /// Where the environment variable `ATTACHE_KEYRING` holds a keyring as JSON, that is used instead.
    #[arg(long, value_name = "PATH", env = "ATTACHE_KEYRING_FILE")]
    keyring: Option<PathBuf>,
}

impl Place {
    /// Where tasks are kept.
    pub(crate) fn url(&self) -> Result<StoreUrl, Failure> {
        if let Some(url) = &self.store {
            StoreRegistry::built_in().check(url).map_err(Failure::usage)?;
            return Ok(url.clone());
        }
        let data = dirs::data_dir().ok_or_else(|| {
            Failure::usage("this user has no data directory to keep tasks in")
                .hint("say where with `--store sqlite:PATH`, or use `--store memory:`")
        })?;
        Ok(StoreUrl::sqlite(data.join("attache").join("attache.db")))
    }

    /// The file that tasks are kept in, for what can only be done with one.
    pub(crate) fn file(&self) -> Result<PathBuf, Failure> {
        let url = self.url()?;
        let problem = match url.sqlite_path() {
            Some(path) => return Ok(path.to_owned()),
            None if url.is_memory() => "a store in memory is gone with its process".to_owned(),
            None => format!("the store `{url}` is not a file"),
        };
        Err(Failure::usage(problem).hint("name the file with `--store sqlite:PATH`"))
    }

    /// Whether the keys come from the environment, where only the operator can change them.
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
        StoreRegistry::built_in().open(&self.url()?, &options).await.map_err(|error| match error {
            StoreOpenError::Keyring(error) => Failure::new(error),
            error => Failure::new(error).hint(
                "another place can be named with `--store sqlite:PATH`, or none with `--store memory:`",
            ),
        })
    }
}
