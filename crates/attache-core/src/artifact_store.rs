//! The interface to the storage of content: the bytes of files that agents produce.
//!
//! Small content is part of the events of a task. Larger content is kept in an [`ArtifactStore`], and the event has a reference to it
//! (see [`ArtifactLinks`](crate::ArtifactLinks)). Content belongs to a task: it is stored before the event that refers to it, and removed
//! after the task.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use attache_protocol::TaskId;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{AgentError, BoxFuture, Owner, Store, StoreError};

/// Why content was not stored or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The content is larger than content may be.
    #[error("the artifact is larger than {limit} bytes, which is the limit of this server")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// All content together would be larger than it may be.
    #[error("the artifact could not be stored: all artifacts of this server together may have {limit} bytes")]
    Full {
        /// The limit in bytes.
        limit: u64,
    },
    /// The disk is full.
    #[error("the artifact could not be stored: the disk of the server is full")]
    NoSpace,
    /// The file system failed.
    #[error("{action}: {source}")]
    Io {
        /// What was done, such as ``writing `/var/lib/attache/artifacts/…` ``.
        action: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The store of the tasks failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another kind of store failed.
    #[error("{0}")]
    Failed(String),
}

impl ArtifactError {
    /// An error of the operating system. A full disk and an exceeded quota are [`NoSpace`](Self::NoSpace).
    pub fn io(action: impl Into<String>, source: io::Error) -> Self {
        match matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            true => Self::NoSpace,
            false => Self::Io { action: action.into(), source },
        }
    }
}

impl ArtifactError {
    /// The failure of a turn. Limits and a full disk are told to the client. Any other cause goes to the log only.
    pub fn into_agent_error(self) -> AgentError {
        match self {
            Self::TooLarge { .. } | Self::Full { .. } | Self::NoSpace => {
                tracing::warn!(error = %self, "an artifact was not stored");
                AgentError::public(self.to_string())
            }
            Self::Io { .. } | Self::Store(_) | Self::Failed(_) => self.into(),
        }
    }
}

/// The SHA-256 of content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub [u8; 32]);

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ContentHash {
    /// Reads 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Self(hash))
    }
}

/// The id of stored content within its task: the hash of the content, and a tag for its name and media type.
///
/// The id does not depend on time or chance, so a turn that runs again stores the same content under the same id.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentId {
    hash: ContentHash,
    tag: u32,
}

impl ContentId {
    /// The id of content with this hash, file name and media type.
    pub fn new(hash: ContentHash, filename: Option<&str>, media_type: Option<&str>) -> Self {
        let mut digest = Sha256::new();
        for text in [filename, media_type] {
            // The length comes first, so that different texts cannot add up to the same bytes.
            digest.update(text.map_or(u64::MAX, |text| text.len() as u64).to_be_bytes());
            digest.update(text.unwrap_or_default());
        }
        let digest: [u8; 32] = digest.finalize().into();
        Self { hash, tag: u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) }
    }

    /// Reads an id as it is written: the hash, a dot, and 8 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (hash, tag) = text.split_once('.')?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if tag.len() != 8 || !tag.bytes().all(is_digit) {
            return None;
        }
        Some(Self { hash: ContentHash::parse(hash)?, tag: u32::from_str_radix(tag, 16).ok()? })
    }

    /// The hash of the content.
    pub fn hash(&self) -> ContentHash {
        self.hash
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:08x}", self.hash, self.tag)
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// To which task content belongs, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentPlace {
    /// The owner of the task.
    pub owner: Owner,
    /// The task. It may not exist yet: its first event may be the one that refers to the content.
    pub task: TaskId,
    /// The name of the file.
    pub filename: Option<String>,
    /// The media type.
    pub media_type: Option<String>,
}

/// Content that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredContent {
    /// Its id within the task.
    pub id: ContentId,
    /// Its size in bytes.
    pub size: u64,
}

/// Content that is being written. It is dropped without a trace unless it is committed.
pub trait ArtifactWriter: Send {
    /// Adds bytes.
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactError>>;

    /// Makes the content durable, and assigns it to a task. An event may refer to it once this has returned.
    fn commit(
        self: Box<Self>,
        place: ContentPlace,
    ) -> BoxFuture<'static, Result<StoredContent, ArtifactError>>;
}

