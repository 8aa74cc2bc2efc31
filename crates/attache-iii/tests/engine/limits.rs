//! A worker cannot disturb other workers.

use attache_iii::engine::EngineLimits;
use futures::SinkExt;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use crate::support::{Worker, engine_with};

#[tokio::test]
async fn a_worker_with_too_many_open_calls_gets_an_error() {
    let setup = engine_with(|options| options.limits.calls_by_worker = 2).await;
    let mut callee = setup.worker_with(&["f"]).await;
    let mut caller = setup.worker().await;
    for _ in 0..2 {
        caller.invoke(Uuid::new_v4(), "f", json!({})).await;
    }
    assert_eq!(caller.error("f", json!({})).await, "too_many_calls");
    let call = callee.work().await;
    callee.answer(&call, json!(1)).await;
    assert_eq!(caller.next().await["result"], 1);
    caller.invoke(Uuid::new_v4(), "f", json!({})).await;
    for _ in 0..2 {
        callee.work().await;
    }
}

#[tokio::test]
async fn an_overloaded_worker_gets_no_more_calls() {
    let setup = engine_with(|options| options.limits.calls_to_worker = 1).await;
    let _callee = setup.worker_with(&["f"]).await;
    let mut caller = setup.worker().await;
    caller.invoke(Uuid::new_v4(), "f", json!({})).await;
    assert_eq!(caller.error("f", json!({})).await, "worker_overloaded");
}

#[tokio::test]
async fn calls_to_a_worker_that_does_not_read_fail_at_once() {
    let setup = engine_with(|options| options.limits.queued_bytes = 1 << 20).await;
    let _callee = setup.worker_with(&["f"]).await;
    let mut caller = setup.worker().await;
    let big = "x".repeat(1 << 20);
    let sending = async {
        loop {
            caller.invoke(Uuid::new_v4(), "f", json!(big)).await;
            caller.send(json!({ "type": "ping" })).await;
            let frame = caller.next().await;
            if frame["type"] == "invocationresult" {
                break frame["error"]["code"].clone();
            }
        }
    };
    assert_eq!(sending.await, "worker_overloaded");
}

#[tokio::test]
async fn a_worker_that_does_not_read_its_results_is_disconnected_and_others_go_on() {
    let setup = engine_with(|options| {
        options.limits.queued_bytes = 1 << 20;
        options.limits.calls_by_worker = 100;
    })
    .await;
    let callee = setup.worker_with(&["f"]).await;
    let big = json!("x".repeat(400_000));
    callee.run(move |_| big.clone());
    let mut deaf = setup.worker_with(&["deaf"]).await;
    let mut updates = attache_iii::Functions::updates(&setup.engine);
    let gone = updates.wait_for(|catalog| catalog.as_ref().is_some_and(|all| !all.contains_key("deaf")));
    let flooding = async {
        for _ in 0..100 {
            let call =
                json!({ "type": "invokefunction", "invocation_id": Uuid::new_v4(), "function_id": "f" });
            if deaf.socket.send(Message::text(call.to_string())).await.is_err() {
                break;
            }
        }
        gone.await.unwrap();
    };
    flooding.await;
    assert!(setup.call("f", json!({})).await.is_ok());
}

#[tokio::test]
async fn a_worker_registers_a_limited_number_of_functions() {
    let setup = engine_with(|options| options.limits.functions = 2).await;
    let mut worker = setup.worker_with(&["a", "b", "b"]).await;
    worker.send(json!({ "type": "registerfunction", "id": "c" })).await;
    assert_eq!(worker.next().await["code"], "FUNCTION_LIMIT_EXCEEDED");
    worker.send(json!({ "type": "unregisterfunction", "id": "a" })).await;
    worker.send(json!({ "type": "registerfunction", "id": "c" })).await;
    worker.settle().await;
}

/// The registration of a function in this many bytes.
fn registration(id: &str, size: usize) -> String {
    let least = json!({ "type": "registerfunction", "id": id, "description": "" }).to_string();
    let description = format!("\"description\":\"{}\"", "x".repeat(size - least.len()));
    least.replace("\"description\":\"\"", &description)
}

#[tokio::test]
async fn the_size_of_a_registration_is_limited() {
    let setup = engine_with(|options| options.limits.registration = 1000).await;
    let mut worker = setup.worker().await;
    worker.send_text(&registration("f", 1000)).await;
    worker.settle().await;
    worker.send_text(&registration("f", 1001)).await;
    assert_eq!(worker.next().await["code"], "FUNCTION_LIMIT_EXCEEDED");
}

#[tokio::test]
async fn the_size_of_all_registrations_of_a_worker_is_limited() {
    let setup = engine_with(|options| options.limits.registrations = 2000).await;
    let mut worker = setup.worker().await;
    for id in ["a", "b"] {
        worker.send_text(&registration(id, 1000)).await;
    }
    worker.settle().await;
    worker.send_text(&registration("b", 1001)).await;
    assert_eq!(worker.next().await["code"], "FUNCTION_LIMIT_EXCEEDED");
    worker.send_text(&registration("c", 100)).await;
    assert_eq!(worker.next().await["function_id"], "c");
    // A function that is registered again counts once.
    worker.send_text(&registration("b", 900)).await;
    worker.send_text(&registration("c", 100)).await;
    worker.settle().await;
}

