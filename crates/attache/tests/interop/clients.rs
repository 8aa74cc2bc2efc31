//! The clients of the SDKs at our server.

use attache::server::GrpcAddress;
use serde_json::Value;

use crate::agent;
use crate::peers::{PATIENCE, Process};
use crate::sdk::Binding::{Grpc, HttpJson};
use crate::sdk::Protocol::V0_3;
use crate::sdk::Sdk::{Node0, Node1, Python0, Python1};
use crate::table::{FEATURES, Note, Outcome, Outcomes, Row, rows};

rows! { "clients", talk;
    python_1_over_jsonrpc: Python1, JsonRpc, V1_0;
    python_1_over_http_json: Python1, HttpJson, V1_0;
    python_1_over_grpc: Python1, Grpc, V1_0;
    python_1_in_0_3_over_jsonrpc: Python1, JsonRpc, V0_3;
    python_1_in_0_3_over_http_json: Python1, HttpJson, V0_3;
    python_1_in_0_3_over_grpc: Python1, Grpc, V0_3;
    python_0_3_over_jsonrpc: Python0, JsonRpc, V0_3;
    python_0_3_over_http_json: Python0, HttpJson, V0_3;
    python_0_3_over_grpc: Python0, Grpc, V0_3;
    node_1_over_jsonrpc: Node1, JsonRpc, V1_0;
    node_1_over_http_json: Node1, HttpJson, V1_0;
    node_1_over_grpc: Node1, Grpc, V1_0;
    node_1_in_0_3_over_jsonrpc: Node1, JsonRpc, V0_3;
    node_1_in_0_3_over_http_json: Node1, HttpJson, V0_3;
    node_1_in_0_3_over_grpc: Node1, Grpc, V0_3;
    node_0_3_over_jsonrpc: Node0, JsonRpc, V0_3;
    node_0_3_over_http_json: Node0, HttpJson, V0_3;
    node_0_3_over_grpc: Node0, Grpc, V0_3;
}

const NAMELESS: &str = "The contents arrive, the names do not: the SDK's `FilePart` of 0.3 for this binding has no `name`, so that a file \
                        with one leaves as `{\"file\":{\"fileWithBytes\":\"AP9ieXRlcw==\",\"mimeType\":\"application/octet-stream\"}}`, \
                        or as the same message over gRPC.";

/// What is to be said about the peers.
fn note(row: &Row, feature: &str) -> Option<Note> {
    let note = match (row.sdk, row.protocol, row.binding, feature) {
        (_, V0_3, _, "list") => Note::Absent(
            "0.3 has no operation to list tasks. The clients of that time have no method for it, and those of 1.3.0 throw: \
             `ListTasks is not supported in A2A v0.3 JSONRPC`, `tasks/list has no equivalent in v0.3 HTTP+JSON`.",
        ),
        (Python0, _, _, "push configs") => Note::Partly(
            "Set and get. `a2a.client.Client` of 0.3.26 has `set_task_callback` and `get_task_callback`, and nothing to list or \
             delete.",
        ),
        (Python1, V0_3, HttpJson, "push configs") => Note::Partly(
            "Set and get. The rest raises `NotImplementedError`: `list_task_push_notification_configs not supported in v0.3 REST`.",
        ),
        (Node1, V0_3, HttpJson | Grpc, "files") => {
            Note::Fault { symptom: r#"got [{"bytes":"AP9ieXRlcw==","name":"",""#, evidence: NAMELESS }
        }
        (Node0, _, HttpJson | Grpc, "files") => {
            Note::Fault { symptom: r#"got [{"bytes":"AP9ieXRlcw==","type":""#, evidence: NAMELESS }
        }
        (Node0, _, Grpc, "data") => Note::Fault {
            symptom: "13 Request message serialization failure: invalid int32: object",
            evidence: "A `null` in data does not leave the client: `Request message serialization failure: invalid int32: object`.",
        },
        _ => return None,
    };
    Some(note)
}

/// Whether a client needs a card that names the gRPC interface by host and port. The gRPC libraries of the SDKs take no URL. SDKs for
/// 0.3 read a list of their own, which has host and port in any case.
fn needs_host_and_port(row: &Row) -> bool {
    matches!((row.binding, row.sdk), (Grpc, Python1 | Node1))
}

/// What is to be said about a whole row.
fn about(row: &Row) -> Option<&'static str> {
    needs_host_and_port(row).then_some(
        "With `card.grpc: host-port`: the gRPC library of the SDK takes no URL, which the card has by default.",
    )
}

/// Lets a client of a peer's try everything at a server of its own.
async fn talk(row: &Row) -> Outcomes {
    let address = if needs_host_and_port(row) { GrpcAddress::HostPort } else { GrpcAddress::Url };
    let (server, _transports) = agent::server_with_all_transports().await;
    let server = server.options(|options| options.grpc_address = address);
    let server = server.listen().await.expect("a port is free");
    let url = format!("http://{}", server.address().expect("it has one"));
    let server = tokio::spawn(server.run_until(std::future::pending()));
    let mut command = row.sdk.program("client");
    command.args([&url, row.binding.name(), row.protocol.name()]).args(FEATURES);
    let mut client = Process::start(&row.title(), command);
    let trying = tokio::time::timeout(FEATURES.len() as u32 * PATIENCE, tried(&mut client));
    let outcomes = trying.await.unwrap_or_else(|_| panic!("{}: the client hangs", row.title()));
    let ended = client.child.wait().await.expect("it can be waited for");
    server.abort();
    let tried: Vec<&str> = outcomes.iter().map(|(feature, _)| *feature).collect();
    assert_eq!(tried, FEATURES, "{}: not everything was tried, {ended}", row.title());
    outcomes
}

/// What a client says that it tried, in that order.
async fn tried(client: &mut Process) -> Outcomes {
    let mut outcomes = Outcomes::new();
    while let Some(line) = client.line().await {
        // Other lines are for the engineer who looks into a failure.
        let Ok(said) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(feature) = FEATURES.into_iter().find(|feature| said["feature"] == **feature) else {
            continue;
        };
        let outcome = match (&said["ok"], &said["absent"]) {
            (Value::Bool(true), _) => Outcome::Works,
            (_, Value::Bool(true)) => Outcome::Absent,
            _ => Outcome::Fails(said["detail"].as_str().unwrap_or_default().to_owned()),
        };
        outcomes.push((feature, outcome));
    }
    outcomes
}
