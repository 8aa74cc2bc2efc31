//! The environment variables that the command reads.

use std::collections::BTreeSet;

use attache_iii::variables::{self, Unread};

use super::tree::Node;

/// The variables without a flag: they hold secrets.
const SECRETS: [&str; 6] = [
    attache::store::KEYRING_VARIABLE,
    attache_agents::API_TOKEN_VARIABLE,
    crate::command::TOKEN_VARIABLE,
    crate::command::CLIENT_SECRET_VARIABLE,
    crate::command::MODEL_KEY_VARIABLE,
    crate::command::REDIS_VARIABLE,
];

/// The variables that any subcommand reads.
fn known() -> BTreeSet<String> {
    let mut known = variables::of_flags(&super::arguments());
    known.extend(SECRETS.map(str::to_owned));
    known
}

/// The variables that nothing reads: no flag, no secret, and no `${NAME}` in the file.
pub(super) fn unread(
    environment: impl Iterator<Item = (String, String)>,
    file: Option<&Node>,
) -> Vec<Unread> {
    let in_file = file.map(Node::all_variables).unwrap_or_default();
    let elsewhere = environment.filter(|(name, _)| !in_file.contains(&name.as_str()));
    variables::unread(elsewhere, known)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn unread_in(pairs: &[(&str, &str)], file: &str) -> Vec<(String, Option<String>)> {
        let file = Node::read(file, &|_| Some(String::new()), &|_| true, &mut Vec::new()).unwrap();
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        unread(pairs, Some(&file)).into_iter().map(|Unread { name, meant }| (name, meant)).collect()
    }

    #[test]
    fn a_misspelt_variable_is_found_with_the_nearest_known_one() {
        for (name, meant) in [
            ("ATTACHE_LISTN", Some("ATTACHE_LISTEN")),
            ("ATTACHE_LIMITS_BURST", Some("ATTACHE_LIMIT_BURST")),
            ("ATTACHE_KEYRINGS", Some("ATTACHE_KEYRING")),
            ("ATTACHE_TOKN", Some("ATTACHE_TOKEN")),
            ("ATTACHE_REDIS_CREDENTIAL", Some("ATTACHE_REDIS_CREDENTIALS")),
            ("ATTACHE_listen", None),
            ("ATTACHE_", None),
            ("ATTACHE_XYZZY", None),
        ] {
            assert_eq!(unread_in(&[(name, "x")], ""), [(name.to_owned(), meant.map(str::to_owned))]);
        }
    }

    #[test]
    fn a_variable_that_any_subcommand_reads_is_not_reported() {
        let names = known();
        let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
        assert_eq!(unread_in(&pairs, ""), []);
        for name in ["ATTACHE_CLIENT_ID", "ATTACHE_TOKEN", "ATTACHE_KEYRING", "ATTACHE_CONFIG", "ATTACHE_LOG"]
        {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn a_variable_that_the_file_uses_is_not_reported() {
        let file = "auth:\n  bearer:\n    - { name: alice, token: \"${ATTACHE_ALICE}\" }\n";
        assert_eq!(unread_in(&[("ATTACHE_ALICE", "x")], file), []);
        assert_eq!(unread_in(&[("ATTACHE_ALICE", "x")], "").len(), 1);
    }

    #[test]
    fn every_variable_that_the_sources_name_is_known() {
        fn gather(folder: &Path, found: &mut BTreeSet<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    gather(&path, found);
                } else if path.extension().is_some_and(|extension| extension == "rs")
                    && !path.ends_with("variables.rs")
                {
                    let text = std::fs::read_to_string(&path).unwrap();
                    // Tests misspell variables on purpose.
                    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
                    let names = text
                        .match_indices("\"ATTACHE_")
                        .filter_map(|(at, _)| text[at + 1..].split('"').next());
                    found.extend(names.filter(|name| !name.contains(['{', ' '])).map(str::to_owned));
                }
            }
        }
        let (mut found, known) = (BTreeSet::new(), known());
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for name in [
            "attache",
            "attache-agents",
            "attache-iii",
            "attache-store",
            "attache-client",
            "attache-server",
            "iii-a2a",
        ] {
            gather(&crates.join(name).join("src"), &mut found);
        }
        assert!(found.len() > 5, "{found:?}");
        assert!(known.len() > 50, "{known:?}");
        assert_eq!(found.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new());
    }
}
