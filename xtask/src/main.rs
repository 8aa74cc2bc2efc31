//! Developer commands: `cargo xtask test`, `cargo xtask docs`, `cargo xtask interop`, `cargo xtask bench` and `cargo xtask crash`.

mod bench;
mod crash;
mod docs;
mod interop;
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
    /// Write the pages of the documentation that come from the code; `test` fails if they are not up to date
    Docs(docs::Docs),
    /// The official SDKs of A2A at our server and at our client, and what each can do as `docs/interop.md`
    Interop(interop::Interop),
    /// Our server against a bare one, as ratios
    Bench(bench::Bench),
    /// Load on servers that are killed again and again, and a look at what is left
    Crash(crash::Crash),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Test(test) => test.run(),
        Command::Docs(docs) => docs.run(),
        Command::Interop(interop) => interop.run(),
        Command::Bench(bench) => bench.run(),
        Command::Crash(crash) => crash.run(),
    }
}
