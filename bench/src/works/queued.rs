//! Sends over Redis Streams, against the same sends over HTTP, and against a bare echo over the same Redis server.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use attache_redis::redis::{self, Value, cmd};
use attache_redis::{Connection, RedisUrl, connect, entries};
use serde_json::json;
use tempfile::TempDir;

use super::{SMALL, send_small};
use crate::harness::Harness;
use crate::load;
use crate::report::{Reference, Row, Target, Unit};
use crate::stats::Repeated;

/// How many requests are in flight.
const AT_ONCE: usize = 64;

/// The streams of our server, and those of the bare echo.
const OURS: [&str; 2] = ["attache:a2a:requests", "attache:a2a:responses:bench"];
const BARE: [&str; 2] = ["bench:requests", "bench:responses"];

/// How long Redis may take for anything.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How many entries the streams of the load keep.
const KEPT: usize = 10_000;

pub(super) async fn redis(harness: &mut Harness) -> Result<Vec<Row>> {
    let redis = RedisServer::start().await.context("starting redis-server")?;
    let subject = harness.guarded_subject(&["--redis", &redis.url]).await?.asleep();
    let _bare = harness.guarded_subject(&["--redis-echo", &redis.url]).await?;
    let plan = send_small(AT_ONCE);
    let (mut http, mut ours, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in harness.repetitions() {
        let window = load::window(&subject, &plan, harness.length()).await.context("measuring HTTP")?;
        harness.count(window.others_busy);
        http.push(window.requests_per_s);
        for (side, streams, marker, values) in [
            ("subject, Redis", OURS, "TASK_STATE_COMPLETED", &mut ours),
            ("bare echo, Redis", BARE, "SendMessage", &mut bare),
        ] {
            let speed = window_over_redis(&redis.url, streams, marker, harness.length()).await;
            let speed = speed.with_context(|| format!("measuring the {side}"))?;
            harness.say("redis", repetition, side, &format!("{speed:>9.0} /s"));
            harness.keep("redis", side, repetition, json!({"requests_per_s": speed}));
            values.push(speed);
        }
    }
    let row = |name: &str, reference, target| Row {
        name: name.to_owned(),
        unit: Unit::RequestsPerSecond,
        subject: Repeated(ours.clone()),
        reference,
        target,
    };
    let over_http = Reference::Own { values: Repeated(http), at: "HTTP" };
    Ok(vec![
        row("redis/http", over_http, Target::RatioAtLeast(0.3)),
        row("redis/bare", Reference::Bare(Repeated(bare)), Target::RatioAtLeast(0.6)),
    ])
}

/// Keeps requests in flight for a time, and returns how many were answered in a second.
async fn window_over_redis(url: &str, streams: [&str; 2], marker: &str, length: Duration) -> Result<f64> {
    let [requests, responses] = streams;
    let url: RedisUrl = url.parse()?;
    let mut connection = connect(&url, MAX_WAIT, MAX_WAIT, None).await?;
    cmd("DEL").arg(responses).exec_async(&mut connection).await?;
    let (mut next, mut last) = (0, "0-0".to_owned());
    add(&mut connection, streams, AT_ONCE, &mut next).await?;
    let warm_up = (length / 10).clamp(Duration::from_millis(50), Duration::from_millis(500));
    let begun = Instant::now();
    let (mut answered, mut since) = (0_u64, None);
    let seconds = loop {
        let mut read = cmd("XREAD");
        read.arg("COUNT").arg(AT_ONCE).arg("BLOCK").arg(5000).arg("STREAMS").arg(responses).arg(&last);
        let found = entries(read.query_async::<Value>(&mut connection).await?)?;
        let Some(newest) = found.last() else { bail!("nothing was answered for 5 s on `{requests}`") };
        last.clone_from(&newest.id);
        let payload = String::from_utf8_lossy(newest.get("payload").unwrap_or_default()).into_owned();
        if !payload.contains(marker) {
            bail!("expected `{marker}` in the response, got {payload}");
        }
        match since {
            None if begun.elapsed() >= warm_up => since = Some(Instant::now()),
            None => {}
            Some(since) => {
                answered += found.len() as u64;
                if since.elapsed() >= length {
                    break since.elapsed().as_secs_f64();
                }
            }
        }
        add(&mut connection, streams, found.len(), &mut next).await?;
    };
    // What is still in flight must not be answered in the next window.
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(answered as f64 / seconds)
}

/// Adds requests.
async fn add(connection: &mut Connection, streams: [&str; 2], count: usize, next: &mut u64) -> Result<()> {
    let [requests, responses] = streams;
    let mut pipe = redis::pipe();
    for _ in 0..count {
        *next += 1;
        let message =
            json!({"messageId": format!("bench-{next}"), "role": "ROLE_USER", "parts": [{"text": SMALL}]});
        let params = json!({"message": message});
        let payload = json!({"jsonrpc": "2.0", "id": *next, "method": "SendMessage", "params": params});
        pipe.cmd("XADD").arg(requests).arg("MAXLEN").arg("~").arg(KEPT).arg("*");
        pipe.arg("correlation_id").arg(*next).arg("reply_stream").arg(responses);
        pipe.arg("payload").arg(payload.to_string()).ignore();
    }
    Ok(pipe.exec_async(connection).await?)
}

/// Answers each request of the bare streams with its payload, as fast as it can, until the process is killed.
pub(crate) async fn echo(url: &str) -> Result<()> {
    let [requests, _] = BARE;
    let url: RedisUrl = url.parse()?;
    let mut connection = connect(&url, MAX_WAIT, MAX_WAIT, None).await?;
    let mut create = cmd("XGROUP");
    create.arg("CREATE").arg(requests).arg("bench").arg("0-0").arg("MKSTREAM");
    create.exec_async(&mut connection).await?;
    loop {
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg("bench").arg("echo").arg("COUNT").arg(AT_ONCE).arg("BLOCK").arg(1000);
        read.arg("STREAMS").arg(requests).arg(">");
        let found = entries(read.query_async::<Value>(&mut connection).await?)?;
        if found.is_empty() {
            continue;
        }
        let mut pipe = redis::pipe();
        for entry in &found {
            let field = |name| entry.get(name).unwrap_or_default();
            pipe.cmd("XADD").arg(field("reply_stream")).arg("MAXLEN").arg("~").arg(KEPT).arg("*");
            pipe.arg("correlation_id").arg(field("correlation_id"));
            pipe.arg("payload").arg(field("payload")).arg("final").arg("true").ignore();
            pipe.cmd("XACK").arg(requests).arg("bench").arg(&entry.id).ignore();
        }
        pipe.exec_async(&mut connection).await?;
    }
}

/// A Redis server that keeps nothing on the disk; killed when dropped.
struct RedisServer {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl RedisServer {
    async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--dir"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("is the Debian package `redis-server` installed?")?;
        let server = Self { child, url: format!("redis://127.0.0.1:{port}"), _folder: folder };
        let url: RedisUrl = server.url.parse()?;
        let begun = Instant::now();
        while let Err(error) = connect(&url, MAX_WAIT, MAX_WAIT, None).await {
            if begun.elapsed() > MAX_WAIT {
                return Err(error.into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(server)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
