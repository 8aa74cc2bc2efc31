//! Which directories contexts work in.

use std::io;
use std::path::{Path, PathBuf};

use attache_protocol::{Error, JsonObject, Message};
use serde_json::Value;

use super::private::PrivatePaths;
use super::record::StoredWorkspace;
use super::rules::PeerRules;
use super::workspace::Workspace;

/// Which directories contexts work in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workspaces {
    /// The directories that callers may name, with everything below them. Callers may name none unless set.
    pub allowed: Vec<PathBuf>,
    /// The directory of a context whose callers name none.
    pub default: DefaultWorkspace,
    /// Files and directories with data of several callers, such as the store. Callers cannot name a directory inside of one, nor one that
    /// contains one, unless it is the default of all contexts. No workspace gives access to them. The directory of
    /// [private](DefaultWorkspace::Private) workspaces belongs to them in any case.
    pub private: Vec<PathBuf>,
    /// Whether the directories that callers name, and the default of all contexts, are the same on all servers of a
    /// [shared](crate::Store::is_shared) store. Unless set, a context in one of them stays on the server that it began on.
    pub shared: bool,
    /// Other files of the server, such as its settings, which workspaces give no access to. Callers may name a directory that contains
    /// one. The [temporary files](crate::private_temporary_directory) of servers belong to them in any case.
    pub hidden: Vec<PathBuf>,
}

impl Workspaces {
    /// Callers may name directories below these.
    pub fn allow(mut self, roots: impl IntoIterator<Item: Into<PathBuf>>) -> Self {
        self.allowed.extend(roots.into_iter().map(Into::into));
        self
    }

    /// Keeps files and directories with data of several callers [private](Self::private).
    pub fn keep_private(mut self, paths: impl IntoIterator<Item: Into<PathBuf>>) -> Self {
        self.private.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Says that the directories are the same on all servers of a store.
    pub fn shared_by_servers(mut self) -> Self {
        self.shared = true;
        self
    }

    fn private_paths(&self) -> PrivatePaths {
        let of_contexts = match &self.default {
            DefaultWorkspace::Private(data) | DefaultWorkspace::Temporary(data) => Some(data),
            DefaultWorkspace::None | DefaultWorkspace::Shared(_) => None,
        };
        PrivatePaths::new(self.private.iter().chain(of_contexts), &self.hidden)
    }

    /// Whether all contexts have this directory by default.
    fn is_default(&self, resolved: &Path) -> bool {
        match &self.default {
            DefaultWorkspace::Shared(path) => path.canonicalize().is_ok_and(|path| path == resolved),
            DefaultWorkspace::None | DefaultWorkspace::Private(_) | DefaultWorkspace::Temporary(_) => false,
        }
    }

    /// Contexts have this directory if their callers name none.
    pub fn default_to(mut self, default: DefaultWorkspace) -> Self {
        self.default = default;
        self
    }
}

/// The directory of a context whose callers name none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DefaultWorkspace {
    /// It has none.
    #[default]
    None,
    /// All contexts share this directory.
    Shared(PathBuf),
    /// Each context has a private directory below this one. The directory has an id, in the file `.home`: a server with another
    /// directory takes no messages for these contexts.
    Private(PathBuf),
    /// Like `Private`, with a directory that lasts no longer than the process. Contexts go on without their files.
    Temporary(PathBuf),
}

/// The file with the id of a directory that has private directories.
const HOME: &str = ".home";

/// Why a directory cannot be the workspace of a context. The text names a rule, and no path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// Not text.
    #[error("expected the absolute path of a directory, as text")]
    NotText,
    /// Two members name different directories.
    #[error("`attache.workspace` and `iac_code.cwd` name different directories")]
    TwoNames,
    /// Not absolute.
    #[error("expected an absolute path")]
    NotAbsolute,
    /// A path that no directory can have.
    #[error("expected a path without NUL characters and of at most 4096 bytes")]
    NoPath,
    /// Callers may name none.
    #[error("this agent does not let callers choose a workspace: leave it out")]
    NoneAllowed,
    /// Not inside.
    #[error("it must be inside of a workspace that this server allows, after links are resolved")]
    Outside,
    /// Not there.
    #[error("it must be a directory that exists")]
    Missing,
    /// The context works in another one.
    #[error("the context belongs to a different workspace: send without `contextId` to begin another one")]
    Different,
    /// Data of other callers are inside.
    #[error("it must not contain the data of the server: name a directory inside")]
    HasPrivate,
    /// The agent needs a workspace, and there is none.
    #[error("there is no directory for this context: name one")]
    NoDefault,
    /// The private directory of the context is on the disk of another server.
    #[error(
        "the files of this context are on another server: send the message there, or without `contextId` to begin another one"
    )]
    Elsewhere,
    /// The directory cannot be made or opened.
    #[error("the workspace cannot be used")]
    Unusable(#[source] io::Error),
}

