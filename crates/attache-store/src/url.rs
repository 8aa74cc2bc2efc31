//! The URL of a store, as it is written in a flag, an environment variable or a settings file.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The URL of a store, such as `memory:` or `sqlite:/var/lib/attache/tasks.db`.
///
/// The URL can hold a password. `Display` and `Debug` hide it, so that both are safe in messages and logs.
/// [`StoreUrl::to_os_string`] gives the whole text.
///
/// Parsing accepts every text. [`StoreRegistry::check`](crate::StoreRegistry::check) rejects unknown schemes: a parser of a
/// command line would repeat a rejected text with its password.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    /// Empty if the text has no scheme.
    scheme: String,
    /// The text after the scheme and its colon.
    rest: OsString,
}

/// Stands for a hidden part of a URL.
const HIDDEN: &str = "***";

/// The scheme of the store in memory.
pub(crate) const MEMORY: &str = "memory";

/// The scheme of the store in a SQLite file. The rest of the URL is a path.
pub(crate) const SQLITE: &str = "sqlite";

impl StoreUrl {
    /// The store in the memory of this process: `memory:`.
    pub fn memory() -> Self {
        Self { scheme: MEMORY.to_owned(), rest: OsString::new() }
    }

    /// The store in a SQLite file: `sqlite:PATH`.
    pub fn sqlite(path: impl Into<OsString>) -> Self {
        Self { scheme: SQLITE.to_owned(), rest: path.into() }
    }

    /// The scheme, without the colon. Empty if the text has none.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The text after the scheme and its colon. It can hold a password.
    pub fn rest(&self) -> &OsStr {
        &self.rest
    }

    /// Whether this is the store in the memory of a process.
    pub fn is_memory(&self) -> bool {
        self.scheme == MEMORY
    }

    /// The path of the file, if this is a SQLite store.
    pub fn sqlite_path(&self) -> Option<&Path> {
        (self.scheme == SQLITE).then(|| Path::new(&self.rest))
    }

    /// The whole URL with its password, for example to pass it to another process. Not for messages or logs.
    pub fn to_os_string(&self) -> OsString {
        if self.scheme.is_empty() {
            return self.rest.clone();
        }
        let mut text = OsString::from(format!("{}:", self.scheme));
        text.push(&self.rest);
        text
    }

    /// Hides the secrets of this URL in a text, for example in the message of a database driver.
    pub fn hide_secrets(&self, text: &str) -> String {
        let rest = self.rest.to_string_lossy();
        let hidden = text.replace(&*self.to_os_string().to_string_lossy(), &self.to_string());
        let user_info = rest.trim_start_matches('/').rsplit_once('@').filter(|_| !self.holds_a_path());
        match user_info
            .map(|(user_info, _)| user_info.split_once(':').map_or(user_info, |(_, password)| password))
        {
            Some(password) if !password.is_empty() => hidden.replace(password, HIDDEN),
            Some(_) | None => hidden,
        }
    }

    fn holds_a_path(&self) -> bool {
        self.scheme == SQLITE
    }
}

impl From<&str> for StoreUrl {
    fn from(text: &str) -> Self {
        let is_scheme = |scheme: &str| {
            scheme.starts_with(|c: char| c.is_ascii_lowercase())
                && scheme.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+.-".contains(c))
        };
        match text.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => {
                Self { scheme: scheme.to_owned(), rest: rest.into() }
            }
            None if text == MEMORY => Self::memory(),
            Some(_) | None => Self { scheme: String::new(), rest: text.into() },
        }
    }
}

impl FromStr for StoreUrl {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.into())
    }
}

/// Writes the URL without user information and query, which can hold a password. The path of a SQLite file is written whole.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        let rest = self.rest.to_string_lossy();
        if self.holds_a_path() { f.write_str(&rest) } else { f.write_str(&redact(&rest)) }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// Hides everything before the last `@`, the query, and an authority that is not `host` or `host:port`.
///
/// The last `@` counts, because a password can contain an `@` that is not encoded. A port that is not a number can be a password
/// whose `@` is missing.
fn redact(rest: &str) -> String {
    let (slashes, rest) = rest.strip_prefix("//").map_or(("", rest), |rest| ("//", rest));
    let (user_info, rest) = rest.rsplit_once('@').map_or(("", rest), |(_, rest)| ("***@", rest));
    let (location, query) = rest.find(['?', '#']).map_or((rest, ""), |at| (&rest[..at], "?***"));
    let (authority, path) = location.split_at(location.find('/').unwrap_or(location.len()));
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    let is_address = authority.ends_with(']') || port.chars().all(|c| c.is_ascii_digit());
    let authority = if slashes.is_empty() || is_address { authority } else { HIDDEN };
    format!("{slashes}{user_info}{authority}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> StoreUrl {
        StoreUrl::from(text)
    }

    #[test]
    fn a_url_is_split_at_its_scheme() {
        assert_eq!(
            (url("memory:"), url("sqlite:/a b/c.db")),
            (StoreUrl::memory(), StoreUrl::sqlite("/a b/c.db"))
        );
        assert_eq!(url("sqlite:rel.db").sqlite_path(), Some(Path::new("rel.db")));
        assert_eq!(url("postgres://h/d").sqlite_path(), None);
        assert_eq!(url("memory"), StoreUrl::memory());
        for text in ["", "memory2", "/a.db", "C:\\a.db", "9p:x", "a b:c"] {
            assert_eq!((url(text).scheme(), url(text).rest()), ("", OsStr::new(text)), "{text}");
        }
    }

    #[test]
    fn the_whole_text_is_kept() {
        for text in ["memory:", "sqlite:a@b?c.db", "postgres://u:p@h:5/d?x=y", "somewhere"] {
            assert_eq!(url(text).to_os_string(), text);
        }
    }

    #[test]
    fn a_password_is_not_displayed() {
        for text in [
            "postgres://u:s3cret@h:5432/d",
            "postgres://u:s3cret@@h:5432/d",
            "postgres://u:s3/cr?et#s3cret@h:5432/d",
            "postgres://s3cret@h:5432/d",
            "postgres:u:s3cret@h:5432/d",
        ] {
            let shown = url(text).to_string();
            assert!(
                shown.ends_with("***@h:5432/d") && !format!("{:?}", url(text)).contains("s3cret"),
                "{shown}"
            );
        }
        for (text, shown) in [
            ("redis://:s3cret", "redis://***"),
            ("redis://h:6379/?password=s3cret", "redis://h:6379/?***"),
            ("redis://[::1]:6379/0", "redis://[::1]:6379/0"),
            ("redis://[::1]/0", "redis://[::1]/0"),
            ("//u:s3cret@h", "//***@h"),
            ("sqlite:/home/a@b/c?d.db", "sqlite:/home/a@b/c?d.db"),
        ] {
            assert_eq!(url(text).to_string(), shown);
        }
    }

    #[test]
    fn a_message_that_repeats_the_url_loses_its_password() {
        let url = url("postgres://u:s3cret@h/d");
        assert_eq!(url.hide_secrets("postgres://u:s3cret@h/d refused"), "postgres://***@h/d refused");
        assert_eq!(url.hide_secrets("password s3cret is wrong"), "password *** is wrong");
        assert_eq!(StoreUrl::memory().hide_secrets("it is full"), "it is full");
    }
}
