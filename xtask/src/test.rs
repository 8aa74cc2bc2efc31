//! `cargo xtask test`: everything that must hold before a change lands.

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use crate::run;

/// Everything that must hold: format, lints, unit, property and end-to-end tests, doc tests, examples
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Only tests whose name contains this; skips format and lints
    filter: Option<String>,
}

/// How many tests did what.
#[derive(Debug, Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    /// Adds up a line such as `test result: ok. 17 passed; 0 failed; 1 ignored; …`.
    fn see(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ").and_then(|(_, rest)| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            match count.split_once(' ').map(|(number, what)| (number.parse().unwrap_or(0), what)) {
                Some((number, "passed")) => self.passed += number,
                Some((number, "failed")) => self.failed += number,
                Some((number, "ignored")) => self.skipped += number,
                Some(_) | None => {}
            }
        }
    }
}

impl Test {
    pub(crate) fn run(self) -> Result<()> {
        let began = Instant::now();
        if self.filter.is_none() {
            step("format", || run::check(run::cargo(&["fmt", "--all", "--check"])))?;
            step("lints", || {
                let lints = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"];
                run::check(run::cargo(&lints))
            })?;
            step("documentation", || {
                let mut doc = run::cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
                doc.env("RUSTDOCFLAGS", "--deny warnings");
                run::check(doc)
            })?;
        }
        let mut counts = Counts::default();
        let filter: Vec<&str> = self.filter.as_deref().into_iter().collect();
        let mut green = true;
        step("tests, examples and documentation tests", || {
            // Examples are built with the tests, which run them.
            let arguments = [&["test", "--workspace", "--no-fail-fast"], filter.as_slice()].concat();
            green &= run::watch(run::cargo(&arguments), |line| counts.see(line))?;
            Ok(())
        })?;
        let Counts { passed, failed, skipped } = counts;
        eprintln!("took {} s", began.elapsed().as_secs());
        writeln!(std::io::stdout(), "{passed} passed, {failed} failed, {skipped} skipped")?;
        if !green || failed > 0 {
            bail!("not everything passed");
        }
        Ok(())
    }
}

fn step(name: &str, act: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("==> {name}");
    act()
}
