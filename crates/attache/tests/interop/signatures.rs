//! Cards that we sign, verified by the SDKs, and cards that they sign, verified by us.

use attache::protocol::{AgentCard, AgentExtension, AgentSkill, Json, Timestamp};
use attache::server::Server;
use attache::signing::{Algorithm, KeySet, SigningKeys, Verifier};
use serde_json::Value;

use crate::peers::{Process, keep};
use crate::sdk::Sdk;

const PUBLIC: [Algorithm; 3] = [Algorithm::Es256, Algorithm::EdDsa, Algorithm::Rs256];

#[test]
fn python_1_verifies_what_we_sign() {
    keep("python_1_verifies_what_we_sign", Sdk::Python1.absent(), they_verify(Sdk::Python1));
}

#[test]
fn python_1_signs_what_we_verify() {
    keep("python_1_signs_what_we_verify", Sdk::Python1.absent(), we_verify(Sdk::Python1));
}

#[test]
fn node_1_verifies_what_we_sign() {
    keep("node_1_verifies_what_we_sign", Sdk::Node1.absent(), they_verify(Sdk::Node1));
}

#[test]
fn node_1_signs_what_we_verify() {
    keep("node_1_signs_what_we_verify", Sdk::Node1.absent(), we_verify(Sdk::Node1));
}

/// The result of the SDK's program.
async fn said(sdk: Sdk, what: &str, value: &str) -> String {
    let mut command = sdk.program("signatures");
    command.arg(what).arg(value);
    let mut process = Process::start(&format!("{} {what}", sdk.name()), command);
    process.heard("its result", |line| line.strip_prefix("result ").map(str::to_owned)).await
}

/// A card with what is likely to be written differently by different people, once with and once without empty values.
fn cards() -> [AgentCard; 2] {
    let params = r#"{"ü":[1.0,1e21,0.000001,-7,true],"a":{"😀":"€\n","\ufb33":2}}"#;
    let params = Json::parse(params).and_then(|json| json.read()).expect("it is JSON");
    let extension = AgentExtension { params: Some(params), ..AgentExtension::new("urn:x") };
    let full =
        AgentCard::new("Käse 🧀", "Findet etwas").skill(AgentSkill::new("s", "S")).extension(extension);
    let mut bare = AgentCard::new("Bare", "");
    bare.default_output_modes = Vec::new();
    [full, bare]
}

async fn they_verify(sdk: Sdk) {
    for algorithm in PUBLIC {
        for card in cards() {
            let keys = SigningKeys::in_memory(algorithm, Timestamp::UNIX_EPOCH).expect("keys");
            let server = Server::echo().card(card.clone()).signing(keys).bind("127.0.0.1:0");
            let listening = server.listen().await.expect("a port");
            let url = format!("http://{}", listening.address().expect("an address"));
            let serving = tokio::spawn(listening.run());
            assert_eq!(said(sdk, "verify", &url).await, "good", "{algorithm}, {}", card.name);
            serving.abort();
        }
    }
}

async fn we_verify(sdk: Sdk) {
    for algorithm in PUBLIC {
        let said: Value =
            serde_json::from_str(&said(sdk, "sign", algorithm.name()).await).expect("it is JSON");
        let keys = KeySet::from_json(said["jwks"].to_string().as_bytes()).expect("keys of theirs");
        let verifier = Verifier::new().pin(keys);
        let read = verifier.verify_pinned(said["card"].to_string().as_bytes());
        let read = read.unwrap_or_else(|error| panic!("{algorithm}: {error}: {}", said["card"]));
        assert_eq!(read.skills[0].id, "Käse 🧀");
        let mut forged = said["card"].clone();
        forged["supportedInterfaces"][0]["url"] = "https://evil.example.com".into();
        assert!(verifier.verify_pinned(forged.to_string().as_bytes()).is_err());
    }
}
