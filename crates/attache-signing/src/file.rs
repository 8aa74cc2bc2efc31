//! The file that keys are kept in: for its owner only, and at every moment the old one or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use zeroize::Zeroizing;

/// What tells that a file is another than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    changed: Option<SystemTime>,
    length: u64,
    /// A file that is replaced gets another number.
    number: u64,
}

impl Stamp {
    /// That of the file as it is now.
    pub fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|metadata| Self::new(&metadata))
    }

    fn new(metadata: &fs::Metadata) -> Self {
        #[cfg(unix)]
        let number = std::os::unix::fs::MetadataExt::ino(metadata);
        #[cfg(not(unix))]
        let number = 0;
        Self { changed: metadata.modified().ok(), length: metadata.len(), number }
    }
}

/// What a file holds.
pub(crate) enum Content {
    Private(Zeroizing<String>, Stamp),
    /// Others than its owner can read it.
    Exposed,
}

pub(crate) fn read(path: &Path) -> io::Result<Content> {
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if metadata.permissions().mode() & 0o077 != 0 {
            return Ok(Content::Exposed);
        }
    }
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text)?;
    Ok(Content::Private(text, Stamp::new(&metadata)))
}

/// Makes the file, or replaces it as a whole.
pub(crate) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(parent)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let next = PathBuf::from(name);
    if let Err(error) = fs::remove_file(&next)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&next)?;
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    match parent {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
