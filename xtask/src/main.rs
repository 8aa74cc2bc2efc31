//! Developer commands: `cargo xtask test`, `cargo xtask bench` and `cargo xtask crash`.

mod bench;
mod crash;
mod peers;
mod run;
mod test;

use anyhow::Result;
use clap::Parser;

/// Developer commands of Attaché
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Everything that must hold: format, lints, unit, property and end-to-end tests, doc tests, examples
    Test(test::Test),
    /// Our server against a bare one, as ratios
    Bench(bench::Bench),
    /// Load on servers that are killed again and again, and a look at what is left
    Crash(crash::Crash),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Test(test) => test.run(),
        Command::Bench(bench) => bench.run(),
        Command::Crash(crash) => crash.run(),
    }
}
