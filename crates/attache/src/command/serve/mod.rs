//! `attache serve`: an agent on the network.

mod demo;
mod functions;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use attache::core::{News, Retention, Store};
use attache::prelude::*;
use attache::server::{IpNet, Listening, Paths, PushOptions, SigningKeys, SigningSecret};
use attache_iii::delegation::{Access, Api};
use clap::{Args, ValueEnum};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use self::functions::{FunctionArgs, Started};
use super::place::Place;
use super::{Failure, keys};

/// Which agent to serve, and where.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  attache serve --demo                                  sample functions, to look around\n  attache serve --tier partner                          functions of iii workers for partners\n  attache serve --agent echo --listen 127.0.0.1:8080    the smallest agent"
)]
pub(crate) struct Serve {
    /// Which agent to serve
    #[arg(long, value_enum, default_value_t = Kind::Functions)]
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

    /// Give everyone the card of protocol 1.0 alone, without the members that 0.3 clients read
    #[arg(long)]
    pure_card: bool,

    /// Sign the card with the keys in this file, which `attache keys new` makes
    #[arg(long, value_name = "PATH", env = "ATTACHE_SIGNING_KEYS")]
    signing_keys: Option<PathBuf>,

    /// What to log, such as `info` or `attache_server=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", env = "ATTACHE_LOG")]
    log: String,

    #[command(flatten)]
    push: Push,

    #[command(flatten)]
    keep: Keep,

    #[command(flatten)]
    functions: FunctionArgs,
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
        let secret = secret_in(self.push_secret_file.as_deref(), "--push-secret-file")?;
        Ok(secret.map(SigningSecret::new))
    }
}

/// The shortest secret that is worth having.
const SHORTEST_SECRET: usize = 16;

/// The secret in a file that a flag names.
pub(super) fn secret_in(file: Option<&Path>, flag: &str) -> Result<Option<Vec<u8>>, Failure> {
    let Some(path) = file else { return Ok(None) };
    let secret = std::fs::read(path)
        .map_err(|error| Failure::usage(format!("`{flag} {}` cannot be read: {error}", path.display())))?;
    let secret = secret.trim_ascii();
    if secret.len() < SHORTEST_SECRET {
        let text = format!("the secret in `{}` is shorter than {SHORTEST_SECRET} bytes", path.display());
        return Err(Failure::usage(text).hint("make one with `openssl rand -hex 32`"));
    }
    Ok(Some(secret.to_vec()))
}

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
    /// The functions that iii workers register, as skills
    Functions,
    /// Gives back what it gets
    Echo,
}

/// What the server signs with.
struct Secrets {
    push: Option<SigningSecret>,
    keys: Option<SigningKeys>,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let filter = EnvFilter::try_new(&self.log).map_err(|error| {
            Failure::usage(format!("`--log {}` is not a filter: {error}", self.log)).hint("try `--log info`")
        })?;
        // A log that nobody reads any more must not stop the server.
        let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(anstream::stderr);
        log.log_internal_errors(false).init();
        if let Some(url) = self.base_url.as_ref().filter(|url| !is_http(url)) {
            return Err(Failure::usage(format!("`--base-url {url}` is not an `http` or `https` URL"))
                .hint("try `--base-url https://agents.example.com`"));
        }
        // Before any port is taken: what is wrong with the flags is said first.
        let secret = self.push.secret()?;
        let keys = keys::for_serving(self.signing_keys.as_ref())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
        runtime.block_on(async {
            match self.agent {
                Kind::Echo if self.functions.demo => {
                    Err(Failure::usage("`--demo` adds sample functions, which `--agent echo` does not have")
                        .hint("leave `--agent` out"))
                }
                Kind::Echo => self.serve_echo(Secrets { push: secret, keys }).await,
                Kind::Functions => self.serve_functions(Secrets { push: secret, keys }).await,
            }
        })
    }

    async fn serve_echo(self, secrets: Secrets) -> Result<(), Failure> {
        let store = self.place.open()?;
        let listening = self.listen(Server::echo(), store, secrets).await?;
        let address = listening.address().map_err(Failure::new)?;
        announce(&format!("http://{address}"), &self.place.url()?.to_string(), None);
        listening.run().await.map_err(|error| Failure::new(format!("the server stopped: {error}")))
    }

    async fn serve_functions(self, secrets: Secrets) -> Result<(), Failure> {
        let store = self.place.open()?;
        let own_url = self.base_url.clone().unwrap_or_else(|| format!("http://{}", self.listen));
        let Started { engine, listening: workers, gateway, delegation, api_token } =
            self.functions.start(store.clone(), own_url).await?;
        let (mut exact, below) = Paths::default().answered();
        exact.extend(secrets.keys.iter().map(|_| "/.well-known/jwks.json".to_owned()));
        engine.reserve_paths(exact.iter().map(String::as_str), below.iter().map(String::as_str));
        engine.reserve_paths(Api::paths(), []);
        // Who may use the API depends on the address that is listened on.
        let api: Arc<OnceLock<Api>> = Arc::default();
        let (triggers, delegating) = (engine.clone(), api.clone());
        let server = Server::new(gateway.clone())
            .card(gateway.card())
            .card_updates(gateway.cards())
            .fallback(move |request| {
                let (engine, api) = (triggers.clone(), delegating.clone());
                async move {
                    match api.get().filter(|_| Api::answers(request.uri().path())) {
                        Some(api) => api.handle(request).await,
                        None => engine.handle_http(request).await,
                    }
                }
            });
        let listening = self.listen(server, store, secrets).await?;
        let address = listening.address().map_err(Failure::new)?;
        let mut _offers = Vec::new();
        if let Some(delegation) = delegation {
            let access = Access::new(api_token, address.ip(), self.base_url.as_deref());
            let public = self.base_url.clone().unwrap_or_else(|| format!("http://{address}"));
            delegation.at_home(gateway, public);
            _offers = delegation.offer(&engine, listening.surface());
            let _ = api.set(Api::new(delegation, access));
        }
        let engine_url = format!("ws://{}", workers.address());
        let hosted = Hosted { engine: &engine_url, demo: self.functions.demo };
        announce(&format!("http://{address}"), &self.place.url()?.to_string(), Some(hosted));
        let stop = CancellationToken::new();
        let workers = tokio::spawn(workers.run_until(stop.clone().cancelled_owned()));
        // Turns that are under way need their workers until they are done.
        let served = listening.run().await;
        stop.cancel();
        let _ = workers.await;
        served.map_err(|error| Failure::new(format!("the server stopped: {error}")))
    }

    /// Takes the port for a server.
    async fn listen<A: Agent>(
        &self,
        server: Server<A>,
        store: Arc<dyn Store>,
        secrets: Secrets,
    ) -> Result<Listening, Failure> {
        let policy = self.push.policy();
        let mut server = server
            .bind(&self.listen)
            .shared_store(store)
            .push(!self.push.no_push)
            .push_options(|push: &mut PushOptions| (push.policy, push.secret) = (policy, secrets.push))
            .options(|options| {
                options.strict_version = self.strict_version;
                options.pure_card = self.pure_card;
            })
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
        if let Some(keys) = secrets.keys {
            server = server.signing(keys);
        }
        server.listen().await.map_err(|error| {
            Failure::new(error).hint("choose another address with `--listen`, such as `--listen 127.0.0.1:0`")
        })
    }
}

