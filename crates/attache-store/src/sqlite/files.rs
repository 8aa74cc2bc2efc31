//! Whether the files of a store are still the ones that were opened.
//!
//! Another program can delete, move or replace the database file or its write-ahead log while a server uses them. The server's
//! descriptors then lead to files without a name, and everything written there is gone with the process. So nothing is
//! acknowledged once the names lead elsewhere.

use std::path::PathBuf;

use super::fault::Fault;
use super::open;

/// The files of a store, as they were when it was opened.
#[derive(Debug)]
pub(super) struct Files {
    files: [(PathBuf, Option<Identity>); 2],
}

/// What tells that a name leads to another file than before: device and number.
type Identity = (u64, u64);

impl Files {
    /// The files of the store at a path. To be called after something was read, when the write-ahead log exists.
    pub(super) fn of(path: &std::path::Path) -> Self {
        let names = [open::beside(path, ""), open::beside(path, "-wal")];
        Self {
            files: names.map(|name| {
                let identity = identity(&name);
                (name, identity)
            }),
        }
    }

    /// An error if a file is not where it was.
    pub(super) fn check(&self) -> Result<(), Fault> {
        for (path, opened) in &self.files {
            if opened.is_some() && identity(path) != *opened {
                return Err(Fault::Replaced(path.clone()));
            }
        }
        Ok(())
    }
}

/// Does not open the file: that would break SQLite's locks when it is closed.
#[cfg(unix)]
fn identity(path: &std::path::Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Files in use cannot be deleted or replaced.
#[cfg(not(unix))]
fn identity(_path: &std::path::Path) -> Option<Identity> {
    None
}
