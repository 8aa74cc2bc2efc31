//! The load harness behind `cargo xtask bench`.
//!
//! Our server (the subject) and a bare axum server take turns under the same load in one run, the server on one core and the
//! load generator on another, where it does not sleep while it measures. Absolute figures belong to the machine and the day; the
//! ratios are what is reported and judged. Works on a store in a file are held against the store in memory, or against a
//! smaller file; those on the functions of iii workers against the echo agent, or against fewer workers and functions; those on
//! ready-made agents against what they stand for: a program that is started, an endpoint or a remote agent that is called directly.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use attache::store::StoreUrl;
use clap::{Args, Parser, Subcommand};

use crate::agents::AgentKind;
use crate::bare::DataAs;
use crate::harness::{Harness, Settings};
use crate::overload::Overload;
use crate::server::SubjectCommand;
use crate::storm::Storm;
use crate::worker::Crowd;
use crate::works::Work;

/// The allocator of the `attache` command, for both servers: what is measured is what runs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod agents;
mod answers;
mod bare;
mod connection;
mod endpoint;
mod events;
mod gateway;
mod harness;
mod load;
mod machine;
mod overload;
mod report;
mod requests;
mod response;
mod server;
mod staff;
mod stats;
mod store;
mod storm;
mod subject;
mod worker;
mod works;

const DEFAULT_SECONDS: f64 = 3.0;
const QUICK_SECONDS: f64 = 0.4;

/// Measure our server against a bare one.
#[derive(Parser)]
#[command(name = "attache-bench", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Run the works and print the ratios (what happens without a subcommand)
    Run(RunArgs),
    /// Ask ten times what a server can take of it, and keep thousands of slow connections open
    Overload(Overload),
    /// Send broken requests from all sides, and watch `/health` and memory
    Storm(Storm),
    /// Serve one side of the comparison in the foreground
    Serve {
        /// Which server
        #[command(subcommand)]
        side: Side,
    },
}

#[derive(Subcommand)]
enum Side {
    /// The bare server: parses the request and returns a constant answer
    Bare {
        #[command(flatten)]
        at: Listen,
        /// What data parts are parsed into
        #[arg(long, value_enum, default_value = "tree")]
        data: DataAs,
    },
    /// Our server with the bench agent
    Subject {
        #[command(flatten)]
        at: Listen,
        /// Where tasks are kept: `sqlite:PATH`, or `memory:` for as long as the process runs
        #[arg(long, value_name = "STORE", default_value = "memory:")]
        store: StoreUrl,
        #[command(flatten)]
        settings: subject::Settings,
    },
    /// Our server with the functions of iii workers as its skills, and an engine for them to join
    Gateway {
        #[command(flatten)]
        at: Listen,
        /// Address that workers connect to
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:49134")]
        engine_listen: SocketAddr,
    },
    /// Our server with one of the ready-made agents
    Agent {
        #[command(flatten)]
        at: Listen,
        /// Which agent
        #[command(flatten)]
        kind: AgentKind,
    },
    /// A scripted endpoint of a language model, which lets its caller wait before the first token
    Endpoint {
        #[command(flatten)]
        at: Listen,
        /// Milliseconds to the first token
        #[arg(long, value_name = "MS", default_value_t = 20)]
        wait: u64,
    },
    /// Workers that join the engine of a gateway, with functions that give back their payload
    Worker {
        /// URL of the engine
        #[arg(long, value_name = "URL", default_value = "ws://127.0.0.1:49134")]
        engine: String,
        #[command(flatten)]
        crowd: Crowd,
    },
}

#[derive(Args)]
struct Listen {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

#[derive(Args)]
struct RunArgs {
    /// Short windows and a tenth of the tasks in a file: a look at the numbers, not a result to quote
    #[arg(long)]
    quick: bool,
    /// Run only these works
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',')]
    only: Vec<Work>,
    /// Windows per server and work; medians are reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Length of one window in seconds [default: 3, or 0.4 with --quick]
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Keep the load generator from sleeping, so that waking it is not charged to the server; needs two cores
    ///
    /// The figures then show what the server does alone. Those of other programs were mostly taken with a generator that sleeps.
    /// In works with iii workers, which are on its core, it sleeps all the same.
    #[arg(long)]
    awake: bool,
    /// Where to write the results as JSON
    #[arg(long, value_name = "PATH", default_value = "target/bench/latest.json")]
    out: PathBuf,
    /// Program (with arguments) that serves the subject; `--listen ADDR` is appended, and for some works `--store STORE`; gateways are always this program [default: this one, `serve subject`]
    #[arg(long, value_name = "PATH")]
    subject: Option<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        None => run(cli.run),
        Some(Command::Run(args)) => run(args),
        Some(Command::Overload(overload)) => single_threaded(overload.run()),
        Some(Command::Storm(storm)) => single_threaded(storm.run()),
        Some(Command::Serve { side: Side::Bare { at, data } }) => {
            single_threaded(bare::serve(at.listen, data))
        }
        Some(Command::Serve { side: Side::Subject { at, store, settings } }) => {
            single_threaded(subject::serve(at.listen, store, settings))
        }
        Some(Command::Serve { side: Side::Gateway { at, engine_listen } }) => {
            single_threaded(gateway::serve(at.listen, engine_listen))
        }
        Some(Command::Serve { side: Side::Agent { at, kind } }) => {
            single_threaded(agents::serve(at.listen, kind))
        }
        Some(Command::Serve { side: Side::Endpoint { at, wait } }) => {
            single_threaded(endpoint::serve(at.listen, Duration::from_millis(wait)))
        }
        Some(Command::Serve { side: Side::Worker { engine, crowd } }) => {
            single_threaded(worker::serve(&engine, crowd))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: RunArgs) -> Result<()> {
    let seconds = args.seconds.unwrap_or(if args.quick { QUICK_SECONDS } else { DEFAULT_SECONDS });
    let length = Duration::try_from_secs_f64(seconds).context("`--seconds` is not a length of time")?;
    if length < Duration::from_millis(100) {
        bail!("`--seconds {seconds}` is too short to measure processor time; use 0.1 or more");
    }
    let subject = match args.subject {
        Some(line) => SubjectCommand::parse(&line)?,
        None => SubjectCommand::this_program()?,
    };
    let works = if args.only.is_empty() { Work::all().to_vec() } else { args.only };

    machine::raise_open_file_limit();
    let mut cores = machine::pin_load_generator()?;
    cores.awake = args.awake && cores.pinned.is_some();
    let settings = Settings { quick: args.quick, repeat: args.repeat, length, subject };
    let report = single_threaded(async {
        tokio::select! {
            report = Harness::new(settings, cores).run(&works) => Ok(report),
            () = machine::terminated() => bail!("terminated before the end; nothing was written"),
        }
    })?;

    report.print()?;
    report.write(&args.out)?;
    eprintln!("written to {}", args.out.display());
    if report.is_complete() { Ok(()) } else { bail!("some works could not be measured") }
}

fn single_threaded<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
