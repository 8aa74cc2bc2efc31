//! `cargo xtask crash`: load on servers that are killed again and again, for as long as one likes.

use std::io::Write;

use anyhow::{Result, bail};
use clap::Args;

use crate::run;

/// How many kinds of servers are killed, each by a test of its own.
const KINDS: usize = 3;

/// Load on servers that are killed again and again, and a look at what is left
///
/// These are the tests of the same name, with what is released and for longer. The kinds of servers share the time.
#[derive(Debug, Args)]
pub(crate) struct Crash {
    /// For how many minutes
    #[arg(long, default_value_t = 3.0)]
    minutes: f64,

    /// Where to begin: the seed that a run has named
    #[arg(long)]
    seed: Option<u64>,
}

/// What the tests survived.
#[derive(Debug, Default, PartialEq, Eq)]
struct Survived {
    kinds: usize,
    kills: u64,
    sends: u64,
    webhooks: u64,
}

impl Survived {
    /// Adds up a line such as `Echo: 3 rounds, 25 kills, 90210 sends acknowledged, 777 webhooks arrived, nothing lost (seed 7)`.
    fn see(&mut self, line: &str) {
        if !line.contains("nothing lost") {
            return;
        }
        self.kinds += 1;
        for count in line.split(", ") {
            match count.split_once(' ').map(|(number, what)| (number.parse().unwrap_or(0), what)) {
                Some((number, "kills")) => self.kills += number,
                Some((number, "sends acknowledged")) => self.sends += number,
                Some((number, "webhooks arrived")) => self.webhooks += number,
                Some(_) | None => {}
            }
        }
    }
}

impl Crash {
    pub(crate) fn run(self) -> Result<()> {
        // The tests run an example, which is not built when only they are asked for.
        let example = ["build", "--release", "--package", "attache", "--example", "durable_agent"];
        run::check(run::cargo(&example))?;
        let seconds = (self.minutes * 60.0 / KINDS as f64).ceil().max(1.0) as u64;
        let mut tests =
            run::cargo(&["test", "--release", "--package", "attache", "--test", "e2e", "crash::"]);
        tests.args(["--", "--test-threads", "1", "--nocapture"]);
        tests.env("ATTACHE_CRASH_SECONDS", seconds.to_string());
        tests.envs(self.seed.map(|seed| ("ATTACHE_CRASH_SEED", seed.to_string())));
        let mut survived = Survived::default();
        let green = run::watch(tests, |line| survived.see(line))?;
        let Survived { kinds, kills, sends, webhooks } = survived;
        if !green || kinds != KINDS {
            bail!("only {kinds} of {KINDS} kinds of servers have survived: what was lost is said above");
        }
        let counts = format!("{kills} kills, {sends} sends acknowledged, {webhooks} webhooks arrived");
        writeln!(std::io::stdout(), "{counts}: nothing lost")?;
        Ok(())
    }
}