/// The members that name a workspace: object and member.
const MEMBERS: [(&str, &str); 2] = [("attache", "workspace"), ("iac_code", "cwd")];

/// The longest path, in bytes. Systems refuse longer ones.
const MAX_PATH: usize = 4096;

/// The directory that the metadata of a message, or else of its request, name. With it, the path of the member.
pub(crate) fn named(
    message: &Message,
    request: Option<&JsonObject>,
    peer: PeerRules,
) -> Result<Option<(PathBuf, String)>, (WorkspaceError, String)> {
    let mut found: Option<(PathBuf, String)> = None;
    for (place, metadata) in [("message.metadata", message.metadata.as_ref()), ("metadata", request)] {
        for (object, member) in MEMBERS {
            let value = metadata.and_then(|metadata| metadata.get::<Value>(object));
            let Some(value) = value.as_ref().and_then(|value| value.get(member)) else { continue };
            let field = format!("{place}.{object}.{member}");
            match value {
                Value::String(text) if !text.trim().is_empty() => {
                    let path = PathBuf::from(text);
                    match &found {
                        Some((other, _)) if *other != path => return Err((WorkspaceError::TwoNames, field)),
                        Some(_) | None => found = Some((path, field)),
                    }
                }
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_)
                | Value::Object(_) => match peer {
                    PeerRules::Standard => return Err((WorkspaceError::NotText, field)),
                    // That server ignores values that are blank or no text.
                    PeerRules::IacCode => {}
                },
            }
        }
    }
    Ok(found)
}

/// The error for a message that names a workspace which cannot be used.
pub(crate) fn invalid(error: &WorkspaceError, field: &str) -> Error {
    Error::invalid_params(field, error.to_string())
}

impl Workspaces {
    /// Opens the directory that a caller names. It is checked each time, since links and directories can change.
    pub(crate) fn open_named(&self, path: &Path) -> Result<Workspace, WorkspaceError> {
        let text = path.as_os_str().as_encoded_bytes();
        if text.contains(&0) || text.len() > MAX_PATH {
            return Err(WorkspaceError::NoPath);
        }
        if !path.is_absolute() {
            return Err(WorkspaceError::NotAbsolute);
        }
        if self.allowed.is_empty() {
            return Err(WorkspaceError::NoneAllowed);
        }
        let roots: Vec<PathBuf> = self.allowed.iter().filter_map(|root| root.canonicalize().ok()).collect();
        let Ok(resolved) = path.canonicalize() else {
            // Whether something exists outside is none of the caller's business. The part of the path that exists says where it leads.
            let existing = path.ancestors().skip(1).find_map(|ancestor| ancestor.canonicalize().ok());
            let is_inside = existing.is_some_and(|path| roots.iter().any(|root| path.starts_with(root)));
            return Err(if is_inside { WorkspaceError::Missing } else { WorkspaceError::Outside });
        };
        let inside = roots.iter().find_map(|root| Some((root, resolved.strip_prefix(root).ok()?)));
        let Some((root, relative)) = inside else { return Err(WorkspaceError::Outside) };
        let private = self.private_paths();
        if private.contains(&resolved) {
            return Err(WorkspaceError::Outside);
        }
        if private.is_around(&resolved) && !self.is_default(&resolved) {
            return Err(WorkspaceError::HasPrivate);
        }
        // A directory that was swapped for a link since then is not opened.
        let opened = Workspace::open_below(root, relative).map_err(|_| WorkspaceError::Missing)?;
        Ok(opened.known_as(path).without(&private))
    }

