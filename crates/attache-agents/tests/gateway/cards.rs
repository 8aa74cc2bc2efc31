//! The card of the remote agent, as the gateway serves it.

use std::time::Duration;

use attache_agents::gateway::{Gateway, GatewayError};
use attache_client::{Client, Outgoing};
use attache_protocol::{AgentCard, ErrorKind, Message, Part, binding};
use attache_server::Server;
use futures::stream;
use tokio::sync::mpsc;

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_card_is_that_of_the_remote_agent_with_our_addresses() {
    let mut card = remote_card();
    card.capabilities.streaming = Some(false);
    let chain = chain_with(card, |_| {}).await;
    let card = chain.client.card();
    assert_eq!((card.name.as_str(), card.version.as_str()), ("Remote", "0.7"));
    assert_eq!(card.documentation_url.as_deref(), Some("https://remote.example/docs"));
    assert_eq!(card.skills[0].id, "cook");
    assert_eq!(card.capabilities.streaming, Some(true), "our own stream");
    let jsonrpc =
        card.supported_interfaces.iter().find(|interface| interface.protocol_binding == binding::JSONRPC);
    assert!(jsonrpc.unwrap().url.starts_with(&chain.gateway.url()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_follows_the_remote_card_and_survives_an_outage() {
    let (cards, changes) = mpsc::unbounded_channel::<AgentCard>();
    let changes = stream::unfold(changes, async |mut changes| Some((changes.recv().await?, changes)));
    let (script, _reports) = Script::new();
    let remote = TestServer::start(move || async move {
        Server::new(script).card(remote_card()).card_updates(changes).bind("127.0.0.1:0")
    })
    .await;
    let options =
        quick_options(&remote.url(), new_store()).with(|options| options.refresh = Duration::from_millis(10));
    let gateway = Gateway::connect(options).await.unwrap();
    let mut updates = Box::pin(gateway.cards());
    cards.send(AgentCard { name: "Renamed".to_owned(), ..remote_card() }).unwrap();
    let next = in_time(futures::StreamExt::next(&mut updates)).await.unwrap();
    assert_eq!(next.name, "Renamed");
    assert!(next.supported_interfaces.is_empty());
    remote.kill().await;
    assert!(futures::FutureExt::now_or_never(futures::StreamExt::next(&mut updates)).is_none());
    assert_eq!(gateway.card().name, "Renamed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_gateway_reads_the_remote_card_no_more() {
    let (script, _reports) = Script::new();
    let remote = start_remote(script).await;
    let options =
        quick_options(&remote.url(), new_store()).with(|options| options.refresh = Duration::from_millis(10));
    let gateway = Gateway::connect(options).await.unwrap();
    let mut cards = Box::pin(gateway.cards());
    drop(gateway);
    assert!(in_time(futures::StreamExt::next(&mut cards)).await.is_none(), "the card has not changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_to_itself_is_refused() {
    let (script, _reports) = Script::new();
    let remote = start_remote(script).await;
    let options =
        quick_options(&remote.url(), new_store()).with(|options| options.own_url = Some(remote.url()));
    let error = Gateway::connect(options).await.unwrap_err();
    assert!(matches!(error, GatewayError::OwnAddress { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_runs_in_circles_is_rejected() {
    let mut chain = chain().await;
    let metadata =
        attache_protocol::JsonObject::new(&serde_json::json!({attache_iii::HOPS_EXTENSION: 8})).unwrap();
    let message = Message { metadata: Some(metadata), ..Message::user("m", "hi") };
    let error = in_time(chain.client.send(message)).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::UnsupportedOperation), "{error}");
    assert!(chain.reports.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_the_remote_agent_does_not_take_is_rejected_before_it_is_sent() {
    let mut chain = chain_with(remote_card().input_modes(["text/plain"]), |_| {}).await;
    let picture = Part::raw(vec![1]).media_type("image/png");
    let error = in_time(chain.client.send(Outgoing::new(vec![picture]))).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::ContentTypeNotSupported), "{error}");
    assert!(chain.reports.is_empty());
    let _: &Client = &chain.client;
}
