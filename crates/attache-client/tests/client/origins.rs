//! Credentials are sent only to the origin that they were given for, regardless of what a card says.

use std::sync::Arc;

use attache_client::{
    AddressBook, AddressEntry, Client, ClientError, ClientOptions, Credentials, MemoryTokens, OAuth,
    SchemeCredentials, TokenKey, TokenStore, Tokens, TrustedOrigins,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::support::{Fake, Reaction, ReceivedRequest, json as respond, quick, rpc_result, soon};

const BINDINGS: [&str; 3] = ["JSONRPC", "HTTP+JSON", "GRPC"];

/// A card with interfaces at these URLs. It asks for a bearer token.
fn card(interfaces: &[(String, &str)]) -> Value {
    let interface = |(url, binding): &(String, &str)| json!({"url": url, "protocolBinding": binding, "protocolVersion": "1.0"});
    json!({
        "name": "Two", "capabilities": {"streaming": true, "extendedAgentCard": true},
        "supportedInterfaces": interfaces.iter().map(interface).collect::<Vec<_>>(),
        "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        "securityRequirements": [{"schemes": {"bearer": {}}}],
    })
}

fn answer(asked: &ReceivedRequest) -> Reaction {
    rpc_result(asked, &json!({"id": "t", "task": {"id": "t"}}))
}

/// A server that responds to calls, and one whose card names it.
async fn two(binding: &'static str) -> (Fake, Fake) {
    let other = Fake::server(answer).await;
    let card = card(&[(format!("{}/rpc", other.url), binding)]);
    (Fake::server(move |_| respond(200, &card)).await, other)
}

fn with_token() -> ClientOptions {
    quick().with_credentials(SchemeCredentials::new().token("s3cret"))
}

fn trusting(origin: &str) -> ClientOptions {
    with_token().trusted_origins(TrustedOrigins::new().trust(origin).unwrap())
}

fn withheld(error: &ClientError, home: &str, other: &str) {
    let ClientError::Withheld { given_for, leads_to, can_be_trusted } = error else { panic!("{error:?}") };
    assert_eq!((given_for.as_str(), leads_to.as_str(), *can_be_trusted), (home, other, true));
}

#[tokio::test]
async fn a_card_that_names_another_port_gets_no_credentials_over_any_binding() {
    for binding in BINDINGS {
        let (home, other) = two(binding).await;
        let agent = soon(Client::connect_with(&home.url, with_token())).await.unwrap();
        for error in [
            soon(agent.send("hi")).await.err(),
            soon(agent.stream("hi")).await.err(),
            soon(agent.get("t")).await.err(),
            soon(agent.cancel("t")).await.err(),
            soon(agent.extended_card()).await.err(),
        ] {
            withheld(&error.unwrap(), &home.url, &other.url);
        }
        assert!(other.calls().is_empty(), "{binding}: nothing was sent");
    }
}

#[tokio::test]
async fn an_origin_that_is_trusted_gets_them() {
    let (home, other) = two("JSONRPC").await;
    let agent = Client::connect_with(&home.url, trusting(&other.url)).await.unwrap();
    agent.send("hi").await.unwrap();
    assert_eq!(other.calls()[0].header("authorization"), Some("Bearer s3cret"));
    // Trust applies to one origin.
    let (home, third) = two("JSONRPC").await;
    let error =
        Client::connect_with(&home.url, trusting(&other.url)).await.unwrap().send("hi").await.unwrap_err();
    withheld(&error, &home.url, &third.url);
}

#[tokio::test]
async fn without_credentials_another_origin_is_followed() {
    let (home, other) = two("JSONRPC").await;
    Client::connect_with(&home.url, quick()).await.unwrap().send("hi").await.unwrap();
    assert_eq!(other.calls()[0].header("authorization"), None);
}

#[tokio::test]
async fn a_card_that_asks_for_none_gets_none_and_is_followed() {
    let other = Fake::server(answer).await;
    let mut card = card(&[(format!("{}/rpc", other.url), "JSONRPC")]);
    card["securityRequirements"] = json!([]);
    let home = Fake::server(move |_| respond(200, &card)).await;
    Client::connect_with(&home.url, with_token()).await.unwrap().send("hi").await.unwrap();
    assert_eq!(other.calls()[0].header("authorization"), None);
}

#[tokio::test]
async fn an_interface_at_the_same_origin_is_preferred_to_one_without_credentials() {
    let other = Fake::server(answer).await;
    let elsewhere = format!("{}/rpc", other.url);
    let home = Fake::server(move |asked| match asked.is_for_card() {
        true => {
            let here = format!("http://{}/rpc", asked.header("host").unwrap());
            respond(200, &card(&[(elsewhere.clone(), "JSONRPC"), (here, "JSONRPC")]))
        }
        false => answer(asked),
    })
    .await;
    Client::connect_with(&home.url, with_token()).await.unwrap().send("hi").await.unwrap();
    assert_eq!(home.calls()[0].header("authorization"), Some("Bearer s3cret"));
    assert!(other.calls().is_empty());
}

#[tokio::test]
async fn a_redirect_of_the_card_takes_no_credentials_along() {
    let other = Fake::server(|asked| match asked.is_for_card() {
        true => respond(200, &card(&[(format!("http://{}/rpc", asked.header("host").unwrap()), "JSONRPC")])),
        false => answer(asked),
    })
    .await;
    let elsewhere = format!("{}/agent.json", other.url);
    let home = Fake::server(move |_| {
        Reaction::Bytes(
            format!("HTTP/1.1 302 X\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n").into_bytes(),
        )
    })
    .await;
    let agent = Client::connect_with(&home.url, with_token()).await.unwrap();
    withheld(&agent.send("hi").await.unwrap_err(), &home.url, &other.url);
    assert!(other.calls().is_empty());
    let agent = Client::connect_with(&home.url, trusting(&other.url)).await.unwrap();
    agent.send("hi").await.unwrap();
    assert_eq!(other.calls()[0].header("authorization"), Some("Bearer s3cret"));
    assert!(
        other
            .card_requests()
            .iter()
            .chain(&home.card_requests())
            .all(|visit| visit.header("authorization").is_none())
    );
}

#[tokio::test]
async fn a_refreshed_card_that_leads_elsewhere_gets_no_credentials() {
    let other = Fake::server(answer).await;
    let elsewhere = format!("{}/rpc", other.url);
    let moved = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let has_moved = moved.clone();
    let home = Fake::server(move |asked| match asked.is_for_card() {
        true if has_moved.load(std::sync::atomic::Ordering::Relaxed) => {
            respond(200, &card(&[(elsewhere.clone(), "JSONRPC")]))
        }
        true => respond(200, &card(&[(format!("http://{}/rpc", asked.header("host").unwrap()), "JSONRPC")])),
        false => answer(asked),
    })
    .await;
    let agent = Client::connect_with(&home.url, with_token()).await.unwrap();
    agent.send("hi").await.unwrap();
    moved.store(true, std::sync::atomic::Ordering::Relaxed);
    agent.refresh_card().await.unwrap();
    withheld(&agent.send("hi").await.unwrap_err(), &home.url, &other.url);
}

#[tokio::test]
async fn the_names_of_this_machine_are_one_origin_on_one_port() {
    let home = Fake::server(|asked| match asked.is_for_card() {
        true => {
            let port = asked.header("host").unwrap().rsplit(':').next().unwrap().to_owned();
            respond(200, &card(&[(format!("http://127.0.0.1:{port}/rpc"), "JSONRPC")]))
        }
        false => answer(asked),
    })
    .await;
    let named = home.url.replace("127.0.0.1", "localhost");
    Client::connect_with(&named, with_token()).await.unwrap().send("hi").await.unwrap();
    assert_eq!(home.calls()[0].header("authorization"), Some("Bearer s3cret"));
}

#[tokio::test]
async fn a_token_of_a_login_stays_with_the_agent_that_it_was_got_for() {
    let other = Fake::server(answer).await;
    let mut card = card(&[(format!("{}/rpc", other.url), "JSONRPC")]);
    card["securitySchemes"]["bearer"] = json!({"oauth2SecurityScheme": {"flows": {"clientCredentials":
        {"tokenUrl": "https://auth.example.com/token", "scopes": {}}}}});
    let home = Fake::server(move |_| respond(200, &card)).await;
    let store = MemoryTokens::new();
    let key = TokenKey {
        server: "https://auth.example.com/token".into(),
        client: "program".into(),
        scopes: Vec::new(),
        resource: None,
        agent: home.url.clone(),
        account: None,
    };
    let tokens = Tokens { access: "s3cret".into(), refresh: None, renew: None };
    store.lock(&key).await.unwrap().write(Some(&tokens)).unwrap();
    let options = || quick().with_credentials(OAuth::new("program").store(store.clone()));
    let agent = Client::connect_with(&home.url, options()).await.unwrap();
    withheld(&agent.send("hi").await.unwrap_err(), &home.url, &other.url);
    assert!(other.calls().is_empty());
    let trusted_origins = TrustedOrigins::new().trust(&other.url).unwrap();
    let options = options().trusted_origins(trusted_origins);
    let sent = Client::connect_with(&home.url, options).await.unwrap().send("hi").await;
    assert_eq!(other.calls()[0].header("authorization"), Some("Bearer s3cret"), "{sent:?}");
}

#[tokio::test]
async fn what_an_address_book_has_for_another_origin_goes_there() {
    let (home, other) = two("JSONRPC").await;
    let entry = AddressEntry::bearer(other.url.parse().unwrap(), &"for-other".into()).unwrap();
    let book = AddressBook::new([entry]).unwrap();
    // The credentials of the agent's own address are not sent there.
    let options = quick().with_credentials((SchemeCredentials::new().token("s3cret"), book));
    Client::connect_with(&home.url, options).await.unwrap().send("hi").await.unwrap();
    assert_eq!(other.calls()[0].header("authorization"), Some("Bearer for-other"));
}

#[tokio::test]
async fn credentials_of_a_program_s_own_making_are_not_asked_for_another_origin() {
    struct Careless;
    impl Credentials for Careless {
        fn credential<'a>(
            &'a self,
            asked: attache_client::CredentialRequest<'a>,
        ) -> BoxFuture<'a, Result<Option<attache_client::Credential>, ClientError>> {
            panic!("asked for {}", asked.url)
        }
    }
    let (home, other) = two("JSONRPC").await;
    let agent = Client::connect_with(&home.url, quick().with_credentials(Careless)).await.unwrap();
    withheld(&agent.send("hi").await.unwrap_err(), &home.url, &other.url);
}
