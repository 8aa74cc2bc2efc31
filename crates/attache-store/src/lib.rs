//! The durable store of A2A tasks, on SQLite.
//!
//! [`SqliteStore`] keeps what [`attache_core::MemoryStore`] keeps, in a file that outlives the process: what was answered has
//! been written. [`Keyring`] holds the keys under which the secrets of webhooks are sealed. [`Maintenance`] looks after a file,
//! also while a server uses it.

mod keyring;
mod registry;
mod sqlite;
mod url;

pub use keyring::{KEYRING_VARIABLE, Keyring, KeyringError};
pub use registry::{KeyringSource, StoreOpenError, StoreOptions, StoreRegistry, StoreScheme};
pub use sqlite::{
    BackupProgress, CheckReport, CompactOptions, CompactReport, ExclusiveUse, ExportReport, ForgetOptions,
    ForgetReport, Maintenance, MaintenanceError, OpenError, SqliteOptions, SqliteStore,
};
pub use url::StoreUrl;
