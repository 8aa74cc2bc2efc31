//! Works that read from a store with many tasks in it.

use std::collections::HashSet;

use anyhow::Result;

use crate::harness::{Harness, Side};
use crate::load;
use crate::report::{Reference, Row, Target, Unit};
use crate::server::Server;

use super::{get_tasks, list_tasks, send_small};

const MANY: u64 = 100_000;
const FEW: u64 = 1_000;

pub(super) async fn get(harness: &mut Harness) -> Result<Vec<Row>> {
    let (subject, bare) = (harness.subject().await?, harness.bare().await?);
    let ids = store(&subject, MANY).await?;
    let plan = get_tasks(&ids);
    harness.imitate("get", &plan, &subject, &bare).await?;
    let [bare, subject] = harness
        .alternate(
            "get/64",
            [
                Side { name: "bare", server: &bare, plan: &plan },
                Side { name: "subject", server: &subject, plan: &plan },
            ],
        )
        .await?;
    Ok(vec![Row {
        name: "get/64".into(),
        unit: Unit::RequestsPerSecond,
        subject: subject.requests_per_s(),
        reference: Reference::Bare(bare.requests_per_s()),
        target: Target::RatioAtLeast(0.9),
    }])
}

pub(super) async fn list(harness: &mut Harness) -> Result<Vec<Row>> {
    let (many, few, bare) = (harness.subject().await?, harness.subject().await?, harness.bare().await?);
    store(&many, MANY).await?;
    store(&few, FEW).await?;
    let plan = list_tasks();
    harness.imitate("list", &plan, &many, &bare).await?;
    let [bare, many, few] = harness
        .alternate(
            "list",
            [
                Side { name: "bare", server: &bare, plan: &plan },
                Side { name: "subject", server: &many, plan: &plan },
                Side { name: "subject, 1,000 stored", server: &few, plan: &plan },
            ],
        )
        .await?;
    let time = |requests_per_s: f64| 1e6 / requests_per_s;
    Ok(vec![
        Row {
            name: "list".into(),
            unit: Unit::RequestsPerSecond,
            subject: many.requests_per_s(),
            reference: Reference::Bare(bare.requests_per_s()),
            target: Target::RatioAtLeast(0.9),
        },
        Row {
            name: "list/growth".into(),
            unit: Unit::Microseconds,
            subject: many.requests_per_s().map(time),
            reference: Reference::Own { values: few.requests_per_s().map(time), at: "1,000 stored" },
            target: Target::RatioAtMost(1.3),
        },
    ])
}

/// Stores `count` finished tasks and returns their ids.
async fn store(server: &Server, count: u64) -> Result<Vec<String>> {
    let ids = load::fill(server, &send_small(64), count).await?;
    let distinct = ids.iter().collect::<HashSet<_>>().len();
    if distinct < ids.len() {
        eprintln!("note: {} messages made only {distinct} tasks; this is no test of a store", ids.len());
    }
    Ok(ids)
}
