//! Safe mode: nothing about the machine and no secret gets into the events of an agent.
//!
//! Events are changed when an agent emits them, before they are written. So what must not leave the server is in no stream, no
//! answer, no webhook and no resumed stream, and not in the store either. A service without a [`Redaction`] does no work for it.

mod events;
mod files;
mod scan;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

pub(crate) use self::events::TurnRedaction;
pub(crate) use self::files::FileRedaction;
use self::scan::{Borders, Patterns};

/// What stands for a secret.
pub const MASK: &str = "********";

/// What stands for the workspace of the context.
pub(crate) const WORKSPACE: &str = "<workspace>";

/// The shortest secret that is masked, in bytes. Shorter texts occur by chance.
pub const SHORTEST_SECRET: usize = 8;

/// What must not get into the events of an agent: secrets, and paths of this machine.
///
/// ```
/// use attache_core::{Options, Redaction};
///
/// let redaction = Redaction::new().secret("correct-horse-battery").path("/srv/project", "<workspace>");
/// let options = Options::default().redaction(Some(redaction));
/// ```
#[derive(Clone, Default)]
pub struct Redaction {
    secrets: Option<Arc<Patterns>>,
    paths: Option<Arc<Patterns>>,
    all_secrets: Vec<(String, String)>,
    all_paths: Vec<(String, String)>,
    hides_paths: bool,
}

impl Redaction {
    /// Hides nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Masks a secret. Texts of fewer than [`SHORTEST_SECRET`] bytes are ignored.
    pub fn secret(self, secret: impl Into<String>) -> Self {
        self.secrets([secret.into()])
    }

    /// Masks several secrets.
    pub fn secrets(mut self, secrets: impl IntoIterator<Item = String>) -> Self {
        let long = secrets.into_iter().filter(|secret| secret.len() >= SHORTEST_SECRET);
        self.all_secrets.extend(long.map(|secret| (secret, MASK.to_owned())));
        self.secrets = Patterns::new(self.all_secrets.clone(), Borders::Any).map(Arc::new);
        self
    }

    /// Replaces the path of a directory, where it is the beginning of a path, by this text. From then on, the directories that
    /// agents [name](crate::Turn::hide_path) are replaced too.
    pub fn path(self, directory: impl AsRef<Path>, replacement: impl Into<String>) -> Self {
        self.paths([(directory, replacement)])
    }

    /// Replaces several paths. The longest one counts.
    pub fn paths<P: AsRef<Path>, S: Into<String>>(mut self, paths: impl IntoIterator<Item = (P, S)>) -> Self {
        self.hides_paths = true;
        for (path, replacement) in paths {
            self.add_path(path.as_ref(), replacement.into());
        }
        self.paths = Patterns::new(self.all_paths.clone(), Borders::Path).map(Arc::new);
        self
    }

    fn add_path(&mut self, path: &Path, replacement: String) {
        // The same directory can have another name, without links.
        let resolved = path.canonicalize().ok();
        for path in [Some(path.to_owned()), resolved].into_iter().flatten() {
            let text = path.to_string_lossy();
            let text = text.trim_end_matches(['/', '\\']);
            // The root of the file system tells nothing.
            if path.is_absolute() && path.parent().is_some() && !text.is_empty() {
                self.all_paths.retain(|(known, _)| known != text);
                self.all_paths.push((text.to_owned(), replacement.clone()));
            }
        }
    }

    /// The same with one more path, if paths are hidden and this one is not.
    fn with_path(&self, path: &Path, replacement: &str) -> Option<Self> {
        let is_known =
            || self.all_paths.iter().any(|(known, by)| path == Path::new(known) && by == replacement);
        (self.hides_paths && !is_known()).then(|| self.clone().path(path, replacement))
    }

    /// Whether nothing is hidden.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_none() && !self.hides_paths
    }
}

/// Without the secrets.
impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redaction")
            .field("secrets", &self.all_secrets.len())
            .field("paths", &self.all_paths.len())
            .finish()
    }
}

impl crate::Turn {
    /// Names a directory of this machine, such as the workspace of the conversation. If the service hides paths, the directory is
    /// replaced by this text in all later events of the turn.
    pub fn hide_path(&self, directory: impl AsRef<Path>, replacement: &str) {
        self.inner.hide_path(directory.as_ref(), replacement);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_of_8_bytes_is_masked_and_a_shorter_one_is_not() {
        let is_masked = |secret: &str| !Redaction::new().secret(secret).is_empty();
        assert_eq!((is_masked("12345678"), is_masked("1234567")), (true, false));
        assert!(is_masked("1234567ä"), "the length is in bytes");
        assert!(is_masked("123456ä") && !is_masked("12345ä"));
    }
}
