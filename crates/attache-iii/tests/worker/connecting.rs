//! Connecting to an engine, and reconnecting.

use std::time::Duration;

use attache_iii::CallError;
use attache_iii::worker::{Connection, Invocation, Rejection, Worker, WorkerOptions};
use http::StatusCode;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::engine::{Engine, call, function, raw, soon};

#[tokio::test]
async fn a_worker_sends_its_registrations_and_then_its_metadata() {
    let engine = Engine::start().await;
    let worker = engine.worker();
    worker.register(function("pricing::quote"), |call: Invocation| async move { Ok(call.data) });
    let trigger = worker.register_trigger("http", "pricing::quote", json!({"api_path": "quote"}));
    let mut peer = engine.greet("w-1").await;
    let said = peer.introduction().await;
    assert_eq!(said[0], json!({"type": "registerfunction", "id": "pricing::quote"}));
    assert_eq!(
        said[1],
        json!({"type": "registertrigger", "id": trigger.id(), "trigger_type": "http",
            "function_id": "pricing::quote", "config": {"api_path": "quote"}})
    );
    assert_eq!(said[2]["action"], json!({"type": "void"}));
    assert_eq!(said[2].get("invocation_id"), None);
    let about = &said[2]["data"];
    assert_eq!((&about["runtime"], &about["name"]), (&json!("rust"), &json!("tester")));
    assert_eq!(about["pid"], std::process::id());
    soon(worker.connected()).await;
    assert_eq!(*worker.state().borrow(), Connection::Connected { worker_id: "w-1".to_owned() });
}

#[tokio::test]
async fn later_registrations_are_sent_at_once() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let registration = worker.register(function("late"), |_| async { Ok(raw(&json!(1))) });
    assert_eq!(peer.hear().await, json!({"type": "registerfunction", "id": "late"}));
    registration.unregister();
    assert_eq!(peer.hear().await, json!({"type": "unregisterfunction", "id": "late"}));
}

#[tokio::test]
async fn everything_is_registered_again_after_a_restart_of_the_engine() {
    let engine = Engine::start().await;
    let worker = engine.worker();
    worker.register(function("a"), |_| async { Ok(raw(&json!("a"))) });
    worker.register(function("b"), |_| async { Ok(raw(&json!("b"))) });
    worker.register_trigger("cron", "a", json!({"expression": "* * * * *"}));
    let mut peer = engine.greet("w-1").await;
    let before = peer.introduction().await;
    drop(peer);

    let mut peer = engine.greet("w-2").await;
    let after = peer.introduction().await;
    let reattach = json!({"type": "reattach", "previous_worker_id": "w-1", "reattach_token": "w-1-token"});
    assert_eq!(after[0], reattach);
    assert_eq!(after[1..], before);
    peer.invoke(1, "b", json!({})).await;
    assert_eq!(peer.result().await.1["result"], "b");
}

#[tokio::test]
async fn workers_reconnect_to_engines_without_tokens() {
    let engine = Engine::start().await;
    let _worker = engine.worker();
    for attempt in 0..3 {
        let mut peer = engine.accept().await;
        peer.say(json!({"type": "workerregistered", "worker_id": format!("w-{attempt}")})).await;
        let said = peer.introduction().await;
        assert_eq!(said.len(), if attempt == 0 { 1 } else { 2 });
        assert_eq!(said[0].get("reattach_token"), None);
    }
}

#[tokio::test]
async fn a_worker_keeps_trying_until_there_is_an_engine() {
    let address = {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        nobody.local_addr().unwrap()
    };
    let options = WorkerOptions::new(format!("ws://{address}")).with(|options| {
        options.reconnect_min = Duration::from_millis(5);
        options.reconnect_max = Duration::from_millis(20);
    });
    let worker = Worker::connect(options).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(*worker.state().borrow(), Connection::Connecting);
    let engine = Engine::at(address).await;
    let _peer = engine.join().await;
    soon(worker.connected()).await;
}

#[tokio::test]
async fn a_silent_engine_counts_as_lost() {
    let engine = Engine::start().await;
    let options = engine.options().with(|options| {
        options.ping_interval = Duration::from_millis(20);
        options.dead_after = Duration::from_millis(200);
    });
    let _worker = Worker::connect(options).unwrap();
    // The engine's end is not polled any more, so it answers no pings.
    let _silent = engine.join().await;
    let mut peer = engine.greet("w-2").await;
    assert_eq!(peer.hear().await["previous_worker_id"], "w-1");
}

