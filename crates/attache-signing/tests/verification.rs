//! Which cards are trusted, and which are not.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use attache_protocol::dialect::dual_card;
use attache_protocol::{AgentCard, AgentExtension, AgentInterface, AgentSkill, Json, Timestamp, binding};
use attache_signing::{Algorithm, KeySet, SigningKeys, UntrustedCard, Verifier};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::executor::block_on;
use proptest::prelude::*;
use serde_json::{Value, json};

#[path = "../../attache-protocol/tests/arbitrary/mod.rs"]
#[expect(dead_code, unused_macros, reason = "cards are all that is needed here")]
mod arbitrary;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const JKU: &str = "https://agents.example.com/.well-known/jwks.json";

fn card() -> AgentCard {
    let mut card = AgentCard::new("Recipes", "Findet etwas zu kochen: Käse, 🧀")
        .skill(AgentSkill::new("search", "Search recipes").tags(["food"]));
    card.capabilities.streaming = Some(true);
    card.supported_interfaces = vec![
        AgentInterface::new("https://agents.example.com/a2a", binding::JSONRPC),
        AgentInterface {
            protocol_version: "0.3".to_owned(),
            ..AgentInterface::new("https://agents.example.com/a2a", binding::JSONRPC)
        },
    ];
    card
}

fn keys(algorithm: Algorithm) -> SigningKeys {
    SigningKeys::in_memory(algorithm, NOW).unwrap()
}

fn signed(keys: &SigningKeys) -> Value {
    json!(keys.current().sign(&card(), Some(JKU)).unwrap())
}

fn pinned(keys: &SigningKeys) -> Verifier {
    Verifier::new().pin(keys.current().verifying_keys())
}

fn verify(verifier: &Verifier, card: &Value) -> Result<AgentCard, UntrustedCard> {
    verifier.verify_pinned(card.to_string().as_bytes())
}

/// The protected header of a card's first signature.
fn header(card: &Value) -> Value {
    let protected = card["signatures"][0]["protected"].as_str().unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(protected).unwrap()).unwrap()
}

fn set_header(card: &mut Value, change: impl FnOnce(&mut Value)) {
    let mut stated = header(card);
    change(&mut stated);
    card["signatures"][0]["protected"] = URL_SAFE_NO_PAD.encode(stated.to_string()).into();
}

#[test]
fn a_card_signed_with_any_algorithm_is_trusted_by_a_verifier_with_the_key() {
    for algorithm in Algorithm::ALL {
        let keys = keys(algorithm);
        let card = signed(&keys);
        assert_eq!(json!(verify(&pinned(&keys), &card).unwrap()), card, "{algorithm}");
        let stated = header(&card);
        let kid = keys.list()[0].kid.clone();
        let jku = (algorithm != Algorithm::Hs256).then_some(JKU);
        assert_eq!(stated["alg"], algorithm.name());
        assert_eq!((&stated["kid"], &stated["typ"]), (&json!(kid), &json!("JOSE")));
        assert_eq!(stated.get("jku").and_then(Value::as_str), jku, "{algorithm}");
    }
}

#[test]
fn the_order_of_members_and_the_members_of_other_generations_do_not_matter() {
    let keys = keys(Algorithm::Es256);
    let card = keys.current().sign(&card(), None).unwrap();
    let dual = json!(dual_card(&card));
    assert!(dual.get("preferredTransport").is_some());
    assert_eq!(verify(&pinned(&keys), &dual).unwrap(), card);
    let pretty = serde_json::to_vec_pretty(&dual).unwrap();
    assert_eq!(pinned(&keys).verify_pinned(&pretty).unwrap(), card);
}

#[test]
fn of_a_card_only_what_was_signed_is_used() {
    let keys = keys(Algorithm::EdDsa);
    let mut plain = card();
    plain.supported_interfaces.clear();
    let mut forged = json!(keys.current().sign(&plain, None).unwrap());
    // Without interfaces of 1.0, parsers of both versions take it for a card of 0.3.
    forged["url"] = "https://evil.example.com/".into();
    let read = verify(&pinned(&keys), &forged).unwrap();
    assert!(read.supported_interfaces.is_empty());
}

