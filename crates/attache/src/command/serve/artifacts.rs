//! Where `attache serve` keeps the content of artifacts.
//!
//! By default it is next to the store file, so that two stores never share a directory. With a store in memory it is a temporary folder that
//! is removed at the end.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use attache::core::{ArtifactUrls, Artifacts, Store, private_temporary_directory};
use attache::store::{DirectoryOptions, DirectoryStore, StoreUrl};
use attache_files::permissions;

use super::Serve;
use crate::command::Failure;
use crate::config::{ArtifactArgs, ArtifactDirectoryArgs, ArtifactUrlKind, StoreArgs};

/// The prefix of temporary folders.
const PREFIX: &str = "attache-artifacts-";

/// The file in a temporary folder whose lock says that a server uses the folder.
const LOCK: &str = "lock";

/// A server that has made the file takes its lock within this time. Only then does a free lock mean that the server has ended.
const TIME_TO_LOCK: Duration = Duration::from_secs(60);

/// The temporary folder of a server, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next server that uses a temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl ArtifactDirectoryArgs {
    /// The directory for the content of artifacts. `None` for a store in memory, or one that is not a file.
    pub(crate) fn path(&self, store: &StoreUrl) -> Option<PathBuf> {
        if let Some(path) = &self.artifacts {
            return Some(path.clone());
        }
        let mut beside = store.sqlite_path()?.as_os_str().to_owned();
        beside.push("-artifacts");
        Some(beside.into())
    }
}

/// The name by which a directory remembers its store: the path of its file, or nothing for a store in memory.
fn store_name(store: &StoreUrl) -> Option<String> {
    let path = store.sqlite_path()?;
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    Some(StoreUrl::sqlite(path).to_string())
}

impl Serve {
    /// Whether the content of artifacts is stored. With a shared store this needs a directory that all servers share.
    pub(super) fn stores_artifacts(&self, store: &dyn Store) -> bool {
        !self.artifacts.no_artifacts && (self.artifact_directory.artifacts.is_some() || !store.is_shared())
    }

    /// Opens the store of artifacts, unless they are switched off.
    pub(super) fn open_artifacts(
        &self,
        store: &dyn Store,
        temporary: &OnceLock<TemporaryFolder>,
    ) -> Result<Option<Artifacts>, Failure> {
        if self.artifacts.no_artifacts {
            return Ok(None);
        }
        if !self.stores_artifacts(store) {
            tracing::warn!(
                "the store is shared by several servers, and `artifacts.directory` is not set: all content of artifacts is kept in the store"
            );
            return Ok(None);
        }
        if store.is_shared() && !self.artifacts.artifacts_shared {
            return Err(Failure::usage(
                "the store is shared by several servers, and the directory for artifacts is not: a client would not find an artifact at another server",
            )
            .hint("name a directory that all servers share in `artifacts.directory`, and set `artifacts.shared`"));
        }
        let url = self.store.url()?;
        let path = match url.is_memory() {
            false => self.artifact_directory.path(&url),
            true => None,
        };
        let path = match path {
            Some(path) => path,
            None => {
                let parent = self.artifact_directory.artifacts.clone();
                let parent = parent.map_or_else(private_temporary_directory, Ok);
                let folder = parent.and_then(|parent| temporary_folder(&parent)).map_err(|error| {
                    let parent = self.artifact_directory.artifacts.clone().unwrap_or_else(std::env::temp_dir);
                    Failure::new(format!(
                        "no folder for artifacts can be made in `{}`: {error}",
                        parent.display()
                    ))
                    .hint("name another place with `--artifacts PATH`, or store none with `--no-artifacts`")
                })?;
                let path = folder.0.clone();
                let _ = temporary.set(folder);
                path
            }
        };
        let options = self.artifacts.options(store_name(&url).filter(|_| !self.artifacts.artifacts_shared));
        let directory = DirectoryStore::open(path, options).map_err(|error| {
            Failure::new(error)
                .hint("name another directory with `--artifacts PATH`, or store none with `--no-artifacts`")
        })?;
        tracing::debug!(
            directory = %directory.path().display(),
            bytes = directory.stored_bytes(),
            "the content of artifacts is stored"
        );
        let urls = match self.artifacts.artifacts_urls {
            ArtifactUrlKind::Http => ArtifactUrls::Http,
            ArtifactUrlKind::File => ArtifactUrls::File,
        };
        let inline_limit = self.artifacts.artifacts_inline_limit.0;
        Ok(Some(Artifacts::new(directory).inline_limit(inline_limit).urls(urls)))
    }
}

