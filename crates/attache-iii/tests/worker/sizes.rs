//! Payloads that the SDK of a worker does not accept.

use attache_iii::worker::Worker;
use attache_iii::{CallError, FunctionCall, Functions};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::engine::{Engine, LONG, Peer, soon, text};

const MIB: usize = 1024 * 1024;

const WORKERS: &str = "engine::workers::list";

/// Calls a function of a worker that the engine describes like this. Returns whether the engine gets the call.
async fn passes(
    peer: &mut Peer,
    worker: &Worker,
    payload: Box<RawValue>,
    workers: Value,
) -> Result<(), String> {
    let worker = worker.clone();
    let mut calling = tokio::spawn(async move {
        let call =
            FunctionCall { function: "pricing::quote", payload: &payload, timeout: LONG, trace_parent: None };
        Functions::call(&worker, call).await
    });
    let mut called = peer.hear().await;
    if called["function_id"] == WORKERS {
        peer.answer(&called, workers).await;
        tokio::select! {
            next = peer.hear() => called = next,
            refused = &mut calling => {
                let Err(CallError::Remote { code, message }) = refused.unwrap() else { panic!("no error") };
                assert_eq!(code, "payload_too_large");
                return Err(message);
            }
        }
    }
    assert_eq!(called["function_id"], "pricing::quote");
    peer.answer(&called, json!(1)).await;
    soon(calling).await.unwrap().unwrap();
    Ok(())
}

fn listed(runtime: &str, version: &str) -> Value {
    json!({"workers": [
        {"name": "other", "runtime": "node", "version": "0.11.6", "functions": ["other::f"]},
        {"name": "pricing", "runtime": runtime, "version": version, "functions": ["pricing::quote"]},
    ]})
}

#[tokio::test]
async fn a_payload_is_refused_if_the_sdk_of_the_worker_does_not_accept_it() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    for (size, workers, refused) in [
        (MIB / 2, json!({}), None),
        (2 * MIB, listed("python", "0.25.0"), None),
        (2 * MIB, listed("node", "0.11.6"), None),
        (2 * MIB, listed("rust", "0.11.3"), None),
        (
            2 * MIB,
            listed("python", "0.11.3"),
            Some("the SDK of the worker of pricing::quote (python 0.11.3) accepts 1048576 bytes"),
        ),
        (17 * MIB, listed("rust", "0.11.3"), Some("(rust 0.11.3) accepts 16777216 bytes")),
        (2 * MIB, json!({"workers": []}), Some("whose SDK is not known, accepts 1048576 bytes")),
        (2 * MIB, json!("nonsense"), Some("whose SDK is not known, accepts 1048576 bytes")),
    ] {
        let result = passes(&mut peer, &worker, text(size), workers.clone()).await;
        match refused {
            None => assert_eq!(result, Ok(()), "{size} {workers}"),
            Some(expected) => {
                let error = result.unwrap_err();
                assert!(
                    error.starts_with("The payload is too large: ") && error.contains(expected),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_size_is_that_after_the_engine_has_encoded_the_payload_again() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let numbers = vec!["1e15"; 100_000].join(",");
    let payload = RawValue::from_string(format!("[{numbers}]")).unwrap();
    assert!(payload.get().len() < MIB);
    passes(&mut peer, &worker, payload, listed("python", "0.11.3")).await.unwrap_err();
}

#[tokio::test]
async fn a_result_is_refused_if_the_sdk_of_the_caller_does_not_accept_it() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    worker.register(crate::engine::function("a"), |_| async { Ok(text(2 * MIB)) });
    let workers = json!({"workers": [{"id": "w-py", "runtime": "python", "version": "0.11.3"},
        {"id": "w-js", "runtime": "node", "version": "0.11.6"}]});
    for (number, caller, accepted) in [(1, "w-py", false), (2, "w-js", true), (3, "w-gone", false)] {
        peer.invoke(number, "a", json!({"_caller_worker_id": caller})).await;
        let asked = peer.call(WORKERS).await;
        peer.answer(&asked, workers.clone()).await;
        let (_, result) = peer.result().await;
        assert_eq!(result["error"]["code"] != "result_too_large", accepted, "{caller}");
    }
    // A request over HTTP has no calling worker.
    peer.invoke(4, "a", json!({"path": "a"})).await;
    assert!(peer.result().await.1["error"].is_null());
}

#[tokio::test]
async fn the_operator_can_set_the_limit() {
    let engine = Engine::start().await;
    let worker = Worker::connect(engine.options().with(|options| options.max_payload = Some(1000))).unwrap();
    let mut peer = engine.join().await;
    let payload = text(1000);
    let call = FunctionCall { function: "a", payload: &payload, timeout: LONG, trace_parent: None };
    let error = soon(worker.call(call)).await.unwrap_err();
    let text = "The payload is too large: this server accepts 1000 bytes";
    assert_eq!(error, CallError::remote("payload_too_large", text));
    passes(&mut peer, &worker, crate::engine::text(900), json!({})).await.unwrap();
}
