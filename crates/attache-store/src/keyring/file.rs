//! The file of a keyring, and its JSON.

use std::io;
use std::path::Path;

use attache_files::{self as private, Content, Stamp};
use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{Key, KeyringError, Keys};

/// The JSON of a keyring.
#[derive(Serialize, Deserialize)]
pub(super) struct KeyringJson {
    pub(super) keys: Vec<KeyJson>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct KeyJson {
    pub(super) id: String,
    key: Zeroizing<String>,
}

impl KeyJson {
    pub(super) fn random() -> Result<Self, KeyringError> {
        let (mut id, mut secret) = ([0; 8], Zeroizing::new([0; 32]));
        rand::fill(&mut id).map_err(|_| KeyringError::Random)?;
        rand::fill(&mut *secret).map_err(|_| KeyringError::Random)?;
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { id, key: Zeroizing::new(STANDARD.encode(*secret)) })
    }
}

pub(super) fn describe(path: &Path) -> String {
    format!("the key file `{}`", path.display())
}

pub(super) fn parse(text: &str, origin: &str) -> Result<KeyringJson, KeyringError> {
    // The message of the parser can repeat a part of the text, so only its position is reported.
    serde_json::from_str(text).map_err(|error| KeyringError::Malformed {
        origin: origin.to_owned(),
        problem: format!("line {}, column {}", error.line(), error.column()),
    })
}

pub(super) fn decode_keys(json: &KeyringJson, origin: &str) -> Result<Vec<Key>, KeyringError> {
    let malformed = |problem: String| KeyringError::Malformed { origin: origin.to_owned(), problem };
    if json.keys.is_empty() {
        return Err(malformed("it has no keys".to_owned()));
    }
    let mut keys: Vec<Key> = Vec::with_capacity(json.keys.len());
    for KeyJson { id, key } in &json.keys {
        if id.is_empty() || id.len() > 255 || keys.iter().any(|other| other.id == *id) {
            return Err(malformed(format!("the id `{id}` is empty, too long, or not unique")));
        }
        let bytes = Zeroizing::new(STANDARD.decode(key.as_bytes()).unwrap_or_default());
        let key = UnboundKey::new(&AES_256_GCM, &bytes)
            .map_err(|_| malformed(format!("the key `{id}` is not 32 bytes in base64")))?;
        keys.push(Key { id: id.clone(), key: LessSafeKey::new(key) });
    }
    Ok(keys)
}

pub(super) fn read_file(path: &Path) -> Result<(KeyringJson, Stamp), KeyringError> {
    match private::read(path) {
        Ok(Content::Private(text, stamp)) => Ok((parse(&text, &describe(path))?, stamp)),
        Ok(Content::Exposed) => Err(KeyringError::Exposed { path: path.to_owned() }),
        Err(error) => Err(KeyringError::Io { path: path.to_owned(), doing: "read", error }),
    }
}

pub(super) fn read_keys(path: &Path) -> Result<Keys, KeyringError> {
    let (json, stamp) = read_file(path)?;
    Ok(Keys { keys: decode_keys(&json, &describe(path))?, stamp: Some(stamp) })
}

pub(super) fn write(path: &Path, json: &KeyringJson) -> io::Result<()> {
    let text = Zeroizing::new(serde_json::to_vec_pretty(json)?);
    private::write(path, &text)
}
