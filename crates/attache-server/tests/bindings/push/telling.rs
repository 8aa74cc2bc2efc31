//! What receivers are told: which events, in which order, with which headers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use attache_core::{MemoryStore, PushEvents};
use attache_protocol::PUSH_EVERY_EVENT_EXTENSION;
use attache_server::{Server, SigningSecret};
use aws_lc_rs::hmac;
use serde_json::{Value, json};

use super::{
    Call, Receiver, add_hook, all_told, is_empty, plain, playing, pushing, send_to, send_with, task_with,
};
use crate::support::{Binding, Player, adopt, card, fetch, send, serve, stage};

/// The states of a task that goes well.
const WELL: [&str; 3] = ["SUBMITTED", "WORKING", "COMPLETED"];

#[tokio::test]
async fn each_state_is_told_once_and_in_order() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    for operation in ["SendMessage", "SendStreamingMessage"] {
        for binding in Binding::ALL {
            let params = send_with("chunks", &plain(receiver.url("/hook?a=1")));
            server.ask(operation, params).ok(binding).await;
            let mut kinds = Vec::new();
            for state in WELL {
                let call = receiver.told().await;
                assert_eq!((call.method.as_str(), call.path.as_str()), ("POST", "/hook?a=1"));
                assert_eq!(call.news(), state, "{operation} {binding:?}");
                kinds.extend(call.body().as_object().unwrap().keys().cloned());
            }
            assert_eq!(kinds, ["task", "statusUpdate", "statusUpdate"]);
            all_told(&store).await;
            assert!(receiver.is_quiet());
        }
    }
}

#[tokio::test]
async fn a_notification_belongs_to_the_trace_of_the_request_that_made_the_webhook() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for binding in Binding::ALL {
        let params = send_with("hi", &plain(receiver.url("/")));
        server.ask("SendMessage", params.clone()).header("traceparent", trace).ok(binding).await;
        for _ in ["SUBMITTED", "COMPLETED"] {
            assert_eq!(receiver.told().await.header("traceparent"), trace, "{binding:?}");
        }
        server.ask("SendMessage", params).ok(binding).await;
        for _ in ["SUBMITTED", "COMPLETED"] {
            assert!(!receiver.told().await.headers.contains_key("traceparent"));
        }
    }
    all_told(&store).await;
}

#[tokio::test]
async fn a_webhook_is_told_in_the_words_of_who_made_it() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    let hook = json!({"url": receiver.url("/"), "token": "t0ken"});
    let rpc = async |method: &str, params: Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let request = server.bare(reqwest::Method::POST, "/a2a").header("Content-Type", "application/json");
        fetch(request.body(body)).await.json()["result"].take()
    };
    let message = json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "chunks"}]});
    let params = json!({"message": message, "configuration": {"pushNotificationConfig": hook}});
    let task = rpc("message/send", params).await;
    for state in ["submitted", "working", "completed"] {
        let call = receiver.told().await;
        let told = call.body();
        assert_eq!((&told["kind"], &told["id"]), (&json!("task"), &task["id"]), "{told}");
        assert_eq!(told["status"]["state"], state);
        assert_eq!(told["history"][0]["parts"][0]["kind"], "text");
        assert_eq!(call.header("content-type"), "application/json");
        assert_eq!(call.header("x-a2a-notification-token"), "t0ken");
        assert!(!call.headers.contains_key("a2a-version"), "{call:?}");
    }
    all_told(&store).await;
    let named = rpc("tasks/pushNotificationConfig/get", json!({"id": task["id"]})).await;
    assert_eq!(named["pushNotificationConfig"]["id"], task["id"], "it had no name of its own: {named}");

    let params = json!({"id": "t-1", "pushNotification": hook,
        "message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}});
    rpc("tasks/send", params).await;
    for state in ["submitted", "completed"] {
        let told = receiver.told().await.body();
        assert_eq!((&told["id"], &told["status"]["state"]), (&json!("t-1"), &json!(state)), "{told}");
        assert_eq!(told["history"][0]["parts"][0]["type"], "text");
    }
}

#[tokio::test]
async fn who_asks_for_every_event_is_told_what_a_stream_shows() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    for binding in Binding::ALL {
        let params = send_with("chunks", &plain(receiver.url("/")));
        let ask = server.ask("SendStreamingMessage", params);
        let answer = ask.header("A2A-Extensions", PUSH_EVERY_EVENT_EXTENSION).over(binding).await;
        assert_eq!(answer.extensions.as_deref(), Some(PUSH_EVERY_EVENT_EXTENSION), "{binding:?}");
        let streamed = answer.unwrap();
        let mut told = Vec::new();
        for number in 1..=6 {
            let call = receiver.told().await;
            assert_eq!(call.numbers(), (number, 1));
            told.push(call.body());
        }
        if binding == Binding::Grpc {
            // The same, but for the way to write it.
            assert_eq!(streamed.as_array().unwrap().len(), told.len());
        } else {
            assert_eq!(streamed, json!(told), "{binding:?}");
        }
        all_told(&store).await;
        assert!(receiver.is_quiet());
    }
}

