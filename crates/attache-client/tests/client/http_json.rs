//! HTTP+JSON with servers that deviate from it.

use attache_client::{Client, ClientError, Outgoing};
use attache_protocol::{ErrorKind, TaskState};
use serde_json::{Value, json};

use crate::support::{
    Fake, Reaction, ReceivedRequest, STREAM, card_with, connect, gists, json as respond, plain_sse, quick,
    rest, soon,
};

/// A server with HTTP+JSON. The test responds to the calls.
async fn fake(answer: impl Fn(&ReceivedRequest) -> Reaction + Send + Sync + 'static) -> (Fake, Client) {
    let fake = Fake::server(move |asked| {
        if asked.is_for_card() { card_with(asked, "HTTP+JSON", &json!({})) } else { answer(asked) }
    })
    .await;
    let agent = connect(&fake.url).await;
    (fake, agent)
}

fn at_work() -> Value {
    json!({"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}})
}

fn ended() -> Value {
    json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}})
}

#[tokio::test]
async fn every_request_says_its_version_and_what_it_asks_for() {
    let (fake, agent) = fake(|_| respond(200, &json!({"task": {"id": "t"}}))).await;
    agent.send(Outgoing::new("hi").extension("urn:a").idempotency_key("k1")).await.unwrap();
    let call = &fake.calls()[0];
    let headers =
        ["a2a-version", "a2a-extensions", "idempotency-key", "content-type"].map(|name| call.header(name));
    assert_eq!(headers, [Some("1.0"), Some("urn:a"), Some("k1"), Some("application/a2a+json")]);
    assert_eq!(
        (call.target(), &call.body["message"]["role"]),
        ("POST /rpc/message:send".to_owned(), &json!("ROLE_USER"))
    );
}

#[tokio::test]
async fn a_subscription_is_made_the_other_way_where_the_first_is_not_known() {
    for refusal in [
        respond_text(405, "Method Not Allowed"),
        respond_text(404, r#"{"detail":"Not Found"}"#),
        respond_text(405, r#"{"error":{"code":405,"message":"expected GET"}}"#),
        respond_text(200, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#),
    ] {
        let (fake, agent) = fake(move |asked| {
            if asked.target().starts_with("POST") {
                return Reaction::Bytes(refusal.clone());
            }
            Reaction::Bytes(plain_sse(&[at_work(), ended()]))
        })
        .await;
        let mut events = agent.subscribe("t").await.unwrap();
        assert_eq!(rest(&mut events).await.unwrap().len(), 2);
        let targets: Vec<_> = fake.calls().iter().map(ReceivedRequest::target).collect();
        assert_eq!(targets, ["POST /rpc/tasks/t:subscribe", "GET /rpc/tasks/t:subscribe"]);
    }
    let missing = json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "no such task"}});
    let (fake, agent) = fake(move |_| respond(404, &missing)).await;
    assert_eq!(agent.subscribe("t").await.unwrap_err().kind(), Some(ErrorKind::TaskNotFound));
    assert_eq!(fake.calls().len(), 1, "a task that is not there is not looked for twice");
}

