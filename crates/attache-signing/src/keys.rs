//! The keys of a server, and how one follows another.
//!
//! They are JSON in a file that only its owner can read:
//!
//! ```json
//! { "keys": [ { "kid": "NzbL…", "alg": "ES256", "state": "active", "created": "2026-01-02T03:04:05Z", "secret": "base64" } ] }
//! ```
//!
//! The secret is PKCS #8, or for `HS256` the bytes of the secret itself. A key is *active*, then *retiring*, then *retired*. In
//! the first two states it signs and is published, so that those who know only the old key and those who know only the new one both
//! find a signature they can check. A retired key is forgotten but for its name.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use attache_protocol::{AgentCard, Timestamp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::private::{self, Content, Stamp};
use crate::secret::{SigningKey, generate};
use crate::{Algorithm, KeySet, SignError, signature};

/// How often it is looked at whether somebody has changed the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why there are no keys, or why they cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// There is no such file.
    #[error("there is no key file `{}`", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file could not be read or written.
    #[error("the key file `{}` could not be {doing}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What happened.
        error: io::Error,
    },
    /// Others than its owner can read the file.
    #[error("others can read the key file `{0}`: run `chmod 600 {0}`", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// It is not a file of keys.
    #[error("`{}` is not a file of signing keys: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was wrong.
        problem: String,
    },
    /// No key is called so.
    #[error("there is no key `{0}`")]
    Unknown(String),
    /// The key is not active, so another cannot take its place.
    #[error("the key `{kid}` is {state}: only an active key can be rotated")]
    NotActive {
        /// The key.
        kid: String,
        /// Its state.
        state: KeyState,
    },
    /// The key is the only one that is active.
    #[error("the key `{0}` is the only active one: without it nothing would be signed")]
    LastActive(String),
    /// The system gave no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

/// Where in its life a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// It signs and is published.
    Active,
    /// Another has taken its place. It still signs and is published, for those who do not know the other yet.
    Retiring,
    /// It is of no use any more.
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

/// What may be known about a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyInfo {
    /// What it is called: its thumbprint (RFC 7638).
    pub kid: String,
    /// The algorithm it is for.
    #[serde(rename = "alg")]
    pub algorithm: Algorithm,
    /// Where in its life it is.
    pub state: KeyState,
    /// When it was made.
    pub created: Timestamp,
}

/// The keys of a server. Cheap to clone; all clones are the same keys.
///
/// What another process does to the file is noticed within a second of the next use. While the file cannot be read, the keys that
/// were in it stay in use.
#[derive(Clone)]
pub struct SigningKeys(Arc<Shared>);

struct Shared {
    /// Where they are kept, if anywhere.
    path: Option<PathBuf>,
    kept: Mutex<Kept>,
}

struct Kept {
    form: Form,
    current: Arc<CurrentKeys>,
    stamp: Option<Stamp>,
    looked: Instant,
    /// Whether it was said that the file cannot be read.
    complained: bool,
}

/// The form in the file.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Form {
    keys: Vec<KeyForm>,
}

#[derive(Clone, Serialize, Deserialize)]
struct KeyForm {
    kid: String,
    alg: Algorithm,
    state: KeyState,
    created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<Zeroizing<String>>,
}

/// The keys that sign at one moment. They never change: where they would, there are others.
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
    /// The card with a signature of each key, in place of those it had. `jku` is where the keys are published.
    pub fn sign(&self, card: &AgentCard, jku: Option<&str>) -> Result<AgentCard, SignError> {
        let signatures = signature::sign(card, &self.keys, jku)?;
        Ok(AgentCard { signatures, ..card.clone() })
    }

    /// The keys that everybody may check signatures with. Secrets are not among them.
    pub fn public_keys(&self) -> KeySet {
        let public = self.keys.iter().map(SigningKey::verifying);
        public.filter(|key| key.algorithm() != Algorithm::Hs256).cloned().collect()
    }

    /// All keys that signatures can be checked with, secrets included: for those who share them.
    pub fn verifying_keys(&self) -> KeySet {
        self.keys.iter().map(SigningKey::verifying).cloned().collect()
    }
}