    /// Opens the workspace of a context, and says what is to be stored about it. `stored` is the one of earlier turns.
    pub(crate) fn open(
        &self,
        stored: Option<&StoredWorkspace>,
        named: Option<&Path>,
    ) -> Result<(Workspace, StoredWorkspace), WorkspaceError> {
        match (stored, named) {
            (None, Some(path)) => {
                let opened = self.open_named(path)?;
                let stored = StoredWorkspace::Shared(opened.root().to_owned());
                Ok((opened, stored))
            }
            (Some(stored), Some(path)) => {
                let opened = self.open_named(path)?;
                match opened.root() == stored.path() {
                    true => Ok((opened, stored.clone())),
                    false => Err(WorkspaceError::Different),
                }
            }
            (Some(stored @ StoredWorkspace::Shared(path)), None) => {
                if let DefaultWorkspace::Shared(shared) = &self.default
                    && shared.canonicalize().is_ok_and(|shared| shared == *path)
                {
                    return Ok((self.open_shared(path)?, stored.clone()));
                }
                Ok((self.open_named(path)?, stored.clone()))
            }
            (Some(StoredWorkspace::Private(_)) | None, None) => self.open_default(stored),
        }
    }

    /// Opens the directory that all contexts share.
    fn open_shared(&self, path: &Path) -> Result<Workspace, WorkspaceError> {
        let opened = Workspace::open(path).map_err(WorkspaceError::Unusable)?;
        Ok(opened.without(&self.private_paths()))
    }

    fn open_default(
        &self,
        stored: Option<&StoredWorkspace>,
    ) -> Result<(Workspace, StoredWorkspace), WorkspaceError> {
        match &self.default {
            DefaultWorkspace::None => Err(WorkspaceError::NoDefault),
            DefaultWorkspace::Shared(path) => {
                let opened = self.open_shared(path)?;
                let stored = StoredWorkspace::Shared(opened.root().to_owned());
                Ok((opened, stored))
            }
            DefaultWorkspace::Private(data) | DefaultWorkspace::Temporary(data) => {
                create_private(data).map_err(WorkspaceError::Unusable)?;
                let data = data.canonicalize().map_err(WorkspaceError::Unusable)?;
                let name = stored.and_then(StoredWorkspace::private_name).unwrap_or_else(uuid::Uuid::new_v4);
                let name = PathBuf::from(name.to_string());
                let path = data.join(&name);
                create_private(&path).map_err(WorkspaceError::Unusable)?;
                let opened = Workspace::open_below(&data, &name).map_err(WorkspaceError::Unusable)?;
                Ok((opened, StoredWorkspace::Private(path)))
            }
        }
    }
}

/// The id of a directory that has private directories. It is made once, and stays with the directory.
pub(crate) fn home_id(data: &Path) -> io::Result<String> {
    let path = data.join(HOME);
    match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return Ok(read?.trim().to_owned()),
    }
    create_private(data)?;
    let new = data.join(format!("{HOME}-{}", uuid::Uuid::new_v4()));
    std::fs::write(&new, uuid::Uuid::new_v4().to_string())?;
    // Another server may make the id at the same time: the first one counts.
    let linked = std::fs::hard_link(&new, &path);
    std::fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => Ok(std::fs::read_to_string(&path)?.trim().to_owned()),
    }
}

