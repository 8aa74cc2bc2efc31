//! Servers that do not follow the protocol, or that try to exhaust the client.

use std::time::Duration;

use attache_client::{Client, ClientError, ClientOptions};
use serde_json::json;

use crate::support::{Fake, Reaction, connect, json as respond, quick, rest, rpc_result, soon, sse};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";

fn with_head(body: &[u8]) -> Vec<u8> {
    [HEAD, body].concat()
}

fn small() -> ClientOptions {
    quick().max_body(10_000).max_event(10_000)
}

fn hurried() -> ClientOptions {
    let limit = Duration::from_millis(100);
    quick().send_timeout(limit).call_timeout(limit)
}

#[tokio::test]
async fn garbage_is_reported_as_such() {
    let bodies: [&[u8]; 6] =
        [b"", b"<html></html>", b"\xff\xfe\x00", b"[1]", b"null", b"{\"jsonrpc\":\"2.0\"}"];
    for body in bodies {
        let fake = Fake::agent(move |_| Reaction::Bytes(with_head(body))).await;
        let agent = connect(&fake.url).await;
        for error in [
            soon(agent.send("hi")).await.unwrap_err(),
            soon(agent.stream("hi")).await.unwrap_err(),
            soon(agent.get("t")).await.unwrap_err(),
        ] {
            assert!(matches!(error, ClientError::Protocol(_)), "{body:?}: {error}");
        }
        let fake = Fake::server(move |_| Reaction::Bytes(with_head(body))).await;
        assert!(soon(Client::connect(&fake.url)).await.is_err(), "{body:?} is no card");
    }
}

#[tokio::test]
async fn what_is_not_http_is_a_broken_connection() {
    let fake = Fake::agent(|_| Reaction::Bytes(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec())).await;
    let error = soon(connect(&fake.url).await.send("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken(_)), "{error}");
}

#[tokio::test]
async fn an_answer_to_another_request_is_none() {
    for id in [json!(0), json!(null), json!("1"), json!(1.5), json!({"id": 1})] {
        let response = json!({"jsonrpc": "2.0", "id": id, "result": {"task": {"id": "t"}}});
        let fake = Fake::agent(move |_| respond(200, &response)).await;
        let error = soon(connect(&fake.url).await.send("hi")).await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol(_)), "{id}: {error}");
    }
    let fake = Fake::agent(|asked| {
        let mut asked = asked.clone();
        asked.body["id"] = json!("other");
        Reaction::Bytes(sse(&asked, &[json!({"task": {"id": "t"}})]))
    })
    .await;
    let mut events = connect(&fake.url).await.stream("hi").await.unwrap();
    let error = rest(&mut events).await.unwrap_err();
    assert!(matches!(error, ClientError::Protocol(_)), "{error}");
}

#[tokio::test]
async fn a_task_without_an_id_is_no_task() {
    let fake = Fake::agent(|asked| match asked.method() {
        "SendMessage" => rpc_result(asked, &json!({"task": {}})),
        "SendStreamingMessage" => Reaction::Bytes(sse(asked, &[json!({"task": {}})])),
        _ => rpc_result(asked, &json!({})),
    })
    .await;
    let agent = connect(&fake.url).await;
    let mut events = agent.stream("hi").await.unwrap();
    for error in [
        agent.send("hi").await.unwrap_err(),
        agent.get("t").await.unwrap_err(),
        rest(&mut events).await.unwrap_err(),
    ] {
        assert!(matches!(error, ClientError::Protocol(_)), "{error}");
    }
}

#[tokio::test]
async fn an_endless_body_is_read_only_up_to_the_limit() {
    let fake = Fake::agent(|_| Reaction::Endless(HEAD.to_vec(), vec![b' '; 1000])).await;
    let agent = Client::connect_with(&fake.url, small()).await.unwrap();
    let error = soon(agent.send("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { limit: 10_000 }), "{error}");
    let fake = Fake::server(|_| Reaction::Endless(HEAD.to_vec(), vec![b' '; 1000])).await;
    let error = soon(Client::connect_with(&fake.url, small())).await.unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn a_body_that_is_announced_as_too_large_is_not_read_at_all() {
    let fake = Fake::agent(|_| {
        Reaction::Hang(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
                .to_vec(),
        )
    })
    .await;
    let agent = Client::connect_with(&fake.url, small()).await.unwrap();
    let error = soon(agent.send("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn an_endless_event_is_read_only_up_to_the_limit() {
    for again in [&b"x"[..], b"data: x\n", b"\r", b": x"] {
        let fake = Fake::agent(move |asked| {
            let first = [&sse(asked, &[json!({"task": {"id": "t"}})])[..], b"data: "].concat();
            Reaction::Endless(first, again.repeat(1000))
        })
        .await;
        let options = small().idle_timeout(Duration::from_secs(5));
        let agent = Client::connect_with(&fake.url, options).await.unwrap();
        let mut events = agent.stream("hi").await.unwrap();
        assert!(soon(events.next()).await.unwrap().is_ok());
        let error = soon(events.next()).await.unwrap().unwrap_err();
        match again {
            b"\r" => assert!(matches!(error, ClientError::Protocol(_)), "an empty event: {error}"),
            _ => assert!(matches!(error, ClientError::TooLarge { limit: 10_000 }), "{error}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_not_waited_for_forever() {
    let half = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{".to_vec();
    for bytes in [Vec::new(), b"HTTP/1.1 200".to_vec(), half] {
        let said = bytes.clone();
        let fake = Fake::agent(move |_| Reaction::Hang(said.clone())).await;
        let agent = Client::connect_with(&fake.url, hurried()).await.unwrap();
        for error in [
            soon(agent.send("hi")).await.unwrap_err(),
            soon(agent.stream("hi")).await.unwrap_err(),
            soon(agent.get("t")).await.unwrap_err(),
            soon(agent.subscribe("t")).await.unwrap_err(),
        ] {
            assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
        }
        let fake = Fake::server(move |_| Reaction::Hang(bytes.clone())).await;
        let error = soon(Client::connect_with(&fake.url, hurried())).await.unwrap_err();
        assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_not_taken_for_a_whole_one() {
    let fake = Fake::agent(|asked| {
        let Reaction::Bytes(mut bytes) = rpc_result(asked, &json!({"task": {"id": "t"}})) else {
            unreachable!()
        };
        bytes.truncate(bytes.len() - 1);
        Reaction::Bytes(bytes)
    })
    .await;
    let error = soon(connect(&fake.url).await.send("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken(_)), "{error}");
}
