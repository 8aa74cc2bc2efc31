//! Calls of the worker's own functions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use attache_iii::CallError;
use attache_iii::wire::MAX_MESSAGE;
use attache_iii::worker::{Invocation, Worker};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::engine::{Engine, Peer, function, raw, soon, text};

/// A worker with one registered function.
async fn offering<F, R>(handler: F) -> (Peer, Worker)
where
    F: Fn(Invocation) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Box<serde_json::value::RawValue>, CallError>> + Send + 'static,
{
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    worker.register(function("f"), handler);
    peer.message("registerfunction").await;
    (peer, worker)
}

#[tokio::test]
async fn every_call_gets_one_result_with_its_id() {
    let (mut peer, _worker) = offering(|call: Invocation| async move { Ok(call.data) }).await;
    for number in 1..=100_u128 {
        peer.invoke(number, "f", json!(number.to_string())).await;
    }
    let mut answered = Vec::new();
    for _ in 0..100 {
        let (number, result) = peer.result().await;
        assert_eq!((&result["result"], &result["function_id"]), (&json!(number.to_string()), &json!("f")));
        answered.push(number);
    }
    answered.sort_unstable();
    assert!(answered.into_iter().eq(1..=100));
    peer.say(json!({"type": "ping"})).await;
    assert_eq!(peer.hear().await["type"], "pong");
}

#[tokio::test]
async fn all_members_of_a_call_reach_the_handler() {
    let (mut peer, _worker) = offering(|call: Invocation| async move {
        let metadata: Option<Value> =
            call.metadata.as_ref().map(|raw| serde_json::from_str(raw.get()).unwrap());
        let payload: Value = serde_json::from_str(call.payload().get()).unwrap();
        let caller = call.caller();
        Ok(raw(&json!([caller, payload, metadata, call.traceparent, call.baggage])))
    })
    .await;
    peer.say(json!({"type": "invokefunction", "invocation_id": uuid::Uuid::from_u128(1), "function_id": "f",
        "data": {"_caller_worker_id": "w-9", "sku": "A"}, "metadata": {"m": 1}, "traceparent": "00-1", "baggage": "k=v"}))
        .await;
    let (_, result) = peer.result().await;
    assert_eq!(result["result"], json!(["w-9", {"sku": "A"}, {"m": 1}, "00-1", "k=v"]));
}

#[tokio::test]
async fn a_handlers_error_is_passed_on_with_its_code() {
    let (mut peer, _worker) =
        offering(|_| async { Err(CallError::remote("out_of_stock", "no more of these")) }).await;
    peer.invoke(1, "f", json!({})).await;
    let (_, result) = peer.result().await;
    assert_eq!(result["error"], json!({"code": "out_of_stock", "message": "no more of these"}));
    assert_eq!(result.get("result"), None);
}

#[tokio::test]
async fn a_handler_that_panics_fails_only_its_call() {
    let (mut peer, _worker) = offering(|call: Invocation| {
        // One panic before the future exists, and one inside it.
        assert_ne!(call.data.get(), "1", "as the test wants it");
        async move {
            assert_ne!(call.data.get(), "2", "as the test wants it");
            Ok(call.data)
        }
    })
    .await;
    for number in 1..=3 {
        peer.invoke(number, "f", json!(number.to_string().parse::<u8>().unwrap())).await;
    }
    for _ in 1..=3 {
        let (number, result) = peer.result().await;
        match number {
            3 => assert_eq!(result["result"], 3),
            _ => assert_eq!(result["error"]["code"], "invocation_failed"),
        }
    }
}

#[tokio::test]
async fn a_call_of_an_unknown_function_gets_an_error() {
    let (mut peer, _worker) = offering(|call: Invocation| async move { Ok(call.data) }).await;
    peer.invoke(1, "g", json!({})).await;
    assert_eq!(peer.result().await.1["error"]["code"], "function_not_found");
}

