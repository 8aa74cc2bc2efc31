//! Works on the store in a file: what durability costs, and what a great many tasks do.

use std::sync::Arc;

use anyhow::Result;
use attache::store::StoreUrl;
use serde_json::json;

use crate::connection::ask;
use crate::harness::{Harness, Series, Side};
use crate::load::Plan;
use crate::report::{Reference, Row, Target, Unit, grouped};
use crate::requests::Request;
use crate::stats::Repeated;
use crate::store::{File, Filled};

use super::streamed::{self, events_per_s};
use super::{get_tasks, list_tasks, send_small};

/// Answers must have been written; many at once are written together.
pub(super) async fn send(harness: &mut Harness) -> Result<Vec<Row>> {
    let (memory, durable) = sides(harness, "sqlite-send/64", &send_small(64)).await?;
    Ok(vec![
        Row {
            name: "sqlite-send/64".into(),
            unit: Unit::RequestsPerSecond,
            subject: durable.requests_per_s(),
            reference: in_memory(memory.requests_per_s()),
            target: Target::RatioAtLeast(0.3),
        },
        Row {
            name: "sqlite-send/64/cpu".into(),
            unit: Unit::Microseconds,
            subject: durable.cpu_us_per_request(),
            reference: in_memory(memory.cpu_us_per_request()),
            target: Target::Nothing,
        },
    ])
}

pub(super) async fn stream(harness: &mut Harness) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for connections in [1, 16] {
        let name = format!("sqlite-stream/{connections}");
        let (memory, durable) = sides(harness, &name, &streamed::chunks(100, connections)).await?;
        rows.push(Row {
            name,
            unit: Unit::EventsPerSecond,
            subject: events_per_s(&durable),
            reference: in_memory(events_per_s(&memory)),
            // One client alone waits for the disk twice per stream, whatever the server does; what counts is many.
            target: if connections == 1 { Target::Nothing } else { Target::RatioAtLeast(0.5) },
        });
    }
    Ok(rows)
}

pub(super) async fn get(harness: &mut Harness) -> Result<Vec<Row>> {
    growth(harness, "sqlite-get", |stored| get_tasks(&stored.ids)).await
}

pub(super) async fn list(harness: &mut Harness) -> Result<Vec<Row>> {
    growth(harness, "sqlite-list", |_| list_tasks()).await
}

/// From the start of the process, with the file in the system's cache, to the first answer.
pub(super) async fn start(harness: &mut Harness) -> Result<Vec<Row>> {
    let (few, many) = (harness.few_stored().await?, harness.many_stored().await?);
    let name = format!("sqlite-start/{}", grouped(&many.count.to_string()));
    let (mut of_few, mut of_many) = (Vec::new(), Vec::new());
    for repetition in harness.repetitions() {
        for (side, stored, found) in
            [("subject, 10,000 stored", &few, &mut of_few), ("subject", &many, &mut of_many)]
        {
            let server = harness.subject_on(&stored.store()).await?;
            ask(server.address(), &Request::health()).await?;
            let took = server.age().as_secs_f64() * 1e3;
            harness.say(&name, repetition, side, &format!("{took:.1} ms"));
            harness.keep(&name, side, repetition, json!({ "start_ms": took }));
            found.push(took);
        }
    }
    Ok(vec![Row {
        name,
        unit: Unit::Milliseconds,
        subject: Repeated(of_many),
        reference: Reference::Own { values: Repeated(of_few), at: "10,000 stored" },
        target: Target::ValueBelow(1_000.0),
    }])
}

/// Measures a subject in memory and one on a file, both fresh.
async fn sides(harness: &mut Harness, name: &str, plan: &Arc<Plan>) -> Result<(Series, Series)> {
    let file = File::new()?;
    let (memory, durable) =
        (harness.subject_on(&StoreUrl::memory()).await?, harness.subject_on(&file.store()).await?);
    let [memory, durable] = harness
        .alternate(
            name,
            [
                Side { name: "subject, in memory", server: &memory, plan },
                Side { name: "subject", server: &durable, plan },
            ],
        )
        .await?;
    Ok((memory, durable))
}

/// Measures how long an answer takes with many tasks stored, against few.
async fn growth(harness: &mut Harness, work: &str, plan: impl Fn(&Filled) -> Arc<Plan>) -> Result<Vec<Row>> {
    let (few, many) = (harness.few_stored().await?, harness.many_stored().await?);
    let name = format!("{work}/{}", grouped(&many.count.to_string()));
    let (of_few, of_many) =
        (harness.subject_on(&few.store()).await?, harness.subject_on(&many.store()).await?);
    let [of_few, of_many] = harness
        .alternate(
            &name,
            [
                Side { name: "subject, 10,000 stored", server: &of_few, plan: &plan(&few) },
                Side { name: "subject", server: &of_many, plan: &plan(&many) },
            ],
        )
        .await?;
    let time = |requests_per_s: f64| 1e6 / requests_per_s;
    Ok(vec![Row {
        name,
        unit: Unit::Microseconds,
        subject: of_many.requests_per_s().map(time),
        reference: Reference::Own { values: of_few.requests_per_s().map(time), at: "10,000 stored" },
        target: Target::RatioAtMost(1.5),
    }])
}

fn in_memory(values: Repeated) -> Reference {
    Reference::Own { values, at: "in memory" }
}