impl SigningKeys {
    /// The keys in a file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, KeysError> {
        let path = path.into();
        let (form, stamp) = read(&path)?;
        Self::new(form, Some(path), Some(stamp))
    }

    /// Makes the file with a new key. One that is there already is replaced.
    pub fn create(
        path: impl AsRef<Path>,
        algorithm: Algorithm,
        now: Timestamp,
    ) -> Result<KeyInfo, KeysError> {
        let key = KeyForm::generate(algorithm, now)?;
        let info = key.info();
        save(path.as_ref(), &Form { keys: vec![key] })?;
        Ok(info)
    }

    /// A new key that is kept nowhere.
    pub fn in_memory(algorithm: Algorithm, now: Timestamp) -> Result<Self, KeysError> {
        Self::new(Form { keys: vec![KeyForm::generate(algorithm, now)?] }, None, None)
    }

    fn new(form: Form, path: Option<PathBuf>, stamp: Option<Stamp>) -> Result<Self, KeysError> {
        let current = Arc::new(form.current(path.as_deref().unwrap_or(Path::new("memory")))?);
        let kept = Kept { form, current, stamp, looked: Instant::now(), complained: false };
        Ok(Self(Arc::new(Shared { path, kept: Mutex::new(kept) })))
    }

    /// The keys that sign now. As long as they stay the same, so does what is pointed to.
    pub fn current(&self) -> Arc<CurrentKeys> {
        let mut kept = self.0.kept.lock();
        if let Some(path) = &self.0.path
            && kept.looked.elapsed() >= LOOK_EVERY
        {
            kept.looked = Instant::now();
            match kept.refresh(path) {
                Ok(()) => kept.complained = false,
                Err(error) if !kept.complained => {
                    tracing::warn!(%error, "the signing keys stay as they were");
                    kept.complained = true;
                }
                Err(_) => {}
            }
        }
        kept.current.clone()
    }

    /// All keys, those that have been retired included, in the order they were made.
    pub fn list(&self) -> Vec<KeyInfo> {
        self.0.kept.lock().form.keys.iter().map(KeyForm::info).collect()
    }

    /// Adds an active key beside the others.
    pub fn add(&self, algorithm: Algorithm, now: Timestamp) -> Result<KeyInfo, KeysError> {
        self.change(|form| {
            let key = KeyForm::generate(algorithm, now)?;
            let info = key.info();
            form.keys.push(key);
            Ok(info)
        })
    }

    /// Puts a new key of the same algorithm in the place of an active one, or of each if none is named. The old ones retire from
    /// now on. Returns the old with the new.
    pub fn rotate(&self, kid: Option<&str>, now: Timestamp) -> Result<Vec<(KeyInfo, KeyInfo)>, KeysError> {
        self.change(|form| {
            if let Some(kid) = kid {
                let state = form.find(kid)?.state;
                if state != KeyState::Active {
                    return Err(KeysError::NotActive { kid: kid.to_owned(), state });
                }
            }
            let mut rotated = Vec::new();
            for index in 0..form.keys.len() {
                let old = &mut form.keys[index];
                if old.state == KeyState::Active && kid.is_none_or(|kid| kid == old.kid) {
                    let new = KeyForm::generate(old.alg, now)?;
                    old.state = KeyState::Retiring;
                    rotated.push((old.info(), new.info()));
                    form.keys.push(new);
                }
            }
            Ok(rotated)
        })
    }

    /// Forgets a key, or all that are retiring if none is named. Their names stay, so that they can be told. Returns those that were
    /// retired now.
    pub fn retire(&self, kid: Option<&str>) -> Result<Vec<KeyInfo>, KeysError> {
        self.change(|form| {
            if let Some(kid) = kid {
                let active = form.keys.iter().filter(|key| key.state == KeyState::Active).count();
                if form.find(kid)?.state == KeyState::Active && active == 1 {
                    return Err(KeysError::LastActive(kid.to_owned()));
                }
            }
            let mut retired = Vec::new();
            for key in &mut form.keys {
                let chosen = kid.map_or(key.state == KeyState::Retiring, |kid| kid == key.kid);
                if chosen && key.state != KeyState::Retired {
                    (key.state, key.secret) = (KeyState::Retired, None);
                    retired.push(key.info());
                }
            }
            Ok(retired)
        })
    }

    /// Changes the keys as they are in the file now, there first.
    fn change<T>(&self, act: impl FnOnce(&mut Form) -> Result<T, KeysError>) -> Result<T, KeysError> {
        let mut kept = self.0.kept.lock();
        let _lock = match &self.0.path {
            Some(path) => {
                let lock = private::lock(path).map_err(|error| failed(path, "written", error))?;
                kept.refresh(path)?;
                Some(lock)
            }
            None => None,
        };
        let mut form = kept.form.clone();
        let result = act(&mut form)?;
        let Some(path) = &self.0.path else {
            kept.current = Arc::new(form.current(Path::new("memory"))?);
            kept.form = form;
            return Ok(result);
        };
        save(path, &form)?;
        kept.refresh(path)?;
        Ok(result)
    }
}

impl Kept {
    /// Takes note of what others have done to the file.
    fn refresh(&mut self, path: &Path) -> Result<(), KeysError> {
        let stamp = Stamp::of(path).map_err(|error| failed(path, "read", error))?;
        if self.stamp != Some(stamp) {
            let (form, stamp) = read(path)?;
            self.current = Arc::new(form.current(path)?);
            (self.form, self.stamp) = (form, Some(stamp));
        }
        Ok(())
    }
}

impl Form {
    fn find(&self, kid: &str) -> Result<&KeyForm, KeysError> {
        self.keys.iter().find(|key| key.kid == kid).ok_or_else(|| KeysError::Unknown(kid.to_owned()))
    }

    /// The keys that sign, the active ones first.
    fn current(&self, path: &Path) -> Result<CurrentKeys, KeysError> {
        let malformed = |problem: String| KeysError::Malformed { path: path.to_owned(), problem };
        let mut keys = Vec::new();
        for state in [KeyState::Active, KeyState::Retiring] {
            for KeyForm { kid, alg, secret, .. } in self.keys.iter().filter(|key| key.state == state) {
                let secret = secret.as_ref().and_then(|secret| STANDARD.decode(secret.as_bytes()).ok());
                let key = secret.and_then(|secret| SigningKey::read(*alg, &Zeroizing::new(secret)));
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

impl KeyForm {
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

fn read(path: &Path) -> Result<(Form, Stamp), KeysError> {
    match private::read(path).map_err(|error| failed(path, "read", error))? {
        Content::Exposed => Err(KeysError::Exposed { path: path.to_owned() }),
        Content::Private(text, stamp) => {
            // The parser's message could repeat a piece of the text, so it only says where.
            let form = serde_json::from_str(&text).map_err(|error| KeysError::Malformed {
                path: path.to_owned(),
                problem: format!("line {}, column {}", error.line(), error.column()),
            })?;
            Ok((form, stamp))
        }
    }
}

fn save(path: &Path, form: &Form) -> Result<(), KeysError> {
    let text = serde_json::to_vec_pretty(form).map(Zeroizing::new).map_err(io::Error::from);
    text.and_then(|text| private::write(path, &text)).map_err(|error| failed(path, "written", error))
}
