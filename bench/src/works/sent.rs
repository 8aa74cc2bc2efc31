//! Works that send a message and wait for its task to finish.

use std::sync::Arc;

use anyhow::Result;

use crate::bare::DataAs;
use crate::harness::{Harness, Series, Side};
use crate::load::{Plan, Reply};
use crate::report::{Reference, Row, Target, Unit};
use crate::requests::{Request, structured_data};

use super::{send_in_0_3, send_small};

const MEBIBYTE: usize = 1 << 20;

/// The figure to quote is the one at 64 connections; the others show where it comes from.
pub(super) async fn send(harness: &mut Harness) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for connections in [1, 16, 64, 256] {
        let (subject, bare) = (harness.subject().await?, harness.bare().await?);
        let plan = send_small(connections);
        harness.imitate("send", &plan, &subject, &bare).await?;
        let name = format!("send/{connections}");
        let [bare, subject] = harness
            .alternate(
                &name,
                [
                    Side { name: "bare", server: &bare, plan: &plan },
                    Side { name: "subject", server: &subject, plan: &plan },
                ],
            )
            .await?;
        let target = match connections {
            1 | 64 => Target::RatioAtLeast(0.8),
            256 => Target::RatioAtLeast(0.75),
            _ => Target::Nothing,
        };
        rows.push(throughput(&name, &subject, &bare, target));
        if connections == 64 {
            rows.push(Row {
                name: format!("{name}/cpu"),
                unit: Unit::Microseconds,
                subject: subject.cpu_us_per_request(),
                reference: Reference::Bare(bare.cpu_us_per_request()),
                target: Target::Nothing,
            });
        }
    }
    Ok(rows)
}

/// What it costs to translate: the same server and the same message, in the words of two generations.
pub(super) async fn dialect(harness: &mut Harness) -> Result<Vec<Row>> {
    let server = harness.subject().await?;
    let (current, older) = (send_small(64), send_in_0_3(64));
    let [current, older] = harness
        .alternate(
            "dialect",
            [
                Side { name: "subject, 1.0", server: &server, plan: &current },
                Side { name: "subject, 0.3", server: &server, plan: &older },
            ],
        )
        .await?;
    let row = |name: &str, unit, older, current, target| Row {
        name: name.to_owned(),
        unit,
        subject: older,
        reference: Reference::Own { values: current, at: "1.0" },
        target,
    };
    Ok(vec![
        row(
            "dialect",
            Unit::RequestsPerSecond,
            older.requests_per_s(),
            current.requests_per_s(),
            Target::RatioAtLeast(0.9),
        ),
        row(
            "dialect/cpu",
            Unit::Microseconds,
            older.cpu_us_per_request(),
            current.cpu_us_per_request(),
            Target::Nothing,
        ),
    ])
}

/// A message with data that the agent does not look into, against a bare server that makes a tree of it and one that does not.
pub(super) async fn data(harness: &mut Harness) -> Result<Vec<Row>> {
    let subject = harness.subject().await?;
    let (tree, raw) = (harness.bare().await?, harness.bare_with(DataAs::Raw).await?);
    let plan = Arc::new(Plan {
        requests: vec![Request::send_data(&structured_data(MEBIBYTE))],
        connections: 4,
        reply: Reply::Whole,
        marker: "TASK_STATE_COMPLETED",
    });
    for bare in [&tree, &raw] {
        harness.imitate("data", &plan, &subject, bare).await?;
    }
    let [tree, raw, subject] = harness
        .alternate(
            "data",
            [
                Side { name: "bare", server: &tree, plan: &plan },
                Side { name: "bare, raw data", server: &raw, plan: &plan },
                Side { name: "subject", server: &subject, plan: &plan },
            ],
        )
        .await?;
    Ok(vec![
        throughput("data", &subject, &raw, Target::RatioAtLeast(0.5)),
        throughput("data/tree", &subject, &tree, Target::Nothing),
    ])
}

fn throughput(name: &str, subject: &Series, bare: &Series, target: Target) -> Row {
    Row {
        name: name.to_owned(),
        unit: Unit::RequestsPerSecond,
        subject: subject.requests_per_s(),
        reference: Reference::Bare(bare.requests_per_s()),
        target,
    }
}
