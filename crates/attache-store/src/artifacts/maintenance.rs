//! Maintenance of the directory of artifacts beside a store file: check, backup, and removal for one owner.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use attache_core::{ContentHash, ContentId, Swept};
use attache_files::identity::FileIdentity;
use attache_files::{durability, permissions};
use attache_protocol::TaskId;
use aws_lc_rs::digest;

use super::layout::{self, Layout};
use super::sweep::create_folders;
use super::{DirectoryOpenError, DirectoryOptions, DirectoryStore, EveryStep};
use crate::{ForgetOptions, Maintenance, MaintenanceError};

/// The maximum number of problems in a report.
const MAX_PROBLEMS: usize = 100;

/// A directory of artifacts that is open for maintenance. A server can use it at the same time.
#[derive(Debug)]
pub struct ArtifactMaintenance {
    layout: Layout,
}

/// The result of a check of artifacts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArtifactReport {
    /// The number of references to content in tasks.
    pub references: u64,
    /// The number of files with content. Content that several tasks have counts once.
    pub files: u64,
    /// The bytes in these files.
    pub bytes: u64,
    /// The number of references to content that was removed because it was too old.
    pub expired: u64,
    /// The number of folders of tasks that do not exist any more. The next sweep of a server removes them.
    pub left_over: u64,
    /// A sentence for each problem: content that is missing or damaged. Empty if all is sound.
    pub problems: Vec<String>,
}

/// How much content was removed, or would be removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForgottenContent {
    /// The number of tasks with content.
    pub tasks: usize,
    /// The number of files.
    pub files: usize,
}

/// The result of a backup of artifacts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArtifactBackup {
    /// The number of files that were copied.
    pub files: u64,
    /// The bytes in these files.
    pub bytes: u64,
}

impl ArtifactMaintenance {
    /// Opens a directory. `None` if it does not exist.
    pub fn open(path: impl Into<PathBuf>) -> Option<Self> {
        let path = path.into();
        path.is_dir().then(|| Self { layout: Layout::new(path) })
    }

    /// Checks that the content of every task is there, and reads all of it to compare the hashes.
    pub fn check(&self, store: &Maintenance) -> Result<ArtifactReport, MaintenanceError> {
        let mut report = ArtifactReport::default();
        let counted = self.layout.count()?;
        (report.files, report.bytes) = (counted.files, counted.bytes);
        let mut verified = HashMap::new();
        let mut folders = HashSet::new();
        store.for_each_content(|task, id, filename| {
            report.references += 1;
            folders.insert(self.layout.task(task));
            let problem = match self.check_content(task, id, filename, &mut verified) {
                Ok(Checked::Sound) => return,
                Ok(Checked::Expired) => {
                    report.expired += 1;
                    return;
                }
                Ok(Checked::Missing) => "is missing".to_owned(),
                Ok(Checked::Other(hash)) => format!("is damaged: its hash is {hash}"),
                Err(error) => format!("cannot be read: {error}"),
            };
            if report.problems.len() < MAX_PROBLEMS {
                report.problems.push(format!("task `{task}`: the content {id} {problem}"));
            }
        })?;
        for folder in self.layout.task_folders()? {
            let exists = folders.contains(&folder)
                || match layout::read_owner(&folder) {
                    Some(owner) => store.contains(&owner.task())?,
                    None => false,
                };
            report.left_over += u64::from(!exists);
        }
        Ok(report)
    }

