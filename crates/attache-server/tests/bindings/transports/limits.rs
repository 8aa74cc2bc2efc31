//! Limits and the audit log on every transport that carries frames: one caller has one rate, the same error, and one line for each denial.

use std::num::NonZeroU32;
use std::time::Instant;

use attache_server::Server;
use serde_json::{Value, json};

use super::{Transport, Wire, ask, everywhere, request};
use crate::conformance::{Access, credentials, server};
use crate::support::{Ear, Player};

/// How many requests a caller may send at once.
const BURST: u32 = 3;

/// The name of a transport in the logs.
fn name_in_logs(transport: Transport) -> &'static str {
    match transport {
        Transport::Http | Transport::HttpOverUnix => "JSONRPC",
        Transport::Unix => "JSONRPC-LINES",
        Transport::Lines => "JSONRPC-STDIO",
        Transport::WebSocket | Transport::WebSocketAtJsonRpc | Transport::WebSocketOverUnix => {
            "JSONRPC-WEBSOCKET"
        }
        Transport::Envelope | Transport::EnvelopeOverUnix => "JSONRPC-GRPC",
    }
}

/// A server that answers one caller once per second, and a few requests at once.
fn slow() -> Server<Player> {
    server(Access::Bearer).options(|options| {
        options.limits.requests_per_second = NonZeroU32::new(1);
        options.limits.burst = NonZeroU32::new(BURST).unwrap();
    })
}

/// A request of the caller that the server knows.
fn known(id: &str) -> Value {
    let mut request = request(id, "ListTasks", json!({}));
    request["headers"]["Authorization"] = credentials(Access::Bearer)["Authorization"].clone();
    request
}

/// Sends requests until one is refused, and gives that error.
async fn until_refused(wire: &mut dyn Wire) -> (u64, Value) {
    let mut answered = 0;
    loop {
        let answer = ask(wire, known(&format!("request-{answered}"))).await;
        if let Some(error) = answer.get("error") {
            return (answered, error.clone());
        }
        answered += 1;
    }
}

/// An error without the time after which the caller may try again, and with its details in one order: gRPC has another.
fn without_delay(mut error: Value) -> Value {
    if let Some(details) = error["data"].as_array_mut() {
        details.sort_by_key(|detail| detail["@type"].to_string());
    }
    for detail in error["data"].as_array_mut().into_iter().flatten() {
        if let Some(delay) = detail.get_mut("retryDelay") {
            assert!(delay.as_str().is_some_and(|delay| delay.ends_with('s')), "{delay}");
            *delay = json!("a delay");
        }
    }
    error
}

#[tokio::test]
async fn a_caller_has_the_same_rate_and_gets_the_same_error_over_every_transport() {
    for transport in Transport::FRAMED {
        let mut server = everywhere(slow()).await;
        let mut wire = server.wire(transport).await;
        let began = Instant::now();
        let (answered, error) = until_refused(&mut *wire).await;
        // A machine that is busy earns the caller one more request for each second.
        let earned = began.elapsed().as_secs();
        let burst = u64::from(BURST);
        assert!((burst..=burst + earned).contains(&answered), "{transport:?}: {answered} after {earned} s");
        let expected = json!({
            "code": -32052,
            "message": "more than 1 requests per second of yours: try again in a moment",
            "data": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "domain": "a2a-protocol.org",
                    "metadata": {"requestsPerSecond": "1"},
                    "reason": "RESOURCE_EXHAUSTED",
                },
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "a delay"},
            ],
        });
        assert_eq!(without_delay(error), expected, "{transport:?}");
    }
}

#[tokio::test]
async fn a_caller_has_one_rate_over_all_transports_together() {
    let mut server = everywhere(slow()).await;
    let began = Instant::now();
    let mut answered = 0;
    loop {
        for transport in [Transport::Unix, Transport::WebSocket, Transport::Envelope] {
            let mut wire = server.wire(transport).await;
            let answer = ask(&mut *wire, known("1")).await;
            answered += u64::from(answer.get("error").is_none());
            if answer.get("error").is_some() {
                let (burst, earned) = (u64::from(BURST), began.elapsed().as_secs());
                assert!((burst..=burst + earned).contains(&answered), "{answered} after {earned} s");
                return;
            }
        }
    }
}

