//! Works on a gateway: functions of iii workers that are called with messages, and the card that shows them.

use std::sync::Arc;

use anyhow::Result;

use crate::answers::CARD;
use crate::harness::{Harness, Series, Side};
use crate::load::{Plan, Reply};
use crate::report::{Reference, Row, Target, Unit};
use crate::requests::Request;
use crate::stats::Repeated;
use crate::worker::{Crowd, function_id};

use super::SMALL;

const ONE: Crowd = Crowd { workers: 1, functions: 1 };
const MANY: Crowd = Crowd { workers: 200, functions: 5_000 };

/// The message of the works that send one, to the echo agent as text and to a function as its payload, which then goes over a
/// socket to the worker and back.
pub(super) async fn call(harness: &mut Harness) -> Result<Vec<Row>> {
    let name = "function-call/64";
    let (subject, gateway) = (harness.subject().await?.asleep(), harness.gateway(ONE).await?);
    let [echo, function] = harness
        .alternate(
            name,
            [
                Side { name: "subject, echo agent", server: &subject, plan: &send(Request::send(SMALL)) },
                Side { name: "gateway", server: &gateway, plan: &send(call_of(0)) },
            ],
        )
        .await?;
    let at = "echo agent";
    Ok(vec![
        throughput(name, &function, &echo, at, Target::RatioAtLeast(0.5)),
        Row {
            name: format!("{name}/cpu"),
            unit: Unit::Microseconds,
            subject: function.cpu_us_per_request(),
            reference: Reference::Own { values: echo.cpu_us_per_request(), at },
            target: Target::Nothing,
        },
    ])
}

/// A call should cost the same with many workers as with one. Calls to all of them at once are shown too: they arrive in many small
/// segments, where calls to one worker share their system calls.
pub(super) async fn crowd(harness: &mut Harness) -> Result<Vec<Row>> {
    let name = "function-crowd";
    let alone = harness.gateway(ONE).await?;
    let (crowded, spread) = (harness.gateway(MANY).await?, harness.gateway(MANY).await?);
    let same = send(call_of(0));
    let any = marked((0..MANY.functions).map(call_of).collect(), 64, "TASK_STATE_COMPLETED");
    let [alone, crowded, spread] = harness
        .alternate(
            name,
            [
                Side { name: "gateway, 1 worker", server: &alone, plan: &same },
                Side { name: "gateway, 200 workers", server: &crowded, plan: &same },
                Side { name: "gateway, any of 5,000", server: &spread, plan: &any },
            ],
        )
        .await?;
    let at = "1 worker";
    Ok(vec![
        throughput(name, &crowded, &alone, at, Target::RatioAtLeast(0.95)),
        throughput("function-crowd/any", &spread, &alone, at, Target::Nothing),
    ])
}

/// A card is written once and then only sent. Larger ones take longer to send, for the bare server too, so what is compared is
/// how many times as long as the bare server's the answer takes.
pub(super) async fn card(harness: &mut Harness) -> Result<Vec<Row>> {
    let few = harness.gateway(Crowd { workers: 1, functions: 10 }).await?;
    let many = harness.gateway(Crowd { workers: 1, functions: 1_000 }).await?;
    let (bare_few, bare_many) = (harness.bare().await?.asleep(), harness.bare().await?.asleep());
    // The name, which is at the beginning: to look through all of a large card would be work for the load generator.
    let plan = marked(vec![Request::card()], 4, "Attaché");
    harness.imitate(CARD, &plan, &few, &bare_few).await?;
    harness.imitate(CARD, &plan, &many, &bare_many).await?;
    let [bare_few, few, bare_many, many] = harness
        .alternate(
            "card",
            [
                Side { name: "bare, 10", server: &bare_few, plan: &plan },
                Side { name: "gateway, 10", server: &few, plan: &plan },
                Side { name: "bare, 1,000", server: &bare_many, plan: &plan },
                Side { name: "gateway, 1,000", server: &many, plan: &plan },
            ],
        )
        .await?;
    let against_bare = |name: &str, own: &Series, bare: &Series| Row {
        name: name.to_owned(),
        unit: Unit::RequestsPerSecond,
        subject: own.requests_per_s(),
        reference: Reference::Bare(bare.requests_per_s()),
        target: Target::Nothing,
    };
    let growth = |name: &str, cost: fn(&Series) -> Repeated, target| Row {
        name: name.to_owned(),
        unit: Unit::TimesBare,
        subject: cost(&many).over(&cost(&bare_many)),
        reference: Reference::Own { values: cost(&few).over(&cost(&bare_few)), at: "10 functions" },
        target,
    };
    Ok(vec![
        against_bare("card/10", &few, &bare_few),
        against_bare("card/1,000", &many, &bare_many),
        growth("card-1000", time, Target::RatioAtMost(1.2)),
        growth("card-1000/cpu", Series::cpu_us_per_request, Target::Nothing),
    ])
}

fn time(series: &Series) -> Repeated {
    series.requests_per_s().map(|requests_per_s| 1e6 / requests_per_s)
}

fn throughput(name: &str, own: &Series, other: &Series, at: &'static str, target: Target) -> Row {
    Row {
        name: name.to_owned(),
        unit: Unit::RequestsPerSecond,
        subject: own.requests_per_s(),
        reference: Reference::Own { values: other.requests_per_s(), at },
        target,
    }
}

/// Calls the `nth` function of a crowd.
fn call_of(nth: usize) -> Request {
    Request::call(&function_id(nth), SMALL)
}

fn send(request: Request) -> Arc<Plan> {
    marked(vec![request], 64, "TASK_STATE_COMPLETED")
}

fn marked(requests: Vec<Request>, connections: usize, marker: &'static str) -> Arc<Plan> {
    Arc::new(Plan { requests, connections, reply: Reply::Marked, marker })
}
