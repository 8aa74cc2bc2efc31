//! Making the name of a file durable.
//!
//! On Unix a new or renamed file can lose its name in a power failure until its folder is on the disk. Windows cannot open a folder for
//! this, and its file system writes names to a journal, so there the function does nothing.

use std::io;
use std::path::Path;

/// Writes the names in the folder of a file to the disk.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        let Some(folder) = path.parent() else { return Ok(()) };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        std::fs::File::open(folder)?.sync_all()
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(())
    }
}
