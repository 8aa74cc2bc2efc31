//! Calls between workers, and from this process.

use std::time::Duration;

use attache_iii::{CallError, FunctionCall, FunctionInfo, Functions};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use crate::support::{SOON, call, engine};

#[tokio::test]
async fn a_call_reaches_another_worker_with_the_callers_id() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["pricing::quote"]).await;
    let mut caller = setup.worker().await;
    let id = Uuid::new_v4();
    caller.invoke(id, "pricing::quote", json!({ "sku": "A-1" })).await;
    let call = callee.work().await;
    assert_eq!(call["invocation_id"], json!(id));
    assert_eq!(call["data"], json!({ "sku": "A-1", "_caller_worker_id": caller.id }));
    callee.answer(&call, json!({ "price": 42 })).await;
    let expected = json!({
        "type": "invocationresult", "invocation_id": id, "function_id": "pricing::quote", "result": { "price": 42 },
    });
    assert_eq!(caller.next().await, expected);
}

#[tokio::test]
async fn an_error_reaches_the_caller_as_it_is() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["f"]).await;
    let mut caller = setup.worker().await;
    let id = Uuid::new_v4();
    caller.invoke(id, "f", json!(null)).await;
    callee.work().await;
    let error = json!({ "code": "invocation_failed", "message": "boom", "stacktrace": "at f" });
    callee.send(json!({ "type": "invocationresult", "invocation_id": id, "error": error })).await;
    assert_eq!(caller.next().await["error"], error);
}

#[tokio::test]
async fn a_missing_result_is_null() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["f"]).await;
    let calling = setup.call("f", json!({}));
    let answering = async {
        let call = callee.work().await;
        callee.send(json!({ "type": "invocationresult", "invocation_id": call["invocation_id"] })).await;
    };
    assert_eq!(tokio::join!(calling, answering).0, Ok(json!(null)));
}

#[tokio::test]
async fn an_unknown_function_is_not_found() {
    let setup = engine().await;
    let mut caller = setup.worker().await;
    let result = caller.call("nope::x", json!({})).await;
    let expected = json!({ "code": "function_not_found", "message": "Function nope::x not found in namespace default." });
    assert_eq!(result["error"], expected);
    let error = setup.call("nope::x", json!({})).await.unwrap_err();
    assert!(matches!(error, CallError::Remote { code, .. } if code == "function_not_found"));
}

#[tokio::test]
async fn a_function_that_was_unregistered_is_not_found() {
    let setup = engine().await;
    let mut worker = setup.worker_with(&["f"]).await;
    worker.send(json!({ "type": "unregisterfunction", "id": "f" })).await;
    assert_eq!(worker.error("f", json!({})).await, "function_not_found");
}

#[tokio::test]
async fn calls_to_one_worker_keep_their_order() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["f", "g"]).await;
    let mut caller = setup.worker().await;
    const COUNT: usize = 5000;
    let sending = async {
        for i in 0..COUNT {
            let function = ["f", "g"][i % 2];
            if i % 3 == 0 {
                let void = json!({ "type": "void" });
                caller.send(json!({ "type": "invokefunction", "function_id": function, "data": i, "action": void })).await;
            } else {
                caller.invoke(Uuid::new_v4(), function, json!(i)).await;
            }
        }
    };
    let receiving = async {
        for i in 0..COUNT {
            assert_eq!(callee.work().await["data"], json!(i));
        }
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn a_void_call_gets_no_result() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["f"]).await;
    let mut caller = setup.worker().await;
    for function in ["f", "nope", "state::get"] {
        let void = json!({ "type": "void" });
        caller.send(json!({ "type": "invokefunction", "invocation_id": null, "function_id": function, "data": {}, "action": void })).await;
    }
    let call = callee.work().await;
    assert!(call["invocation_id"].as_str().unwrap().parse::<Uuid>().is_ok());
    callee.answer(&call, json!(1)).await;
    callee.settle().await;
    caller.settle().await;
}

#[tokio::test]
async fn without_a_queue_provider_an_enqueue_fails() {
    let setup = engine().await;
    let mut caller = setup.worker_with(&["f"]).await;
    let action = json!({ "type": "enqueue", "queue": "default" });
    let id = Uuid::new_v4();
    caller
        .send(json!({ "type": "invokefunction", "invocation_id": id, "function_id": "f", "action": action }))
        .await;
    let result = caller.next().await;
    assert_eq!(result["error"]["code"], "enqueue_error");
    assert!(result["error"]["message"].as_str().unwrap().starts_with("No queue provider is installed"));
}

#[tokio::test]
async fn a_queue_provider_gets_the_call() {
    let setup = engine().await;
    let mut queue = setup.worker_with(&["engine::queue::enqueue"]).await;
    let mut caller = setup.worker().await;
    let action = json!({ "type": "enqueue", "queue": "slow" });
    let id = Uuid::new_v4();
    caller.send(json!({ "type": "invokefunction", "invocation_id": id, "function_id": "f", "data": [1], "action": action })).await;
    let call = queue.work().await;
    let receipt = call["data"]["messageReceiptId"].clone();
    assert_eq!((&call["data"]["queue"], &call["data"]["function_id"]), (&json!("slow"), &json!("f")));
    assert_eq!(call["data"]["data"], json!([1]));
    queue.answer(&call, json!(null)).await;
    assert_eq!(caller.next().await["result"], json!({ "messageReceiptId": receipt }));
}

