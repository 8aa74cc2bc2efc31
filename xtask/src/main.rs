//! Developer commands; `cargo xtask --help` lists them.

mod bench;
mod crash;
mod docs;
#[cfg(test)]
mod documents;
mod features;
mod interop;
mod overload;
mod package;
mod peers;
mod run;
#[cfg(unix)]
mod screens;
mod storm;
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
    /// Build each combination of features that the README names, and count its crates
    Features(features::Features),
    /// The official SDKs of A2A at our server and at our client, and what each can do as `docs/interop.md`
    Interop(interop::Interop),
    /// Pictures of the command on a terminal, as `docs/screens/*.svg`
    #[cfg(unix)]
    Screens(screens::Screens),
    /// The Debian package, with man pages, completions and a systemd unit
    Package(package::Package),
    /// Our server against a bare one, as ratios
    Bench(bench::Bench),
    /// Load on servers that are killed again and again, and a look at what is left
    Crash(crash::Crash),
    /// A server that is asked for ten times what it can take, and one with thousands of slow clients
    Overload(overload::Overload),
    /// Broken HTTP/1 and HTTP/2 at a running server, with `/health` and memory watched
    Storm(storm::Storm),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Test(test) => test.run(),
        Command::Docs(docs) => docs.run(),
        Command::Features(features) => features.run(),
        Command::Interop(interop) => interop.run(),
        #[cfg(unix)]
        Command::Screens(screens) => screens.run(),
        Command::Package(package) => package.run(),
        Command::Bench(bench) => bench.run(),
        Command::Crash(crash) => crash.run(),
        Command::Overload(overload) => overload.run(),
        Command::Storm(storm) => storm.run(),
    }
}
