//! Tokens of an identity provider: who is let in with one, and what the others are told.

mod forged;
mod keys;

use std::time::{SystemTime, UNIX_EPOCH};

use attache_server::auth::{
    AnyOf, Authenticator, Denied, Head, JwtCallers, JwtIssuer, JwtSetupError, KeyPlace, KnownCallers, Verdict,
};
use attache_server::{Algorithm, KeySet};
use reqwest::Method;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};

use crate::auth::operations;
use crate::support::issuer::{Minter, Provider};
use crate::support::{Binding, Running, card, fetch, player, send, serve};

/// Whom tokens are for.
const US: &str = "https://agent.example.com";

fn seconds() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

/// Claims of a token that is good from a minute ago on, for five.
fn claims(issuer: &str, subject: &str, now: i64) -> Value {
    json!({"iss": issuer, "aud": US, "sub": subject, "iat": now - 60, "nbf": now - 60, "exp": now + 300})
}

/// Who sends a request with this token.
async fn admitted(callers: &impl Authenticator, token: &str) -> Result<String, Denied> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    let found = match callers.authenticate(Head { headers: &headers, query: None, peer: None }) {
        Verdict::Known(identity) => Ok(identity),
        Verdict::Denied(denied) => Err(denied),
        Verdict::Later(found) => crate::support::soon(found).await,
    };
    found.map(|identity| identity.principal.to_string())
}

struct Guarded {
    provider: Provider,
    minter: Minter,
    server: Running,
}

impl Guarded {
    /// A server that is for those whom a provider knows.
    async fn new() -> Self {
        let minter = Minter::new("ES256", "k1");
        let provider = Provider::with(&[&minter]).await;
        let callers = JwtCallers::new([JwtIssuer::new(&provider.url).audience(US)]).unwrap();
        let server = serve(player().extended_card(card().version("7.0.0")).authenticate(callers)).await;
        Self { provider, minter, server }
    }

    /// The value of the header for a subject.
    fn bearer(&self, subject: &str, change: Value) -> String {
        let mut claims = claims(&self.provider.url, subject, seconds());
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        format!("Bearer {}", self.minter.token(&claims))
    }
}

