//! Tokens and token stores.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use attache_protocol::Timestamp;
use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::Secret;

/// A token is renewed at most this long before it expires.
const MARGIN: Duration = Duration::from_secs(30);

/// What tokens are for. Tokens of one agent are never sent to another agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenKey {
    /// The URL of the server's metadata or, if the card does not name it, of the token endpoint.
    pub server: String,
    /// The id of the client.
    pub client: String,
    /// The requested scopes, sorted.
    pub scopes: Vec<String>,
    /// The requested resource (RFC 8707).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The agent: scheme, host and port of its card.
    pub agent: String,
    /// The account of the user, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

/// The tokens that an authorization server issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The access token, which is sent to the agent.
    pub access: Secret,
    /// The refresh token.
    pub refresh: Option<Secret>,
    /// When to renew the access token: a little before it expires. Never, if the server does not state a lifetime.
    pub renew: Option<Timestamp>,
}

impl Tokens {
    /// Whether the access token must be renewed.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.renew.is_some_and(|renew| renew <= now)
    }

    /// When to renew a token with this lifetime.
    pub(super) fn renewal(now: Timestamp, lifetime: Duration) -> Timestamp {
        now.after(lifetime.saturating_sub(MARGIN.min(lifetime / 10)))
    }
}

/// The current wall-clock time. Tokens expire by it.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::UNIX_EPOCH.after(since)
}

/// Why tokens cannot be read or stored. No text contains a token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenStoreError {
    /// The file cannot be read or written.
    #[error("`{}` cannot be {doing}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// Other users can read the file.
    #[error("`{path}` contains credentials, and other users can read it; run `chmod 600 {path}`", path = .0.display())]
    Exposed(PathBuf),
    /// The file does not contain tokens. It is not changed.
    #[error(
        "`{}` is not a file of tokens (line {line}, column {column}): repair it, or remove it and log in again",
        .path.display()
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// A newer version of Attaché wrote the file.
    #[error("`{}` was written by a newer version of Attaché (format {found}, this one knows {known})", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest version that is supported.
        known: u32,
    },
    /// An error of another token store.
    #[error("{0}")]
    Other(String),
}

/// Stores tokens.
///
/// Tokens are changed only under the lock, and read again once the lock is held. So a stale token is renewed once, however many
/// requests find it stale.
pub trait TokenStore: Send + Sync + 'static {
    /// The tokens of this key, if any.
    fn read(&self, key: &TokenKey) -> Result<Option<Tokens>, TokenStoreError>;

    /// Waits for the lock on the tokens of this key. The lock may cover other keys too.
    fn lock<'a>(
        &'a self,
        key: &'a TokenKey,
    ) -> BoxFuture<'a, Result<Box<dyn LockedTokens + 'a>, TokenStoreError>>;
}

/// Tokens under a lock.
pub trait LockedTokens: Send {
    /// The tokens, if any.
    fn read(&mut self) -> Result<Option<Tokens>, TokenStoreError>;

    /// Replaces the tokens; removes them if there are none.
    fn write(&mut self, tokens: Option<&Tokens>) -> Result<(), TokenStoreError>;
}

/// A token store in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryTokens(Arc<Mutex<HashMap<TokenKey, Entry>>>);

#[derive(Debug, Default)]
struct Entry {
    tokens: Option<Tokens>,
    lock: Arc<AsyncMutex<()>>,
}

impl MemoryTokens {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, key: &TokenKey, act: impl FnOnce(&mut Entry) -> T) -> T {
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(cells.entry(key.clone()).or_default())
    }
}

impl TokenStore for MemoryTokens {
    fn read(&self, key: &TokenKey) -> Result<Option<Tokens>, TokenStoreError> {
        Ok(self.with(key, |cell| cell.tokens.clone()))
    }

    fn lock<'a>(
        &'a self,
        key: &'a TokenKey,
    ) -> BoxFuture<'a, Result<Box<dyn LockedTokens + 'a>, TokenStoreError>> {
        async move {
            let lock = self.with(key, |cell| cell.lock.clone());
            let guard = lock.lock_owned().await;
            Ok(Box::new(LockedEntry { tokens: self, key, _guard: guard }) as Box<dyn LockedTokens>)
        }
        .boxed()
    }
}

struct LockedEntry<'a> {
    tokens: &'a MemoryTokens,
    key: &'a TokenKey,
    _guard: OwnedMutexGuard<()>,
}

impl LockedTokens for LockedEntry<'_> {
    fn read(&mut self) -> Result<Option<Tokens>, TokenStoreError> {
        self.tokens.read(self.key)
    }

    fn write(&mut self, tokens: Option<&Tokens>) -> Result<(), TokenStoreError> {
        self.tokens.with(self.key, |cell| cell.tokens = tokens.cloned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_a_little_before_it_expires() {
        let now = Timestamp::from_millis(1_000_000);
        let renewed = |seconds| {
            let lifetime = Duration::from_secs(seconds);
            (Tokens::renewal(now, lifetime).to_millis() - now.to_millis()) / 1000
        };
        assert_eq!((renewed(3600), renewed(100), renewed(10), renewed(0)), (3570, 90, 9, 0));
        let tokens = Tokens { access: "a".into(), refresh: None, renew: Some(now) };
        assert!(tokens.is_stale(now));
        assert!(!tokens.is_stale(Timestamp::from_millis(999_999)));
        assert!(!Tokens { renew: None, ..tokens }.is_stale(now), "without a lifetime it is never stale");
    }
}
