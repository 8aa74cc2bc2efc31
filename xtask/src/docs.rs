//! `cargo xtask docs`: the pages of the documentation that are written from the code.

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::run;

/// Write the pages of the documentation that come from the code
#[derive(Debug, Args)]
pub(crate) struct Docs {}

impl Docs {
    pub(crate) fn run(self) -> Result<()> {
        let mut command = run::cargo(&["run", "--quiet", "--package", "attache", "--", "reference"]);
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        if !output.status.success() {
            bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        let page = run::root().join("docs/reference/command.md");
        std::fs::create_dir_all(page.with_file_name("")).context("cannot make `docs/reference`")?;
        std::fs::write(&page, output.stdout).with_context(|| format!("cannot write `{}`", page.display()))
    }
}
