//! The directory that a context works in, and the files in it.
//!
//! The kernel resolves each path below a handle of the directory, so that neither `..` nor links lead out of it, also if the
//! directory changes at the same time.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// The directory that a context works in.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    /// The path under which the caller knows it. It may have links.
    alias: Option<PathBuf>,
    #[cfg(target_os = "linux")]
    handle: File,
}

/// Why a file of a workspace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A rule forbids it.
    #[error("{0}")]
    Refused(&'static str),
    /// It is larger than the limit, in bytes.
    #[error("it is too large: the limit is {0} bytes")]
    TooLarge(usize),
    /// The system reports an error.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl AccessError {
    /// Whether there is no such file.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// What to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Directory,
}

/// The longest path that is looked at, in bytes. Systems refuse longer ones.
const MAX_PATH: usize = 4096;

impl Workspace {
    /// Whether files can be served on this system.
    pub const SERVES_FILES: bool = cfg!(target_os = "linux");

    /// A directory that exists.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let root = directory.canonicalize()?;
        if !root.metadata()?.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a directory"));
        }
        Ok(Self {
            #[cfg(target_os = "linux")]
            handle: File::open(&root)?,
            root,
            alias: None,
        })
    }

    /// The same directory, which the caller knows under another path.
    pub(super) fn known_as(mut self, alias: &Path) -> Self {
        self.alias = Some(alias.to_owned());
        self
    }

    /// A directory below another one. No link is followed, so both paths must be resolved.
    #[cfg(target_os = "linux")]
    pub(super) fn open_below(allowed: &Path, relative: &Path) -> io::Result<Self> {
        use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

        let parent = File::open(allowed)?;
        let flags = OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::RDONLY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let inside = if relative.as_os_str().is_empty() { Path::new(".") } else { relative };
        let handle = openat2(&parent, inside, flags, Mode::empty(), resolve)?;
        Ok(Self { root: allowed.join(relative), alias: None, handle: File::from(handle) })
    }

    /// A directory below another one. Both paths must be resolved.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn open_below(allowed: &Path, relative: &Path) -> io::Result<Self> {
        Self::open(&allowed.join(relative))
    }

    /// The absolute path, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path for people: relative, if it is inside.
    pub fn shown<'a>(&self, path: &'a str) -> std::borrow::Cow<'a, str> {
        match Path::new(path).strip_prefix(&self.root) {
            Ok(inside) => inside.to_string_lossy(),
            Err(_) => path.into(),
        }
    }

    /// Reads a file of at most `limit` bytes.
    pub fn read(&self, path: &Path, limit: usize) -> Result<Vec<u8>, AccessError> {
        let file = self.access(path, Access::Read)?;
        let size = file.metadata()?.len();
        if size > limit as u64 {
            return Err(AccessError::TooLarge(limit));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        // The file may grow meanwhile.
        file.take((limit as u64).saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() > limit {
            return Err(AccessError::TooLarge(limit));
        }
        Ok(bytes)
    }

    /// The size of a file.
    pub fn size(&self, path: &Path) -> Result<u64, AccessError> {
        Ok(self.access(path, Access::Read)?.metadata()?.len())
    }

    /// Writes a file. Creates it and its directories if they do not exist.
    pub fn write(&self, path: &Path, content: &[u8]) -> Result<(), AccessError> {
        let mut file = self.access(path, Access::Write)?;
        file.set_len(0)?;
        Ok(io::Write::write_all(&mut file, content)?)
    }

    /// The absolute path of a directory inside.
    pub fn directory(&self, path: &Path) -> Result<PathBuf, AccessError> {
        self.access(path, Access::Directory)?;
        Ok(self.root.join(self.relative(path)?))
    }

    /// The path below the root. Links are not resolved yet.
    fn relative(&self, path: &Path) -> Result<PathBuf, AccessError> {
        let text = path.as_os_str().as_encoded_bytes();
        if text.contains(&0) {
            return Err(AccessError::Refused("a path cannot have NUL characters"));
        }
        if text.len() > MAX_PATH {
            return Err(AccessError::Refused("a path has at most 4096 bytes"));
        }
        let outside = AccessError::Refused("only paths below the workspace are allowed");
        let inside = if path.is_absolute() {
            let roots = [Some(&self.root), self.alias.as_ref()];
            match roots.into_iter().flatten().find_map(|root| path.strip_prefix(root).ok()) {
                Some(inside) => inside,
                None => return Err(outside),
            }
        } else {
            path
        };
        let mut relative = PathBuf::new();
        for component in inside.components() {
            match component {
                Component::Normal(name) => relative.push(name),
                Component::CurDir => {}
                Component::ParentDir => {
                    return Err(AccessError::Refused("`..` is not allowed in paths"));
                }
                Component::RootDir | Component::Prefix(_) => return Err(outside),
            }
        }
        Ok(relative)
    }

    #[cfg(target_os = "linux")]
    fn access(&self, path: &Path, access: Access) -> Result<File, AccessError> {
        use rustix::fs::OFlags;

        let mut relative = self.relative(path)?;
        if relative.as_os_str().is_empty() {
            relative.push(".");
        }
        if access == Access::Write {
            self.create_directories(&relative)?;
        }
        // Without `NONBLOCK` opening a named pipe would wait for its other end.
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags
            | match access {
                Access::Read => OFlags::RDONLY,
                Access::Write => OFlags::WRONLY | OFlags::CREATE,
                Access::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            };
        let file = self.open_beneath(&relative, flags)?;
        if access != Access::Directory && !file.metadata()?.is_file() {
            return Err(AccessError::Refused("only regular files can be read and written"));
        }
        Ok(file)
    }

    #[cfg(target_os = "linux")]
    fn open_beneath(&self, relative: &Path, flags: rustix::fs::OFlags) -> Result<File, AccessError> {
        use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let creates = flags.contains(OFlags::CREATE);
        let mode = if creates { Mode::from_raw_mode(0o644) } else { Mode::empty() };
        loop {
            match openat2(&self.handle, relative, flags, mode, resolve) {
                Ok(file) => return Ok(File::from(file)),
                // The kernel asks to try again if a directory was moved meanwhile.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::XDEV) => {
                    return Err(AccessError::Refused(
                        "links that lead out of the workspace are not followed",
                    ));
                }
                Err(error) => return Err(AccessError::Io(error.into())),
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn create_directories(&self, relative: &Path) -> Result<(), AccessError> {
        use rustix::fs::{Mode, OFlags, mkdirat};

        let flags = OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::RDONLY;
        let mut below = PathBuf::new();
        let mut parent = self.open_beneath(Path::new("."), flags)?;
        for name in relative.parent().into_iter().flat_map(Path::iter) {
            below.push(name);
            match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(AccessError::Io(error.into())),
            }
            parent = self.open_beneath(&below, flags)?;
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn access(&self, path: &Path, _: Access) -> Result<File, AccessError> {
        self.relative(path)?;
        Err(AccessError::Refused("this server serves files on Linux only"))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn workspace() -> (tempfile::TempDir, Workspace) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        let workspace = Workspace::open(&folder.path().join("work")).unwrap();
        (folder, workspace)
    }

    fn read(workspace: &Workspace, path: impl AsRef<Path>) -> Result<String, String> {
        let bytes = workspace.read(path.as_ref(), 1000).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn names_that_no_file_can_have_are_refused() {
        let (_folder, workspace) = workspace();
        std::fs::write(workspace.root().join("a"), "x").unwrap();
        assert_eq!(read(&workspace, "a\0b").unwrap_err(), "a path cannot have NUL characters");
        assert_eq!(read(&workspace, "a/".repeat(2049)).unwrap_err(), "a path has at most 4096 bytes");
        // Longer than a name may be, and shorter than a path.
        assert!(read(&workspace, "a".repeat(300)).is_err());
        assert!(workspace.write(Path::new(&"a".repeat(300)), b"x").is_err());
        // Names differ in case, and a name of the root in another case is another directory.
        assert!(workspace.read(Path::new("A"), 10).unwrap_err().is_not_found());
        let other = workspace.root().with_file_name("WORK").join("a");
        assert_eq!(read(&workspace, other).unwrap_err(), "only paths below the workspace are allowed");
        let longer = format!("{}2/a", workspace.root().display());
        assert_eq!(read(&workspace, longer).unwrap_err(), "only paths below the workspace are allowed");
    }

    #[test]
    fn mounts_and_magic_links_of_the_system_are_not_a_way_out() {
        let (_folder, workspace) = workspace();
        symlink("/proc/self/root/etc/passwd", workspace.root().join("magic")).unwrap();
        symlink("/proc/self/environ", workspace.root().join("environment")).unwrap();
        symlink("/dev/shm", workspace.root().join("mount")).unwrap();
        for path in ["magic", "environment", "mount/x"] {
            let error = read(&workspace, path).unwrap_err();
            assert_eq!(error, "links that lead out of the workspace are not followed", "{path}");
        }
    }

    #[test]
    fn a_directory_that_is_swapped_for_a_link_never_leads_out() {
        let (folder, workspace) = workspace();
        let root = workspace.root().to_owned();
        std::fs::create_dir(folder.path().join("outside")).unwrap();
        std::fs::write(folder.path().join("outside/file"), "outside").unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::fs::write(root.join("real/file"), "inside").unwrap();
        symlink(folder.path().join("outside"), root.join("link")).unwrap();
        std::fs::rename(root.join("real"), root.join("dir")).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let rename = |from: &str, to: &str| std::fs::rename(root.join(from), root.join(to)).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    rename("dir", "real");
                    rename("link", "dir");
                    rename("dir", "link");
                    rename("real", "dir");
                }
            });
            let mut inside = 0;
            for _ in 0..3_000 {
                match workspace.read(Path::new("dir/file"), 100) {
                    Ok(content) => {
                        assert_eq!(content, b"inside");
                        inside += 1;
                    }
                    Err(_) => std::thread::yield_now(),
                }
            }
            stop.store(true, Ordering::Relaxed);
            assert!(inside > 0);
        });
    }
}
