//! `cargo xtask docs`: the pages of the documentation that are written from the code.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::run;

/// Write the pages of the documentation that come from the code
#[derive(Debug, Args)]
pub(crate) struct Docs {}

impl Docs {
    pub(crate) fn run(self) -> Result<()> {
        std::fs::create_dir_all(run::root().join("docs/reference"))
            .context("cannot make `docs/reference`")?;
        // The package alone would have other features than the workspace, so that third-party crates were compiled again.
        run::check(run::cargo(&["build", "--quiet", "--workspace", "--bin", "attache"]))?;
        let program = run::target_directory()?.join("debug").join("attache");
        write("docs/reference/command.md", &program, &["reference"])?;
        write("attache.example.yml", &program, &["config", "init", "-"])
    }
}

/// Writes what the command prints into a file of the repository.
fn write(file: &str, program: &Path, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments);
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let file = run::root().join(file);
    std::fs::write(&file, output.stdout).with_context(|| format!("cannot write `{}`", file.display()))
}
