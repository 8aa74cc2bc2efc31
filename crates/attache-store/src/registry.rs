//! Opening a store by its URL.
//!
//! A [`StoreRegistry`] has one [`StoreScheme`] for each URL scheme. The commands, the worker and the load harness open their stores
//! through it, so a new scheme is added in one place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use attache_core::{BoxFuture, MemoryStore, Store};

use crate::url::{MEMORY, SQLITE};
use crate::{Keyring, KeyringError, SqliteOpenError, SqliteOptions, SqliteStore, StoreUrl};

/// Why a store could not be opened. No message has a password in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreOpenError {
    /// The scheme of the URL is not registered.
    #[error("the store `{url}` is of an unknown kind: expected {expected}")]
    UnknownScheme {
        /// The URL.
        url: StoreUrl,
        /// The forms of the registered schemes.
        expected: String,
    },
    /// The URL does not have the form that its scheme needs.
    #[error("the store URL `{url}` is invalid: {problem}")]
    InvalidUrl {
        /// The URL.
        url: StoreUrl,
        /// What is wrong.
        problem: String,
    },
    /// The keyring could not be loaded.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// The SQLite file could not be opened.
    #[error(transparent)]
    Sqlite(#[from] SqliteOpenError),
    /// A store of another kind could not be opened.
    #[error("the store `{url}` could not be opened: {problem}")]
    Failed {
        /// The URL.
        url: StoreUrl,
        /// What happened.
        problem: String,
    },
}

impl StoreOpenError {
    /// The error of a store of another kind. The password of the URL is removed from the message.
    pub fn failed(url: &StoreUrl, error: impl fmt::Display) -> Self {
        Self::Failed { url: url.clone(), problem: url.hide_secrets(&error.to_string()) }
    }
}

/// Where the keys for the secrets of webhooks come from. They are loaded when a store needs them.
#[derive(Debug, Clone)]
pub enum KeyringSource {
    /// The keyring of this user, see [`Keyring::of_user`].
    User {
        /// The key file, if it is not the default one.
        file: Option<PathBuf>,
    },
    /// A new key that is lost with the process, see [`Keyring::ephemeral`].
    Ephemeral,
    /// This keyring.
    Loaded(Keyring),
}

impl KeyringSource {
    /// Loads the keys.
    pub fn load(&self) -> Result<Keyring, KeyringError> {
        match self {
            Self::User { file } => Keyring::of_user(file.as_deref()),
            Self::Ephemeral => Keyring::ephemeral(),
            Self::Loaded(keyring) => Ok(keyring.clone()),
        }
    }
}

/// The options that every scheme gets.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The keys for the secrets of webhooks.
    pub keyring: KeyringSource,
}

impl StoreOptions {
    /// Options with this keyring.
    pub fn new(keyring: KeyringSource) -> Self {
        Self { keyring }
    }
}

type Open = dyn Fn(StoreUrl, StoreOptions) -> BoxFuture<'static, Result<Arc<dyn Store>, StoreOpenError>>
    + Send
    + Sync;
type Check = dyn Fn(&StoreUrl) -> Result<(), String> + Send + Sync;

/// How stores of one URL scheme are opened.
#[derive(Clone)]
pub struct StoreScheme {
    form: String,
    check: Arc<Check>,
    open: Arc<Open>,
}

impl StoreScheme {
    /// A scheme whose URLs have the form `form`, such as `sqlite:PATH`. Error messages and help show the form.
    pub fn new<F>(form: &str, open: impl Fn(StoreUrl, StoreOptions) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Arc<dyn Store>, StoreOpenError>> + Send + 'static,
    {
        Self {
            form: form.to_owned(),
            check: Arc::new(|_| Ok(())),
            open: Arc::new(move |url, options| Box::pin(open(url, options))),
        }
    }

    /// Adds a check of the URL that does not open the store. The error says what is wrong with the URL.
    #[must_use]
    pub fn with_check(self, check: impl Fn(&StoreUrl) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { check: Arc::new(check), ..self }
    }
}

/// The kinds of stores that can be opened, by URL scheme.
///
/// ```
/// use std::sync::Arc;
///
/// use attache_core::{MemoryStore, Store};
/// use attache_store::{KeyringSource, StoreOptions, StoreRegistry, StoreScheme, StoreUrl};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), attache_store::StoreOpenError> {
/// let stores = StoreRegistry::built_in().with(
///     "demo",
///     StoreScheme::new("demo:NAME", |_url, _options| async {
///         Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>)
///     }),
/// );
/// let options = StoreOptions::new(KeyringSource::Ephemeral);
/// let store = stores.open(&StoreUrl::from("demo:one"), &options).await?;
///
/// let unknown = stores.check(&StoreUrl::from("other:")).unwrap_err();
/// assert!(unknown.to_string().ends_with("expected `demo:NAME`, `memory:` or `sqlite:PATH`"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StoreRegistry {
    schemes: BTreeMap<String, StoreScheme>,
}

impl fmt::Debug for StoreRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.schemes.values().map(|scheme| &scheme.form)).finish()
    }
}

