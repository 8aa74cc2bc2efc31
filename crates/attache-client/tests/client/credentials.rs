//! Which credentials are sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_client::{
    Binding, Client, ClientError, Credential, CredentialRequest, Credentials, SchemeCredentials,
};
use attache_core::Principal;
use attache_protocol::{AgentCard, ErrorKind};
use attache_server::Server;
use attache_server::auth::KnownCallers;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{
    Fake, Player, Reaction, WIRES, card_with, json as respond, over_with, quick, rest, rpc_result, serve,
    soon, sse,
};

/// A server whose card has these requirements.
async fn asking_for(requirements: Value) -> Fake {
    let members = json!({
        "securitySchemes": {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "basic": {"httpAuthSecurityScheme": {"scheme": "basic"}},
            "header": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
            "query": {"apiKeySecurityScheme": {"location": "query", "name": "key"}},
            "cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "session"}},
        },
        "securityRequirements": requirements,
    });
    Fake::server(move |asked| match (asked.is_for_card(), asked.method()) {
        (true, _) => card_with(asked, "JSONRPC", &members),
        (false, "SendStreamingMessage") => {
            Reaction::Bytes(sse(asked, &[json!({"message": {"messageId": "m"}})]))
        }
        (false, _) => rpc_result(asked, &json!({"id": "t", "task": {"id": "t"}})),
    })
    .await
}

fn keys() -> SchemeCredentials {
    SchemeCredentials::new().token("t-1").basic("ann", "pw").api_key("k&1")
}

#[tokio::test]
async fn credentials_are_sent_with_every_request_but_the_one_for_the_card() {
    for (scheme, header, value, path) in [
        ("bearer", "authorization", Some("Bearer t-1"), "/rpc"),
        ("basic", "authorization", Some("Basic YW5uOnB3"), "/rpc"),
        ("header", "x-key", Some("k&1"), "/rpc"),
        ("query", "authorization", None, "/rpc?key=k%261"),
        ("cookie", "cookie", Some("session=k&1"), "/rpc"),
    ] {
        let fake = asking_for(json!([{"schemes": {scheme: {}}}])).await;
        let agent = Client::connect_with(&fake.url, quick().with_credentials(keys())).await.unwrap();
        agent.send("hi").await.unwrap();
        agent.get("t").await.unwrap();
        soon(agent.stream("hi").await.unwrap().next()).await.unwrap().unwrap();
        let calls = fake.calls();
        assert_eq!(calls.len(), 3);
        for call in &calls {
            assert_eq!((call.header(header), call.path()), (value, path), "{scheme}");
        }
        assert!(fake.card_requests().iter().all(|visit| visit.header(header).is_none()), "{scheme}");
    }
}

#[tokio::test]
async fn credentials_that_the_card_does_not_ask_for_are_not_sent() {
    let fake = asking_for(json!([])).await;
    let agent = Client::connect_with(&fake.url, quick().with_credentials(keys())).await.unwrap();
    agent.send("hi").await.unwrap();
    let call = &fake.calls()[0];
    assert_eq!(
        (call.header("authorization"), call.header("x-key"), call.header("cookie")),
        (None, None, None)
    );
}

#[tokio::test]
async fn a_request_that_would_be_refused_is_not_made() {
    let fake = asking_for(json!([{"schemes": {"basic": {}}}])).await;
    let options = quick().with_credentials(SchemeCredentials::new().token("t-1"));
    let agent = Client::connect_with(&fake.url, options).await.unwrap();
    let error = agent.send("hi").await.unwrap_err();
    assert!(matches!(&error, ClientError::Credentials { wanted, .. } if wanted == &["`basic`"]), "{error}");
    assert!(fake.calls().is_empty());
    // A client without credentials may still try.
    Client::connect_with(&fake.url, quick()).await.unwrap().send("hi").await.unwrap();
}

#[tokio::test]
async fn a_caller_without_valid_credentials_gets_an_error() {
    for (status, kind) in [(401, ErrorKind::Unauthenticated), (403, ErrorKind::PermissionDenied)] {
        let fake = Fake::agent(move |_| respond(status, &json!({"detail": "no"}))).await;
        let agent = Client::connect_with(&fake.url, quick()).await.unwrap();
        assert_eq!(agent.send("hi").await.unwrap_err().kind(), Some(kind));
    }
}

/// A new token for each request.
struct Renewing(Arc<AtomicUsize>);

impl Credentials for Renewing {
    fn credential<'a>(
        &'a self,
        asked: CredentialRequest<'a>,
    ) -> BoxFuture<'a, Result<Option<Credential>, ClientError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if asked.scopes != ["read"] {
                return Err(ClientError::Invalid(format!("no token for `{}`", asked.name)));
            }
            let number = self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Some(Credential::Token(format!("t-{number}").into())))
        })
    }
}

#[tokio::test]
async fn credentials_may_change_with_every_request() {
    let fake = asking_for(json!([{"schemes": {"bearer": {"list": ["read"]}}}])).await;
    let options = quick().with_credentials(Renewing(Arc::default()));
    let agent = Client::connect_with(&fake.url, options.clone()).await.unwrap();
    agent.send("hi").await.unwrap();
    agent.send("hi").await.unwrap();
    let sent: Vec<_> =
        fake.calls().iter().map(|call| call.header("authorization").unwrap().to_owned()).collect();
    assert_eq!(sent, ["Bearer t-0", "Bearer t-1"]);
    let fake = asking_for(json!([{"schemes": {"bearer": {"list": ["write"]}}}])).await;
    let error = Client::connect_with(&fake.url, options).await.unwrap().send("hi").await.unwrap_err();
    assert_eq!(error.to_string(), "no token for `bearer`");
}

