//! Works on ready-made agents: each against what it stands for, called without it.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use memchr::memmem;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::{SMALL, send_small};
use crate::connection::{Connection, excerpt};
use crate::endpoint::{API, FIRST_TOKEN};
use crate::harness::{Harness, Side};
use crate::load::{self, Plan, Reply};
use crate::machine;
use crate::report::{Reference, Row, Target, Unit};
use crate::requests::Request;
use crate::server::Server;
use crate::stats::{Repeated, percentile};

/// A program that returns what it gets and does nothing else, so that starting it is all it costs.
const PROGRAM: &str = "cat";

/// Milliseconds that the endpoint takes to its first token.
const ENDPOINT_WAIT: &str = "20";

/// One message after the other to the agent, and one start of the program after the other, both on the core of the server.
pub(super) async fn program(harness: &mut Harness) -> Result<Vec<Row>> {
    let name = "program";
    let agent = harness.agent(&["--program", PROGRAM]).await?;
    let plan = Arc::new(Plan {
        requests: vec![Request::send(SMALL)],
        connections: 1,
        reply: Reply::Marked,
        marker: "TASK_STATE_COMPLETED",
    });
    let (mut alone, mut turns, mut tails) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in harness.repetitions() {
        let starts =
            machine::on_the_server_core(harness.cores(), start_repeatedly(harness.length())).await??;
        harness.say(name, repetition, "program alone", &format!("{starts:.0} µs each"));
        harness.keep(name, "program alone", repetition, json!({ "us_per_start": starts }));
        alone.push(starts);
        let window = load::window(&agent, &plan, harness.length()).await.context("measuring the agent")?;
        let turn = 1e6 / window.requests_per_s;
        harness.say(name, repetition, "agent", &format!("{turn:.0} µs each, p99 {:.0} µs", window.p99_us));
        // The programs are other processes, so the window is not counted as one that others disturbed.
        harness.keep(name, "agent", repetition, serde_json::to_value(&window)?);
        turns.push(turn);
        tails.push(window.p99_us);
    }
    let alone = Reference::Own { values: Repeated(alone), at: "program alone" };
    let row = |name: &str, subject, reference, target| Row {
        name: name.to_owned(),
        unit: Unit::Microseconds,
        subject: Repeated(subject),
        reference,
        target,
    };
    Ok(vec![
        row(name, turns, alone, Target::RatioAtMost(1.2)),
        row("program/p99", tails, Reference::None, Target::Nothing),
    ])
}

/// Starts the program for as long as a window is. Returns the microseconds that each start took, until its output was read and it
/// was waited for.
async fn start_repeatedly(length: Duration) -> Result<f64> {
    let begun = Instant::now();
    let mut starts = 0.0;
    while begun.elapsed() < length {
        let mut child = Command::new(PROGRAM)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting `{PROGRAM}`"))?;
        let mut input = child.stdin.take().context("the program has no standard input")?;
        input.write_all(SMALL.as_bytes()).await?;
        drop(input);
        let output = child.wait_with_output().await?;
        if output.stdout != SMALL.as_bytes() {
            bail!("expected `{PROGRAM}` to return its input, got {}", excerpt(&output.stdout));
        }
        starts += 1.0;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / starts)
}

/// One stream after the other. The endpoint is on the core of the load generator, which has next to nothing to do.
pub(super) async fn first_token(harness: &mut Harness) -> Result<Vec<Row>> {
    let name = "first-token";
    let (endpoint, address) = Server::called(&["endpoint", "--wait", ENDPOINT_WAIT]).await?;
    let agent = harness.agent(&["--model", &format!("http://{address}{API}")]).await?.with_called(endpoint);
    let completion = json!({
        "model": "bench",
        "stream": true,
        "messages": [{ "role": "user", "content": SMALL }],
    });
    let sides = [
        ("endpoint", address, Request::post(&format!("{API}/chat/completions"), &completion)),
        ("agent", agent.address(), Request::stream(SMALL)),
    ];
    let mut series = sides.map(|side| (side, Vec::new(), Vec::new()));
    for repetition in harness.repetitions() {
        for ((side, address, request), medians, tails) in &mut series {
            let mut connection = Connection::open(*address).await?;
            let waits = first_tokens(&mut connection, request, harness.length())
                .await
                .with_context(|| format!("measuring {name} of the {side}"))?;
            let at = |share| percentile(&waits, share).map_or(f64::NAN, f64::from);
            let (p50, p99) = (at(0.5), at(0.99));
            harness.say(name, repetition, side, &format!("p50 {p50:.0} µs, p99 {p99:.0} µs"));
            harness.keep(
                name,
                side,
                repetition,
                json!({ "p50_us": p50, "p99_us": p99, "streams": waits.len() }),
            );
            medians.push(p50);
            tails.push(p99);
        }
    }
    let [(_, endpoint_medians, endpoint_tails), (_, medians, tails)] = series;
    let more = tails.iter().zip(&endpoint_tails).map(|(agent, endpoint)| agent - endpoint).collect();
    Ok(vec![
        Row {
            name: name.to_owned(),
            unit: Unit::Microseconds,
            subject: Repeated(medians),
            reference: Reference::Own { values: Repeated(endpoint_medians), at: "endpoint" },
            target: Target::RatioAtMost(1.1),
        },
        Row {
            name: "first-token/p99, more than the endpoint".to_owned(),
            unit: Unit::Microseconds,
            subject: Repeated(more),
            reference: Reference::None,
            target: Target::ValueBelow(1_000.0),
        },
    ])
}

