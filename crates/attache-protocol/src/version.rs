//! The protocol version and the extensions of a request.

use std::fmt;
use std::str::FromStr;

use crate::{Error, limits};

/// A protocol version. Patch numbers are irrelevant, so there is none.
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
    /// The next version, with task generations.
    pub const V1_1: Self = Self { major: 1, minor: 1 };
    /// The version of a request that states none, according to the specification.
    pub const V0_3: Self = Self { major: 0, minor: 3 };
    /// The first version, with `tasks/send`.
    pub const V0_1: Self = Self { major: 0, minor: 1 };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = ();

    /// Parses `Major.Minor` with an optional patch number, which is ignored.
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

/// The extension URIs of a request, in order and without duplicates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extensions(Vec<String>);

impl Extensions {
    /// Parses the values of all `A2A-Extensions` headers of a request. It stops at one more than [`limits::EXTENSIONS`], which
    /// [`validate`](Self::validate) then rejects: the search for duplicates among any number of URIs would be slow.
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

    /// Checks the number of URIs and their lengths.
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

    /// Whether the request has exactly this URI. Another version of an extension is another extension.
    pub fn contains(&self, uri: &str) -> bool {
        self.0.iter().any(|known| known == uri)
    }

    /// The URIs, in the order of the request.
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
        let extensions = Extensions::parse(["urn:a, urn:b", "urn:c,,urn:a "]);
        assert_eq!(extensions.iter().collect::<Vec<_>>(), ["urn:a", "urn:b", "urn:c"]);
        assert!(!extensions.contains("urn:a/v2"));
    }
}
