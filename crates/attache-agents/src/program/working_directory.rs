//! The directory of a workspace, in which a program starts.

use std::io;
use std::path::{Path, PathBuf};

/// An open directory. A program starts in this one, also if a link has taken the place of its path meanwhile.
pub(super) struct WorkingDirectory {
    path: PathBuf,
    /// Keeps the path valid.
    #[cfg(target_os = "linux")]
    _handle: std::os::fd::OwnedFd,
}

impl WorkingDirectory {
    /// Opens a directory by its absolute path, in which links were resolved before. Fails if there is a link in it now.
    #[cfg(target_os = "linux")]
    pub(super) fn open(resolved: &Path) -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;

        use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

        let flags = OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::PATH;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let handle = openat2(CWD, resolved, flags, Mode::empty(), resolve)?;
        // The new process has the handle under the same number until it runs the program.
        let path = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
        Ok(Self { path, _handle: handle })
    }

    /// Other systems have no path for an open directory, so a link that takes its place is followed.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn open(resolved: &Path) -> io::Result<Self> {
        Ok(Self { path: resolved.to_owned() })
    }

    /// The path for a process that this server starts.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use super::*;

    fn start_in(directory: &WorkingDirectory) -> Vec<u8> {
        Command::new("cat").arg("name").current_dir(directory.path()).output().unwrap().stdout
    }

    #[test]
    fn a_program_starts_in_the_directory_that_was_opened_and_not_behind_a_link_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for name in ["workspace", "outside"] {
            std::fs::create_dir(at(name)).unwrap();
            std::fs::write(at(name).join("name"), name).unwrap();
        }
        let opened = WorkingDirectory::open(&at("workspace")).unwrap();
        std::fs::rename(at("workspace"), at("moved")).unwrap();
        std::os::unix::fs::symlink(at("outside"), at("workspace")).unwrap();
        assert_eq!(start_in(&opened), b"workspace");
        assert!(WorkingDirectory::open(&at("workspace")).is_err(), "a link is not followed");
    }
}
