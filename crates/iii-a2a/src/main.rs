//! The `iii-a2a` worker: the functions of an iii engine as the skills of an A2A agent.

mod agents;
mod place;
mod serve;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use attache_agents::{API_TOKEN_VARIABLE, DelegationArgs};
use attache_iii::GatewayArgs;
use attache_iii::variables::{self, Unread};
use attache_server::{AllowedHost, AllowedOrigin, IpNet, Policy};
use attache_store::KEYRING_VARIABLE;
use clap::{CommandFactory, Parser};
use mimalloc::MiMalloc;
use tracing_subscriber::EnvFilter;

use crate::place::PlaceArgs;

/// A server allocates many small objects; this allocator is fast at that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Exposes the functions of an iii engine to A2A clients
///
/// Connects to the engine as a worker and serves through its HTTP: the card at `/.well-known/agent-card.json`, JSON-RPC at `/a2a`,
/// HTTP+JSON below `/v1`. With `--listen` it serves on its own port instead, which is faster, adds gRPC, and allows one process
/// per tier. Functions are hidden unless their metadata has `"a2a.expose": true`.
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

    /// Serve on this address instead of through the engine's HTTP
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,

    /// A host name to answer to beside `localhost`, the address listened on and the host of `--base-url`; may be repeated, and `*` is every name
    #[arg(long, value_name = "HOST", help_heading = "Web pages")]
    allowed_host: Vec<AllowedHost>,

    /// An origin whose pages may call, such as `https://app.example.com`; may be repeated, and `*` is every origin, without cookies
    #[arg(long, value_name = "ORIGIN", help_heading = "Web pages")]
    cors_origin: Vec<AllowedOrigin>,

    /// The namespace to register in, where the engine has them (0.23 and later)
    #[arg(long, value_name = "NAME", env = "III_NAMESPACE", help_heading = "Engine")]
    namespace: Option<String>,

    /// The name of the worker
    #[arg(long, value_name = "NAME", env = "III_WORKER_NAME", help_heading = "Engine")]
    worker_name: Option<String>,

    /// The bearer token for the engine
    #[arg(long, value_name = "TOKEN", env = "III_TOKEN", hide_env_values = true, help_heading = "Engine")]
    token: Option<String>,

    /// The largest payload of a call, in bytes
    ///
    /// Without it, the limit is that of the SDK of the called worker: 1 MiB for Python before 0.25 and for unknown SDKs, 16 MiB for Rust before
    /// 0.24.6, otherwise 64 MiB. A worker that gets more disconnects.
    #[arg(long, value_name = "BYTES", help_heading = "Engine")]
    max_payload: Option<usize>,

    #[command(flatten)]
    gateway: GatewayArgs,

    #[command(flatten)]
    place: PlaceArgs,

    #[command(flatten)]
    push: PushArgs,

    /// Register the skills of this remote agent as functions of the engine, named `a2a.<agent>::<skill>`; may be repeated
    #[arg(long, value_name = "URL", help_heading = "Engine")]
    connect: Vec<String>,

    #[command(flatten)]
    delegation: DelegationArgs,

    /// What other agents are shown, for delegated tasks and for `--connect`: a JSON list in this file
    ///
    /// Such as `[{"url": "https://other.example.com", "bearer-file": "/run/secrets/other"}]`. Each is shown to its own address only.
    #[arg(long, value_name = "PATH", help_heading = "Delegation")]
    agent_credentials: Option<PathBuf>,
}

/// Push notifications.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Push notifications")]
struct PushArgs {
    /// Offer no push notifications
    #[arg(long)]
    no_push: bool,

    /// Let webhooks be on this machine, for development
    #[arg(long, conflicts_with = "no_push")]
    allow_loopback_webhooks: bool,

    /// Let webhooks be in this network although it is not public, such as `10.1.0.0/16`; may be repeated
    #[arg(long, value_name = "NETWORK", value_parser = attache_agents::network, conflicts_with = "no_push")]
    allow_webhook_network: Vec<IpNet>,
}

impl PushArgs {
    /// Which addresses of webhooks are called.
    fn policy(&self) -> Policy {
        Policy::default()
            .allow_loopback(self.allow_loopback_webhooks)
            .loopback_setting("--allow-loopback-webhooks")
            .allow(self.allow_webhook_network.iter().copied())
    }
}

/// An error of the command: what failed, and what to do next.
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

/// The variable that sets the log filter.
const LOG_VARIABLE: &str = "ATTACHE_LOG";

/// The variables that look like those of this command but are not read. Engines and other workers use `III_` variables too.
fn unread(environment: &[(String, String)]) -> Vec<Unread> {
    let mut known = variables::of_flags(&Arguments::command());
    known.extend([LOG_VARIABLE, API_TOKEN_VARIABLE, KEYRING_VARIABLE].map(str::to_owned));
    let mut found = variables::misspelt(environment.iter().cloned(), "III_", &known);
    found.extend(variables::unread(environment.iter().cloned(), || known));
    found
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = if arguments.debug { "debug,hyper=info,h2=info" } else { "info" };
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(filter));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(anstream::stderr);
    // The worker must not stop if its log cannot be written.
    log.log_internal_errors(false).init();
    // Each connection needs a file descriptor.
    if let Err(error) = attache_server::raise_file_limit() {
        tracing::warn!(%error, "cannot raise the limit on open files");
    }
    for Unread { name, meant } in unread(&variables::environment().collect::<Vec<_>>()) {
        tracing::warn!(variable = name, meant, "this environment variable has no effect");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let served = match runtime {
        Ok(runtime) => runtime.block_on(serve::run(arguments)),
        Err(error) => Err(Failure::new(format!("cannot start the runtime: {error}"))),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { error, hint, code }) => {
            let mut out = anstream::stderr().lock();
            // If standard error is closed, the message is lost.
            let _ = writeln!(out, "error: {error}");
            if let Some(hint) = hint {
                let _ = writeln!(out, "hint: {hint}");
            }
            ExitCode::from(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_variables_are_found_with_the_probable_names() {
        let names = [
            "ATTACHE_STORE",
            "ATTACHE_KEYRING",
            "ATTACHE_KEYRING_FILE",
            "ATTACHE_LOG",
            "ATTACHE_API_TOKEN",
            "ATTACHE_API_TOKEN_FILE",
            "III_URL",
            "III_TOKEN",
            "III_NAMESPACE",
            "III_WORKER_NAME",
            "III_ISOLATION",
            "PATH",
            "ATTACHE_STOER",
            "ATTACHE_LISTEN",
            "III_TOKN",
        ];
        let environment = names.map(|name| (name.to_owned(), "x".to_owned()));
        let found =
            unread(&environment).into_iter().map(|Unread { name, meant }| (name, meant.unwrap_or_default()));
        let found: Vec<_> = found.collect();
        let found: Vec<_> = found.iter().map(|(name, meant)| (name.as_str(), meant.as_str())).collect();
        assert_eq!(
            found,
            [("III_TOKN", "III_TOKEN"), ("ATTACHE_LISTEN", ""), ("ATTACHE_STOER", "ATTACHE_STORE")]
        );
    }
}
