//! The lists of functions, workers and triggers.

use std::time::Duration;

use attache_iii::{FunctionInfo, Functions};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::engine;

fn ids(listed: &Value) -> Vec<&str> {
    let functions = listed["functions"].as_array().unwrap();
    functions.iter().map(|function| function["function_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn functions_are_listed_in_order_with_their_metadata() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let schema = json!({ "type": "object" });
    let function = json!({
        "type": "registerfunction", "id": "b::two", "description": "The second", "request_format": schema,
        "response_format": null, "metadata": { "a2a.expose": true },
    });
    worker.send(function).await;
    worker.send(json!({ "type": "registerfunction", "id": "a::one" })).await;
    worker
        .send(json!({ "type": "registerfunction", "id": "b::hidden", "metadata": { "internal": true } }))
        .await;
    worker.result("engine::workers::register", json!({ "name": "shop" })).await;
    let listed = worker.result("engine::functions::list", json!({ "worker": "shop" })).await;
    let expected = json!({ "functions": [
        { "function_id": "a::one", "namespace": "default", "worker_name": "shop" },
        {
            "function_id": "b::two", "namespace": "default", "worker_name": "shop", "description": "The second",
            "metadata": { "a2a.expose": true }, "request_format": schema,
        },
    ] });
    assert_eq!(listed, expected);
    let listed =
        worker.result("engine::functions::list", json!({ "prefix": "b::", "include_internal": true })).await;
    assert_eq!(ids(&listed), ["b::hidden", "b::two"]);
    let listed = worker.result("engine::functions::list", json!({ "search": "SECOND" })).await;
    assert_eq!(ids(&listed), ["b::two"]);
    let all = worker.result("engine::functions::list", json!({})).await;
    assert!(ids(&all).contains(&"state::set"));
    assert!(!ids(&all).iter().any(|id| id.starts_with("engine::")));
}

#[tokio::test]
async fn functions_are_described_one_by_one_and_in_batches() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    let schema = json!({ "type": "string" });
    worker.send(json!({ "type": "registerfunction", "id": "f", "response_format": schema })).await;
    let config = json!({ "scope": "s" });
    worker.send(json!({ "type": "registertrigger", "id": "t", "trigger_type": "state", "function_id": "f", "config": config })).await;
    let described = worker.result("engine::functions::info", json!({ "function_id": "f" })).await;
    assert_eq!(described["response_schema"], schema);
    let triggers = json!([{ "id": "t", "trigger_type": "state", "config": config }]);
    assert_eq!(described["registered_triggers"], triggers);
    let batch = worker.result("engine::functions::info", json!({ "function_ids": ["f", "g"] })).await;
    assert_eq!(batch["functions"][0]["function_id"], "f");
    assert_eq!(batch["functions"][1], json!({ "function_id": "g", "error": "not_found" }));
    let missing = worker.call("engine::functions::info", json!({ "function_id": "g" })).await;
    let expected = json!({ "code": "NOT_FOUND", "message": "Function 'g' is not registered." });
    assert_eq!(missing["error"], expected);
}

#[tokio::test]
async fn subscribers_of_the_catalog_see_functions_come_and_go() {
    let setup = engine().await;
    let mut updates = setup.engine.updates();
    let worker = setup.worker_with(&["f"]).await;
    updates.wait_for(|catalog| catalog.as_ref().is_some_and(|all| all.contains_key("f"))).await.unwrap();
    drop(worker);
    updates.wait_for(|catalog| catalog.as_ref().is_some_and(|all| !all.contains_key("f"))).await.unwrap();
}

#[tokio::test]
async fn thousands_of_functions_cause_few_catalogs() {
    let setup = engine().await;
    let mut updates = setup.engine.updates();
    updates.mark_unchanged();
    let ids: Vec<_> = (0..5000).map(|i| format!("f::{i}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let registering = setup.worker_with(&ids);
    let counting = async {
        let mut catalogs = 0;
        loop {
            updates.changed().await.unwrap();
            catalogs += 1;
            let all = updates.borrow_and_update();
            if all.as_ref().unwrap().contains_key("f::4999") {
                return catalogs;
            }
        }
    };
    let (_worker, catalogs) = tokio::join!(registering, counting);
    assert!(catalogs < 500, "{catalogs}");
}

#[tokio::test(start_paused = true)]
async fn the_list_of_functions_is_published_once_in_50_ms() {
    let setup = engine().await;
    let register = |id: &str| {
        let answer = |_| async { Ok(to_raw_value(&1).unwrap()) };
        setup.engine.register(FunctionInfo::new(id), answer);
    };
    let mut updates = setup.engine.updates();
    updates.mark_unchanged();
    register("one");
    updates.changed().await.unwrap();
    let published = Instant::now();
    for id in ["two", "three"] {
        register(id);
    }
    updates.changed().await.unwrap();
    assert_eq!(published.elapsed(), Duration::from_millis(50));
    assert!(updates.borrow_and_update().as_ref().unwrap().contains_key("three"));
    assert!(!updates.has_changed().unwrap(), "both are in the same list");
}

#[tokio::test]
async fn triggers_fire_when_functions_change() {
    let setup = engine().await;
    let mut watcher = setup.worker_with(&["seen"]).await;
    watcher.send(json!({ "type": "registertrigger", "id": "t", "trigger_type": "engine::functions-available", "function_id": "seen", "config": {} })).await;
    let _worker = setup.worker_with(&["new::one", "new::two"]).await;
    loop {
        let call = watcher.work().await;
        assert_eq!(call["data"]["event"], "functions_changed");
        if ids(&call["data"]).contains(&"new::two") {
            break;
        }
    }
}

#[tokio::test]
async fn triggers_fire_when_workers_come_and_go() {
    let setup = engine().await;
    let mut watcher = setup.worker_with(&["seen"]).await;
    watcher.send(json!({ "type": "registertrigger", "id": "t", "trigger_type": "engine::workers-available", "function_id": "seen" })).await;
    watcher.settle().await;
    let mut worker = setup.worker().await;
    let id = worker.id.clone();
    worker.result("engine::workers::register", json!({ "name": "new" })).await;
    drop(worker);
    for event in ["worker_connected", "worker_metadata_updated", "worker_disconnected"] {
        assert_eq!(watcher.work().await["data"], json!({ "event": event, "worker_id": id }));
    }
}

#[tokio::test]
async fn a_worker_is_described_as_it_describes_itself() {
    let setup = engine().await;
    let mut worker = setup.worker_with(&["f"]).await;
    worker.result("engine::workers::register", json!({ "name": "shop", "pid": 7, "runtime": "rust" })).await;
    let described = worker.result("engine::workers::info", json!({ "name": "shop" })).await;
    assert_eq!(described["id"], worker.id);
    assert_eq!((&described["pid"], &described["runtime"]), (&json!(7), &json!("rust")));
    assert_eq!(described["functions"], json!(["f"]));
    assert_eq!(worker.error("engine::workers::info", json!({ "name": "?" })).await, "NOT_FOUND");
}
