//! The directory that a session works in, and the files that the agent reads and writes through the server.
//!
//! The kernel resolves each path below a handle of the directory, so that neither `..` nor links lead out of it, also if the
//! directory changes at the same time.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use super::wire::{ReadFile, RpcError, WriteFile, code};

/// The directory of a session.
#[derive(Debug)]
pub(super) struct Workspace {
    root: PathBuf,
    #[cfg(target_os = "linux")]
    handle: File,
    max_file: usize,
}

/// Whether files can be served on this system.
pub(super) const SERVES_FILES: bool = cfg!(target_os = "linux");

/// What to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Directory,
}

impl Workspace {
    /// A directory that exists.
    pub(super) fn open(directory: &Path, max_file: usize) -> io::Result<Self> {
        let root = directory.canonicalize()?;
        if !root.metadata()?.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, "it is not a directory"));
        }
        Ok(Self {
            #[cfg(target_os = "linux")]
            handle: File::open(&root)?,
            root,
            max_file,
        })
    }

    /// The absolute path.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A path for people: relative, if it is inside.
    pub(super) fn shown<'a>(&self, path: &'a str) -> std::borrow::Cow<'a, str> {
        match Path::new(path).strip_prefix(&self.root) {
            Ok(inside) => inside.to_string_lossy(),
            Err(_) => path.into(),
        }
    }

    /// Reads a text file, or some of its lines.
    pub(super) fn read(&self, request: &ReadFile) -> Result<String, RpcError> {
        let file = self.access(&request.path, Access::Read)?;
        let failed = |error: io::Error| unusable(&request.path, &error);
        let limit = self.max_file as u64;
        if file.metadata().map_err(failed)?.len() > limit {
            return Err(too_large(&request.path, self.max_file));
        }
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() > self.max_file {
            return Err(too_large(&request.path, self.max_file));
        }
        let text = String::from_utf8(bytes).map_err(|_| {
            RpcError::new(
                code::INVALID_PARAMS,
                format!("`{}` is not a text file in UTF-8", request.path.display()),
            )
        })?;
        if request.line.is_none() && request.limit.is_none() {
            return Ok(text);
        }
        let skipped = request.line.unwrap_or(1).saturating_sub(1) as usize;
        let count = request.limit.map_or(usize::MAX, |limit| limit as usize);
        Ok(text.split_inclusive('\n').skip(skipped).take(count).collect())
    }

    /// Writes a text file. Creates it and its directories if they do not exist.
    pub(super) fn write(&self, request: &WriteFile) -> Result<(), RpcError> {
        if request.content.len() > self.max_file {
            return Err(too_large(&request.path, self.max_file));
        }
        let mut file = self.access(&request.path, Access::Write)?;
        let written =
            file.set_len(0).and_then(|()| io::Write::write_all(&mut file, request.content.as_bytes()));
        written.map_err(|error| unusable(&request.path, &error))
    }

    /// The absolute path of a directory inside.
    pub(super) fn directory(&self, path: &Path) -> Result<PathBuf, RpcError> {
        self.access(path, Access::Directory)?;
        Ok(self.root.join(self.relative(path)?))
    }

    /// The path below the root. Links are not resolved yet.
    fn relative(&self, path: &Path) -> Result<PathBuf, RpcError> {
        let refused = |rule: &str| {
            RpcError::new(code::INVALID_PARAMS, format!("`{}` is refused: {rule}", path.display()))
        };
        let inside = if path.is_absolute() {
            path.strip_prefix(&self.root).map_err(|_| {
                refused(&format!("only paths below the workspace `{}` are allowed", self.root.display()))
            })?
        } else {
            path
        };
        let mut relative = PathBuf::new();
        for component in inside.components() {
            match component {
                Component::Normal(name) => relative.push(name),
                Component::CurDir => {}
                Component::ParentDir => return Err(refused("`..` is not allowed in paths")),
                Component::RootDir | Component::Prefix(_) => {
                    return Err(refused("only paths below the workspace are allowed"));
                }
            }
        }
        Ok(relative)
    }

    #[cfg(target_os = "linux")]
    fn access(&self, path: &Path, access: Access) -> Result<File, RpcError> {
        use rustix::fs::OFlags;

        let mut relative = self.relative(path)?;
        if relative.as_os_str().is_empty() {
            relative.push(".");
        }
        if access == Access::Write {
            self.create_directories(path, &relative)?;
        }
        // Without `NONBLOCK` opening a named pipe would wait for its other end.
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags
            | match access {
                Access::Read => OFlags::RDONLY,
                Access::Write => OFlags::WRONLY | OFlags::CREATE,
                Access::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            };
        let file = self.open_beneath(path, &relative, flags)?;
        let metadata = file.metadata().map_err(|error| unusable(path, &error))?;
        if access != Access::Directory && !metadata.is_file() {
            let text = format!("`{}` is refused: only regular files can be read and written", path.display());
            return Err(RpcError::new(code::INVALID_PARAMS, text));
        }
        Ok(file)
    }

    #[cfg(target_os = "linux")]
    fn open_beneath(
        &self,
        path: &Path,
        relative: &Path,
        flags: rustix::fs::OFlags,
    ) -> Result<File, RpcError> {
        use rustix::fs::{Mode, ResolveFlags, openat2};

        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mode = if flags.contains(rustix::fs::OFlags::CREATE) {
            Mode::from_raw_mode(0o644)
        } else {
            Mode::empty()
        };
        match openat2(&self.handle, relative, flags, mode, resolve) {
            Ok(file) => Ok(File::from(file)),
            Err(rustix::io::Errno::XDEV) => Err(RpcError::new(
                code::INVALID_PARAMS,
                format!(
                    "`{}` is refused: links that lead out of the workspace are not followed",
                    path.display()
                ),
            )),
            Err(error) => Err(unusable(path, &error.into())),
        }
    }

    #[cfg(target_os = "linux")]
    fn create_directories(&self, path: &Path, relative: &Path) -> Result<(), RpcError> {
        use rustix::fs::{Mode, OFlags, mkdirat};

        let flags = OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::RDONLY;
        let mut below = PathBuf::new();
        let mut parent = self.open_beneath(path, Path::new("."), flags)?;
        for name in relative.parent().into_iter().flat_map(Path::iter) {
            below.push(name);
            match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(unusable(path, &error.into())),
            }
            parent = self.open_beneath(path, &below, flags)?;
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn access(&self, path: &Path, _: Access) -> Result<File, RpcError> {
        self.relative(path)?;
        Err(RpcError::new(code::INTERNAL, "this server serves files on Linux only"))
    }
}

