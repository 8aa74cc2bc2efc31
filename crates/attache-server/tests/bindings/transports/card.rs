//! Which transports the card lists, and for which clients.

use attache_protocol::TRANSPORTS_EXTENSION;
use attache_server::CardTransports;
use serde_json::Value;

use super::{Everywhere, everywhere};
use crate::support::{player, soon};

/// The bindings and URLs in the card beyond those of the specification.
async fn further(server: &Everywhere, headers: &[(&str, &str)]) -> Vec<(String, String)> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.get(format!("http://{}/.well-known/agent-card.json", server.address));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let card: Value = soon(request.send()).await.unwrap().json().await.unwrap();
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all =
        interfaces.iter().map(|interface| (text(&interface["protocolBinding"]), text(&interface["url"])));
    let is_standard = |name: &str| ["JSONRPC", "HTTP+JSON", "GRPC"].contains(&name);
    let all: Vec<_> = all.collect();
    let standard = all.iter().take_while(|(name, _)| is_standard(name)).count();
    assert!(standard >= 3 && all[standard..].iter().all(|(name, _)| !is_standard(name)), "{all:?}");
    all[standard..].to_vec()
}

#[tokio::test]
async fn clients_that_ask_for_them_find_all_transports_after_the_standard_ones() {
    let server = everywhere(player()).await;
    let address = server.address;
    let remote = [
        ("websocket".to_owned(), format!("ws://{address}/ws")),
        ("grpc-jsonrpc".to_owned(), format!("grpc-jsonrpc://{address}")),
    ];
    let local = [("unix".to_owned(), format!("unix://{}", server.socket.display()))];
    assert_eq!(
        further(&server, &[("A2A-Extensions", TRANSPORTS_EXTENSION)]).await,
        [&remote[..], &local[..]].concat()
    );
    // Google ADK states its version, and rejects a card with an interface of another origin.
    for version in ["1.0", "0.3"] {
        assert_eq!(further(&server, &[("A2A-Version", version)]).await, []);
    }
    assert_eq!(further(&server, &[]).await, []);
    // A proxy on this machine passes on what other machines ask for.
    let passed_on = [("A2A-Extensions", TRANSPORTS_EXTENSION), ("X-Forwarded-For", "203.0.113.9")];
    assert_eq!(further(&server, &passed_on).await, remote);
}

#[tokio::test]
async fn a_public_server_tells_other_machines_nothing_about_its_sockets() {
    let server = everywhere(player().base_url("https://agents.example.com")).await;
    assert_eq!(
        further(&server, &[("A2A-Extensions", TRANSPORTS_EXTENSION)]).await,
        [
            ("websocket".to_owned(), "wss://agents.example.com/ws".to_owned()),
            ("grpc-jsonrpc".to_owned(), "grpc-jsonrpcs://agents.example.com:443".to_owned()),
        ]
    );
}

#[tokio::test]
async fn the_operator_decides_which_cards_list_them() {
    let listing = |listed| player().options(move |options| options.card_transports = listed);
    let all = everywhere(listing(CardTransports::All)).await;
    assert_eq!(further(&all, &[]).await.len(), 3);
    let hidden = everywhere(listing(CardTransports::Hidden)).await;
    assert_eq!(further(&hidden, &[("A2A-Extensions", TRANSPORTS_EXTENSION)]).await, []);
}