#[tokio::test]
async fn on_every_binding_every_operation_is_for_those_with_a_good_token_and_a_task_of_theirs() {
    let guarded = Guarded::new().await;
    let server = &guarded.server;
    let alice = guarded.bearer("alice", json!({}));
    let asking = server.ask("SendMessage", send("ask")).header("Authorization", &alice);
    let task = asking.ok(Binding::JsonRpc).await["task"]["id"].clone();

    let expired = guarded.bearer("alice", json!({"exp": 1_000_000_000}));
    let elsewhere = guarded.bearer("alice", json!({"aud": "https://other.example.com"}));
    let invalid =
        |what: &str| format!("Bearer realm=\"a2a\", error=\"invalid_token\", error_description=\"{what}\"");
    for (credential, challenge) in [
        (None, "Bearer realm=\"a2a\"".to_owned()),
        (Some("Basic b3BzOndyb25n"), "Bearer realm=\"a2a\"".to_owned()),
        (Some("Bearer wrong"), invalid("the token is not valid")),
        (Some(expired.as_str()), invalid("the token has expired")),
        (Some(elsewhere.as_str()), invalid("the token is not valid")),
    ] {
        for (operation, params) in operations(&task) {
            for binding in Binding::ALL {
                let ask = server.ask(operation, params.clone());
                let ask = credential.into_iter().fold(ask, |ask, value| ask.header("Authorization", value));
                let refusal = ask.refused(binding).await;
                if binding == Binding::Grpc {
                    assert_eq!(refusal.code, 16, "{credential:?} {operation}: {refusal:?}");
                } else {
                    let got = (refusal.code, refusal.message.as_str(), refusal.status.as_str());
                    let expected = (401, "Unauthorized", challenge.as_str());
                    assert_eq!(got, expected, "{credential:?} {operation} {binding:?}");
                }
            }
        }
    }

    let bob = guarded.bearer("bob", json!({}));
    for (operation, params) in operations(&task) {
        for binding in Binding::ALL {
            let ask = server.ask(operation, params.clone()).header("Authorization", &bob);
            let answer = ask.over(binding).await;
            match operation {
                "ListTasks" => assert_eq!(answer.unwrap()["totalSize"].as_i64().unwrap_or_default(), 0),
                "GetExtendedAgentCard" => assert_eq!(answer.unwrap()["version"], "7.0.0"),
                _ => {
                    let refusal = answer.result.expect_err(operation);
                    assert_eq!(refusal.reason, "TASK_NOT_FOUND", "{operation} {binding:?}: {refusal:?}");
                }
            }
        }
    }

    for binding in Binding::ALL {
        let ask = server.ask("GetTask", json!({"id": task})).header("Authorization", &alice);
        assert_eq!(ask.ok(binding).await["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{binding:?}");
    }
    assert_eq!(guarded.provider.fetches(), 1, "and the keys were fetched once for all of that");
}

#[tokio::test]
async fn tokens_of_every_algorithm_that_is_allowed_are_good() {
    let minters = ["RS256", "PS256", "ES256", "EdDSA"].map(|alg| Minter::new(alg, alg));
    let provider = Provider::with(&minters.each_ref()).await;
    let callers = JwtCallers::new([JwtIssuer::new(&provider.url).audience(US).name("idp")]).unwrap();
    let some = JwtIssuer::new(&provider.url).audience(US).algorithms([Algorithm::EdDsa]);
    let some = JwtCallers::new([some]).unwrap();
    for minter in &minters {
        let token = minter.token(&claims(&provider.url, "alice", seconds()));
        assert_eq!(admitted(&callers, &token).await, Ok("idp#alice".to_owned()), "{}", minter.kid);
        assert_eq!(admitted(&some, &token).await.is_ok(), minter.kid == "EdDSA", "{}", minter.kid);
    }
    let secret = b"a secret of no less than 32 bytes";
    let shared = JwtIssuer::new("us").audience(US).shared_secret(secret).unwrap().bare_names();
    let shared = JwtCallers::new([shared]).unwrap();
    let token = |secret: &[u8]| Minter::secret(secret, "any").token(&claims("us", "alice", seconds()));
    assert_eq!(admitted(&shared, &token(secret)).await, Ok("alice".to_owned()));
    let other = admitted(&shared, &token(b"another secret of at least 32 bytes")).await;
    assert!(matches!(other, Err(Denied::Wrong(_))), "{other:?}");
}

#[tokio::test]
async fn people_of_different_issuers_and_static_callers_are_different_people() {
    let (one, other) = (Minter::new("ES256", "k"), Minter::new("ES256", "k"));
    let pinned = |minter: &Minter| KeySet::from_json(minter.jwk().to_string().as_bytes()).unwrap();
    let issuers = [
        JwtIssuer::new("https://one.example.com").audience(US).keys(pinned(&one)),
        JwtIssuer::new("https://other.example.com").audience(US).keys(pinned(&other)),
    ];
    let known = KnownCallers::new().bearer("alice", "t0ken");
    let callers = AnyOf::new(known).or(JwtCallers::new(issuers).unwrap());
    let token = |minter: &Minter, issuer| minter.token(&claims(issuer, "alice", seconds()));
    let first = admitted(&callers, &token(&one, "https://one.example.com")).await;
    assert_eq!(first, Ok("https://one.example.com#alice".to_owned()));
    let second = admitted(&callers, &token(&other, "https://other.example.com")).await;
    assert_eq!(second, Ok("https://other.example.com#alice".to_owned()));
    assert_eq!(admitted(&callers, "t0ken").await, Ok("alice".to_owned()));
    let mixed = admitted(&callers, &token(&one, "https://other.example.com")).await;
    assert!(matches!(mixed, Err(Denied::Wrong(_))), "{mixed:?}");
}

#[tokio::test]
async fn who_lacks_a_scope_that_is_required_is_told_which() {
    let minter = Minter::new("ES256", "k1");
    let provider = Provider::with(&[&minter]).await;
    let issuer = JwtIssuer::new(&provider.url).audience(US).require_scope("a2a");
    let server = serve(player().authenticate(JwtCallers::new([issuer]).unwrap())).await;
    let bearer = |scope: &str| {
        let mut claims = claims(&provider.url, "alice", seconds());
        claims["scope"] = json!(scope);
        format!("Bearer {}", minter.token(&claims))
    };
    for binding in Binding::ALL {
        let ask = server.ask("ListTasks", json!({})).header("Authorization", &bearer("mail"));
        let refusal = ask.refused(binding).await;
        if binding == Binding::Grpc {
            assert_eq!(refusal.code, 7);
        } else {
            let challenge = "Bearer realm=\"a2a\", error=\"insufficient_scope\", scope=\"a2a\"";
            assert_eq!((refusal.code, refusal.status.as_str()), (403, challenge));
        }
        server.ask("ListTasks", json!({})).header("Authorization", &bearer("mail a2a")).ok(binding).await;
    }
}

#[tokio::test]
async fn the_card_says_where_tokens_come_from() {
    let security = async |callers: JwtCallers, more: KnownCallers| {
        let server = serve(player().authenticate(AnyOf::new(callers).or(more))).await;
        let card = fetch(server.http(Method::GET, "/.well-known/agent-card.json")).await.json();
        json!({"schemes": card["securitySchemes"], "requirements": card["securityRequirements"]})
    };
    let issuer = |url: &str| JwtIssuer::new(url).audience(US);
    let discovered = [
        issuer("https://one.example.com/").require_scope("a2a"),
        issuer("https://two.example.com"),
        issuer("three").jwks_url("https://three.example.com/keys"),
    ];
    let key = KnownCallers::new().api_key("ci", KeyPlace::Header("X-API-Key".to_owned()), "k3y");
    insta::assert_json_snapshot!(security(JwtCallers::new(discovered).unwrap(), key).await);
}

#[test]
fn what_would_let_in_the_wrong_people_is_refused_from_the_start() {
    let issuer = || JwtIssuer::new("https://login.example.com").audience(US);
    let keys = |alg| KeySet::from_json(Minter::new(alg, "k").jwk().to_string().as_bytes()).unwrap();
    let refusals: Vec<String> = [
        vec![],
        vec![JwtIssuer::new("https://login.example.com")],
        vec![JwtIssuer::new("http://login.example.com").audience(US)],
        vec![JwtIssuer::new("login").audience(US)],
        vec![issuer().jwks_url("file:///etc/passwd")],
        vec![issuer().jwks_url("https://user:password@login.example.com")],
        vec![issuer().algorithms([])],
        vec![issuer().algorithms([Algorithm::Rs256, Algorithm::Hs256])],
        vec![issuer().keys(keys("ES256")).algorithms([Algorithm::Es256, Algorithm::Hs256])],
        vec![issuer().keys(keys("ES256")).algorithms([Algorithm::EdDsa])],
        vec![issuer().name("")],
        vec![issuer().name("a#b")],
        vec![issuer(), issuer().name("other")],
        vec![issuer().name("a"), JwtIssuer::new("https://b.example.com").audience(US).name("a")],
        vec![issuer().bare_names(), JwtIssuer::new("https://b.example.com").audience(US).bare_names()],
    ]
    .into_iter()
    .map(|issuers| JwtCallers::new(issuers).map(|_| ()).unwrap_err())
    .map(|error: JwtSetupError| error.to_string())
    .collect();
    insta::assert_snapshot!(refusals.join("\n"));
    assert!(issuer().shared_secret(b"short").is_err());
}
