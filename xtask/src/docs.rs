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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use crate::run;

    /// Adds the text of every Rust file below a folder.
    fn read_all(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read_all(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                text.push_str(&fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// What stands between backticks and is called like a test: several words with underscores between them.
    fn tests_in(page: &str) -> BTreeSet<&str> {
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_test =
            |name: &&str| name.split('_').count() > 3 && name.split('_').all(|it| it.chars().all(is_word));
        page.split('`').skip(1).step_by(2).filter(is_test).collect()
    }

    #[test]
    fn every_test_that_the_page_on_security_names_exists() {
        let page = fs::read_to_string(run::root().join("docs/security.md")).unwrap();
        let mut code = String::new();
        ["crates", "fuzz/tests"].iter().for_each(|folder| read_all(&run::root().join(folder), &mut code));
        let tests = tests_in(&page);
        assert!(tests.len() > 50, "{tests:?}");
        // Some are made by a macro, from a name and what it is for.
        let exists =
            |name: &str| code.contains(&format!("fn {name}(")) || code.contains(&format!("    {name}: \""));
        let missing: Vec<_> = tests.into_iter().filter(|name| !exists(name)).collect();
        assert!(missing.is_empty(), "`docs/security.md` names tests that do not exist: {missing:?}");
    }
}
