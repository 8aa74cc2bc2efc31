//! Signed cards: every served card is verified by clients that have the keys.

use attache_core::Echo;
use attache_protocol::{AgentCard, AgentSkill, Timestamp};
use attache_server::{Algorithm, Server, SigningKeys};
use attache_signing::{KeySet, Verifier};
use futures::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Binding, Reply, Running, adopt, fetch, serve, soon};

const CARD: &str = "/.well-known/agent-card.json";
const KEYS: &str = "/.well-known/jwks.json";

fn keys(algorithm: Algorithm) -> SigningKeys {
    SigningKeys::in_memory(algorithm, Timestamp::UNIX_EPOCH).unwrap()
}

fn trusted(keys: &SigningKeys, card: &Value) -> AgentCard {
    let verifier = Verifier::new().pin(keys.current().verifying_keys());
    verifier.verify_pinned(card.to_string().as_bytes()).unwrap()
}

async fn get(server: &Running, path: &str) -> Reply {
    fetch(server.bare(Method::GET, path)).await
}

async fn pure(server: &Running) -> Reply {
    fetch(server.bare(Method::GET, CARD).header("A2A-Version", "1.0")).await
}

#[tokio::test]
async fn every_document_has_signatures_of_its_own() {
    let keys = keys(Algorithm::Es256);
    let server = serve(Server::echo().signing(keys.clone())).await;
    let (both, pure) = (get(&server, CARD).await.json(), pure(&server).await.json());
    assert_eq!(both["preferredTransport"], "JSONRPC");
    assert!(
        trusted(&keys, &both).supported_interfaces.len() > trusted(&keys, &pure).supported_interfaces.len()
    );
    assert_ne!(both["signatures"], pure["signatures"]);
    assert_eq!(both["signatures"].as_array().unwrap().len(), 1, "nothing in the card is empty");
    let oldest = get(&server, "/.well-known/agent.json").await.json();
    assert!(oldest.get("signatures").is_none(), "0.1 has none");
}

#[tokio::test]
async fn the_keys_are_published_where_the_signatures_say() {
    let keys = keys(Algorithm::EdDsa);
    keys.add(Algorithm::Hs256, Timestamp::UNIX_EPOCH).unwrap();
    let server = serve(Server::echo().signing(keys.clone())).await;
    let reply = get(&server, KEYS).await;
    assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, "application/jwk-set+json"));
    assert_eq!(reply.header("cache-control"), "public, max-age=60");
    let published = reply.json();
    assert_eq!(published, keys.current().public_keys().to_json());
    assert_eq!(published["keys"].as_array().unwrap().len(), 1, "the secret is not among them");
    assert_eq!(KeySet::from_json(published.to_string().as_bytes()).unwrap(), keys.current().public_keys());
    let again = server.bare(Method::GET, KEYS).header("If-None-Match", reply.header("etag"));
    assert_eq!(fetch(again).await.status.as_u16(), 304);
    assert_eq!(fetch(server.bare(Method::POST, KEYS)).await.status.as_u16(), 405);
    let verifier = Verifier::new().allow_origin(&server.base).unwrap();
    let card = get(&server, CARD).await.json().to_string();
    let read = |url: url::Url| async { reqwest::get(url).await?.bytes().await.map(Vec::from) };
    verifier.verify(card.as_bytes(), std::time::Instant::now(), read).await.unwrap();
}

#[tokio::test]
async fn there_are_no_keys_where_nothing_is_signed_or_only_with_secrets() {
    let server = serve(Server::echo()).await;
    assert_eq!(get(&server, KEYS).await.status.as_u16(), 404);
    assert!(get(&server, CARD).await.json().get("signatures").is_none());
    let keys = keys(Algorithm::Hs256);
    let server = serve(Server::echo().signing(keys.clone())).await;
    assert_eq!(get(&server, KEYS).await.status.as_u16(), 404);
    trusted(&keys, &get(&server, CARD).await.json());
}