#[tokio::test]
async fn artifacts_are_told_only_to_those_who_asked_for_every_event() {
    let (agent, mut stage) = stage();
    let store = Arc::new(MemoryStore::new());
    let server = serve(pushing(agent, &store, |_| {})).await;
    let (mut all, mut some) = (Receiver::start().await, Receiver::start().await);
    for binding in Binding::ALL {
        let sending = server.ask("SendMessage", send("go")).begin(binding);
        let act = stage.turn().await;
        act.working("at it").await;
        let id = json!(act.task_id());
        let create = |url| {
            server.ask("CreateTaskPushNotificationConfig", json!({"taskId": id, "url": url, "id": url}))
        };
        create(all.url("/")).header("A2A-Extensions", PUSH_EVERY_EVENT_EXTENSION).ok(binding).await;
        create(some.url("/")).ok(binding).await;
        act.text("answer", "42").await;
        act.complete().await;
        drop(act);
        sending.await.unwrap().unwrap();
        assert_eq!(all.news(2).await, ["answer", "COMPLETED"], "{binding:?}");
        assert_eq!(some.news(1).await, ["COMPLETED"], "{binding:?}");
        all_told(&store).await;
        assert!(all.is_quiet() && some.is_quiet());
    }
}

#[tokio::test]
async fn an_operator_can_have_every_event_told_to_everyone() {
    let store = Arc::new(MemoryStore::new());
    let server = pushing(Player, &store, |_| {}).service_options(|options| {
        options.push_events = PushEvents::Everything;
    });
    let server = serve(server).await;
    let mut receiver = Receiver::start().await;
    task_with(&server, "hi", &plain(receiver.url("/"))).await;
    assert_eq!(receiver.news(3).await, ["SUBMITTED", "answer", "COMPLETED"]);
}

#[tokio::test]
async fn a_question_its_answer_and_the_end_are_told() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    for binding in Binding::ALL {
        let params = send_with("ask", &plain(receiver.url("/")));
        let id = server.ask("SendMessage", params).ok(binding).await["task"]["id"].clone();
        assert_eq!(receiver.news(2).await, ["SUBMITTED", "INPUT_REQUIRED"]);
        all_told(&store).await;
        server.ask("SendMessage", send_to(&id, "this")).ok(binding).await;
        let again = receiver.told().await;
        assert_eq!((again.news().as_str(), &again.body()["statusUpdate"]["taskId"]), ("WORKING", &id));
        assert_eq!(receiver.news(1).await, ["COMPLETED"]);
        all_told(&store).await;
        assert!(receiver.is_quiet());
    }
}

#[tokio::test]
async fn a_cancel_is_told() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    let id = task_with(&server, "ask", &plain(receiver.url("/"))).await;
    receiver.news(2).await;
    server.rpc("CancelTask", json!({"id": id})).await;
    let params = send_with("wait", &plain(receiver.url("/")));
    let waiting = server.ask("SendMessage", params).begin(Binding::JsonRpc);
    assert_eq!(receiver.news(1).await, ["CANCELED"]);
    let id = receiver.told().await.body()["task"]["id"].clone();
    assert_eq!(receiver.news(1).await, ["WORKING"]);
    server.rpc("CancelTask", json!({"id": id})).await;
    assert_eq!(receiver.news(1).await, ["CANCELED"]);
    waiting.await.unwrap().unwrap();
    all_told(&store).await;
    assert!(receiver.is_quiet());
}

