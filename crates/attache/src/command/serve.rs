//! `attache serve`: an agent on the network.

use std::io::Write;

use attache::prelude::*;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use super::Failure;

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

    /// Refuse requests that do not say which protocol version they speak
    #[arg(long)]
    strict_version: bool,

    /// What to log, such as `info` or `attache_server=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", env = "ATTACHE_LOG")]
    log: String,
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
        let mut server =
            server.bind(&self.listen).options(|options| options.strict_version = self.strict_version);
        if let Some(url) = &self.base_url {
            server = server.base_url(url);
        }
        let listening = server.listen().await.map_err(|error| {
            Failure::new(error).hint("choose another address with `--listen`, such as `--listen 127.0.0.1:0`")
        })?;
        let address = listening.address().map_err(Failure::new)?;
        announce(&format!("http://{address}"));
        listening.run().await.map_err(|error| Failure::new(format!("the server stopped: {error}")))
    }
}

/// Says where the agent is and what to try next.
fn announce(url: &str) {
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"Hello"}]}}}"#;
    let mut out = anstream::stderr().lock();
    // Nothing can be done about an error stream that is closed.
    let _ = writeln!(
        out,
        "Listening on {url}\n\n  card       {url}/.well-known/agent-card.json\n  JSON-RPC   {url}/a2a\n  HTTP+JSON  {url}/v1\n  gRPC       {}\n\nTry:\n  curl -s {url}/a2a -H 'Content-Type: application/json' -H 'A2A-Version: 1.0' \\\n    -d '{message}'\n",
        url.trim_start_matches("http://"),
    );
}