    fn check_content(
        &self,
        task: &TaskId,
        id: &ContentId,
        filename: Option<&str>,
        verified: &mut HashMap<FileIdentity, ContentHash>,
    ) -> io::Result<Checked> {
        let mut file = match File::open(self.layout.file(task, id, filename)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(match self.layout.expired(task, id).exists() {
                    true => Checked::Expired,
                    false => Checked::Missing,
                });
            }
            Err(error) => return Err(error),
        };
        let identity = FileIdentity::of(&file.metadata()?);
        let known = identity.and_then(|identity| verified.get(&identity).copied());
        let hash = match known {
            Some(hash) => hash,
            None => hash_of(&mut file)?,
        };
        verified.extend(identity.map(|identity| (identity, hash)));
        Ok(if hash == id.hash() { Checked::Sound } else { Checked::Other(hash) })
    }

    /// Removes the content of a caller. No server may use the directory.
    pub fn forget(&self, options: &ForgetOptions) -> io::Result<ForgottenContent> {
        let mut forgotten = ForgottenContent::default();
        for folder in self.layout.task_folders()? {
            let Some(owner) = layout::read_owner(&folder).map(|owner| owner.owner()) else { continue };
            let tenant = options.tenant.as_deref();
            if owner.principal != options.principal || tenant.is_some() && owner.tenant.as_deref() != tenant {
                continue;
            }
            for content in layout::contents_of(&folder)? {
                forgotten.files += layout::files_in(&content)?.len();
            }
            forgotten.tasks += 1;
            if !options.dry_run {
                fs::remove_dir_all(&folder)?;
            }
        }
        if !options.dry_run && forgotten.tasks > 0 {
            durability::sync_folder_of(&self.layout.tasks().join("any"))?;
            let store = self.open_store().map_err(io::Error::other)?;
            store.0.remove_all(&[], &[])?;
        }
        Ok(forgotten)
    }

    /// Removes the content of tasks that do not exist any more, at once. No server may use the directory.
    pub fn remove_left_over(&self, tasks: &Maintenance) -> Result<Swept, MaintenanceError> {
        let store = self.open_store().map_err(|error| MaintenanceError::Store(error.to_string()))?;
        let before = store.stored_bytes();
        let mut remove = Vec::new();
        for folder in self.layout.task_folders()? {
            let exists = match layout::read_owner(&folder) {
                Some(owner) => tasks.contains(&owner.task())?,
                None => false,
            };
            remove.extend((!exists).then_some(folder));
        }
        let mut swept = Swept::default();
        (swept.tasks, _) = store.0.remove_all(&remove, &[])?;
        swept.bytes = before.saturating_sub(store.stored_bytes());
        Ok(swept)
    }

    /// The directory as a store that nothing else uses, and that removes everything at once.
    fn open_store(&self) -> Result<DirectoryStore, DirectoryOpenError> {
        let options = DirectoryOptions::default().grace(Duration::ZERO);
        DirectoryStore::open_with(self.layout.root().to_owned(), options, Arc::new(EveryStep))
    }

    /// Copies the content of all tasks into a new directory. A server can write meanwhile. To have the content of every task in a backup
    /// of the store, copy the store first.
    pub fn backup(
        &self,
        to: &Path,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<ArtifactBackup, MaintenanceError> {
        let failed = |error| MaintenanceError::Backup { path: to.to_owned(), error };
        if fs::symlink_metadata(to).is_ok() {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let total = self.layout.count()?.bytes;
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".{}.partial", std::process::id()));
        let partial = PathBuf::from(name);
        let copied = self.copy_to(&Layout::new(partial.clone()), &mut |bytes| progress(bytes, total));
        let renamed = copied.and_then(|copied| {
            fs::rename(&partial, to)?;
            durability::sync_folder_of(to)?;
            Ok(copied)
        });
        if renamed.is_err() {
            // The incomplete copy is of no use. An error of the removal would hide the error of the copy.
            let _ = fs::remove_dir_all(&partial);
        }
        renamed.map_err(failed)
    }

    fn copy_to(&self, to: &Layout, progress: &mut dyn FnMut(u64)) -> io::Result<ArtifactBackup> {
        create_folders(to)?;
        let mut copied = ArtifactBackup::default();
        let mut known: HashMap<FileIdentity, PathBuf> = HashMap::new();
        for task in self.layout.task_folders()? {
            let name = task.file_name().unwrap_or_default();
            let target = to.tasks().join(name);
            permissions::create_owner_only_folder(&target)?;
            // Files can be removed while they are copied, with their task.
            for (file, _) in layout::files_in(&task)? {
                copy_file(&file, &target.join(file.file_name().unwrap_or_default()))?;
            }
            for content in layout::contents_of(&task)? {
                let target = target.join(content.file_name().unwrap_or_default());
                permissions::create_owner_only_folder(&target)?;
                for (file, metadata) in layout::files_in(&content)? {
                    let target = target.join(file.file_name().unwrap_or_default());
                    let identity = FileIdentity::of(&metadata);
                    let same = identity.and_then(|identity| known.get(&identity));
                    if same.is_some_and(|same| fs::hard_link(same, &target).is_ok()) {
                        continue;
                    }
                    if copy_file(&file, &target)? {
                        copied.files += 1;
                        copied.bytes += metadata.len();
                        progress(copied.bytes);
                        known.extend(identity.map(|identity| (identity, target)));
                    }
                }
                durability::sync_folder_of(&target.join("any"))?;
            }
            durability::sync_folder_of(&target.join("any"))?;
        }
        durability::sync_folder_of(&to.tasks().join("any"))?;
        Ok(copied)
    }
}

/// The state of content that a task refers to.
enum Checked {
    Sound,
    Expired,
    Missing,
    Other(ContentHash),
}

fn hash_of(file: &mut File) -> io::Result<ContentHash> {
    let mut digest = digest::Context::new(&digest::SHA256);
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match file.read(&mut chunk)? {
            0 => break,
            count => digest.update(&chunk[..count]),
        }
    }
    let mut hash = ContentHash([0; 32]);
    hash.0.copy_from_slice(digest.finish().as_ref());
    Ok(hash)
}

/// Copies a file, durably and for its owner only. Returns `false` if it does not exist any more.
fn copy_file(from: &Path, to: &Path) -> io::Result<bool> {
    let mut source = match File::open(from) {
        Ok(source) => source,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut options = fs::OpenOptions::new();
    let mut target = permissions::owner_only_file(&mut options).write(true).create_new(true).open(to)?;
    io::copy(&mut source, &mut target)?;
    target.sync_all()?;
    Ok(true)
}