fn respond_text(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

#[tokio::test]
async fn a_refusal_in_the_middle_of_a_stream_is_its_end() {
    let (fake, agent) = fake(|_| {
        let mut bytes = plain_sse(&[at_work()]);
        let error = json!({"error": {"code": 500, "status": "INTERNAL", "message": "oh"}});
        bytes.extend_from_slice(format!("event: error\ndata: {error}\n\n").as_bytes());
        Reaction::Bytes(bytes)
    })
    .await;
    let mut events = agent.stream("hi").await.unwrap();
    assert!(soon(events.next()).await.unwrap().is_ok());
    assert_eq!(rest(&mut events).await.unwrap_err().kind(), Some(ErrorKind::Internal));
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn unknown_events_are_skipped() {
    let news = json!({"messageUpdate": {"of": "some later version"}});
    let (_fake, agent) = fake(move |_| Reaction::Bytes(plain_sse(&[at_work(), news.clone(), ended()]))).await;
    let mut events = agent.stream("hi").await.unwrap();
    assert_eq!(
        gists(&rest(&mut events).await.unwrap()),
        ["task TASK_STATE_WORKING", "status TASK_STATE_COMPLETED"]
    );
}

#[tokio::test]
async fn garbage_is_reported_as_such() {
    for body in ["", "<html></html>", "[1]", "null", "{}", r#"{"task":[]}"#, r#"{"task":{}}"#] {
        let (_fake, agent) = fake(move |_| Reaction::Bytes(respond_text(200, body))).await;
        let mut errors =
            vec![soon(agent.send("hi")).await.unwrap_err(), soon(agent.stream("hi")).await.unwrap_err()];
        if body != r#"{"task":{}}"# {
            errors.push(soon(agent.get("t")).await.unwrap_err());
        }
        for error in errors {
            assert!(matches!(error, ClientError::Protocol(_)), "{body}: {error}");
        }
        let said = body.to_owned();
        let (_fake, agent) =
            self::fake(move |_| Reaction::Bytes([STREAM, b"data: ", said.as_bytes(), b"\n\n"].concat()))
                .await;
        let mut events = agent.stream("hi").await.unwrap();
        let error = rest(&mut events).await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol(_)), "{body}: {error}");
    }
}

#[tokio::test]
async fn an_endless_answer_is_read_only_up_to_the_limit() {
    let fake = Fake::server(|asked| {
        if asked.is_for_card() {
            return card_with(asked, "HTTP+JSON", &json!({}));
        }
        let head = if asked.target().ends_with(":stream") { STREAM } else { b"HTTP/1.1 200 OK\r\n\r\n" };
        Reaction::Endless([head, b"data: "].concat(), vec![b'x'; 1000])
    })
    .await;
    let options = quick().max_body(10_000).max_event(10_000);
    let agent = Client::connect_with(&fake.url, options).await.unwrap();
    let mut events = agent.stream("hi").await.unwrap();
    for error in [
        soon(agent.send("hi")).await.unwrap_err(),
        soon(agent.get("t")).await.unwrap_err(),
        soon(events.next()).await.unwrap().unwrap_err(),
    ] {
        assert!(matches!(error, ClientError::TooLarge { limit: 10_000 }), "{error}");
    }
}

#[tokio::test]
async fn a_deletion_is_done_however_little_is_said_about_it() {
    for (status, body) in [(200, "{}"), (200, "null"), (204, ""), (200, "")] {
        let (fake, agent) = fake(move |_| Reaction::Bytes(respond_text(status, body))).await;
        agent.delete_webhook("t", "w").await.unwrap();
        assert_eq!(fake.calls()[0].target(), "DELETE /rpc/tasks/t/pushNotificationConfigs/w");
    }
}

#[tokio::test]
async fn the_tenant_is_in_the_path() {
    let fake = Fake::server(|asked| {
        if !asked.is_for_card() {
            return respond(200, &json!({"id": "t", "status": {"state": "TASK_STATE_WORKING"}}));
        }
        let url = format!("http://{}/", asked.header("host").unwrap());
        let interface =
            json!({"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", "tenant": "ac me"});
        respond(200, &json!({"name": "Fake", "supportedInterfaces": [interface]}))
    })
    .await;
    let agent = connect(&fake.url).await;
    assert_eq!(agent.get("t").await.unwrap().status.state, TaskState::Working);
    agent.cancel("t").await.unwrap();
    let calls = fake.calls();
    assert_eq!(
        (calls[0].target(), calls[1].target()),
        ("GET /ac%20me/tasks/t".into(), "POST /ac%20me/tasks/t:cancel".into())
    );
    assert_eq!(calls[1].body["tenant"], "ac me");
}
