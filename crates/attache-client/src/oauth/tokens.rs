//! Tokens, and where they are kept.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use attache_protocol::Timestamp;
use futures::future::{BoxFuture, FutureExt};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::Secret;

/// How long before its end a token is renewed, at most.
const MARGIN: Duration = Duration::from_secs(30);

/// What tokens are for. Those of one agent are never sent to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenKey {
    /// Where the authorization server describes itself or, if the card does not say, where it gives out tokens.
    pub server: String,
    /// The client that they were given to.
    pub client: String,
    /// The scopes that were asked for, in order.
    pub scopes: Vec<String>,
    /// The resource that they were asked for (RFC 8707).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The agent that they are for: scheme, host and port of where its card is.
    pub agent: String,
    /// Which of several accounts of the user, if they have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
}

/// What an authorization server gave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// What the agent is shown.
    pub access: Secret,
    /// What another one is got with.
    pub refresh: Option<Secret>,
    /// From when on another one is needed: a little before this one expires. Never, if the server does not say.
    pub renew: Option<Timestamp>,
}

impl Tokens {
    /// Whether another one is needed.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.renew.is_some_and(|renew| renew <= now)
    }

    /// From when on a token that is good for so long is renewed.
    pub(super) fn renewal(now: Timestamp, lifetime: Duration) -> Timestamp {
        now.after(lifetime.saturating_sub(MARGIN.min(lifetime / 10)))
    }
}

/// The time by the clock on the wall, which tokens expire by.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::UNIX_EPOCH.after(since)
}

/// Why tokens cannot be read or kept. No text contains any.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenStoreError {
    /// The file cannot be read or written.
    #[error("`{}` cannot be {doing}: {cause}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was to be done.
        doing: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Others than the user can read the file.
    #[error("`{path}` has credentials in it, and others can read it: `chmod 600 {path}` keeps them out", path = .0.display())]
    Exposed(PathBuf),
    /// The file is not one of tokens. It is left as it is.
    #[error(
        "`{}` is not a file of tokens (line {line}, column {column}): mend it, or remove it and log in again",
        .path.display()
    )]
    Broken {
        /// Which.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// The file was written by a later version.
    #[error("`{}` was written by a newer version of Attaché (format {found}, this one knows {known})", .path.display())]
    Newer {
        /// Which.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The latest one that is known.
        known: u32,
    },
    /// Something else, in a store of the user's own.
    #[error("{0}")]
    Other(String),
}

/// Where tokens are kept.
///
/// They are changed by whoever holds the lock only, and looked at again once it is held: however many requests find a token
/// stale, it is renewed once.
pub trait TokenStore: Send + Sync + 'static {
    /// The tokens for something, if there are any.
    fn read(&self, key: &TokenKey) -> Result<Option<Tokens>, TokenStoreError>;

    /// Waits until nobody else changes the tokens for this, which may include others.
    fn lock<'a>(
        &'a self,
        key: &'a TokenKey,
    ) -> BoxFuture<'a, Result<Box<dyn LockedTokens + 'a>, TokenStoreError>>;
}

/// Tokens that nobody else changes meanwhile.
pub trait LockedTokens: Send {
    /// The tokens, if there are any.
    fn read(&mut self) -> Result<Option<Tokens>, TokenStoreError>;

    /// Puts others in their place, or none.
    fn write(&mut self, tokens: Option<&Tokens>) -> Result<(), TokenStoreError>;
}

/// Tokens that are kept for as long as the process runs. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryTokens(Arc<Mutex<HashMap<TokenKey, Cell>>>);

#[derive(Debug, Default)]
struct Cell {
    tokens: Option<Tokens>,
    gate: Arc<AsyncMutex<()>>,
}

impl MemoryTokens {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn with<T>(&self, key: &TokenKey, act: impl FnOnce(&mut Cell) -> T) -> T {
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
            let gate = self.with(key, |cell| cell.gate.clone());
            let guard = gate.lock_owned().await;
            Ok(Box::new(Held { tokens: self, key, _guard: guard }) as Box<dyn LockedTokens>)
        }
        .boxed()
    }
}

struct Held<'a> {
    tokens: &'a MemoryTokens,
    key: &'a TokenKey,
    _guard: OwnedMutexGuard<()>,
}

impl LockedTokens for Held<'_> {
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
        assert!(!Tokens { renew: None, ..tokens }.is_stale(now), "nobody says that it ends");
    }
}
