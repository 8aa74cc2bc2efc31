//! What our client costs: the same send to the same server, with it and with the HTTP client that it is made on.
//!
//! Here the side that asks is what is measured: its processor time, and how often it can ask from one core. The server is ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use attache::prelude::*;
use reqwest::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use super::SMALL;
use crate::harness::Harness;
use crate::machine;
use crate::report::{Reference, Row, Target, Unit};
use crate::server::{self, Server};
use crate::stats::Repeated;

/// A client that sends requests. Cheap to clone; clones share their connections.
#[derive(Clone)]
enum Asker {
    /// Our client.
    Ours(Client),
    /// The HTTP client, and what is left to do by hand then.
    Bare(reqwest::Client, reqwest::Url),
}

impl Asker {
    fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "client",
            Self::Bare(..) => "bare reqwest",
        }
    }

    /// Sends the small message and sees that its task has ended.
    async fn ask(&self) -> Result<()> {
        match self {
            Self::Ours(agent) => match agent.send(SMALL).await? {
                Reply::Task(task) if task.status.state == TaskState::Completed => Ok(()),
                other @ (Reply::Task(_) | Reply::Message(_)) => {
                    bail!("expected a task that has ended, got {other:?}")
                }
            },
            Self::Bare(http, url) => {
                let request = json!({
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "SendMessage",
                    "params": {"message": {
                        "messageId": Uuid::now_v7().to_string(),
                        "role": "ROLE_USER",
                        "parts": [{"text": SMALL}],
                    }},
                });
                let request = http
                    .post(url.clone())
                    .header(CONTENT_TYPE, "application/json")
                    .header("A2A-Version", "1.0")
                    .body(serde_json::to_vec(&request)?);
                let answer = request.send().await?.bytes().await?;
                let answer: Value = serde_json::from_slice(&answer)?;
                match answer["result"]["task"]["status"]["state"].as_str() {
                    Some("TASK_STATE_COMPLETED") => Ok(()),
                    _ => bail!("expected a task that has ended, got {answer}"),
                }
            }
        }
    }
}

/// The figures to quote are those for 16 requests at once, where the server is never waited for.
pub(super) async fn client(harness: &mut Harness) -> Result<Vec<Row>> {
    let agent = harness.subject().await?;
    let ours = Asker::Ours(Client::connect(&format!("http://{}", agent.address())).await?);
    let url = format!("http://{}/a2a", agent.address()).parse()?;
    let by_hand = Asker::Bare(reqwest::Client::builder().build()?, url);

    let mut rows = Vec::new();
    for at_once in [1, 16] {
        let name = format!("client/{at_once}");
        let mut series = [&by_hand, &ours].map(|asker| (asker, Vec::new()));
        for repetition in harness.repetitions() {
            for (asker, windows) in &mut series {
                let window = window(&agent, asker, at_once, harness.length()).await;
                let window = window.with_context(|| format!("measuring {name} with {}", asker.name()))?;
                harness.say(&name, repetition, asker.name(), &window.summary());
                harness.keep(&name, asker.name(), repetition, serde_json::to_value(&window)?);
                harness.count(window.others_busy);
                windows.push(window);
            }
        }
        let [(_, by_hand), (_, ours)] = series;
        let row = |name: String, unit, value: fn(&Window) -> f64, target| Row {
            name,
            unit,
            subject: Repeated(ours.iter().map(value).collect()),
            reference: Reference::Bare(Repeated(by_hand.iter().map(value).collect())),
            target,
        };
        let (speed, cost) = (Target::RatioAtLeast(0.8), Target::RatioAtMost(1.25));
        rows.push(row(name.clone(), Unit::RequestsPerSecond, |window| window.requests_per_s, speed));
        rows.push(row(format!("{name}/cpu"), Unit::Microseconds, |window| window.cpu_us_per_request, cost));
    }
    Ok(rows)
}

/// The results of one window for one client.
#[derive(Debug, Serialize)]
struct Window {
    requests_per_s: f64,
    /// Processor time of this process.
    cpu_us_per_request: f64,
    server_busy: f64,
    load_busy: f64,
    others_busy: f64,
}

impl Window {
    fn summary(&self) -> String {
        format!(
            "{:>9.0} /s, {:.1} µs of its core each; server {:.0} %, load {:.0} %, others {:.0} %",
            self.requests_per_s,
            self.cpu_us_per_request,
            self.server_busy * 100.0,
            self.load_busy * 100.0,
            self.others_busy * 100.0,
        )
    }
}

/// Counters at one moment.
struct Moment {
    at: Instant,
    requests: u64,
    own: Duration,
    server: Duration,
    all: Duration,
}

impl Moment {
    fn now(server: &Server, answered: &AtomicU64) -> Result<Self> {
        Ok(Self {
            requests: answered.load(Relaxed),
            own: server::own_cpu_time()?,
            server: server.cpu_time()?,
            all: machine::busy_time(server.cores())?,
            at: Instant::now(),
        })
    }
}

/// Lets a client send requests in a loop, with this many at once, and measures after a short warm-up.
async fn window(server: &Server, asker: &Asker, at_once: usize, length: Duration) -> Result<Window> {
    let (answered, stopped) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut asking: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..at_once {
        let (asker, answered, stopped) = (asker.clone(), answered.clone(), stopped.clone());
        asking.spawn(async move {
            while !stopped.load(Relaxed) {
                asker.ask().await?;
                answered.fetch_add(1, Relaxed);
            }
            Ok(())
        });
    }
    sleep((length / 10).clamp(Duration::from_millis(50), Duration::from_millis(500))).await;
    let before = Moment::now(server, &answered)?;
    sleep(length).await;
    let after = Moment::now(server, &answered)?;
    stopped.store(true, Relaxed);
    while let Some(ended) = asking.join_next().await {
        ended??;
    }
    let seconds = (after.at - before.at).as_secs_f64();
    let requests = (after.requests - before.requests) as f64;
    if requests == 0.0 {
        bail!("nothing was answered in a window of {seconds:.1} s");
    }
    let own = (after.own - before.own).as_secs_f64();
    let serving = (after.server - before.server).as_secs_f64();
    let others = (after.all - before.all).as_secs_f64() - own - serving;
    Ok(Window {
        requests_per_s: requests / seconds,
        cpu_us_per_request: own * 1e6 / requests,
        server_busy: serving / seconds,
        load_busy: own / seconds,
        others_busy: others.max(0.0) / seconds,
    })
}
