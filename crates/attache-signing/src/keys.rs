//! The signing keys of a server, and their rotation.
//!
//! They are stored as JSON in a file that only its owner can read:
//!
//! ```json
//! { "keys": [ { "kid": "NzbL…", "alg": "ES256", "state": "active", "created": "2026-01-02T03:04:05Z", "secret": "base64" } ] }
//! ```
//!
//! The secret is PKCS #8, or for `HS256` the bytes of the secret itself. A key is *active*, then *retiring*, then *retired*.
//! Active and retiring keys sign and are published, so that a client that knows only the old key and a client that knows only
//! the new one both find a signature that they can verify. Of a retired key only the id is kept.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attache_files::{self as private, Content, Stamp};
use attache_protocol::{AgentCard, Timestamp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::secret::{SigningKey, generate};
use crate::{Algorithm, KeySet, SignError, signature};

/// How often the file is checked for changes by other processes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Why there are no keys, or why they cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// There is no such file.
    #[error("there is no key file `{}`", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The file could not be read or written.
    #[error("the key file `{}` could not be {doing}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The error of the system.
        error: io::Error,
    },
    /// Other users can read the file.
    #[error("others can read the key file `{0}`: run `chmod 600 {0}`", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The file does not contain signing keys.
    #[error("`{}` is not a file of signing keys: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no key with this id.
    #[error("there is no key `{0}`")]
    Unknown(String),
    /// The key is not active, so it cannot be rotated.
    #[error("the key `{kid}` is {state}: only an active key can be rotated")]
    NotActive {
        /// The key.
        kid: String,
        /// Its state.
        state: KeyState,
    },
    /// The key is the only active one.
    #[error("the key `{0}` is the only active one: without it nothing would be signed")]
    LastActive(String),
    /// The system gave no random bytes.
    #[error("the system provides no random bytes")]
    Random,
    /// The shared secret is too short.
    #[error("the shared secret has fewer than 32 bytes, which `HS256` needs")]
    ShortSecret,
}

/// The state of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// It signs and is published.
    Active,
    /// A newer key replaces it. It still signs and is published, for clients that do not know the newer key yet.
    Retiring,
    /// It no longer signs.
    Retired,
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Active => "active",
            Self::Retiring => "retiring",
            Self::Retired => "retired",
        })
    }
}

/// The public information about a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyInfo {
    /// Its id: the thumbprint (RFC 7638), or the name of a shared secret.
    pub kid: String,
    /// Its algorithm.
    #[serde(rename = "alg")]
    pub algorithm: Algorithm,
    /// Its state.
    pub state: KeyState,
    /// When it was created.
    pub created: Timestamp,
}

/// The signing keys of a server. Cheap to clone; clones share the keys.
///
/// Changes that another process makes to the file take effect within a second of the next use. While the file cannot be read,
/// the previous keys stay in use.
#[derive(Clone)]
pub struct SigningKeys(Arc<Shared>);

struct Shared {
    /// The file that they are stored in, if any.
    path: Option<PathBuf>,
    loaded: Mutex<LoadedKeys>,
}

struct LoadedKeys {
    stored: StoredKeys,
    current: Arc<CurrentKeys>,
    stamp: Option<Stamp>,
    checked_at: Instant,
    /// Whether a warning about the unreadable file was logged.
    warned: bool,
}

/// The content of the file.
#[derive(Clone, Default, Serialize, Deserialize)]
struct StoredKeys {
    keys: Vec<StoredKey>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredKey {
    kid: String,
    alg: Algorithm,
    state: KeyState,
    created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<Zeroizing<String>>,
}

/// The keys that sign at one point in time. They are immutable: a change creates another value.
pub struct CurrentKeys {
    keys: Vec<SigningKey>,
}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKeys").field(&self.list()).finish()
    }
}

impl fmt::Debug for CurrentKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(SigningKey::verifying)).finish()
    }
}

impl CurrentKeys {
    /// Returns the card with a signature of each key. Existing signatures are replaced. `jku` is the URL where the keys are
    /// published.
    pub fn sign(&self, card: &AgentCard, jku: Option<&str>) -> Result<AgentCard, SignError> {
        let signatures = signature::sign(card, &self.keys, jku)?;
        Ok(AgentCard { signatures, ..card.clone() })
    }

    /// The public keys that verify the signatures. Secrets are not included.
    pub fn public_keys(&self) -> KeySet {
        let public = self.keys.iter().map(SigningKey::verifying);
        public.filter(|key| key.algorithm() != Algorithm::Hs256).cloned().collect()
    }

    /// All keys that verify the signatures, secrets included, for a verifier that shares the secrets.
    pub fn verifying_keys(&self) -> KeySet {
        self.keys.iter().map(SigningKey::verifying).cloned().collect()
    }
}