#[tokio::test]
async fn every_way_to_end_is_told() {
    let (server, _) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    for (text, state) in [("hi", "COMPLETED"), ("fail", "FAILED"), ("reject", "REJECTED")] {
        task_with(&server, text, &plain(receiver.url("/"))).await;
        assert_eq!(receiver.news(2).await, ["SUBMITTED", state]);
    }
}

#[tokio::test]
async fn each_webhook_of_a_task_is_told_all_of_it() {
    let (server, store) = playing(|_| {}).await;
    let (mut one, mut two) = (Receiver::start().await, Receiver::start().await);
    let id = task_with(&server, "ask", &plain(one.url("/first"))).await;
    one.news(2).await;
    add_hook(&server, &id, plain(one.url("/second"))).await;
    add_hook(&server, &id, plain(two.url("/"))).await;
    server.sent(send_to(&id, "this")).await;
    assert_eq!(two.news(2).await, ["WORKING", "COMPLETED"]);
    let mut told = Vec::new();
    let mut ids = HashSet::new();
    for _ in 0..4 {
        let call = one.told().await;
        ids.insert(call.id().to_owned());
        told.push((call.path.clone(), call.news()));
    }
    assert_eq!(ids.len(), 4, "each delivery is known by something of its own");
    for path in ["/first", "/second"] {
        let here: Vec<_> = told.iter().filter(|(at, _)| at == path).map(|(_, news)| news.as_str()).collect();
        assert_eq!(here, ["WORKING", "COMPLETED"], "{path}");
    }
    all_told(&store).await;
    assert!(one.is_quiet() && two.is_quiet());
}

#[tokio::test]
async fn a_webhook_that_comes_with_an_answer_is_told_what_comes_of_it() {
    let (server, store) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    for operation in ["SendMessage", "SendStreamingMessage"] {
        let id = server.task("ask").await["id"].clone();
        let mut params = send_to(&id, "this");
        params["configuration"] = json!({"taskPushNotificationConfig": plain(receiver.url("/"))});
        server.ask(operation, params).ok(Binding::HttpJson).await;
        assert_eq!(receiver.news(2).await, ["WORKING", "COMPLETED"]);
        all_told(&store).await;
        assert!(receiver.is_quiet());
    }
}

#[tokio::test]
async fn a_reply_without_a_task_causes_no_notification() {
    let (server, store) = playing(|_| {}).await;
    let receiver = Receiver::start().await;
    for operation in ["SendMessage", "SendStreamingMessage"] {
        let params = send_with("message", &plain(receiver.url("/")));
        server.ask(operation, params).ok(Binding::JsonRpc).await;
        assert!(is_empty(&store).await && receiver.is_quiet());
    }
}

#[tokio::test]
async fn a_notification_says_what_it_is_and_whom_it_is_for() {
    let (server, _) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    let mut hook = plain(receiver.url("/"));
    hook["token"] = json!("sesame");
    hook["authentication"] = json!({"scheme": "Bearer", "credentials": "s3cret"});
    for binding in Binding::ALL {
        server.ask("SendMessage", send_with("chunks", &hook)).ok(binding).await;
        let mut ids = HashSet::new();
        // The artifacts that are not told have numbers too.
        for number in [1, 2, 6] {
            let call = receiver.told().await;
            assert_eq!(call.numbers(), (number, 1));
            assert_eq!(call.header("content-type"), "application/a2a+json");
            assert_eq!(call.header("content-length"), call.bytes.len().to_string());
            assert_eq!(call.header("transfer-encoding"), "");
            assert_eq!(call.header("a2a-version"), "1.0");
            assert!(call.header("user-agent").starts_with("attache/"));
            assert_eq!(call.header("authorization"), "Bearer s3cret", "{binding:?}");
            assert_eq!(call.header("x-a2a-notification-token"), "sesame", "{binding:?}");
            assert!(!call.headers.contains_key("x-a2a-signature"));
            assert!(ids.insert(call.id().to_owned()), "an id of its own");
        }
    }
}

