//! `state::*`.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::engine;

#[tokio::test]
async fn a_value_is_set_got_listed_and_deleted() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let set = json!({ "scope": "s", "key": "b", "value": { "n": 1 } });
    assert_eq!(worker.result("state::set", set).await, json!({ "old_value": null, "new_value": { "n": 1 } }));
    let set = json!({ "scope": "s", "key": "a", "data": [2] });
    worker.result("state::set", set.clone()).await;
    assert_eq!(worker.result("state::set", set).await, json!({ "old_value": [2], "new_value": [2] }));
    let at = |key: &str| json!({ "scope": "s", "key": key });
    assert_eq!(worker.result("state::get", at("b")).await, json!({ "n": 1 }));
    assert_eq!(worker.result("state::get", at("nothing")).await, Value::Null);
    assert_eq!(worker.result("state::list", json!({ "scope": "s" })).await, json!([{ "n": 1 }, [2]]));
    assert_eq!(worker.result("state::list", json!({ "scope": "?" })).await, json!([]));
    assert_eq!(worker.result("state::list_groups", Value::Null).await, json!({ "groups": ["s"] }));
    assert_eq!(worker.result("state::delete", at("a")).await, json!([2]));
    assert_eq!(worker.result("state::delete", at("a")).await, Value::Null);
    assert_eq!(setup.call("state::get", at("b")).await, Ok(json!({ "n": 1 })));
}

#[tokio::test]
async fn an_update_changes_parts_and_reports_failed_operations() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let ops = json!([
        { "type": "increment", "path": "n", "by": 2 },
        { "type": "merge", "value": 7 },
        { "type": "append", "path": "list", "value": 1 },
    ]);
    let updated = worker.result("state::update", json!({ "scope": "s", "key": "k", "ops": ops })).await;
    assert_eq!(updated["old_value"], Value::Null);
    assert_eq!(updated["new_value"], json!({ "n": 2, "list": [1] }));
    assert_eq!(updated["errors"][0]["op_index"], 1);
    assert_eq!(updated["errors"][0]["code"], "merge.value.not_an_object");
    let ops = json!([{ "type": "increment", "path": "n", "by": 1 }]);
    let updated = worker.result("state::update", json!({ "scope": "s", "key": "k", "ops": ops })).await;
    let expected = json!({ "old_value": { "n": 2, "list": [1] }, "new_value": { "n": 3, "list": [1] } });
    assert_eq!(updated, expected);
}

#[tokio::test]
async fn invalid_input_gets_an_error_message() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let result = worker.call("state::set", json!({ "scope": "s" })).await;
    let message = "Failed to deserialize input for state::set: missing field `key`";
    assert_eq!(result["error"], json!({ "code": "deserialization_error", "message": message }));
    assert_eq!(worker.error("state::get", json!("text")).await, "deserialization_error");
    let ops = json!([{ "type": "fly" }]);
    let update = json!({ "scope": "s", "key": "k", "ops": ops });
    assert_eq!(worker.error("state::update", update).await, "deserialization_error");
}

#[tokio::test]
async fn state_calls_of_one_worker_run_in_order() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    for i in 0..500 {
        let data = json!({ "scope": "s", "key": "k", "value": i });
        let void = json!({ "type": "void" });
        worker.send(json!({ "type": "invokefunction", "function_id": "state::set", "data": data, "action": void })).await;
        assert_eq!(worker.result("state::get", json!({ "scope": "s", "key": "k" })).await, json!(i));
    }
}

#[tokio::test]
async fn state_survives_its_worker() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let mut other = setup.worker().await;
    let trigger = json!({ "type": "registertrigger", "id": "t", "trigger_type": "state", "function_id": "seen", "config": { "scope": "s", "key": "99" } });
    other.send(json!({ "type": "registerfunction", "id": "seen" })).await;
    other.send(trigger).await;
    other.settle().await;
    for i in 0..100 {
        let data = json!({ "scope": "s", "key": i.to_string(), "value": i });
        worker.send(json!({ "type": "invokefunction", "function_id": "state::set", "data": data, "action": { "type": "void" } })).await;
    }
    worker.socket.close(None).await.unwrap();
    drop(worker);
    other.work().await;
    let stored = setup.call("state::list", json!({ "scope": "s" })).await.unwrap();
    assert_eq!(stored, json!((0..100).collect::<Vec<_>>()));
}

