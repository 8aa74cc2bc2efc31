//! Removing content: of tasks that do not exist any more, of content that is too old, and of what interrupted calls left over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use attache_core::{ArtifactError, Owner, Store, Swept};
use attache_files::identity::link_count;
use attache_files::{durability, permissions};
use attache_protocol::TaskId;

use super::layout::{self, Layout};
use super::write::unique_name;
use super::{Inner, blocking};

/// The prefix of folders that are being removed.
const REMOVED: &str = "removed-";

/// The folder of a task that may have to be removed.
pub(super) struct Found {
    folder: PathBuf,
    /// `None` if the folder does not say whose task it is.
    task: Option<(Owner, TaskId)>,
    is_left_over: bool,
    is_old: bool,
}

pub(super) async fn sweep(inner: Arc<Inner>, tasks: &dyn Store) -> Result<Swept, ArtifactError> {
    let before = inner.stored.load(Ordering::Relaxed);
    let found = {
        let inner = inner.clone();
        blocking(move || {
            inner.find_candidates().map_err(|error| ArtifactError::io("reading artifacts", error))
        })
        .await?
    };
    let (mut remove, mut expire) = (Vec::new(), Vec::new());
    for candidate in found {
        let exists = match &candidate.task {
            Some((owner, task)) => tasks.contains(owner, task).await?,
            None => false,
        };
        if !exists && candidate.is_left_over {
            remove.push(candidate.folder);
        } else if candidate.is_old {
            expire.push(candidate.folder);
        }
    }
    blocking(move || {
        let removed = inner.remove_all(&remove, &expire);
        let (removed, expired) = removed.map_err(|error| ArtifactError::io("removing artifacts", error))?;
        let mut swept = Swept::default();
        swept.tasks = removed;
        swept.expired = expired;
        swept.bytes = before.saturating_sub(inner.stored.load(Ordering::Relaxed));
        Ok(swept)
    })
    .await
}

/// How long ago something was changed. Zero if the clock was set back.
fn age(path: &Path, now: SystemTime) -> io::Result<Duration> {
    let changed = fs::symlink_metadata(path)?.modified()?;
    Ok(now.duration_since(changed).unwrap_or_default())
}

/// `None` for something that does not exist any more.
fn existing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Inner {
    /// The folders of tasks that are old enough to be removed.
    fn find_candidates(&self) -> io::Result<Vec<Found>> {
        let now = SystemTime::now();
        let mut found = Vec::new();
        for folder in self.layout.task_folders()? {
            let Some(age) = existing(age(&folder, now))? else { continue };
            let is_left_over = age >= self.options.grace;
            let is_old = self.options.keep.is_some_and(|keep| age >= keep)
                && !existing(layout::contents_of(&folder))?.unwrap_or_default().is_empty();
            if is_left_over || is_old {
                let task = layout::read_owner(&folder).map(|owner| (owner.owner(), owner.task()));
                found.push(Found { folder, task, is_left_over, is_old });
            }
        }
        Ok(found)
    }

    /// Removes the folders of tasks, and the content of others. Then removes what was left over, and counts what is stored. Returns the
    /// numbers of tasks.
    pub(super) fn remove_all(&self, remove: &[PathBuf], expire: &[PathBuf]) -> io::Result<(usize, usize)> {
        let (mut removed, mut expired) = (0, 0);
        for folder in remove {
            removed += usize::from(self.remove_folder(folder, self.options.grace)?);
        }
        for task in expire {
            let keep = self.options.keep.unwrap_or(Duration::MAX);
            let is_old = existing(age(task, SystemTime::now()))?.is_some_and(|age| age >= keep);
            let mut any = false;
            for content in existing(layout::contents_of(task))?.unwrap_or_default() {
                if is_old {
                    any |= self.expire(&content)?;
                }
            }
            expired += usize::from(any);
        }
        self.remove_temporary()?;
        self.remove_unshared()?;
        self.stored.store(self.layout.count()?.bytes, Ordering::Relaxed);
        Ok((removed, expired))
    }

    /// Removes a folder that has not been changed for some time. Returns whether it did.
    fn remove_folder(&self, folder: &Path, unchanged_for: Duration) -> io::Result<bool> {
        let aside = self.layout.temporary().join(format!("{REMOVED}{}", unique_name()));
        {
            // Content that is named now would be removed with the folder.
            let _naming = self.naming.write();
            match existing(age(folder, SystemTime::now()))? {
                Some(age) if age >= unchanged_for => {}
                Some(_) | None => return Ok(false),
            }
            self.steps.before("set the folder aside")?;
            // First out of sight as a whole, so that a crash does not leave half of it.
            if existing(fs::rename(folder, &aside))?.is_none() {
                return Ok(false);
            }
        }
        // Another server that shares the directory could have used the folder in between.
        if self.options.shared
            && existing(age(&aside, SystemTime::now()))?.is_some_and(|age| age < unchanged_for)
            && fs::rename(&aside, folder).is_ok()
        {
            return Ok(false);
        }
        durability::sync_folder_of(folder)?;
        self.steps.before("remove the folder")?;
        existing(fs::remove_dir_all(&aside))?;
        Ok(true)
    }

    /// Removes content that is too old, and leaves a mark.
    fn expire(&self, content: &Path) -> io::Result<bool> {
        self.steps.before("mark removed content")?;
        attache_files::write(&layout::expired(content), b"")?;
        self.remove_folder(content, Duration::ZERO)
    }

    /// Removes temporary files that no process writes any more, and folders whose removal was interrupted.
    fn remove_temporary(&self) -> io::Result<()> {
        let temporary = self.layout.temporary();
        for folder in layout::folders_in(&temporary)? {
            self.steps.before("remove a folder that was set aside")?;
            existing(fs::remove_dir_all(&folder))?;
        }
        let now = SystemTime::now();
        for (file, metadata) in layout::files_in(&temporary)? {
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let age = now.duration_since(metadata.modified()?).unwrap_or_default();
            if age >= self.options.grace && !self.active.lock().contains(&name) {
                self.steps.before("remove a temporary file")?;
                existing(fs::remove_file(&file))?;
            }
        }
        Ok(())
    }

    /// Removes the shared names of content that no task has any more.
    fn remove_unshared(&self) -> io::Result<()> {
        for folder in layout::folders_in(&self.layout.pool())? {
            for (file, metadata) in layout::files_in(&folder)? {
                // A task that shares the content right now keeps it: its own name counts.
                if link_count(&metadata) == Some(1) {
                    self.steps.before("remove a shared name")?;
                    existing(fs::remove_file(&file))?;
                }
            }
        }
        Ok(())
    }
}

/// Makes sure that the folders of a layout exist.
pub(super) fn create_folders(layout: &Layout) -> io::Result<()> {
    layout.folders().iter().try_for_each(|folder| permissions::create_owner_only_folder(folder))
}