#[test]
fn forged_cards_are_refused() {
    let (ours, theirs) = (keys(Algorithm::Es256), keys(Algorithm::Es256));
    let good = signed(&ours);
    let public = ours.current().public_keys().to_json();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut card = good.clone();
        change(&mut card);
        card.to_string()
    };
    // HMAC with the public key as the secret: a verifier that trusts `alg` accepts it.
    let confused = |secret: &[u8]| {
        let mut card = good.clone();
        set_header(&mut card, |header| header["alg"] = "HS256".into());
        let payload = attache_signing::canonical::cleaned(&serde_json::from_value(good.clone()).unwrap());
        let protected = card["signatures"][0]["protected"].as_str().unwrap().to_owned();
        let message = format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload.unwrap()));
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
        let tag = aws_lc_rs::hmac::sign(&key, message.as_bytes());
        card["signatures"][0]["signature"] = URL_SAFE_NO_PAD.encode(tag.as_ref()).into();
        card.to_string()
    };
    let forged = [
        ("another key", signed(&theirs).to_string(), "the key is not trusted"),
        (
            "another key under the name of ours",
            {
                let mut card = signed(&theirs);
                set_header(&mut card, |header| header["kid"] = ours.list()[0].kid.as_str().into());
                card.to_string()
            },
            "not a signature of this card",
        ),
        (
            "no algorithm",
            with(&|card| {
                set_header(card, |header| header["alg"] = "none".into());
                card["signatures"][0]["signature"] = "".into();
            }),
            "`none` is not an algorithm",
        ),
        (
            "the public key as a secret",
            confused(public["keys"][0].to_string().as_bytes()),
            "it says `HS256`, but the key is for `ES256`",
        ),
        (
            "keys of the attacker's",
            {
                let card = theirs.current().sign(&self::card(), Some("https://evil.example.com/jwks.json"));
                json!(card.unwrap()).to_string()
            },
            "`https://evil.example.com/jwks.json`, which is not an allowed origin",
        ),
        (
            "no signatures",
            with(&|card| drop(card.as_object_mut().unwrap().remove("signatures"))),
            "no signature",
        ),
        ("an empty list", with(&|card| card["signatures"] = json!([])), "no signature"),
        ("something else", with(&|card| card["signatures"] = "x".into()), "no signature"),
        (
            "another address",
            with(&|card| card["supportedInterfaces"][0]["url"] = "https://evil.example.com/a2a".into()),
            "not a signature of this card",
        ),
        (
            "one more skill",
            with(&|card| card["skills"].as_array_mut().unwrap().push(json!({"id": "x", "name": "x"}))),
            "not a signature of this card",
        ),
        ("a member twice", good.to_string().replacen('{', r#"{"name":"Other","#, 1), "`name` is there twice"),
        (
            "a member twice below",
            good.to_string().replacen(
                r#""protocolBinding""#,
                r#""url":"https://evil.example.com","protocolBinding""#,
                1,
            ),
            "`url` is there twice",
        ),
        (
            "a member in both spellings",
            with(&|card| card["supported_interfaces"] = json!([{"url": "https://evil.example.com"}])),
            "not a card",
        ),
        (
            "a critical header",
            with(&|card| set_header(card, |header| header["crit"] = json!(["exp"]))),
            "its `crit` is not supported",
        ),
        (
            "a payload that is not encoded",
            with(&|card| set_header(card, |header| header["b64"] = false.into())),
            "its `b64` is not supported",
        ),
        (
            "no key",
            with(&|card| set_header(card, |header| drop(header.as_object_mut().unwrap().remove("kid")))),
            "it has no `kid`",
        ),
        (
            "a header that is not JSON",
            with(&|card| card["signatures"][0]["protected"] = "e30x".into()),
            "its protected header cannot be read",
        ),
        (
            "a header with a member twice",
            with(&|card| {
                let twice = r#"{"alg":"none","alg":"ES256","kid":"x"}"#;
                card["signatures"][0]["protected"] = URL_SAFE_NO_PAD.encode(twice).into();
            }),
            "the member `alg` is there twice",
        ),
        (
            "a key in the unprotected header",
            {
                let mut card = signed(&theirs);
                card["signatures"][0]["header"] = json!({"kid": ours.list()[0].kid, "jwk": theirs.current().public_keys().to_json()["keys"][0]});
                card.to_string()
            },
            "the key is not trusted",
        ),
        (
            "half a signature",
            with(&|card| {
                let half = card["signatures"][0]["signature"].as_str().unwrap()[..43].to_owned();
                card["signatures"][0]["signature"] = half.into();
            }),
            "not",
        ),
        (
            "very many signatures",
            with(&|card| card["signatures"] = json!(vec![card["signatures"][0].clone(); 17])),
            "more than 16 signatures",
        ),
        ("not JSON", "<html>".to_owned(), "it is not JSON"),
        ("a list", "[]".to_owned(), "it is not a JSON object"),
        (
            "a deep one",
            format!(r#"{{"x":{}{},"signatures":[1]}}"#, "[".repeat(50_000), "]".repeat(50_000)),
            "nests deeper than",
        ),
    ];
    let verifier = pinned(&ours).allow_origin("https://agents.example.com").unwrap();
    for (name, card, reason) in forged {
        let error = block_on(verifier.verify(card.as_bytes(), Instant::now(), |url| async move {
            // The allowed origin publishes our keys, and only these.
            assert_eq!(url.as_str(), JKU);
            Err::<Vec<u8>, _>("the key is not trusted")
        }));
        let error = error.expect_err(name).to_string();
        assert!(error.contains(reason), "{name}: {error}");
    }
    assert!(verify(&verifier, &good).is_ok());
}

#[test]
fn keys_come_from_allowed_origins_only_and_are_remembered() {
    let (ours, fetched) = (keys(Algorithm::Es256), RefCell::new(Vec::new()));
    let verifier = Verifier::new().allow_origin("https://agents.example.com").unwrap();
    let start = Instant::now();
    let ask = |card: &Value, seconds: u64| {
        let json = card.to_string();
        let fetch = |url: url::Url| {
            fetched.borrow_mut().push(url.to_string());
            let keys = ours.current().public_keys().to_json().to_string().into_bytes();
            async move { Ok::<_, String>(keys) }
        };
        block_on(verifier.verify(json.as_bytes(), start + Duration::from_secs(seconds), fetch))
    };
    let card = signed(&ours);
    assert!(ask(&card, 0).is_ok() && ask(&card, 299).is_ok());
    assert_eq!(*fetched.borrow(), [JKU]);
    assert!(ask(&card, 300).is_ok());
    assert_eq!(fetched.borrow().len(), 2);

    // An unknown key is checked_at up again, but not immediately.
    ours.rotate(None, NOW).unwrap();
    ours.retire(None).unwrap();
    let next = signed(&ours);
    assert!(ask(&next, 310).is_err());
    assert_eq!(fetched.borrow().len(), 2);
    assert!(ask(&next, 330).is_ok());
    assert_eq!(fetched.borrow().len(), 3);
    // The retired key is no longer accepted.
    assert!(ask(&card, 331).is_err());

    let unsaid = json!(ours.current().sign(&self::card(), None).unwrap());
    assert!(ask(&unsaid, 332).is_ok(), "where nothing is said, they are at the usual place");
    for jku in [
        "https://agents.example.com.evil.example/jwks.json",
        "https://agents.example.com@evil.example/jwks.json",
        "https://u:p@agents.example.com/jwks.json",
        "http://agents.example.com/jwks.json",
        "https://agents.example.com:8443/jwks.json",
        "file:///etc/keys.json",
        "jwks.json",
    ] {
        let elsewhere = json!(ours.current().sign(&self::card(), Some(jku)).unwrap());
        let error = ask(&elsewhere, 333).unwrap_err().to_string();
        assert!(error.contains("not an allowed origin"), "{jku}: {error}");
    }
    assert_eq!(fetched.borrow().len(), 3);
}

#[test]
fn a_card_has_up_to_16_signatures() {
    let keys = keys(Algorithm::EdDsa);
    let good = signed(&keys);
    let with = |count: usize| {
        let mut card = good.clone();
        card["signatures"] = json!(vec![card["signatures"][0].clone(); count]);
        verify(&pinned(&keys), &card)
    };
    assert!(with(16).is_ok());
    assert!(matches!(with(17), Err(UntrustedCard::TooMany)));
}

#[test]
fn four_keys_with_the_id_of_a_signature_are_tried_and_no_more() {
    let (ours, theirs) = (keys(Algorithm::EdDsa), keys(Algorithm::EdDsa));
    let card = signed(&ours);
    let kid = &ours.list()[0].kid;
    let mut other = theirs.current().public_keys().to_json()["keys"][0].clone();
    other["kid"] = json!(kid);
    let own = ours.current().public_keys().to_json()["keys"][0].clone();
    let verified = |others: usize| {
        let mut all = vec![other.clone(); others];
        all.push(own.clone());
        let set = KeySet::from_json(json!({"keys": all}).to_string().as_bytes()).unwrap();
        verify(&Verifier::new().pin(set), &card).map_err(|error| error.to_string())
    };
    assert!(verified(3).is_ok());
    assert!(verified(4).unwrap_err().contains("not a signature of this card"));
}

#[test]
fn a_published_set_of_keys_is_read_up_to_512_kib() {
    let keys = keys(Algorithm::EdDsa);
    let card = signed(&keys).to_string();
    let verified = |bytes: usize| {
        let verifier = Verifier::new().allow_origin("https://agents.example.com").unwrap();
        let mut set = keys.current().public_keys().to_json().to_string().into_bytes();
        set.resize(bytes, b' ');
        let fetch = |_| async { Ok::<_, String>(set.clone()) };
        block_on(verifier.verify(card.as_bytes(), Instant::now(), fetch)).map_err(|error| error.to_string())
    };
    assert!(verified(512 * 1024).is_ok());
    assert!(verified(512 * 1024 + 1).unwrap_err().contains("longer than 524288 bytes"));
}

#[test]
fn a_secret_that_an_origin_publishes_is_none() {
    let ours = keys(Algorithm::Hs256);
    let card = json!(ours.current().sign(&card(), None).unwrap());
    assert!(verify(&pinned(&ours), &card).is_ok());
    assert!(ours.current().public_keys().is_empty());
    let verifier = Verifier::new().allow_origin("https://agents.example.com").unwrap();
    let published =
        json!({"keys": [{"kty": "oct", "kid": ours.list()[0].kid, "k": URL_SAFE_NO_PAD.encode([7; 32])}]});
    let fetch = |_| async { Ok::<_, String>(published.to_string().into_bytes()) };
    assert!(block_on(verifier.verify(card.to_string().as_bytes(), Instant::now(), fetch)).is_err());
}

#[test]
fn an_origin_is_https_or_on_this_machine_and_nothing_but_an_origin() {
    for origin in [
        "https://a.example",
        "https://a.example:8443/",
        "http://127.0.0.1:3111",
        "http://localhost:1",
        "http://[::1]:80",
    ] {
        assert!(Verifier::new().allow_origin(origin).is_ok(), "{origin}");
    }
    for origin in [
        "http://a.example",
        "https://a.example/keys",
        "https://u@a.example",
        "a.example",
        "",
        "https://a.example?x",
    ] {
        let error = Verifier::new().allow_origin(origin).unwrap_err().to_string();
        assert!(error.contains("expected something like `https://agents.example.com`"), "{error}");
    }
}

#[test]
fn a_verifier_without_keys_trusts_no_card() {
    let error = verify(&Verifier::new(), &signed(&keys(Algorithm::Es256))).unwrap_err();
    assert!(error.to_string().contains("the key is not trusted"), "{error}");
}

#[test]
fn a_card_with_empty_values_has_a_signature_for_either_reading_of_the_rules() {
    let keys = keys(Algorithm::Es256);
    let card = keys.current().sign(&AgentCard::new("N", "D"), None).unwrap();
    assert_eq!(card.signatures.len(), 2);
    for kept in 0..2 {
        let mut one = card.clone();
        one.signatures = vec![card.signatures[kept].clone()];
        assert_eq!(verify(&pinned(&keys), &json!(one)).unwrap(), one);
        // Only the second signature covers the empty values.
        assert_eq!(verify(&pinned(&keys).exact(), &json!(one)).is_ok(), kept == 1);
    }
    assert_eq!(keys.current().sign(&self::card(), None).unwrap().signatures.len(), 1);
}

#[test]
fn parameters_with_two_meanings_are_not_signed() {
    let params = Json::parse(r#"{"a":1,"a":2}"#).unwrap().read().unwrap();
    let card = card().extension(AgentExtension { params: Some(params), ..AgentExtension::new("urn:x") });
    let error = keys(Algorithm::EdDsa).current().sign(&card, None).unwrap_err().to_string();
    assert_eq!(error, "the card cannot be signed: the member `a` is there twice");
}

#[test]
fn keys_that_are_pinned_survive_being_written_and_read() {
    for algorithm in [Algorithm::Es256, Algorithm::EdDsa, Algorithm::Rs256] {
        let keys = keys(algorithm);
        let set = keys.current().public_keys();
        let text = set.to_json().to_string();
        assert!(!text.contains("\"d\""));
        assert_eq!(KeySet::from_json(text.as_bytes()).unwrap(), set);
        let verifier = Verifier::new().pin(KeySet::from_published(text.as_bytes()).unwrap());
        assert!(verify(&verifier, &signed(&keys)).is_ok());
    }
}

#[test]
fn every_card_that_is_signed_and_served_is_trusted() {
    let keys = keys(Algorithm::EdDsa);
    arbitrary::check(arbitrary::agent_card(), |plain| {
        let card = keys.current().sign(&plain, Some(JKU)).unwrap();
        let served = json!(card);
        prop_assert_eq!(&verify(&pinned(&keys), &served).unwrap(), &card);
        prop_assert_eq!(&verify(&pinned(&keys).exact(), &served).unwrap(), &card);
        prop_assert_eq!(&verify(&pinned(&keys), &json!(dual_card(&card))).unwrap(), &card);
        let mut forged = served.clone();
        forged["name"] = format!("{}!", plain.name).into();
        prop_assert!(verify(&pinned(&keys), &forged).is_err());
        Ok(())
    });
}
