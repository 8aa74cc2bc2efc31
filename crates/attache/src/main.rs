//! The `attache` command.

mod command;
mod config;
mod platform;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use self::config::Stop;

/// A server allocates and frees many small objects, which this allocator is fast at.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A2A agents from the command line.
#[derive(Debug, Parser)]
#[command(
    name = "attache",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = command::EXIT_CODES
)]
struct Arguments {
    #[command(subcommand)]
    command: command::Command,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    match config::parse_arguments(&arguments) {
        Ok(arguments) => command::run(arguments.command),
        Err(Stop::Usage(error)) => error.exit(),
        Err(Stop::Failed(failure)) => failure.end(),
    }
}