#[tokio::test]
async fn a_void_call_is_run_without_a_result() {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let (mut peer, _worker) = offering(move |call: Invocation| {
        let before = count.fetch_add(1, Ordering::SeqCst);
        async move { if before == 0 { Err(CallError::TimedOut) } else { Ok(call.data) } }
    })
    .await;
    peer.say(json!({"type": "invokefunction", "function_id": "f", "data": 1})).await;
    peer.invoke(2, "f", json!(2)).await;
    assert_eq!(peer.hear().await["invocation_id"], json!(uuid::Uuid::from_u128(2)));
    assert_eq!(ran.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn calls_beyond_the_limit_are_refused_until_others_end() {
    let engine = Engine::start().await;
    let worker = Worker::connect(engine.options().with(|options| options.at_once = 2)).unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    worker.register(function("f"), move |call: Invocation| {
        let opened = opened.clone();
        async move {
            opened.acquire().await.unwrap().forget();
            Ok(call.data)
        }
    });
    let mut peer = engine.join().await;
    for number in 1..=3 {
        peer.invoke(number, "f", json!({})).await;
    }
    let (number, refused) = peer.result().await;
    assert_eq!((number, &refused["error"]["code"]), (3, &json!("worker_overloaded")));
    gate.add_permits(3);
    peer.result().await;
    peer.result().await;
    // The permit is released after the result is queued, which may be shortly after the result arrives here.
    soon(async {
        loop {
            peer.invoke(4, "f", json!("in")).await;
            if peer.result().await.1["result"] == "in" {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_slow_call_does_not_delay_others() {
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let (mut peer, _worker) = offering(move |call: Invocation| {
        let opened = opened.clone();
        async move {
            if call.data.get() == "\"slow\"" {
                let _ = opened.acquire().await.unwrap();
            }
            Ok(call.data)
        }
    })
    .await;
    peer.invoke(1, "f", json!("slow")).await;
    peer.invoke(2, "f", json!("quick")).await;
    assert_eq!(peer.result().await.0, 2);
    gate.add_permits(1);
    assert_eq!(peer.result().await.0, 1);
}

#[tokio::test]
async fn a_result_that_is_too_large_becomes_an_error() {
    let (mut peer, _worker) = offering(|call: Invocation| async move {
        Ok(if call.data.get() == "1" { text(MAX_MESSAGE) } else { call.data })
    })
    .await;
    peer.invoke(1, "f", json!(1)).await;
    assert_eq!(peer.result().await.1["error"]["code"], "result_too_large");
    peer.invoke(2, "f", json!(2)).await;
    assert_eq!(peer.result().await.1["result"], 2);
}

#[tokio::test]
async fn a_function_that_another_worker_has_is_refused_and_the_rest_stays() {
    let (_engine, mut peer, worker) = Engine::with_worker().await;
    let mine = worker.register(function("mine"), |_| async { Ok(raw(&json!("mine"))) });
    let theirs = worker.register(function("theirs"), |_| async { Ok(raw(&json!("theirs"))) });
    peer.say(
        json!({"type": "registrationrejected", "code": "FUNCTION_NAMESPACE_CONFLICT", "namespace": "default",
        "function_id": "theirs", "owner_worker_id": "w-0"}),
    )
    .await;
    let mut rejection = theirs.rejection();
    let refused = soon(rejection.wait_for(Option::is_some)).await.unwrap().clone().unwrap();
    assert_eq!(refused.code, "FUNCTION_NAMESPACE_CONFLICT");
    assert!(refused.message.contains("`w-0`"));
    assert_eq!(*mine.rejection().borrow(), None);
    peer.invoke(1, "mine", json!({})).await;
    assert_eq!(peer.result().await.1["result"], "mine");
}

#[tokio::test]
async fn a_refused_trigger_has_the_reason() {
    let (engine, mut peer, worker) = Engine::with_worker().await;
    let trigger = worker.register_trigger("http", "f", json!({}));
    peer.say(json!({"type": "triggerregistrationresult", "id": trigger.id(), "trigger_type": "http",
        "function_id": "f", "error": {"code": "trigger_registration_failed", "message": "api_path is required"}}))
        .await;
    let mut rejection = trigger.rejection();
    let refused = soon(rejection.wait_for(Option::is_some)).await.unwrap().clone().unwrap();
    assert_eq!(refused.message, "api_path is required");
    // Another engine may accept it.
    drop(peer);
    let _peer = engine.join().await;
    soon(rejection.wait_for(Option::is_none)).await.unwrap();
}

#[tokio::test]
async fn unregistered_functions_are_not_registered_again() {
    let (engine, peer, worker) = Engine::with_worker().await;
    let old = worker.register(function("f"), |_| async { Ok(raw(&json!("old"))) });
    worker.register(function("f"), |_| async { Ok(raw(&json!("new"))) });
    let other = worker.register(function("g"), |_| async { Ok(raw(&json!("g"))) });
    let trigger = worker.register_trigger("cron", "f", json!({}));
    // The first `f` was replaced: unregistering it has no effect.
    old.unregister();
    other.unregister();
    trigger.unregister();
    drop(peer);
    let mut peer = engine.greet("w-2").await;
    let said = peer.introduction().await;
    assert_eq!(said[1..said.len() - 1], [json!({"type": "registerfunction", "id": "f"})]);
    peer.invoke(1, "f", json!({})).await;
    assert_eq!(peer.result().await.1["result"], "new");
}
