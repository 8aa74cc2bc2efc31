//! The keys under which secrets are sealed.
//!
//! A keyring is JSON, in a file that only its owner can read or in an environment variable, with the key in use first:
//!
//! ```json
//! { "keys": [ { "id": "5f0c…", "key": "32 bytes in base64" } ] }
//! ```
//!
//! What is sealed names its key, so that older keys open what they sealed until everything is sealed anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use attache_signing::private::{self, Content, Stamp};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The environment variable that can hold a keyring.
pub const KEYRING_VARIABLE: &str = "ATTACHE_KEYRING";

/// Why there is no keyring, or why it does not open something.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
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
    /// There is no place to keep keys in.
    #[error("this user has no configuration directory to keep keys in: say where with `--keyring PATH`")]
    Homeless,
    /// Others than its owner can read the file.
    #[error("others can read the key file `{0}`: run `chmod 600 {0}`", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// It is not a keyring.
    #[error(
        "{origin} is not a keyring ({problem}): expected `{{\"keys\":[{{\"id\":\"…\",\"key\":\"32 bytes in base64\"}}]}}`"
    )]
    Malformed {
        /// Where it came from.
        origin: String,
        /// What was wrong.
        problem: String,
    },
    /// A keyring that did not come from a file cannot be changed.
    #[error("{origin} cannot be changed from here: put a new key in front of the others there")]
    Fixed {
        /// Where it came from.
        origin: String,
    },
    /// Something was sealed under a key that is not here.
    #[error(
        "a secret was sealed under the key `{id}`, which is not in {origin}: put it back until everything is sealed anew"
    )]
    UnknownKey {
        /// The key.
        id: String,
        /// Where the keyring came from.
        origin: String,
    },
    /// What was sealed has been changed, or was sealed for something else.
    #[error(
        "a secret that was sealed under the key `{id}` does not open: it was changed, or the key is not the same"
    )]
    Broken {
        /// The key.
        id: String,
    },
    /// The system gave no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

/// The keys under which secrets are sealed, the one in use first. Cheap to clone; all clones are one keyring.
#[derive(Clone)]
pub struct Keyring(Arc<Shared>);

struct Shared {
    origin: Origin,
    keys: RwLock<Keys>,
}

struct Keys {
    keys: Vec<Key>,
    /// The file as it was when they were read.
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

/// The form in the file.
#[derive(Serialize, Deserialize)]
struct Form {
    keys: Vec<KeyForm>,
}

#[derive(Serialize, Deserialize)]
struct KeyForm {
    id: String,
    key: Zeroizing<String>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("origin", &self.origin()).field("ids", &self.ids()).finish()
    }
}

impl Keyring {
    /// The keyring in a file. If there is no such file, one is made with a new key, for its owner only.
    pub fn from_file(path: impl Into<PathBuf>) -> Result<Self, KeyringError> {
        let path = path.into();
        if !path.exists() {
            let failed = |error| KeyringError::Io { path: path.clone(), doing: "made", error };
            let _lock = private::lock(&path).map_err(failed)?;
            // Someone else may have been quicker: theirs is the one.
            if !path.exists() {
                write(&path, &Form { keys: vec![KeyForm::random()?] }).map_err(failed)?;
            }
        }
        let keys = RwLock::new(read_keys(&path)?);
        Ok(Self(Arc::new(Shared { origin: Origin::File(path), keys })))
    }

    /// The keyring in a text, which came from `origin`.
    pub fn from_json(text: &str, origin: impl Into<String>) -> Result<Self, KeyringError> {
        let origin = origin.into();
        let keys = keys_of(&parse(text, &origin)?, &origin)?;
        Ok(Self::fixed(keys, origin))
    }

    /// The keyring of this user: in the file that is named, or else in the environment, or else in `attache/keyring.json` below the
    /// user's configuration directory.
    pub fn of_user(file: Option<&Path>) -> Result<Self, KeyringError> {
        if let Some(path) = file {
            return Self::from_file(path);
        }
        if let Some(keyring) = Self::from_env()? {
            return Ok(keyring);
        }
        let config = dirs::config_dir().ok_or(KeyringError::Homeless)?;
        Self::from_file(config.join("attache").join("keyring.json"))
    }