#[tokio::test]
async fn a_value_over_the_limit_is_refused() {
    let setup = crate::support::engine_with(|options| options.limits.state_value = 64).await;
    let mut worker = setup.worker().await;
    let set = json!({ "scope": "s", "key": "k", "value": "x".repeat(100) });
    assert_eq!(worker.error("state::set", set).await, "VALUE_TOO_LARGE");
    // With its quotes.
    for (length, fits) in [(62, true), (63, false), (50, true)] {
        let set = json!({ "scope": "s", "key": "k", "value": "x".repeat(length) });
        match fits {
            true => {
                assert_eq!(worker.result("state::set", set).await["new_value"], json!("x".repeat(length)))
            }
            false => assert_eq!(worker.error("state::set", set).await, "VALUE_TOO_LARGE"),
        }
    }
    let ops = json!([{ "type": "append", "value": "x".repeat(50) }]);
    assert_eq!(
        worker.error("state::update", json!({ "scope": "s", "key": "k", "ops": ops })).await,
        "VALUE_TOO_LARGE"
    );
    let stored = worker.result("state::get", json!({ "scope": "s", "key": "k" })).await;
    assert_eq!(stored, json!("x".repeat(50)));
}

#[tokio::test]
async fn a_state_trigger_gets_the_change() {
    let setup = engine().await;
    let mut watcher = setup.worker_with(&["seen"]).await;
    let trigger = json!({
        "type": "registertrigger", "id": "t", "trigger_type": "state", "function_id": "seen",
        "config": { "scope": "s" }, "metadata": { "m": 1 },
    });
    watcher.send(trigger).await;
    watcher.settle().await;
    let mut worker = setup.worker().await;
    for (function, scope, value) in [
        ("state::set", "other", 0),
        ("state::set", "s", 1),
        ("state::set", "s", 2),
        ("state::delete", "s", 0),
    ] {
        worker.invoke(Uuid::new_v4(), function, json!({ "scope": scope, "key": "k", "value": value })).await;
    }
    let mut events = Vec::new();
    for _ in 0..3 {
        let call = watcher.work().await;
        assert_eq!(call["metadata"], json!({ "m": 1 }));
        events.push(call["data"].clone());
    }
    let event = |kind: &str, old: Value, new: Value| {
        json!({
            "type": "state", "event_type": kind, "scope": "s", "key": "k", "old_value": old, "new_value": new,
        })
    };
    let expected = [
        event("state:created", Value::Null, json!(1)),
        event("state:updated", json!(1), json!(2)),
        event("state:deleted", json!(2), Value::Null),
    ];
    assert_eq!(events, expected);
}

#[tokio::test]
async fn a_state_trigger_calls_its_condition_first() {
    let setup = engine().await;
    let mut watcher = setup.worker_with(&["seen", "big"]).await;
    let config = json!({ "scope": "s", "condition_function_id": "big" });
    watcher.send(json!({ "type": "registertrigger", "id": "t", "trigger_type": "state", "function_id": "seen", "config": config })).await;
    watcher.settle().await;
    for value in [1, 100] {
        setup.call("state::set", json!({ "scope": "s", "key": "k", "value": value })).await.unwrap();
        let asked = watcher.work().await;
        assert_eq!(asked["function_id"], "big");
        watcher.answer(&asked, json!(value > 10)).await;
    }
    let seen = watcher.work().await;
    assert_eq!((&seen["function_id"], &seen["data"]["new_value"]), (&json!("seen"), &json!(100)));
}
