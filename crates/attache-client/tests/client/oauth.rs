//! Which requests are sent to which authorization servers. The end-to-end tests of the command cover whole logins.

use std::sync::{Arc, Mutex};

use attache_client::{
    AddressBook, AddressEntry, Client, ClientError, Flow, LoginError, LoginMethod, MemoryTokens, OAuth,
    Revocation, SchemeCredentials, TokenKey, TokenStore, Tokens,
};
use attache_protocol::{
    AgentCard, ClientCredentialsOAuthFlow, OAuth2SecurityScheme, OAuthFlows, SecurityRequirement,
    SecurityScheme, StringList, Timestamp,
};
use attache_server::Server;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::any;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{quick, serve, soon};

/// A scripted authorization server that records its requests.
struct Authority {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Authority {
    async fn start(answer: impl Fn(&str, &str, usize) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer, own) = (asked.clone(), Arc::new(answer), url.clone());
        let handler = move |request: Request| {
            let (seen, answer, own) = (seen.clone(), answer.clone(), own.clone());
            async move {
                let path = request.uri().path().to_owned();
                let client = request.headers().get("authorization").is_some();
                let body = axum::body::to_bytes(request.into_body(), 10_000).await.unwrap();
                let client = if client { " (with a header)" } else { "" };
                let mut seen = seen.lock().unwrap();
                seen.push(format!("{path}{client} {}", String::from_utf8_lossy(&body)).trim().to_owned());
                let (status, body) = answer(&own, &path, seen.len());
                (StatusCode::from_u16(status).unwrap(), body.to_string())
            }
        };
        let app = Router::new().fallback(any(handler));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// A card that asks for a token with the scopes `b` and `a`.
fn card(token_url: String, oauth2_metadata_url: Option<String>) -> AgentCard {
    let mut card = AgentCard::new("Safe", "Lets in who has a token");
    let flow = ClientCredentialsOAuthFlow { token_url, ..ClientCredentialsOAuthFlow::default() };
    let flows = OAuthFlows::ClientCredentials(flow);
    let scheme =
        SecurityScheme::OAuth2(OAuth2SecurityScheme { description: None, flows, oauth2_metadata_url });
    card.security_schemes.insert("staff".to_owned(), scheme);
    let scopes = StringList { list: vec!["b".to_owned(), "a".to_owned()] };
    card.security_requirements.push(SecurityRequirement { schemes: [("staff".to_owned(), scopes)].into() });
    card
}

async fn connect(card: AgentCard, oauth: OAuth) -> Client {
    let url = format!("http://{}", serve(Server::echo().card(card)).await);
    soon(Client::connect_with(&url, quick().with_credentials((SchemeCredentials::new(), oauth))))
        .await
        .unwrap()
}

fn granted(token: &str, expires_in: u64) -> (u16, Value) {
    (200, json!({"access_token": token, "token_type": "Bearer", "expires_in": expires_in}))
}

#[tokio::test]
async fn tokens_are_requested_as_the_card_says_and_only_once() {
    let authority = Authority::start(|_, _, _| granted("t", 3600)).await;
    let token_url = format!("{}/token", authority.url);
    let oauth = OAuth::new("me").secret("s3cret").server(&authority.url).unwrap();
    assert!(!format!("{oauth:?}").contains("s3cret"));
    for oauth in [
        oauth.clone().scopes(["c", "a"]).resource("https://api.example"),
        oauth.secret_in_body().account("other"),
    ] {
        let agent = connect(card(token_url.clone(), None), oauth).await;
        let (a, b) = tokio::join!(agent.send("hi"), agent.send("hi"));
        assert!(a.is_ok() && b.is_ok());
    }
    assert_eq!(
        authority.asked(),
        [
            "/token (with a header) grant_type=client_credentials&scope=a+b+c&resource=https%3A%2F%2Fapi.example",
            "/token grant_type=client_credentials&scope=a+b&client_id=me&client_secret=s3cret",
        ]
    );
}

#[tokio::test]
async fn a_program_of_an_address_book_gets_tokens_for_its_own_address_only() {
    let authority = Authority::start(|_, _, _| granted("t", 3600)).await;
    let token_url = format!("{}/token", authority.url);
    let url = format!("http://{}", serve(Server::echo().card(card(token_url.clone(), None))).await);
    let other = format!("http://{}", serve(Server::echo().card(card(token_url, None))).await);
    let program = OAuth::new("me").secret("s3cret").server(&authority.url).unwrap().program();
    let book = AddressBook::new([AddressEntry::oauth(url.parse().unwrap(), program)]).unwrap();
    for (agent, asked) in [(&other, 0), (&url, 1), (&url, 1)] {
        let agent = Client::connect_with(agent, quick().with_credentials(book.clone())).await.unwrap();
        soon(agent.send("hi")).await.unwrap();
        assert_eq!(authority.asked().len(), asked);
    }
}

#[tokio::test]
async fn a_token_that_is_about_to_expire_is_renewed_once_for_all_requests() {
    let authority = Authority::start(|_, _, count| {
        let (status, mut granted) = granted(&format!("t-{count}"), 3600);
        granted["refresh_token"] = json!(format!("r-{count}"));
        (status, granted)
    });
    let authority = authority.await;
    let (store, token_url) = (MemoryTokens::new(), format!("{}/token", authority.url));
    let oauth = OAuth::new("laptop").server(&authority.url).unwrap().store(store.clone());
    let agent = connect(card(token_url.clone(), None), oauth).await;
    let key = TokenKey {
        server: token_url,
        client: "laptop".to_owned(),
        scopes: vec!["a".to_owned(), "b".to_owned()],
        resource: None,
        agent: agent.card_origin(),
        account: None,
    };
    let stale = Some(Timestamp::UNIX_EPOCH);
    let before = Tokens { access: "t-0".into(), refresh: Some("r-0".into()), renew: stale };
    store.lock(&key).await.unwrap().write(Some(&before)).unwrap();
    let sent = futures::future::join_all((0..5).map(|_| agent.send("hi"))).await;
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    assert_eq!(authority.asked(), ["/token grant_type=refresh_token&refresh_token=r-0&client_id=laptop"]);
    let after = store.read(&key).unwrap().unwrap();
    assert_eq!((after.access.reveal(), after.refresh.unwrap().reveal()), ("t-1", "r-1"));
}

#[tokio::test]
async fn a_server_whose_metadata_names_another_issuer_is_not_used() {
    let authority = Authority::start(|_, _, _| {
        (
            200,
            json!({"issuer": "https://auth.example.com", "token_endpoint": "https://auth.example.com/token"}),
        )
    });
    let authority = authority.await;
    let described = format!("{}/.well-known/oauth-authorization-server", authority.url);
    let oauth = OAuth::new("me").secret("s3cret").server(&authority.url).unwrap();
    let agent = connect(card(String::new(), Some(described)), oauth).await;
    let error = soon(agent.send("hi")).await.unwrap_err();
    assert!(
        error.to_string().ends_with("describes `https://auth.example.com`, which is another server"),
        "{error}"
    );
    assert_eq!(authority.asked(), ["/.well-known/oauth-authorization-server"]);
}

#[tokio::test]
async fn metadata_states_the_token_endpoint_and_how_secrets_are_sent() {
    let authority = Authority::start(|own, path, _| match path {
        "/.well-known/oauth-authorization-server" => {
            let methods = ["client_secret_post"];
            let token = format!("{own}/elsewhere");
            (
                200,
                json!({"issuer": own, "token_endpoint": token, "token_endpoint_auth_methods_supported": methods}),
            )
        }
        "/elsewhere" => granted("t", 3600),
        _ => (404, json!({})),
    });
    let authority = authority.await;
    let described = format!("{}/.well-known/oauth-authorization-server", authority.url);
    let oauth = OAuth::new("me").secret("s3cret").server(&authority.url).unwrap();
    let agent = connect(card("https://ignored.example/token".to_owned(), Some(described)), oauth).await;
    soon(agent.send("hi")).await.unwrap();
    assert_eq!(
        authority.asked(),
        [
            "/.well-known/oauth-authorization-server",
            "/elsewhere grant_type=client_credentials&scope=a+b&client_id=me&client_secret=s3cret",
        ]
    );
}

#[tokio::test]
async fn secrets_are_sent_neither_without_tls_nor_to_a_server_that_was_not_agreed_to() {
    let error = OAuth::new("me").server("http://auth.example.com").unwrap_err();
    assert!(matches!(error, ClientError::Login { why: LoginError::Insecure(_), .. }), "{error}");
    assert!(matches!(OAuth::new("me").server("auth.example.com"), Err(ClientError::Invalid(_))));

    let authority = Authority::start(|_, _, _| granted("t", 3600)).await;
    let oauth = OAuth::new("me").secret("s3cret").server("https://auth.example.com").unwrap();
    let agent = connect(card(format!("{}/token", authority.url), None), oauth.clone()).await;
    let error = soon(agent.send("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::Credentials { .. }), "{error}");
    let offer = &LoginMethod::from_card(&agent.card())[0];
    assert_eq!((offer.servers(), offer.flow()), (vec![authority.url.clone()], Some(Flow::ClientCredentials)));
    let error = soon(oauth.login(&agent, offer, Flow::ClientCredentials, &|_| ())).await.unwrap_err();
    assert!(matches!(error, ClientError::Login { why: LoginError::NotAgreed, .. }), "{error}");
    assert_eq!(authority.asked(), [""; 0]);
}

#[tokio::test]
async fn an_answer_that_is_not_one_of_oauth_is_not_used() {
    for (status, body, said) in [
        (200, json!({"access_token": "t", "token_type": "DPoP"}), "expected `Bearer`"),
        (200, json!({"access_token": "", "token_type": "Bearer"}), "its `access_token` is empty"),
        (200, json!(["t"]), "a member is missing or invalid"),
        (302, json!({}), "HTTP status 302 without a reason"),
        (400, json!({"error": "invalid_scope", "error_description": "no `b`"}), "`invalid_scope`: no `b`"),
    ] {
        let authority = Authority::start(move |_, _, _| (status, body.clone())).await;
        let oauth = OAuth::new("me").secret("s3cret").server(&authority.url).unwrap();
        let agent = connect(card(format!("{}/token", authority.url), None), oauth).await;
        let error = soon(agent.send("hi")).await.unwrap_err();
        assert!(matches!(error, ClientError::Login { .. }) && error.to_string().contains(said), "{error}");
        assert!(!error.to_string().contains("s3cret"));
    }
}

/// The metadata of a server with the token endpoint `/token`.
fn description(own: &str, revoke: Option<&str>) -> Value {
    let revoke = revoke.map(|path| format!("{own}{path}"));
    json!({"issuer": own, "token_endpoint": format!("{own}/token"), "revocation_endpoint": revoke})
}

fn key(server: String) -> TokenKey {
    let (client, agent) = ("me".to_owned(), "https://agent.example".to_owned());
    TokenKey { server, client, scopes: Vec::new(), resource: None, agent, account: None }
}

fn kept() -> Tokens {
    Tokens { access: "t-1".into(), refresh: Some("r-1".into()), renew: None }
}

#[tokio::test]
async fn tokens_are_revoked_where_the_metadata_says_and_the_refresh_token_first() {
    let authority = Authority::start(|own, path, _| match path {
        "/.well-known/openid-configuration" => (200, description(own, Some("/revoke"))),
        // The response may be empty.
        "/revoke" => (200, json!("")),
        _ => (404, json!({})),
    });
    let authority = authority.await;
    let oauth = OAuth::new("me").secret("s3cret").server(&authority.url).unwrap();
    for (server, oauth, tokens) in [
        ("/.well-known/openid-configuration", oauth.clone(), kept()),
        ("/token", oauth.secret_in_body(), Tokens { refresh: None, ..kept() }),
    ] {
        let key = key(format!("{}{server}", authority.url));
        assert_eq!(oauth.revoke(&key, &tokens, quick()).await.unwrap(), Revocation::Revoked);
    }
    assert_eq!(
        authority.asked(),
        [
            "/.well-known/openid-configuration",
            "/revoke (with a header) token=r-1&token_type_hint=refresh_token",
            "/revoke (with a header) token=t-1&token_type_hint=access_token",
            "/.well-known/oauth-authorization-server",
            "/.well-known/openid-configuration",
            "/revoke token=t-1&token_type_hint=access_token&client_id=me&client_secret=s3cret",
        ]
    );
}

#[tokio::test]
async fn a_server_without_revocation_differs_from_one_that_revokes_some_tokens() {
    for (revoke, answers, expected) in [
        (None, [(200, ""), (200, "")], Ok(Revocation::NotOffered)),
        (Some("/revoke"), [(200, ""), (400, "unsupported_token_type")], Ok(Revocation::AccessRemains)),
        (
            Some("/revoke"),
            [(400, "unsupported_token_type"), (400, "unsupported_token_type")],
            Ok(Revocation::NotOffered),
        ),
        (Some("/revoke"), [(401, "invalid_client"), (200, "")], Err("it refused with `invalid_client`")),
        (Some("/revoke"), [(503, ""), (200, "")], Err("HTTP status 503 without a reason")),
    ] {
        let authority = Authority::start(move |own, path, count| match (path, count) {
            ("/revoke", count) => {
                let (status, error) = answers[count - 2];
                (status, if error.is_empty() { json!("") } else { json!({"error": error}) })
            }
            _ => (200, description(own, revoke)),
        });
        let authority = authority.await;
        let oauth = OAuth::new("me").server(&authority.url).unwrap();
        let key = key(format!("{}/.well-known/oauth-authorization-server", authority.url));
        let came = oauth.revoke(&key, &kept(), quick()).await;
        match (came, expected) {
            (Ok(came), Ok(expected)) => assert_eq!(came, expected),
            (Err(error), Err(said)) => {
                let text = error.to_string();
                assert!(
                    text.starts_with(&format!("`{}` has not revoked the tokens: ", authority.url)),
                    "{text}"
                );
                assert!(text.contains(said) && !text.contains("r-1") && !text.contains("t-1"), "{text}");
            }
            (came, expected) => panic!("{came:?} instead of {expected:?}"),
        }
    }
}

#[tokio::test]
async fn tokens_are_revoked_only_at_the_server_that_issued_them() {
    // This server only names a token endpoint of another server.
    let other = Authority::start(|own, _, _| {
        let mut description = description(own, Some("/revoke"));
        description["token_endpoint"] = json!("https://auth.example/token");
        (200, description)
    });
    let other = other.await;
    let oauth = OAuth::new("me").server(&other.url).unwrap();
    let came = oauth.revoke(&key(format!("{}/token", other.url)), &kept(), quick()).await;
    assert_eq!(came.unwrap(), Revocation::NotOffered);
    assert!(!other.asked().iter().any(|asked| asked.contains("token=")), "{:?}", other.asked());
    let before = other.asked().len();
    let stranger = OAuth::new("me").server("https://auth.example").unwrap();
    let error = stranger.revoke(&key(format!("{}/token", other.url)), &kept(), quick()).await.unwrap_err();
    assert!(matches!(error, ClientError::Revocation { why: LoginError::NotAgreed, .. }), "{error}");
    assert_eq!(other.asked().len(), before);
}

#[tokio::test]
async fn a_logout_removes_the_tokens_even_if_the_server_is_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (store, key) = (MemoryTokens::new(), key(format!("{url}/token")));
    store.lock(&key).await.unwrap().write(Some(&kept())).unwrap();
    let oauth = OAuth::new("me").server(&url).unwrap().store(store.clone());
    let error = oauth.logout(&key, quick()).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
    assert_eq!(store.read(&key).unwrap(), None);
}