#[tokio::test]
async fn without_credentials_there_is_nothing_to_authenticate_with() {
    let (server, _) = playing(|_| {}).await;
    let mut receiver = Receiver::start().await;
    for (authentication, sent) in [
        (json!({"scheme": "Basic", "credentials": "YTpi"}), Some("Basic YTpi")),
        (json!({"scheme": "digest", "credentials": "a=\"b\", c=d"}), Some("Digest a=\"b\", c=d")),
        (json!({"scheme": "Bearer"}), None),
        (json!({"scheme": "Bearer", "credentials": ""}), None),
        (Value::Null, None),
    ] {
        let mut hook = plain(receiver.url("/"));
        hook["authentication"] = authentication.clone();
        for binding in Binding::JSON {
            server.ask("SendMessage", send_with("hi", &hook)).ok(binding).await;
            for _ in 0..2 {
                let call = receiver.told().await;
                let header = call.headers.get("authorization").map(|value| value.to_str().unwrap());
                assert_eq!(header, sent, "{authentication}");
                assert!(!call.headers.contains_key("x-a2a-notification-token"));
            }
        }
    }
}

/// Checks the signature of a call as a receiver would. When it was made, if it holds.
fn signed_at(call: &Call, secret: &[u8]) -> Option<SystemTime> {
    let (time, signature) = call.header("x-a2a-signature").strip_prefix("t=")?.split_once(",v1=")?;
    let digits = signature.as_bytes().chunks(2);
    let byte = |two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    let signature: Vec<u8> = digits.map(byte).collect();
    let signed = [time.as_bytes(), b".", &call.bytes].concat();
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), &signed, &signature).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(time.parse().unwrap()))
}

#[tokio::test]
async fn a_signature_proves_the_sender_the_body_and_the_time() {
    let (server, _) = playing(|options| options.secret = Some(SigningSecret::new("between us"))).await;
    let mut receiver = Receiver::start().await;
    let before = SystemTime::now() - Duration::from_secs(1);
    task_with(&server, "hi", &plain(receiver.url("/"))).await;
    for status in [500, 200, 200] {
        let mut call = receiver.answer(status).await;
        let at = signed_at(&call, b"between us").expect("a signature that holds");
        assert!(before <= at && at <= SystemTime::now());
        assert_eq!(signed_at(&call, b"between others"), None);
        call.bytes = [&call.bytes[..], b" "].concat().into();
        assert_eq!(signed_at(&call, b"between us"), None);
    }
}

#[tokio::test]
async fn a_router_inside_an_application_tells_webhooks_too() {
    let store = Arc::new(MemoryStore::new());
    let agent = pushing(Player, &store, |_| {}).into_router("https://example.com").unwrap();
    let server = adopt(agent).await;
    let mut receiver = Receiver::start().await;
    for binding in Binding::ALL {
        let params = send_with("ask", &plain(receiver.url("/")));
        let id = server.ask("SendMessage", params).ok(binding).await["task"]["id"].clone();
        assert_eq!(receiver.answer(500).await.numbers(), (1, 1));
        assert_eq!(receiver.told().await.numbers(), (1, 2));
        assert_eq!(receiver.news(1).await, ["INPUT_REQUIRED"]);
        server.ask("SendMessage", send_to(&id, "this")).ok(binding).await;
        assert_eq!(receiver.news(2).await, ["WORKING", "COMPLETED"]);
        all_told(&store).await;
        assert!(receiver.is_quiet());
    }
}

#[tokio::test]
async fn a_router_guards_addresses_too() {
    let agent = Server::new(Player).card(card()).into_router("https://example.com").unwrap();
    let server = adopt(agent).await;
    for binding in Binding::ALL {
        let refusal =
            server.ask("SendMessage", send_with("hi", &plain("http://127.0.0.1/"))).refused(binding).await;
        assert_eq!(refusal.fields, ["configuration.taskPushNotificationConfig.url"], "{binding:?}");
    }
}
