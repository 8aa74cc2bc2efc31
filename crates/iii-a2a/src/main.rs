//! The `iii-a2a` worker: the functions of an iii engine as the skills of an A2A agent.

mod place;
mod serve;

use std::io::Write;
use std::process::ExitCode;

use attache_iii::{DelegationArgs, GatewayArgs};
use clap::Parser;
use mimalloc::MiMalloc;
use tracing_subscriber::EnvFilter;

use crate::place::PlaceArgs;

/// A server makes and drops many small things; this allocator is made for that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Puts the functions of an iii engine in front of A2A agents
///
/// Joins the engine as a worker and answers through its HTTP: the card at `/.well-known/agent-card.json`, JSON-RPC at `/a2a`,
/// HTTP+JSON below `/v1`. With `--listen` it answers on a port of its own instead, which is faster, also speaks gRPC, and lets
/// several tiers run beside each other. Functions are hidden unless their metadata has `"a2a.expose": true`.
#[derive(Debug, Parser)]
#[command(
    name = "iii-a2a",
    version,
    after_help = "Examples:\n  iii-a2a --base-url https://agents.example.com\n  iii-a2a --tier partner --listen 127.0.0.1:8082\n  iii-a2a --connect https://agents.partner.com      their skills as functions of this engine"
)]
struct Arguments {
    /// The WebSocket URL of the engine
    #[arg(short, long, value_name = "URL", default_value = "ws://localhost:49134", env = "III_URL")]
    engine_url: String,

    /// The public origin that the card advertises
    ///
    /// Without it, the address that is listened on, or `http://localhost:3111` where the engine's HTTP is.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,

    /// Log more
    #[arg(short, long)]
    debug: bool,

    /// Answer on a port of its own instead of through the engine's HTTP
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,

    /// The namespace to register in, where the engine has them (0.23 and later)
    #[arg(long, value_name = "NAME", env = "III_NAMESPACE", help_heading = "Engine")]
    namespace: Option<String>,

    /// What the worker calls itself
    #[arg(long, value_name = "NAME", env = "III_WORKER_NAME", help_heading = "Engine")]
    worker_name: Option<String>,

    /// What the engine wants to be shown, as a bearer token
    #[arg(long, value_name = "TOKEN", env = "III_TOKEN", hide_env_values = true, help_heading = "Engine")]
    token: Option<String>,

    #[command(flatten)]
    gateway: GatewayArgs,

    #[command(flatten)]
    place: PlaceArgs,

    /// Offer no push notifications
    #[arg(long, help_heading = "Tasks")]
    no_push: bool,

    /// Register the skills of this remote agent as functions of the engine, named `a2a.<agent>::<skill>`; may be repeated
    #[arg(long, value_name = "URL", help_heading = "Engine")]
    connect: Vec<String>,

    #[command(flatten)]
    delegation: DelegationArgs,
}

/// What went wrong, and what to do next.
struct Failure {
    error: String,
    hint: Option<&'static str>,
    code: u8,
}

impl Failure {
    fn new(error: impl ToString) -> Self {
        Self { error: error.to_string(), hint: None, code: 1 }
    }

    fn usage(error: impl ToString) -> Self {
        Self { code: 2, ..Self::new(error) }
    }

    fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = if arguments.debug { "debug,hyper=info,h2=info" } else { "info" };
    let filter = EnvFilter::try_from_env("ATTACHE_LOG").unwrap_or_else(|_| EnvFilter::new(filter));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(anstream::stderr);
    // A log that nobody reads any more must not stop the worker.
    log.log_internal_errors(false).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let served = match runtime {
        Ok(runtime) => runtime.block_on(serve::run(arguments)),
        Err(error) => Err(Failure::new(format!("cannot start the runtime: {error}"))),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { error, hint, code }) => {
            let mut out = anstream::stderr().lock();
            // Nothing can be done about an error stream that is closed.
            let _ = writeln!(out, "error: {error}");
            if let Some(hint) = hint {
                let _ = writeln!(out, "hint: {hint}");
            }
            ExitCode::from(code)
        }
    }
}
