//! Cards that must be signed.

use attache_client::{Binding, Client, ClientError, ClientOptions, UntrustedCard, Verifier};
use attache_protocol::{AgentCard, AgentInterface, Timestamp};
use attache_server::{Algorithm, Server, SigningKeys};

use serde_json::json;

use crate::support::{Fake, Reaction, json as respond, quick, rpc_result, serve, soon};

fn keys() -> SigningKeys {
    SigningKeys::in_memory(Algorithm::Es256, Timestamp::UNIX_EPOCH).unwrap()
}

fn trusting(trust: Verifier) -> ClientOptions {
    quick().card_trust(trust)
}

async fn refused(address: &str, trust: Verifier) -> String {
    soon(Client::connect_with(address, trusting(trust))).await.unwrap_err().to_string()
}

#[tokio::test]
async fn an_agent_is_used_if_its_card_has_a_trusted_signature() {
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
        "/.well-known/jwks.json" => Reaction::Bytes(to.clone().into()),
        _ => respond(200, &card),
    });
    let agent = agent.await;
    let error = refused(&agent.url, Verifier::new().allow_origin(&agent.url).unwrap()).await;
    assert!(error.contains("could not be read") && error.contains("302"), "{error}");
    assert!(other.card_requests().is_empty());
}

#[tokio::test]
async fn the_extended_card_must_be_signed_as_well() {
    let keys = keys();
    let extended = AgentCard::new("Echo for friends", "Echo");
    let server = Server::echo().extended_card(extended).signing(keys.clone());
    let server = server.service_options(|options| options.extended_card_for_anyone = true);
    let server = format!("http://{}", serve(server).await);
    let trust = Verifier::new().pin(keys.current().public_keys());
    for binding in [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc] {
        let agent =
            soon(Client::connect_with(&server, trusting(trust.clone()).prefer(binding))).await.unwrap();
        let signer = agent.signer().unwrap();
        assert_eq!((signer.algorithm, signer.published_at), (Algorithm::Es256, None));
        assert_eq!(soon(agent.extended_card()).await.unwrap().name, "Echo for friends");
    }

    let unsigned = Fake::server(move |asked| {
        let mut card = AgentCard::new("Echo", "Echo");
        let url = format!("http://{}/rpc", asked.header("host").unwrap());
        card.supported_interfaces.push(AgentInterface::new(url, "JSONRPC"));
        if asked.path() == "/rpc" {
            return rpc_result(asked, &json!(card));
        }
        respond(200, &json!(keys.current().sign(&card, None).unwrap()))
    });
    let unsigned = unsigned.await;
    let agent = soon(Client::connect_with(&unsigned.url, trusting(trust))).await.unwrap();
    let error = soon(agent.extended_card()).await.unwrap_err();
    assert!(matches!(error, ClientError::Untrusted { why: UntrustedCard::Unsigned, .. }), "{error}");
}
