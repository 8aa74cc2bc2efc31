//! `attache serve`: an agent on the network.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use attache::core::{News, Retention};
use attache::prelude::*;
use attache::server::{IpNet, PushOptions, SigningSecret};
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use super::Failure;
use super::place::Place;

/// Which agent to serve, and where.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  attache serve --agent echo --listen 127.0.0.1:8080")]
pub(crate) struct Serve {
    /// Which agent to serve
    #[arg(long, value_enum, default_value_t = Kind::Echo)]
    agent: Kind,

    /// The address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3111", env = "ATTACHE_LISTEN")]
    listen: String,

    /// The URL that the card advertises, if clients reach the server under another one
    #[arg(long, value_name = "URL", env = "ATTACHE_BASE_URL")]
    base_url: Option<String>,

    #[command(flatten)]
    place: Place,

    /// Refuse requests that do not say which protocol version they speak
    #[arg(long)]
    strict_version: bool,

    /// What to log, such as `info` or `attache_server=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", env = "ATTACHE_LOG")]
    log: String,

    #[command(flatten)]
    push: Push,

    #[command(flatten)]
    keep: Keep,
}

/// How the news of tasks is told to webhooks.
#[derive(Debug, Args)]
#[command(next_help_heading = "Push notifications")]
struct Push {
    /// Offer no push notifications
    #[arg(long)]
    no_push: bool,

    /// Tell webhooks of every event, not only of every new status
    #[arg(long, conflicts_with = "no_push")]
    push_every_event: bool,

    /// Sign what webhooks are told with the secret in this file
    #[arg(long, value_name = "PATH", env = "ATTACHE_PUSH_SECRET_FILE", conflicts_with = "no_push")]
    push_secret_file: Option<PathBuf>,

    /// Let webhooks be on this machine, for development
    #[arg(long, conflicts_with = "no_push")]
    allow_loopback_webhooks: bool,

    /// Let webhooks be in this network although it is not public, such as `10.1.0.0/16`; may be repeated
    #[arg(long, value_name = "NETWORK", conflicts_with = "no_push", value_parser = network)]
    allow_webhook_network: Vec<IpNet>,

    /// Refuse webhooks that are not `https`
    #[arg(long, conflicts_with = "no_push")]
    https_webhooks_only: bool,
}

impl Push {
    fn policy(&self) -> Policy {
        Policy::default()
            .allow_loopback(self.allow_loopback_webhooks)
            .allow(self.allow_webhook_network.iter().copied())
            .https_only(self.https_webhooks_only)
    }

    fn secret(&self) -> Result<Option<SigningSecret>, Failure> {
        let Some(path) = &self.push_secret_file else { return Ok(None) };
        let secret = std::fs::read(path).map_err(|error| {
            Failure::usage(format!("`--push-secret-file {}` cannot be read: {error}", path.display()))
        })?;
        let secret = secret.trim_ascii();
        if secret.len() < SHORTEST_SECRET {
            let text = format!("the secret in `{}` is shorter than {SHORTEST_SECRET} bytes", path.display());
            return Err(Failure::usage(text).hint("make one with `openssl rand -hex 32`"));
        }
        Ok(Some(SigningSecret::new(secret)))
    }
}

/// The shortest secret that is worth signing with.
const SHORTEST_SECRET: usize = 16;

/// How long tasks are kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Retention")]
struct Keep {
    /// Forget tasks that ended longer ago than this, such as `12h` or `30d`; they are kept for good if this is not given
    #[arg(long, value_name = "AGE", value_parser = age, env = "ATTACHE_KEEP_FOR")]
    keep_for: Option<Duration>,

    /// Forget tasks that have ended beyond this many of each caller, oldest first
    #[arg(long, value_name = "COUNT", env = "ATTACHE_KEEP_TASKS")]
    keep_tasks: Option<usize>,
}

fn network(text: &str) -> Result<IpNet, &'static str> {
    let alone = || text.parse::<std::net::IpAddr>().map(IpNet::from);
    text.parse().or_else(|_| alone()).map_err(|_| "expected a network such as `10.1.0.0/16`, or an address")
}

/// Reads a length of time such as `90s`, `15m`, `12h` or `30d`.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let bad = || "expected a number and a unit, such as `90s`, `15m`, `12h` or `30d`".to_owned();
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(bad()),
    };
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(bad)
}

/// The agents that come with the command.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Gives back what it gets
    Echo,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let filter = EnvFilter::try_new(&self.log).map_err(|error| {
            Failure::usage(format!("`--log {}` is not a filter: {error}", self.log)).hint("try `--log info`")
        })?;
        // A log that nobody reads any more must not stop the server.
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(anstream::stderr);
        log.log_internal_errors(false).init();
        if let Some(url) = &self.base_url
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            return Err(Failure::usage(format!("`--base-url {url}` is not an `http` or `https` URL"))
                .hint("try `--base-url https://agents.example.com`"));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
        runtime.block_on(async {
            match self.agent {
                Kind::Echo => self.serve(Server::echo()).await,
            }
        })
    }

    async fn serve<A: Agent>(self, server: Server<A>) -> Result<(), Failure> {
        let store = self.place.open()?;
        let kept = self.place.url()?;
        let (policy, secret) = (self.push.policy(), self.push.secret()?);
        let mut server = server
            .bind(&self.listen)
            .shared_store(store)
            .push(!self.push.no_push)
            .push_options(|push: &mut PushOptions| (push.policy, push.secret) = (policy, secret))
            .options(|options| options.strict_version = self.strict_version)
            .service_options(|options| {
                options.retention =
                    Retention { max_age: self.keep.keep_for, max_tasks: self.keep.keep_tasks };
                if self.push.push_every_event {
                    options.push_news = News::Everything;
                }
            });
        if let Some(url) = &self.base_url {
            server = server.base_url(url);
        }
        let listening = server.listen().await.map_err(|error| {
            Failure::new(error).hint("choose another address with `--listen`, such as `--listen 127.0.0.1:0`")
        })?;
        let address = listening.address().map_err(Failure::new)?;
        announce(&format!("http://{address}"), &kept.to_string());
        listening.run().await.map_err(|error| Failure::new(format!("the server stopped: {error}")))
    }
}

/// Says where the agent is and what to try next.
fn announce(url: &str, kept: &str) {
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"Hello"}]}}}"#;
    let mut out = anstream::stderr().lock();
    // Nothing can be done about an error stream that is closed.
    let _ = writeln!(
        out,
        "Listening on {url}\n\n  card       {url}/.well-known/agent-card.json\n  JSON-RPC   {url}/a2a\n  HTTP+JSON  {url}/v1\n  gRPC       {}\n  tasks      {kept}\n\nTry:\n  curl -s {url}/a2a -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' \\\n    -d '{message}'\n",
        url.trim_start_matches("http://"),
    );
}
