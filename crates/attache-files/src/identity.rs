//! The identity of a file, which stays the same while its content and its name change.
//!
//! On Unix it is the device and the inode. Elsewhere there is none, and the callers fall back: [`Stamp`](super::Stamp) compares only
//! the time and the length, and the store relies on Windows, where an open database file cannot be deleted or replaced.

use std::fs::Metadata;

/// The identity of a file: two paths lead to the same file if their identities are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    /// The identity of a file. `None` if the system has none.
    pub fn of(metadata: &Metadata) -> Option<Self> {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Some(Self { device: metadata.dev(), inode: metadata.ino() })
        }
        #[cfg(not(unix))]
        {
            let _ = metadata;
            None
        }
    }
}

/// The number of names that a file has. `None` if the system does not say.
pub fn link_count(metadata: &Metadata) -> Option<u64> {
    #[cfg(unix)]
    {
        Some(std::os::unix::fs::MetadataExt::nlink(metadata))
    }
    #[cfg(not(unix))]
    {
        let _ = metadata;
        None
    }
}
