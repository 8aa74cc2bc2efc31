//! Works about what a server keeps: open streams and finished tasks.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::answers::HANG;
use crate::harness::{Harness, Side};
use crate::load;
use crate::report::{Reference, Row, Target, Unit};
use crate::requests::Request;
use crate::server::Server;
use crate::stats::Repeated;

use super::send_small;

const WORKING: &str = "TASK_STATE_WORKING";
const IDLE: usize = 1_000;
const OPEN: usize = 2_000;
const FINISHED: u64 = 100_000;

/// Sends before memory is first read, so that what a server allocates once is not counted as growth.
const SETTLING: u64 = 2_000;

/// An open stream on which nothing happens should not make other work dearer.
pub(super) async fn idle_streams(harness: &mut Harness) -> Result<Vec<Row>> {
    let (quiet, crowded) = (harness.subject().await?, harness.subject().await?);
    let held = load::hold(&crowded, &Request::stream(HANG), WORKING, IDLE).await?;
    let plan = send_small(64);
    let [quiet, crowded] = harness
        .alternate(
            "idle-streams",
            [
                Side { name: "subject, none idle", server: &quiet, plan: &plan },
                Side { name: "subject, 1,000 idle", server: &crowded, plan: &plan },
            ],
        )
        .await?;
    drop(held);
    Ok(vec![Row {
        name: "idle-streams".into(),
        unit: Unit::Microseconds,
        subject: crowded.cpu_us_per_request(),
        reference: Reference::Own { values: quiet.cpu_us_per_request(), at: "none idle" },
        target: Target::RatioAtMost(1.05),
    }])
}

pub(super) async fn memory(harness: &mut Harness) -> Result<Vec<Row>> {
    let (mut per_task, mut per_stream, mut per_bare_stream) = (Vec::new(), Vec::new(), Vec::new());
    for repetition in harness.repetitions() {
        let task = kib_per_task(&settled(harness.subject().await?).await?).await?;
        harness.say("memory", repetition, "subject", &format!("{task:.2} KiB per finished task"));
        harness.keep("memory/task", "subject", repetition, json!({ "kib_per_task": task }));
        per_task.push(task);

        let (subject, bare) =
            (settled(harness.subject().await?).await?, settled(harness.bare().await?).await?);
        let hanging = load::hold(&subject, &Request::stream(HANG), WORKING, 1).await?;
        for stream in &hanging {
            harness.teach(HANG, &stream.received, &bare).await?;
        }
        for (side, server, found) in
            [("bare", &bare, &mut per_bare_stream), ("subject", &subject, &mut per_stream)]
        {
            let stream = kib_per_stream(server).await?;
            harness.say("memory", repetition, side, &format!("{stream:.2} KiB per open stream"));
            harness.keep("memory/stream", side, repetition, json!({ "kib_per_stream": stream }));
            found.push(stream);
        }
    }
    Ok(vec![
        Row {
            name: "memory/task".into(),
            unit: Unit::Kibibytes,
            subject: Repeated(per_task),
            reference: Reference::None,
            target: Target::ValueBelow(1.2),
        },
        Row {
            name: "memory/stream".into(),
            unit: Unit::Kibibytes,
            subject: Repeated(per_stream),
            reference: Reference::Bare(Repeated(per_bare_stream)),
            target: Target::ValueBelow(32.0),
        },
    ])
}

async fn settled(server: Server) -> Result<Server> {
    load::fill(&server, &send_small(64), SETTLING).await?;
    Ok(server)
}

async fn kib_per_task(server: &Server) -> Result<f64> {
    let before = resting_kib(server).await?;
    load::fill(server, &send_small(64), FINISHED).await?;
    Ok((resting_kib(server).await? - before) / FINISHED as f64)
}

async fn kib_per_stream(server: &Server) -> Result<f64> {
    let before = resting_kib(server).await?;
    let held = load::hold(server, &Request::stream(HANG), WORKING, OPEN).await?;
    let grown = resting_kib(server).await? - before;
    Ok(grown / held.len() as f64)
}

/// Resident memory once the server has dealt with what was closed.
async fn resting_kib(server: &Server) -> Result<f64> {
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(server.resident_kib()? as f64)
}
