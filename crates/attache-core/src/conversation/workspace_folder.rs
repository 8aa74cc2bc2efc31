//! A folder in a workspace, with files that an agent reads.
//!
//! It is made, filled and removed below a handle of the workspace. If another program replaces the directory, or a part of its path, by
//! a link, nothing is written elsewhere.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::workspace::Workspace;

/// What the names of folders begin with.
const PREFIX: &str = ".attache-";

/// A folder in a workspace for its owner only. It is removed when this is dropped.
#[derive(Debug)]
pub struct WorkspaceFolder {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    parent: std::fs::File,
    #[cfg(target_os = "linux")]
    handle: std::fs::File,
}

impl WorkspaceFolder {
    /// The absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that does not exist yet. Its name has no folders. Returns its path.
    pub fn add(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        if Path::new(name).file_name() != Some(name.as_ref()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "expected the name of a file"));
        }
        self.create(name)?.write_all(content)?;
        Ok(self.path.join(name))
    }

    #[cfg(target_os = "linux")]
    pub(super) fn new(workspace: &Workspace) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat2};

        let name = format!("{PREFIX}{}", uuid::Uuid::new_v4());
        mkdirat(&workspace.handle, &name, Mode::RWXU)?;
        let flags = OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::RDONLY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let handle = openat2(&workspace.handle, &name, flags, Mode::empty(), resolve)?;
        Ok(Self {
            path: workspace.root().join(name),
            parent: workspace.handle.try_clone()?,
            handle: handle.into(),
        })
    }

    #[cfg(target_os = "linux")]
    fn create(&self, name: &str) -> io::Result<std::fs::File> {
        use rustix::fs::{Mode, OFlags, openat};

        let flags = OFlags::CLOEXEC | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        Ok(openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn new(workspace: &Workspace) -> io::Result<Self> {
        let path = workspace.root().join(format!("{PREFIX}{}", uuid::Uuid::new_v4()));
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path)?;
        Ok(Self { path })
    }

    #[cfg(not(target_os = "linux"))]
    fn create(&self, name: &str) -> io::Result<std::fs::File> {
        std::fs::File::create_new(self.path.join(name))
    }

    /// The path for the removal, below the handle of the workspace where there is one.
    fn removable(&self) -> PathBuf {
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd as _;

            let parent = PathBuf::from(format!("/proc/self/fd/{}", self.parent.as_raw_fd()));
            parent.join(self.path.file_name().unwrap_or_default())
        }
        #[cfg(not(target_os = "linux"))]
        {
            self.path.clone()
        }
    }
}

impl Drop for WorkspaceFolder {
    fn drop(&mut self) {
        match std::fs::remove_dir_all(self.removable()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(target: "attache::context", %error, %path, "a folder with files of messages was not removed");
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_never_go_to_a_directory_that_has_taken_the_place_of_the_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["work", "elsewhere"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let workspace = Workspace::open(&at("work")).unwrap();
        std::fs::rename(at("work"), at("moved")).unwrap();
        symlink("elsewhere", at("work")).unwrap();
        let files = workspace.temporary_folder().unwrap();
        files.add("a.txt", b"one").unwrap();
        assert_eq!(std::fs::read_dir(at("elsewhere")).unwrap().count(), 0);
        let name = files.path().file_name().unwrap().to_owned();
        assert_eq!(std::fs::read(at("moved").join(&name).join("a.txt")).unwrap(), b"one");
        // The folder itself is replaced too.
        std::fs::rename(at("moved").join(&name), at("moved/other")).unwrap();
        symlink(at("elsewhere"), at("moved").join(&name)).unwrap();
        files.add("b.txt", b"two").unwrap();
        std::fs::write(at("elsewhere/kept"), "").unwrap();
        drop(files);
        assert_eq!(std::fs::read_dir(at("elsewhere")).unwrap().count(), 1, "no link is followed");
    }

    #[test]
    fn a_file_never_replaces_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        let files = workspace.temporary_folder().unwrap();
        files.add("a.txt", b"one").unwrap();
        assert_eq!(files.add("a.txt", b"two").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        for name in ["", ".", "..", "a/b", "/a"] {
            assert!(files.add(name, b"").is_err(), "{name:?}");
        }
        drop(files);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