impl SigningKeys {
    /// Opens the keys in a file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, KeysError> {
        let path = path.into();
        let (stored, stamp) = read(&path)?;
        Self::new(stored, Some(path), Some(stamp))
    }

    /// Creates the file with a new key. An existing file is replaced.
    pub fn create(
        path: impl AsRef<Path>,
        algorithm: Algorithm,
        now: Timestamp,
    ) -> Result<KeyInfo, KeysError> {
        let key = StoredKey::generate(algorithm, now)?;
        let info = key.info();
        save(path.as_ref(), &StoredKeys { keys: vec![key] })?;
        Ok(info)
    }

    /// Creates a new key that is not stored in a file.
    pub fn in_memory(algorithm: Algorithm, now: Timestamp) -> Result<Self, KeysError> {
        Self::new(StoredKeys { keys: vec![StoredKey::generate(algorithm, now)?] }, None, None)
    }

    /// A secret that is shared with the verifiers, for `HS256`, and its id. It is not stored in a file. Fails if the secret has
    /// fewer than 32 bytes, which `HS256` needs.
    pub fn shared_secret(kid: &str, secret: &[u8], now: Timestamp) -> Result<Self, KeysError> {
        let alg = Algorithm::Hs256;
        if SigningKey::read(alg, secret).is_none() {
            return Err(KeysError::ShortSecret);
        }
        let secret = Some(Zeroizing::new(STANDARD.encode(secret)));
        let key = StoredKey { kid: kid.to_owned(), alg, state: KeyState::Active, created: now, secret };
        Self::new(StoredKeys { keys: vec![key] }, None, None)
    }

    fn new(stored: StoredKeys, path: Option<PathBuf>, stamp: Option<Stamp>) -> Result<Self, KeysError> {
        let current = Arc::new(stored.current(path.as_deref().unwrap_or(Path::new("memory")))?);
        let loaded = LoadedKeys { stored, current, stamp, checked_at: Instant::now(), warned: false };
        Ok(Self(Arc::new(Shared { path, loaded: Mutex::new(loaded) })))
    }

    /// The keys that sign now. The same `Arc` is returned as long as the keys do not change.
    pub fn current(&self) -> Arc<CurrentKeys> {
        let mut loaded = self.0.loaded.lock();
        if let Some(path) = &self.0.path
            && loaded.checked_at.elapsed() >= CHECK_INTERVAL
        {
            loaded.checked_at = Instant::now();
            match loaded.refresh(path) {
                Ok(()) => loaded.warned = false,
                Err(error) if !loaded.warned => {
                    tracing::warn!(%error, "cannot read the signing keys; the previous ones stay in use");
                    loaded.warned = true;
                }
                Err(_) => {}
            }
        }
        loaded.current.clone()
    }

    /// All keys in the order in which they were created, retired ones included.
    pub fn list(&self) -> Vec<KeyInfo> {
        self.0.loaded.lock().stored.keys.iter().map(StoredKey::info).collect()
    }

    /// Adds an active key.
    pub fn add(&self, algorithm: Algorithm, now: Timestamp) -> Result<KeyInfo, KeysError> {
        self.change(|stored| {
            let key = StoredKey::generate(algorithm, now)?;
            let info = key.info();
            stored.keys.push(key);
            Ok(info)
        })
    }

    /// Replaces an active key by a new key of the same algorithm; all active keys if `kid` is none. The old keys become
    /// retiring. Returns each old key with its replacement.
    pub fn rotate(&self, kid: Option<&str>, now: Timestamp) -> Result<Vec<(KeyInfo, KeyInfo)>, KeysError> {
        self.change(|stored| {
            if let Some(kid) = kid {
                let state = stored.find(kid)?.state;
                if state != KeyState::Active {
                    return Err(KeysError::NotActive { kid: kid.to_owned(), state });
                }
            }
            let mut rotated = Vec::new();
            for index in 0..stored.keys.len() {
                let old = &mut stored.keys[index];
                if old.state == KeyState::Active && kid.is_none_or(|kid| kid == old.kid) {
                    let new = StoredKey::generate(old.alg, now)?;
                    old.state = KeyState::Retiring;
                    rotated.push((old.info(), new.info()));
                    stored.keys.push(new);
                }
            }
            Ok(rotated)
        })
    }

    /// Retires a key, or all retiring keys if `kid` is none. Their secrets are deleted, their ids stay listed. Returns the keys
    /// that were retired.
    pub fn retire(&self, kid: Option<&str>) -> Result<Vec<KeyInfo>, KeysError> {
        self.change(|stored| {
            if let Some(kid) = kid {
                let active = stored.keys.iter().filter(|key| key.state == KeyState::Active).count();
                if stored.find(kid)?.state == KeyState::Active && active == 1 {
                    return Err(KeysError::LastActive(kid.to_owned()));
                }
            }
            let mut retired = Vec::new();
            for key in &mut stored.keys {
                let chosen = kid.map_or(key.state == KeyState::Retiring, |kid| kid == key.kid);
                if chosen && key.state != KeyState::Retired {
                    (key.state, key.secret) = (KeyState::Retired, None);
                    retired.push(key.info());
                }
            }
            Ok(retired)
        })
    }

    /// Reads the file again, changes the keys, and writes the file before the change takes effect.
    fn change<T>(&self, act: impl FnOnce(&mut StoredKeys) -> Result<T, KeysError>) -> Result<T, KeysError> {
        let mut loaded = self.0.loaded.lock();
        let _lock = match &self.0.path {
            Some(path) => {
                let lock = private::lock(path).map_err(|error| failed(path, "written", error))?;
                loaded.refresh(path)?;
                Some(lock)
            }
            None => None,
        };
        let mut stored = loaded.stored.clone();
        let result = act(&mut stored)?;
        let Some(path) = &self.0.path else {
            loaded.current = Arc::new(stored.current(Path::new("memory"))?);
            loaded.stored = stored;
            return Ok(result);
        };
        save(path, &stored)?;
        loaded.refresh(path)?;
        Ok(result)
    }
}

