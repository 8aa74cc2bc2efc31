//! Calls of functions of the engine.

use std::time::Duration;

use attache_iii::wire::MAX_MESSAGE;
use attache_iii::worker::{Connection, Worker};
use attache_iii::{CallError, FunctionCall, Functions};
use serde_json::json;

use crate::engine::{Engine, LONG, call, call_within, raw, soon, text};

#[tokio::test]
async fn a_call_returns_its_result() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let calling = tokio::spawn({
        let worker = worker.clone();
        async move { call(&worker, "pricing::quote", json!({"sku": "A-1"})).await }
    });
    let called = peer.call("pricing::quote").await;
    assert_eq!(called["data"], json!({"sku": "A-1"}));
    peer.answer(&called, json!({"price": 42})).await;
    assert_eq!(soon(calling).await.unwrap(), Ok(json!({"price": 42})));
}

#[tokio::test]
async fn a_failed_call_returns_the_functions_error() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let calling = tokio::spawn(async move { call(&worker, "a", json!({})).await });
    let called = peer.call("a").await;
    peer.fail(&called, "invocation_failed", "boom").await;
    let error = soon(calling).await.unwrap().unwrap_err();
    assert_eq!(error, CallError::remote("invocation_failed", "boom"));
    assert_eq!(error.to_string(), "remote error (invocation_failed): boom");
}

#[tokio::test]
async fn no_result_is_null() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let calling = tokio::spawn(async move { call(&worker, "a", json!({})).await });
    let called = peer.call("a").await;
    let id = &called["invocation_id"];
    peer.say(json!({"type": "invocationresult", "invocation_id": id, "function_id": "a"})).await;
    assert_eq!(soon(calling).await.unwrap(), Ok(json!(null)));
}

#[tokio::test]
async fn results_are_matched_to_calls_in_any_order() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let calls: Vec<_> = (0..2000)
        .map(|number| {
            let worker = worker.clone();
            tokio::spawn(async move { (number, call(&worker, "a", json!(number)).await) })
        })
        .collect();
    let mut heard = Vec::new();
    for _ in &calls {
        heard.push(peer.call("a").await);
    }
    for called in heard.iter().rev() {
        peer.answer(called, called["data"].clone()).await;
    }
    for calling in calls {
        let (number, answer) = soon(calling).await.unwrap();
        assert_eq!(answer, Ok(json!(number)));
    }
}

#[tokio::test]
async fn the_trace_of_a_call_is_sent_with_it() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let calling = tokio::spawn(async move {
        let (payload, trace_parent) = (raw(&json!([1])), Some(trace.parse().unwrap()));
        worker.call(FunctionCall { function: "a", payload: &payload, timeout: LONG, trace_parent }).await
    });
    let called = peer.call("a").await;
    assert_eq!(called["traceparent"], trace);
    peer.answer(&called, json!(null)).await;
    soon(calling).await.unwrap().unwrap();
}

#[tokio::test]
async fn metadata_is_sent_with_the_payload() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let calling = tokio::spawn(async move {
        let (payload, metadata) = (raw(&json!([1])), raw(&json!({"task": "t-1"})));
        worker
            .call_with(
                FunctionCall { function: "a", payload: &payload, timeout: LONG, trace_parent: None },
                &metadata,
            )
            .await
    });
    let called = peer.call("a").await;
    assert_eq!((&called["data"], &called["metadata"]), (&json!([1]), &json!({"task": "t-1"})));
    peer.answer(&called, json!(1)).await;
    soon(calling).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_call_that_is_only_sent_expects_no_answer() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let payload = raw(&json!({"scope": "s"}));
    soon(worker.send(FunctionCall {
        function: "state::set",
        payload: &payload,
        timeout: LONG,
        trace_parent: None,
    }))
    .await
    .unwrap();
    let sent = json!({"type": "invokefunction", "function_id": "state::set", "data": {"scope": "s"},
        "action": {"type": "void"}});
    assert_eq!(peer.hear().await, sent);
}

#[tokio::test]
async fn open_calls_fail_at_once_when_the_connection_is_lost() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let calls: Vec<_> = (0..50)
        .map(|number| {
            let worker = worker.clone();
            tokio::spawn(async move { call(&worker, "slow", json!(number)).await })
        })
        .collect();
    for _ in &calls {
        peer.call("slow").await;
    }
    drop(peer);
    for calling in calls {
        assert_eq!(soon(calling).await.unwrap(), Err(CallError::Disconnected));
    }
}

