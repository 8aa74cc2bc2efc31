//! Workloads that send a message as an authenticated caller, against the same without authentication.

use anyhow::Result;

use crate::harness::{Harness, Side};
use crate::report::{Reference, Row, Target, Unit};
use crate::server::Server;

use super::{send_small, send_with};

/// A static token.
pub(super) async fn token(harness: &mut Harness) -> Result<Vec<Row>> {
    let token = "a-static-token-of-some-length";
    let guarded = harness.guarded_subject(&["--token", token]).await?;
    compare(harness, "auth", &guarded, token, 0.95).await
}

/// A signed token of an identity provider, which was seen before.
pub(super) async fn jwt(harness: &mut Harness) -> Result<Vec<Row>> {
    let guarded = harness.guarded_subject(&["--jwt-secret", JWT_SECRET]).await?;
    compare(harness, "auth-jwt", &guarded, JWT, 0.85).await
}

/// What tokens are signed with.
const JWT_SECRET: &str = "a secret that the benchmark shares with itself";

/// A token that is good until 2100, with what such tokens have in them.
const JWT: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwic3ViIjoiYmVuY2giLCJhdWQiOiJiZW5jaCIsInNjb3BlIjoicXVvdGUiLCJleHAiOjQxMDI0NDQ4MDB9.vg1EjcjdI9g9jEbCaOBvX16bpgxVulaJSxN_pQj9RwQ";

/// What it costs that `guarded` asks for `token`: the share that is left must be at least `share`.
async fn compare(
    harness: &mut Harness,
    name: &str,
    guarded: &Server,
    token: &str,
    share: f64,
) -> Result<Vec<Row>> {
    let open = harness.subject().await?;
    let (anonymous, known) = (send_small(64), send_with(token, 64));
    let [open, guarded] = harness
        .alternate(
            name,
            [
                Side { name: "subject, open", server: &open, plan: &anonymous },
                Side { name: "subject, guarded", server: guarded, plan: &known },
            ],
        )
        .await?;
    let row = |name: String, unit, guarded, open, target| Row {
        name,
        unit,
        subject: guarded,
        reference: Reference::Own { values: open, at: "open" },
        target,
    };
    Ok(vec![
        row(
            name.to_owned(),
            Unit::RequestsPerSecond,
            guarded.requests_per_s(),
            open.requests_per_s(),
            Target::RatioAtLeast(share),
        ),
        row(
            format!("{name}/cpu"),
            Unit::Microseconds,
            guarded.cpu_us_per_request(),
            open.cpu_us_per_request(),
            Target::Nothing,
        ),
    ])
}