#[tokio::test]
async fn an_engine_that_answers_pings_stays_connected() {
    let engine = Engine::start().await;
    let options = engine.options().with(|options| {
        options.ping_interval = Duration::from_millis(50);
        options.dead_after = Duration::from_millis(500);
    });
    let worker = Worker::connect(options).unwrap();
    let mut peer = engine.join().await;
    for _ in 0..15 {
        peer.pinged().await;
    }
    assert_eq!(*worker.state().borrow(), Connection::Connected { worker_id: "w-1".to_owned() });
}

#[tokio::test]
async fn pings_in_json_are_answered_and_strange_messages_are_not() {
    let (_engine, mut peer, _worker) = Engine::with_worker().await;
    peer.frame(Frame::text("not json")).await;
    peer.say(json!({"type": "functionregistered", "id": "a"})).await;
    peer.say(json!({"type": "invokefunction", "invocation_id": "no uuid", "function_id": "a"})).await;
    peer.frame(Frame::binary(json!({"type": "ping"}).to_string())).await;
    assert_eq!(peer.hear().await, json!({"type": "pong"}));
}

#[tokio::test]
async fn the_token_and_the_headers_are_sent_when_connecting() {
    let engine = Engine::start().await;
    let mut options = engine.options().token("s3cret").unwrap();
    options.headers.insert("x-iii-rbac-tag", "a2a".parse().unwrap());
    options.url += "/?tenant=1";
    let _worker = Worker::connect(options).unwrap();
    let peer = engine.accept().await;
    assert_eq!(peer.headers["authorization"], "Bearer s3cret");
    assert_eq!(peer.headers["x-iii-rbac-tag"], "a2a");
    assert_eq!(peer.path, "/?tenant=1");
}

#[tokio::test]
async fn a_worker_whose_name_is_taken_is_rejected_and_retries() {
    let engine = Engine::start().await;
    let worker = engine.worker();
    let mut peer = engine.join().await;
    let conflict = json!({"type": "registrationrejected", "code": "WORKER_NAMESPACE_CONFLICT",
        "namespace": "default", "worker_name": "tester", "owner_worker_id": "w-0"});
    peer.say(conflict.clone()).await;
    let rejected = |state: &Connection| matches!(state, Connection::Rejected(_));
    let mut state = worker.state();
    let Connection::Rejected(Rejection { code, message }) =
        soon(state.wait_for(rejected)).await.unwrap().clone()
    else {
        unreachable!()
    };
    assert_eq!((code.as_str(), message.contains("`w-0`")), ("WORKER_NAMESPACE_CONFLICT", true));
    assert_eq!(call(&worker, "a", json!({})).await, Err(CallError::Disconnected));

    // The engine rejects it once more. The state does not change to connected for a moment.
    let mut peer = engine.greet("w-2").await;
    peer.introduction().await;
    peer.say(conflict).await;
    peer.end().await;
    let mut peer = engine.greet("w-3").await;
    assert!(!state.has_changed().unwrap());
    peer.introduction().await;
    soon(worker.connected()).await;
}

#[tokio::test]
async fn a_rejected_worker_reports_the_reason() {
    let engine = Engine::start().await;
    let worker = engine.worker();
    let mut state = worker.state();
    let mut peer = engine.accept().await;
    peer.say(json!({"type": "error", "error": {"code": "AUTH_ERROR", "message": "bad token"}})).await;
    soon(state.wait_for(
        |state| matches!(state, Connection::Rejected(rejection) if rejection.code == "AUTH_ERROR"),
    ))
    .await
    .unwrap();
    // It was never connected.
    assert_eq!(call(&worker, "a", json!({})).await, Err(CallError::Disconnected));
    engine.refuse(StatusCode::UNAUTHORIZED).await;
    soon(state.wait_for(|state| matches!(state, Connection::Rejected(rejection) if rejection.code == "401")))
        .await
        .unwrap();
    let _peer = engine.join().await;
    soon(worker.connected()).await;
}

#[tokio::test]
async fn wss_speaks_tls() {
    let engine = Engine::start().await;
    let url = engine.url().replace("ws://", "wss://");
    let _worker = Worker::connect(engine.options().with(|options| options.url = url)).unwrap();
    let mut stream = engine.accept_stream().await;
    let mut hello = [0; 3];
    soon(stream.read_exact(&mut hello)).await.unwrap();
    assert_eq!(hello[..2], [0x16, 0x03]);
}

#[test]
fn a_worker_without_a_runtime_is_an_error() {
    let error = Worker::connect(WorkerOptions::default()).unwrap_err();
    assert!(error.to_string().contains("runtime"));
}