    /// The keyring in the environment variable [`KEYRING_VARIABLE`], if it is set.
    pub fn from_env() -> Result<Option<Self>, KeyringError> {
        match std::env::var(KEYRING_VARIABLE) {
            Ok(text) => {
                let text = Zeroizing::new(text);
                Self::from_json(&text, format!("the environment variable `{KEYRING_VARIABLE}`")).map(Some)
            }
            Err(_) => Ok(None),
        }
    }

    /// A keyring with one new key that is kept nowhere: what is sealed under it is lost with it.
    pub fn ephemeral() -> Result<Self, KeyringError> {
        let origin = "a keyring that was not kept".to_owned();
        let keys = keys_of(&Form { keys: vec![KeyForm::random()?] }, &origin)?;
        Ok(Self::fixed(keys, origin))
    }

    fn fixed(keys: Vec<Key>, origin: String) -> Self {
        let keys = RwLock::new(Keys { keys, stamp: None });
        Self(Arc::new(Shared { origin: Origin::Text(origin), keys }))
    }

    /// Puts a new key in front of the others, in the file too. Its id.
    ///
    /// What was sealed before still opens; see [`SqliteStore::reseal`](crate::SqliteStore::reseal).
    pub fn rotate(&self) -> Result<String, KeyringError> {
        self.change(|form| {
            let key = KeyForm::random()?;
            let id = key.id.clone();
            form.keys.insert(0, key);
            Ok(id)
        })
    }

    /// Takes all keys but the one in use out of the file. Their ids.
    ///
    /// What is still sealed under them cannot be opened any more: seal it anew first.
    pub fn retire_old(&self) -> Result<Vec<String>, KeyringError> {
        self.change(|form| Ok(form.keys.drain(1..).map(|key| key.id.clone()).collect()))
    }

    fn change<T>(&self, act: impl FnOnce(&mut Form) -> Result<T, KeyringError>) -> Result<T, KeyringError> {
        let Origin::File(path) = &self.0.origin else {
            return Err(KeyringError::Fixed { origin: self.origin() });
        };
        let mut keys = self.0.keys.write();
        let failed = |error| KeyringError::Io { path: path.clone(), doing: "written", error };
        // Another process may be about to add a key, which would be lost.
        let _lock = private::lock(path).map_err(failed)?;
        let (mut form, _) = read_file(path)?;
        let result = act(&mut form)?;
        write(path, &form).map_err(failed)?;
        *keys = read_keys(path)?;
        Ok(result)
    }

    /// The ids of the keys, the one in use first.
    pub fn ids(&self) -> Vec<String> {
        self.0.keys.read().keys.iter().map(|key| key.id.clone()).collect()
    }

    /// Where the keyring came from, in words.
    fn origin(&self) -> String {
        match &self.0.origin {
            Origin::File(path) => describe(path),
            Origin::Text(origin) => origin.clone(),
        }
    }

    /// Takes note of what others have done to the file. Before anything is sealed, so that it is not under a key that is gone.
    fn refresh(&self) -> Result<(), KeyringError> {
        let Origin::File(path) = &self.0.origin else { return Ok(()) };
        let failed = |error| KeyringError::Io { path: path.clone(), doing: "read", error };
        let now = Some(Stamp::of(path).map_err(failed)?);
        if self.0.keys.read().stamp != now {
            *self.0.keys.write() = read_keys(path)?;
        }
        Ok(())
    }