/// Asks for streams until a window is over. Returns the microseconds from each request to its first token, sorted.
async fn first_tokens(connection: &mut Connection, request: &Request, length: Duration) -> Result<Vec<u32>> {
    let begun = Instant::now();
    let (mut bytes, mut waits) = (Vec::new(), Vec::new());
    while begun.elapsed() < length {
        request.write(&mut bytes);
        let (asked, mut seen, mut received) = (Instant::now(), None, Vec::new());
        let read = |piece: &[u8]| {
            received.extend_from_slice(piece);
            if seen.is_none() && memmem::find(&received, FIRST_TOKEN.as_bytes()).is_some() {
                seen = Some(asked.elapsed());
            }
        };
        connection.exchange(&bytes, read).await?;
        let Some(wait) = seen else { bail!("the stream has no token: {}", excerpt(&received)) };
        waits.push(u32::try_from(wait.as_micros()).unwrap_or(u32::MAX));
    }
    waits.sort_unstable();
    Ok(waits)
}

/// The remote agent shares the core of the load generator, whether it is called directly or through the gateway, so that the gateway is
/// the only difference. If it had a core of its own when it is called directly, a gateway that costs nothing would have a ratio of about
/// a half. That is reported, too.
pub(super) async fn remote_gateway(harness: &mut Harness) -> Result<Vec<Row>> {
    let direct = Server::beside_the_load(harness.cores()).await?;
    let alone = harness.subject().await?.asleep();
    let (remote, address) = Server::called(&["subject"]).await?;
    let gateway = harness.agent(&["--remote", &format!("http://{address}")]).await?.with_called(remote);
    let mut rows = Vec::new();
    for connections in [1, 64] {
        let name = format!("remote-gateway/{connections}");
        let plan = send_small(connections);
        let [direct, alone, through] = harness
            .alternate(
                &name,
                [
                    Side { name: "remote agent", server: &direct, plan: &plan },
                    Side { name: "on a core of its own", server: &alone, plan: &plan },
                    Side { name: "gateway", server: &gateway, plan: &plan },
                ],
            )
            .await?;
        let row = |name: String, unit, subject, (values, at), target| Row {
            name,
            unit,
            subject,
            reference: Reference::Own { values, at },
            target,
        };
        let remote = |values| (values, "remote agent");
        let speed = match connections {
            1 => Target::Nothing,
            _ => Target::RatioAtLeast(0.5),
        };
        let tail = |window: &load::Measurement| window.p99_us;
        rows.extend([
            row(
                name.clone(),
                Unit::RequestsPerSecond,
                through.requests_per_s(),
                remote(direct.requests_per_s()),
                speed,
            ),
            row(
                format!("{name}/cpu"),
                Unit::Microseconds,
                through.cpu_us_per_request(),
                remote(direct.cpu_us_per_request()),
                Target::Nothing,
            ),
            row(
                format!("{name}/p99"),
                Unit::Microseconds,
                through.each(tail),
                remote(direct.each(tail)),
                Target::Nothing,
            ),
            row(
                format!("{name}/own-core"),
                Unit::RequestsPerSecond,
                through.requests_per_s(),
                (alone.requests_per_s(), "on a core of its own"),
                Target::Nothing,
            ),
        ]);
    }
    Ok(rows)
}