#[tokio::test]
async fn a_worker_that_disappears_fails_its_calls_at_once() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["f"]).await;
    let mut caller = setup.worker().await;
    caller.invoke(Uuid::new_v4(), "f", json!({})).await;
    callee.work().await;
    drop(callee);
    let expected = json!({ "code": "invocation_stopped", "message": "Invocation stopped" });
    assert_eq!(caller.next().await["error"], expected);
    assert_eq!(caller.error("f", json!({})).await, "function_not_found");
}

#[tokio::test]
async fn two_callers_may_use_the_same_invocation_id() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["f"]).await;
    let (mut one, mut two) = (setup.worker().await, setup.worker().await);
    let id = Uuid::new_v4();
    one.invoke(id, "f", json!("one")).await;
    let first = callee.work().await;
    two.invoke(id, "f", json!("two")).await;
    let second = callee.work().await;
    assert_ne!(first["invocation_id"], second["invocation_id"]);
    callee.answer(&second, json!("for two")).await;
    callee.answer(&first, json!("for one")).await;
    let (for_one, for_two) = (one.next().await, two.next().await);
    assert_eq!((&for_one["invocation_id"], &for_one["result"]), (&json!(id), &json!("for one")));
    assert_eq!((&for_two["invocation_id"], &for_two["result"]), (&json!(id), &json!("for two")));
}

#[tokio::test]
async fn a_result_for_another_workers_call_is_dropped() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["f"]).await;
    let (mut caller, mut liar) = (setup.worker().await, setup.worker_with(&["g"]).await);
    caller.invoke(Uuid::new_v4(), "f", json!({})).await;
    let call = callee.work().await;
    liar.answer(&call, json!("a lie")).await;
    liar.settle().await;
    callee.answer(&call, json!("the truth")).await;
    callee.answer(&call, json!("twice")).await;
    assert_eq!(caller.next().await["result"], "the truth");
    caller.settle().await;
}

#[tokio::test]
async fn a_call_of_this_process_times_out() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["f"]).await;
    let timed_out = call(&setup.engine, "f", json!({}), Duration::from_millis(20)).await;
    assert_eq!(timed_out, Err(CallError::TimedOut));
    let late = callee.work().await;
    callee.answer(&late, json!("too late")).await;
    callee.settle().await;
    let listed = callee.result("engine::workers::list", json!({})).await;
    assert_eq!(listed["workers"][0]["active_invocations"], 0);
}

fn info(id: &str) -> FunctionInfo {
    FunctionInfo {
        id: id.into(),
        worker: None,
        description: None,
        request_format: None,
        response_format: None,
        metadata: None,
    }
}

#[tokio::test]
async fn workers_can_call_functions_of_this_process() {
    let setup = engine().await;
    setup.engine.register(info("a2a::whoami"), |invocation| async move {
        Ok(to_raw_value(&json!({ "caller": invocation.caller, "got": invocation.payload })).unwrap())
    });
    let mut worker = setup.worker().await;
    worker.result("engine::workers::register", json!({ "name": "me" })).await;
    let said = worker.result("a2a::whoami", json!([1])).await;
    assert_eq!(said, json!({ "caller": "me", "got": [1] }));
    assert_eq!(setup.call("a2a::whoami", json!(2)).await, Ok(json!({ "caller": null, "got": 2 })));
    assert!(setup.engine.unregister("a2a::whoami"));
    assert_eq!(worker.error("a2a::whoami", json!({})).await, "function_not_found");
}

#[tokio::test]
async fn a_function_of_this_process_that_panics_fails_its_call() {
    let setup = engine().await;
    setup.engine.register(info("demo::panic"), |_| async { panic!("on purpose") });
    let mut worker = setup.worker().await;
    assert_eq!(worker.error("demo::panic", json!({})).await, "invocation_failed");
    assert!(setup.call("demo::panic", json!({})).await.is_err());
}

#[tokio::test]
async fn the_trace_of_a_call_from_this_process_arrives() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["f"]).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let engine = setup.engine.clone();
    tokio::spawn(async move {
        let payload = RawValue::NULL;
        let trace_parent = Some(trace.parse().unwrap());
        engine.call(FunctionCall { function: "f", payload, timeout: SOON, trace_parent }).await
    });
    assert_eq!(callee.work().await["traceparent"], trace);
}

#[tokio::test]
async fn metadata_and_trace_context_of_a_call_arrive() {
    let setup = engine().await;
    let mut callee = setup.worker_with(&["f"]).await;
    let mut caller = setup.worker().await;
    let (trace, id) = ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Uuid::new_v4());
    caller
        .send(json!({
            "type": "invokefunction", "invocation_id": id, "function_id": "f", "data": "text",
            "traceparent": trace, "baggage": "a=\"b\"", "metadata": { "m": 1 },
        }))
        .await;
    let call = callee.work().await;
    assert_eq!((&call["traceparent"], &call["baggage"]), (&json!(trace), &json!("a=\"b\"")));
    assert_eq!((&call["metadata"], &call["data"]), (&json!({ "m": 1 }), &json!("text")));
}