impl StoreRegistry {
    /// The stores of this crate: `memory:` and `sqlite:PATH`.
    pub fn built_in() -> Self {
        Self { schemes: BTreeMap::new() }.with(MEMORY, memory()).with(SQLITE, sqlite())
    }

    /// Adds a scheme, in lower case and without the colon. It replaces an earlier scheme of the same name.
    #[must_use]
    pub fn with(mut self, name: &str, scheme: StoreScheme) -> Self {
        self.schemes.insert(name.to_owned(), scheme);
        self
    }

    /// The forms of the URLs, as error messages list them: `` `memory:` or `sqlite:PATH` ``.
    pub fn forms(&self) -> String {
        let forms: Vec<_> = self.schemes.values().map(|scheme| format!("`{}`", scheme.form)).collect();
        match forms.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => "no store".to_owned(),
        }
    }

    /// Checks that the scheme is known and the URL has its form. Does not open the store.
    pub fn check(&self, url: &StoreUrl) -> Result<(), StoreOpenError> {
        self.find(url).map(|_| ())
    }

    fn find(&self, url: &StoreUrl) -> Result<&StoreScheme, StoreOpenError> {
        let Some(scheme) = self.schemes.get(url.scheme()) else {
            return Err(StoreOpenError::UnknownScheme { url: url.clone(), expected: self.forms() });
        };
        (scheme.check)(url).map_err(|problem| StoreOpenError::InvalidUrl { url: url.clone(), problem })?;
        Ok(scheme)
    }

    /// Opens a store.
    pub async fn open(
        &self,
        url: &StoreUrl,
        options: &StoreOptions,
    ) -> Result<Arc<dyn Store>, StoreOpenError> {
        let scheme = self.find(url)?;
        (scheme.open)(url.clone(), options.clone()).await
    }
}

fn memory() -> StoreScheme {
    StoreScheme::new("memory:", |_, _| async { Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>) })
        .with_check(|url| match url.rest().is_empty() {
            true => Ok(()),
            false => Err("nothing may follow `memory:`".to_owned()),
        })
}

fn sqlite() -> StoreScheme {
    // Opening a file blocks the calling thread for a short time. The threads of the store inherit its processor affinity, which
    // the load harness relies on.
    let open = async |url: StoreUrl, options: StoreOptions| {
        let store = SqliteStore::open(url.rest(), SqliteOptions::new(options.keyring.load()?))?;
        Ok(Arc::new(store) as Arc<dyn Store>)
    };
    StoreScheme::new("sqlite:PATH", open).with_check(|url| match url.rest().is_empty() {
        true => Err("the path of the file is missing: expected `sqlite:PATH`".to_owned()),
        false => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn open(registry: &StoreRegistry, url: &str) -> Result<Arc<dyn Store>, StoreOpenError> {
        registry.open(&url.into(), &StoreOptions::new(KeyringSource::Ephemeral)).await
    }

    /// A scheme whose store is never reached; the message of its driver repeats the URL.
    fn unreachable() -> StoreScheme {
        StoreScheme::new("postgres://HOST/DATABASE", |url, _| async move {
            let text = url.to_os_string().into_string().unwrap();
            Err(StoreOpenError::failed(&url, format!("connecting to {text} failed")))
        })
    }

    #[tokio::test]
    async fn the_built_in_stores_are_opened_by_their_url() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.db");
        let registry = StoreRegistry::built_in();
        open(&registry, "memory:").await.unwrap();
        open(&registry, &format!("sqlite:{}", path.display())).await.unwrap();
        assert!(path.exists());
    }

    #[tokio::test]
    async fn an_unknown_scheme_is_an_error_that_lists_the_known_ones() {
        let registry = StoreRegistry::built_in();
        for url in ["postgres://u:s3cret@h/d", "somewhere", "", "/a.db"] {
            let error = open(&registry, url).await.err().unwrap().to_string();
            assert!(
                error.contains("expected `memory:` or `sqlite:PATH`") && !error.contains("s3cret"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_url_without_the_form_of_its_scheme_is_invalid() {
        for url in ["memory:x", "sqlite:"] {
            let checked = StoreRegistry::built_in().check(&url.into());
            assert!(matches!(checked, Err(StoreOpenError::InvalidUrl { .. })), "{url}");
        }
    }

    #[tokio::test]
    async fn a_registered_scheme_is_opened_and_its_errors_have_no_password() {
        let registry = StoreRegistry::built_in().with("postgres", unreachable());
        let error = open(&registry, "postgres://u:s3cret@h/d").await.err().unwrap();
        assert_eq!(
            error.to_string(),
            "the store `postgres://***@h/d` could not be opened: connecting to postgres://***@h/d failed"
        );
        assert!(!format!("{error:?}{registry:?}").contains("s3cret"));
    }

    #[tokio::test]
    async fn a_store_that_needs_no_keys_does_not_load_them() {
        let file = tempfile::tempdir().unwrap().path().join("keyring.json");
        let options = StoreOptions::new(KeyringSource::User { file: Some(file.clone()) });
        StoreRegistry::built_in().open(&StoreUrl::memory(), &options).await.unwrap();
        assert!(!file.exists());
    }
}
