//! Where tasks are kept, as it is written on a command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A store, as it is written on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// For as long as the process runs.
    Memory,
    /// In a file.
    Sqlite(PathBuf),
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            _ => Err("expected `memory:` or `sqlite:PATH`".to_owned()),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_a_url() {
        assert_eq!("memory:".parse(), Ok(StoreUrl::Memory));
        assert_eq!("sqlite:/a b/c.db".parse(), Ok(StoreUrl::Sqlite("/a b/c.db".into())));
        assert_eq!("sqlite:rel.db".parse::<StoreUrl>().unwrap().to_string(), "sqlite:rel.db");
        for bad in ["", "memory", "memory:x", "sqlite:", "postgres://x", "/a.db"] {
            assert!(bad.parse::<StoreUrl>().is_err(), "{bad}");
        }
    }
}
