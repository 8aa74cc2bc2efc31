//! Finding an agent, and noticing changes of its card.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_client::{Client, ClientError, ConnectFailure, Policy, Refreshed, TrustedOrigins};
use attache_protocol::{AgentCard, AgentSkill};
use attache_server::Server;
use futures::StreamExt;
use serde_json::json;

use crate::support::{Fake, Player, Reaction, card, connect, json as respond, quick, serve, soon};

fn redirect(to: &str) -> Reaction {
    Reaction::Bytes(
        format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .into(),
    )
}

#[tokio::test]
async fn an_agent_is_found_by_its_address_or_by_that_of_its_card() {
    let server = serve(Server::echo()).await;
    for path in ["", "/", "/.well-known/agent-card.json"] {
        let agent = connect(&format!("http://{server}{path}")).await;
        assert_eq!(agent.card().name, "Echo");
        agent.send("hi").await.unwrap();
    }
    let error = Client::connect(&format!("http://{server}/nothing/here.json")).await.unwrap_err();
    assert!(matches!(error, ClientError::Http { status: 404, .. }), "{error}");
}

#[tokio::test]
async fn an_address_without_a_server_is_a_failure_to_connect() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = soon(Client::connect(&format!("http://{free}/?token=secret"))).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { why: ConnectFailure::Refused, .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn a_failed_connection_is_explained() {
    let server = serve(Server::echo()).await;
    let error = soon(Client::connect(&format!("https://{server}"))).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { why: ConnectFailure::NotTls, .. }), "{error}");
}

#[tokio::test]
async fn an_address_on_this_machine_needs_no_scheme() {
    let server = serve(Server::echo()).await;
    let agent = connect(&format!("localhost:{}", server.port())).await;
    agent.send("hi").await.unwrap();
}

#[tokio::test]
async fn a_card_is_read_again_only_if_it_has_changed() {
    let (change, changes) = futures::channel::mpsc::unbounded();
    let updates = changes.map(|name: &str| AgentCard::new(name, "Changes").skill(AgentSkill::new("a", "A")));
    let first = AgentCard::new("First", "Changes");
    let agent =
        connect(&format!("http://{}", serve(Server::new(Player).card(first).card_updates(updates)).await))
            .await;
    assert_eq!(agent.refresh_card().await.unwrap(), Refreshed::Unchanged);
    let before = agent.card();
    assert!(Arc::ptr_eq(&before, &agent.card()));
    change.unbounded_send("Second").unwrap();
    soon(async { while agent.refresh_card().await.unwrap() == Refreshed::Unchanged {} }).await;
    assert_eq!((before.name.as_str(), agent.card().name.as_str()), ("First", "Second"));
    assert_eq!(agent.refresh_card().await.unwrap(), Refreshed::Unchanged);
}

