//! Writing content: to a temporary file, then under its name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use attache_core::{
    ArtifactError, ArtifactWriter, BoxFuture, ContentHash, ContentId, ContentPlace, StoredContent,
};
use attache_files::identity::link_count;
use attache_files::{durability, permissions};
use aws_lc_rs::digest;
use bytes::Bytes;

use super::layout::{Layout, TaskOwner, expired};
use super::{Inner, blocking};

/// How often content is named again if its folder was removed meanwhile.
const ATTEMPTS: usize = 5;

/// Content that is being written. Its temporary file is removed when this is dropped.
pub(super) struct FileWriter {
    // In its own box, so that a write can move it to another thread.
    writing: Option<Box<Writing>>,
}

struct Writing {
    inner: Arc<Inner>,
    name: String,
    path: PathBuf,
    file: File,
    digest: digest::Context,
    size: u64,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.inner.pending.fetch_sub(self.size, Ordering::Relaxed);
        self.inner.active.lock().remove(&self.name);
        if !self.inner.steps.has_crashed() {
            // After success the file has its final name, or is a copy.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl FileWriter {
    pub(super) fn new(inner: Arc<Inner>) -> Result<Self, ArtifactError> {
        let writing = Writing::new(inner).map_err(|error| ArtifactError::io("creating a file", error))?;
        Ok(Self { writing: Some(Box::new(writing)) })
    }

    fn take(&mut self) -> Result<Box<Writing>, ArtifactError> {
        let broken = || ArtifactError::Failed("an earlier write of the artifact was interrupted".to_owned());
        self.writing.take().ok_or_else(broken)
    }
}

impl ArtifactWriter for FileWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactError>> {
        Box::pin(async move {
            let mut writing = self.take()?;
            let writing = blocking(move || {
                writing.write(&bytes)?;
                Ok(writing)
            });
            self.writing = Some(writing.await?);
            Ok(())
        })
    }

    fn commit(
        mut self: Box<Self>,
        place: ContentPlace,
    ) -> BoxFuture<'static, Result<StoredContent, ArtifactError>> {
        Box::pin(async move {
            let writing = self.take()?;
            blocking(move || writing.commit(&place)).await
        })
    }
}

impl Writing {
    fn new(inner: Arc<Inner>) -> io::Result<Self> {
        inner.steps.before("create the temporary file")?;
        let name = unique_name();
        let path = inner.layout.temporary().join(&name);
        // A sweep must not take it for a file that a crash has left behind.
        inner.active.lock().insert(name.clone());
        let mut options = OpenOptions::new();
        let file = match permissions::owner_only_file(&mut options).write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) => {
                inner.active.lock().remove(&name);
                return Err(error);
            }
        };
        Ok(Self { inner, name, path, file, digest: digest::Context::new(&digest::SHA256), size: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        let options = &self.inner.options;
        let length = bytes.len() as u64;
        if self.size.saturating_add(length) > options.max_size {
            return Err(ArtifactError::TooLarge { limit: options.max_size });
        }
        let pending = self.inner.pending.fetch_add(length, Ordering::Relaxed) + length;
        self.size += length;
        if self.inner.stored.load(Ordering::Relaxed).saturating_add(pending) > options.max_total {
            return Err(ArtifactError::Full { limit: options.max_total });
        }
        let failed = |error| ArtifactError::io("writing an artifact", error);
        self.inner.steps.before("write").map_err(failed)?;
        self.file.write_all(bytes).map_err(failed)?;
        self.digest.update(bytes);
        Ok(())
    }

    fn commit(&self, place: &ContentPlace) -> Result<StoredContent, ArtifactError> {
        let failed = |error| ArtifactError::io("storing an artifact", error);
        self.inner.steps.before("flush the temporary file").map_err(failed)?;
        self.file.sync_all().map_err(failed)?;
        let mut hash = ContentHash([0; 32]);
        hash.0.copy_from_slice(self.digest.clone().finish().as_ref());
        let id = ContentId::new(hash, place.filename.as_deref(), place.media_type.as_deref());
        let mut attempt = 1;
        loop {
            // Another server that shares the directory can remove the folder of a task that does not exist yet.
            match self.name_content(place, &id) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(failed(error)),
                Ok(()) => return Ok(StoredContent { id, size: self.size }),
            }
        }
    }

    /// Gives the content its name in the folder of its task, durably.
    fn name_content(&self, place: &ContentPlace, id: &ContentId) -> io::Result<()> {
        let Inner { layout, steps, .. } = &*self.inner;
        let _naming = self.inner.naming.read();
        let task = layout.task(&place.task);
        steps.before("create the folder of the task")?;
        permissions::create_owner_only_folder(&task)?;
        let owner = Layout::owner(&task);
        if !owner.exists() {
            steps.before("write the owner of the task")?;
            let text = serde_json::to_vec(&TaskOwner::new(&place.owner, &place.task))?;
            attache_files::write(&owner, &text)?;
            durability::sync_folder_of(&task)?;
        }
        touch(&task);
        let content = layout.content(&place.task, id);
        steps.before("create the folder of the content")?;
        permissions::create_owner_only_folder(&content)?;
        durability::sync_folder_of(&content)?;
        let file = layout.file(&place.task, id, place.filename.as_deref());
        let pooled = layout.pooled(&id.hash());
        steps.before("name the content")?;
        let is_new = !self.has_content(&file)? && !self.share(&pooled, &file)?;
        if is_new {
            fs::rename(&self.path, &file)?;
        }
        steps.before("flush the folder of the content")?;
        durability::sync_folder_of(&file)?;
        touch(&task);
        if is_new {
            self.inner.stored.fetch_add(self.size, Ordering::Relaxed);
            steps.before("name the content for others")?;
            // Without this name, equal content is stored again. Without a count of names, it could never be removed.
            if link_count(&self.file.metadata()?).is_some() {
                let _ = permissions::create_owner_only_folder(pooled.parent().unwrap_or(&pooled))
                    .and_then(|()| fs::hard_link(&file, &pooled));
            }
        }
        steps.before("remove the mark of removed content")?;
        match fs::remove_file(expired(&content)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Whether the task has this content already, under this name.
    fn has_content(&self, file: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(file) {
            Ok(metadata) => Ok(metadata.is_file() && metadata.len() == self.size),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets the task share content that another task has. Returns `false` if there is none that can be shared.
    fn share(&self, pooled: &Path, file: &Path) -> io::Result<bool> {
        if !self.has_content(pooled)? {
            return Ok(false);
        }
        // A file of the wrong size is replaced: it was damaged.
        let _ = fs::remove_file(file);
        match fs::hard_link(pooled, file) {
            Ok(()) => Ok(true),
            // The content was removed meanwhile, or a file cannot have more names. The next tasks share the new file.
            Err(_) => {
                let _ = fs::remove_file(pooled);
                Ok(false)
            }
        }
    }
}

/// Notes that a folder is in use, so that no sweep takes it for left over.
fn touch(folder: &Path) {
    let touched = File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
    if let Err(error) = touched {
        tracing::debug!(%error, "the time of a folder could not be set");
    }
}

/// A name that no other process has used.
pub(super) fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut random = [0; 8];
    // Without randomness, the time, the process and the counter still make the name unique on one machine.
    let _ = aws_lc_rs::rand::fill(&mut random);
    let random = u64::from_ne_bytes(random);
    format!("{nanos:x}-{}-{}-{random:016x}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
