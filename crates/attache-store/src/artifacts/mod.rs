//! The content of artifacts in a directory.
//!
//! ```text
//! tasks/TASK/owner.json      whose task it is
//! tasks/TASK/ID/NAME         the content, under the name of the file
//! tasks/TASK/ID.expired      the content was removed because it was too old
//! content/HH/HASH            a second name of the same file, by which equal content is found
//! temporary/                 content that is being written, and folders that are being removed
//! lock, store                which server and which store use the directory
//! ```
//!
//! Content that several tasks have is one file with several names (hard links). The file system counts the names, so there is no index that
//! could contradict the files: content is there as long as a task has a name for it. Content is written to a temporary file, flushed to
//! the disk, and then named, so a name never leads to incomplete content. A crash between two steps leaves at most a temporary file, a name
//! in `content` that no task shares, or the folder of a task that does not exist. A sweep removes all three.
//!
//! Folders and files are for their owner only.

mod layout;
mod maintenance;
mod read;
mod sweep;
mod write;

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use attache_core::{
    ArtifactError, ArtifactStore, ArtifactWriter, BoxFuture, ContentId, OpenedContent, Store, Swept,
};
use attache_files::permissions;
use attache_protocol::TaskId;
use parking_lot::{Mutex, RwLock};

use self::layout::Layout;
pub use self::maintenance::{ArtifactBackup, ArtifactMaintenance, ArtifactReport, ForgottenContent};
use self::write::FileWriter;

/// How long content may be without its task, and a temporary file without a change, unless set: 1 hour. A turn that stores content
/// writes its event soon after that.
const GRACE: Duration = Duration::from_secs(60 * 60);

/// The options of a [`DirectoryStore`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DirectoryOptions {
    /// The largest content, in bytes. 1 GiB unless set.
    pub max_size: u64,
    /// The largest size of all content together, in bytes. 10 GiB unless set.
    pub max_total: u64,
    /// How long content is kept after its task has got its last content. As long as the task unless set.
    pub keep: Option<Duration>,
    /// Whether servers on several machines use the directory together.
    pub shared: bool,
    /// The name of the store of tasks that the directory belongs to. A directory with content of another store is refused.
    pub store_name: Option<String>,
    /// How long content may be without its task before a sweep removes it.
    pub grace: Duration,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        let gib = 1024 * 1024 * 1024;
        Self { max_size: gib, max_total: 10 * gib, keep: None, shared: false, store_name: None, grace: GRACE }
    }
}