    /// Seals a secret for one purpose under the key in use.
    pub(crate) fn seal(&self, purpose: &[u8], secret: &[u8]) -> Result<Vec<u8>, KeyringError> {
        self.refresh()?;
        let keys = self.0.keys.read();
        let Some(Key { id, key }) = keys.keys.first() else { return Err(KeyringError::Random) };
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).map_err(|_| KeyringError::Random)?;
        let mut sealed = secret.to_vec();
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(purpose), &mut sealed)
            .map_err(|_| KeyringError::Broken { id: id.clone() })?;
        // The id is at most 255 bytes, which reading a keyring sees to.
        let mut out = vec![FORMAT, id.len() as u8];
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// Opens what was sealed for the same purpose.
    pub(crate) fn open(&self, purpose: &[u8], sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyringError> {
        let Some((id, nonce, sealed)) = take_apart(sealed) else {
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

    /// Whether something is sealed under the key in use.
    pub(crate) fn is_current(&self, sealed: &[u8]) -> Result<bool, KeyringError> {
        self.refresh()?;
        let keys = self.0.keys.read();
        Ok(take_apart(sealed).is_some_and(|(id, ..)| keys.keys.first().is_some_and(|key| key.id == id)))
    }
}

/// The first byte of what is sealed: one for the key id's length, the id, the nonce, the secret and its tag follow.
const FORMAT: u8 = 1;

fn take_apart(sealed: &[u8]) -> Option<(&str, [u8; NONCE_LEN], &[u8])> {
    let [FORMAT, length, rest @ ..] = sealed else { return None };
    let (id, rest) = rest.split_at_checked(usize::from(*length))?;
    let (nonce, rest) = rest.split_first_chunk()?;
    Some((std::str::from_utf8(id).ok()?, *nonce, rest))
}

impl KeyForm {
    fn random() -> Result<Self, KeyringError> {
        let (mut id, mut secret) = ([0; 8], Zeroizing::new([0; 32]));
        rand::fill(&mut id).map_err(|_| KeyringError::Random)?;
        rand::fill(&mut *secret).map_err(|_| KeyringError::Random)?;
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { id, key: Zeroizing::new(STANDARD.encode(*secret)) })
    }
}

fn describe(path: &Path) -> String {
    format!("the key file `{}`", path.display())
}

fn parse(text: &str, origin: &str) -> Result<Form, KeyringError> {
    // The parser's message could repeat a piece of the text, so it only says where.
    serde_json::from_str(text).map_err(|error| KeyringError::Malformed {
        origin: origin.to_owned(),
        problem: format!("line {}, column {}", error.line(), error.column()),
    })
}

fn keys_of(form: &Form, origin: &str) -> Result<Vec<Key>, KeyringError> {
    let malformed = |problem: String| KeyringError::Malformed { origin: origin.to_owned(), problem };
    if form.keys.is_empty() {
        return Err(malformed("it has no keys".to_owned()));
    }
    let mut keys: Vec<Key> = Vec::with_capacity(form.keys.len());
    for KeyForm { id, key } in &form.keys {
        if id.is_empty() || id.len() > 255 || keys.iter().any(|known| known.id == *id) {
            return Err(malformed(format!("the id `{id}` is empty, too long, or there twice")));
        }
        let bytes = Zeroizing::new(STANDARD.decode(key.as_bytes()).unwrap_or_default());
        let key = UnboundKey::new(&AES_256_GCM, &bytes)
            .map_err(|_| malformed(format!("the key `{id}` is not 32 bytes in base64")))?;
        keys.push(Key { id: id.clone(), key: LessSafeKey::new(key) });
    }
    Ok(keys)
}

fn read_file(path: &Path) -> Result<(Form, Stamp), KeyringError> {
    match private::read(path) {
        Ok(Content::Private(text, stamp)) => Ok((parse(&text, &describe(path))?, stamp)),
        Ok(Content::Exposed) => Err(KeyringError::Exposed { path: path.to_owned() }),
        Err(error) => Err(KeyringError::Io { path: path.to_owned(), doing: "read", error }),
    }
}

fn read_keys(path: &Path) -> Result<Keys, KeyringError> {
    let (form, stamp) = read_file(path)?;
    Ok(Keys { keys: keys_of(&form, &describe(path))?, stamp: Some(stamp) })
}

fn write(path: &Path, form: &Form) -> io::Result<()> {
    let text = Zeroizing::new(serde_json::to_vec_pretty(form)?);
    private::write(path, &text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn keyring() -> (tempfile::TempDir, Keyring) {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Keyring::from_file(dir.path().join("keys/keyring.json")).unwrap();
        (dir, keyring)
    }

    #[test]
    fn what_is_sealed_opens_for_its_purpose_only() {
        let (_dir, keyring) = keyring();
        let sealed = keyring.seal(b"task 1", b"secret").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_eq!(**keyring.open(b"task 1", &sealed).unwrap(), *b"secret");
        assert!(matches!(keyring.open(b"task 2", &sealed), Err(KeyringError::Broken { .. })));
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(matches!(keyring.open(b"task 1", &changed), Err(KeyringError::Broken { .. })));
        for length in 0..sealed.len() {
            assert!(keyring.open(b"task 1", &sealed[..length]).is_err());
        }
    }

    #[test]
    fn old_keys_open_what_they_sealed_until_they_are_retired() {
        let (_dir, keyring) = keyring();
        let old = keyring.ids().remove(0);
        let sealed = keyring.seal(b"", b"secret").unwrap();
        let new = keyring.rotate().unwrap();
        assert_eq!(keyring.ids(), [new.clone(), old.clone()]);
        assert!(!keyring.is_current(&sealed).unwrap() && keyring.open(b"", &sealed).is_ok());
        assert_eq!(keyring.retire_old().unwrap().join(","), old);
        let error = keyring.open(b"", &sealed).unwrap_err();
        assert!(error.to_string().contains(&old), "{error}");
    }

    #[test]
    fn a_key_that_another_process_added_is_found() {
        let (dir, ours) = keyring();
        let theirs = Keyring::from_file(dir.path().join("keys/keyring.json")).unwrap();
        theirs.rotate().unwrap();
        let sealed = theirs.seal(b"", b"secret").unwrap();
        assert_eq!(**ours.open(b"", &sealed).unwrap(), *b"secret");
        assert_eq!(ours.ids(), theirs.ids());
    }

    #[test]
    fn nothing_is_sealed_under_a_key_that_another_process_retired() {
        let (dir, ours) = keyring();
        let theirs = Keyring::from_file(dir.path().join("keys/keyring.json")).unwrap();
        let before = ours.seal(b"", b"secret").unwrap();
        let new = theirs.rotate().unwrap();
        theirs.retire_old().unwrap();
        assert!(!ours.is_current(&before).unwrap());
        assert!(theirs.open(b"", &ours.seal(b"", b"secret").unwrap()).is_ok());
        assert_eq!(ours.ids(), [new]);
        fs::remove_file(dir.path().join("keys/keyring.json")).unwrap();
        assert!(ours.seal(b"", b"secret").is_err());
    }

    #[test]
    fn processes_that_add_keys_at_once_lose_none() {
        let (dir, ours) = keyring();
        let path = dir.path().join("keys/keyring.json");
        let added: Vec<String> = std::thread::scope(|scope| {
            let rotate = || Keyring::from_file(&path).unwrap().rotate().unwrap();
            let processes: Vec<_> = (0..8).map(|_| scope.spawn(rotate)).collect();
            processes.into_iter().map(|process| process.join().unwrap()).collect()
        });
        ours.seal(b"", b"secret").unwrap();
        let ids = ours.ids();
        assert!(ids.len() == 9 && added.iter().all(|id| ids.contains(id)), "{ids:?}");
    }

    #[test]
    fn processes_that_make_a_keyring_at_once_make_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys/keyring.json");
        let made: Vec<_> = std::thread::scope(|scope| {
            let make = || Keyring::from_file(&path).unwrap().ids();
            let processes: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            processes.into_iter().map(|process| process.join().unwrap()).collect()
        });
        assert!(made.iter().all(|ids| *ids == made[0]), "{made:?}");
    }

    #[cfg(unix)]
    #[test]
    fn the_key_file_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let (dir, keyring) = keyring();
        let path = dir.path().join("keys/keyring.json");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        keyring.rotate().unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = Keyring::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_keyring_can_come_from_a_text_but_not_change_it() {
        let secret = STANDARD.encode([7; 32]);
        let text = format!(r#"{{"keys":[{{"id":"a","key":"{secret}"}},{{"id":"b","key":"{secret}"}}]}}"#);
        let keyring = Keyring::from_json(&text, "here").unwrap();
        assert_eq!(keyring.ids(), ["a", "b"]);
        assert!(matches!(keyring.rotate(), Err(KeyringError::Fixed { .. })));
        assert!(!format!("{keyring:?}").contains(&secret));
    }

    #[test]
    fn what_is_not_a_keyring_is_refused_without_repeating_it() {
        for text in [
            "",
            "s3cret",
            r#"{"keys":[]}"#,
            r#"{"keys":[{"id":"a","key":"s3cret"}]}"#,
            r#"{"keys":[{"id":"","key":""}]}"#,
        ] {
            let error = Keyring::from_json(text, "here").unwrap_err().to_string();
            assert!(error.contains("here") && !error.contains("s3cret"), "{error}");
        }
    }
}