impl ArtifactArgs {
    fn options(&self, store_name: Option<String>) -> DirectoryOptions {
        DirectoryOptions::default()
            .max_size(self.artifacts_max_size.0)
            .max_total(self.artifacts_max_total.0)
            .keep(self.artifacts_keep.map(|keep| keep.0))
            .shared(self.artifacts_shared)
            .store_name(store_name)
    }
}

impl StoreArgs {
    /// The directory for the content of artifacts of a store file.
    pub(crate) fn artifacts(&self, directory: &ArtifactDirectoryArgs) -> Result<Option<PathBuf>, Failure> {
        Ok(directory.path(&self.url()?))
    }
}

/// Makes a folder for the lifetime of this process. Removes the folders of servers that were killed.
fn temporary_folder(parent: &Path) -> io::Result<TemporaryFolder> {
    permissions::create_owner_only_folder(parent)?;
    let mut random = [0; 8];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| io::Error::other("there is no randomness"))?;
    let name = format!("{PREFIX}{}-{:016x}", std::process::id(), u64::from_ne_bytes(random));
    let own = parent.join(name);
    // Not with its parents: a folder of this name that exists is not ours.
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&own)?;
    let folder = TemporaryFolder(own);
    remove_abandoned(parent, &folder.0, SystemTime::now());
    Ok(folder)
}

/// Removes the temporary folders of servers that do not run any more. Folders of other users are left alone.
fn remove_abandoned(parent: &Path, own: &Path, now: SystemTime) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if !is_ours || path == own || !is_same_owner(&path, own) {
            continue;
        }
        // A server holds the lock of its folder. One that is starting is about to make the file, and then to lock it.
        if let Ok(lock) = File::open(path.join(LOCK))
            && is_older_than(&lock, TIME_TO_LOCK, now)
            && lock.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn is_older_than(file: &File, age: Duration, now: SystemTime) -> bool {
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|passed| passed > age))
}

/// Whether two folders belong to the same user. A link is not a folder.
fn is_same_owner(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (fs::symlink_metadata(one), fs::symlink_metadata(other)) else { return false };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        one.is_dir() && other.is_dir() && one.uid() == other.uid()
    }
    #[cfg(not(unix))]
    {
        one.is_dir() && other.is_dir()
    }
}

/// The place of the temporary folder of a server, until it is known.
pub(super) type TemporaryPlace = Arc<OnceLock<TemporaryFolder>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_server_that_was_killed_is_removed_and_others_are_not() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = parent.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(LOCK), "").unwrap();
            folder
        };
        let own = temporary_folder(parent.path()).unwrap();
        let (killed, running) = (make("killed"), make("running"));
        let held = File::open(running.join(LOCK)).unwrap();
        held.try_lock().unwrap();
        let now = SystemTime::now() + TIME_TO_LOCK * 2;
        remove_abandoned(parent.path(), &own.0, now);
        assert_eq!([killed.exists(), running.exists(), own.0.exists()], [false, true, true]);
        let path = own.0.clone();
        drop(own);
        assert!(!path.exists());
    }

    #[test]
    fn the_folder_of_a_server_that_is_about_to_lock_it_stays() {
        let parent = tempfile::tempdir().unwrap();
        let starting = temporary_folder(parent.path()).unwrap();
        fs::write(starting.0.join(LOCK), "").unwrap();
        let other = temporary_folder(parent.path()).unwrap();
        assert_eq!([starting.0.exists(), other.0.exists()], [true, true]);
    }

    #[test]
    fn the_default_directory_is_beside_the_store_file() {
        let unset = ArtifactDirectoryArgs { artifacts: None };
        let url = StoreUrl::sqlite("/var/lib/attache/tasks.db");
        assert_eq!(unset.path(&url), Some("/var/lib/attache/tasks.db-artifacts".into()));
        assert_eq!(unset.path(&StoreUrl::memory()), None);
        let set = ArtifactDirectoryArgs { artifacts: Some("/srv/artifacts".into()) };
        assert_eq!(set.path(&url), Some("/srv/artifacts".into()));
    }
}