#[tokio::test]
async fn secrets_are_in_no_error() {
    let fake = asking_for(json!([{"schemes": {"query": {}}}])).await;
    let agent = Client::connect_with(&fake.url, quick().with_credentials(keys())).await.unwrap();
    drop(fake);
    let fake = Fake::server(|asked| {
        let schemes = json!({"securitySchemes": {"query": {"apiKeySecurityScheme": {"location": "query", "name": "key"}}},
            "securityRequirements": [{"schemes": {"query": {}}}]});
        if asked.is_for_card() { card_with(asked, "JSONRPC", &schemes) } else { respond(500, &json!({})) }
    })
    .await;
    let refused = Client::connect_with(&fake.url, quick().with_credentials(keys())).await.unwrap();
    let error = refused.send("hi").await.unwrap_err();
    for shown in [
        format!("{error} {error:?}"),
        format!("{agent:?}"),
        format!("{:?}", quick().with_credentials(keys())),
    ] {
        assert!(!shown.contains("k&1") && !shown.contains("k%261") && !shown.contains("t-1"), "{shown}");
    }
}

/// Accepts callers with the token, and every request for the card.
async fn guard(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    match token {
        Some("Bearer t-1") => drop(request.extensions_mut().insert(Principal::named("ann"))),
        _ if request.uri().path().ends_with(".json") => {}
        _ => return (axum::http::StatusCode::UNAUTHORIZED, "who are you?").into_response(),
    }
    next.run(request).await
}

#[tokio::test]
async fn a_protected_agent_accepts_its_token_over_every_interface() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let guarded = |name: &str| {
        let mut card = AgentCard::new(name, "Does what it is told");
        let schemes = json!({"token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}});
        card.security_schemes = serde_json::from_value(schemes).unwrap();
        card.security_requirements = serde_json::from_value(json!([{"schemes": {"token": {}}}])).unwrap();
        card
    };
    let server = Server::new(Player).card(guarded("Player")).extended_card(guarded("Player for friends"));
    let app = server.into_router(&format!("http://{address}")).unwrap().layer(middleware::from_fn(guard));
    tokio::spawn(async move { axum::serve(listener, app).await });
    for wire in WIRES {
        let url = format!("http://{address}");
        let stranger = over_with(quick().prefer(wire), address, &url).await;
        for error in [stranger.send("hi").await.unwrap_err(), stranger.stream("hi").await.unwrap_err()] {
            assert_eq!(error.kind(), Some(ErrorKind::Unauthenticated), "{wire}: {error}");
        }
        let options = quick().prefer(wire).with_credentials(SchemeCredentials::new().token("t-1"));
        let agent = over_with(options, address, &url).await;
        soon(agent.send("hi")).await.unwrap();
        assert_eq!(
            soon(agent.stream("count 1").await.unwrap().texts()).await.unwrap().all(),
            "0 1",
            "{wire}"
        );
        assert_eq!(agent.card().name, "Player", "{wire}");
        assert_eq!(agent.extended_card().await.unwrap().name, "Player for friends", "{wire}");
        assert_eq!(agent.card().name, "Player for friends", "{wire}");
        agent.refresh_card().await.unwrap();
        assert_eq!(agent.card().name, "Player for friends", "{wire}: the other one is the same");
    }
}

/// Has another token whenever one is refused, until there are none left.
struct Spare {
    left: AtomicUsize,
}

impl Credentials for Spare {
    fn credential<'a>(
        &'a self,
        _: CredentialRequest<'a>,
    ) -> BoxFuture<'a, Result<Option<Credential>, ClientError>> {
        let token = format!("t-{}", self.left.load(Ordering::SeqCst));
        Box::pin(async move { Ok(Some(Credential::Token(token.into()))) })
    }

    fn refused<'a>(
        &'a self,
        _: CredentialRequest<'a>,
        refused: &'a Credential,
    ) -> BoxFuture<'a, Result<bool, ClientError>> {
        let left = self.left.load(Ordering::SeqCst);
        assert_eq!(*refused, Credential::Token(format!("t-{left}").into()));
        self.left.store(left.saturating_sub(1), Ordering::SeqCst);
        Box::pin(async move { Ok(left > 0) })
    }
}

#[tokio::test]
async fn a_request_is_made_once_more_with_another_credential_if_the_first_is_refused() {
    let server = Server::echo().authenticate(KnownCallers::new().bearer("ann", "t-1"));
    let url = format!("http://{}", serve(server).await);
    for binding in
        [Binding::JsonRpc, Binding::HttpJson, Binding::Grpc, Binding::WebSocket, Binding::GrpcJsonRpc]
    {
        let connect = async |left| {
            let options =
                quick().with_credentials((SchemeCredentials::new(), Spare { left: AtomicUsize::new(left) }));
            soon(Client::connect_with(&url, options.prefer(binding))).await.unwrap()
        };
        soon(connect(1).await.send("hi")).await.unwrap();
        soon(connect(2).await.send("hi")).await.unwrap();
        let mut events = soon(connect(2).await.stream("hi")).await.unwrap();
        rest(&mut events).await.unwrap();
        for left in [0, 3] {
            let error = soon(connect(left).await.send("hi")).await.unwrap_err();
            assert_eq!(error.kind(), Some(ErrorKind::Unauthenticated), "{left}: {error}");
        }
    }
}
