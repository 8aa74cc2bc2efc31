//! The files that a program names in its events. They are in its directory, or among the files of its messages.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use attache_core::{AccessError, Workspace};

use super::files::Files;

/// A place where a program may have files.
pub(super) struct FileLocation {
    folder: PathBuf,
    /// The path of the file below the folder.
    path: PathBuf,
    /// The folder, if it is the workspace of the turn that started the program.
    workspace: Option<Arc<Workspace>>,
}

impl FileLocation {
    /// Where a file is. A relative path is below the directory in which the program was started, which can be a workspace.
    pub(super) fn of(
        path: &Path,
        directory: Option<&Path>,
        workspace: Option<Arc<Workspace>>,
        files: &Files,
    ) -> Self {
        // As the program knows the folder, which can be a link.
        if let Some(folder) = files.folder()
            && let Ok(path) = path.strip_prefix(folder)
        {
            return Self { folder: folder.to_owned(), path: path.to_owned(), workspace: None };
        }
        let folder = directory.unwrap_or(Path::new("."));
        let path = path.strip_prefix(folder).unwrap_or(path);
        Self { folder: folder.to_owned(), path: path.to_owned(), workspace }
    }

    /// Reads the file, if it is inside and not larger than the limit.
    pub(super) async fn read(self, limit: usize) -> Result<Vec<u8>, AccessError> {
        let reading = tokio::task::spawn_blocking(move || match (&self.workspace, Workspace::SERVES_FILES) {
            (Some(workspace), true) => workspace.read(&self.path, limit),
            (None, true) => Workspace::open(&self.folder)?.read(&self.path, limit),
            (Some(_) | None, false) => self.read_resolved(limit),
        });
        reading.await.map_err(std::io::Error::other)?
    }

    /// The same on systems that cannot open a file below a directory. A link that changes meanwhile is not noticed.
    fn read_resolved(&self, limit: usize) -> Result<Vec<u8>, AccessError> {
        let folder = self.folder.canonicalize()?;
        let path = folder.join(&self.path).canonicalize()?;
        if !path.starts_with(&folder) {
            return Err(AccessError::Refused("only files below the directory of the program are allowed"));
        }
        if !path.metadata()?.is_file() {
            return Err(AccessError::Refused("only regular files can be read"));
        }
        let mut bytes = Vec::new();
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
        if bytes.len() > limit { Err(AccessError::TooLarge(limit)) } else { Ok(bytes) }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use attache_protocol::{Message, Part};

    use super::*;

    fn read(path: &str, directory: &Path, files: &Files) -> Option<Vec<u8>> {
        let resolved = FileLocation::of(Path::new(path), Some(directory), None, files).read_resolved(10).ok();
        let place = FileLocation::of(Path::new(path), Some(directory), None, files);
        let opened = Workspace::open(&place.folder).ok().and_then(|folder| folder.read(&place.path, 10).ok());
        if Workspace::SERVES_FILES {
            assert_eq!(opened.is_some(), resolved.is_some(), "{path}");
        }
        resolved
    }

    #[tokio::test]
    async fn only_regular_files_below_the_directory_and_files_of_the_message_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("work");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        std::fs::write(directory.join("a"), "inside").unwrap();
        std::fs::write(directory.join("large"), "more than ten").unwrap();
        std::os::unix::fs::symlink(folder.path().join("secret"), directory.join("link")).unwrap();
        let given = Part::raw("given").filename("b");
        let files = Files::write(&Message { parts: vec![given], ..Message::user("m", "") }).await.unwrap();
        let absolute = directory.join("a").display().to_string();
        for path in ["a", "./a", &absolute] {
            assert_eq!(read(path, &directory, &files).as_deref(), Some(&b"inside"[..]), "{path}");
        }
        let given = files.path(0).unwrap().display().to_string();
        assert_eq!(read(&given, &directory, &files).as_deref(), Some(&b"given"[..]));
        let secret = folder.path().join("secret").display().to_string();
        for path in ["../secret", "link", &secret, "large", "missing", ".", "/dev/zero"] {
            assert_eq!(read(path, &directory, &files), None, "{path}");
        }
    }
}
