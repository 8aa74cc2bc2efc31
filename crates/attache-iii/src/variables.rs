//! The environment variables of a command, and variables that look like them but have no effect.

use std::collections::BTreeSet;
use std::fmt;

use clap::Command;

/// The prefix of Attaché's variables.
const PREFIX: &str = "ATTACHE_";

/// A variable that looks like one of the command's but is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// The name of the variable.
    pub name: String,
    /// The variable that was probably meant.
    pub meant: Option<String>,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing reads the variable `{}`", self.name)?;
        match &self.meant {
            Some(meant) => write!(f, "; did you mean `{meant}`?"),
            None => Ok(()),
        }
    }
}

/// The environment of this process, as text.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
}

/// The variables that set flags of a command or of its subcommands.
pub fn of_flags(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    own.map(str::to_owned).chain(command.get_subcommands().flat_map(of_flags)).collect()
}

/// The variables that begin with `ATTACHE_` and are not known. `known` is called only if there is such a variable.
pub fn unread(
    environment: impl Iterator<Item = (String, String)>,
    known: impl FnOnce() -> BTreeSet<String>,
) -> Vec<Unread> {
    let ours = environment.filter(|(name, value)| name.starts_with(PREFIX) && !is_of_a_service(name, value));
    let mut names: Vec<_> = ours.map(|(name, _)| name).collect();
    if names.is_empty() {
        return Vec::new();
    }
    names.sort();
    let known = known();
    names.retain(|name| !known.contains(name));
    // Only the rest of the names is compared: the prefix is always equal.
    let bare = |name: &str| name.trim_start_matches(PREFIX).to_owned();
    let rests: Vec<_> = known.iter().map(|name| bare(name)).collect();
    let meant = |name: &str| nearest(&bare(name), rests.iter().map(String::as_str));
    let meant = |name: &str| meant(name).map(|rest| format!("{PREFIX}{rest}"));
    names.into_iter().map(|name| Unread { meant: meant(&name), name }).collect()
}

/// The variables that differ from a known one by a typing mistake. This is for prefixes that other programs use too: an unknown
/// variable may belong to them.
pub fn misspelt(
    environment: impl Iterator<Item = (String, String)>,
    prefix: &str,
    known: &BTreeSet<String>,
) -> Vec<Unread> {
    const MAX_DISTANCE: usize = 2;
    let names = environment.map(|(name, _)| name).filter(|name| name.starts_with(prefix));
    let near = |name: String| {
        let distance = |other: &str| strsim::damerau_levenshtein(&name, other);
        let meant =
            known.iter().filter(|known| known.starts_with(prefix)).min_by_key(|known| distance(known))?;
        (distance(meant) <= MAX_DISTANCE).then(|| Unread { meant: Some(meant.clone()), name })
    };
    let mut found: Vec<_> = names.filter(|name| !known.contains(name)).filter_map(near).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// The most similar word, if any is similar.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let score = |other: &str| strsim::jaro_winkler(word, other);
    let best = known.into_iter().max_by(|a, b| score(a).total_cmp(&score(b)))?;
    (score(best) > 0.75).then_some(best)
}

/// Whether a variable is the address of a service. Kubernetes sets such variables for each service, and a service may be named
/// `attache`.
fn is_of_a_service(name: &str, value: &str) -> bool {
    const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let names_port = || {
        let (_, port) = name.split_once("_PORT_")?;
        let mut words = port.split('_');
        Some(is_port(words.next()?) && PROTOCOLS.contains(&words.next()?))
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT") && is_port(value)
        || name.ends_with("_PORT") && value.split_once("://").is_some_and(|(_, rest)| rest.contains(':'))
        || names_port().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs<'a>(pairs: &'a [(&str, &str)]) -> impl Iterator<Item = (String, String)> + 'a {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
    }

    fn known() -> BTreeSet<String> {
        ["ATTACHE_LISTEN", "ATTACHE_STORE", "III_URL", "III_TOKEN", "III_WORKER_NAME"]
            .map(str::to_owned)
            .into()
    }

    #[test]
    fn variables_of_other_programs_are_ignored() {
        let others = [("PATH", "x"), ("ATTACHEMENT", "x"), ("MY_ATTACHE_LISTN", "x"), ("III_URL", "x")];
        assert_eq!(unread(pairs(&others), || panic!("there is nothing to compare")), []);
    }

    #[test]
    fn addresses_of_services_are_no_settings() {
        let services = [
            ("ATTACHE_SERVICE_HOST", "10.0.0.11"),
            ("ATTACHE_SERVICE_PORT", "3111"),
            ("ATTACHE_SERVICE_PORT_HTTP", "3111"),
            ("ATTACHE_PORT", "tcp://10.0.0.11:3111"),
            ("ATTACHE_PORT_3111_TCP", "tcp://10.0.0.11:3111"),
            ("ATTACHE_PORT_3111_TCP_PROTO", "tcp"),
            ("ATTACHE_PORT_3111_TCP_PORT", "3111"),
            ("ATTACHE_PORT_3111_TCP_ADDR", "10.0.0.11"),
            ("ATTACHE_STORE_SERVICE_HOST", "10.0.0.12"),
        ];
        assert_eq!(unread(pairs(&services), known), []);
        assert_eq!(unread(pairs(&[("ATTACHE_PORT", "3111")]), known).len(), 1);
    }

    #[test]
    fn among_shared_prefixes_only_typing_mistakes_are_found() {
        for (name, meant) in [
            ("III_TOKN", Some("III_TOKEN")),
            ("III_ULR", Some("III_URL")),
            ("III_WORKER_NAMES", Some("III_WORKER_NAME")),
            ("III_TOKEN", None),
            ("III_ISOLATION", None),
            ("III_TELEMETRY_ENABLED", None),
            ("III_WORKER_ID", None),
            ("ATTACHE_LISTN", None),
        ] {
            let found = misspelt(pairs(&[(name, "x")]), "III_", &known());
            let found: Vec<_> = found.into_iter().map(|Unread { name, meant }| (name, meant)).collect();
            let expected = meant.map(|meant| (name.to_owned(), Some(meant.to_owned())));
            assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