fn too_large(path: &Path, limit: usize) -> RpcError {
    let text = format!("`{}` is too large: the limit is {limit} bytes", path.display());
    RpcError::new(code::INVALID_PARAMS, text)
}

fn unusable(path: &Path, error: &io::Error) -> RpcError {
    let code = if error.kind() == io::ErrorKind::NotFound { code::NOT_FOUND } else { code::INTERNAL };
    RpcError::new(code, format!("`{}` cannot be used: {error}", path.display()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn workspace() -> (tempfile::TempDir, Workspace) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        let workspace = Workspace::open(&folder.path().join("work"), 1000).unwrap();
        (folder, workspace)
    }

    fn read(workspace: &Workspace, path: impl Into<PathBuf>) -> Result<String, String> {
        let request = ReadFile { path: path.into(), line: None, limit: None };
        workspace.read(&request).map_err(|error| error.message)
    }

    fn write(workspace: &Workspace, path: impl Into<PathBuf>, content: &str) -> Result<(), String> {
        let request = WriteFile { path: path.into(), content: content.to_owned() };
        workspace.write(&request).map_err(|error| error.message)
    }

    #[test]
    fn files_inside_are_read_and_written() {
        let (_folder, workspace) = workspace();
        let path = workspace.root().join("a/b/c.txt");
        write(&workspace, &path, "one\ntwo\nthree\n").unwrap();
        write(&workspace, "a/short.txt", "long text").unwrap();
        write(&workspace, "a/short.txt", "short").unwrap();
        assert_eq!(read(&workspace, "a/short.txt").unwrap(), "short");
        assert_eq!(read(&workspace, &path).unwrap(), "one\ntwo\nthree\n");
        let lines = ReadFile { path, line: Some(2), limit: Some(1) };
        assert_eq!(workspace.read(&lines).unwrap(), "two\n");
        symlink("a/short.txt", workspace.root().join("inside")).unwrap();
        assert_eq!(read(&workspace, "inside").unwrap(), "short");
    }

    #[test]
    fn no_path_leads_out_of_the_workspace() {
        let (folder, workspace) = workspace();
        symlink(folder.path(), workspace.root().join("out")).unwrap();
        symlink("../secret", workspace.root().join("link")).unwrap();
        symlink("../new", workspace.root().join("dangling")).unwrap();
        for (path, rule) in [
            (folder.path().join("secret"), "only paths below the workspace"),
            (workspace.root().join("../secret"), "`..` is not allowed"),
            ("a/../../secret".into(), "`..` is not allowed"),
            ("out/secret".into(), "links that lead out of the workspace are not followed"),
            ("out/deep/secret".into(), ""),
            ("link".into(), "links that lead out of the workspace are not followed"),
            ("/proc/self/environ".into(), "only paths below the workspace"),
        ] {
            let error = read(&workspace, &path).unwrap_err();
            assert!(error.contains(rule), "{}: {error}", path.display());
            let error = write(&workspace, &path, "changed").unwrap_err();
            assert!(error.contains(rule), "{}: {error}", path.display());
        }
        assert!(write(&workspace, "dangling", "x").unwrap_err().contains("links that lead out"));
        assert_eq!(std::fs::read_to_string(folder.path().join("secret")).unwrap(), "secret");
        assert!(!folder.path().join("new").exists() && !folder.path().join("deep").exists());
        assert!(workspace.directory(Path::new("out")).is_err());
        assert!(workspace.directory(Path::new(".")).is_ok());
    }

    #[test]
    fn what_is_no_text_file_of_moderate_size_is_refused() {
        let (_folder, workspace) = workspace();
        std::fs::write(workspace.root().join("large"), "x".repeat(1001)).unwrap();
        std::fs::write(workspace.root().join("binary"), [0xff, 0xfe]).unwrap();
        assert!(read(&workspace, "large").unwrap_err().ends_with("the limit is 1000 bytes"));
        assert!(
            write(&workspace, "new", &"x".repeat(1001)).unwrap_err().ends_with("the limit is 1000 bytes")
        );
        assert!(read(&workspace, "binary").unwrap_err().ends_with("is not a text file in UTF-8"));
        assert!(read(&workspace, ".").unwrap_err().ends_with("only regular files can be read and written"));
        let missing = workspace.read(&ReadFile { path: "missing".into(), line: None, limit: None });
        assert_eq!(missing.unwrap_err().code, code::NOT_FOUND);
        let made = std::process::Command::new("mkfifo").arg(workspace.root().join("pipe")).status();
        assert!(made.unwrap().success());
        assert!(read(&workspace, "pipe").is_err() && write(&workspace, "pipe", "x").is_err());
    }
}
