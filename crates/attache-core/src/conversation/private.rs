//! The files of the server itself, which callers must not reach through a workspace.
//!
//! A store, the content of artifacts, the files of messages and the private directories of contexts belong to several callers. They can
//! be below a directory that callers may name. So no caller can name one of them, and a workspace that contains one gives no access
//! to it. Programs of agents are not bound by this: they run with the rights of the server.

use std::io;
use std::path::{Component, Path, PathBuf};

/// What the name of a directory with temporary files of servers begins with.
const PREFIX: &str = "attache-private-";

/// A directory for temporary files of servers of this user, in the directory of the system for temporary files. It is made if it does
/// not exist, only its owner has access to it, and no [workspace](super::Workspace) that callers name gives access to it.
pub fn private_temporary_directory() -> io::Result<PathBuf> {
    let parent = std::env::temp_dir();
    let usual = parent.join(format!("{PREFIX}{}", user()));
    match create_own(&usual) {
        Ok(()) => Ok(usual),
        // The directory belongs to another user, or is a link.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let other = parent.join(format!("{PREFIX}{}-{}", user(), uuid::Uuid::new_v4()));
            create_own(&other).map(|()| other)
        }
        Err(error) => Err(error),
    }
}

/// Creates a directory for its owner only, unless this user has it.
fn create_own(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let created = builder.create(path);
    let exists = created.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists);
    if exists && is_own(&path.symlink_metadata()?) {
        #[cfg(unix)]
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        return Ok(());
    }
    created
}

#[cfg(target_os = "linux")]
fn is_own(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw()
}

/// The directory for temporary files belongs to one user on most other systems.
#[cfg(not(target_os = "linux"))]
fn is_own(metadata: &std::fs::Metadata) -> bool {
    metadata.is_dir()
}

#[cfg(target_os = "linux")]
fn user() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

#[cfg(not(target_os = "linux"))]
fn user() -> String {
    "server".to_owned()
}

/// Paths of files and directories of the server, with links resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PrivatePaths {
    /// Directories around these cannot be named.
    private: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    /// Where the directories with temporary files of servers are.
    temporary: Option<PathBuf>,
}

impl PrivatePaths {
    /// These paths, and the directories with temporary files of servers.
    pub(super) fn new<'a>(private: impl IntoIterator<Item = &'a PathBuf>, hidden: &[PathBuf]) -> Self {
        Self {
            private: private.into_iter().filter_map(|path| resolved(path)).collect(),
            hidden: hidden.iter().filter_map(|path| resolved(path)).collect(),
            temporary: std::env::temp_dir().canonicalize().ok(),
        }
    }

    /// Whether a path is one of these, or inside of one. Its links are resolved.
    pub(super) fn contains(&self, path: &Path) -> bool {
        self.private.iter().chain(&self.hidden).any(|private| path.starts_with(private))
            || self.is_temporary(path)
    }

    /// Whether a directory contains one of these that cannot be in a workspace.
    pub(super) fn is_around(&self, directory: &Path) -> bool {
        self.private.iter().any(|private| private.starts_with(directory))
    }

    fn is_temporary(&self, path: &Path) -> bool {
        let inside = self.temporary.as_ref().and_then(|temporary| path.strip_prefix(temporary).ok());
        match inside.and_then(|inside| inside.components().next()) {
            Some(Component::Normal(name)) => name.as_encoded_bytes().starts_with(PREFIX.as_bytes()),
            Some(Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir)
            | None => false,
        }
    }

    /// Those that can be inside of a directory. `None` if there are none.
    pub(super) fn inside(&self, directory: &Path) -> Option<Self> {
        let inside = |paths: &[PathBuf]| -> Vec<PathBuf> {
            paths.iter().filter(|path| path.starts_with(directory)).cloned().collect()
        };
        let (private, hidden) = (inside(&self.private), inside(&self.hidden));
        let temporary = self.temporary.clone().filter(|temporary| temporary.starts_with(directory));
        let is_empty = private.is_empty() && hidden.is_empty() && temporary.is_none();
        (!is_empty).then_some(Self { private, hidden, temporary })
    }
}

/// A path without links, also of a file that does not exist yet.
fn resolved(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let existing = path.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let (ancestor, real) = existing?;
    path.strip_prefix(ancestor)
        .ok()
        .map(|rest| if rest.as_os_str().is_empty() { real.clone() } else { real.join(rest) })
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn temporary_files_of_servers_are_private() {
        let directory = private_temporary_directory().unwrap();
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(private_temporary_directory().unwrap(), directory);
        let private = PrivatePaths::new([], &[]);
        assert!(private.contains(&directory.canonicalize().unwrap().join("deep/file")));
        let temporary = std::env::temp_dir().canonicalize().unwrap();
        assert!(!private.contains(&temporary) && !private.contains(&temporary.join("attache")));
        assert!(private.inside(&temporary).is_some() && private.inside(&temporary.join("x")).is_none());
    }

    #[test]
    fn a_directory_of_another_kind_is_not_taken_for_our_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        symlink(folder.path(), path("link")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        for name in ["link", "file"] {
            let error = create_own(&path(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{name}");
        }
        std::fs::create_dir(path("open")).unwrap();
        std::fs::set_permissions(path("open"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        create_own(&path("open")).unwrap();
        assert_eq!(path("open").metadata().unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn paths_are_resolved_also_if_the_file_does_not_exist_yet() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("data")).unwrap();
        symlink("data", real.join("link")).unwrap();
        let private = PrivatePaths::new([&folder.path().join("link/tasks.db")], &[]);
        assert!(private.contains(&real.join("data/tasks.db")));
        assert!(!private.contains(&real.join("data")) && !private.contains(&real.join("data/tasks.db2")));
    }
}
