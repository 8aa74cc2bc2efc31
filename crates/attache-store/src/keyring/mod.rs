//! The keys that encrypt secrets at rest.
//!
//! A keyring is JSON, in a file that only its owner can read or in an environment variable. The current key is the first one:
//!
//! ```json
//! { "keys": [ { "id": "5f0c…", "key": "32 bytes in base64" } ] }
//! ```
//!
//! A sealed secret contains the id of its key. So old keys open their secrets until all secrets are sealed again.

mod file;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use attache_core::{Seal, SealError};
use attache_files::{self as private, Stamp};
use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use aws_lc_rs::rand;
use parking_lot::RwLock;
use zeroize::Zeroizing;

use self::file::{KeyJson, KeyringJson, decode_keys, describe, parse, read_file, read_keys, write};

/// The environment variable that can hold a keyring.
pub const KEYRING_VARIABLE: &str = "ATTACHE_KEYRING";

/// Why a keyring could not be loaded or changed, or a secret could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The file could not be read or written.
    #[error("the key file `{}` could not be {doing}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted action, as a participle.
        doing: &'static str,
        /// The error of the system.
        error: io::Error,
    },
    /// The user has no configuration directory for the key file.
    #[error("this user has no configuration directory to keep keys in: say where with `--keyring PATH`")]
    NoConfigDirectory,
    /// Other users can read the file.
    #[error("other users can read the key file `{0}`: run `chmod 600 {0}`", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// The text is not a keyring.
    #[error(
        "{origin} is not a keyring ({problem}): expected `{{\"keys\":[{{\"id\":\"…\",\"key\":\"32 bytes in base64\"}}]}}`"
    )]
    Malformed {
        /// The source of the keyring.
        origin: String,
        /// The problem.
        problem: String,
    },
    /// Only a keyring from a file can be changed.
    #[error("{origin} cannot be changed from here: put a new key in front of the others there")]
    ReadOnly {
        /// The source of the keyring.
        origin: String,
    },
    /// A secret was sealed under a key that is not in the keyring.
    #[error(
        "a secret was sealed under the key `{id}`, which is not in {origin}: put it back until all secrets are sealed again"
    )]
    UnknownKey {
        /// The id of the key.
        id: String,
        /// The source of the keyring.
        origin: String,
    },
    /// The sealed secret was changed, or belongs to something else.
    #[error(
        "a secret that was sealed under the key `{id}` does not open: it was changed, or the key is not the same"
    )]
    Broken {
        /// The id of the key.
        id: String,
    },
    /// The system provides no random bytes.
    #[error("the system provides no random bytes")]
    Random,
}

/// The keys that encrypt secrets, the current one first. Cheap to clone: all clones share the same keys.
#[derive(Clone)]
pub struct Keyring(Arc<Shared>);

struct Shared {
    origin: Origin,
    keys: RwLock<Keys>,
}

struct Keys {
    keys: Vec<Key>,
    /// The version of the file that they were read from.
    stamp: Option<Stamp>,
}

enum Origin {
    File(PathBuf),
    Text(String),
}

struct Key {
    id: String,
    key: LessSafeKey,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("origin", &self.origin()).field("ids", &self.ids()).finish()
    }
}

impl Keyring {
    /// Loads the keyring in a file. If the file does not exist, it is created with a new key, for its owner only.
    pub fn from_file(path: impl Into<PathBuf>) -> Result<Self, KeyringError> {
        let path = path.into();
        if !path.exists() {
            let failed = |error| KeyringError::Io { path: path.clone(), doing: "made", error };
            let _lock = private::lock(&path).map_err(failed)?;
            // Another process may have created it meanwhile.
            if !path.exists() {
                write(&path, &KeyringJson { keys: vec![KeyJson::random()?] }).map_err(failed)?;
            }
        }
        let keys = RwLock::new(read_keys(&path)?);
        Ok(Self(Arc::new(Shared { origin: Origin::File(path), keys })))
    }

    /// Parses the keyring in a text. `origin` names its source in error messages.
    pub fn from_json(text: &str, origin: impl Into<String>) -> Result<Self, KeyringError> {
        let origin = origin.into();
        let keys = decode_keys(&parse(text, &origin)?, &origin)?;
        Ok(Self::fixed(keys, origin))
    }

    /// Loads the keyring of this user: from `file` if it is given, else from the environment, else from `attache/keyring.json` below the
    /// configuration directory of the user.
    pub fn of_user(file: Option<&Path>) -> Result<Self, KeyringError> {
        if let Some(path) = file {
            return Self::from_file(path);
        }
        if let Some(keyring) = Self::from_env()? {
            return Ok(keyring);
        }
        let config = dirs::config_dir().ok_or(KeyringError::NoConfigDirectory)?;
        Self::from_file(config.join("attache").join("keyring.json"))
    }

    /// Loads the keyring from the environment variable [`KEYRING_VARIABLE`], if it is set.
    pub fn from_env() -> Result<Option<Self>, KeyringError> {
        match std::env::var(KEYRING_VARIABLE) {
            Ok(text) => {
                let text = Zeroizing::new(text);
                Self::from_json(&text, format!("the environment variable `{KEYRING_VARIABLE}`")).map(Some)
            }
            Err(_) => Ok(None),
        }
    }

    /// A keyring with one new key in memory only. Its secrets cannot be opened after the process ends.
    pub fn ephemeral() -> Result<Self, KeyringError> {
        let origin = "a keyring that was not stored".to_owned();
        let keys = decode_keys(&KeyringJson { keys: vec![KeyJson::random()?] }, &origin)?;
        Ok(Self::fixed(keys, origin))
    }