macro_rules! setters {
    ($($field:ident: $type:ty),+ $(,)?) => {
        impl DirectoryOptions {
            $(
                #[doc = concat!("Sets `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}

setters!(
    max_size: u64,
    max_total: u64,
    keep: Option<Duration>,
    shared: bool,
    store_name: Option<String>,
    grace: Duration,
);

/// Why a directory cannot be used for artifacts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryOpenError {
    /// The directory cannot be created or read.
    #[error("the directory for artifacts `{}` cannot be used: {error}", path.display())]
    Io {
        /// The directory, or a file in it.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// Another server uses it.
    #[error("the directory for artifacts `{}` is in use by another server", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It has the content of another store.
    #[error(
        "the directory for artifacts `{}` belongs to the store `{found}`, and this is the store `{expected}`: name another directory, or \
         delete the file `{}` if that store was moved here", path.display(), path.join(layout::STORE).display()
    )]
    OtherStore {
        /// The directory.
        path: PathBuf,
        /// The name of the store that it belongs to.
        found: String,
        /// The name of the store that is to be used.
        expected: String,
    },
}

/// Stores the content of artifacts in a directory. Cheap to clone: all clones are one store.
#[derive(Debug, Clone)]
pub struct DirectoryStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: Layout,
    options: DirectoryOptions,
    /// The bytes of stored content, as far as this process knows.
    stored: AtomicU64,
    /// The bytes of content that is being written.
    pending: AtomicU64,
    /// The names of temporary files that this process writes.
    active: Mutex<HashSet<String>>,
    /// Held while content gets its name, and exclusively while a folder is removed.
    naming: RwLock<()>,
    /// Called before each step. Tests let a step fail.
    steps: Arc<dyn Steps>,
    /// Held as long as the store is open. `None` for a shared directory.
    _lock: Option<File>,
}

/// The steps that change the directory, for tests that stop at one of them.
#[doc(hidden)]
pub trait Steps: std::fmt::Debug + Send + Sync {
    /// Called before a step. An error stops the call as a crash would.
    fn before(&self, step: &'static str) -> io::Result<()>;

    /// Whether a step has failed. Nothing is cleaned up then.
    fn has_crashed(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct EveryStep;

impl Steps for EveryStep {
    fn before(&self, _: &'static str) -> io::Result<()> {
        Ok(())
    }
}

impl DirectoryStore {
    /// Opens a directory, and creates it if it does not exist.
    ///
    /// It blocks the calling thread while it adds up the sizes of stored content.
    pub fn open(path: impl Into<PathBuf>, options: DirectoryOptions) -> Result<Self, DirectoryOpenError> {
        Self::open_with(path.into(), options, Arc::new(EveryStep))
    }

    /// The same, for tests that stop at a step.
    #[doc(hidden)]
    pub fn open_with(
        path: PathBuf,
        options: DirectoryOptions,
        steps: Arc<dyn Steps>,
    ) -> Result<Self, DirectoryOpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| DirectoryOpenError::Io { path, error }
        };
        permissions::create_owner_only_folder(&path).map_err(failed(&path))?;
        // Content is found again after the process has changed its working directory, and `file:` URLs need the whole path.
        let path = fs::canonicalize(&path).map_err(failed(&path))?;
        let layout = Layout::new(path.clone());
        let lock = match options.shared {
            true => None,
            false => Some(lock(&layout)?),
        };
        if let Some(name) = options.store_name.as_ref().filter(|_| !options.shared) {
            claim(&layout, name)?;
        }
        for folder in layout.folders() {
            permissions::create_owner_only_folder(&folder).map_err(failed(&folder))?;
        }
        let stored = layout.count().map_err(failed(&path))?;
        Ok(Self(Arc::new(Inner {
            layout,
            options,
            stored: stored.bytes.into(),
            pending: AtomicU64::new(0),
            active: Mutex::default(),
            naming: RwLock::default(),
            steps,
            _lock: lock,
        })))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.0.layout.root()
    }

    /// The bytes of all stored content. In a shared directory, content of other servers is counted at the next sweep.
    pub fn stored_bytes(&self) -> u64 {
        self.0.stored.load(Ordering::Relaxed)
    }
}

/// Takes the lock of a directory, which is held until the file is closed.
fn lock(layout: &Layout) -> Result<File, DirectoryOpenError> {
    let path = layout.root().join(layout::LOCK);
    let mut options = OpenOptions::new();
    permissions::owner_only_file(&mut options).create(true).append(true);
    let file = options.open(&path).map_err(|error| DirectoryOpenError::Io { path: path.clone(), error })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DirectoryOpenError::InUse { path: layout.root().to_owned() }),
        Err(TryLockError::Error(error)) => Err(DirectoryOpenError::Io { path, error }),
    }
}

/// Notes which store a directory belongs to, or checks it.
fn claim(layout: &Layout, name: &str) -> Result<(), DirectoryOpenError> {
    let path = layout.root().join(layout::STORE);
    let found = match fs::read_to_string(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return attache_files::write(&path, name.as_bytes())
                .map_err(|error| DirectoryOpenError::Io { path, error });
        }
        Err(error) => return Err(DirectoryOpenError::Io { path, error }),
    };
    match found.trim_end() {
        found if found == name => Ok(()),
        found => Err(DirectoryOpenError::OtherStore {
            path: layout.root().to_owned(),
            found: found.to_owned(),
            expected: name.to_owned(),
        }),
    }
}

/// Runs work that blocks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArtifactError> + Send + 'static,
) -> Result<T, ArtifactError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(ArtifactError::Failed(format!("the work on an artifact was stopped: {error}"))),
    }
}

impl ArtifactStore for DirectoryStore {
    fn create(&self) -> BoxFuture<'_, Result<Box<dyn ArtifactWriter>, ArtifactError>> {
        let inner = self.0.clone();
        Box::pin(async move {
            let writer = blocking(move || FileWriter::new(inner)).await?;
            Ok(Box::new(writer) as Box<dyn ArtifactWriter>)
        })
    }

    fn open<'a>(
        &'a self,
        task: &'a TaskId,
        id: &'a ContentId,
        filename: Option<&'a str>,
    ) -> BoxFuture<'a, Result<OpenedContent, ArtifactError>> {
        let (file, expired) = (self.0.layout.file(task, id, filename), self.0.layout.expired(task, id));
        Box::pin(blocking(move || read::open(&file, &expired)))
    }

    fn path(&self, task: &TaskId, id: &ContentId, filename: Option<&str>) -> Option<PathBuf> {
        Some(self.0.layout.file(task, id, filename))
    }

    fn sweep<'a>(&'a self, tasks: &'a dyn Store) -> BoxFuture<'a, Result<Swept, ArtifactError>> {
        Box::pin(sweep::sweep(self.0.clone(), tasks))
    }

    fn is_shared(&self) -> bool {
        self.0.options.shared
    }
}