#[tokio::test]
async fn signatures_are_made_anew_when_the_keys_change() {
    let keys = keys(Algorithm::Es256);
    let server = serve(Server::echo().signing(keys.clone())).await;
    let before = get(&server, CARD).await;
    let same = get(&server, CARD).await;
    assert_eq!((before.header("etag"), before.json()), (same.header("etag"), same.json()));
    keys.rotate(None, Timestamp::UNIX_EPOCH).unwrap();
    let overlap = get(&server, CARD).await;
    assert_ne!(before.header("etag"), overlap.header("etag"));
    assert_eq!(overlap.json()["signatures"].as_array().unwrap().len(), 2);
    assert_eq!(get(&server, KEYS).await.json()["keys"].as_array().unwrap().len(), 2);
    keys.retire(None).unwrap();
    let after = get(&server, CARD).await.json();
    assert_eq!(after["signatures"].as_array().unwrap().len(), 1);
    trusted(&keys, &after);
}

#[tokio::test]
async fn signatures_are_made_anew_when_the_card_changes_and_only_then() {
    let keys = keys(Algorithm::Es256);
    let (publish, cards) = futures::channel::mpsc::unbounded::<AgentCard>();
    let card = AgentCard::new("A", "D").skill(AgentSkill::new("s", "S"));
    let server = Server::new(Echo).card(card.clone()).card_updates(cards.boxed()).signing(keys.clone());
    let server = serve(server).await;
    let before = get(&server, CARD).await.json();
    publish.unbounded_send(card.clone()).unwrap();
    publish.unbounded_send(card.clone().version("2")).unwrap();
    let changed = soon(async {
        loop {
            let read = get(&server, CARD).await.json();
            if read["version"] == "2" {
                return read;
            }
            assert_eq!(read, before, "the same card keeps its signatures");
        }
    });
    assert_eq!(trusted(&keys, &changed.await).version, "2");
}

#[tokio::test]
async fn the_extended_card_is_signed_on_its_own() {
    let keys = keys(Algorithm::Es256);
    let extended = AgentCard::new("Echo", "For friends").skill(AgentSkill::new("more", "More"));
    let server = Server::echo().extended_card(extended).signing(keys.clone());
    let server = serve(server.service_options(|options| options.extended_card_for_anyone = true)).await;
    for binding in Binding::ALL {
        let card = server.ask("GetExtendedAgentCard", json!({})).ok(binding).await;
        assert_eq!(trusted(&keys, &card).skills[0].id, "more", "{binding:?}");
    }
    let old = server.rpc("GetExtendedAgentCard", json!({})).await["result"].clone();
    assert_eq!(server.rpc("GetExtendedAgentCard", json!({})).await["result"], old);
    keys.rotate(None, Timestamp::UNIX_EPOCH).unwrap();
    keys.retire(None).unwrap();
    trusted(&keys, &server.rpc("GetExtendedAgentCard", json!({})).await["result"]);
}

#[tokio::test]
async fn a_router_has_the_keys_as_well() {
    let keys = keys(Algorithm::EdDsa);
    let server =
        adopt(Server::echo().signing(keys.clone()).into_router("https://example.com/x/").unwrap()).await;
    assert_eq!(get(&server, KEYS).await.json(), keys.current().public_keys().to_json());
    trusted(&keys, &get(&server, CARD).await.json());
}

#[tokio::test]
async fn each_host_that_the_card_names_has_a_signature_of_its_own() {
    let keys = keys(Algorithm::Es256);
    let server = serve(Server::echo().signing(keys.clone())).await;
    let host = format!("localhost:{}", server.address.port());
    let asked = || async { fetch(server.bare(Method::GET, CARD).header("Host", &host)).await };
    let (usual, first, again) = (get(&server, CARD).await, asked().await, asked().await);
    assert_eq!((first.header("etag"), first.json()), (again.header("etag"), again.json()));
    let interface = |card: &Value| trusted(&keys, card).supported_interfaces[0].url.clone();
    assert_eq!(interface(&usual.json()), format!("{}/a2a", server.base));
    assert_eq!(interface(&first.json()), format!("http://{host}/a2a"));
    // The keys are where the client knows the server.
    let verifier = Verifier::new().allow_origin(&format!("http://{host}")).unwrap();
    let read = |url: url::Url| async move {
        assert_eq!(url.host_str(), Some("localhost"));
        reqwest::get(url).await?.bytes().await.map(Vec::from)
    };
    verifier.verify(first.json().to_string().as_bytes(), std::time::Instant::now(), read).await.unwrap();
}