/// Content that is being read.
pub trait ArtifactReader: Send {
    /// The size in bytes.
    fn size(&self) -> u64;

    /// Reads up to `limit` bytes at an offset. Empty at the end.
    fn read(&mut self, offset: u64, limit: usize) -> BoxFuture<'_, Result<Bytes, ArtifactError>>;
}

/// The result of [`ArtifactStore::open`].
pub enum OpenedContent {
    /// The content.
    Found(Box<dyn ArtifactReader>),
    /// The content was removed because it was older than the store keeps content.
    Expired,
    /// There is no such content.
    Missing,
}

/// What a sweep removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Swept {
    /// The number of tasks whose content was removed because the task does not exist any more.
    pub tasks: usize,
    /// The number of tasks whose content was removed because it was too old.
    pub expired: usize,
    /// The bytes that were freed.
    pub bytes: u64,
}

/// Stores content by its hash.
///
/// Equal content is stored once. It is removed when no task refers to it. Every method can be interrupted at any point, by a crash or by a
/// dropped future: content to which a stored event refers is never lost, and what is left over is removed by a later
/// [sweep](Self::sweep).
pub trait ArtifactStore: fmt::Debug + Send + Sync + 'static {
    /// Begins to write content.
    fn create(&self) -> BoxFuture<'_, Result<Box<dyn ArtifactWriter>, ArtifactError>>;

    /// Opens content of a task.
    fn open<'a>(
        &'a self,
        task: &'a TaskId,
        id: &'a ContentId,
        filename: Option<&'a str>,
    ) -> BoxFuture<'a, Result<OpenedContent, ArtifactError>>;

    /// The path of the file that has the content, if there is one. The file need not exist.
    fn path(&self, task: &TaskId, id: &ContentId, filename: Option<&str>) -> Option<PathBuf> {
        let _ = (task, id, filename);
        None
    }

    /// Removes the content of tasks that `tasks` does not have, content that is too old, and what interrupted calls left over.
    fn sweep<'a>(&'a self, tasks: &'a dyn Store) -> BoxFuture<'a, Result<Swept, ArtifactError>>;

    /// Whether servers on several machines can use it together. A store of tasks that is [shared](Store::is_shared) needs such a store.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Where agents put large content, and how clients get it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Artifacts {
    /// The store.
    pub store: Arc<dyn ArtifactStore>,
    /// Content of up to so many bytes stays in the events.
    pub inline_limit: u64,
    /// Which URLs clients get.
    pub urls: ArtifactUrls,
}

/// Which URLs of stored content clients get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ArtifactUrls {
    /// URLs of the server, which checks who may read the content.
    #[default]
    Http,
    /// `file:` URLs, for clients of the same user on the same machine. The server serves the content over HTTP all the same.
    File,
}

impl Artifacts {
    /// The limit for inline content unless set: 1 MiB.
    pub const INLINE_LIMIT: u64 = 1024 * 1024;

    /// Content in this store.
    pub fn new(store: impl ArtifactStore) -> Self {
        Self::shared(Arc::new(store))
    }

    /// The same, for a store that is used elsewhere too.
    pub fn shared(store: Arc<dyn ArtifactStore>) -> Self {
        Self { store, inline_limit: Self::INLINE_LIMIT, urls: ArtifactUrls::Http }
    }

    /// Sets the size in bytes up to which content stays in the events.
    #[must_use]
    pub fn inline_limit(mut self, bytes: u64) -> Self {
        self.inline_limit = bytes;
        self
    }

    /// Sets which URLs clients get.
    #[must_use]
    pub fn urls(mut self, urls: ArtifactUrls) -> Self {
        self.urls = urls;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let hash = ContentHash([0xab; 32]);
        let id = ContentId::new(hash, Some("a.txt"), None);
        assert_eq!(ContentId::parse(&id.to_string()), Some(id.clone()));
        assert_ne!(id, ContentId::new(hash, None, Some("a.txt")));
        let text = id.to_string();
        for wrong in
            ["", "..", &text.to_uppercase(), &text[1..], &format!("{text}0"), &text.replace('.', "/")]
        {
            assert_eq!(ContentId::parse(wrong), None, "{wrong}");
        }
    }
}
