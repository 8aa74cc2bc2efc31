//! Our server as the harness measures it: the SDK with a store and an agent that does next to nothing.
//!
//! What the works expect of the agent, by the first text part of the message:
//!
//! | text | the agent |
//! |---|---|
//! | `chunks:N` | emits N artifact chunks, yielding to the runtime between them, and completes |
//! | `later:N:TEXT` | replies with the text after N milliseconds, and leaves no task |
//! | `hang` | emits `TASK_STATE_WORKING` and waits until it is cancelled |
//! | anything else | gives it back as an artifact and completes |

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use anyhow::Result;
use attache::core::{AgentError, Echo};
use attache::prelude::*;
use attache::server::RedisStreams;
use attache::server::auth::{JwtCallers, JwtIssuer, KnownCallers};
use attache::store::StoreUrl;
use clap::Args;

struct Subject;

impl Agent for Subject {
    async fn run(&self, turn: Turn) -> AgentResult {
        let text = turn.message().parts.first().and_then(Part::as_text).unwrap_or_default();
        if text == "hang" {
            turn.working("").await?;
            turn.cancelled().await;
            return Ok(());
        }
        if let Some((wait, text)) = text.strip_prefix("later:").and_then(|rest| rest.split_once(':')) {
            let wait = wait.parse().map_err(|_| AgentError::public("expected `later:MILLISECONDS:TEXT`"))?;
            if wait > 0 {
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            return turn.reply(text).await;
        }
        let Some(count) = text.strip_prefix("chunks:").and_then(|count| count.parse::<usize>().ok()) else {
            return Echo.run(turn).await;
        };
        let mut chunks = turn.artifact("chunks").stream();
        for _ in 1..count {
            chunks.chunk("a chunk of text ").await?;
            tokio::task::yield_now().await;
        }
        chunks.last("a chunk of text ").await?;
        turn.complete().await
    }
}

/// What can be set about the subject.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Lets in only who has this bearer token
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// Lets in only who has a token that was signed with this secret
    #[arg(long, value_name = "SECRET", conflicts_with = "token")]
    jwt_secret: Option<String>,
    /// How many requests are worked on at once; more are refused
    #[arg(long, value_name = "N")]
    max_requests: Option<usize>,
    /// Answers requests from the streams of this Redis server too
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Serves a bare echo over this Redis server beside the agent
    #[arg(long, value_name = "URL")]
    redis_echo: Option<String>,
    /// Listens on this Unix socket too
    #[arg(long, value_name = "PATH")]
    unix: Option<String>,
    /// Answers on standard input and output too
    #[arg(long)]
    stdio: bool,
}

impl Settings {
    /// A subject that works on so many requests at once.
    #[cfg(test)]
    pub(crate) fn with_room_for(requests: usize) -> Self {
        Self { max_requests: Some(requests), ..Self::default() }
    }

    /// A subject that listens on this Unix socket too.
    #[cfg(test)]
    pub(crate) fn with_socket(path: String) -> Self {
        Self { unix: Some(path), ..Self::default() }
    }
}

/// The subject on `listen`: JSON-RPC 1.0 at `POST /a2a`.
pub(crate) fn server(listen: SocketAddr, settings: Settings) -> Result<Server<impl Agent>> {
    let card = Card::new("Subject", "What the benchmark measures").input_modes(["*/*"]);
    let mut server = Server::new(Subject).card(card).bind(listen.to_string());
    if let Some(token) = settings.token {
        server = server.authenticate(KnownCallers::new().bearer("bench", &token));
    }
    if let Some(secret) = settings.jwt_secret {
        let issuer = JwtIssuer::new("https://issuer.example").audience("bench");
        server = server.authenticate(JwtCallers::new([issuer.shared_secret(secret.as_bytes())?])?);
    }
    if let Some(url) = &settings.redis {
        server = server.redis(RedisStreams::new(url)?);
    }
    if let Some(path) = &settings.unix {
        server = server.bind(format!("unix:{path}"));
    }
    if settings.stdio {
        server = server.stdio();
    }
    Ok(server.options(|options| {
        options.max_requests = settings.max_requests.unwrap_or(options.max_requests);
        // A load is one caller. Its requests are counted like everyone's, and there may be as many as there are.
        options.limits.requests_per_second = Some(NonZeroU32::MAX);
        options.limits.requests_per_caller = Some(NonZeroUsize::MAX);
    }))
}

/// Serves the subject until the process is killed.
pub(crate) async fn serve(listen: SocketAddr, store: StoreUrl, settings: Settings) -> Result<()> {
    let echo = settings.redis_echo.clone();
    let served = server(listen, settings)?.shared_store(crate::store::open(&store).await?);
    let Some(url) = echo else { return Ok(served.run().await?) };
    tokio::select! {
        ended = served.run() => Ok(ended?),
        ended = crate::works::queued::echo(&url) => ended,
    }
}