    fn fixed(keys: Vec<Key>, origin: String) -> Self {
        let keys = RwLock::new(Keys { keys, stamp: None });
        Self(Arc::new(Shared { origin: Origin::Text(origin), keys }))
    }

    /// Adds a new key in front of the others, also in the file, and returns its id.
    ///
    /// Older secrets still open. [`SqliteStore::reseal`](crate::SqliteStore::reseal) seals them under the new key.
    pub fn rotate(&self) -> Result<String, KeyringError> {
        self.change(|json| {
            let key = KeyJson::random()?;
            let id = key.id.clone();
            json.keys.insert(0, key);
            Ok(id)
        })
    }

    /// Removes all keys but the current one from the file, and returns their ids.
    ///
    /// Secrets under these keys cannot be opened any more. Seal them again first.
    pub fn retire_old(&self) -> Result<Vec<String>, KeyringError> {
        self.change(|json| Ok(json.keys.drain(1..).map(|key| key.id.clone()).collect()))
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut KeyringJson) -> Result<T, KeyringError>,
    ) -> Result<T, KeyringError> {
        let Origin::File(path) = &self.0.origin else {
            return Err(KeyringError::ReadOnly { origin: self.origin() });
        };
        let mut keys = self.0.keys.write();
        let failed = |error| KeyringError::Io { path: path.clone(), doing: "written", error };
        // Without the lock, a key that another process adds at the same time would be lost.
        let _lock = private::lock(path).map_err(failed)?;
        let (mut json, _) = read_file(path)?;
        let result = change(&mut json)?;
        write(path, &json).map_err(failed)?;
        *keys = read_keys(path)?;
        Ok(result)
    }

    /// The ids of the keys, the current one first.
    pub fn ids(&self) -> Vec<String> {
        self.0.keys.read().keys.iter().map(|key| key.id.clone()).collect()
    }

    /// The source of the keyring, for messages.
    fn origin(&self) -> String {
        match &self.0.origin {
            Origin::File(path) => describe(path),
            Origin::Text(origin) => origin.clone(),
        }
    }

    /// Reads the file again if another process has changed it. Called before sealing, so that no secret is sealed under a retired key.
    fn refresh(&self) -> Result<(), KeyringError> {
        let Origin::File(path) = &self.0.origin else { return Ok(()) };
        let failed = |error| KeyringError::Io { path: path.clone(), doing: "read", error };
        let now = Some(Stamp::of(path).map_err(failed)?);
        if self.0.keys.read().stamp != now {
            *self.0.keys.write() = read_keys(path)?;
        }
        Ok(())
    }

    /// Seals a secret for one purpose under the current key.
    pub(crate) fn seal(&self, purpose: &[u8], secret: &[u8]) -> Result<Vec<u8>, KeyringError> {
        self.refresh()?;
        let keys = self.0.keys.read();
        let Some(Key { id, key }) = keys.keys.first() else { return Err(KeyringError::Random) };
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).map_err(|_| KeyringError::Random)?;
        let mut sealed = secret.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(purpose), &mut sealed)
            .map_err(|_| KeyringError::Broken { id: id.clone() })?;
        // Loading a keyring ensures that an id has at most 255 bytes.
        let mut out = vec![FORMAT, id.len() as u8];
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// Opens a secret that was sealed for the same purpose.
    pub(crate) fn open(&self, purpose: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
        let Some((id, nonce, sealed)) = parse_sealed(sealed) else {
            return Err(KeyringError::Broken { id: "?".to_owned() });
        };
        if !self.0.keys.read().keys.iter().any(|key| key.id == id) {
            self.refresh()?;
        }
        let keys = self.0.keys.read();
        let Some(Key { key, .. }) = keys.keys.iter().find(|key| key.id == id) else {
            return Err(KeyringError::UnknownKey { id: id.to_owned(), origin: self.origin() });
        };
        let mut plain = Zeroizing::new(sealed.to_vec());
        let length = key
            .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(purpose), &mut plain)
            .map_err(|_| KeyringError::Broken { id: id.to_owned() })?
            .len();
        plain.truncate(length);
        Ok(plain)
    }

    /// Whether a secret is sealed under the current key.
    pub(crate) fn is_current(&self, sealed: &[u8]) -> Result<bool, KeyringError> {
        self.refresh()?;
        let keys = self.0.keys.read();
        Ok(parse_sealed(sealed).is_some_and(|(id, ..)| keys.keys.first().is_some_and(|key| key.id == id)))
    }
}

impl Seal for Keyring {
    fn seal(&self, purpose: &[u8], secret: &[u8]) -> Result<Vec<u8>, SealError> {
        Self::seal(self, purpose, secret).map_err(SealError::new)
    }

    fn open(&self, purpose: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        Self::open(self, purpose, sealed).map(|plain| plain.to_vec()).map_err(SealError::new)
    }
}

/// The first byte of a sealed secret. The length of the key id, the key id, the nonce, the ciphertext and its tag follow.
const FORMAT: u8 = 1;

/// Splits a sealed secret into key id, nonce and ciphertext.
fn parse_sealed(sealed: &[u8]) -> Option<(&str, [u8; NONCE_LEN], &[u8])> {
    let [FORMAT, length, rest @ ..] = sealed else { return None };
    let (id, rest) = rest.split_at_checked(usize::from(*length))?;
    let (nonce, rest) = rest.split_first_chunk()?;
    Some((std::str::from_utf8(id).ok()?, *nonce, rest))
}

#[cfg(test)]
mod tests;
