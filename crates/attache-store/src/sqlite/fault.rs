//! Internal errors, and how they are reported.

use std::path::{Path, PathBuf};

use attache_core::StoreError;
use rusqlite::ErrorCode;

use crate::KeyringError;

/// Why a read or a write failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The content of a row cannot be decoded.
    #[error("{what} cannot be read: {error}")]
    Unreadable { what: String, error: serde_json::Error },
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// Another program deleted or replaced this file while it was in use.
    #[error("`{}` was deleted or replaced while it was in use", _0.display())]
    Replaced(PathBuf),
}

impl Fault {
    /// An error for the log: what happened, and what to do.
    pub(super) fn explain(&self, path: &Path) -> StoreError {
        let path = path.display();
        StoreError(match self {
            Self::Sqlite(error) => explain(&path, error),
            Self::Unreadable { .. } => format!("`{path}` is damaged ({self}): run `attache store check`"),
            Self::Keyring(error) => format!("{error} (needed for `{path}`)"),
            Self::Replaced(_) => {
                format!("{self}; no write is acknowledged any more: put the file back and restart the server")
            }
        })
    }
}

fn explain(path: &std::path::Display<'_>, error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            format!("no space to write to `{path}`, nothing was changed: free space on the disk ({error})")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            format!("`{path}` cannot be written: check who may write to it and to its directory ({error})")
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            format!("`{path}` is damaged: run `attache store check`, or restore a copy ({error})")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!("another process locks `{path}` for too long: stop that process ({error})")
        }
        Some(ErrorCode::SystemIoFailure) => {
            format!("the disk failed on `{path}`, nothing was changed: see the log of the system ({error})")
        }
        _ => format!("`{path}`: {error}"),
    }
}
