//! The variables of the environment that the command reads, and those that only look as if it did.

use std::collections::BTreeSet;
use std::fmt;

use clap::Command;

use super::tree::Node;
use super::wrong::nearest;

/// What the names of all of them begin with.
const PREFIX: &str = "ATTACHE_";

/// Those that belong to no flag, since what they hold is secret.
const SECRETS: [&str; 4] = [
    attache::store::KEYRING_VARIABLE,
    attache_iii::API_TOKEN_VARIABLE,
    crate::command::TOKEN_VARIABLE,
    crate::command::CLIENT_SECRET_VARIABLE,
];

/// All that the command reads, whichever of its subcommands does.
fn known() -> BTreeSet<String> {
    fn gather(command: &Command, known: &mut BTreeSet<String>) {
        let variables = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
        known.extend(variables.map(str::to_owned));
        command.get_subcommands().for_each(|command| gather(command, known));
    }
    let mut known = BTreeSet::from(SECRETS.map(str::to_owned));
    gather(&super::arguments(), &mut known);
    known
}

/// A variable that nothing reads, although it is called as if something did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(crate) name: String,
    /// The one that was probably meant.
    pub(crate) meant: Option<String>,
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

/// The variables that nothing reads: no flag, no secret, and no `${NAME}` in the file.
pub(super) fn unread(
    environment: impl Iterator<Item = (String, String)>,
    file: Option<&Node>,
) -> Vec<Unread> {
    let ours = environment.filter(|(name, value)| name.starts_with(PREFIX) && !is_of_a_service(name, value));
    let mut names: Vec<_> = ours.map(|(name, _)| name).collect();
    if names.is_empty() {
        return Vec::new();
    }
    names.sort();
    let (known, in_file) = (known(), file.map(Node::all_variables).unwrap_or_default());
    names.retain(|name| !known.contains(name) && !in_file.contains(&name.as_str()));
    // Compared is what makes them differ.
    let bare = |name: &str| name.trim_start_matches(PREFIX).to_owned();
    let rests: Vec<_> = known.iter().map(|name| bare(name)).collect();
    let meant = |name: &str| nearest(&bare(name), rests.iter().map(String::as_str));
    let meant = |name: &str| meant(name).map(|rest| format!("{PREFIX}{rest}"));
    names.into_iter().map(|name| Unread { meant: meant(&name), name }).collect()
}

/// Whether a variable tells where a service is: Kubernetes sets such for each of them, and one may well be called `attache`.
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
    use std::path::Path;

    use super::*;

    fn unread_in(pairs: &[(&str, &str)], file: &str) -> Vec<(String, Option<String>)> {
        let file = Node::read(file, &|_| Some(String::new()), &|_| true).unwrap();
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        unread(pairs, Some(&file)).into_iter().map(|Unread { name, meant }| (name, meant)).collect()
    }

    #[test]
    fn a_variable_that_nothing_reads_is_found_with_the_one_that_was_meant() {
        for (name, meant) in [
            ("ATTACHE_LISTN", Some("ATTACHE_LISTEN")),
            ("ATTACHE_LIMITS_BURST", Some("ATTACHE_LIMIT_BURST")),
            ("ATTACHE_KEYRINGS", Some("ATTACHE_KEYRING")),
            ("ATTACHE_TOKN", Some("ATTACHE_TOKEN")),
            ("ATTACHE_listen", None),
            ("ATTACHE_", None),
            ("ATTACHE_XYZZY", None),
        ] {
            assert_eq!(unread_in(&[(name, "x")], ""), [(name.to_owned(), meant.map(str::to_owned))]);
        }
    }

    #[test]
    fn what_is_read_anywhere_is_in_order() {
        let names = known();
        let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
        assert_eq!(unread_in(&pairs, ""), []);
        for name in ["ATTACHE_CLIENT_ID", "ATTACHE_TOKEN", "ATTACHE_KEYRING", "ATTACHE_CONFIG", "ATTACHE_LOG"]
        {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn variables_of_other_programs_are_theirs() {
        assert_eq!(unread_in(&[("PATH", "x"), ("ATTACHEMENT", "x"), ("MY_ATTACHE_LISTN", "x")], ""), []);
    }

    #[test]
    fn what_the_file_has_in_it_is_read() {
        let file = "auth:\n  bearer:\n    - { name: alice, token: \"${ATTACHE_ALICE}\" }\n";
        assert_eq!(unread_in(&[("ATTACHE_ALICE", "x")], file), []);
        assert_eq!(unread_in(&[("ATTACHE_ALICE", "x")], "").len(), 1);
    }

    #[test]
    fn where_services_are_is_no_setting() {
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
        assert_eq!(unread_in(&services, ""), []);
        assert_eq!(unread_in(&[("ATTACHE_PORT", "3111")], "").len(), 1);
    }

    #[test]
    fn every_variable_that_the_sources_name_is_known() {
        fn gather(folder: &Path, found: &mut BTreeSet<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    gather(&path, found);
                } else if path.extension().is_some_and(|extension| extension == "rs")
                    && !path.ends_with(file!())
                {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let names = text
                        .match_indices("\"ATTACHE_")
                        .filter_map(|(at, _)| text[at + 1..].split('"').next());
                    found.extend(names.filter(|name| !name.contains(['{', ' '])).map(str::to_owned));
                }
            }
        }
        let (mut found, known) = (BTreeSet::new(), known());
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for name in ["attache", "attache-iii", "attache-store", "attache-client", "attache-server", "iii-a2a"]
        {
            gather(&crates.join(name).join("src"), &mut found);
        }
        assert!(found.len() > 50, "{found:?}");
        assert_eq!(found.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
    }
}