impl LoadedKeys {
    /// Loads the file again if it has changed.
    fn refresh(&mut self, path: &Path) -> Result<(), KeysError> {
        let stamp = Stamp::of(path).map_err(|error| failed(path, "read", error))?;
        if self.stamp != Some(stamp) {
            let (stored, stamp) = read(path)?;
            self.current = Arc::new(stored.current(path)?);
            (self.stored, self.stamp) = (stored, Some(stamp));
        }
        Ok(())
    }
}

impl StoredKeys {
    fn find(&self, kid: &str) -> Result<&StoredKey, KeysError> {
        self.keys.iter().find(|key| key.kid == kid).ok_or_else(|| KeysError::Unknown(kid.to_owned()))
    }

    /// The keys that sign, the active ones first.
    fn current(&self, path: &Path) -> Result<CurrentKeys, KeysError> {
        let malformed = |problem: String| KeysError::Malformed { path: path.to_owned(), problem };
        let mut keys = Vec::new();
        for state in [KeyState::Active, KeyState::Retiring] {
            for StoredKey { kid, alg, secret, .. } in self.keys.iter().filter(|key| key.state == state) {
                let secret = secret.as_ref().and_then(|secret| STANDARD.decode(secret.as_bytes()).ok());
                let key = secret.and_then(|secret| SigningKey::read(*alg, &Zeroizing::new(secret)));
                // A secret has the id that its users have agreed on.
                let key = key.map(|key| if *alg == Algorithm::Hs256 { key.named(kid) } else { key });
                let key = key.filter(|key| key.verifying().kid() == kid);
                keys.push(key.ok_or_else(|| {
                    malformed(format!("the secret of `{kid}` is not a key of {alg} with that thumbprint"))
                })?);
            }
        }
        if !self.keys.iter().any(|key| key.state == KeyState::Active) {
            return Err(malformed("it has no active key".to_owned()));
        }
        Ok(CurrentKeys { keys })
    }
}

impl StoredKey {
    fn generate(alg: Algorithm, created: Timestamp) -> Result<Self, KeysError> {
        let bytes = generate(alg).ok_or(KeysError::Random)?;
        let key = SigningKey::read(alg, &bytes).ok_or(KeysError::Random)?;
        let secret = Some(Zeroizing::new(STANDARD.encode(&*bytes)));
        Ok(Self { kid: key.verifying().kid().to_owned(), alg, state: KeyState::Active, created, secret })
    }

    fn info(&self) -> KeyInfo {
        KeyInfo { kid: self.kid.clone(), algorithm: self.alg, state: self.state, created: self.created }
    }
}

fn failed(path: &Path, doing: &'static str, error: io::Error) -> KeysError {
    let path = path.to_owned();
    if error.kind() == io::ErrorKind::NotFound && doing == "read" {
        return KeysError::Missing { path };
    }
    KeysError::Io { path, doing, error }
}

fn read(path: &Path) -> Result<(StoredKeys, Stamp), KeysError> {
    match private::read(path).map_err(|error| failed(path, "read", error))? {
        Content::Exposed => Err(KeysError::Exposed { path: path.to_owned() }),
        Content::Private(text, stamp) => {
            // Gives only the position: the parser's message could repeat a part of the secret.
            let stored = serde_json::from_str(&text).map_err(|error| KeysError::Malformed {
                path: path.to_owned(),
                problem: format!("line {}, column {}", error.line(), error.column()),
            })?;
            Ok((stored, stamp))
        }
    }
}

fn save(path: &Path, stored: &StoredKeys) -> Result<(), KeysError> {
    let text = serde_json::to_vec_pretty(stored).map(Zeroizing::new).map_err(io::Error::from);
    text.and_then(|text| private::write(path, &text)).map_err(|error| failed(path, "written", error))
}
