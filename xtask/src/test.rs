//! `cargo xtask test`: everything that must hold before a change lands.

use std::io::Write;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use crate::peers::{Peers, Suite};
use crate::{features, interop, run};

/// Everything that must hold: format, lints, unit, property and end-to-end tests, doc tests, examples
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Only tests whose name contains this; skips format and lints
    filter: Option<String>,

    /// Leave out what takes long: tests with programs that others made, documentation, combinations of features
    #[arg(long)]
    quick: bool,
}

/// How many tests did what.
#[derive(Debug, Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Tests that could not be run here, each with the reason. The harness knows only passed and failed.
    absent: Vec<String>,
}

impl Counts {
    /// Adds up lines such as `test result: ok. 17 passed; 0 failed; 1 ignored; …` and `skipped python_0_25::…: python is not installed`.
    fn see(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("skipped ") {
            self.absent.push(test.to_owned());
        }
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
        }
        if self.filter.is_none() && !self.quick {
            step("documentation", || {
                let mut doc = run::cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
                doc.env("RUSTDOCFLAGS", "--deny warnings");
                run::check(doc)
            })?;
            step("features", || features::Features {}.run())?;
        }
        let mut counts = Counts::default();
        let filter: Vec<&str> = self.filter.as_deref().into_iter().collect();
        let mut green = true;
        let mut peers = None;
        let suites = if self.quick { Vec::new() } else { with_peers(&filter)? };
        if !suites.is_empty() {
            step("SDKs, for tests with programs that others made", || {
                peers = Some(Peers::install(&suites)?);
                interop::forget()
            })?;
        }
        if self.quick {
            step("examples", || run::check(run::cargo(&["build", "--workspace", "--examples", "--quiet"])))?;
        }
        step(if self.quick { "tests" } else { "tests, examples and documentation tests" }, || {
            // Examples are built with the tests, which run them, unless targets are named.
            let targets: &[&str] = if self.quick { &["--lib", "--bins", "--tests"] } else { &[] };
            let arguments = [&["test", "--workspace", "--no-fail-fast"], targets, filter.as_slice()].concat();
            let mut tests = run::cargo(&arguments);
            tests.envs(peers.iter().flat_map(Peers::environment));
            green &= run::watch(tests, |line| counts.see(line))?;
            Ok(())
        })?;
        let Counts { passed, failed, skipped, absent } = counts;
        let (passed, skipped) = (passed.saturating_sub(absent.len()), skipped + absent.len());
        for test in absent.iter().filter(|_| !self.quick) {
            eprintln!("skipped {test}");
        }
        for language in peers.iter().flat_map(|peers| &peers.without) {
            eprintln!("{} is not installed, so its tests were skipped: {}", language.name(), language.hint());
        }
        eprintln!("took {} s", began.elapsed().as_secs());
        writeln!(std::io::stdout(), "{passed} passed, {failed} failed, {skipped} skipped")?;
        if !green || failed > 0 {
            bail!("not everything passed");
        }
        // Only a run of everything fills the table.
        if absent.is_empty() && self.filter.is_none() {
            step("docs/interop.md", interop::check)?;
        }
        Ok(())
    }
}

/// The suites that need peers and have a test among the ones to run. Without a filter all have.
fn with_peers(filter: &[&str]) -> Result<Vec<Suite>> {
    let mut suites = Vec::new();
    for suite in Suite::ALL {
        if filter.is_empty() || has_tests(suite, filter)? {
            suites.push(suite);
        }
    }
    Ok(suites)
}

fn has_tests(suite: Suite, filter: &[&str]) -> Result<bool> {
    // The whole workspace is selected, as in the run of the tests: one package alone has other features and is built a second time.
    let list = ["test", "--quiet", "--workspace", "--test", suite.target()];
    let listed = run::cargo(&[&list, filter, &["--", "--list"]].concat()).output()?;
    Ok(String::from_utf8_lossy(&listed.stdout).lines().any(|line| line.ends_with(": test")))
}

fn step(name: &str, act: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("==> {name}");
    act()
}
