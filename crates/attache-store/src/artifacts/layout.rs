//! The paths in the directory of artifacts.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use attache_core::{ContentHash, ContentId, Owner, Principal, safe_file_name};
use attache_files::identity::FileIdentity;
use attache_protocol::TaskId;
use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

pub(super) const LOCK: &str = "lock";
pub(super) const STORE: &str = "store";
const OWNER: &str = "owner.json";
const EXPIRED: &str = ".expired";

/// The name of content without a name.
const UNNAMED: &str = "artifact";

/// The longest id of a task that is the name of its folder.
const MAX_PLAIN: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct Layout {
    root: PathBuf,
}

/// The owner of a task, as a file in its folder says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TaskOwner {
    task: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
}

impl TaskOwner {
    pub(super) fn new(owner: &Owner, task: &TaskId) -> Self {
        Self {
            task: task.as_str().to_owned(),
            agent: owner.agent.as_deref().map(str::to_owned),
            tenant: owner.tenant.as_deref().map(str::to_owned),
            principal: owner.principal.name().map(str::to_owned),
        }
    }

    pub(super) fn task(&self) -> TaskId {
        self.task.as_str().into()
    }

    pub(super) fn owner(&self) -> Owner {
        Owner {
            agent: self.agent.as_deref().map(Into::into),
            tenant: self.tenant.as_deref().map(Into::into),
            principal: self.principal.as_deref().map_or(Principal::Anonymous, Principal::named),
        }
    }
}

/// The number and the bytes of distinct files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Layout {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn tasks(&self) -> PathBuf {
        self.root.join("tasks")
    }

    pub(super) fn temporary(&self) -> PathBuf {
        self.root.join("temporary")
    }

    pub(super) fn pool(&self) -> PathBuf {
        self.root.join("content")
    }

    pub(super) fn folders(&self) -> [PathBuf; 3] {
        [self.tasks(), self.temporary(), self.pool()]
    }

    pub(super) fn task(&self, task: &TaskId) -> PathBuf {
        self.tasks().join(stem(task.as_str()))
    }

    pub(super) fn owner(task: &Path) -> PathBuf {
        task.join(OWNER)
    }

    /// The folder of one content of a task.
    pub(super) fn content(&self, task: &TaskId, id: &ContentId) -> PathBuf {
        self.task(task).join(id.to_string())
    }

    pub(super) fn file(&self, task: &TaskId, id: &ContentId, filename: Option<&str>) -> PathBuf {
        let name = filename.and_then(safe_file_name);
        self.content(task, id).join(name.as_deref().unwrap_or(UNNAMED))
    }

    pub(super) fn expired(&self, task: &TaskId, id: &ContentId) -> PathBuf {
        expired(&self.content(task, id))
    }

    pub(super) fn pooled(&self, hash: &ContentHash) -> PathBuf {
        let hash = hash.to_string();
        self.pool().join(&hash[..2]).join(hash)
    }

    /// The folders of all tasks.
    pub(super) fn task_folders(&self) -> io::Result<Vec<PathBuf>> {
        folders_in(&self.tasks())
    }

    /// Counts the files of all tasks. A file with several names counts once.
    pub(super) fn count(&self) -> io::Result<Counted> {
        let (mut seen, mut counted) = (HashSet::new(), Counted::default());
        for task in self.task_folders()? {
            for content in contents_of(&task)? {
                for (_, metadata) in files_in(&content)? {
                    if FileIdentity::of(&metadata).is_none_or(|identity| seen.insert(identity)) {
                        counted.files += 1;
                        counted.bytes += metadata.len();
                    }
                }
            }
        }
        Ok(counted)
    }
}

/// Whose task a folder belongs to. `None` if the folder does not say, after a crash.
pub(super) fn read_owner(task: &Path) -> Option<TaskOwner> {
    serde_json::from_slice(&fs::read(Layout::owner(task)).ok()?).ok()
}

/// The mark of content that was removed.
pub(super) fn expired(content: &Path) -> PathBuf {
    let mut name = content.as_os_str().to_owned();
    name.push(EXPIRED);
    name.into()
}

/// The folders of the contents of a task.
pub(super) fn contents_of(task: &Path) -> io::Result<Vec<PathBuf>> {
    folders_in(task)
}

/// The folders in a folder. Empty if it does not exist.
pub(super) fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in entries(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// The files in a folder with their metadata. Empty if it does not exist.
pub(super) fn files_in(folder: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let mut found = Vec::new();
    for entry in entries(folder)? {
        let entry = entry?;
        // A file can be removed while the folder is read.
        match entry.metadata() {
            Ok(metadata) if metadata.is_file() => found.push((entry.path(), metadata)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The entries of a folder. None if it does not exist.
fn entries(folder: &Path) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(Some(entries).into_iter().flatten()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        Err(error) => Err(error),
    }
}

/// The name of the folder of a task: its id if every file system keeps it as it is, otherwise a digest of it.
fn stem(task: &str) -> String {
    let is_plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'-');
    let plain = (1..=MAX_PLAIN).contains(&task.len()) && task.bytes().all(is_plain);
    if plain && safe_file_name(task).as_deref() == Some(task) {
        return task.to_owned();
    }
    let digest = digest::digest(&digest::SHA256, task.as_bytes());
    // Longer than a plain id, so that the two cannot be equal.
    format!("h{}", digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_tasks_have_different_folders_on_every_file_system() {
        let plain = "0197a3b0-1c2d-7e3f-8a4b-5c6d7e8f9a0b";
        assert_eq!(stem(plain), plain);
        let names = ["a", "A", "../a", "a/b", "", ".", "con", "h0", &"a".repeat(65), "ä", "a ", "a.", "a\0"];
        let stems: HashSet<String> = names.iter().map(|name| stem(name).to_lowercase()).collect();
        assert_eq!(stems.len(), names.len());
        assert!(stems.iter().all(|stem| safe_file_name(stem).as_ref() == Some(stem)));
    }
}
