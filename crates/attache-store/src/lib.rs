//! Stores of A2A tasks that outlive the process, and how a store is opened by its URL.
//!
//! - [`StoreRegistry`] opens a store by the scheme of its [`StoreUrl`]: `memory:`, `sqlite:PATH`, and the schemes of other crates.
//! - [`SqliteStore`] stores tasks in a SQLite file. A call returns after its write is on the disk.
//! - [`DirectoryStore`] stores the content of artifacts in a directory, and [`ArtifactMaintenance`] checks and copies it.
//! - [`Keyring`] holds the keys that encrypt the secrets of webhooks.
//! - [`Maintenance`] checks, copies, compacts and exports a SQLite file, also while a server uses it.
//!
//! The crate `attache-store-contract` has the tests that every store passes.

mod artifacts;
mod keyring;
mod registry;
mod sqlite;
mod url;

#[doc(hidden)]
pub use artifacts::Steps;
pub use artifacts::{
    ArtifactBackup, ArtifactMaintenance, ArtifactReport, DirectoryOpenError, DirectoryOptions,
    DirectoryStore, ForgottenContent,
};
pub use keyring::{KEYRING_VARIABLE, Keyring, KeyringError};
pub use registry::{KeyringSource, StoreOpenError, StoreOptions, StoreRegistry, StoreScheme};
pub use sqlite::{
    BackupProgress, CheckReport, CompactOptions, CompactReport, ExclusiveUse, ExportReport, ForgetOptions,
    ForgetReport, Maintenance, MaintenanceError, SqliteOpenError, SqliteOptions, SqliteStore,
};
pub use url::StoreUrl;
