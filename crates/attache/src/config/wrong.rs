//! What is wrong with a configuration file.

use std::fmt;
use std::path::Path;

use attache_iii::variables::nearest;

use super::tree::Place;
use crate::command::Failure;

/// What is wrong, where, and what would be right.
#[derive(Debug)]
pub(crate) struct Wrong {
    place: Option<Place>,
    /// The keys that lead there, if what is wrong is a value.
    path: Option<String>,
    text: String,
    hint: Option<String>,
}

impl Wrong {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { place: None, path: None, text: text.into(), hint: None }
    }

    pub(crate) fn at(place: Place, text: impl Into<String>) -> Self {
        Self { place: Some(place), ..Self::new(text) }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, about the value there unless it is known better.
    pub(super) fn or_at(mut self, place: Place, path: &str) -> Self {
        if self.place.is_none() {
            (self.place, self.path) = (Some(place), Some(path.to_owned()).filter(|path| !path.is_empty()));
        }
        self
    }

    /// As an error of the command.
    pub(crate) fn in_file(self, file: &Path) -> Failure {
        let place = self.place.map(|place| format!(":{place}")).unwrap_or_default();
        let path = self.path.map(|path| format!("`{path}`: ")).unwrap_or_default();
        let failure = Failure::usage(format!("{}{place}: {path}{}", file.display(), self.text));
        match self.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Wrong {}

impl serde::de::Error for Wrong {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::new(text.to_string())
    }

    fn invalid_type(found: serde::de::Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        // As people call it who do not write Rust.
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
        let wrong = Self::new(format!("there is no setting `{field}` here"));
        match nearest(field, known.iter().copied()) {
            Some(near) => wrong.hint(format!("did you mean `{near}`?")),
            None => wrong.hint(format!("there are {}", listed(known))),
        }
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Self {
        let wrong = Self::new(format!("`{word}` is none of {}", listed(known)));
        match nearest(word, known.iter().copied()) {
            Some(near) => wrong.hint(format!("did you mean `{near}`?")),
            None => wrong,
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is missing"))
    }
}

fn listed(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}
