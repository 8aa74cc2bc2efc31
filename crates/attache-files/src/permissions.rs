//! Access of other users to files and folders.
//!
//! On Unix the file mode decides. Elsewhere these functions neither set nor check anything: a new file gets the access list of its
//! folder, and on Windows the folders of a user's profile are closed to other users. A file outside of the profile has to be
//! protected by the access list of its folder.

use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Has a file that is created with these options be accessible to its owner only.
pub fn owner_only_file(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Creates a folder and its missing parents for their owner only. Existing folders are not changed.
pub fn create_owner_only_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// The mode of a file that other users have access to. `None` if only the owner has access, or the system has no file modes.
pub fn shared_mode(metadata: &Metadata) -> Option<u32> {
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777;
        (mode & 0o077 != 0).then_some(mode)
    }
    #[cfg(not(unix))]
    {
        let _ = metadata;
        None
    }
}

/// Removes the access of other users from a file with this mode. Returns the new mode.
pub fn make_private(path: &Path, mode: u32) -> io::Result<u32> {
    let private = mode & 0o700;
    #[cfg(unix)]
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(private))?;
    #[cfg(not(unix))]
    let _ = path;
    Ok(private)
}