/// The name of this machine.
pub(super) fn machine() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"));
    name.ok().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["allowed/project/deep", "allowed/other", "outside", "allowed2"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("allowed/file"), "x").unwrap();
        folder
    }

    #[test]
    fn a_caller_names_directories_inside_only() {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        symlink(at("outside"), at("allowed/out")).unwrap();
        symlink(at("allowed/project"), at("outside/in")).unwrap();
        let workspaces = Workspaces::default().allow([at("allowed")]);
        let open = |path: PathBuf| workspaces.open_named(&path).map(|opened| opened.root().to_owned());
        let project = at("allowed/project").canonicalize().unwrap();
        assert_eq!(open(at("allowed/project")).unwrap(), project);
        assert_eq!(open(at("allowed")).unwrap(), at("allowed").canonicalize().unwrap());
        // A link from outside is resolved first.
        assert_eq!(open(at("outside/in")).unwrap(), project);
        assert_eq!(open(at("allowed/other/../project")).unwrap(), project);
        for (path, rule) in [
            (at("allowed/out"), "it must be inside"),
            (at("outside"), "it must be inside"),
            (at("allowed2"), "it must be inside"),
            (at("allowed/../outside"), "it must be inside"),
            (at("outside/missing"), "it must be inside"),
            // The error is the same whether the directory outside exists or not.
            (at("allowed/../missing"), "it must be inside"),
            (at("allowed/project/../../outside"), "it must be inside"),
            (at("allowed/project/../../missing/deep"), "it must be inside"),
            (at("allowed/out/missing"), "it must be inside"),
            (at("allowed/missing/../../outside"), "it must be a directory that exists"),
            (at("allowed/missing/../../missing"), "it must be a directory that exists"),
            (at("ALLOWED/project"), "it must be inside"),
            (at("allowed/missing"), "it must be a directory that exists"),
            (at("allowed/file"), "it must be a directory that exists"),
            ("allowed/project".into(), "expected an absolute path"),
            (format!("{}\0", at("allowed").display()).into(), "expected a path without NUL"),
            (format!("/{}", "a/".repeat(3000)).into(), "expected a path without NUL"),
        ] {
            let error = open(path.clone()).unwrap_err().to_string();
            assert!(error.starts_with(rule), "{}: {error}", path.display());
            assert!(!error.contains(folder.path().to_str().unwrap()), "{error}");
        }
        let none = Workspaces::default().open_named(&at("allowed")).unwrap_err();
        assert!(matches!(none, WorkspaceError::NoneAllowed));
    }

    #[test]
    fn the_workspace_is_checked_at_every_use() {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        let workspaces = Workspaces::default().allow([at("allowed")]);
        let (_, stored) = workspaces.open(None, Some(&at("allowed/project"))).unwrap();
        assert!(workspaces.open(Some(&stored), None).is_ok());
        assert!(workspaces.open(Some(&stored), Some(&at("allowed/project"))).is_ok());
        let other = workspaces.open(Some(&stored), Some(&at("allowed/other"))).unwrap_err();
        assert!(matches!(other, WorkspaceError::Different));
        // The directory becomes a link that leads out.
        std::fs::rename(at("allowed/project"), at("allowed/moved")).unwrap();
        symlink(at("outside"), at("allowed/project")).unwrap();
        assert!(matches!(workspaces.open(Some(&stored), None).unwrap_err(), WorkspaceError::Outside));
        std::fs::remove_file(at("allowed/project")).unwrap();
        assert!(matches!(workspaces.open(Some(&stored), None).unwrap_err(), WorkspaceError::Missing));
    }

    #[test]
    fn a_private_directory_stays_with_its_context() {
        let folder = folder();
        let data = folder.path().join("data");
        let workspaces = Workspaces::default().default_to(DefaultWorkspace::Private(data.clone()));
        let (first, stored) = workspaces.open(None, None).unwrap();
        let (again, _) = workspaces.open(Some(&stored), None).unwrap();
        let (other, _) = workspaces.open(None, None).unwrap();
        assert_eq!(first.root(), again.root());
        assert_ne!(first.root(), other.root());
        assert!(first.root().starts_with(data.canonicalize().unwrap()));
        // A caller cannot name it.
        assert!(workspaces.open(Some(&stored), Some(first.root())).is_err());
    }

    #[test]
    fn a_private_directory_is_found_again_after_the_data_were_moved() {
        let folder = folder();
        let at = |name: &str| {
            Workspaces::default().default_to(DefaultWorkspace::Private(folder.path().join(name)))
        };
        let (first, stored) = at("data").open(None, None).unwrap();
        std::fs::write(first.root().join("file"), "").unwrap();
        std::fs::rename(folder.path().join("data"), folder.path().join("moved")).unwrap();
        let (again, moved) = at("moved").open(Some(&stored), None).unwrap();
        assert!(again.root().join("file").exists());
        assert_eq!(again.root().file_name(), first.root().file_name());
        assert!(moved.path().starts_with(folder.path().canonicalize().unwrap().join("moved")));
        // A name that this server has not made is not used.
        let other = StoredWorkspace::Private(folder.path().join("data/../../etc"));
        let (fresh, _) = at("moved").open(Some(&other), None).unwrap();
        assert!(fresh.root().file_name().unwrap().len() == 36);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_workspace_gives_no_access_to_files_of_the_server_that_are_inside() {
        let folder = folder();
        let at = |name: &str| folder.path().join("allowed").join(name);
        std::fs::create_dir(at("data")).unwrap();
        for name in ["settings.yml", "data/tasks.db", "project/plain"] {
            std::fs::write(at(name), "content").unwrap();
        }
        symlink("../settings.yml", at("project/link")).unwrap();
        symlink("../data", at("project/data")).unwrap();
        let mut workspaces = Workspaces::default()
            .allow([folder.path()])
            .default_to(DefaultWorkspace::Shared(folder.path().join("allowed")))
            .keep_private([at("data")]);
        workspaces.hidden = vec![at("settings.yml"), at("new.yml")];
        let named = workspaces.open_named(&folder.path().join("allowed")).unwrap();
        let (default, _) = workspaces.open(None, None).unwrap();
        for workspace in [named, default] {
            for path in [
                "settings.yml",
                "data/tasks.db",
                "project/link",
                "project/data/tasks.db",
                "data/new",
                "new.yml",
            ] {
                let rule = "files of the server are not part of the workspace";
                let written = workspace.write(Path::new(path), b"changed").unwrap_err().to_string();
                assert_eq!(written, rule, "{path}");
                let read = workspace.read(Path::new(path), 100).unwrap_err();
                assert!(read.to_string() == rule || read.is_not_found(), "{path}: {read}");
            }
            assert!(workspace.directory(Path::new("data")).is_err());
            assert_eq!(workspace.read(Path::new("project/plain"), 100).unwrap(), b"content");
            workspace.write(Path::new("project/plain"), b"content").unwrap();
        }
        assert_eq!(std::fs::read(at("data/tasks.db")).unwrap(), b"content");
        assert_eq!(std::fs::read(at("settings.yml")).unwrap(), b"content");
        let error = workspaces.open_named(folder.path()).unwrap_err();
        assert!(matches!(error, WorkspaceError::HasPrivate), "{error}");
    }

    #[test]
    fn a_directory_keeps_its_id() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let id = home_id(&one).unwrap();
        assert_eq!(home_id(&one).unwrap(), id);
        assert_ne!(home_id(&other).unwrap(), id);
        std::fs::rename(&one, folder.path().join("moved")).unwrap();
        assert_eq!(home_id(&folder.path().join("moved")).unwrap(), id);
        assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
    }

    #[test]
    fn metadata_name_a_directory_in_two_ways() {
        let message = |metadata: Value| Message {
            metadata: Some(JsonObject::new(&metadata).unwrap()),
            ..Message::user("m", "text")
        };
        let found = |metadata: Value, peer| named(&message(metadata), None, peer);
        let ours = found(json!({"attache": {"workspace": "/a"}}), PeerRules::Standard).unwrap().unwrap();
        assert_eq!(ours, ("/a".into(), "message.metadata.attache.workspace".into()));
        let theirs = found(json!({"iac_code": {"cwd": "/a"}}), PeerRules::Standard).unwrap().unwrap();
        assert_eq!(theirs.0, Path::new("/a"));
        assert!(found(json!({"iac_code": {}}), PeerRules::Standard).unwrap().is_none());
        assert!(found(json!({"iac_code": {"cwd": 5}}), PeerRules::Standard).is_err());
        assert!(found(json!({"iac_code": {"cwd": 5}}), PeerRules::IacCode).unwrap().is_none());
        let both = json!({"iac_code": {"cwd": "/a"}, "attache": {"workspace": "/b"}});
        assert!(matches!(found(both, PeerRules::Standard), Err((WorkspaceError::TwoNames, _))));
        let request = JsonObject::new(&json!({"attache": {"workspace": "/r"}})).unwrap();
        let of_request = named(&Message::user("m", "t"), Some(&request), PeerRules::Standard).unwrap();
        assert_eq!(of_request.unwrap().1, "metadata.attache.workspace");
    }
}