/// What is in the audit log about a caller over a transport, without the operation.
fn denied(transport: Transport, principal: &str, reason: &str, status: u16) -> String {
    let address = match transport {
        Transport::Unix
        | Transport::Lines
        | Transport::WebSocketOverUnix
        | Transport::EnvelopeOverUnix
        | Transport::HttpOverUnix => "",
        Transport::Http | Transport::WebSocket | Transport::WebSocketAtJsonRpc | Transport::Envelope => {
            " address=127.0.0.1"
        }
    };
    let binding = name_in_logs(transport);
    format!(
        "denied principal=\"{principal}\"{address} binding=\"{binding}\" reason=\"{reason}\" status={status}"
    )
}

/// The lines of the audit log without the operation.
fn audited(ear: &Ear) -> Vec<String> {
    let without = |line: String| {
        let (before, after) = line.split_once(" operation=\"").expect("a line has an operation");
        let (operation, after) = after.split_once('"').expect("the operation ends");
        assert!(!operation.is_empty(), "{line}");
        format!("{before}{after}")
    };
    ear.audit().into_iter().map(without).collect()
}

#[tokio::test]
async fn a_caller_at_its_limit_is_one_audit_line_that_names_the_transport() {
    for transport in Transport::FRAMED {
        let ear = Ear::new();
        let mut server = everywhere(slow()).await;
        let mut wire = server.wire(transport).await;
        until_refused(&mut *wire).await;
        let reason = "more than 1 requests per second of yours: try again in a moment";
        assert_eq!(audited(&ear), [denied(transport, "ann", reason, 429)], "{transport:?}");
    }
}

#[tokio::test]
async fn a_wrong_credential_is_one_audit_line_that_names_the_transport_and_not_the_credential() {
    for transport in [
        Transport::Unix,
        Transport::Lines,
        Transport::WebSocket,
        Transport::WebSocketOverUnix,
        Transport::Envelope,
        Transport::EnvelopeOverUnix,
        Transport::HttpOverUnix,
    ] {
        let ear = Ear::new();
        let mut server = everywhere(slow()).await;
        let mut wire = server.wire(transport).await;
        let mut guess = request("1", "ListTasks", json!({}));
        guess["headers"]["Authorization"] = json!("Bearer s3cret-guess");
        let refused = ask(&mut *wire, guess).await;
        assert_eq!(refused["error"]["code"], -32050, "{transport:?}: {refused}");
        let lines = audited(&ear);
        assert!(!lines.concat().contains("s3cret"), "{transport:?}: {lines:?}");
        assert_eq!(lines, [denied(transport, "anonymous", "an unknown credential", 401)], "{transport:?}");
    }
}

#[tokio::test]
async fn requests_with_unusable_headers_are_limited_and_audited_like_others() {
    for transport in [Transport::Unix, Transport::Lines, Transport::WebSocket] {
        let ear = Ear::new();
        let mut server = everywhere(server(Access::Bearer).options(|options| {
            options.limits.limit_loopback = true;
            options.limits.requests_per_second_per_address = NonZeroU32::new(1);
            options.limits.burst_per_address = NonZeroU32::new(BURST).unwrap();
        }))
        .await;
        let mut wire = server.wire(transport).await;
        let mut codes = Vec::new();
        while codes.last() != Some(&-32052) {
            let mut unusable = request("1", "ListTasks", json!({}));
            unusable["headers"] = json!("Bearer s3cret");
            let refused = ask(&mut *wire, unusable).await;
            assert!(!refused.to_string().contains("s3cret"), "{transport:?}: {refused}");
            codes.push(refused["error"]["code"].as_i64().unwrap());
        }
        assert_eq!(codes[0], -32600, "{transport:?}: {codes:?}");
        let lines = audited(&ear);
        assert!(lines.len() == 1 && lines[0].contains("requests per second"), "{transport:?}: {lines:?}");
    }
}