fn is_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// The engine beside the agent.
struct Hosted<'a> {
    engine: &'a str,
    demo: bool,
}

/// Says where the agent is and what to try next.
fn announce(url: &str, kept: &str, hosted: Option<Hosted<'_>>) {
    let mut out = anstream::stderr().lock();
    // Nothing can be done about an error stream that is closed.
    let _ = announcement(&mut out, url, kept, hosted);
}

fn announcement(
    out: &mut dyn Write,
    url: &str,
    kept: &str,
    hosted: Option<Hosted<'_>>,
) -> std::io::Result<()> {
    let authority = url.trim_start_matches("http://");
    writeln!(out, "Listening on {url}\n")?;
    writeln!(out, "  card       {url}/.well-known/agent-card.json")?;
    writeln!(out, "  JSON-RPC   {url}/a2a")?;
    writeln!(out, "  HTTP+JSON  {url}/v1")?;
    writeln!(out, "  gRPC       {authority}")?;
    if let Some(Hosted { engine, .. }) = &hosted {
        writeln!(out, "  workers    {engine}")?;
    }
    writeln!(out, "  tasks      {kept}\n")?;
    let send = |text: &str| {
        let text = text.replace('"', "\\\"");
        format!(
            "  curl -s {url}/a2a -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' \\\n    -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"SendMessage\",\"params\":{{\"message\":{{\"messageId\":\"m1\",\"role\":\"ROLE_USER\",\"parts\":[{{\"text\":\"{text}\"}}]}}}}}}'"
        )
    };
    match hosted {
        None => writeln!(out, "Try:\n{}\n", send("Hello")),
        Some(Hosted { demo: true, .. }) => {
            writeln!(out, "Try, in another terminal:\n")?;
            writeln!(out, "  # which skills there are")?;
            writeln!(
                out,
                "  curl -s {url}/.well-known/agent-card.json | jq '.skills[] | {{id, description, examples}}'\n"
            )?;
            writeln!(out, "  # call one")?;
            writeln!(out, "{}\n", send(r#"pricing::quote {"sku": "A-1", "quantity": 3}"#))?;
            writeln!(out, "  # follow one that takes its time")?;
            let stream = send(r#"demo::count {"to": 5}"#);
            writeln!(
                out,
                "{}\n",
                stream.replace("curl -s", "curl -sN").replace("SendMessage", "SendStreamingMessage")
            )?;
            writeln!(
                out,
                "  # a skill of your own: connect a worker of the iii SDK to the address above, register a function with the"
            )?;
            writeln!(
                out,
                "  # metadata {{\"a2a.expose\": true}}, and look at the card again (examples/iii has workers in Rust, Node and Python)\n"
            )
        }
        Some(Hosted { engine, demo: false }) => {
            writeln!(
                out,
                "No functions yet: connect an iii worker to {engine} and register one with the metadata {{\"a2a.expose\": true}}."
            )?;
            writeln!(
                out,
                "There are workers in Rust, Node and Python in examples/iii; `--demo` brings sample functions along.\n"
            )
        }
    }
}
