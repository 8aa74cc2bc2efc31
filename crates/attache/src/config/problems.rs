//! The errors that checks of the settings find, each with the place of its setting.
//!
//! A check does not stop at its first error, and it does not know where a setting was written: it names the setting by its path. The place
//! is the position in the file, or the flag or the environment variable that the value is from.

use super::resolve::Source;
use super::{ConfigFile, ResolvedSettings};
use crate::command::Failure;

/// The errors of the checks so far.
pub(crate) struct Problems<'a> {
    settings: &'a ResolvedSettings,
    /// The section that paths are below.
    section: String,
    /// The setting to name if nothing of the section is set.
    instead: Option<&'static str>,
    found: Vec<Failure>,
}

impl<'a> Problems<'a> {
    /// None yet, of checks of these settings.
    pub(crate) fn of(settings: &'a ResolvedSettings) -> Self {
        Self { settings, section: String::new(), instead: None, found: Vec::new() }
    }

    /// The settings that are checked.
    pub(crate) fn settings(&self) -> &'a ResolvedSettings {
        self.settings
    }

    /// Runs a check whose paths are below a section.
    pub(crate) fn section<T>(&mut self, section: &str, check: impl FnOnce(&mut Self) -> T) -> T {
        let below = self.path(section);
        let above = std::mem::replace(&mut self.section, below);
        let result = check(self);
        self.section = above;
        result
    }

    /// Runs a check whose paths are below a section. If nothing of the section is set, the errors are about another setting.
    pub(crate) fn section_or<T>(
        &mut self,
        section: &str,
        instead: &'static str,
        check: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = self.instead.replace(instead);
        let result = self.section(section, check);
        self.instead = before;
        result
    }

    /// Adds an error about the first of these settings. If one of them is left out because it is wrong itself, the error follows from that,
    /// and is dropped.
    pub(crate) fn add<const N: usize>(&mut self, settings: [&str; N], failure: Failure) {
        let paths = settings.map(|setting| self.path(setting));
        if paths.iter().any(|path| self.settings.is_wrong(path)) {
            return;
        }
        let Some(path) = paths.first() else { return };
        let place = self.settings.place(path).or_else(|| self.settings.place(self.instead?));
        let place = place.unwrap_or_else(|| format!("`{path}`"));
        self.found.extend(failure.each().map(|failure| failure.about(&place)));
    }

    /// The value, or else one error more about the first of these settings.
    pub(crate) fn take<T, const N: usize>(
        &mut self,
        settings: [&str; N],
        result: Result<T, Failure>,
    ) -> Option<T> {
        result.map_err(|failure| self.add(settings, failure)).ok()
    }

    /// Adds errors that name their places themselves.
    pub(crate) fn add_placed(&mut self, failure: Failure) {
        self.found.push(failure);
    }

    /// The value, or else the errors, which name their places themselves.
    pub(crate) fn take_placed<T>(&mut self, result: Result<T, Failure>) -> Option<T> {
        result.map_err(|failure| self.add_placed(failure)).ok()
    }

    /// Whether a setting, or one above or below it, is left out because it is wrong. The path is that from the top.
    pub(crate) fn is_wrong(&self, path: &str) -> bool {
        self.settings.is_wrong(path)
    }

    /// Fails with all errors, if there is one.
    pub(crate) fn result(self) -> Result<(), Failure> {
        match self.found.is_empty() {
            true => Ok(()),
            false => Err(Failure::all(self.found)),
        }
    }

    /// The path from the top.
    fn path(&self, setting: &str) -> String {
        match (self.section.as_str(), setting) {
            ("", path) | (path, "") => path.to_owned(),
            (section, item) if item.starts_with('[') => format!("{section}{item}"),
            (section, setting) => format!("{section}.{setting}"),
        }
    }
}

/// Flags that belong to a setting of one kind of agent, and that other kinds at the root read as well: the other setting, and the own one.
const SHARED_FLAGS: [(&str, &str); 3] = [
    ("program.workspace", "acp.workspace"),
    ("program.pass-environment", "acp.pass-environment"),
    ("mcp.pass-environment", "acp.pass-environment"),
];

