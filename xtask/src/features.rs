//! `cargo xtask features`: builds each combination of cargo features that the README names, and counts the crates that it compiles.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::run;

/// The combinations in the README's table, with the features that each has.
const COMBINATIONS: [(&str, &str); 7] = [
    ("types only", ""),
    ("client", "client"),
    ("client with all bindings and logins", "client,grpc,oauth,signing"),
    ("server without gRPC", "server"),
    ("server with gRPC and signing, without SQLite", "server,grpc,signing"),
    ("server with SQLite", "server,sqlite"),
    ("everything but the command", "client,grpc,oauth,redis,server,signing,sqlite"),
];

/// Programs that are also built on their own. A build of the whole workspace gives them the features of all other packages.
const PROGRAMS: [&str; 2] = ["iii-a2a", "attache-bench"];

/// Build each combination of features that the README names, and count its crates
#[derive(Debug, Args)]
pub(crate) struct Features {}

impl Features {
    pub(crate) fn run(self) -> Result<()> {
        for program in PROGRAMS {
            run::check(run::cargo(&["check", "--quiet", "--package", program]))
                .with_context(|| format!("`{program}` does not build on its own"))?;
        }
        for (name, features) in COMBINATIONS {
            let selection = ["-p", "attache", "--no-default-features", "--features", features];
            run::check(run::cargo(&[&["check", "--quiet", "--lib"], &selection[..]].concat()))
                .with_context(|| format!("the features `{features}` ({name}) do not build"))?;
            let tree = ["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
            let output =
                run::cargo(&[&tree[..], &selection].concat()).output().context("cannot run cargo tree")?;
            if !output.status.success() {
                bail!("cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
            }
            let tree = String::from_utf8_lossy(&output.stdout);
            let crates: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
            writeln!(std::io::stdout(), "{:4} crates  {name} ({})", crates.len(), shown(features))?;
        }
        Ok(())
    }
}

fn shown(features: &str) -> String {
    if features.is_empty() { "no features".to_owned() } else { features.replace(',', ", ") }
}