#[tokio::test]
async fn a_worker_has_a_limited_number_of_triggers() {
    let setup = engine_with(|options| options.limits.triggers = 1).await;
    let mut worker = setup.worker().await;
    for id in ["a", "a", "b"] {
        worker
            .send(json!({ "type": "registertrigger", "id": id, "trigger_type": "state", "function_id": "f" }))
            .await;
    }
    let answer = worker.next().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["message"]),
        (&json!("b"), &json!("a worker may have at most 1 triggers"))
    );
}

#[tokio::test]
async fn an_invalid_function_id_is_ignored() {
    let setup = engine_with(|_| {}).await;
    let mut worker = setup.worker().await;
    for id in ["", "a\nb", &"x".repeat(257)] {
        worker.send(json!({ "type": "registerfunction", "id": id })).await;
    }
    let listed = worker.result("engine::functions::list", json!({ "worker": worker.id })).await;
    assert_eq!(listed["functions"], json!([]));
}

#[tokio::test]
async fn a_large_message_is_carried() {
    let setup = engine_with(|_| {}).await;
    let callee = setup.worker_with(&["f"]).await;
    callee.run(|call| json!(call["data"].as_str().unwrap().len()));
    assert_eq!(setup.call("f", json!("x".repeat(20_000_000))).await, Ok(json!(20_000_000)));
}

#[tokio::test]
async fn a_flood_from_one_worker_does_not_disturb_another() {
    let setup = engine_with(|options| options.limits.queued_frames = 1000).await;
    let callee = setup.worker_with(&["f"]).await;
    callee.run(|call| call["data"]["n"].clone());
    let mut flooder = setup.worker().await;
    let flooding = tokio::spawn(async move {
        let call =
            json!({ "type": "invokefunction", "invocation_id": Uuid::new_v4(), "function_id": "nope" });
        let frames = [call.to_string(), "garbage".to_owned()];
        while let Ok(()) = flooder.socket.feed(Message::text(frames[0].clone())).await {
            if flooder.socket.feed(Message::text(frames[1].clone())).await.is_err() {
                break;
            }
        }
    });
    let mut caller = setup.worker().await;
    for n in 0..200 {
        assert_eq!(caller.result("f", json!({ "n": n })).await, json!(n));
    }
    flooding.abort();
}

#[tokio::test]
async fn a_payload_that_would_cost_a_worker_its_connection_fails_alone() {
    let setup = engine_with(|_| {}).await;
    let mut callee = setup.worker_with(&["f"]).await;
    let profile = json!({ "runtime": "python", "version": "0.11.6", "name": "old", "pid": 1 });
    assert_eq!(callee.result("engine::workers::register", profile).await, json!({ "success": true }));
    let mut caller = setup.worker().await;
    assert_eq!(caller.error("f", json!("x".repeat(2 << 20))).await, "payload_too_large");
    caller.invoke(Uuid::new_v4(), "f", json!("small")).await;
    let call = callee.work().await;
    callee.answer(&call, json!("still here")).await;
    assert_eq!(caller.next().await["result"], "still here");
    let state = json!({ "scope": "s", "key": "k", "value": "x".repeat(2 << 20) });
    caller.result("state::set", state).await;
    assert_eq!(callee.error("state::get", json!({ "scope": "s", "key": "k" })).await, "result_too_large");
}

#[tokio::test]
async fn a_schema_that_is_too_expensive_is_refused_and_the_other_functions_stay() {
    let setup = engine_with(|_| {}).await;
    let mut worker = setup.worker_with(&["before"]).await;
    let mut defs = serde_json::Map::new();
    for level in 0..40 {
        let next = json!({ "$ref": format!("#/$defs/l{}", level + 1) });
        defs.insert(format!("l{level}"), json!({ "allOf": [next, next] }));
    }
    defs.insert("l40".to_owned(), json!({ "type": "integer" }));
    let bomb = json!({ "$ref": "#/$defs/l0", "$defs": defs });
    worker.send(json!({ "type": "registerfunction", "id": "bomb", "request_format": bomb })).await;
    let answer = worker.next().await;
    let why = "the schema of `bomb` is rejected: more than 64 of its parts are applied to one value, one inside the other";
    // The only code at which the SDKs keep the other functions.
    assert_eq!(
        answer,
        json!({
            "type": "registrationrejected", "code": "FUNCTION_NAMESPACE_CONFLICT", "namespace": "default",
            "function_id": "bomb", "owner_worker_id": format!("engine (refused: {why})"), "message": why,
        })
    );
    worker
        .send(json!({ "type": "registerfunction", "id": "after", "request_format": { "type": "object" } }))
        .await;
    let listed = worker.result("engine::functions::list", json!({ "worker": worker.id })).await;
    let ids: Vec<_> =
        listed["functions"].as_array().unwrap().iter().map(|one| one["function_id"].clone()).collect();
    assert_eq!(ids, ["after", "before"]);
}

