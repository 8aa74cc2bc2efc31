//! What a request says about itself besides its body: the protocol version and the extensions it asks for.

use std::fmt;
use std::str::FromStr;

use crate::{Error, limits};

/// A protocol version. Patch numbers never matter, so there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// The major number.
    pub major: u16,
    /// The minor number.
    pub minor: u16,
}

impl Version {
    /// The first stable protocol.
    pub const V1_0: Self = Self { major: 1, minor: 0 };
    /// The coming one, with task generations.
    pub const V1_1: Self = Self { major: 1, minor: 1 };
    /// What a request without a version speaks, by the letter of the specification.
    pub const V0_3: Self = Self { major: 0, minor: 3 };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = ();

    /// Reads `Major.Minor` with an optional patch number, which is dropped.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut numbers = text.trim().split('.').map(|number| {
            let digits = number.bytes().all(|b| b.is_ascii_digit());
            number.parse::<u16>().ok().filter(|_| digits).ok_or(())
        });
        let version = Self { major: numbers.next().ok_or(())??, minor: numbers.next().ok_or(())?? };
        if let Some(patch) = numbers.next() {
            patch?;
        }
        if numbers.next().is_some() { Err(()) } else { Ok(version) }
    }
}

/// The extension URIs that a request asks for, in order and without repeats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extensions(Vec<String>);

impl Extensions {
    /// Reads the values of all `A2A-Extensions` fields of a request. Of more than [`limits::EXTENSIONS`] one too many is read, which
    /// [`validate`](Self::validate) refuses: looking for repeats among any number of them would take long.
    pub fn parse<'a>(fields: impl IntoIterator<Item = &'a str>) -> Self {
        let mut uris: Vec<String> = Vec::new();
        for uri in fields.into_iter().flat_map(|field| field.split(',')).map(str::trim) {
            if uris.len() > limits::EXTENSIONS {
                break;
            }
            if !uri.is_empty() && !uris.iter().any(|known| known == uri) {
                uris.push(uri.to_owned());
            }
        }
        Self(uris)
    }

    /// Checks that there are not too many, and none that is too long.
    pub fn validate(&self) -> Result<(), Error> {
        let (count, length) = (limits::EXTENSIONS, limits::EXTENSION_URI);
        if self.0.len() > count {
            return Err(Error::invalid_params("A2A-Extensions", format!("expected at most {count} URIs")));
        }
        match self.0.iter().find(|uri| uri.len() > length) {
            Some(uri) => {
                let text = format!("a URI has {} bytes, expected at most {length}", uri.len());
                Err(Error::invalid_params("A2A-Extensions", text))
            }
            None => Ok(()),
        }
    }

    /// Whether `uri` is among them, to the letter: another version of an extension is another extension.
    pub fn contains(&self, uri: &str) -> bool {
        self.0.iter().any(|known| known == uri)
    }

    /// The URIs in the order they were asked for.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_numbers_do_not_matter() {
        assert_eq!("1.0".parse(), Ok(Version::V1_0));
        assert_eq!(" 1.0.7 ".parse(), Ok(Version::V1_0));
        assert_eq!("0.3.0".parse(), Ok(Version::V0_3));
        for text in ["", "1", "v1.0", "abc", "1.0.x", "1.0.0.0", "1.", "-1.0", "1.+0", "99999999.0"] {
            assert_eq!(text.parse::<Version>(), Err(()), "{text}");
        }
    }

    #[test]
    fn extensions_come_from_repeated_fields_and_comma_lists() {
        let asked = Extensions::parse(["urn:a, urn:b", "urn:c,,urn:a "]);
        assert_eq!(asked.iter().collect::<Vec<_>>(), ["urn:a", "urn:b", "urn:c"]);
        assert!(!asked.contains("urn:a/v2"));
    }
}