#[tokio::test]
async fn calls_fail_at_once_while_the_engine_is_away_and_work_when_it_is_back() {
    let (engine, peer, worker) = Engine::with_worker().await;
    drop(peer);
    let mut state = worker.state();
    soon(state.wait_for(|state| *state == Connection::Connecting)).await.unwrap();
    assert_eq!(call(&worker, "a", json!({})).await, Err(CallError::Disconnected));
    let payload = raw(&json!({}));
    let sent = worker
        .send(FunctionCall { function: "a", payload: &payload, timeout: LONG, trace_parent: None })
        .await;
    assert_eq!(sent, Err(CallError::Disconnected));

    let mut peer = engine.join().await;
    soon(worker.connected()).await;
    let calling = tokio::spawn(async move { call(&worker, "a", json!({})).await });
    let called = peer.call("a").await;
    peer.answer(&called, json!("back")).await;
    assert_eq!(soon(calling).await.unwrap(), Ok(json!("back")));
}

#[tokio::test]
async fn calls_made_before_the_first_connection_wait_for_it() {
    let engine = Engine::start().await;
    let worker = engine.worker();
    let calling = tokio::spawn(async move { call(&worker, "a", json!({})).await });
    let mut peer = engine.join().await;
    let called = peer.call("a").await;
    peer.answer(&called, json!(1)).await;
    assert_eq!(soon(calling).await.unwrap(), Ok(json!(1)));
}

#[tokio::test]
async fn calls_made_before_the_first_connection_time_out() {
    let engine = Engine::start().await;
    let answer = call_within(&engine.worker(), "a", json!({}), Duration::from_millis(20)).await;
    assert_eq!(answer, Err(CallError::Disconnected));
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_and_a_late_result_is_ignored() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let answer = call_within(&worker, "slow", json!({}), Duration::from_millis(20)).await;
    assert_eq!(answer, Err(CallError::TimedOut));
    let late = peer.call("slow").await;
    peer.answer(&late, json!("late")).await;
    let calling = tokio::spawn(async move { call(&worker, "b", json!({})).await });
    let called = peer.call("b").await;
    peer.answer(&called, json!("b")).await;
    assert_eq!(soon(calling).await.unwrap(), Ok(json!("b")));
}

#[tokio::test]
async fn large_messages_pass_both_ways() {
    let engine = Engine::start().await;
    let options = engine.options().with(|options| options.max_payload = Some(MAX_MESSAGE));
    let worker = Worker::connect(options).unwrap();
    let mut peer = engine.join().await;
    // More than an engine accepts in one frame, with multi-byte characters at the frame boundaries.
    let large = "é…".repeat(4 * 1024 * 1024);
    let payload = json!(large);
    let calling = tokio::spawn(async move { Functions::call(&worker, owned(&raw(&payload))).await });
    let called = peer.call("a").await;
    assert_eq!(called["data"].as_str().map(str::len), Some(large.len()));
    peer.answer(&called, called["data"].clone()).await;
    assert_eq!(soon(calling).await.unwrap().unwrap().get().len(), large.len() + 2);
}

fn owned(payload: &serde_json::value::RawValue) -> FunctionCall<'_> {
    FunctionCall { function: "a", payload, timeout: LONG, trace_parent: None }
}

#[tokio::test]
async fn a_payload_that_is_too_large_fails_its_call_only() {
    let engine = Engine::start().await;
    let options = engine.options().with(|options| options.max_payload = Some(2 * MAX_MESSAGE));
    let worker = Worker::connect(options).unwrap();
    let mut peer = engine.join().await;
    let error = soon(worker.call(owned(&text(MAX_MESSAGE)))).await.unwrap_err();
    assert!(matches!(error, CallError::Remote { code, .. } if code == "payload_too_large"));
    let calling = tokio::spawn(async move { call(&worker, "a", json!("small")).await });
    let called = peer.call("a").await;
    assert_eq!(called["data"], "small");
    peer.answer(&called, json!(1)).await;
    soon(calling).await.unwrap().unwrap();
}
