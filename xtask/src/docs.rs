//! `cargo xtask docs`: the pages of the documentation that are written from the code.

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
        write("docs/reference/command.md", &["reference"])?;
        write("attache.example.yml", &["config", "init", "-"])
    }
}

/// Writes what the command prints into a file of the repository.
fn write(file: &str, arguments: &[&str]) -> Result<()> {
    let mut command = run::cargo(&[&["run", "--quiet", "--package", "attache", "--"], arguments].concat());
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let file = run::root().join(file);
    std::fs::write(&file, output.stdout).with_context(|| format!("cannot write `{}`", file.display()))
}