#[tokio::test]
async fn a_function_whose_new_schema_is_refused_is_removed() {
    let setup = engine_with(|_| {}).await;
    let mut worker = setup.worker_with(&["f"]).await;
    worker.send(json!({ "type": "registerfunction", "id": "f", "request_format": { "$ref": "#" } })).await;
    assert_eq!(worker.next().await["function_id"], "f");
    assert!(setup.call("f", json!({})).await.unwrap_err().to_string().contains("not found"));
}

#[tokio::test]
async fn a_message_that_is_far_too_large_is_not_parsed() {
    let setup = engine_with(|options| options.limits.registration = 1000).await;
    let mut worker = setup.worker().await;
    worker.send_text(&registration("f", 4000)).await;
    assert_eq!(worker.next().await["code"], "FUNCTION_LIMIT_EXCEEDED");
    worker.send_text(&registration("f", 4001)).await;
    worker.settle().await;
}

/// Announces a text message of this many bytes, and sends none of them.
async fn announce(worker: &mut Worker, bytes: usize) {
    let mut header = vec![0x81, 0xff];
    header.extend_from_slice(&u64::try_from(bytes).unwrap().to_be_bytes());
    header.extend_from_slice(&[1, 2, 3, 4]);
    worker.socket.get_mut().write_all(&header).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_announces_a_message_of_more_than_64_mib_is_disconnected() {
    let setup = engine_with(|_| {}).await;
    let mut within = setup.worker_with(&["within"]).await;
    announce(&mut within, 64 * 1024 * 1024).await;
    let mut past = setup.worker_with(&["past"]).await;
    announce(&mut past, 64 * 1024 * 1024 + 1).await;
    assert_eq!(past.next_if_any().await, None);
    let mut other = setup.worker().await;
    let listed = other.result("engine::functions::list", json!({ "prefix": "past" })).await;
    assert_eq!(listed["functions"], json!([]));
    let listed = other.result("engine::functions::list", json!({ "prefix": "within" })).await;
    assert_eq!(listed["functions"][0]["function_id"], "within");
}

#[test]
fn the_default_limits_are_the_documented_ones() {
    const DOCUMENT: &str = include_str!("../../../../docs/limits.md");
    let (kib, mib) = (1024, 1024 * 1024);
    let limits = EngineLimits::default();
    assert_eq!((limits.registration, limits.registrations, limits.functions), (512 * kib, 64 * mib, 10_000));
    assert_eq!((limits.triggers, limits.trigger_types, limits.state_value), (10_000, 256, 4 * mib));
    assert_eq!(attache_iii::wire::MAX_MESSAGE, 64 * mib);
    for row in [
        "| a message of a worker to the embedded engine | 64 MiB for calls and results",
        "; 2 MiB for any other message (4 × `registration`) |",
        "| a registration | `EngineLimits::registration`, 512 KiB; 10,000 registrations and 64 MiB per worker, 256 kinds of triggers |",
        "`EngineLimits::state_value`, 4 MiB;",
    ] {
        assert!(DOCUMENT.contains(row), "{row}");
    }
}

#[tokio::test]
async fn the_input_of_engine_functions_is_limited() {
    let setup = engine_with(|_| {}).await;
    let mut worker = setup.worker().await;
    let of = |size: usize| json!({ "prefix": "x".repeat(size - json!({ "prefix": "" }).to_string().len()) });
    let list = "engine::functions::list";
    assert_eq!(worker.result(list, of(256 * 1024)).await["functions"], json!([]));
    assert_eq!(worker.error(list, of(256 * 1024 + 1)).await, "INPUT_TOO_LARGE");
}

#[tokio::test]
async fn changes_to_a_value_are_limited_like_the_value() {
    let setup = engine_with(|options| options.limits.state_value = 1000).await;
    let mut worker = setup.worker().await;
    let of = |size: usize| {
        let change = |text: &str| json!({ "scope": "s", "key": "k", "ops": [{ "type": "set", "path": "a", "value": text }] });
        change(&"x".repeat(size - change("").to_string().len()))
    };
    worker.result("state::update", of(1000)).await;
    assert_eq!(worker.error("state::update", of(1001)).await, "VALUE_TOO_LARGE");
}

#[tokio::test]
async fn a_worker_provides_a_limited_number_of_trigger_types() {
    let setup = engine_with(|options| options.limits.trigger_types = 2).await;
    let mut worker = setup.worker().await;
    for id in ["a", "b", "b", "c"] {
        worker.send(json!({ "type": "registertriggertype", "id": id, "description": "" })).await;
    }
    let listed = worker.result("engine::trigger-types::list", json!({})).await;
    let ids: Vec<_> = listed["triggers"].as_array().unwrap().iter().map(|kind| kind["id"].clone()).collect();
    assert!(ids.contains(&json!("b")) && !ids.contains(&json!("c")), "{ids:?}");
}
