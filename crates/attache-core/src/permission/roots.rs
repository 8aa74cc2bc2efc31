//! The names of one directory, and the ways to write a path below it.

use std::path::{Path, PathBuf};

use super::PermissionRequest;
use super::pattern::{inside, normal};

/// The names of the directory that the relative paths of a request are about. A link to the directory is another name of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roots {
    /// The name without links, as far as it is known.
    resolved: Option<String>,
    /// All names.
    names: Vec<String>,
}

/// The ways to write a path.
pub(super) struct Forms {
    /// Below the directory, if it is there, as callers see it. Otherwise absolute.
    pub(super) shown: String,
    /// Absolute, by the name of the directory without links. `None` for a path elsewhere, or if this name is not known.
    pub(super) resolved: Option<String>,
    /// All other ways.
    others: Vec<String>,
}

impl Roots {
    /// The names of a directory. Those that are not absolute or no text are left out.
    pub(crate) fn new(resolved: Option<PathBuf>, names: impl IntoIterator<Item = PathBuf>) -> Self {
        let normal = |path: PathBuf| path.to_str().filter(|_| path.is_absolute()).and_then(normal);
        let resolved = resolved.and_then(normal);
        let mut names: Vec<String> = names.into_iter().filter_map(normal).chain(resolved.clone()).collect();
        names.dedup();
        Self { resolved, names }
    }

    /// The directory that a request names itself. `None` if it names none.
    pub(super) fn of(request: &PermissionRequest) -> Option<Self> {
        let (resolved, others) = request.directories.split_first()?;
        Some(Self::new(Some(resolved.clone()), others.iter().cloned()))
    }

    /// The same request with its paths as callers see them.
    pub(super) fn shown(&self, mut request: PermissionRequest) -> PermissionRequest {
        for path in &mut request.paths {
            if let Some(below) = self.names.iter().find_map(|name| inside(path, name)) {
                *path = below;
            }
        }
        request
    }

    /// The ways to write a path. `None` if it leads above its beginning, so that it may be any path.
    pub(super) fn forms(&self, path: &str) -> Option<Forms> {
        let path = normal(path)?;
        let below: Vec<String> = self.names.iter().filter_map(|name| inside(&path, name)).collect();
        let mut others = Vec::new();
        for below in &below {
            others.extend(self.names.iter().map(|name| join(name, below)));
        }
        let resolved = below.first().zip(self.resolved.as_deref()).map(|(below, name)| join(name, below));
        let shown = below.first().cloned().unwrap_or_else(|| path.clone());
        others.extend(below);
        others.push(path);
        Some(Forms { shown, resolved, others })
    }
}

impl Forms {
    /// All ways.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        [&self.shown].into_iter().chain(&self.resolved).chain(&self.others).map(String::as_str)
    }
}

/// A path below a directory, as an absolute one.
fn join(directory: &str, below: &str) -> String {
    match below {
        "" | "." => directory.to_owned(),
        below => format!("{}/{below}", directory.trim_end_matches('/')),
    }
}

/// The names of a directory for [`PermissionRequest::in_directory`]: the one without links first.
pub(super) fn names_of(directory: &Path) -> Vec<PathBuf> {
    let resolved = directory.canonicalize().ok();
    let is_other = resolved.as_deref() != Some(directory);
    resolved.into_iter().chain(is_other.then(|| directory.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(roots: &Roots, path: &str) -> Vec<String> {
        let mut all: Vec<String> = roots.forms(path).unwrap().all().map(str::to_owned).collect();
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn a_path_below_the_directory_has_a_form_for_each_of_its_names() {
        let roots = Roots::new(Some("/real/ws".into()), ["/link".into(), "relative".into()]);
        for path in ["/real/ws/a/b", "/link/a/b", "a/b", "./a//b", "a/c/../b", "file:///link/a/b"] {
            assert_eq!(all(&roots, path), ["/link/a/b", "/real/ws/a/b", "a/b"], "{path}");
            let forms = roots.forms(path).unwrap();
            assert_eq!((&*forms.shown, forms.resolved.as_deref()), ("a/b", Some("/real/ws/a/b")), "{path}");
        }
        assert_eq!(all(&roots, "/etc/passwd"), ["/etc/passwd"]);
        assert!(roots.forms("/etc/passwd").unwrap().resolved.is_none());
        assert!(roots.forms("../a").is_none());
        assert_eq!(all(&Roots::default(), "a"), ["a"]);
    }

    #[test]
    fn the_root_of_the_file_system_can_be_the_directory() {
        let roots = Roots::new(Some("/".into()), []);
        assert_eq!(all(&roots, "/etc/passwd"), ["/etc/passwd", "etc/passwd"]);
        assert_eq!(all(&roots, "etc/passwd"), ["/etc/passwd", "etc/passwd"]);
    }
}
