//! Works that ask for a stream and read it to its end.

use std::sync::Arc;

use anyhow::Result;

use crate::harness::{Harness, Series, Side};
use crate::load::{Events, Plan, Reply};
use crate::report::{Reference, Row, Target, Unit};
use crate::requests::Request;
use crate::stats::Repeated;

pub(super) async fn stream(harness: &mut Harness) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for connections in [1, 16] {
        let name = format!("stream/{connections}");
        let (subject, bare) = sides(harness, &name, 100, connections).await?;
        rows.push(Row {
            name,
            unit: Unit::EventsPerSecond,
            subject: events_per_s(&subject),
            reference: Reference::Bare(events_per_s(&bare)),
            target: Target::RatioAtLeast(1.0),
        });
    }
    Ok(rows)
}

pub(super) async fn first_event(harness: &mut Harness) -> Result<Vec<Row>> {
    let (subject, bare) = sides(harness, "first-event", 3, 1).await?;
    let first = |series: &Series| of_events(series, |events| events.first_event_p50_us);
    Ok(vec![Row {
        name: "first-event".into(),
        unit: Unit::Microseconds,
        subject: first(&subject),
        reference: Reference::Bare(first(&bare)),
        target: Target::RatioAtMost(1.5),
    }])
}

/// An event of a long stream should cost what one of a short stream costs.
pub(super) async fn growth(harness: &mut Harness) -> Result<Vec<Row>> {
    let subject = harness.subject().await?;
    let [short, long] = harness
        .alternate(
            "stream-growth",
            [
                Side { name: "subject, 100 chunks", server: &subject, plan: &chunks(100, 1) },
                Side { name: "subject, 3,000 chunks", server: &subject, plan: &chunks(3_000, 1) },
            ],
        )
        .await?;
    let cost = |series: &Series| of_events(series, |events| events.cpu_us_per_event);
    Ok(vec![Row {
        name: "stream-growth".into(),
        unit: Unit::Microseconds,
        subject: cost(&long),
        reference: Reference::Own { values: cost(&short), at: "100 chunks" },
        target: Target::RatioAtMost(1.2),
    }])
}

/// Measures a subject and a bare server that streams alike, both fresh.
async fn sides(
    harness: &mut Harness,
    name: &str,
    count: usize,
    connections: usize,
) -> Result<(Series, Series)> {
    let (subject, bare) = (harness.subject().await?, harness.bare().await?);
    let plan = chunks(count, connections);
    harness.imitate(&text(count), &plan, &subject, &bare).await?;
    let [bare, subject] = harness
        .alternate(
            name,
            [
                Side { name: "bare", server: &bare, plan: &plan },
                Side { name: "subject", server: &subject, plan: &plan },
            ],
        )
        .await?;
    Ok((subject, bare))
}

pub(super) fn chunks(count: usize, connections: usize) -> Arc<Plan> {
    Arc::new(Plan {
        requests: vec![Request::stream(&text(count))],
        connections,
        reply: Reply::Stream { at_least: count },
        marker: "artifactUpdate",
    })
}

/// The text that asks the agent for `count` chunks.
fn text(count: usize) -> String {
    format!("chunks:{count}")
}

pub(super) fn events_per_s(series: &Series) -> Repeated {
    of_events(series, |events| events.events_per_s)
}

fn of_events(series: &Series, value: impl Fn(&Events) -> f64) -> Repeated {
    series.each(|window| window.events.as_ref().map_or(f64::NAN, &value))
}