#[tokio::test]
async fn a_card_with_a_tag_is_asked_for_by_its_tag() {
    let full = Arc::new(AtomicUsize::new(0));
    let served = full.clone();
    let fake = Fake::server(move |asked| {
        if asked.header("if-none-match") == Some("W/\"7\"") {
            return Reaction::Bytes(b"HTTP/1.1 304 Not Modified\r\nETag: W/\"7\"\r\n\r\n".to_vec());
        }
        served.fetch_add(1, Ordering::SeqCst);
        let Reaction::Bytes(bytes) = card(asked) else { unreachable!() };
        let text = String::from_utf8(bytes).unwrap();
        Reaction::Bytes(text.replacen("\r\n", "\r\nETag: W/\"7\"\r\n", 1).into_bytes())
    })
    .await;
    let agent = connect(&fake.url).await;
    for _ in 0..3 {
        assert_eq!(agent.refresh_card().await.unwrap(), Refreshed::Unchanged);
    }
    assert_eq!(full.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_card_that_leads_nowhere_does_not_replace_a_good_one() {
    let count = AtomicUsize::new(0);
    let fake = Fake::server(move |asked| match count.fetch_add(1, Ordering::SeqCst) {
        0 => card(asked),
        _ => respond(200, &json!({"name": "Later", "url": "http://a.example", "protocolVersion": "0.0.1"})),
    })
    .await;
    let agent = connect(&fake.url).await;
    let error = agent.refresh_card().await.unwrap_err();
    assert!(matches!(error, ClientError::NoInterface { .. }), "{error}");
    assert_eq!(agent.card().name, "Fake");
}

#[tokio::test]
async fn a_card_may_have_moved() {
    let moved = Fake::server(|asked| match asked.path() {
        "/.well-known/agent-card.json" => redirect("/cards/7.json"),
        _ => card(asked),
    })
    .await;
    assert_eq!(connect(&moved.url).await.card().name, "Fake");

    let elsewhere = moved.url.clone();
    let away = Fake::server(move |_| redirect(&elsewhere)).await;
    let options = quick().trusted_origins(TrustedOrigins::new().only());
    let error = Client::connect_with(&away.url, options).await.unwrap_err();
    assert!(matches!(error, ClientError::OtherOrigin { .. }), "{error}");

    let around = Fake::server(|_| redirect("/again.json")).await;
    let error = soon(Client::connect(&around.url)).await.unwrap_err();
    assert!(matches!(error, ClientError::Protocol(_)), "{error}");
}

#[tokio::test]
async fn a_call_is_never_redirected() {
    let fake = Fake::agent(|_| redirect("/elsewhere")).await;
    let error = connect(&fake.url).await.send("hi").await.unwrap_err();
    assert!(matches!(error, ClientError::Http { status: 302, .. }), "{error}");
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn an_interface_elsewhere_is_used_only_if_that_is_allowed() {
    let elsewhere = serve(Server::echo()).await;
    let server = serve(Server::echo().base_url(format!("http://{elsewhere}"))).await;
    connect(&format!("http://{server}")).await.send("hi").await.unwrap();
    let options = quick().trusted_origins(TrustedOrigins::new().only());
    let error = Client::connect_with(&format!("http://{server}"), options.clone()).await.unwrap_err();
    assert!(matches!(error, ClientError::OtherOrigin { .. }), "{error}");
    Client::connect_with(&format!("http://{elsewhere}"), options).await.unwrap().send("hi").await.unwrap();
}

#[tokio::test]
async fn a_policy_holds_for_the_card_for_redirects_and_for_the_interface() {
    let policy = |policy: Policy| quick().policy(policy);
    let loopback = || policy(Policy::default().allow_loopback(true));
    let server = serve(Server::echo()).await;
    let agent = Client::connect_with(&format!("http://{server}"), loopback()).await.unwrap();
    agent.send("hi").await.unwrap();
    let error =
        Client::connect_with(&format!("http://{server}"), policy(Policy::default())).await.unwrap_err();
    assert!(matches!(error, ClientError::Refused { .. }), "{error}");

    let inside = serve(Server::echo().base_url("http://10.0.0.1")).await;
    let away = Fake::server(|_| redirect("http://169.254.169.254/card.json")).await;
    for address in [format!("http://{inside}"), away.url] {
        let error = soon(Client::connect_with(&address, loopback())).await.unwrap_err();
        assert!(matches!(error, ClientError::Refused { .. }), "{error}");
    }
}

/// A server with a card at one of the well-known paths.
async fn at(place: &'static str) -> Fake {
    Fake::server(move |asked| {
        if asked.path() != place {
            return respond(404, &json!({"detail": "Not Found"}));
        }
        if asked.header("if-modified-since").is_some() {
            return Reaction::Bytes(b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec());
        }
        let Reaction::Bytes(bytes) = card(asked) else { unreachable!() };
        let text = String::from_utf8(bytes).unwrap();
        let dated = "\r\nLast-Modified: Sat, 01 Aug 2026 10:00:00 GMT\r\n";
        Reaction::Bytes(text.replacen("\r\n", dated, 1).into_bytes())
    })
    .await
}

#[tokio::test]
async fn a_card_is_looked_for_at_its_older_place_too_and_then_there_first() {
    let fake = at("/.well-known/agent.json").await;
    let agent = connect(&fake.url).await;
    for _ in 0..2 {
        assert_eq!(agent.refresh_card().await.unwrap(), Refreshed::Unchanged);
    }
    let paths: Vec<_> = fake.card_requests().iter().map(|visit| visit.path().to_owned()).collect();
    let [new, old] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
    assert_eq!(paths, [new, old, old, old]);

    let fake = at("/elsewhere").await;
    let error = Client::connect(&fake.url).await.unwrap_err();
    assert!(matches!(&error, ClientError::Http { status: 404, url, .. } if url.ends_with(new)), "{error}");
}

#[tokio::test]
async fn a_card_is_not_asked_for_while_it_is_said_to_be_good() {
    for (said, visits) in
        [("public, max-age=60", 1), ("max-age=0", 3), ("no-cache, max-age=60", 3), ("public", 3)]
    {
        let fake = Fake::server(move |asked| {
            let Reaction::Bytes(bytes) = card(asked) else { panic!("a card is bytes") };
            let text = String::from_utf8(bytes).unwrap();
            Reaction::Bytes(text.replacen("\r\n", &format!("\r\nCache-Control: {said}\r\n"), 1).into())
        });
        let fake = fake.await;
        let agent = connect(&fake.url).await;
        for _ in 0..2 {
            assert_eq!(soon(agent.refresh_stale_card()).await.unwrap(), Refreshed::Unchanged);
        }
        assert_eq!(fake.card_requests().len(), visits, "{said}");
    }
}
