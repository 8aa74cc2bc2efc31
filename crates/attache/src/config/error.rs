//! Errors in a configuration file.

use std::fmt;
use std::path::Path;

use attache_iii::variables::nearest;

use super::tree::Position;
use crate::command::Failure;

/// An error with its position and a hint.
#[derive(Debug)]
pub(crate) struct ConfigError {
    position: Option<Position>,
    /// The path of keys, if the error is about a value.
    path: Option<String>,
    /// The path of the entry that is wrong. Without this entry the file would not have this error.
    pub(super) culprit: String,
    text: String,
    hint: Option<String>,
}

impl ConfigError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { position: None, path: None, culprit: String::new(), text: text.into(), hint: None }
    }

    pub(crate) fn at(position: Position, text: impl Into<String>) -> Self {
        Self { position: Some(position), ..Self::new(text) }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the position of a value, unless the error has a position.
    pub(super) fn or_at(mut self, position: Position, path: &str) -> Self {
        if self.position.is_none() {
            (self.position, self.path) =
                (Some(position), Some(path.to_owned()).filter(|path| !path.is_empty()));
            path.clone_into(&mut self.culprit);
        }
        self
    }

    /// Names the entry that is wrong.
    pub(super) fn blame(mut self, culprit: &str) -> Self {
        culprit.clone_into(&mut self.culprit);
        self
    }

    /// Adds the position of a key that is wrong, unless the error has a position. `above` is the path that the key stands below.
    pub(super) fn or_at_key(mut self, position: Position, above: &str, culprit: &str) -> Self {
        if self.position.is_none() {
            self = self.or_at(position, above).blame(culprit);
        }
        self
    }

    /// Turns it into a failure of the command.
    pub(crate) fn in_file(self, file: &Path) -> Failure {
        let position = self.position.map(|position| format!(":{position}")).unwrap_or_default();
        let path = self.path.map(|path| format!("`{path}`: ")).unwrap_or_default();
        let failure = Failure::usage(format!("{}{position}: {path}{}", file.display(), self.text));
        match self.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ConfigError {}

impl serde::de::Error for ConfigError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::new(text.to_string())
    }

    fn invalid_type(found: serde::de::Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        // serde's names of types are Rust's. Users know others.
        let expected = match expected.to_string().as_str() {
            "a sequence" => "a list".to_owned(),
            "a string" => "text".to_owned(),
            "a boolean" => "`true` or `false`".to_owned(),
            other => other.to_owned(),
        };
        Self::new(format!("expected {expected}, not {found}"))
    }

    fn invalid_value(found: serde::de::Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let error = Self::new(format!("there is no setting `{field}` here"));
        match nearest(field, known.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error.hint(format!("there are {}", listed(known))),
        }
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        let error = Self::new(format!("`{word}` is none of {}", listed(known)));
        match nearest(word, known.iter().copied()) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error,
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is missing"))
    }
}

fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
