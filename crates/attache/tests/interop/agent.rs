//! The agent that peers talk to. It can do everything that an A2A agent can, and does what the first word of a message says.
//!
//! The servers in `peers/` have an agent that does the same.

use std::collections::HashSet;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use attache::prelude::*;
use attache::server::RedisStreams;
use tempfile::TempDir;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::peers::PATIENCE;

/// The server to try: the agent on a free port, its card, its extended card, and webhooks on this machine.
pub(crate) fn server() -> Server<impl Agent> {
    let card = Card::new("Interop", "Does what it is told")
        .skill(Skill::new("interop", "Interoperation").description("Does what it is told").tags(["test"]))
        .input_modes(["*/*"])
        .output_modes(["*/*"]);
    let extended = card.clone().skill(Skill::new("extended", "For those who are known").tags(["test"]));
    let released = Arc::new(watch::Sender::new(HashSet::new()));
    Server::new(agent_fn(move |turn| obey(turn, released.clone())))
        .card(card)
        .extended_card(extended)
        .bind("127.0.0.1:0")
        .service_options(|options| options.extended_card_for_anyone = true)
        .push_options(|push| push.policy = Policy::default().allow_loopback(true))
}

/// What the other transports of a server need. They are closed when it is dropped.
pub(crate) struct Transports {
    _folder: TempDir,
    _lines: DuplexStream,
    _redis: Option<Child>,
}

/// The same server with every transport of this machine that there can be: a Unix socket, lines on a stream as on standard input and
/// output, and Redis Streams if Redis is installed. Clients of others must not be confused by them.
pub(crate) async fn server_with_all_transports() -> (Server<impl Agent>, Transports) {
    let folder = tempfile::tempdir().expect("a folder");
    let (lines, stream) = tokio::io::duplex(64 * 1024);
    let server = server().bind(format!("unix:{}", folder.path().join("agent.sock").display())).lines(stream);
    let (server, redis) = match start_redis(&folder).await {
        Some((redis, url)) => (server.redis(RedisStreams::new(&url).expect("it is a URL")), Some(redis)),
        None => (server, None),
    };
    (server, Transports { _folder: folder, _lines: lines, _redis: redis })
}

/// Starts a Redis server on a free port, if it is installed.
async fn start_redis(folder: &TempDir) -> Option<(Child, String)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"]);
    command.arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let child = command.spawn().ok()?;
    let connected = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, connected).await.expect("Redis starts");
    Some((child, format!("redis://127.0.0.1:{port}")))
}

async fn obey(turn: Turn, released: Arc<watch::Sender<HashSet<String>>>) -> AgentResult {
    let text = turn.text();
    let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
    match word {
        // An answer to the question below, whatever it is.
        answer if turn.task().is_some() => {
            turn.artifact("answer").text(format!("{answer} it is")).await?;
            turn.complete().await
        }
        "say" => {
            turn.working("").await?;
            turn.artifact("answer").text(rest).await?;
            turn.complete().await
        }
        "direct" => turn.reply("a direct answer").await,
        "stream" => {
            turn.working("").await?;
            let mut chunks = turn.artifact("answer").stream();
            chunks.chunk("one ").await?;
            chunks.chunk("two ").await?;
            chunks.last("three").await?;
            turn.complete().await
        }
        "ask" => turn.ask("Which colour?").await,
        "hold" => {
            turn.working("").await?;
            let (own, mut released) = (turn.task_id().to_string(), released.subscribe());
            tokio::select! {
                _ = released.wait_for(|tasks| tasks.contains(&own)) => {}
                () = turn.cancelled() => {}
            }
            turn.artifact("answer").text("released").await?;
            turn.complete().await
        }
        "release" => {
            released.send_modify(|tasks| {
                tasks.insert(rest.to_owned());
            });
            turn.reply("released").await
        }
        "echo" => {
            let parts = turn.message().parts.iter().skip(1).cloned();
            turn.artifact("echo").parts(parts).await?;
            turn.complete().await
        }
        "fail" => turn.fail("it broke").await,
        other => turn.reject(format!("`{other}` is nothing that this agent does")).await,
    }
}
