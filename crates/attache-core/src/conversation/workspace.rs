//! The directory that a context works in, and the files in it.
//!
//! The kernel resolves each path below a handle of the directory, so that neither `..` nor links lead out of it, also if the
//! directory changes at the same time.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use super::private::PrivatePaths;
use super::workspace_folder::WorkspaceFolder;

/// The directory that a context works in.
#[derive(Debug)]
pub struct Workspace {
    root: PathBuf,
    /// The path under which the caller knows it. It may have links.
    alias: Option<PathBuf>,
    /// What it contains and gives no access to.
    private: Option<PrivatePaths>,
    #[cfg(target_os = "linux")]
    pub(super) handle: File,
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
            private: None,
        })
    }

    /// The same directory, which the caller knows under another path.
    pub(super) fn known_as(mut self, alias: &Path) -> Self {
        self.alias = Some(alias.to_owned());
        self
    }

    /// The same directory, without access to files of the server.
    pub(super) fn without(mut self, private: &PrivatePaths) -> Self {
        self.private = private.inside(&self.root);
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
        Ok(Self { root: allowed.join(relative), alias: None, private: None, handle: File::from(handle) })
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

    /// Whether both are the same directory of the disk, under the same path. A directory that has replaced another one of this path is
    /// not the same.
    pub fn is_same(&self, other: &Self) -> bool {
        #[cfg(target_os = "linux")]
        let is_same = {
            use std::os::unix::fs::MetadataExt as _;

            let id = |workspace: &Self| {
                let metadata = workspace.handle.metadata().ok()?;
                Some((metadata.dev(), metadata.ino()))
            };
            id(self).is_some_and(|own| id(other) == Some(own))
        };
        #[cfg(not(target_os = "linux"))]
        let is_same = true;
        is_same && self.root == other.root
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

    /// Writes a file as a whole: readers see the old content or the new one, and a write that fails changes nothing. Creates the file
    /// and its directories if they do not exist.
    #[cfg(target_os = "linux")]
    pub fn write(&self, path: &Path, content: &[u8]) -> Result<(), AccessError> {
        use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};

        let relative = self.relative(path)?;
        self.create_directories(&relative)?;
        let (place, mode) = match self.access(path, Access::Write) {
            // A link stays, and the file that it leads to is replaced.
            Ok(file) => (self.place_of(&file).unwrap_or(relative), Some(file.metadata()?.permissions())),
            Err(error) if error.is_not_found() => (relative, None),
            Err(error) => return Err(error),
        };
        let name =
            place.file_name().ok_or(AccessError::Refused("only regular files can be read and written"))?;
        let directory = place.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::RDONLY;
        let directory = self.open_beneath(directory.unwrap_or(Path::new(".")), flags)?;
        if self.private.is_some() {
            self.refuse_private(self.place_of(&directory).map(|place| place.join(name)))?;
        }
        let temporary = format!(".attache-{}", uuid::Uuid::new_v4());
        let flags = OFlags::CLOEXEC | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = openat(&directory, &temporary, flags, Mode::from_raw_mode(0o644));
        let mut file = File::from(file.map_err(io::Error::from)?);
        let written = mode.map_or(Ok(()), |mode| file.set_permissions(mode));
        let written = written.and_then(|()| io::Write::write_all(&mut file, content));
        let written = written.and_then(|()| file.sync_data());
        let written = written.and_then(|()| Ok(renameat(&directory, &temporary, &directory, name)?));
        if written.is_err() {
            let _ = unlinkat(&directory, &temporary, AtFlags::empty());
        }
        Ok(written?)
    }

    /// Writes a file. Creates it and its directories if they do not exist.
    #[cfg(not(target_os = "linux"))]
    pub fn write(&self, path: &Path, _: &[u8]) -> Result<(), AccessError> {
        self.access(path, Access::Write).map(drop)
    }

    /// Where an open file is, below the root. `None` if it was moved away meanwhile.
    #[cfg(target_os = "linux")]
    fn place_of(&self, file: &File) -> Option<PathBuf> {
        use std::os::fd::AsRawFd as _;

        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        Some(path.strip_prefix(&self.root).ok()?.to_owned())
    }

    /// Opens a directory inside, for a program that starts there.
    pub fn directory(&self, path: &Path) -> Result<OpenDirectory, AccessError> {
        Ok(OpenDirectory { handle: self.access(path, Access::Directory)? })
    }

    /// Makes a folder for files that an agent reads. It is removed when the result is dropped.
    pub fn temporary_folder(&self) -> io::Result<WorkspaceFolder> {
        WorkspaceFolder::new(self)
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
        // Without `NONBLOCK` opening a named pipe would wait for its other end.
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags
            | match access {
                Access::Read => OFlags::RDONLY,
                Access::Write => OFlags::WRONLY,
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
        use rustix::fs::{Mode, ResolveFlags, openat2};

        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        loop {
            match openat2(&self.handle, relative, flags, Mode::empty(), resolve) {
                Ok(file) => {
                    let file = File::from(file);
                    if self.private.is_some() {
                        self.refuse_private(self.place_of(&file))?;
                    }
                    return Ok(file);
                }
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

    /// Refuses a place below the root that belongs to the server. A place that is not known is refused too.
    #[cfg(target_os = "linux")]
    fn refuse_private(&self, place: Option<PathBuf>) -> Result<(), AccessError> {
        let is_private = |place: &PathBuf| {
            self.private.as_ref().is_some_and(|private| private.contains(&self.root.join(place)))
        };
        match place {
            Some(place) if !is_private(&place) => Ok(()),
            Some(_) | None => Err(AccessError::Refused("files of the server are not part of the workspace")),
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

/// A directory of a workspace that is open.
#[derive(Debug)]
pub struct OpenDirectory {
    #[cfg_attr(not(unix), expect(dead_code, reason = "no directory is opened on such systems"))]
    handle: File,
}

impl OpenDirectory {
    /// A path for the directory of a program that this process starts while this value lives. It leads to the directory that was opened,
    /// also if its name leads to another one by then.
    #[cfg(unix)]
    pub fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd as _;

        format!("/proc/self/fd/{}", self.handle.as_raw_fd()).into()
    }

    /// No directory is opened on this system.
    #[cfg(not(unix))]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(".")
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
    fn a_directory_that_has_taken_the_place_of_another_one_is_not_the_same() {
        let (folder, workspace) = workspace();
        let again = || Workspace::open(&folder.path().join("work")).unwrap();
        assert!(workspace.is_same(&again()));
        std::fs::rename(workspace.root(), folder.path().join("old")).unwrap();
        std::fs::create_dir(workspace.root()).unwrap();
        assert_eq!(workspace.root(), again().root());
        assert!(!workspace.is_same(&again()));
        assert!(!workspace.is_same(&Workspace::open(&folder.path().join("old")).unwrap()));
    }

    #[test]
    fn a_program_starts_in_the_directory_that_was_opened() {
        let (folder, workspace) = workspace();
        std::fs::create_dir(workspace.root().join("in")).unwrap();
        let opened = workspace.directory(Path::new("in")).unwrap();
        std::fs::rename(workspace.root().join("in"), workspace.root().join("moved")).unwrap();
        symlink(folder.path(), workspace.root().join("in")).unwrap();
        let output = std::process::Command::new("pwd").arg("-P").current_dir(opened.path()).output().unwrap();
        let place = String::from_utf8(output.stdout).unwrap();
        assert_eq!(Path::new(place.trim()), workspace.root().join("moved"));
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
    fn a_write_that_fails_keeps_the_old_content() {
        let (_folder, workspace) = workspace();
        let root = workspace.root();
        workspace.write(Path::new("deep/a"), b"old").unwrap();
        // The directory takes no new file, as if the disk were full.
        let set_mode = |mode: u32| {
            let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(root.join("deep"), permissions).unwrap();
        };
        set_mode(0o555);
        let written = workspace.write(Path::new("deep/a"), b"new");
        set_mode(0o755);
        match written {
            Err(_) => assert_eq!(read(&workspace, "deep/a").unwrap(), "old"),
            // Root may write everywhere.
            Ok(()) => assert_eq!(read(&workspace, "deep/a").unwrap(), "new"),
        }
        // What cannot be replaced is not damaged, and nothing is left behind.
        std::fs::create_dir(root.join("deep/directory")).unwrap();
        assert!(workspace.write(Path::new("deep/directory"), b"x").is_err());
        assert!(workspace.write(Path::new("."), b"x").is_err());
        assert!(workspace.write(Path::new("deep/a/b"), b"x").is_err());
        let mut names: Vec<_> =
            std::fs::read_dir(root.join("deep")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "directory"]);
    }

    #[test]
    fn a_reader_never_sees_half_a_file() {
        let (_folder, workspace) = workspace();
        let content = |letter: u8| vec![letter; 300_000];
        workspace.write(Path::new("a"), &content(b'a')).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for letter in b'b'..=b'z' {
                    workspace.write(Path::new("a"), &content(letter)).unwrap();
                }
            });
            while !writer.is_finished() {
                let read = workspace.read(Path::new("a"), 1_000_000).unwrap();
                assert_eq!(read, content(read[0]));
            }
        });
    }

    #[test]
    fn a_write_keeps_links_and_permissions() {
        let (_folder, workspace) = workspace();
        let root = workspace.root();
        std::fs::create_dir(root.join("real")).unwrap();
        std::fs::write(root.join("real/run.sh"), "old").unwrap();
        let script = root.join("real/run.sh");
        let executable: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, executable).unwrap();
        let before = script.metadata().unwrap().permissions();
        symlink("real/run.sh", root.join("link")).unwrap();
        workspace.write(Path::new("link"), b"new").unwrap();
        assert!(root.join("link").is_symlink());
        assert_eq!(std::fs::read(&script).unwrap(), b"new");
        assert_eq!(script.metadata().unwrap().permissions(), before);
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
    fn a_file_system_that_is_mounted_in_a_workspace_is_part_of_it() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};

        let (folder, workspace) = workspace();
        let (volume, place) = (folder.path().join("volume"), workspace.root().join("place"));
        std::fs::create_dir(&volume).unwrap();
        std::fs::create_dir(&place).unwrap();
        std::fs::write(volume.join("file"), "mounted").unwrap();
        let mut mount = Command::new("mount");
        mount.arg("--bind").args([&volume, &place]).stderr(Stdio::null());
        if !mount.status().is_ok_and(|status| status.success()) {
            writeln!(io::stdout(), "\nskipped: only root can mount a directory").unwrap();
            return;
        }
        let read = read(&workspace, "place/file");
        let written = workspace.write(Path::new("place/new"), b"x");
        let unmounted = Command::new("umount").arg(&place).status();
        assert!(unmounted.unwrap().success());
        assert_eq!(read.unwrap(), "mounted");
        written.unwrap();
        assert_eq!(std::fs::read(volume.join("new")).unwrap(), b"x");
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
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