impl ResolvedSettings {
    /// The place of a setting, with its name: a position in the file, a flag or an environment variable. For a setting that is not set, it
    /// is that of the section. `None` if nothing of that is set.
    fn place(&self, path: &str) -> Option<String> {
        let list = path.split('[').next().unwrap_or(path);
        let shared = SHARED_FLAGS.iter().find(|(other, _)| *other == path).map(|(_, own)| *own);
        let outside_file = |key: &str| {
            let is_it = |found: &str| {
                found == key || found.strip_prefix(key).is_some_and(|below| below.starts_with('.'))
            };
            self.resolved.iter().filter(|setting| is_it(&setting.key)).find_map(|setting| {
                match &setting.source {
                    Source::Flag(name) | Source::Environment(name) => Some(format!("`{name}`")),
                    Source::Default | Source::File { .. } => None,
                }
            })
        };
        let is_setting = self.resolved.iter().any(|setting| setting.key == list);
        shared
            .and_then(outside_file)
            .or_else(|| outside_file(list).filter(|_| is_setting))
            .or_else(|| self.file.as_ref()?.place(path))
            .or_else(|| outside_file(list))
    }
}

impl ConfigFile {
    /// The position of the value at a path, or of what is above it, with the path.
    fn place(&self, path: &str) -> Option<String> {
        let mut above = Some(path);
        while let Some(known) = above.filter(|known| !known.is_empty()) {
            if let Some(node) = self.root.at(known) {
                // One item of a list can be written as a value alone.
                let is_item = path.strip_prefix(known).is_some_and(|rest| rest.starts_with('['));
                let shown = if is_item { known } else { path };
                return Some(format!("{}:{}: `{shown}`", self.path.display(), node.position));
            }
            above = known.rfind(['.', '[']).map(|end| &known[..end]);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{DisplayValue, Resolved};
    use super::*;

    fn settings(text: &str, others: &[(&str, Source)]) -> ResolvedSettings {
        let file = ConfigFile::read(Path::new("some.yml"), text, &|_| None, &|_| true, None);
        let resolved = others.iter().map(|(key, source)| Resolved {
            key: (*key).to_owned(),
            value: DisplayValue::Nothing,
            source: source.clone(),
        });
        ResolvedSettings { file: Some(file), resolved: resolved.collect() }
    }

    fn text(problems: Problems<'_>) -> Option<String> {
        problems.result().err().map(|failure| failure.to_string())
    }

    #[test]
    fn an_error_names_the_position_the_flag_or_the_variable_that_the_value_is_from() {
        let flag = Source::Flag("--tls-key".to_owned());
        let variable = Source::Environment("ATTACHE_LISTEN".to_owned());
        let file = "listen: [a, b]\ntls:\n  certificate: c\nagents:\n  x:\n    acp: {}\nworkspaces: [a, b]\n";
        let settings = settings(file, &[("tls.key", flag), ("listen", variable)]);
        let place = |path: &str| settings.place(path);
        assert_eq!(place("tls.key").as_deref(), Some("`--tls-key`"));
        assert_eq!(place("listen[1]").as_deref(), Some("`ATTACHE_LISTEN`"));
        assert_eq!(place("tls.certificate").as_deref(), Some("some.yml:3:16: `tls.certificate`"));
        assert_eq!(place("workspaces[1]").as_deref(), Some("some.yml:7:17: `workspaces[1]`"));
        let missing = place("tls.client-ca").unwrap_or_default();
        assert!(missing.starts_with("some.yml:") && missing.ends_with("`tls.client-ca`"), "{missing}");
        let named = place("agents.x.acp.command").unwrap_or_default();
        assert!(named.starts_with("some.yml:6:"), "{named}");
        assert_eq!(place("model.url"), None);
    }

    #[test]
    fn an_error_about_a_section_that_is_not_there_names_what_asks_for_it() {
        let settings = settings("agent: model\n", &[]);
        let mut problems = Problems::of(&settings);
        problems.section_or("model", "agent", |problems| problems.add(["url"], Failure::usage("none")));
        assert_eq!(text(problems).as_deref(), Some("some.yml:1:8: `agent`: none"));
    }

    #[test]
    fn an_error_that_follows_from_a_wrong_value_is_dropped() {
        let settings = settings("tls: { certificate: [], key: k }\npaths: { jsonrpc: [nonsense] }\n", &[]);
        let mut problems = Problems::of(&settings);
        problems.section("tls", |tls| {
            tls.add(["key", "certificate"], Failure::usage("dropped"));
            tls.add(["key"], Failure::usage("kept"));
        });
        problems.add(["paths.jsonrpc"], Failure::usage("dropped"));
        assert_eq!(text(problems).as_deref(), Some("some.yml:1:30: `tls.key`: kept"));
    }
}
