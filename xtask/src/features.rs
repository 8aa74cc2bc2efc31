//! `cargo xtask features`: builds each combination of cargo features in the table of the README, and compares the number of crates that it
//! compiles with the one that stands there.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::run;

/// What the table of combinations begins with.
const HEADING: &str = "| combination | features | crates |\n|---|---|---|\n";

/// Programs that are also built on their own. A build of the whole workspace gives them the features of all other packages.
const PROGRAMS: [&str; 2] = ["iii-a2a", "attache-bench"];

/// Build each combination of features that the README names, and compare the number of its crates with the README
#[derive(Debug, Args)]
pub(crate) struct Features {}

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Combination {
    name: String,
    features: Vec<String>,
    crates: usize,
}

impl Features {
    pub(crate) fn run(self) -> Result<()> {
        let readme = fs::read_to_string(run::root().join("README.md")).context("cannot read README.md")?;
        let combinations = combinations(&readme, &features_of_the_sdk()?)?;
        for program in PROGRAMS {
            run::check(run::cargo(&["check", "--quiet", "--package", program]))
                .with_context(|| format!("`{program}` does not build on its own"))?;
        }
        let mut wrong = Vec::new();
        for Combination { name, features, crates } in &combinations {
            let features = features.join(",");
            let selection = ["-p", "attache", "--no-default-features", "--features", &features];
            run::check(run::cargo(&[&["check", "--quiet", "--lib"], &selection[..]].concat()))
                .with_context(|| format!("the features `{features}` ({name}) do not build"))?;
            let compiled = crates_of(&selection)?;
            writeln!(std::io::stdout(), "{compiled:4} crates  {name} ({})", shown(&features))?;
            if compiled != *crates {
                wrong.push(format!("`{name}` compiles {compiled} crates, and the README says {crates}"));
            }
        }
        match wrong.is_empty() {
            true => Ok(()),
            // The number depends on the platform.
            false if !cfg!(target_os = "linux") => Ok(()),
            false => bail!("correct the table in README.md:\n{}", wrong.join("\n")),
        }
    }
}

/// The number of crates that a selection of features compiles.
fn crates_of(selection: &[&str]) -> Result<usize> {
    let tree = ["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
    let output = run::cargo(&[&tree[..], selection].concat()).output().context("cannot run cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let tree = String::from_utf8_lossy(&output.stdout);
    let crates: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    Ok(crates.len())
}

/// The features of the SDK.
fn features_of_the_sdk() -> Result<Vec<String>> {
    let output = run::cargo(&["metadata", "--no-deps", "--format-version", "1"]).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("there are no packages")?;
    let package = packages.iter().find(|package| package["name"] == "attache");
    let features = package.and_then(|package| package["features"].as_object());
    let features = features.context("the package `attache` has no features")?;
    Ok(features.keys().filter(|feature| *feature != "default").cloned().collect())
}

/// The rows of the table in the README. `all` are the features of the SDK.
fn combinations(readme: &str, all: &[String]) -> Result<Vec<Combination>> {
    let (_, table) = readme.split_once(HEADING).context("README.md has no table of combinations")?;
    let rows = table.lines().map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows: Result<Vec<_>> = rows.map(|row| combination(row, all)).collect();
    let rows = rows?;
    if rows.is_empty() {
        bail!("the table of combinations in README.md is empty");
    }
    Ok(rows)
}

fn combination(row: &str, all: &[String]) -> Result<Combination> {
    let cells: Vec<_> = row.split(" | ").collect();
    let [name, features, crates] = cells[..] else { bail!("`{row}` has not three cells") };
    let named: Vec<String> = features.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    if let Some(unknown) = named.iter().find(|feature| !all.contains(feature)) {
        bail!("`{row}` names the feature `{unknown}`, which does not exist");
    }
    let features = match features {
        "none" => Vec::new(),
        features if features.starts_with("all but ") => {
            all.iter().filter(|feature| !named.contains(feature)).cloned().collect()
        }
        _ if named.is_empty() => bail!("`{row}` names no features"),
        _ => named,
    };
    let crates = crates.parse().with_context(|| format!("`{row}` has no number of crates"))?;
    Ok(Combination { name: name.to_owned(), features, crates })
}

fn shown(features: &str) -> String {
    if features.is_empty() { "no features".to_owned() } else { features.replace(',', ", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<String> {
        ["cli", "client", "grpc"].map(str::to_owned).to_vec()
    }

    #[test]
    fn the_table_of_the_readme_has_the_features_and_the_number_of_each_combination() {
        let readme = format!(
            "# A\n\n{HEADING}| types | none | 19 |\n| both | `client`, `grpc` | 7 |\n| most | all but `cli` | 8 |\n\n| other | x | 1 |\n"
        );
        let found = combinations(&readme, &all()).unwrap();
        let found: Vec<_> =
            found.iter().map(|it| (it.name.as_str(), it.features.join(","), it.crates)).collect();
        let expected = [("types", "", 19), ("both", "client,grpc", 7), ("most", "client,grpc", 8)];
        assert_eq!(found, expected.map(|(name, features, crates)| (name, features.to_owned(), crates)));
    }

    #[test]
    fn a_table_that_cannot_be_read_is_an_error() {
        for rows in
            ["", "| a | `client` |", "| a | `nothing` | 5 |", "| a | client | 5 |", "| a | `client` | many |"]
        {
            assert!(combinations(&format!("{HEADING}{rows}\n"), &all()).is_err(), "{rows}");
        }
        assert!(combinations("| a | none | 5 |", &all()).is_err());
    }

    #[test]
    fn the_readme_has_the_table() {
        let readme = fs::read_to_string(run::root().join("README.md")).unwrap();
        let combinations = combinations(&readme, &features_of_the_sdk().unwrap()).unwrap();
        assert!(combinations.len() >= 7, "{combinations:?}");
    }
}
