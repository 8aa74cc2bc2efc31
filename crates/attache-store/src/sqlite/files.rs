//! Detects that the files of an open store were deleted or replaced.
//!
//! Another program can delete, move or replace the database file or its write-ahead log while a server uses them. Then the open
//! descriptors of the server belong to files without a name, and everything written there is lost with the process. So the store
//! acknowledges no write after that.

use std::fs;
use std::path::{Path, PathBuf};

use attache_files::identity::FileIdentity;

use super::fault::Fault;
use super::lock::sibling;

/// The files of a store, with their identities when the store was opened.
#[derive(Debug)]
pub(super) struct StoreFiles {
    files: [(PathBuf, Option<FileIdentity>); 2],
}

impl StoreFiles {
    /// The files of the store at a path. Call it after the first read, when the write-ahead log exists.
    pub(super) fn of(path: &Path) -> Self {
        let names = [sibling(path, ""), sibling(path, "-wal")];
        Self {
            files: names.map(|name| {
                let identity = identity(&name);
                (name, identity)
            }),
        }
    }

    /// An error if a path no longer leads to the file that was opened.
    pub(super) fn check(&self) -> Result<(), Fault> {
        for (path, opened) in &self.files {
            if opened.is_some() && identity(path) != *opened {
                return Err(Fault::Replaced(path.clone()));
            }
        }
        Ok(())
    }
}

/// Does not open the file: closing it would drop the locks of SQLite.
fn identity(path: &Path) -> Option<FileIdentity> {
    FileIdentity::of(&fs::metadata(path).ok()?)
}
