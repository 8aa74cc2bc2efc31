//! Cards for clients before 1.0.

use attache_protocol::dialect::{dual_card, v0_1_card, v0_3_card};
use attache_protocol::{AgentCard, AgentInterface, AgentSkill, binding};
use serde::Serialize;
use serde_json::{Value, json};

use crate::arbitrary;

fn json_of(card: impl Serialize) -> Value {
    let mut out = Vec::new();
    attache_protocol::json::write(&mut out, &card).expect("a card");
    serde_json::from_slice(&out).expect("JSON")
}

fn card() -> AgentCard {
    let mut card = AgentCard::new("Recipes", "Finds something to cook")
        .skill(AgentSkill::new("search", "Search recipes").tags(["food"]).example("something with leeks"))
        .provider("Kitchen", "https://example.com");
    card.supported_interfaces = vec![
        AgentInterface::new("https://example.com/a2a", binding::JSONRPC),
        AgentInterface::new("https://example.com/rest", binding::HTTP_JSON),
    ];
    card.capabilities.streaming = Some(true);
    card.capabilities.push_notifications = Some(false);
    card.capabilities.extended_agent_card = Some(true);
    let flow = json!({"authorizationUrl": "https://a", "tokenUrl": "https://t", "scopes": {"r": "read"}, "pkceRequired": true});
    card.security_schemes = serde_json::from_value(json!({
        "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "certificate": {"mtlsSecurityScheme": {"description": "ours"}},
        "device": {"oauth2SecurityScheme": {"flows": {"deviceCode": {"deviceAuthorizationUrl": "https://d", "tokenUrl": "https://t", "scopes": {}}}}},
        "implicit": {"oauth2SecurityScheme": {"flows": {"implicit": {}}}},
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "oauth": {"oauth2SecurityScheme": {"flows": {"authorizationCode": flow}, "oauth2MetadataUrl": "https://m"}},
        "openid": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://o"}},
    }))
    .unwrap();
    card.security_requirements = serde_json::from_value(json!([
        {"schemes": {"bearer": {}}},
        {"schemes": {"key": {}, "oauth": {"list": ["r"]}}},
    ]))
    .unwrap();
    card.skills[0].security_requirements = card.security_requirements[..1].to_vec();
    card
}

#[test]
fn one_card_for_both_versions() {
    insta::assert_json_snapshot!(json_of(dual_card(&card())));
}

#[test]
fn the_card_of_0_3() {
    insta::assert_json_snapshot!(json_of(v0_3_card(&card())));
}

#[test]
fn the_card_of_0_1() {
    insta::assert_json_snapshot!(json_of(v0_1_card(&card(), "https://example.com/a2a/rpc")));
    let open = json_of(v0_1_card(&AgentCard::new("n", "d"), ""));
    assert_eq!(open["authentication"], json!({"schemes": []}));
}

#[test]
fn an_interface_of_0_3_comes_first() {
    let interface = |url: &str, binding: &str, version: &str, tenant: Option<&str>| AgentInterface {
        protocol_version: version.to_owned(),
        tenant: tenant.map(str::to_owned),
        ..AgentInterface::new(url, binding)
    };
    let addresses = |interfaces: Vec<AgentInterface>| {
        let card =
            json_of(dual_card(&AgentCard { supported_interfaces: interfaces, ..AgentCard::new("n", "d") }));
        let all = card["additionalInterfaces"].as_array().cloned().unwrap_or_default();
        (card["url"].clone(), card["preferredTransport"].clone(), all.len())
    };
    let new = interface("https://new", binding::JSONRPC, "1.0", None);
    let old = interface("https://old", binding::HTTP_JSON, "0.3", None);
    assert_eq!(addresses(vec![new.clone(), old]), (json!("https://old"), json!("HTTP+JSON"), 1));
    let theirs = interface("https://theirs", binding::JSONRPC, "1.0", Some("t"));
    assert_eq!(addresses(vec![theirs.clone(), new]), (json!("https://new"), json!("JSONRPC"), 1));
    let grpc = interface("example.com:443", binding::GRPC, "1.0", None);
    assert_eq!(addresses(vec![grpc, theirs]), (Value::Null, Value::Null, 0));
}

#[test]
fn a_dual_card_is_read_as_its_card_of_1_0() {
    arbitrary::check(arbitrary::agent_card(), |card| {
        let mut out = Vec::new();
        attache_protocol::json::write(&mut out, &dual_card(&card)).expect("a card");
        let read: AgentCard = serde_json::from_slice(&out).expect("a card of 1.0");
        proptest::prop_assert_eq!(read, card);
        Ok(())
    });
}

#[test]
fn a_dual_card_without_0_3_is_the_card_of_1_0() {
    arbitrary::check(arbitrary::agent_card(), |mut card| {
        card.supported_interfaces.retain(|interface| interface.tenant.is_some());
        proptest::prop_assert_eq!(json_of(dual_card(&card)), json_of(&card));
        Ok(())
    });
}
