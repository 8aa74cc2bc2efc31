//! The workspace of a session, with the requests and errors of the protocol for the files in it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use attache_core::{AccessError, OpenDirectory, Workspace as Directory, WorkspaceFolder};

use super::wire::{ReadFile, RpcError, WriteFile, code};

/// The directory of a session.
#[derive(Debug)]
pub(super) struct Workspace {
    directory: Arc<Directory>,
    max_file: usize,
}

/// Whether files can be served on this system.
pub(super) const SERVES_FILES: bool = Directory::SERVES_FILES;

impl Workspace {
    /// The workspace of a context.
    pub(super) fn new(directory: Arc<Directory>, max_file: usize) -> Self {
        Self { directory, max_file }
    }

    /// A directory that exists.
    pub(super) fn open(directory: &Path, max_file: usize) -> io::Result<Self> {
        Ok(Self::new(Arc::new(Directory::open(directory)?), max_file))
    }

    /// The absolute path.
    pub(super) fn root(&self) -> &Path {
        self.directory.root()
    }

    /// Whether both are the same directory of the disk, and not only the same path.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.directory.is_same(&other.directory)
    }

    /// A path for people: relative, if it is inside.
    pub(super) fn shown<'a>(&self, path: &'a str) -> std::borrow::Cow<'a, str> {
        self.directory.shown(path)
    }

    /// Reads a text file, or some of its lines.
    pub(super) fn read(&self, request: &ReadFile) -> Result<String, RpcError> {
        let bytes = self.directory.read(&request.path, self.max_file);
        let bytes = bytes.map_err(|error| self.explain(&request.path, &error))?;
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
        let written = match request.content.len() > self.max_file {
            true => Err(AccessError::TooLarge(self.max_file)),
            false => self.directory.write(&request.path, request.content.as_bytes()),
        };
        written.map_err(|error| self.explain(&request.path, &error))
    }

    /// Makes a folder for files of messages.
    pub(super) fn temporary_folder(&self) -> io::Result<WorkspaceFolder> {
        self.directory.temporary_folder()
    }

    /// Opens a directory inside.
    pub(super) fn directory(&self, path: &Path) -> Result<OpenDirectory, RpcError> {
        self.directory.directory(path).map_err(|error| self.explain(path, &error))
    }

    fn explain(&self, path: &Path, error: &AccessError) -> RpcError {
        let path = path.display();
        match error {
            AccessError::Refused(rule) => {
                let root = self.root().display();
                let text = format!("`{path}` is refused: {rule}; the workspace is `{root}`");
                RpcError::new(code::INVALID_PARAMS, text)
            }
            AccessError::TooLarge(limit) => {
                let text = format!("`{path}` is too large: the limit is {limit} bytes");
                RpcError::new(code::INVALID_PARAMS, text)
            }
            AccessError::Io(_) if error.is_not_found() => {
                RpcError::new(code::NOT_FOUND, format!("`{path}` cannot be used: {error}"))
            }
            AccessError::Io(_) => RpcError::new(code::INTERNAL, format!("`{path}` cannot be used: {error}")),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

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
        assert!(read(&workspace, ".").unwrap_err().contains("only regular files can be read and written"));
        let missing = workspace.read(&ReadFile { path: "missing".into(), line: None, limit: None });
        assert_eq!(missing.unwrap_err().code, code::NOT_FOUND);
        let made = std::process::Command::new("mkfifo").arg(workspace.root().join("pipe")).status();
        assert!(made.unwrap().success());
        assert!(read(&workspace, "pipe").is_err() && write(&workspace, "pipe", "x").is_err());
    }
}
