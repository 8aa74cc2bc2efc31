//! Secrets in the configuration: written in the file, taken from the environment, or in a file of their own.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use attache_iii::secrets;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::ConfigError;

/// The text that is printed instead of a secret.
pub(crate) const MASK: &str = "********";

/// A secret. It is printed and serialized as a mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Secret(attache::client::Secret);

impl Secret {
    /// The secret itself.
    pub(crate) fn reveal(&self) -> &str {
        self.0.reveal()
    }

    /// The secret, unless it is easy to guess or cannot be sent.
    pub(super) fn strong(self) -> Result<Self, ConfigError> {
        match secrets::flaw(self.reveal()) {
            None => Ok(self),
            Some(flaw) => {
                Err(ConfigError::new(format!("this secret {flaw}"))
                    .hint("make one with `openssl rand -hex 32`"))
            }
        }
    }

    /// Reads a secret from a file, without the line break at its end.
    pub(super) fn in_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::new(format!("`{}` cannot be read: {error}", path.display())))?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(ConfigError::new(format!("there is no secret in `{}`", path.display()))),
            text => Ok(Self(text.into())),
        }
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "At least 16 bytes; better not written here but taken from the environment.",
            "examples": ["${TOKEN}"],
        })
    }
}

/// A text that can be secret, without rules for it. It is serialized as a mask.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Masked(pub(crate) String);

impl fmt::Debug for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Masked {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::from("0123456789abcdef");
        assert_eq!(format!("{secret:?}"), "Secret((secret))");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"********\"");
    }

    #[test]
    fn a_secret_in_a_file_ends_before_its_last_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = folder.path().join("secret");
            std::fs::write(&path, text).unwrap();
            Secret::in_file(&path).map(|secret| secret.reveal().to_owned()).map_err(drop)
        };
        assert_eq!(read("abc\n").as_deref(), Ok("abc"));
        assert_eq!(read(" a b \r\n").as_deref(), Ok(" a b "));
        assert_eq!(read("\n"), Err(()));
        assert!(Secret::in_file(&folder.path().join("none")).is_err());
    }
}
