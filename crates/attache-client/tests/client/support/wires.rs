//! Every interface that the client supports, for the same server.

use std::net::SocketAddr;

use attache_client::{Binding, Client, ClientOptions, Interface};
use attache_protocol::{AgentInterface, Version, binding};
use serde_json::to_value;

use super::{Fake, connect, json, quick, soon};

/// The interfaces that the client supports.
pub(crate) const WIRES: [Interface; 10] = [
    Interface { binding: Binding::JsonRpc, version: Some(Version::V1_0) },
    Interface { binding: Binding::HttpJson, version: Some(Version::V1_0) },
    Interface { binding: Binding::Grpc, version: Some(Version::V1_0) },
    Interface { binding: Binding::JsonRpc, version: Some(Version::V0_3) },
    Interface { binding: Binding::HttpJson, version: Some(Version::V0_3) },
    Interface { binding: Binding::Grpc, version: Some(Version::V0_3) },
    Interface { binding: Binding::WebSocket, version: Some(Version::V1_0) },
    Interface { binding: Binding::WebSocket, version: Some(Version::V0_3) },
    Interface { binding: Binding::GrpcJsonRpc, version: Some(Version::V1_0) },
    Interface { binding: Binding::GrpcJsonRpc, version: Some(Version::V0_3) },
];

/// Whether an interface carries JSON-RPC.
fn is_jsonrpc(wire: Interface) -> bool {
    !matches!(wire.binding, Binding::HttpJson | Binding::Grpc)
}

/// Whether an interface can list tasks.
pub(crate) fn lists(wire: Interface) -> bool {
    wire.version == Some(Version::V1_0) || is_jsonrpc(wire)
}

/// Whether the events of an interface have numbers.
pub(crate) fn numbers(wire: Interface) -> bool {
    wire.version == Some(Version::V1_0) || wire.binding != Binding::Grpc
}

/// A client that uses one interface of a server, at `url`. The card comes from another server. It also names the interface of 0.3,
/// which servers need not advertise.
pub(crate) async fn over(wire: Interface, server: SocketAddr, url: &str) -> Client {
    over_with(quick().prefer(wire), server, url).await
}

/// The same with other options. The server receives the credentials.
pub(crate) async fn over_with(mut options: ClientOptions, server: SocketAddr, url: &str) -> Client {
    options.trusted_origins = options.trusted_origins.trust(url).unwrap();
    let mut card = (*connect(&format!("http://{server}")).await.card()).clone();
    let rpc = card.supported_interfaces.iter().find(|it| it.protocol_binding == binding::JSONRPC);
    let older = AgentInterface { protocol_version: "0.3".to_owned(), ..rpc.unwrap().clone() };
    card.supported_interfaces.push(older);
    for (url, binding) in [
        (format!("ws://{server}/ws"), binding::WEBSOCKET),
        (format!("grpc-jsonrpc://{server}"), binding::GRPC_JSONRPC),
    ] {
        let current = AgentInterface::new(url, binding);
        let older = AgentInterface { protocol_version: "0.3".to_owned(), ..current.clone() };
        card.supported_interfaces.extend([current, older]);
    }
    for interface in &mut card.supported_interfaces {
        interface.url = interface.url.replace(&server.to_string(), url.trim_start_matches("http://"));
    }
    let card = to_value(card).unwrap();
    let fake = Fake::server(move |_| json(200, &card)).await;
    soon(Client::connect_with(&fake.url, options)).await.unwrap()
}
