//! Trigger types that workers provide, and permanent triggers.

use serde_json::{Value, json};

use crate::support::engine;

fn trigger(id: &str, kind: &str) -> Value {
    json!({
        "type": "registertrigger", "id": id, "trigger_type": kind, "function_id": "f", "config": { "every": 5 },
    })
}

#[tokio::test]
async fn a_provider_gets_the_triggers_of_its_type() {
    let setup = engine().await;
    let mut provider = setup.worker().await;
    provider.send(json!({ "type": "registertriggertype", "id": "kick", "description": "Kick" })).await;
    provider.settle().await;
    let mut worker = setup.worker().await;
    worker.send(trigger("t", "kick")).await;
    assert_eq!(provider.next().await, trigger("t", "kick"));
    worker.send(json!({ "type": "unregistertrigger", "id": "t", "trigger_type": "kick" })).await;
    let expected = json!({ "type": "unregistertrigger", "id": "t", "trigger_type": "kick" });
    assert_eq!(provider.next().await, expected);
}

#[tokio::test]
async fn a_trigger_waits_for_a_provider_of_its_type() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    worker.send(trigger("t", "kick")).await;
    worker.settle().await;
    let mut provider = setup.worker().await;
    provider.send(json!({ "type": "registertriggertype", "id": "kick" })).await;
    assert_eq!(provider.next().await, trigger("t", "kick"));
    drop(worker);
    assert_eq!(provider.next().await["type"], "unregistertrigger");
}

#[tokio::test]
async fn a_rejection_by_the_provider_reaches_the_owner_of_the_trigger() {
    let setup = engine().await;
    let mut provider = setup.worker().await;
    provider.send(json!({ "type": "registertriggertype", "id": "kick" })).await;
    provider.settle().await;
    let mut worker = setup.worker().await;
    worker.send(trigger("t", "kick")).await;
    provider.next().await;
    let answer = json!({
        "type": "triggerregistrationresult", "id": "t", "trigger_type": "kick", "function_id": "f",
        "error": { "code": "no", "message": "not so often" },
    });
    let mut liar = setup.worker().await;
    let mut lie = answer.clone();
    lie["error"]["code"] = json!("a lie");
    liar.send(lie).await;
    liar.settle().await;
    provider.send(answer.clone()).await;
    assert_eq!(worker.next().await, answer);
}

#[tokio::test]
async fn the_triggers_of_another_worker_cannot_be_removed() {
    let setup = engine().await;
    let mut watcher = setup.worker_with(&["seen"]).await;
    watcher
        .send(json!({ "type": "registertrigger", "id": "t", "trigger_type": "state", "function_id": "seen" }))
        .await;
    watcher.settle().await;
    let mut other = setup.worker().await;
    other.send(json!({ "type": "unregistertrigger", "id": "t" })).await;
    other
        .send(json!({ "type": "registertrigger", "id": "t", "trigger_type": "state", "function_id": "g" }))
        .await;
    assert_eq!(other.next().await["error"]["code"], "trigger_registration_failed");
    setup.call("state::set", json!({ "scope": "s", "key": "k", "value": 1 })).await.unwrap();
    watcher.work().await;
}

#[tokio::test]
async fn a_permanent_trigger_outlives_the_worker_that_registered_it() {
    let setup = engine().await;
    let mut watcher = setup.worker_with(&["seen"]).await;
    let mut worker = setup.worker().await;
    let asked = json!({ "trigger_type": "state", "function_id": "seen", "config": { "scope": "s" } });
    let id = worker.result("engine::register_trigger", asked).await["id"].clone();
    drop(worker);
    let mut worker = setup.worker().await;
    let set = json!({ "scope": "s", "key": "k", "value": 1 });
    worker.result("state::set", set.clone()).await;
    watcher.work().await;
    let listed = worker.result("engine::registered-triggers::list", json!({})).await;
    assert_eq!(listed["triggers"][0]["id"], id);
    let removed = worker.result("engine::unregister_trigger", json!({ "id": id })).await;
    assert_eq!(removed, json!({ "removed": true }));
    worker.result("state::set", set).await;
    watcher.settle().await;
}

#[tokio::test]
async fn trigger_types_are_listed() {
    let setup = engine().await;
    let mut worker = setup.worker().await;
    worker.send(json!({ "type": "registertriggertype", "id": "kick", "description": "Kick" })).await;
    let listed = worker.result("engine::triggers::list", json!({})).await;
    let ids: Vec<_> = listed["triggers"].as_array().unwrap().iter().map(|kind| &kind["id"]).collect();
    assert_eq!(ids, ["engine::functions-available", "engine::workers-available", "http", "kick", "state"]);
}
