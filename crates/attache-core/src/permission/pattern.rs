//! Patterns for names of tools and for paths.

use std::fmt;
use std::str::FromStr;

/// A pattern: `*` is any text without `/`, `**` any text, `?` one character other than `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionPattern(String);

/// Why a text is no pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAPattern {
    /// It is empty.
    #[error("a pattern must not be empty, expected for example `edit*` or `src/**`")]
    Empty,
    /// It is too long.
    #[error("a pattern has at most {MAX_LENGTH} bytes")]
    TooLong,
}

/// The longest pattern, in bytes.
const MAX_LENGTH: usize = 1_024;

impl FromStr for PermissionPattern {
    type Err = NotAPattern;

    fn from_str(text: &str) -> Result<Self, NotAPattern> {
        match text.len() {
            0 => Err(NotAPattern::Empty),
            length if length > MAX_LENGTH => Err(NotAPattern::TooLong),
            _ => Ok(Self(text.to_owned())),
        }
    }
}

impl fmt::Display for PermissionPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PermissionPattern {
    /// Matches everything.
    pub fn any() -> Self {
        Self("**".to_owned())
    }

    /// Whether a name matches.
    pub(super) fn matches(&self, name: &str) -> bool {
        matches(&self.0, name)
    }

    /// Whether the pattern is about absolute paths alone.
    pub(super) fn is_absolute(&self) -> bool {
        self.0.starts_with('/')
    }

    /// Whether a path matches. `dir/**` also matches the directory itself, and `**/name` a name at the top.
    pub(super) fn matches_path(&self, path: &str) -> bool {
        let pattern = self.0.strip_prefix("./").unwrap_or(&self.0);
        matches(pattern, path)
            || pattern.strip_suffix("/**").is_some_and(|directory| matches(directory, path))
            || pattern.strip_prefix("**/").is_some_and(|rest| matches(rest, path))
    }
}

/// Matches in time that grows with the product of both lengths, whatever the pattern is.
fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    // Whether the pattern so far matches the first `i` characters of the text.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let is_double = pattern[at] == '*' && pattern.get(at + 1) == Some(&'*');
        let mut next = vec![false; text.len() + 1];
        match pattern[at] {
            '*' => {
                next[0] = reached[0];
                for i in 0..text.len() {
                    next[i + 1] = reached[i + 1] || next[i] && (is_double || text[i] != '/');
                }
            }
            wanted => {
                for i in 0..text.len() {
                    let fits = if wanted == '?' { text[i] != '/' } else { wanted == text[i] };
                    next[i + 1] = reached[i] && fits;
                }
            }
        }
        reached = next;
        at += if is_double { 2 } else { 1 };
    }
    reached[text.len()]
}

/// A path in its simplest form, with `/` between names. `None` if it leads above its beginning, so that no pattern can say where it
/// leads.
pub(super) fn normal(path: &str) -> Option<String> {
    let path = path_of(path).replace('\\', "/");
    let is_absolute = path.starts_with('/');
    let mut names: Vec<&str> = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop()?;
            }
            name => names.push(name),
        }
    }
    let joined = names.join("/");
    Some(if is_absolute { format!("/{joined}") } else { joined })
}

/// A path below a directory, which is in its simplest form. `None` if the path is elsewhere, or relative and leads out.
pub(super) fn inside(path: &str, directory: &str) -> Option<String> {
    let path = normal(path)?;
    if !path.starts_with('/') {
        return Some(path);
    }
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    match rest.strip_prefix('/') {
        Some(inside) => Some(inside.to_owned()),
        None => rest.is_empty().then(|| ".".to_owned()),
    }
}

/// The path of a `file:` URL, or the path itself.
fn path_of(path: &str) -> String {
    let scheme = path.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("file:"));
    let Some(url) = scheme.and(path.get(5..)) else { return path.to_owned() };
    let url = match url.strip_prefix("//") {
        // The name of a host comes before the path.
        Some(rest) => rest.find('/').map_or("/", |path| &rest[path..]),
        None => url,
    };
    let mut bytes = Vec::with_capacity(url.len());
    let mut rest = url.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> PermissionPattern {
        text.parse().unwrap()
    }

    #[test]
    fn patterns_match_names_and_paths() {
        for (text, name, expected) in [
            ("edit*", "edit", true),
            ("edit*", "edit_file", true),
            ("edit*", "unedit", false),
            ("*", "anything", true),
            ("mcp_?", "mcp_1", true),
            ("mcp_?", "mcp_12", false),
            ("*_file", "read_file", true),
        ] {
            assert_eq!(pattern(text).matches(name), expected, "{text} {name}");
        }
        for (text, path, expected) in [
            ("src/**", "src/a/b.rs", true),
            ("src/**", "src", true),
            ("src/**", "srcs/a", false),
            ("src/*", "src/a", true),
            ("src/*", "src/a/b", false),
            ("**/*.md", "a/b/c.md", true),
            ("**/*.md", "c.md", true),
            ("./docs/**", "docs/a", true),
            ("**/.env", "a/.env", true),
            ("/etc/**", "/etc/passwd", true),
        ] {
            assert_eq!(pattern(text).matches_path(path), expected, "{text} {path}");
        }
    }

    #[test]
    fn a_long_pattern_takes_bounded_time() {
        let text = "*a".repeat(500);
        assert!(!pattern(&text).matches(&"a".repeat(5_000).replacen('a', "b", 4_999)));
    }

    #[test]
    fn a_path_is_simplified_and_never_leads_out() {
        assert_eq!(normal("./src/../a//b/").as_deref(), Some("a/b"));
        assert_eq!(normal("/srv/./x").as_deref(), Some("/srv/x"));
        assert_eq!(normal("file:///srv/x").as_deref(), Some("/srv/x"));
        assert_eq!(normal("src\\a").as_deref(), Some("src/a"));
        assert_eq!(normal("../x"), None);
        assert_eq!(normal("/../x"), None);
        assert_eq!(normal("src/../../x"), None);
    }

    #[test]
    fn a_path_below_a_directory_is_relative_however_it_is_written() {
        for path in [
            "/ws/secrets/x",
            "/ws/./secrets//x",
            "/ws/a/../secrets/x",
            "/other/../ws/secrets/x",
            "file:///ws/secrets/x",
            "FILE:///ws/%73ecrets/x",
            "file://localhost/ws/secrets/x",
            "file:/ws/secrets/x",
            "secrets/x",
            "./secrets/x",
            "a/../secrets/x",
        ] {
            assert_eq!(inside(path, "/ws").as_deref(), Some("secrets/x"), "{path}");
        }
        assert_eq!(inside("/ws", "/ws").as_deref(), Some("."));
        assert_eq!(inside("/ws/x", "/").as_deref(), Some("ws/x"));
        for path in ["/ws2/secrets/x", "/etc/passwd", "../secrets/x"] {
            assert_eq!(inside(path, "/ws"), None, "{path}");
        }
    }

    #[test]
    fn a_pattern_has_up_to_1024_bytes() {
        assert!("x".repeat(1_024).parse::<PermissionPattern>().is_ok());
        let error = "x".repeat(1_025).parse::<PermissionPattern>().unwrap_err();
        assert_eq!(
            (error, error.to_string().as_str()),
            (NotAPattern::TooLong, "a pattern has at most 1024 bytes")
        );
    }
}
