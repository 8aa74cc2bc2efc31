//! What the server of a gateway adds: webhooks, its own signature, its own callers.

use attache_client::{Algorithm, Client, ClientOptions, Outgoing, SchemeCredentials, Verifier};
use attache_outbound::Policy;
use attache_protocol::{TaskPushNotificationConfig, Timestamp};
use attache_server::auth::KnownCallers;
use attache_server::{Server, SigningKeys};
use axum::Router;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::handmade::*;
use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_is_called_though_the_remote_agent_has_none() {
    let (script, _reports) = Script::new();
    let remote = start_remote(script).await;
    let (sender, mut received) = mpsc::unbounded_channel::<Value>();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let receiver = Router::new().route(
        "/hook",
        post(async move |body: axum::Json<Value>| {
            sender.send(body.0).unwrap();
        }),
    );
    let _serving = AbortOnDropHandle::new(tokio::spawn(async { axum::serve(listener, receiver).await }));
    let gateway = start_gateway_with(quick_options(&remote.url(), new_store()), |server| {
        server.push_options(|options| options.policy = Policy::default().allow_loopback(true))
    })
    .await;
    let client = Client::connect(&gateway.url()).await.unwrap();
    assert_eq!(client.card().capabilities.push_notifications, Some(true));
    let webhook = TaskPushNotificationConfig { url, ..TaskPushNotificationConfig::default() };
    let task = send(&client, Outgoing::new("complete done").webhook(webhook)).await;
    loop {
        let body = in_time(received.recv()).await.unwrap().to_string();
        assert!(body.contains(task.id.as_str()), "{body}");
        if body.contains("TASK_STATE_COMPLETED") {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_has_our_signature_instead_of_that_of_the_remote_agent() {
    let new_keys = || SigningKeys::in_memory(Algorithm::Es256, Timestamp::from_millis(0)).unwrap();
    let (theirs, ours) = (new_keys(), new_keys());
    let (script, _reports) = Script::new();
    let keys = theirs.clone();
    let remote = TestServer::start(move || async move {
        Server::new(script).card(remote_card()).signing(keys).bind("127.0.0.1:0")
    })
    .await;
    let keys = ours.clone();
    let options = quick_options(&remote.url(), new_store());
    let gateway = start_gateway_with(options, |server| server.signing(keys)).await;
    let is_trusted = async |url: &str, keys: &SigningKeys| {
        let trust = Verifier::new().pin(keys.current().public_keys());
        Client::connect_with(url, ClientOptions::default().card_trust(trust)).await.is_ok()
    };
    assert!(is_trusted(&remote.url(), &theirs).await);
    assert!(is_trusted(&gateway.url(), &ours).await);
    assert!(!is_trusted(&gateway.url(), &theirs).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_agent_of_0_3_gets_the_configured_credential_and_no_other() {
    let card = |url: &str| {
        json!({"protocolVersion": "0.3.0", "url": url, "preferredTransport": "JSONRPC",
            "capabilities": {"streaming": false}, "security": [{"b": []}],
            "securitySchemes": {"b": {"type": "http", "scheme": "bearer"}}})
    };
    let mut remote = Remote::start_with(card, |_, _, id| {
        let part = json!({"kind": "text", "text": "ok"});
        result(&id, json!({"kind": "message", "messageId": "m", "role": "agent", "parts": [part]}))
    })
    .await;
    let token = |token: &'static str| {
        ClientOptions::default().with_credentials(SchemeCredentials::new().token(token))
    };
    let options = quick_options(&remote.url, new_store()).with(|options| {
        options.client =
            options.client.clone().with_credentials(SchemeCredentials::new().token("configured"));
    });
    let callers = KnownCallers::new().bearer("alice", "t0p-s3cret");
    let gateway = start_gateway_with(options, |server| server.authenticate(callers)).await;
    let client = Client::connect_with(&gateway.url(), token("t0p-s3cret")).await.unwrap();
    in_time(client.send("hi")).await.unwrap();
    let request = remote.request_of("message/send").await;
    let sent: Vec<_> = request.headers.get_all("authorization").iter().collect();
    assert_eq!(sent, ["Bearer configured"]);
    let all = format!("{:?} {}", request.headers, request.body);
    assert!(!all.contains("t0p-s3cret") && !all.contains("alice"), "{all}");
}
