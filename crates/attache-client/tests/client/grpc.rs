//! Frames and trailers of gRPC, and servers that do not follow it.

use std::time::Duration;

use attache_client::{
    Client, ClientError, ClientOptions, Credential, Outgoing, Policy, SchemeCredentials, TrustedOrigins,
};
use attache_grpc::v1_0::proto;
use attache_protocol::{Error, ErrorKind, SendMessageResponse};
use axum::body::Body;
use axum::response::Response;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{
    Calls, Chunk, Fake, connect, framed, gists, json as respond, next, quick, refusal, response, rest, soon,
};

fn at_work(generation: u32) -> Value {
    json!({"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}, "generation": generation.to_string()}})
}

fn ended() -> Value {
    json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}})
}

fn reply() -> Vec<u8> {
    let reply = json!({"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}});
    let reply: SendMessageResponse = serde_json::from_value(reply).unwrap();
    framed::<proto::SendMessageResponse, _>(reply)
}

/// Options that send credentials to the server of the calls.
fn trusting(calls: &Calls) -> ClientOptions {
    quick().trusted_origins(TrustedOrigins::new().trust(&calls.origin).unwrap())
}

#[tokio::test]
async fn a_call_says_what_every_request_says() {
    let calls = Calls::saying(|| vec![Chunk::Data(reply()), Chunk::done()]).await;
    let options = trusting(&calls).with_credentials(SchemeCredentials::new().token("t-1"));
    let agent = Client::connect_with(&format!("{}?token", calls.url), options).await.unwrap();
    agent.send(Outgoing::new("hi").idempotency_key("k-1").extension("urn:a")).await.unwrap();
    let log = calls.log();
    let said: Vec<_> =
        ["te", "content-type", "a2a-version", "a2a-extensions", "idempotency-key", "authorization", "accept"]
            .iter()
            .map(|name| format!("{name}: {}", log[0].header(name).unwrap_or("-")))
            .collect();
    insta::assert_snapshot!(format!("{}\n{}", log[0].path, said.join("\n")));
}

#[tokio::test]
async fn a_key_in_a_query_has_no_place_and_is_not_sent() {
    let calls = Calls::saying(|| vec![Chunk::Data(reply()), Chunk::done()]).await;
    let keys = SchemeCredentials::new().named("query", Credential::ApiKey("k-1".into()));
    let options = trusting(&calls).with_credentials(keys);
    let agent = Client::connect_with(&format!("{}?query", calls.url), options).await.unwrap();
    let error = agent.send("hi").await.unwrap_err();
    assert!(matches!(error, ClientError::Invalid(_)) && !error.to_string().contains("k-1"), "{error}");
    assert!(calls.log().is_empty());
}

#[tokio::test]
async fn an_invalid_response_is_reported_as_such() {
    type Pieces = fn() -> Vec<Chunk>;
    let cases: [(&str, Pieces); 6] = [
        ("nothing", || vec![Chunk::done()]),
        ("no message", || vec![Chunk::Data(b"\0\0\0\0\x03\xff\xff\xff".to_vec()), Chunk::done()]),
        ("an empty message", || vec![Chunk::Data(vec![0; 5]), Chunk::done()]),
        ("a compressed message", || vec![Chunk::Data(vec![1, 0, 0, 0, 0]), Chunk::done()]),
        ("a half message", || vec![Chunk::Data(vec![0, 0, 0, 0, 9, 1]), Chunk::done()]),
        ("two messages", || vec![Chunk::Data([reply(), reply()].concat()), Chunk::done()]),
    ];
    for (what, pieces) in cases {
        let calls = Calls::saying(pieces).await;
        let error = soon(connect(&calls.url).await.send("hi")).await.unwrap_err();
        assert!(matches!(error, ClientError::Protocol(_)), "{what}: {error}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_say_how_the_call_ended_is_not_whole() {
    let calls = Calls::saying(|| vec![Chunk::Data(reply())]).await;
    let error = soon(connect(&calls.url).await.send("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken(_)), "{error}");
    assert_eq!(calls.log().len(), 1, "a send is not repeated");
}

#[tokio::test]
async fn a_refusal_after_an_answer_is_a_refusal() {
    let pieces = || vec![Chunk::Data(reply()), refusal(&Error::new(ErrorKind::Internal, "no"))];
    let calls = Calls::saying(pieces).await;
    let agent = connect(&calls.url).await;
    assert_eq!(agent.send("hi").await.unwrap_err().kind(), Some(ErrorKind::Internal));
}

#[tokio::test]
async fn a_server_without_grpc_is_recognized_by_its_status_or_media_type() {
    let plain = |status: u16| {
        Response::builder()
            .status(status)
            .header("content-type", "text/html")
            .body(Body::from("<html>"))
            .unwrap()
    };
    for status in [302, 404, 503] {
        let calls = Calls::responding(move |_| plain(status)).await;
        let agent = connect(&calls.url).await;
        for error in [agent.send("hi").await.unwrap_err(), agent.stream("hi").await.unwrap_err()] {
            assert!(matches!(error, ClientError::Http { status: told, .. } if told == status), "{error}");
        }
    }
    let calls = Calls::responding(move |_| plain(200)).await;
    let agent = connect(&calls.url).await;
    for error in [agent.send("hi").await.unwrap_err(), agent.subscribe("t").await.unwrap_err()] {
        assert!(matches!(&error, ClientError::Protocol(why) if why.contains("text/html")), "{error}");
    }
    let http1 = Fake::server(|asked| {
        let host = asked.header("host").unwrap();
        respond(
            200,
            &json!({"name": "Old", "supportedInterfaces":
            [{"url": host, "protocolBinding": "GRPC", "protocolVersion": "1.0"}]}),
        )
    })
    .await;
    let error = soon(connect(&http1.url).await.send("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::Broken(_) | ClientError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_not_kept() {
    let small = quick().max_body(10_000).max_event(10_000);
    let large = || {
        stream::iter([Chunk::Data(vec![0, 0, 0, 0x27, 0x11])])
            .chain(stream::repeat_with(|| Chunk::Data(vec![0; 4096])))
    };
    let calls = Calls::new(move |_| large()).await;
    let agent = Client::connect_with(&calls.url, small).await.unwrap();
    let error = soon(agent.send("hi")).await.unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { limit: 10_000 }), "{error}");
    let error = rest(&mut soon(agent.stream("hi")).await.unwrap()).await.unwrap_err();
    assert!(matches!(error, ClientError::TooLarge { limit: 10_000 }), "{error}");
}

#[tokio::test]
async fn an_unknown_event_is_reported_and_left_out() {
    // A field that no event has today.
    let later = || Chunk::Data(b"\0\0\0\0\x03\x4a\x01x".to_vec());
    let calls = Calls::saying(move || {
        vec![Chunk::event(&at_work(1)), later(), Chunk::event(&ended()), Chunk::done()]
    })
    .await;
    let mut events = connect(&calls.url).await.stream("hi").await.unwrap();
    assert_eq!(
        gists(&rest(&mut events).await.unwrap()),
        ["task TASK_STATE_WORKING", "status TASK_STATE_COMPLETED"]
    );
    assert_eq!(events.unreadable().len(), 1);
}

#[tokio::test]
async fn a_stream_that_a_proxy_lost_goes_on_after_the_last_change_that_was_read() {
    let lost = || {
        let words = [("grpc-status", "14"), ("grpc-message", "upstream%20reset")];
        Chunk::Trailers(
            words.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect(),
        )
    };
    let calls = Calls::new(move |number| {
        stream::iter(match number {
            0 => vec![Chunk::event(&at_work(7)), lost()],
            _ => vec![Chunk::event(&ended()), Chunk::done()],
        })
    })
    .await;
    let mut events = connect(&calls.url).await.stream("hi").await.unwrap();
    assert_eq!(
        gists(&rest(&mut events).await.unwrap()),
        ["task TASK_STATE_WORKING", "status TASK_STATE_COMPLETED"]
    );
    let log = calls.log();
    assert!(log[1].path.ends_with("/SubscribeToTask"), "{log:?}");
    assert_eq!((log[0].header("last-event-id"), log[1].header("last-event-id")), (None, Some("7")));
}

/// A server whose calls stop in the middle until they are released.
async fn held(before: fn() -> Vec<Chunk>) -> (Calls, watch::Sender<bool>) {
    let release = watch::Sender::new(false);
    let released = release.clone();
    let calls = Calls::new(move |_| {
        let mut released = released.subscribe();
        let after = async move {
            released.wait_for(|released| *released).await.unwrap();
            stream::iter([Chunk::event(&ended()), Chunk::done()])
        };
        stream::iter(before()).chain(stream::once(after).flatten())
    })
    .await;
    (calls, release)
}

#[tokio::test]
async fn silence_does_not_break_a_stream_where_servers_have_nothing_to_say_meanwhile() {
    let (calls, release) = held(|| vec![Chunk::event(&at_work(1))]).await;
    let options = quick().idle_timeout(Duration::from_millis(1));
    let agent = Client::connect_with(&calls.url, options).await.unwrap();
    let mut events = agent.stream("hi").await.unwrap();
    next(&mut events).await;
    assert!(tokio::time::timeout(Duration::from_millis(50), events.next()).await.is_err(), "it is silent");
    release.send_replace(true);
    assert_eq!(gists(&rest(&mut events).await.unwrap()), ["status TASK_STATE_COMPLETED"]);
    assert_eq!(calls.log().len(), 1);
}

#[tokio::test]
async fn a_subscription_need_not_wait_for_a_server_that_begins_with_its_first_event() {
    let release = watch::Sender::new(false);
    let released = release.clone();
    let calls = Calls::responding_late(move |_| {
        let mut released = released.subscribe();
        async move {
            released.wait_for(|released| *released).await.unwrap();
            response(stream::iter([Chunk::event(&ended()), Chunk::done()]).boxed())
        }
    })
    .await;
    let mut events = soon(connect(&calls.url).await.subscribe("t")).await.unwrap();
    release.send_replace(true);
    assert_eq!(gists(&rest(&mut events).await.unwrap()), ["status TASK_STATE_COMPLETED"]);
}

#[tokio::test]
async fn a_policy_holds_for_hosts_and_ports() {
    for address in ["10.0.0.1:50051", "169.254.169.254:443", "http://10.0.0.1:50051"] {
        let interface = json!({"url": address, "protocolBinding": "GRPC", "protocolVersion": "1.0"});
        let card = json!({"name": "Inside", "supportedInterfaces": [interface]});
        let fake = Fake::server(move |_| respond(200, &card)).await;
        let options = quick().policy(Policy::default().allow_loopback(true));
        let error = Client::connect_with(&fake.url, options).await.unwrap_err();
        assert!(matches!(error, ClientError::Refused { .. }), "{address}: {error}");
        let options = quick().trusted_origins(TrustedOrigins::new().only());
        let error = Client::connect_with(&fake.url, options).await.unwrap_err();
        assert!(matches!(error, ClientError::OtherOrigin { .. }), "{address}: {error}");
    }
}
