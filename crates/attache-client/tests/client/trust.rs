//! Cards that must be signed.

use attache_client::{Client, ClientOptions, Verifier};
use attache_protocol::{AgentCard, Timestamp};
use attache_server::{Algorithm, Server, SigningKeys};

use serde_json::json;

use crate::support::{Fake, Say, json as respond, quick, serve, soon};

fn keys() -> SigningKeys {
    SigningKeys::in_memory(Algorithm::Es256, Timestamp::UNIX_EPOCH).unwrap()
}

fn trusting(trust: Verifier) -> ClientOptions {
    ClientOptions { card_trust: Some(trust), ..quick() }
}

async fn refused(address: &str, trust: Verifier) -> String {
    soon(Client::connect_with(address, trusting(trust))).await.unwrap_err().to_string()
}

#[tokio::test]
async fn an_agent_is_talked_to_if_its_card_is_signed_by_who_is_trusted() {
    let keys = keys();
    let server = format!("http://{}", serve(Server::echo().signing(keys.clone())).await);
    let pinned = Verifier::new().pin(keys.current().public_keys());
    let published = Verifier::new().allow_origin(&server).unwrap();
    for trust in [pinned, published] {
        let agent = soon(Client::connect_with(&server, trusting(trust))).await.unwrap();
        soon(agent.send("hi")).await.unwrap();
    }
    let others = Verifier::new().pin(self::keys().current().public_keys());
    let error = refused(&server, others).await;
    assert!(error.contains("agent-card.json` is not trusted: none of its signatures is good"), "{error}");
    let elsewhere = Verifier::new().allow_origin("https://agents.example.com").unwrap();
    let error = refused(&server, elsewhere).await;
    assert!(error.contains("jwks.json`, which is not an allowed origin"), "{error}");
}

#[tokio::test]
async fn an_agent_whose_card_is_not_signed_is_refused_when_signatures_are_asked_for() {
    let server = format!("http://{}", serve(Server::echo()).await);
    let error = refused(&server, Verifier::new().pin(keys().current().public_keys())).await;
    assert!(error.ends_with("is not trusted: it has no signature"), "{error}");
}

#[tokio::test]
async fn keys_are_not_looked_for_where_a_trusted_origin_redirects_to() {
    let keys = keys();
    let public = keys.current().public_keys().to_json();
    let other = Fake::server(move |_| respond(200, &public)).await;
    let card = json!(keys.current().sign(&AgentCard::new("Echo", "Echo"), None).unwrap());
    let to = format!("HTTP/1.1 302 Found\r\nLocation: {}/jwks.json\r\nContent-Length: 0\r\n\r\n", other.url);
    let agent = Fake::server(move |asked| match asked.path() {
        "/.well-known/jwks.json" => Say::Bytes(to.clone().into()),
        _ => respond(200, &card),
    });
    let agent = agent.await;
    let error = refused(&agent.url, Verifier::new().allow_origin(&agent.url).unwrap()).await;
    assert!(error.contains("could not be read") && error.contains("302"), "{error}");
    assert!(other.visits().is_empty());
}
